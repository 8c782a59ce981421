"""Pessimism by disagreement: several Monte-Carlo networks, which differ where the data says little."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import TimeLimit, load_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin, register
from hurl.heuristics.monte_carlo import fit_returns, scores, usable_episodes
from hurl.heuristics.network import Fitting, Network, as_inputs, in_chunks, one_hot

__all__ = ["EnsembleLowerBound"]


@register("ensemble")
class EnsembleLowerBound(StorableHeuristic):
    """h(s) = m(s) − β·d(s), mean and deviation of k Monte-Carlo networks f_1, …, f_k at s.

    Each network is fitted to episodes drawn with replacement from the data (the bootstrap) and starts from other
    weights, so that d estimates the error of f: small where many episodes agree, large where there are few or none.

    :param networks: f_1, …, f_k
    :param beta: β, how pessimistic the heuristic is; 0 is the mean
    """

    observation_space: ObservationSpace

    def __init__(self, networks: tuple[Network, ...], beta: float, time_limit: TimeLimit, **origin: Any) -> None:
        super().__init__(**origin)
        _check(len(networks), beta)
        self.networks = networks
        self._stacked = _stack(networks)
        self.beta = float(beta)
        self.time_limit = time_limit

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        members: int = 5,
        beta: float = 1.0,
        time_limit: TimeLimit = "cut",
        validation: float = 0.1,
        seed: int = 0,
        root: Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **fitting: Any,
    ) -> Self:
        """Fit the networks one after the other: on a processor that is no slower than all at once.

        Parameters that are not named here are those of `MonteCarloHeuristic.fit`.

        :param members: k, how many networks
        :param beta: β, how many deviations below the mean h is
        :param validation: the share of episodes that no network sees, to measure R² of the mean; 0 holds none out
        :param report: called after each epoch of each network, with the number of epochs so far, that of all networks'
            epochs, the loss, and R²
        :param fitting: how a network is fitted, see `hurl.heuristics.network.Fitting`
        """
        _check(members, beta)
        settings = Fitting(**fitting)
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        begun = perf_counter()
        networks = []
        for member, generator in enumerate(np.random.default_rng(seed).spawn(members)):
            count_on = partial(_count_on, report, member, members)
            network, _ = fit_returns(
                train.select(generator.integers(len(train), size=len(train))),
                held_out,
                gamma=gamma,
                time_limit=time_limit,
                fitting=settings,
                seed=int(generator.integers(2**31)),
                report=count_on,
            )
            networks.append(network)
        heuristic = cls(tuple(networks), beta, time_limit, **data_origin(episodes, gamma))
        beyond = heuristic.mean if time_limit == "bootstrap" else None
        heuristic.metrics |= scores(train, held_out, gamma, heuristic.mean, beyond)
        heuristic.metrics["seconds"] = perf_counter() - begun
        return heuristic

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""

        def lower_bound(values: NDArray[np.float32]) -> NDArray[np.float32]:
            bound: NDArray[np.float32] = values.mean(axis=0) - np.float32(self.beta) * values.std(axis=0)
            return bound

        return self._from_networks(observations, lower_bound)

    def mean(self, observations: Any) -> NDArray[np.float32]:
        """Return m(s), the mean of the networks, shape (n,)."""
        return self._from_networks(observations, lambda values: values.mean(axis=0))

    def _from_networks(
        self, observations: Any, function: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return a function of the networks' values, which are an array of shape (k, n)."""
        inputs = as_inputs(observations, self.observation_space)
        n = self.observation_space.n
        return in_chunks(lambda chunk: function(self._stacked(one_hot(chunk, n))[..., 0]), inputs)

    def settings(self) -> dict[str, Any]:
        """Return the architecture, β, and how time limits counted."""
        return {
            "networks": [network.settings() for network in self.networks],
            "beta": self.beta,
            "time_limit": self.time_limit,
        }

    def weights(self) -> Weights:
        """Return those of all networks."""
        return {
            name: array
            for index, network in enumerate(self.networks)
            for name, array in network.weights(f"{index}.").items()
        }

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        networks = tuple(
            Network.restore(network, weights, f"{index}.") for index, network in enumerate(settings["networks"])
        )
        return cls(networks, settings["beta"], settings["time_limit"], **origin)


def _check(members: int, beta: float) -> None:
    if members < 2:
        raise HeuristicError(f"an ensemble needs at least 2 members to disagree, got {members}")
    if not 0.0 <= beta < math.inf:
        raise HeuristicError(f"beta must be 0 or more, and finite, got {beta!r}")


def _count_on(
    report: FitReport, member: int, members: int, epoch: int, epochs: int, loss: float, score: float | None
) -> None:
    """Report an epoch of one network as one of all networks'."""
    report(member * epochs + epoch, members * epochs, loss, score)


def _stack(networks: Sequence[Network]) -> Network:
    """Return the networks as one whose outputs have shape (k, n, outputs): fewer calls for a small batch."""
    layers = zip(*(network.layers for network in networks), strict=True)
    return Network(
        tuple(
            (np.stack([weight for weight, _ in layer]), np.stack([bias for _, bias in layer])[:, None])
            for layer in layers
        ),
        networks[0].activation,
    )
