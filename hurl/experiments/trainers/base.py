"""What a run needs of an algorithm, whichever library it comes from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from hurl.envs import find_wrapper, make_env
from hurl.experiments.config import EnvironmentConfig, RunConfig, name_and_arguments
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row
from hurl.guidance import Guidance, HeuristicError, HeuristicStatistics
from hurl.heuristics import storage
from hurl.names import HeuristicName

TRAINING, EVALUATION, CLONING = 1, 2, 3  # what seeds are derived for


class Trainer(Protocol):
    """An algorithm at work in a run: Algorithm 1 but for evaluation and what is written down.

    Algorithms collect and train by turns of their own, SAC often after every step, RLlib's within one call: so that is
    one method, `iterate`.
    """

    @property
    def policy(self) -> PolicyPredictor:
        """The policy of the present weights."""
        ...

    @property
    def ended_by(self) -> str | None:
        """The name of what wants the run to end after this iteration, if anything."""
        ...

    def clone(self, report: Callable[[int, float], None]) -> float:
        """Clone the configuration's data into the policy; return the seconds that it took.

        :param report: called with each epoch and its mean loss
        """
        ...

    def iterate(self) -> dict[str, float]:
        """Collect a batch, and train on it, reshaped; return what the iteration's row says of that."""
        ...

    def not_finite(self) -> str | None:
        """Name what is not finite, if anything: a weight, an optimiser's state, a loss of the newest iteration."""
        ...

    def log(self, row: Row) -> None:
        """Write the figures of an iteration for TensorBoard."""
        ...

    def save(self, iteration: int) -> None:
        """Write a checkpoint, and be from here on what a run is that goes on from it: episodes begin anew."""
        ...

    def close(self) -> None:
        """Let go of environments and processes."""
        ...


class CheckpointPolicy(PolicyPredictor, Protocol):
    """A policy to be rolled out, with the weights of one checkpoint or another."""

    @property
    def has_memory(self) -> bool:
        """Whether its actions depend on earlier steps."""
        ...

    def load(self, checkpoint: Path) -> None:
        """Take the weights of a checkpoint."""
        ...

    def seed(self, seed: int) -> None:
        """Seed what its actions are drawn with."""
        ...


class Trainers(Protocol):
    """A module that runs the algorithms of a library."""

    def build_trainer(
        self, config: RunConfig, folder: RunFolder, checkpoint: Path | None, *, trust: bool = False
    ) -> Trainer:
        """Build what a configuration names, with fresh weights, or to go on from a checkpoint.

        :param trust: whether functions that a saved heuristic names may be run, other than hurl's own
        """
        ...

    def build_policy(self, config: RunConfig, env: VecEnv) -> CheckpointPolicy:
        """Build a policy that is to act only; the run's heuristic is not needed."""
        ...

    def check_run(self, config: RunConfig) -> None:
        """Refuse a run that its algorithm could not learn, before anything is made for it."""
        ...

    def known_parameters(self, algorithm: str) -> Collection[str]:
        """Return the names of an algorithm's parameters."""
        ...


def build_environment(config: RunConfig, n_envs: int, seed: int) -> VecEnv:
    """Make the run's environments, which are not normalised."""
    return make_environment(config.environment, n_envs, seed, threads=config.threads)


def make_environment(environment: EnvironmentConfig, n_envs: int, seed: int, *, threads: int = 1) -> VecEnv:
    """Make what a configuration names, in its wrappers."""
    try:
        wrappers = [find_wrapper(*name_and_arguments(entry)) for entry in environment.wrappers or ()]
    except ValueError as error:
        raise ConfigurationError(f"environment.wrappers: {error}") from error
    return make_env(
        environment.id,
        n_envs,
        seed,
        backend=environment.backend,
        threads=threads,
        wrappers=wrappers,
        **environment.options,
    )


def build_guidance(config: RunConfig, env: VecEnv, folder: RunFolder, *, trust: bool = False) -> Guidance | None:
    """Make the run's guidance, its heuristic checked against the environments; a run of no iterations has none.

    A heuristic that was saved, and may be fitted anew, must be the one that the run began with.

    :param trust: whether functions that it names may be run, other than hurl's own
    """
    guidance = config.guidance
    if guidance is None or config.iterations == 0:
        return None
    assert isinstance(guidance.heuristic, HeuristicName)  # `train` refuses what must be fitted first
    try:
        heuristic = storage.find_heuristic(guidance.heuristic, env.observation_space, config.gamma, trust=trust)
    except HeuristicError:  # of a heuristic that was found, and does not suit
        raise
    except ValueError as error:
        raise ConfigurationError(f"guidance.heuristic: {error}") from error
    digest = getattr(heuristic, "digest", None)
    if digest is not None:
        folder.pin_input(f"heuristic {guidance.heuristic}", digest)
    return Guidance(
        heuristic,
        guidance.schedule.build(config.iterations),
        gamma=config.gamma,
        steps_per_iteration=config.steps_per_iteration,
        shaping=guidance.shaping,
    )


def guidance_columns(guidance: Guidance | None, gamma: float) -> dict[str, Any]:
    """Return what a row says of guidance: λ, γ̃, and h over the iteration where anything arrived."""
    if guidance is None:
        return {"lambda_": 1.0, "discount": gamma} | heuristic_columns(HeuristicStatistics())
    now = {"lambda_": guidance.lambda_, "discount": guidance.discount}
    return now | heuristic_columns(guidance.statistics) | _ladder_columns(guidance)


def _ladder_columns(guidance: Guidance) -> dict[str, float]:
    """Return what a row says of a ladder: how much the rungs below λ = 1 act, what the best of them pays, and λ = 1."""
    if guidance.turns is None:
        return {}
    *guided, base = guidance.turns.bandit.means.tolist()
    *guided_steps, steps = guidance.turns.rung_steps.tolist()
    return {
        "guided_share": sum(guided_steps) / max(1, sum(guided_steps) + steps),
        "guided_return": max(guided, default=np.nan, key=lambda mean: -np.inf if np.isnan(mean) else mean),
        "base_return": base,
    }


def heuristic_columns(statistics: HeuristicStatistics) -> dict[str, float]:
    """Return what a row says of h; NaN where nothing arrived."""
    limits = (statistics.minimum, statistics.maximum) if statistics.count else (np.nan, np.nan)
    return dict(zip(("h_mean", "h_min", "h_max"), (statistics.mean, *limits), strict=True))


def find_not_finite(values: Any, name: str = "") -> str | None:
    """Return the name of the first number or array that is not finite, among nested containers of them."""
    if isinstance(values, Mapping | list | tuple):
        entries = values.items() if isinstance(values, Mapping) else enumerate(values)
        found = (find_not_finite(value, f"{name}.{key}" if name else str(key)) for key, value in entries)
        return next(filter(None, found), None)
    array = np.asarray(values)
    if array.dtype.kind != "f" or np.isfinite(np.sum(array, dtype=np.float64)):  # where one is not, no sum is
        return None
    return name


def derive_seed(config: RunConfig, purpose: int, iteration: int) -> int:
    """Derive a seed from the run's, for one purpose at one iteration."""
    return int(np.random.SeedSequence([config.seed, purpose, iteration]).generate_state(1)[0] >> 1)
