"""Heuristics made of others: the largest of several, a multiple of one, one moved by a constant."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import Heuristic, HeuristicError
from hurl.heuristics.base import StorableHeuristic, Weights, register
from hurl.heuristics.simple import Engineered
from hurl.heuristics.storage import pack, under_prefix, unpack, with_prefix
from hurl.own_code import find_function

__all__ = ["MaxOf", "Scaled", "Shifted", "max_of", "scaled", "shifted"]


def max_of(*heuristics: Heuristic) -> MaxOf:
    """Return h(s) = max_i h_i(s).

    Where each h_i is the value of some policy, h follows whichever is best in a state; the paper's related work
    (`sec:related`) names guidance by such a heuristic as what imitation of several policies comes to.

    :param heuristics: h_1, h_2, …: heuristics, or functions of a batch of observations
    """
    return MaxOf(*heuristics)


def scaled(heuristic: Heuristic, factor: float) -> Scaled:
    """Return factor·h(s)."""
    return Scaled(heuristic, factor)


def shifted(heuristic: Heuristic, offset: float) -> Shifted:
    """Return h(s) + offset."""
    return Shifted(heuristic, offset)


class Combination(StorableHeuristic):
    """A heuristic made of others, for the discount and the observations that they are for.

    Its parts are stored with it. A part that is a function is stored by its name, as `Engineered` is.

    :param parts: heuristics, or functions of a batch of observations
    :param numbers: what else determines the values, by the names of the constructor's parameters
    """

    def __init__(self, *parts: Heuristic, numbers: dict[str, float] | None = None, **origin: Any) -> None:
        for part in parts:
            if not callable(part):
                raise HeuristicError(f"a heuristic is a function of a batch of observations, got {part!r}")
        stored = [part for part in parts if isinstance(part, StorableHeuristic)]
        origin["gamma"] = _agreed("gamma", stored)
        origin["observation_space"] = _agreed("observation_space", stored)
        super().__init__(**origin)
        limits = {part.time_limit for part in stored} - {None}
        self.time_limit = limits.pop() if len(limits) == 1 else None
        self.parts = parts
        self.numbers = {name: float(value) for name, value in (numbers or {}).items()}
        for name, value in self.numbers.items():
            if not math.isfinite(value):
                raise HeuristicError(f"{name} must be finite, got {value!r}")

    def settings(self) -> dict[str, Any]:
        """Return what the parts are, and the numbers."""
        return {"parts": [pack(_storable(part))[0] for part in self.parts], **self.numbers}

    @property
    def digest(self) -> str:
        """A hash of the parts' hashes, and of what is done with them."""
        parts = [_storable(part).digest for part in self.parts]
        content = json.dumps([type(self).__name__, self.numbers, parts], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def weights(self) -> Weights:
        """Return the parts' arrays, with the number of the part before the name."""
        weights: Weights = {}
        for index, part in enumerate(self.parts):
            weights |= with_prefix(f"{index}.", _storable(part).weights())
        return weights

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored: its parts, and what is done with them."""
        parts = (
            unpack(description, under_prefix(f"{index}.", weights), f"part {index}")
            for index, description in enumerate(settings["parts"])
        )
        return cls(*parts, **{name: value for name, value in settings.items() if name != "parts"}, **origin)


@register("max-of")
class MaxOf(Combination):
    """h(s) = max_i h_i(s), see `max_of`."""

    def __init__(self, *parts: Heuristic, **origin: Any) -> None:
        if not parts:
            raise HeuristicError("the largest of no heuristics is nothing: give at least one")
        super().__init__(*parts, **origin)

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return the largest of the parts' values, shape (n,)."""
        values: NDArray[np.float32] = np.max([_values(part, observations) for part in self.parts], axis=0)
        return values


@register("scaled")
class Scaled(Combination):
    """factor·h(s), see `scaled`."""

    def __init__(self, heuristic: Heuristic, factor: float, **origin: Any) -> None:
        super().__init__(heuristic, numbers={"factor": factor}, **origin)
        self.factor = self.numbers["factor"]

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return the part's values times the factor, shape (n,)."""
        return _values(self.parts[0], observations) * np.float32(self.factor)


@register("shifted")
class Shifted(Combination):
    """h(s) + offset, see `shifted`."""

    def __init__(self, heuristic: Heuristic, offset: float, **origin: Any) -> None:
        super().__init__(heuristic, numbers={"offset": offset}, **origin)
        self.offset = self.numbers["offset"]

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return the part's values plus the offset, shape (n,)."""
        return _values(self.parts[0], observations) + np.float32(self.offset)


def _values(part: Heuristic, observations: Any) -> NDArray[np.float32]:
    values = np.asarray(part(observations), np.float32)
    if values.ndim != 1:  # (n, 1) would be taken for a table of n × n by the arithmetic that follows
        raise HeuristicError(
            f"a part of the heuristic returned shape {values.shape}: return one value for each observation, shape (n,)"
        )
    return values


def _agreed(name: str, parts: list[StorableHeuristic]) -> Any:
    """Return the value that the parts share; None, which is any, where none of them has one."""
    found = {value for part in parts if (value := getattr(part, name)) is not None}
    if len(found) > 1:
        values = " and ".join(sorted(map(str, found)))
        raise HeuristicError(f"the parts of a heuristic must have one {name}, got {values}: fit them alike")
    return found.pop() if found else None


def _storable(part: Heuristic) -> StorableHeuristic:
    """Return the part, or the function by the name that it can be found under in another process."""
    if isinstance(part, StorableHeuristic):
        return part
    name = f"{getattr(part, '__module__', '')}:{getattr(part, '__qualname__', '')}"
    try:
        if name.startswith("__main__:") or find_function(name) is not part:
            raise ValueError
    except ValueError:
        raise HeuristicError(
            f"the function {getattr(part, '__qualname__', part)!r} can't be stored, it can't be imported by a name: "
            "define it with `def` at the top of a module of its own"
        ) from None
    return Engineered(name)
