"""Heuristics that need no data: zero, and a function written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import load_episodes
from hurl.guidance import Heuristic, HeuristicError
from hurl.heuristics.base import StorableHeuristic, Weights, data_origin, register
from hurl.own_code import find_function

__all__ = ["Engineered", "Zero"]


@register("zero")
class Zero(StorableHeuristic):
    """h(s) = 0: guidance by it only shortens the horizon."""

    @classmethod
    def fit(cls, dataset: Any, *, gamma: float | None = None, root: str | Path | None = None) -> Self:
        """Return zero for the dataset's observations and any discount."""
        return cls(**data_origin(load_episodes(dataset, root), None))

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return 0 for each observation."""
        return np.zeros(len(observations), np.float32)

    def settings(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it anew."""
        return cls(**origin)


@register("engineered")
class Engineered(StorableHeuristic):
    """A function of a batch of observations, by its name, so that a folder can refer to it.

    :param function: `module:function`; the module must be importable wherever the heuristic is loaded
    """

    code_setting = "function"

    def __init__(self, function: str, **origin: Any) -> None:
        super().__init__(**origin)
        self.name = function
        try:
            self.function: Heuristic = find_function(function)
        except ValueError as error:
            raise HeuristicError(f"the engineered heuristic {error}") from error

    def __repr__(self) -> str:
        return f"Engineered({self.name!r})"

    @classmethod
    def fit(cls, dataset: Any, *, function: str, gamma: float | None = None, root: str | Path | None = None) -> Self:
        """Return the function, for the dataset's observations and any discount."""
        return cls(function, **data_origin(load_episodes(dataset, root), None))

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return what the function returns."""
        return np.asarray(self.function(observations), np.float32)

    def settings(self) -> dict[str, Any]:
        """Return the function's name."""
        return {"function": self.name}

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Find the function again."""
        return cls(settings["function"], **origin)
