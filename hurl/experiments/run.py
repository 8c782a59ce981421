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
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from hurl.data import load_episodes
from hurl.experiments.build import build_environment, build_model
from hurl.experiments.checkpoint import (
    CheckpointError,
    checkpoint_paths,
    cut_episodes,
    load_checkpoint,
    save_checkpoint,
)
from hurl.experiments.config import ConfigurationError, RunConfig, WarmStartConfig
from hurl.experiments.folder import Row, RunFolder, RunFolderError
from hurl.guidance import Guidance, HeuristicError
from hurl.sb3 import warm_start

__all__ = ["Evaluation", "TrainingFailedError", "derive_seed", "evaluate", "pin_heuristic", "read_rows", "train"]

TRAINING, EVALUATION, CLONING = 1, 2, 3
UNGUIDED = dict.fromkeys(("h_mean", "h_min", "h_max"), np.nan)


def train(
    config: RunConfig,
    path: Path,
    report: Callable[[Row], None] = lambda row: None,
    *,
    report_cloning: Callable[[int, float], None] = lambda epoch, loss: None,
    report_resuming: Callable[[int], None] = lambda iteration: None,
) -> list[Row]:
    """Run a configuration in a folder, from its last checkpoint on; return the metrics, a row an iteration.

    A warm start comes before the first iteration: the cloned policy is iteration 0.

    :param path: the run's folder
    :param report: called with each row as it comes, those of an earlier part of the run included
    :param report_cloning: called with each epoch of the warm start and its mean loss
    :param report_resuming: called with the iteration that the run goes on from, where it was begun before
    """
    if config.needs_data:
        raise ConfigurationError("the run's data must be made before it: use `hurl train` or `hurl campaign`")
    folder = RunFolder(path)
    with folder.open(config):
        checkpoints = checkpoint_paths(folder)
        if checkpoints and int(checkpoints[-1].name) >= config.iterations:
            rows = _read_all_rows(config, folder)
            for row in rows:
                report(row)
        elif config.algorithm.library == "rllib":
            from hurl.experiments import rllib_run  # which imports Ray

            rows = rllib_run.go_on(config, folder, report, report_resuming)
        else:
            rows = _go_on(config, folder, report, report_cloning, report_resuming)
        shutil.rmtree(folder.replay, ignore_errors=True)
    return rows


def _go_on(
    config: RunConfig,
    folder: RunFolder,
    report: Callable[[Row], None],
    report_cloning: Callable[[int, float], None],
    report_resuming: Callable[[int], None],
) -> list[Row]:
    torch.set_num_threads(config.threads)
    env, evaluation_env, model = _build(config)
    pin_heuristic(config, folder, getattr(model, "guidance", None))
    rows: list[Row] = []
    checkpoints = checkpoint_paths(folder)
    if checkpoints:
        iteration = load_checkpoint(folder, model, checkpoints[-1])
        rows = read_rows(config, folder, iteration)
    model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
    if not checkpoints and config.warm_start is not None:
        rows = [_clone(config, config.warm_start, folder, model, evaluation_env, report_cloning)]
    for row in rows:
        report(row)
    if checkpoints:
        report_resuming(iteration)
    if _last_iteration(rows) < config.iterations:
        _begin_episodes(model, env, derive_seed(config, TRAINING, _last_iteration(rows)))
        _learn(model, config, Iterations(config, folder, rows, evaluation_env, report))
    model.logger.close()
    env.close()
    evaluation_env.close()
    return rows


def _read_all_rows(config: RunConfig, folder: RunFolder) -> list[Row]:
    """Return the metrics of a finished run, all of which must be there: it has no replay left to go back with."""
    rows, expected = folder.read_metrics(), config.rows_until(config.iterations)
    if len(rows) != expected:
        raise RunFolderError(
            f"{folder.metrics_file} has {len(rows)} of the {expected} iterations of a run that is finished: put the "
            f"whole file back, or remove {folder.path} to train again"
        )
    return rows


def read_rows(config: RunConfig, folder: RunFolder, iteration: int) -> list[Row]:
    """Return the metrics up to a checkpoint's iteration, all of which must be there."""
    rows, expected = folder.read_metrics(last=iteration), config.rows_until(iteration)
    if len(rows) != expected:
        raise RunFolderError(
            f"{folder.metrics_file} has {len(rows)} of the {expected} iterations of the last checkpoint: "
            f"remove {f'the checkpoints after {rows[-1].iteration}' if rows else 'all checkpoints'}"
        )
    return rows


def _last_iteration(rows: list[Row]) -> int:
    return rows[-1].iteration if rows else 0


def pin_heuristic(config: RunConfig, folder: RunFolder, guidance: Guidance | None) -> None:
    """See to it that a heuristic that was saved, and may be fitted anew, is the one that the run began with."""
    digest = None if guidance is None else getattr(guidance.heuristic, "digest", None)
    if digest is not None:
        assert config.guidance is not None
        folder.pin_input(f"heuristic {config.guidance.heuristic}", digest)


def _clone(
    config: RunConfig,
    settings: WarmStartConfig,
    folder: RunFolder,
    model: BaseAlgorithm,
    evaluation_env: VecEnv,
    report: Callable[[int, float], None],
) -> Row:
    """Warm-start the model and evaluate its policy: iteration 0, with a checkpoint, so that it is done once."""

    def log(epoch: int, loss: float) -> None:
        model.logger.record("cloning/loss", loss)
        model.logger.dump(epoch)
        report(epoch, loss)

    assert settings.dataset is not None  # `train` refuses a run whose data is still to be made
    episodes = load_episodes(settings.dataset, settings.root)
    folder.pin_input(f"dataset {settings.dataset}", episodes.digest)
    result = warm_start(
        model,
        episodes,
        epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        seed=derive_seed(config, CLONING, 0),
        report=log,
    )
    started = perf_counter()
    evaluation = _evaluate_iteration(config, model, evaluation_env, 0)
    row = Row(
        iteration=0,
        steps=0,
        lambda_=1.0,
        discount=config.gamma,
        seconds_collecting=0.0,
        seconds_training=result.seconds,
        seconds_evaluating=perf_counter() - started,
        **evaluation.summary(),
        **UNGUIDED,
    )
    _log(model, row)
    model.logger.dump(0)
    folder.write_metrics([row])
    save_checkpoint(folder, model, 0)
    return row


def _build(config: RunConfig) -> tuple[VecEnv, VecEnv, BaseAlgorithm]:
    """Make the environments and the model; what they refuse is an error in the configuration."""
    try:
        env = build_environment(config, config.environment.n_envs, derive_seed(config, TRAINING, 0))
        evaluation_env = build_environment(config, config.evaluation_episodes, derive_seed(config, EVALUATION, 0))
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
        done = _last_iteration(iterations.rows)
        raise TrainingFailedError(f"training failed after iteration {done}: {error}") from error


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
        if self.num_timesteps >= (_last_iteration(self.rows) + 1) * self.config.steps_per_iteration:
            self._close_iteration()

    def _on_rollout_end(self) -> None:
        self.collecting += self._lap()

    def _on_training_end(self) -> None:
        self.training += self._lap()
        self._close_iteration()

    def _close_iteration(self) -> None:
        iteration = _last_iteration(self.rows) + 1
        evaluation = _evaluate_iteration(self.config, self.model, self.evaluation_env, iteration)
        row = self._row(iteration, evaluation, self._lap())
        self.rows.append(row)
        _log(self.model, row)
        self.model.dump_logs()
        self.folder.write_metrics(self.rows)
        last = iteration == self.config.iterations
        if last or iteration % self.config.checkpoint_every == 0:
            cut_episodes(self.model)
            save_checkpoint(self.folder, self.model, iteration)
            if not last:
                _begin_episodes(self.model, self.training_env, derive_seed(self.config, TRAINING, iteration))
        self.report(row)
        self.collecting = self.training = 0.0
        self.mark = perf_counter()

    def _row(self, iteration: int, evaluation: Evaluation, seconds: float) -> Row:
        guidance = getattr(self.model, "guidance", None)
        guided = {"lambda_": 1.0, "discount": self.config.gamma} | UNGUIDED
        if guidance is not None:
            statistics = guidance.statistics
            guided = {"lambda_": guidance.lambda_, "discount": guidance.discount, "h_mean": statistics.mean}
            guided |= {"h_min": statistics.minimum, "h_max": statistics.maximum}
        return Row(
            iteration=iteration,
            steps=self.num_timesteps,
            seconds_collecting=self.collecting,
            seconds_training=self.training,
            seconds_evaluating=seconds,
            **evaluation.summary(),
            **guided,
        )

    def _lap(self) -> float:
        before, self.mark = self.mark, perf_counter()
        return self.mark - before


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of evaluation episodes, shape (episodes,) each."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def summary(self) -> dict[str, float]:
        """Return the columns of the metrics that tell of it."""
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "episode_length": float(self.lengths.mean()),
        }


def evaluate(model: PolicyPredictor, env: VecEnv, episodes: int, deterministic: bool = True) -> Evaluation:
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


def _evaluate_iteration(config: RunConfig, model: BaseAlgorithm, env: VecEnv, iteration: int) -> Evaluation:
    env.seed(derive_seed(config, EVALUATION, iteration))
    return evaluate(model, env, config.evaluation_episodes)


def _log(model: BaseAlgorithm, row: Row) -> None:
    model.logger.record("evaluation/return_mean", row.return_mean)
    model.logger.record("evaluation/return_std", row.return_std)
    model.logger.record("evaluation/episode_length", row.episode_length)


def _begin_episodes(model: BaseAlgorithm, env: VecEnv, seed: int) -> None:
    """Begin new episodes in all environments from a seed, so that nothing of the simulator needs saving."""
    env.seed(seed)
    model._last_obs = env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones((env.num_envs,), dtype=bool)


def derive_seed(config: RunConfig, purpose: int, iteration: int) -> int:
    """Derive a seed from the run's, for one purpose at one iteration."""
    return int(np.random.SeedSequence([config.seed, purpose, iteration]).generate_state(1)[0] >> 1)
