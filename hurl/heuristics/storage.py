"""A heuristic as a folder: `config.json` says what it is, `weights.safetensors` holds its arrays. No pickle is read.

`README.md` beside them is its model card, for people; it is not read.

`pack` and `unpack` turn a heuristic into a description and arrays and back; a heuristic made of others uses them for
its parts, so that everything ends in the same two files. Only classes that are registered are loaded: nothing is
imported because a file names it, but for an `Engineered` heuristic the module of its function, if the user says so.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hurl.files import MisplacedError, own_aside, package_versions, read_regular, remove, write_whole
from hurl.guidance import Heuristic, HeuristicError
from hurl.heuristics.base import KINDS, ObservationSpace, StorableHeuristic, Weights
from hurl.names import HeuristicFunction, HeuristicName, nearest
from hurl.own_code import check_trust, find_function

__all__ = [
    "check_replaceable",
    "check_shape",
    "find_heuristic",
    "load_heuristic",
    "pack",
    "save_heuristic",
    "under_prefix",
    "unpack",
    "with_prefix",
]

CONFIG, WEIGHTS, CARD = "config.json", "weights.safetensors", "README.md"


def find_heuristic(
    name: HeuristicName, observation_space: gym.Space[Any], gamma: float | None, *, trust: bool = False
) -> Heuristic:
    """Return the heuristic that was saved in a folder, or the function that `module:function` names.

    :param name: the user's own word, which for a function is leave to run it
    :param observation_space: what it is for; a heuristic that was saved, or can be, is checked against it
    :param gamma: the discount it is for; checked in the same way, None checks nothing
    :param trust: see `load_heuristic`
    """
    if not isinstance(name, HeuristicFunction):
        if os.sep not in name and not Path(name).is_dir():
            raise ValueError(
                f"{name!r} is not of the form module:function, nor the folder of a saved heuristic: make one with "
                "`hurl fit`, or name its folder"
            )
        return load_heuristic(name, observation_space=observation_space, gamma=gamma, trust=trust)
    function = find_function(name)
    if isinstance(function, StorableHeuristic):
        function.check(observation_space, gamma)
    return function


def load_heuristic(
    folder: str | Path,
    *,
    observation_space: gym.Space[Any] | None = None,
    gamma: float | None = None,
    trust: bool = False,
) -> StorableHeuristic:
    """Load a heuristic that was saved, and check that it is for this observation space and discount.

    :param folder: what `save` wrote
    :param observation_space: of the run that wants it; None checks nothing
    :param gamma: of the run that wants it; None checks nothing
    :param trust: whether functions that it names may be run, other than hurl's own
    """
    folder = Path(folder)
    if not folder.exists() and _kept_aside(folder).is_dir():  # saving was killed as it replaced one
        folder = _kept_aside(folder)
    config = _read_config(folder)
    check_trust(folder / CONFIG, _named_code(config), trust)
    weights = _read_weights(folder, config.get("weights_sha256"))
    heuristic = unpack(config, weights, str(folder))
    heuristic.check(observation_space, gamma)
    return heuristic


def save_heuristic(heuristic: StorableHeuristic, folder: Path) -> None:
    """Write a heuristic's folder; one that holds a heuristic already is replaced, any other is left alone."""
    check_replaceable(folder)
    folder = folder.resolve()  # a link to it stays one
    from safetensors.numpy import save

    from hurl.heuristics.card import model_card

    description, weights = pack(heuristic)
    content = save({name: np.ascontiguousarray(array) for name, array in weights.items()})
    versions = package_versions()
    config = {**description, "versions": versions, "weights_sha256": hashlib.sha256(content).hexdigest()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = own_aside(folder)
    part.mkdir()
    try:
        write_whole(part / WEIGHTS, content)
        write_whole(part / CONFIG, json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False).encode())
        write_whole(part / CARD, model_card(heuristic, versions).encode())
        _put_in_place(part, folder)
    finally:
        remove(part)


def _put_in_place(part: Path, folder: Path) -> None:
    """Let a heuristic appear; one that is in its place is kept aside until then, where `load_heuristic` finds it."""
    old = _kept_aside(folder)
    if folder.exists():
        remove(old)
        folder.replace(old)
    part.replace(folder)
    remove(old)


def _kept_aside(folder: Path) -> Path:
    folder = folder.resolve()
    return folder.with_name(f".{folder.name}.old")


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that holds anything but a heuristic."""
    if folder.exists():
        entries = list(folder.iterdir()) if folder.is_dir() else [folder]
        is_heuristic = {entry.name for entry in entries} - {CARD} == {CONFIG, WEIGHTS} and all(map(_is_file, entries))
        if entries and not is_heuristic:
            raise HeuristicError(f"{folder} holds other things than a heuristic: choose another folder")


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def pack(heuristic: StorableHeuristic) -> tuple[dict[str, Any], Weights]:
    """Return a heuristic's description, as JSON holds it, and its arrays."""
    description = {"class": type(heuristic).__name__, **heuristic.origin(), "settings": heuristic.settings()}
    if heuristic.observation_space is not None:
        description["observation_space"] = asdict(heuristic.observation_space)
    return description, heuristic.weights()


def unpack(description: dict[str, Any], weights: Weights, source: str) -> StorableHeuristic:
    """Return the heuristic of a description and its arrays.

    :param source: where they are from, for errors
    """
    name = description.get("class")
    known = {kind.__name__: kind for kind in KINDS.load().values()}
    if not isinstance(name, str) or name not in known:
        raise HeuristicError(
            f"{source} holds a heuristic of the unknown class {name!r}{nearest(str(name), known)}; known are "
            f"{', '.join(known)}: install the version of hurl, or the package, that wrote it"
        )
    try:
        origin = {key: description[key] for key in ("gamma", "observation_space", "dataset", "metrics")}
        if origin["observation_space"] is not None:
            origin["observation_space"] = ObservationSpace.from_json(origin["observation_space"])
        return known[name].restore(description["settings"], weights, **origin)
    except HeuristicError as error:
        raise HeuristicError(f"{source}: {error}") from None
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise HeuristicError(
            f"{source}: {CONFIG} does not describe a {name} ({type(error).__name__}: {error}): save the heuristic anew"
        ) from error


def with_prefix(prefix: str, weights: Weights) -> Weights:
    """Return the arrays of a part, named as those of the whole."""
    return {f"{prefix}{name}": array for name, array in weights.items()}


def under_prefix(prefix: str, weights: Weights) -> Weights:
    """Return the arrays of a part, named as its own."""
    return {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}


def check_shape(weights: Weights, name: str, shape: tuple[int, ...]) -> Any:
    """Return one of the arrays, refused where it is missing or of another shape than the settings ask for."""
    if name not in weights:
        raise HeuristicError(f"{WEIGHTS} has no array {name!r}, which {CONFIG} asks for: save the heuristic anew")
    if weights[name].shape != shape:
        raise HeuristicError(
            f"{WEIGHTS} has {name!r} of shape {weights[name].shape}, {CONFIG} asks for {shape}: save the heuristic anew"
        )
    return weights[name]


def _named_code(description: dict[str, Any]) -> Iterator[str]:
    """Yield the functions that a description names, and those of its parts, however deep they are in it."""
    settings_of = {kind.__name__: kind.code_setting for kind in KINDS.load().values()}
    left: list[Any] = [description]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            left += part.values()
            setting, settings = settings_of.get(str(part.get("class"))), part.get("settings")
            if setting is not None and isinstance(settings, dict):
                yield str(settings.get(setting))


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads(read_regular(folder / CONFIG).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise HeuristicError(
            f"{folder} is not a saved heuristic, it has no {CONFIG} (looked for in {folder.resolve()}): make one with "
            "`hurl fit`, or name its folder"
        ) from None
    except MisplacedError:
        raise
    except (ValueError, RecursionError) as error:
        raise HeuristicError(f"{folder / CONFIG} is not JSON ({error}): save the heuristic anew") from None
    if not isinstance(config, dict):
        raise HeuristicError(f"{folder / CONFIG} must hold keys and values: save the heuristic anew")
    return config


def _read_weights(folder: Path, digest: Any) -> Weights:
    file = folder / WEIGHTS
    try:
        content = read_regular(file)
    except FileNotFoundError:
        raise HeuristicError(f"{folder} has no {WEIGHTS}: save the heuristic anew") from None
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        weights = load(content)
    except (SafetensorError, KeyError) as error:  # a KeyError where NumPy has no such type
        if content[:1] == b"\x80" or content[:2] == b"PK":
            raise HeuristicError(
                f"{file} is a pickle, which could run any code, and is not loaded: save the heuristic anew"
            ) from None
        raise HeuristicError(f"{file} is not a safetensors file ({error}): save the heuristic anew") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise HeuristicError(
            f"{file} is not what {CONFIG} was written with, its hash differs: copy both files anew, or save the "
            "heuristic anew"
        )
    return weights
