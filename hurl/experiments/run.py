"""One run: the paper's Algorithm 1, evaluated after each iteration, and resumed where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.build import build_environment, build_model
from hurl.experiments.checkpoint import (
    CheckpointError,
    checkpoint_paths,
    cut_episodes,
    load_checkpoint,
    save_checkpoint,
)
from hurl.experiments.config import ConfigurationError, RunConfig
from hurl.experiments.folder import Row, RunFolder, RunFolderError
from hurl.guidance import HeuristicError

__all__ = ["Evaluation", "TrainingFailedError", "evaluate", "train"]

TRAINING, EVALUATION = 1, 2


def train(config: RunConfig, path: Path, report: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Run a configuration in a folder, from its last checkpoint on; return the metrics, a row an iteration.

    :param path: the run's folder
    :param report: called with each row as it comes, those of an earlier part of the run included
    """
    folder = RunFolder(path)
    with folder.open(config):
        checkpoints = checkpoint_paths(folder)
        if checkpoints and int(checkpoints[-1].name) >= config.iterations:
            rows = folder.read_metrics()
            for row in rows:
                report(row)
        else:
            rows = _go_on(config, folder, report)
        shutil.rmtree(folder.replay, ignore_errors=True)
    return rows


def _go_on(config: RunConfig, folder: RunFolder, report: Callable[[Row], None]) -> list[Row]:
    torch.set_num_threads(config.threads)
    env, evaluation_env, model = _build(config)
    checkpoints = checkpoint_paths(folder)
    iteration = load_checkpoint(folder, model, checkpoints[-1]) if checkpoints else 0
    rows = folder.read_metrics(last=iteration)
    if len(rows) != iteration:
        raise RunFolderError(
            f"{folder.metrics_file} has {len(rows)} of the {iteration} iterations of the last checkpoint: "
            f"remove the checkpoints after {len(rows)}"
        )
    for row in rows:
        report(row)
    model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
    _begin_episodes(model, env, _seed(config, TRAINING, iteration))
    _learn(model, config, Iterations(config, folder, rows, evaluation_env, report))
    model.logger.close()
    env.close()
    evaluation_env.close()
    return rows


def _build(config: RunConfig) -> tuple[VecEnv, VecEnv, BaseAlgorithm]:
    """Make the environments and the model; what they refuse is an error in the configuration."""
    try:
        env = build_environment(config, config.environment.n_envs, _seed(config, TRAINING, 0))
        evaluation_env = build_environment(config, config.evaluation_episodes, _seed(config, EVALUATION, 0))
        return env, evaluation_env, build_model(config, env)
    except (TypeError, AssertionError) as error:
        raise ConfigurationError(
            f"{config.algorithm.name} on {config.environment.id} can't be built: {error}"
        ) from error


def _learn(model: BaseAlgorithm, config: RunConfig, iterations: Iterations) -> None:
    """Run the algorithm through all iterations that are left."""
    try:
        model.learn(
            config.iterations * config.steps_per_iteration - model.num_timesteps,
            callback=iterations,
            log_interval=None,  # type: ignore[arg-type]
            reset_num_timesteps=False,
        )
    except (HeuristicError, CheckpointError):
        raise
    except ValueError as error:
        raise TrainingFailedError(f"training failed after iteration {len(iterations.rows)}: {error}") from error


class TrainingFailedError(RuntimeError):
    """The algorithm broke down, as it does where its weights diverge."""


class Iterations(BaseCallback):
    """Closes each iteration of Algorithm 1: evaluates π_n, writes its row, and saves a checkpoint where one is due.

    A rollout is line 3 of the algorithm, data collection; what follows until the next rollout are lines 4 and 5,
    reshaping and training.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        rows: list[Row],
        evaluation_env: VecEnv,
        report: Callable[[Row], None],
    ) -> None:
        super().__init__()
        self.config, self.folder, self.rows = config, folder, rows
        self.evaluation_env, self.report = evaluation_env, report
        self.collecting = self.training = 0.0
        self.mark = perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.training += self._lap()
        if self.num_timesteps >= (len(self.rows) + 1) * self.config.steps_per_iteration:
            self._close_iteration()

    def _on_rollout_end(self) -> None:
        self.collecting += self._lap()

    def _on_training_end(self) -> None:
        self.training += self._lap()
        self._close_iteration()

    def _close_iteration(self) -> None:
        iteration = len(self.rows) + 1
        self.evaluation_env.seed(_seed(self.config, EVALUATION, iteration))
        evaluation = evaluate(self.model, self.evaluation_env, self.config.evaluation_episodes)
        row = self._row(iteration, evaluation, self._lap())
        self.rows.append(row)
        self._log(row)
        self.folder.write_metrics(self.rows)
        last = iteration == self.config.iterations
        if last or iteration % self.config.checkpoint_every == 0:
            cut_episodes(self.model)
            save_checkpoint(self.folder, self.model, iteration)
            if not last:
                _begin_episodes(self.model, self.training_env, _seed(self.config, TRAINING, iteration))
        self.report(row)
        self.collecting = self.training = 0.0
        self.mark = perf_counter()

    def _row(self, iteration: int, evaluation: Evaluation, seconds: float) -> Row:
        guidance = getattr(self.model, "guidance", None)
        guided = {"lambda_": 1.0, "discount": self.config.gamma} | dict.fromkeys(("h_mean", "h_min", "h_max"), np.nan)
        if guidance is not None:
            statistics = guidance.statistics
            guided = {"lambda_": guidance.lambda_, "discount": guidance.discount, "h_mean": statistics.mean}
            guided |= {"h_min": statistics.minimum, "h_max": statistics.maximum}
        return Row(
            iteration=iteration,
            steps=self.num_timesteps,
            return_mean=float(evaluation.returns.mean()),
            return_std=float(evaluation.returns.std()),
            return_min=float(evaluation.returns.min()),
            return_max=float(evaluation.returns.max()),
            episode_length=float(evaluation.lengths.mean()),
            seconds_collecting=self.collecting,
            seconds_training=self.training,
            seconds_evaluating=seconds,
            **guided,
        )

    def _log(self, row: Row) -> None:
        self.logger.record("evaluation/return_mean", row.return_mean)
        self.logger.record("evaluation/return_std", row.return_std)
        self.logger.record("evaluation/episode_length", row.episode_length)
        self.model.dump_logs()

    def _lap(self) -> float:
        before, self.mark = self.mark, perf_counter()
        return self.mark - before


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of evaluation episodes, shape (episodes,) each."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]


def evaluate(model: BaseAlgorithm, env: VecEnv, episodes: int, deterministic: bool = True) -> Evaluation:
    """Roll the policy out for some episodes, side by side."""
    returns: Any
    lengths: Any
    returns, lengths = evaluate_policy(
        model,
        env,
        n_eval_episodes=episodes,
        deterministic=deterministic,
        return_episode_rewards=True,
    )
    return Evaluation(np.array(returns, np.float64), np.array(lengths, np.int64))


def _begin_episodes(model: BaseAlgorithm, env: VecEnv, seed: int) -> None:
    """Begin new episodes in all environments from a seed, so that nothing of the simulator needs saving."""
    env.seed(seed)
    model._last_obs = env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones((env.num_envs,), dtype=bool)


def _seed(config: RunConfig, purpose: int, iteration: int) -> int:
    """Derive a seed from the run's, for one purpose at one iteration."""
    return int(np.random.SeedSequence([config.seed, purpose, iteration]).generate_state(1)[0] >> 1)
