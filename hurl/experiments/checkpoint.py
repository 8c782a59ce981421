"""Checkpoints as files, without a pickle in them.

A checkpoint is a folder `checkpoints/000010` with

    model.safetensors    weights, optimiser states, random keys: nested containers of arrays and plain values
    state.json           counters, random states, the replay files it needs, and the hashes of all of them
    digests.json         the hashes of state.json and of the rows of metrics.csv up to the checkpoint

and what a replay buffer holds in `replay/000010.npz`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import textwrap
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hurl.experiments.folder import REPLAY_FILE, RunFolder
from hurl.experiments.metrics import digest_of_rows
from hurl.files import MisplacedError, aside, check_folder, make_folder, read_regular, remove, write_whole

WEIGHTS, STATE, DIGESTS = "model.safetensors", "state.json", "digests.json"
NUMBER = re.compile(r"[0-9]{6,}")
# What reading a checkpoint and putting it into a model raise where it is damaged, or is of another model.
MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class CheckpointError(ValueError):
    """A checkpoint that can't be read, with what to do about it."""


def checkpoint_paths(folder: RunFolder) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    paths = [path for path in folder.checkpoints.glob("*") if NUMBER.fullmatch(path.name)]
    for path in paths:
        check_folder(path)
    return sorted(paths, key=lambda path: int(path.name))


def is_checkpoint(path: Path) -> bool:
    """Return whether a folder is a checkpoint."""
    return (path / STATE).is_file()


def run_of(checkpoint: Path) -> RunFolder:
    """Return the run that a checkpoint is of, also where its path does not show it: a link, or `.` within it."""
    run = RunFolder(checkpoint.parent.parent)
    return run if run.checkpoints == checkpoint.parent else RunFolder(checkpoint.resolve().parent.parent)


def write_checkpoint(folder: RunFolder, iteration: int, state: Mapping[str, Any], weights: Any) -> Path:
    """Write a checkpoint, whose metrics and replay buffer are saved already; it appears whole or not at all.

    :param state: what is not weights, as JSON has it
    :param weights: nested dicts, lists and tuples of arrays and plain values
    """
    path = folder.checkpoints / f"{iteration:06d}"
    part = aside(path)
    remove(part)
    part.mkdir(parents=True)
    try:
        content = pack_tree(weights)
        write_whole(part / WEIGHTS, content)
        whole = {"iteration": iteration, **state, "files": {WEIGHTS: digest_of(content)}}
        text = json.dumps(whole, default=np.generic.item).encode()
        write_whole(part / STATE, text)
        digests = {STATE: digest_of(text), folder.metrics_file.name: digest_of_rows(folder.metrics_file, iteration)}
        write_whole(part / DIGESTS, json.dumps(digests, indent=2).encode())
        part.replace(path)
    finally:
        remove(part)
    return path


def read_state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint's `state.json` holds."""
    content = read_state_file(path)
    with reading(path):
        state = dict(json.loads(content))
        if type(state["iteration"]) is not int or not isinstance(state["files"], dict):
            raise TypeError(f"{STATE} names no iteration, or no files")
        name = path.resolve().name
        if NUMBER.fullmatch(name) and int(name) != state["iteration"]:
            raise ValueError(f"it is that of iteration {state['iteration']}")
        return state


def read_state_file(path: Path) -> bytes:
    """Return a checkpoint's `state.json` as it was written, which tells it from all others."""
    file = path / STATE
    digests = _read_digests(path)
    try:
        content = read_regular(file)
    except OSError:
        raise CheckpointError(f"{file} is missing or damaged: {_remedy(path)}") from None
    if digests is not None:
        _check_digest(file, content, digests.get(STATE), _remedy(path))
    return content


def read_weights(path: Path) -> Any:
    """Return the weights of a checkpoint, arrays as NumPy has them."""
    content = _read_checked(path / WEIGHTS, read_state(path)["files"].get(WEIGHTS), _remedy(path))
    with reading(path):
        return unpack_tree(content)


def check_weights(path: Path) -> None:
    """Refuse a checkpoint whose state or weights are damaged."""
    _read_checked(path / WEIGHTS, read_state(path)["files"].get(WEIGHTS), _remedy(path))


def check_metrics(folder: RunFolder, path: Path, remedy: str | None = None) -> None:
    """Refuse metrics whose rows up to a checkpoint are others than when it was written.

    Checkpoints of earlier versions, which have no `digests.json`, don't say what they were.

    :param remedy: what to do, where it is not to go back to the checkpoint before
    """
    digests = _read_digests(path)
    file, remedy = folder.metrics_file, remedy or _remedy(path)
    if digests is not None and digest_of_rows(file, int(path.name)) != digests.get(file.name):
        raise CheckpointError(
            f"{file} is not what {path} was written with, its hash differs: put the file back as it was, or {remedy}"
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tell what goes wrong where a checkpoint is read, or put into a model that it must fit, as a fault of it."""
    try:
        yield
    except (CheckpointError, MisplacedError):
        raise
    except MISFITS as error:
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" …")
        raise CheckpointError(
            f"{path} is damaged or does not fit the model of this run ({reason}): {_remedy(path)}"
        ) from None


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
    make_folder(folder.replay)
    write_whole(folder.replay / name, content.getvalue())
    for file in folder.replay_files():
        if file.name not in {name, *needed}:
            file.unlink()
    return {"name": name, "digest": digest_of(content.getvalue())}


def read_replay(folder: RunFolder, file: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that `write_replay` wrote."""
    name = file["name"]
    if not REPLAY_FILE.fullmatch(name):
        raise ValueError(f"{name!r} is no replay file")
    first = folder.checkpoints / name.removesuffix(".npz")
    content = _read_checked(folder.replay / name, file["digest"], f"remove the checkpoints from {first} on")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return dict(stored)


# Files ---------------------------------------------------------------------------------------------------------------


def digest_of(content: bytes) -> str:
    """Return the hash that a file is checked against."""
    return hashlib.sha256(content).hexdigest()


def _read_checked(file: Path, digest: Any, remedy: str) -> bytes:
    try:
        content = read_regular(file)
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing: {remedy}") from None
    _check_digest(file, content, digest, remedy)
    return content


def _check_digest(file: Path, content: bytes, digest: Any, remedy: str) -> None:
    if digest_of(content) != digest:
        raise CheckpointError(f"{file} is damaged, its hash differs from the checkpoint's: {remedy}")


def _read_digests(path: Path) -> dict[str, Any] | None:
    """Return the hashes that `digests.json` holds; None where there is none, as in checkpoints of earlier versions."""
    try:
        return dict(json.loads(read_regular(path / DIGESTS)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except MisplacedError:
        raise
    except MISFITS:
        raise CheckpointError(f"{path / DIGESTS} is damaged: {_remedy(path)}") from None


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
