"""The tables of the paper's appendix, as the presets and the grid of the tuning have their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium

from hurl.experiments.config import RunConfig, load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.sources import as_text
from hurl.experiments.tuning.grid import Stage, read_grid

# The heading of each column, and a row for each quantity.
PaperTable = tuple[list[str], list[list[str]]]
# Where a configuration has a value, as a dotted key, or what tells it.
Quantities = Mapping[str, str | Callable[[RunConfig], Any]]

BASE: Quantities = {
    "observation dimensions": lambda config: _dimensions(config, "observation_space"),
    "action dimensions": lambda config: _dimensions(config, "action_space"),
    "evaluation horizon": lambda config: gymnasium.spec(config.environment.id).max_episode_steps,
    "γ": "gamma",
    "iterations N": "iterations",
    "batch size": "steps_per_iteration",
    "policy network": "algorithm.parameters.policy_kwargs.net_arch.pi",
    "value network": "algorithm.parameters.policy_kwargs.net_arch.qf",
    "activation": "algorithm.parameters.policy_kwargs.activation_fn",
    "policy step size": "algorithm.parameters.learning_rate",
    "value step size": "algorithm.parameters.qf_learning_rate",
    "target step size": "algorithm.parameters.tau",
    "minibatch size": "algorithm.parameters.batch_size",
    "gradient steps per iteration": "updates_per_iteration",
}
DENSE: Quantities = {**BASE, "behaviour policies": lambda config: config.data and config.data.policy_count}
SCHEDULE = {"λ0": "guidance.schedule.lambda0", "α": "guidance.schedule.alpha"}
GRID = {
    Stage.base: {
        "policy step size": "algorithm.parameters.learning_rate",
        "value step size": "algorithm.parameters.qf_learning_rate",
        "target step size": "algorithm.parameters.tau",
        "γ": "gamma",
    },
    Stage.guidance: SCHEDULE,
}
# What RLlib no longer has, such as a soft horizon, and frame stacking, which nobody does, have no rows.
PROCGEN: Quantities = {
    "IMPALA layer sizes": "algorithm.parameters.model_config.depths",
    "rollout fragment length": "algorithm.parameters.env_runners.rollout_fragment_length",
    "remote env runners": "algorithm.parameters.env_runners.num_env_runners",
    "environments per env runner": "environment.n_envs",
    "γ": "gamma",
    "minibatch size": "algorithm.parameters.minibatch_size",
    "train batch size (4000 in the paper, less than a round of sampling)": (
        "algorithm.parameters.train_batch_size_per_learner"
    ),
    "epochs": "algorithm.parameters.num_epochs",
    "learning rate": "algorithm.parameters.lr",
    "batch mode": "algorithm.parameters.env_runners.batch_mode",
    "value function clip parameter": "algorithm.parameters.vf_clip_param",
    "value function loss coefficient": "algorithm.parameters.vf_loss_coeff",
    "KL coefficient": "algorithm.parameters.kl_coeff",
    "KL target": "algorithm.parameters.kl_target",
    "entropy coefficient": "algorithm.parameters.entropy_coeff",
    "clip parameter": "algorithm.parameters.clip_param",
    "gradient clip": "algorithm.parameters.grad_clip",
    "GAE λ": "algorithm.parameters.lambda_",
}
DENSE_PRESETS = ("hopper", "halfcheetah", "swimmer", "humanoid")

# By their numbers in the paper.
TABLES: Mapping[str, Callable[[], PaperTable]] = {
    "table-1": lambda: _grid_table("mujoco", list(Stage)),
    "table-2": lambda: _configurations(["sparse-reacher"], BASE, {"HuRL": "hurl"}),
    "table-3": lambda: _configurations(DENSE_PRESETS, DENSE, {"HuRL-MC": "hurl-mc", "HuRL-zero": "hurl-zero"}),
    "table-4": lambda: (["", "Procgen"], _configurations(["procgen"], PROCGEN, {"PPO-HuRL": "ppo-hurl"})[1]),
    "table-5": lambda: _grid_table("procgen", [Stage.guidance]),
}


def paper_table(name: str) -> PaperTable:
    """Return the headings and rows of a table, such as `table-3`."""
    if name not in TABLES:
        raise ConfigurationError(f"there is no table {name!r} to reproduce; there are {', '.join(TABLES)}")
    return TABLES[name]()


def _grid_table(name: str, stages: Sequence[Stage]) -> PaperTable:
    rows = []
    for stage in stages:
        grid = read_grid(name, stage)
        rows += [[label, ", ".join(map(as_text, grid[key]))] for label, key in GRID[stage].items()]
    return ["", "values"], rows


def _configurations(presets: Sequence[str], quantities: Quantities, guided: Mapping[str, str]) -> PaperTable:
    """Return a column for each preset: what all its variants share, then λ0 and α of the guided ones."""
    columns = {label: [load_config(f"{preset}/{variant}") for preset in presets] for label, variant in guided.items()}
    shared = next(iter(columns.values()))
    rows = [[label, *(_text(config, quantity) for config in shared)] for label, quantity in quantities.items()]
    for name, configs in columns.items():
        rows += [[f"{name} {label}", *(_text(config, key) for config in configs)] for label, key in SCHEDULE.items()]
    return ["", *(config.environment.id for config in shared)], rows


def _dimensions(config: RunConfig, space: str) -> Any:
    from hurl.envs import make_env

    with closing(make_env(config.environment.id, 1, 0, backend=config.environment.backend)) as env:
        return getattr(env, space).shape[0]


def _text(config: RunConfig, quantity: str | Callable[[RunConfig], Any]) -> str:
    values: Any = config.model_dump()
    value = quantity(config) if callable(quantity) else reduce(getitem, quantity.split("."), values)
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else as_text(value)
