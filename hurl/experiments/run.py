"""One run: the paper's Algorithm 1, evaluated after each iteration, and resumed where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.checkpoint import CheckpointError, check_metrics, check_weights, checkpoint_paths
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import ConfigurationError, RunFolderError, TrainingEndedError, TrainingFailedError
from hurl.experiments.extension import checkpoints_of, extend
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row
from hurl.experiments.trainers.base import EVALUATION, Trainer, build_environment, derive_seed, guidance_columns
from hurl.guidance import HeuristicError


def train(
    config: RunConfig,
    path: Path,
    report: Callable[[Row], None] = lambda row: None,
    *,
    report_cloning: Callable[[int, float], None] = lambda epoch, loss: None,
    report_resuming: Callable[[int], None] = lambda iteration: None,
    trust: bool = False,
) -> list[Row]:
    """Run a configuration in a folder, from its last checkpoint on; return the metrics, a row an iteration.

    A warm start comes before the first iteration: the cloned policy is iteration 0.

    :param path: the run's folder
    :param report: called with each row as it comes, those of an earlier part of the run included
    :param report_cloning: called with each epoch of the warm start and its mean loss
    :param report_resuming: called with the iteration that the run goes on from, where it was begun before
    :param trust: whether functions that a saved heuristic names may be run, other than hurl's own
    """
    if config.needs_data:
        raise ConfigurationError("the run's data must be made before it: use `hurl train` or `hurl campaign`")
    folder = RunFolder(path)
    with folder.open(config):
        checkpoints = checkpoints_of(folder, config)
        iteration = int(checkpoints[-1].name) if checkpoints else None
        rows = _read_rows(config, folder, checkpoints[-1]) if checkpoints else []
        if iteration is None or iteration < config.iterations:
            evaluation_seed = derive_seed(config, EVALUATION, 0)
            with (
                closing(_build_trainer(config, folder, checkpoints[-1] if checkpoints else None, trust)) as trainer,
                closing(build_environment(config, config.evaluation_episodes, evaluation_seed)) as env,
            ):
                extend(folder, config)  # now that nothing is missing
                _Run(config, folder, trainer, env, rows, report).go_on(report_cloning, report_resuming)
        else:
            for row in rows:
                report(row)
        if not config.keep_replay:
            folder.remove_replay()
    return rows


def _build_trainer(config: RunConfig, folder: RunFolder, checkpoint: Path | None, trust: bool) -> Trainer:
    """Build the run's trainer; what a library refuses is an error in the configuration."""
    try:
        config.algorithm.library.trainers.check_run(config)
        return config.algorithm.library.trainers.build_trainer(config, folder, checkpoint, trust=trust)
    except (TypeError, AssertionError) as error:
        raise ConfigurationError(
            f"{config.algorithm.name} on {config.environment.id} can't be built: {error}"
        ) from error


@dataclass
class _Run:
    """A run under way.

    :param rows: the metrics so far, which are added to
    """

    config: RunConfig
    folder: RunFolder
    trainer: Trainer
    evaluation_env: VecEnv
    rows: list[Row]
    report: Callable[[Row], None]

    def go_on(self, report_cloning: Callable[[int, float], None], report_resuming: Callable[[int], None]) -> None:
        """Algorithm 1: for each iteration collect and train, evaluate, write the row, save a checkpoint."""
        if self.rows:
            report_resuming(self.rows[-1].iteration)
        for row in self.rows:
            self.report(row)
        if not self.rows and self.config.warm_start is not None:
            self._record(0, self._clone(report_cloning))
        first = self.rows[-1].iteration + 1 if self.rows else 1
        for iteration in range(first, self.config.iterations + 1):
            with self._failing_after(iteration - 1):
                columns = self.trainer.iterate()
            self._record(iteration, columns)
            self._check_ended(iteration)

    def _clone(self, report: Callable[[int, float], None]) -> dict[str, float]:
        seconds = self.trainer.clone(report)
        nothing = {"steps": 0, "training_return": np.nan, "seconds_collecting": 0.0}
        return nothing | {"seconds_training": seconds} | guidance_columns(None, self.config.gamma)

    def _record(self, iteration: int, columns: dict[str, Any]) -> None:
        """Evaluate π_n, write its row, and save a checkpoint where one is due."""
        began = perf_counter()
        self.evaluation_env.seed(derive_seed(self.config, EVALUATION, iteration))
        self._check_weights(iteration)
        with self._failing_after(iteration):
            evaluation = evaluate(self.trainer.policy, self.evaluation_env, self.config.evaluation_episodes)
        self._check_returns(iteration, evaluation.returns)
        columns |= evaluation.summary() | {"seconds_evaluating": perf_counter() - began}
        row = Row(iteration=iteration, **columns)
        self.rows.append(row)
        self.trainer.log(row)
        self.folder.write_metrics(self.rows)
        is_last = iteration == self.config.iterations or self.trainer.ended_by is not None
        if iteration % self.config.checkpoint_every == 0 or is_last:
            self.trainer.save(iteration)
        self.report(row)

    def _check_ended(self, iteration: int) -> None:
        """End a run that a callback wants to end, all of which is written down."""
        if self.trainer.ended_by is not None and iteration < self.config.iterations:
            raise TrainingEndedError(
                f"{self.trainer.ended_by} has ended the run after iteration {iteration} of {self.config.iterations}, "
                f"which has a checkpoint in {self.folder.path}: evaluate it, or repeat the command to go on from there"
            )

    @contextmanager
    def _failing_after(self, iteration: int) -> Iterator[None]:
        """Tell what an algorithm raises, when it has gone so far, as a failure of the run."""
        try:
            yield
        except (HeuristicError, CheckpointError):
            raise
        except ValueError as error:  # as of distributions whose parameters are not finite any more
            self._check_weights(iteration)
            raise TrainingFailedError(f"training failed after iteration {iteration}: {error}") from error

    def _check_weights(self, iteration: int) -> None:
        """End a run that has diverged, before it writes any of that down."""
        found = self.trainer.not_finite()
        if found is not None:
            checkpoints = checkpoint_paths(self.folder)
            kept = f"{checkpoints[-1]} is as it was" if checkpoints else "there is no checkpoint yet"
            raise TrainingFailedError(
                f"training failed after iteration {iteration}: {found} is not finite, and {kept}: lower the learning "
                "rate, or the scale of the heuristic, in a new run"
            )

    def _check_returns(self, iteration: int, returns: NDArray[np.float64]) -> None:
        if not np.isfinite(returns).all():
            raise TrainingFailedError(
                f"training failed after iteration {iteration}: {self.config.environment.id} has returned a reward that "
                f"is not finite, the return of an episode is {returns[~np.isfinite(returns)][0]}: mend its rewards"
            )


def _read_rows(config: RunConfig, folder: RunFolder, checkpoint: Path) -> list[Row]:
    """Return the metrics up to the last checkpoint, all of which must be there, as they were."""
    iteration = min(int(checkpoint.name), config.iterations)
    is_finished = iteration == config.iterations
    rows = folder.read_metrics(last=None if is_finished else iteration)
    expected = config.rows_until(iteration)
    again = f"remove {folder.path} to train again"  # a run that is finished has no replay left to go back with
    if len(rows) == expected:
        check_metrics(folder, checkpoint, again if is_finished else None)
        if is_finished:
            check_weights(checkpoint)
        return rows
    if is_finished:
        raise RunFolderError(
            f"{folder.metrics_file} has {len(rows)} of the {expected} iterations of a run that is finished: put the "
            f"whole file back, or {again}"
        )
    raise RunFolderError(
        f"{folder.metrics_file} has {len(rows)} of the {expected} iterations of the last checkpoint: "
        f"remove {f'the checkpoints after {rows[-1].iteration}' if rows else 'all checkpoints'}"
    )


# Evaluation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of evaluation episodes, shape (episodes,) each.

    :param success_rate: the mean of what `info["is_success"]` says at their ends; NaN where the environment has none
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    success_rate: float = np.nan

    def summary(self) -> dict[str, float]:
        """Return the columns of the metrics that tell of it."""
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "episode_length": float(self.lengths.mean()),
            "success_rate": self.success_rate,
        }


def evaluate(policy: PolicyPredictor, env: VecEnv, episodes: int, deterministic: bool = True) -> Evaluation:
    """Roll a policy out for some episodes, side by side."""
    successes: list[float] = []

    def watch(variables: dict[str, Any], _: dict[str, Any]) -> None:
        """Note what an episode ends with; `evaluate_policy` calls this for each step of an episode that counts."""
        info = variables["info"]
        success = info.get("is_success", info.get("success"))  # Gymnasium's robots say the one, its mazes the other
        if variables["done"] and isinstance(success, bool | np.bool_ | int | float | np.number):
            successes.append(float(success))

    result: Any = evaluate_policy(policy, env, episodes, deterministic, callback=watch, return_episode_rewards=True)
    returns, lengths = result
    success_rate = float(np.mean(successes)) if successes else np.nan
    return Evaluation(np.array(returns, np.float64), np.array(lengths, np.int64), success_rate)
