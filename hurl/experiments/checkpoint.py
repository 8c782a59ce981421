"""Checkpoints as files, without a pickle in them.

A checkpoint is a folder `checkpoints/000010` with

    model.safetensors    weights, optimiser states, random keys: nested containers of arrays and plain values
    state.json           counters, random states, the replay files it needs, and the hashes of all of them

and what a replay buffer holds in `replay/000010.npz`.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from hurl.experiments.folder import RunFolder
from hurl.files import aside, write_whole

WEIGHTS, STATE = "model.safetensors", "state.json"


class CheckpointError(ValueError):
    """A checkpoint that can't be read, with what to do about it."""


def checkpoint_paths(folder: RunFolder) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in folder.checkpoints.glob("*") if path.name.isdigit())


def is_checkpoint(path: Path) -> bool:
    """Return whether a folder is a checkpoint."""
    return (path / STATE).is_file()


def write_checkpoint(folder: RunFolder, iteration: int, state: Mapping[str, Any], weights: Any) -> Path:
    """Write a checkpoint, whose replay buffer is saved already; it appears whole or not at all.

    :param state: what is not weights, as JSON has it
    :param weights: nested dicts, lists and tuples of arrays and plain values
    """
    path = folder.checkpoints / f"{iteration:06d}"
    part = aside(path)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        content = pack_tree(weights)
        write_whole(part / WEIGHTS, content)
        whole = {"iteration": iteration, **state, "files": {WEIGHTS: digest_of(content)}}
        write_whole(part / STATE, json.dumps(whole, default=np.generic.item).encode())
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def read_state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint's `state.json` holds."""
    try:
        return dict(json.loads((path / STATE).read_bytes()))
    except (OSError, TypeError, ValueError):
        raise CheckpointError(f"{path / STATE} is missing or damaged: {_remedy(path)}") from None


def read_weights(path: Path) -> Any:
    """Return the weights of a checkpoint, arrays as NumPy has them."""
    return unpack_tree(_read_checked(path / WEIGHTS, read_state(path)["files"].get(WEIGHTS), _remedy(path)))


def restore(path: Path, load: Callable[[], None]) -> None:
    """Put a part of a checkpoint into a model, which it must fit."""
    try:
        load()
    except (KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not fit the model of this run ({reason}): {_remedy(path)}") from None


def _remedy(path: Path) -> str:
    return f"remove {path} to go on from the checkpoint before it"


# Replay buffers ------------------------------------------------------------------------------------------------------


def write_replay(
    folder: RunFolder, iteration: int, arrays: Mapping[str, NDArray[Any]], needed: Iterable[str] = ()
) -> dict[str, str]:
    """Write arrays of a replay buffer; return the file's name and hash.

    :param needed: other files that this checkpoint needs, or the one before it; all others are removed
    """
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    name = f"{iteration:06d}.npz"
    folder.replay.mkdir(exist_ok=True)
    write_whole(folder.replay / name, content.getvalue())
    for file in folder.replay.glob("*.npz"):
        if file.name not in {name, *needed}:
            file.unlink()
    return {"name": name, "digest": digest_of(content.getvalue())}


def read_replay(folder: RunFolder, file: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that `write_replay` wrote."""
    first = folder.checkpoints / file["name"].removesuffix(".npz")
    content = _read_checked(folder.replay / file["name"], file["digest"], f"remove the checkpoints from {first} on")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return dict(stored)


# Files ---------------------------------------------------------------------------------------------------------------


def digest_of(content: bytes) -> str:
    """Return the hash that a file is checked against."""
    return hashlib.sha256(content).hexdigest()


def _read_checked(file: Path, digest: str | None, remedy: str) -> bytes:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing: {remedy}") from None
    if digest_of(content) != digest:
        raise CheckpointError(f"{file} is damaged, its hash differs from the checkpoint's: {remedy}")
    return content


def pack_tree(tree: Any) -> bytes:
    """Return nested dicts, lists and tuples of arrays and plain values as a safetensors file."""
    arrays: dict[str, NDArray[Any]] = {}

    def describe(value: Any) -> Any:
        if isinstance(value, dict):
            return {"dict": [[key, describe(entry)] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [describe(entry) for entry in value]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        name = str(len(arrays))
        arrays[name] = np.asarray(value, order="C")
        return {"array": name}

    structure = json.dumps(describe(tree))  # which fills the arrays
    return save(arrays, {"structure": structure})


def unpack_tree(content: bytes) -> Any:
    """Return what `pack_tree` packed."""
    arrays = load(content)
    # such a file begins with the length of its heading, 8 bytes, and the heading, which is JSON
    heading = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])

    def build(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, entries),) = value.items()
        if kind == "array":
            return arrays[entries]
        if kind == "dict":
            return {key: build(entry) for key, entry in entries}
        return [build(entry) for entry in entries] if kind == "list" else tuple(build(entry) for entry in entries)

    return build(json.loads(heading["__metadata__"]["structure"]))
