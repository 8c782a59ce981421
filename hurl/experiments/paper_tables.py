"""The tables of the paper's appendix, as the presets and the grid of the tuning have their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hurl.experiments.config import ConfigurationError, RunConfig, as_text, load_config
from hurl.experiments.tuning.grid import Stage, read_grid

__all__ = ["TABLES", "PaperTable", "paper_table"]

# The heading of each column, and a row for each quantity.
PaperTable = tuple[list[str], list[list[str]]]

BASE: Mapping[str, Callable[[RunConfig], Any]] = {
    "observation dimensions": lambda config: _spaces(config)[0],
    "action dimensions": lambda config: _spaces(config)[1],
    "evaluation horizon": lambda config: _horizon(config),
    "γ": lambda config: config.gamma,
    "iterations N": lambda config: config.iterations,
    "batch size": lambda config: config.steps_per_iteration,
    "policy network": lambda config: _parameters(config)["policy_kwargs"]["net_arch"]["pi"],
    "value network": lambda config: _parameters(config)["policy_kwargs"]["net_arch"]["qf"],
    "activation": lambda config: _parameters(config)["policy_kwargs"]["activation_fn"],
    "policy step size": lambda config: _parameters(config)["learning_rate"],
    "value step size": lambda config: _parameters(config)["qf_learning_rate"],
    "target step size": lambda config: _parameters(config)["tau"],
    "minibatch size": lambda config: _parameters(config)["batch_size"],
    "gradient steps per iteration": lambda config: config.updates_per_iteration,
}
GRID = {
    "policy step size": (Stage.base, "algorithm.parameters.learning_rate"),
    "value step size": (Stage.base, "algorithm.parameters.qf_learning_rate"),
    "target step size": (Stage.base, "algorithm.parameters.tau"),
    "γ": (Stage.base, "gamma"),
    "λ0": (Stage.guidance, "guidance.schedule.lambda0"),
    "α": (Stage.guidance, "guidance.schedule.alpha"),
}
# What RLlib no longer has, such as a soft horizon, and frame stacking, which nobody does, have no rows.
PROCGEN: Mapping[str, Callable[[RunConfig], Any]] = {
    "IMPALA layer sizes": lambda config: _parameters(config)["model_config"]["depths"],
    "rollout fragment length": lambda config: _parameters(config)["env_runners"]["rollout_fragment_length"],
    "remote env runners": lambda config: _parameters(config)["env_runners"]["num_env_runners"],
    "environments per env runner": lambda config: config.environment.n_envs,
    "γ": lambda config: config.gamma,
    "minibatch size": lambda config: _parameters(config)["minibatch_size"],
    "train batch size (4000 in the paper, less than a round of sampling)": lambda config: _parameters(config)[
        "train_batch_size_per_learner"
    ],
    "epochs": lambda config: _parameters(config)["num_epochs"],
    "learning rate": lambda config: _parameters(config)["lr"],
    "batch mode": lambda config: _parameters(config)["env_runners"]["batch_mode"],
    "value function clip parameter": lambda config: _parameters(config)["vf_clip_param"],
    "value function loss coefficient": lambda config: _parameters(config)["vf_loss_coeff"],
    "KL coefficient": lambda config: _parameters(config)["kl_coeff"],
    "KL target": lambda config: _parameters(config)["kl_target"],
    "entropy coefficient": lambda config: _parameters(config)["entropy_coeff"],
    "clip parameter": lambda config: _parameters(config)["clip_param"],
    "gradient clip": lambda config: _parameters(config)["grad_clip"],
    "GAE λ": lambda config: _parameters(config)["lambda_"],
}
DENSE = ("hopper", "halfcheetah", "swimmer", "humanoid")


def _grid_table() -> PaperTable:
    grid = {stage: read_grid("mujoco", stage) for stage in Stage}
    return ["", "values"], [[name, _choices(grid[stage][key])] for name, (stage, key) in GRID.items()]


def _sparse_table() -> PaperTable:
    return _configurations(["sparse-reacher"], {"HuRL": "hurl"}, {})


def _dense_table() -> PaperTable:
    policies = {"behaviour policies": _policies}
    return _configurations(DENSE, {"HuRL-MC": "hurl-mc", "HuRL-zero": "hurl-zero"}, policies)


def _procgen_table() -> PaperTable:
    config = load_config("procgen/ppo-hurl")
    assert config.guidance is not None
    schedule = config.guidance.schedule.parameters
    values = {label: value(config) for label, value in PROCGEN.items()}
    values |= {"PPO-HuRL λ0": schedule["lambda0"], "PPO-HuRL α": schedule["alpha"]}
    return ["", "Procgen"], [[label, _text(value)] for label, value in values.items()]


def _procgen_grid_table() -> PaperTable:
    grid = read_grid("procgen", Stage.guidance)
    return ["", "values"], [[name, _choices(grid[GRID[name][1]])] for name in ("λ0", "α")]


def _choices(values: Sequence[Any]) -> str:
    return ", ".join(as_text(value) for value in values)


# By their numbers in the paper.
TABLES: Mapping[str, Callable[[], PaperTable]] = {
    "table-1": _grid_table,
    "table-2": _sparse_table,
    "table-3": _dense_table,
    "table-4": _procgen_table,
    "table-5": _procgen_grid_table,
}


def paper_table(name: str) -> PaperTable:
    """Return the headings and rows of a table, such as `table-3`."""
    if name not in TABLES:
        raise ConfigurationError(f"there is no table {name!r} to reproduce; there are {', '.join(TABLES)}")
    return TABLES[name]()


def _configurations(
    presets: Sequence[str], guided: Mapping[str, str], more: Mapping[str, Callable[[RunConfig], Any]]
) -> PaperTable:
    """Return a column for each preset: what all its variants share, then λ0 and α of the guided ones."""
    first = next(iter(guided.values()))
    shared = [load_config(f"{preset}/{first}") for preset in presets]
    rows = [[label, *(_text(value(config)) for config in shared)] for label, value in {**BASE, **more}.items()]
    for label, variant in guided.items():
        configs = [load_config(f"{preset}/{variant}") for preset in presets]
        schedules = [config.guidance.schedule.parameters for config in configs if config.guidance is not None]
        rows.append([f"{label} λ0", *(_text(schedule["lambda0"]) for schedule in schedules)])
        rows.append([f"{label} α", *(_text(schedule["alpha"]) for schedule in schedules)])
    return ["", *(config.environment.id for config in shared)], rows


def _parameters(config: RunConfig) -> dict[str, Any]:
    return config.algorithm.parameters


def _spaces(config: RunConfig) -> tuple[int, int]:
    """Return the dimensions of observations and actions."""
    from hurl.envs import make_env

    env = make_env(config.environment.id, 1, 0, backend=config.environment.backend)
    try:
        observation, action = env.observation_space.shape, env.action_space.shape
    finally:
        env.close()
    assert observation is not None
    assert action is not None
    return observation[0], action[0]


def _horizon(config: RunConfig) -> int | None:
    import gymnasium

    return gymnasium.spec(config.environment.id).max_episode_steps


def _policies(config: RunConfig) -> int:
    assert config.data is not None
    return config.data.policies


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(str(part) for part in value)})"
    return as_text(value)
