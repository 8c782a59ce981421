"""Checkpoints of RLlib runs, without a pickle in them; RLlib's own are pickles.

A checkpoint is a folder `checkpoints/000010` with

    model.pt      weights, optimiser states and what the learner adapts, a torch file loaded with `weights_only`
    state.json    counters, the newest episodes' returns, and the hashes of the files

and, for algorithms with a replay buffer, its episodes in `replay/000010.npz`.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from hurl.experiments.checkpoint import (
    CheckpointError,
    checkpoint_paths,
    digest_of,
    pack_arrays,
    read_checked,
    read_state,
    remedy,
    write_checkpoint,
)
from hurl.experiments.folder import RunFolder
from hurl.experiments.rllib_build import RLlibPolicy
from hurl.files import write_whole

__all__ = ["SMOOTHED_EPISODES", "Progress", "load_checkpoint", "load_policy", "save_checkpoint"]

MODEL = "model.pt"
SMOOTHED_EPISODES = 100
# What learners adapt as they go, and RLlib's state of a learner leaves out: PPO's coefficient of the KL divergence,
# SAC's temperature, the step at which the target networks were updated.
ADAPTED = ("curr_kl_coeffs_per_module", "curr_log_alpha", "last_update_ts_by_mid")


def _newest() -> deque[float]:
    return deque(maxlen=SMOOTHED_EPISODES)


@dataclass
class Progress:
    """How far a run is: its iteration, the environment steps sampled, and the newest training episodes."""

    iteration: int = 0
    steps: int = 0
    returns: deque[float] = field(default_factory=_newest)
    lengths: deque[float] = field(default_factory=_newest)


def save_checkpoint(folder: RunFolder, algorithm: Algorithm, progress: Progress) -> Path:
    """Write the checkpoint of an iteration; it appears whole or not at all."""
    content = io.BytesIO()
    torch.save(_learner_state(algorithm), content)
    state = {
        "iteration": progress.iteration,
        "counters": {"steps": progress.steps},
        "episodes": {"returns": list(progress.returns), "lengths": list(progress.lengths)},
        "replay": _save_replay(folder, algorithm, progress.iteration),
    }
    return write_checkpoint(folder, state, MODEL, content.getvalue())


def load_checkpoint(folder: RunFolder, algorithm: Algorithm, path: Path) -> Progress:
    """Put a checkpoint into a freshly built algorithm; return how far the run is."""
    state = read_state(path)
    stored = _read_model(path, state)
    _fitting(path, lambda: _set_learner_state(algorithm, stored))
    if state["replay"] is not None:
        _load_replay(folder, algorithm, state["replay"], path)
    progress = Progress(state["iteration"], state["counters"]["steps"])
    progress.returns.extend(state["episodes"]["returns"])
    progress.lengths.extend(state["episodes"]["lengths"])
    _count_steps(algorithm, progress.steps)
    return progress


def load_policy(policy: RLlibPolicy, path: Path) -> None:
    """Put the weights of a checkpoint into a policy."""
    state = read_state(path)
    stored = _read_model(path, state)
    _fitting(path, lambda: policy.load(stored["weights"], state["counters"]["steps"]))


def _read_model(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    content = read_checked(path / MODEL, state["files"].get(MODEL), remedy(path))
    stored: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    return stored


def _fitting(path: Path, load: Callable[[], None]) -> None:
    """Load a part of a checkpoint, which must fit the run's model."""
    try:
        load()
    except (KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not fit the model of this run ({reason}): {remedy(path)}") from None


def _count_steps(algorithm: Algorithm, steps: int) -> None:
    """Let the algorithm count on from a number of environment steps, as if an env runner had sampled them.

    λ, learning-rate schedules and exploration follow this count.
    """
    sampled = MetricsLogger(root=False)
    sampled.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
    algorithm.metrics.aggregate([sampled.reduce()], key=ENV_RUNNER_RESULTS)
    algorithm.env_runner_group.sync_env_runner_states(
        config=algorithm.config,
        env_steps_sampled=steps,
        env_to_module=algorithm.env_to_module_connector,
        module_to_env=algorithm.module_to_env_connector,
    )


# The learner ---------------------------------------------------------------------------------------------------------


def _learner_state(algorithm: Algorithm) -> dict[str, Any]:
    """Return weights, optimiser states and what the learner adapts, as tensors and plain values."""
    state = algorithm.learner_group.get_state()[COMPONENT_LEARNER]
    adapted = next(iter(algorithm.learner_group.foreach_learner(_read_adapted))).get()
    return {
        "weights": _as_tensors(state[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]),
        "optimisers": _as_tensors(state[COMPONENT_OPTIMIZER]),
        "adapted": adapted,
    }


def _set_learner_state(algorithm: Algorithm, stored: dict[str, Any]) -> None:
    fresh = algorithm.learner_group.get_state()[COMPONENT_LEARNER][COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
    # RLlib would pass over weights that are missing or too many
    shapes = [{name: tuple(value.shape) for name, value in values.items()} for values in (fresh, stored["weights"])]
    if shapes[0] != shapes[1]:
        raise ValueError("its weights have other names or shapes")
    weights = {name: value.numpy() for name, value in stored["weights"].items()}
    learner = {COMPONENT_RL_MODULE: {DEFAULT_MODULE_ID: weights}, COMPONENT_OPTIMIZER: stored["optimisers"]}
    algorithm.learner_group.set_state({COMPONENT_LEARNER: learner})
    algorithm.learner_group.foreach_learner(_set_adapted, adapted=stored["adapted"])
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group, inference_only=True)


def _read_adapted(learner: Learner) -> dict[str, float]:
    values = {name: getattr(learner, name)[DEFAULT_MODULE_ID] for name in ADAPTED if hasattr(learner, name)}
    return {name: float(torch.as_tensor(value).detach()) for name, value in values.items()}


def _set_adapted(learner: Learner, adapted: dict[str, float]) -> None:
    for name, value in adapted.items():
        by_module = getattr(learner, name)
        if isinstance(by_module[DEFAULT_MODULE_ID], torch.Tensor):
            by_module[DEFAULT_MODULE_ID].data.fill_(value)  # in place: an optimiser may hold it
        else:
            by_module[DEFAULT_MODULE_ID] = int(value)


def _as_tensors(values: Any) -> Any:
    """Return nested values with tensors in place of arrays."""
    if isinstance(values, dict):
        return {key: _as_tensors(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_as_tensors(value) for value in values)
    return torch.tensor(values) if isinstance(values, np.ndarray) else values


# Replay --------------------------------------------------------------------------------------------------------------


def _save_replay(folder: RunFolder, algorithm: Algorithm, iteration: int) -> dict[str, str] | None:
    """Write the episodes of the replay buffer; remove those that neither this nor the last checkpoint needs."""
    buffer = getattr(algorithm, "local_replay_buffer", None)
    if buffer is None:
        return None
    content = pack_arrays(_replay_arrays(list(buffer.episodes)))
    name = f"{iteration:06d}.npz"
    folder.replay.mkdir(exist_ok=True)
    write_whole(folder.replay / name, content)
    needed = {name, *(f"{path.name}.npz" for path in checkpoint_paths(folder)[-1:])}
    for file in folder.replay.glob("*.npz"):
        if file.name not in needed:
            file.unlink()
    return {"name": name, "digest": digest_of(content)}


def _replay_arrays(episodes: list[SingleAgentEpisode]) -> dict[str, Any]:
    """Return episodes end to end; each has one observation more than steps."""
    arrays = {
        "lengths": np.array([len(episode) for episode in episodes]),
        "terminated": np.array([episode.is_terminated for episode in episodes]),
        "truncated": np.array([episode.is_truncated for episode in episodes]),
        "observations": np.concatenate([episode.get_observations() for episode in episodes]),
        "actions": np.concatenate([episode.get_actions() for episode in episodes]),
        "rewards": np.concatenate([episode.get_rewards() for episode in episodes]),
    }
    for key in episodes[0].extra_model_outputs:
        arrays[f"extra.{key}"] = np.concatenate([episode.get_extra_model_outputs(key) for episode in episodes])
    return arrays


def _load_replay(folder: RunFolder, algorithm: Algorithm, replay: dict[str, str], path: Path) -> None:
    """Fill the replay buffer; priorities begin anew."""
    content = read_checked(folder.replay / replay["name"], replay["digest"], remedy(path))
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    begin = 0
    for number, length in enumerate(arrays["lengths"].tolist()):
        steps = slice(begin, begin + length)
        observations = arrays["observations"][begin + number : begin + number + length + 1]
        episode = SingleAgentEpisode(
            observations=list(observations),
            actions=list(arrays["actions"][steps]),
            rewards=arrays["rewards"][steps].tolist(),
            infos=[{} for _ in observations],
            terminated=bool(arrays["terminated"][number]),
            truncated=bool(arrays["truncated"][number]),
            extra_model_outputs={
                key.removeprefix("extra."): list(array[steps])
                for key, array in arrays.items()
                if key.startswith("extra.")
            },
            len_lookback_buffer=0,
        )
        algorithm.local_replay_buffer.add(episode.to_numpy())
        begin += length
