"""Checkpoints: all that a run needs to go on as if it had never stopped, without a pickle in it.

A checkpoint is a folder `checkpoints/000010` with

    model.npz (SBX) or model.pt (torch)   weights, optimiser states and random keys, loaded as plain arrays
    state.json                            counters, random states, the replay files it needs, and their hashes

and the transitions that came since the last one, in `replay/000010.npz`: a checkpoint costs what is new.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from hurl.experiments.folder import RunFolder
from hurl.files import write_whole
from hurl.sb3.replay import GuidedReplayBuffer

__all__ = [
    "CheckpointError",
    "checkpoint_paths",
    "cut_episodes",
    "digest_of",
    "load_checkpoint",
    "load_weights",
    "pack_arrays",
    "read_checked",
    "read_state",
    "remedy",
    "save_checkpoint",
    "write_checkpoint",
]


class CheckpointError(ValueError):
    """A checkpoint that can't be read, with what to do about it."""


def checkpoint_paths(folder: RunFolder) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    if not folder.checkpoints.is_dir():
        return []
    return sorted(path for path in folder.checkpoints.iterdir() if path.name.isdigit())


def save_checkpoint(folder: RunFolder, model: BaseAlgorithm, iteration: int) -> Path:
    """Write the checkpoint of an iteration; it appears whole or not at all."""
    state = {
        "iteration": iteration,
        "counters": _counters(model),
        "guidance_steps": _guidance_steps(model),
        "episodes": list(model.ep_info_buffer or []),
        "random": _random_states(model),
        "replay": _save_replay(folder, model, iteration),
    }
    return write_checkpoint(folder, state, _weights_name(model), _dump_weights(model))


def write_checkpoint(folder: RunFolder, state: Mapping[str, Any], name: str, weights: bytes) -> Path:
    """Write a checkpoint whose replay buffer is saved already.

    :param state: what is not weights, as JSON has it, with its `iteration`
    :param name: of the file of weights
    """
    path = folder.checkpoints / f"{state['iteration']:06d}"
    aside = folder.checkpoints / f".{path.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        write_whole(aside / name, weights)
        whole = {**state, "files": {name: digest_of(weights)}}
        write_whole(aside / "state.json", json.dumps(whole, default=np.generic.item).encode())
        aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return path


def load_checkpoint(folder: RunFolder, model: BaseAlgorithm, path: Path) -> int:
    """Put a checkpoint into a freshly built model; return its iteration."""
    state = read_state(path)
    load_weights(model, path)
    if state["replay"] is not None:
        _load_replay(folder, model, state["replay"])
    guidance = getattr(model, "guidance", None)
    if guidance is not None:
        guidance.advance(state["guidance_steps"] - guidance.steps)
    vars(model).update(state["counters"])
    model.ep_info_buffer = deque(state["episodes"], maxlen=model._stats_window_size)
    model.ep_success_buffer = deque(maxlen=model._stats_window_size)
    _set_random_states(model, state["random"])
    return int(state["iteration"])


def load_weights(model: BaseAlgorithm, path: Path) -> None:
    """Put the weights of a checkpoint into a model of the same architecture."""
    state = read_state(path)
    name = _weights_name(model)
    content = read_checked(path / name, state["files"].get(name), remedy(path))
    try:
        if name == "model.npz":
            _load_jax(model, content)
        else:
            _load_torch(model, content)
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not fit the model of this run ({error}): {remedy(path)}") from None


# Weights -------------------------------------------------------------------------------------------------------------


def _is_jax(model: BaseAlgorithm) -> bool:
    return not model._get_torch_save_params()[0]


def _weights_name(model: BaseAlgorithm) -> str:
    return "model.npz" if _is_jax(model) else "model.pt"


def _dump_weights(model: BaseAlgorithm) -> bytes:
    if _is_jax(model):
        return pack_arrays({key: np.asarray(leaf) for key, leaf in _jax_leaves(model).items()})
    content = io.BytesIO()
    variables = {name: _attribute(model, name).detach() for name in _torch_variables(model)}
    torch.save({"parameters": model.get_parameters(), "variables": variables}, content)
    return content.getvalue()


def _jax_states(model: BaseAlgorithm) -> dict[str, tuple[Any, str]]:
    """Return where SBX keeps arrays: training states and random keys, as attributes of the model and its policy."""
    import jax
    from flax.training.train_state import TrainState

    return {
        f"{name}.{attribute}": (owner, attribute)
        for name, owner in (("model", model), ("policy", model.policy))
        for attribute, value in vars(owner).items()
        if isinstance(value, jax.Array | TrainState)
    }


def _jax_leaves(model: BaseAlgorithm) -> dict[str, Any]:
    import jax

    return {
        f"{key}.{index}": leaf
        for key, (owner, attribute) in _jax_states(model).items()
        for index, leaf in enumerate(jax.tree.leaves(getattr(owner, attribute)))
    }


def _load_jax(model: BaseAlgorithm, content: bytes) -> None:
    import jax
    import jax.numpy as jnp

    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        for key, (owner, attribute) in _jax_states(model).items():
            leaves, structure = jax.tree.flatten(getattr(owner, attribute))
            arrays = [jnp.asarray(stored[f"{key}.{index}"]) for index in range(len(leaves))]
            for old, new in zip(leaves, arrays, strict=True):
                if np.shape(old) != new.shape:
                    raise ValueError(f"{key} has shape {new.shape}, the model's {np.shape(old)}")
            setattr(owner, attribute, jax.tree.unflatten(structure, arrays))


def _load_torch(model: BaseAlgorithm, content: bytes) -> None:
    stored = torch.load(io.BytesIO(content), map_location=model.device, weights_only=True)
    model.set_parameters(stored["parameters"], exact_match=True)
    for name in _torch_variables(model):
        _attribute(model, name).data = stored["variables"][name]


def _torch_variables(model: BaseAlgorithm) -> list[str]:
    return [name for name in model._get_torch_save_params()[1] if _attribute(model, name) is not None]


def _attribute(model: BaseAlgorithm, name: str) -> Any:
    value: Any = model
    for part in name.split("."):
        value = getattr(value, part)
    return value


# Counters and random states ------------------------------------------------------------------------------------------


def _counters(model: BaseAlgorithm) -> dict[str, Any]:
    """Return every number among the model's attributes: steps, updates, exploration rate, …"""
    return {key: value for key, value in vars(model).items() if isinstance(value, int | float) and key != "start_time"}


def _guidance_steps(model: BaseAlgorithm) -> int:
    guidance = getattr(model, "guidance", None)
    return 0 if guidance is None else int(guidance.steps)


def _random_states(model: BaseAlgorithm) -> dict[str, Any]:
    algorithm, keys, *rest = np.random.get_state()  # noqa: NPY002 - Stable-Baselines3 samples with the global generator
    version, numbers, gauss = random.getstate()
    return {
        "numpy": [algorithm, np.asarray(keys).tolist(), *rest],
        "python": [version, list(numbers), gauss],
        "torch": torch.get_rng_state().tolist(),
        "actions": model.action_space.np_random.bit_generator.state,
    }


def _set_random_states(model: BaseAlgorithm, states: dict[str, Any]) -> None:
    algorithm, keys, *rest = states["numpy"]
    np.random.set_state((algorithm, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    model.action_space.np_random.bit_generator.state = states["actions"]


# Replay --------------------------------------------------------------------------------------------------------------


def _save_replay(folder: RunFolder, model: BaseAlgorithm, iteration: int) -> dict[str, Any] | None:
    """Write the transitions that are newer than the last checkpoint; return which files make up the buffer."""
    if not isinstance(model, OffPolicyAlgorithm):
        return None
    buffer = model.replay_buffer
    assert buffer is not None
    earlier = checkpoint_paths(folder)
    previous: dict[str, Any] = read_state(earlier[-1])["replay"] if earlier else {"added": 0, "files": []}
    added = model.num_timesteps // buffer.n_envs
    new = min(added - previous["added"], buffer.buffer_size)
    rows = np.arange(added - new, added) % buffer.buffer_size
    content = pack_arrays({key: array[rows] for key, array in _replay_arrays(buffer).items()})
    folder.replay.mkdir(exist_ok=True)
    name = f"{iteration:06d}.npz"
    write_whole(folder.replay / name, content)
    _remove_unneeded(folder, {name} | {file["name"] for file in previous["files"]})
    files = [*previous["files"], {"name": name, "rows": new, "digest": digest_of(content)}]
    return {"added": added, "files": _newest(files, buffer.buffer_size)}


def _remove_unneeded(folder: RunFolder, needed: set[str]) -> None:
    """Remove the replay files that neither this checkpoint nor the one before it needs."""
    for file in folder.replay.glob("*.npz"):
        if file.name not in needed:
            file.unlink()


def _newest(files: list[dict[str, Any]], capacity: int) -> list[dict[str, Any]]:
    """Return the files that hold the newest `capacity` rows."""
    kept: list[dict[str, Any]] = []
    for file in reversed(files):
        if sum(other["rows"] for other in kept) >= capacity:
            break
        kept.insert(0, file)
    return kept


def _load_replay(folder: RunFolder, model: BaseAlgorithm, replay: dict[str, Any]) -> None:
    assert isinstance(model, OffPolicyAlgorithm)
    buffer = model.replay_buffer
    assert buffer is not None
    row = replay["added"] - sum(file["rows"] for file in replay["files"])
    arrays = _replay_arrays(buffer)
    for file in replay["files"]:
        first = folder.checkpoints / file["name"].removesuffix(".npz")
        content = read_checked(folder.replay / file["name"], file["digest"], f"remove the checkpoints from {first} on")
        rows = np.arange(row, row + file["rows"]) % buffer.buffer_size
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            for key, array in arrays.items():
                array[rows] = stored[key]
        row += file["rows"]
    buffer.pos = replay["added"] % buffer.buffer_size
    buffer.full = replay["added"] >= buffer.buffer_size


def _replay_arrays(buffer: ReplayBuffer) -> dict[str, NDArray[Any]]:
    """Return the arrays of a replay buffer that have a row for each step."""
    arrays = {"actions": buffer.actions, "dones": buffer.dones, "timeouts": buffer.timeouts}
    if isinstance(buffer, GuidedReplayBuffer):
        arrays |= {"rewards": buffer.rewards.raw, "terms": buffer.rewards.terms}
    else:
        arrays["rewards"] = buffer.rewards
    for name in ("observations", "next_observations"):
        stored: Any = getattr(buffer, name, {})
        arrays |= (
            {f"{name}.{key}": array for key, array in stored.items()} if isinstance(stored, dict) else {name: stored}
        )
    return arrays


def cut_episodes(model: BaseAlgorithm) -> None:
    """Mark the newest transitions as cut off, so that multi-step returns don't run on into the next episode."""
    if not isinstance(model, OffPolicyAlgorithm):
        return
    buffer = model.replay_buffer
    if isinstance(buffer, NStepReplayBuffer) and buffer.size():
        newest = buffer.pos - 1
        buffer.timeouts[newest] = np.maximum(buffer.timeouts[newest], 1 - buffer.dones[newest])


# Files ---------------------------------------------------------------------------------------------------------------


def pack_arrays(arrays: dict[str, Any]) -> bytes:
    """Return arrays as the content of a NumPy archive."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def digest_of(content: bytes) -> str:
    """Return the hash that a file is checked against."""
    return hashlib.sha256(content).hexdigest()


def read_checked(file: Path, digest: str | None, remedy: str) -> bytes:
    """Return the content of a file of a checkpoint, checked against its hash."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing: {remedy}") from None
    if digest_of(content) != digest:
        raise CheckpointError(f"{file} is damaged, its hash differs from the checkpoint's: {remedy}")
    return content


def read_state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint's `state.json` holds."""
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_bytes())
    except (OSError, ValueError):
        raise CheckpointError(f"{path / 'state.json'} is missing or damaged: {remedy(path)}") from None
    return state


def remedy(path: Path) -> str:
    """Say what to do about a checkpoint that can't be read."""
    return f"remove {path} to go on from the checkpoint before it"
