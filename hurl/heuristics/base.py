"""What all heuristics that can be stored have in common: the face that users meet, and the space they are for."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from hurl.data import Episodes, TimeLimit
from hurl.guidance import HeuristicError, check_same_gamma
from hurl.names import Registry

__all__ = ["KINDS", "FitReport", "ObservationSpace", "StorableHeuristic", "Weights", "data_origin", "register"]

Weights = dict[str, NDArray[Any]]
# Called as fitting goes on: how many epochs, or updates, are done, of how many, the loss, and R² on held-out episodes.
FitReport = Callable[[int, int, float, float | None], None]


@dataclass(frozen=True)
class ObservationSpace:
    """What a heuristic needs to know of an observation space, in a form that JSON can hold.

    :param shape: of one observation
    :param kind: `float`, `integer` or `boolean` arrays
    :param n: the number of states of a Discrete space, None for a Box
    :param start: the first state of a Discrete space
    """

    shape: tuple[int, ...]
    kind: str
    n: int | None = None
    start: int = 0

    @classmethod
    def of(cls, space: gym.Space[Any]) -> ObservationSpace:
        """Describe a Gymnasium space."""
        if isinstance(space, Discrete):
            return cls((), "integer", int(space.n), int(space.start))
        if isinstance(space, Box):
            return cls(space.shape, {"f": "float", "b": "boolean"}.get(np.dtype(space.dtype).kind, "integer"))
        raise HeuristicError(f"a heuristic over {space} can't be fitted or stored: only Box and Discrete spaces can")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ObservationSpace:
        """Read its values, as JSON holds them."""
        return cls(tuple(values["shape"]), values["kind"], values["n"], values["start"])

    def __str__(self) -> str:
        return f"Discrete({self.n})" if self.n is not None else f"Box of shape {self.shape} ({self.kind})"


class StorableHeuristic(ABC):
    """A heuristic: called on a batch of observations, fitted to a dataset, saved as a folder without pickles.

    A kind of heuristic is a class with `__call__`, the three methods that storing needs, `settings`, `weights` and
    `restore`, and, where it is made from data, the class method `fit`. `register` gives it the name that `hurl fit`
    and configurations know it by, and lets it be loaded.

    :param gamma: the discount its values are for; None where they are for any
    :param observation_space: what it is defined on; None where that is not known
    :param dataset: the id and the hash of the data it was fitted to
    :param metrics: how well it fits
    """

    # What the returns that its values stand for count behind a time limit; None where that is not known.
    time_limit: TimeLimit | None = None
    # The setting that names code, `module:function`, of a kind that has one: it is run only if the user says so.
    code_setting: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        gamma: float | None = None,
        observation_space: ObservationSpace | None = None,
        dataset: dict[str, str] | None = None,
        metrics: dict[str, float] | None = None,
    ) -> None:
        self.gamma = gamma
        self.observation_space = observation_space
        self.dataset = dataset
        self.metrics = metrics or {}

    def __repr__(self) -> str:
        of = "" if self.dataset is None else f", dataset={self.dataset['id']!r}"
        return f"{type(self).__name__}(gamma={self.gamma}{of})"

    @abstractmethod
    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return all that `restore` needs besides the weights, as JSON holds it."""

    def weights(self) -> Weights:
        """Return the arrays to be stored."""
        return {}

    @classmethod
    @abstractmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make the heuristic from its settings and weights; `origin` are the arguments of `StorableHeuristic`."""

    def origin(self) -> dict[str, Any]:
        """Return where the heuristic comes from: the arguments of `StorableHeuristic`."""
        return {
            "gamma": self.gamma,
            "observation_space": self.observation_space,
            "dataset": self.dataset,
            "metrics": self.metrics,
        }

    def save(self, folder: str | Path) -> None:
        """Store the heuristic as a folder, whole or not at all: `config.json`, `weights.safetensors`, a model card."""
        from hurl.heuristics.storage import save_heuristic

        save_heuristic(self, Path(folder))

    @property
    def digest(self) -> str:
        """A hash of all that the values depend on."""
        digest = hashlib.sha256(json.dumps([type(self).__name__, self.settings()], sort_keys=True).encode())
        for name, array in sorted(self.weights().items()):
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def check(self, observation_space: gym.Space[Any] | None, gamma: float | None) -> None:
        """Refuse a run on another observation space, or with another discount, than the heuristic is for."""
        if observation_space is not None and self.observation_space is not None:
            wanted = ObservationSpace.of(observation_space)
            if wanted != self.observation_space:
                raise HeuristicError(
                    f"the {type(self).__name__} is for observations of {self.observation_space}, but here they are "
                    f"of {wanted}: fit one to data of this environment"
                )
        if gamma is not None:
            check_same_gamma(self, gamma)


KINDS: Registry[StorableHeuristic] = Registry("hurl.heuristics")
register = KINDS.register


def data_origin(episodes: Episodes, gamma: float | None, **metrics: float) -> dict[str, Any]:
    """Return what a heuristic says of the data it was fitted to."""
    return {
        "gamma": gamma,
        "observation_space": ObservationSpace.of(episodes.observation_space),
        "dataset": {"id": episodes.name, "digest": episodes.digest},
        "metrics": metrics,
    }
