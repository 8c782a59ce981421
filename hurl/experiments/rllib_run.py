"""One run of an RLlib algorithm: Algorithm 1 as RLlib trains it, resumed where it stopped.

An iteration is one call of RLlib's `train`, which samples until there are `steps_per_iteration` environment steps. Its
return is the mean over the 100 newest training episodes, as the paper smooths its curves on Procgen. Where no episode
has ended yet, rows wait, and with them checkpoints: the first episodes that end are the returns of all that waited.
"""

from __future__ import annotations

import hurl.rllib  # noqa: F401 - first, for it says how to install Ray where it is missing

# isort: split
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    TIMERS,
)
from torch.utils.tensorboard import SummaryWriter

from hurl.experiments.build import build_environment, build_guidance
from hurl.experiments.checkpoint import checkpoint_paths
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import Row, RunFolder
from hurl.experiments.rllib_build import (
    EPISODE_LENGTHS,
    EPISODE_RETURNS,
    build_algorithm,
    configure,
)
from hurl.experiments.rllib_checkpoint import Progress, load_checkpoint, save_checkpoint
from hurl.experiments.run import (
    TRAINING,
    UNGUIDED,
    Evaluation,
    TrainingFailedError,
    derive_seed,
    pin_heuristic,
    read_rows,
)
from hurl.guidance import Guidance, HeuristicError
from hurl.rllib import guided
from hurl.rllib.learner import GuidedLearner

__all__ = ["go_on"]


def go_on(
    config: RunConfig, folder: RunFolder, report: Callable[[Row], None], report_resuming: Callable[[int], None]
) -> list[Row]:
    """Train from the last checkpoint on, in a folder that is open; see `hurl.experiments.run.train`."""
    torch.set_num_threads(config.threads)
    checkpoints = checkpoint_paths(folder)
    begin = int(checkpoints[-1].name) if checkpoints else 0
    rllib_config = configure(config, derive_seed(config, TRAINING, begin))
    guidance = _guidance(config)
    pin_heuristic(config, folder, guidance)
    if guidance is not None:
        rllib_config = guided(rllib_config, guidance)
    with _ray_on_this_machine(config), _built(config, rllib_config) as algorithm:
        rows: list[Row] = []
        progress = Progress()
        if checkpoints:
            progress = load_checkpoint(folder, algorithm, checkpoints[-1])
            rows = read_rows(config, folder, progress.iteration)
        for row in rows:
            report(row)
        if checkpoints:
            report_resuming(progress.iteration)
        Iterations(config, folder, algorithm, progress, rows, guidance, report).run()
    return rows


def _guidance(config: RunConfig) -> Guidance | None:
    """Make the run's guidance, checked against its environment, which must exist."""
    env = build_environment(config, 1, config.seed)
    try:
        return None if config.guidance is None else build_guidance(config.guidance, config, env)
    finally:
        env.close()


@contextmanager
def _ray_on_this_machine(config: RunConfig) -> Iterator[None]:
    """Start Ray for the run alone, unless the process has one."""
    if ray.is_initialized():
        yield
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray lets its workers wait for all else on the machine
    ray.init("local", num_cpus=config.cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _built(config: RunConfig, rllib_config: AlgorithmConfig) -> Iterator[Algorithm]:
    """Build the algorithm, and stop it in the end."""
    algorithm = build_algorithm(config, rllib_config)
    # RLlib smooths its timers; logged as a sum before, this one is the time of all sampling in an iteration
    algorithm.metrics.log_value((TIMERS, ENV_RUNNER_SAMPLING_TIMER), 0.0, reduce="sum")
    try:
        yield algorithm
    finally:
        algorithm.stop()


class Iterations:
    """The iterations of Algorithm 1 that are left.

    :param progress: how far the run is
    :param rows: the metrics so far, which are added to
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        algorithm: Algorithm,
        progress: Progress,
        rows: list[Row],
        guidance: Guidance | None,
        report: Callable[[Row], None],
    ) -> None:
        self.config, self.folder, self.algorithm = config, folder, algorithm
        self.progress, self.rows, self.guidance, self.report = progress, rows, guidance, report
        self.waiting: list[dict[str, Any]] = []

    def run(self) -> None:
        """Train, and close each iteration: write its row, and save a checkpoint where one is due."""
        with SummaryWriter(str(self.folder.tensorboard)) as events:
            due = False
            while self.progress.iteration < self.config.iterations:
                self.waiting.append(self._train())
                rows = self._close_waiting()
                for row in rows:
                    _write_events(events, row)
                last = self.progress.iteration == self.config.iterations
                due = due or last or self.progress.iteration % self.config.checkpoint_every == 0
                if rows:
                    self.folder.write_metrics(self.rows)
                if rows and due:
                    events.flush()
                    save_checkpoint(self.folder, self.algorithm, self.progress)
                    due = False
                for row in rows:
                    self.report(row)
        if self.waiting:
            raise TrainingFailedError(
                f"no episode ended in {self.progress.steps} steps of {self.config.environment.n_envs} environments, "
                "so that there is no return to report: raise iterations or steps_per_iteration, or lower n_envs"
            )

    def _train(self) -> dict[str, Any]:
        """Train for one iteration; return what its row says besides the episodes' returns."""
        if self.guidance is not None:
            self.algorithm.learner_group.foreach_learner(partial(_begin, iteration=self.progress.iteration + 1))
        began = perf_counter()
        try:
            results = self.algorithm.train()
        except HeuristicError:
            raise
        except (ValueError, RuntimeError) as error:
            done = self.progress.iteration
            raise TrainingFailedError(f"training failed after iteration {done}: {error}") from error
        seconds = perf_counter() - began
        collecting = float(results[TIMERS][ENV_RUNNER_SAMPLING_TIMER])
        sampled = results[ENV_RUNNER_RESULTS]
        self.progress.iteration += 1
        self.progress.steps = int(sampled[NUM_ENV_STEPS_SAMPLED_LIFETIME])
        self.progress.returns.extend(_logged(sampled, EPISODE_RETURNS))
        self.progress.lengths.extend(_logged(sampled, EPISODE_LENGTHS))
        return {
            "iteration": self.progress.iteration,
            "steps": self.progress.steps,
            "seconds_collecting": collecting,
            "seconds_training": seconds - collecting,
            "seconds_evaluating": 0.0,
            **self._guided(results.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {})),
        }

    def _guided(self, figures: Mapping[str, Any]) -> dict[str, float]:
        """Return λ, γ̃ and the h of an iteration: the learner's, where anything is learnt yet."""
        if self.guidance is None:
            return {"lambda_": 1.0, "discount": self.config.gamma, **UNGUIDED}
        steps = self.progress.iteration * self.config.steps_per_iteration
        self.guidance.advance(steps - self.guidance.steps)
        values = {"lambda": self.guidance.lambda_, "discount": self.guidance.discount, **UNGUIDED}
        values = {name: float(figures.get(f"guidance_{name}", value)) for name, value in values.items()}
        return {"lambda_": values.pop("lambda"), **values}

    def _close_waiting(self) -> list[Row]:
        """Make rows of the iterations that wait, once an episode has ended."""
        if not self.progress.returns:
            return []
        episodes = Evaluation(np.array(self.progress.returns), np.array(self.progress.lengths, np.int64))
        rows = [Row(**(values | episodes.summary())) for values in self.waiting]
        self.waiting = []
        self.rows += rows
        return rows


def _begin(learner: GuidedLearner, iteration: int) -> None:
    learner.iteration = iteration


def _logged(results: Mapping[str, Any], key: str) -> list[float]:
    """Return what was logged in an iteration; RLlib takes a single value out of its list."""
    return [float(value) for value in np.atleast_1d(results.get(key, []))]


def _write_events(events: SummaryWriter, row: Row) -> None:
    names = {f"training/{name}": name for name in ("return_mean", "return_std", "episode_length")}
    names |= {"guidance/lambda": "lambda_", **{f"guidance/{name}": name for name in ("discount", *UNGUIDED)}}
    for tag, name in names.items():
        if np.isfinite(getattr(row, name)):
            events.add_scalar(tag, getattr(row, name), row.steps)
