"""Heuristics that mislead on purpose, to see what guidance costs where h is bad."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import discounted_returns, load_episodes
from hurl.data.returns import usable_episodes
from hurl.guidance import Heuristic, HeuristicError
from hurl.heuristics.base import (
    KINDS,
    FitReport,
    ObservationSpace,
    StorableHeuristic,
    Weights,
    data_origin,
    register,
)
from hurl.heuristics.combine import Combination
from hurl.heuristics.monte_carlo import predict, vector_space
from hurl.heuristics.network import Network, as_inputs, initial_parameters, standardisation
from hurl.names import nearest_or_all

__all__ = ["RandomNetwork", "Reversed"]

HIDDEN = (64, 64)
# Of the first layer's weights: with Glorot's own, a network of standardised inputs is all but linear.
STEEPNESS = 2.0


@register("reversed")
class Reversed(Combination):
    """2m − h(s), m the mean of h over the data: what h praises is warned of, and what it warns of is praised.

    :param heuristic: h
    :param mean: m
    """

    def __init__(self, heuristic: Heuristic, mean: float, **origin: Any) -> None:
        super().__init__(heuristic, numbers={"mean": mean}, **origin)
        self.mean = self.numbers["mean"]

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        of: str = "monte-carlo",
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **options: Any,
    ) -> Self:
        """Fit a heuristic of another kind to a dataset, and reverse it.

        :param dataset: a Minari dataset, its id, or episodes
        :param gamma: γ, the discount of the heuristic
        :param of: the kind that is reversed
        :param seed: of its fit
        :param root: the folder of Minari datasets, None for the user's own
        :param report: called as fitting goes on, where the kind reports
        :param options: further parameters of the kind
        """
        kinds = {name: kind for name, kind in KINDS.load().items() if hasattr(kind, "fit")}
        if of not in kinds:
            raise HeuristicError(f"there is no kind {of!r} to be fitted and reversed{nearest_or_all(of, kinds)}")
        fit: Any = getattr(kinds[of], "fit")  # noqa: B009 — not every heuristic has one
        taken = inspect.signature(fit).parameters
        options |= {name: value for name, value in (("seed", seed), ("report", report)) if name in taken}
        episodes = load_episodes(dataset, root)
        heuristic: StorableHeuristic = fit(episodes, gamma=gamma, **options)
        mean = float(np.mean(heuristic(episodes.observations), dtype=np.float64))
        metrics = {f"reversed_{name}": value for name, value in heuristic.metrics.items()}
        return cls(heuristic, mean, dataset=heuristic.dataset, metrics=metrics)

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return 2m − h for a batch of observations, shape (n,)."""
        return np.float32(2 * self.mean) - np.asarray(self.parts[0](observations), np.float32)


@register("random")
class RandomNetwork(StorableHeuristic):
    """A network that nothing was fitted to, with the mean and the deviation of the returns over the data."""

    observation_space: ObservationSpace

    def __init__(self, network: Network, **origin: Any) -> None:
        super().__init__(**origin)
        self.network = network

    @classmethod
    def fit(cls, dataset: Any, *, gamma: float, seed: int = 0, root: str | Path | None = None) -> Self:
        """Draw a network, and bring its values over a dataset to the mean and deviation of the returns there.

        :param dataset: a Minari dataset, its id, or episodes
        :param gamma: γ, the discount of the returns
        :param seed: of the weights
        :param root: the folder of Minari datasets, None for the user's own
        """
        episodes = usable_episodes(load_episodes(dataset, root), gamma, "cut")
        space, origin = vector_space(episodes), data_origin(episodes, gamma)
        centre, scale = standardisation(as_inputs(episodes.observations, space), space.n)
        (weight, bias), *hidden, (last, _) = initial_parameters([len(centre), *HIDDEN, 1], np.random.default_rng(seed))
        weight = (STEEPNESS * weight / scale[:, None]).astype(np.float32)
        first = (weight, (bias - centre @ weight).astype(np.float32))
        drawn = Network((first, *hidden, (last, np.zeros(1, np.float32))))
        values = predict(drawn, episodes.observations, space).astype(np.float64)
        returns = discounted_returns(episodes, gamma=gamma)
        spread = values.std()
        factor = returns.std() / spread if spread > 1e-6 else 0.0  # states that hardly differ have one value
        offset = returns.mean() - factor * values.mean()
        output = ((last * factor).astype(np.float32), np.array([offset], np.float32))
        return cls(Network((first, *hidden, output)), **origin)

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""
        return predict(self.network, observations, self.observation_space)

    def settings(self) -> dict[str, Any]:
        """Return the architecture."""
        return {"network": self.network.settings()}

    def weights(self) -> Weights:
        """Return the network's."""
        return self.network.weights()

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        return cls(Network.restore(settings["network"], weights), **origin)
