"""The paper's heuristic: a network that predicts the returns seen in the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import Episodes, TimeLimit, discounted_returns, load_episodes
from hurl.data.returns import own_returns, usable_episodes
from hurl.guidance import Heuristic, HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin, register
from hurl.heuristics.network import Fitting, Network, as_inputs, fit_network, in_chunks

__all__ = ["MonteCarloHeuristic", "fit_returns", "judging_variance", "r_squared", "returns_of", "scores", "vary"]

SCORED = 50_000  # transitions that are enough to tell R² by


@register("monte-carlo")
class MonteCarloHeuristic(StorableHeuristic):
    """Monte-Carlo regression: h = argmin_f Σ_t (f(s_t) − G_t)², with G_t the discounted return that followed s_t.

    It estimates the value of the policies that made the data, mixed as they are in it. Source: appendix, `app:details`.
    """

    observation_space: ObservationSpace

    def __init__(self, network: Network, time_limit: TimeLimit, **origin: Any) -> None:
        super().__init__(**origin)
        self.network = network
        self.time_limit = time_limit

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        time_limit: TimeLimit = "cut",
        validation: float = 0.1,
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **fitting: Any,
    ) -> Self:
        """Fit the heuristic to a dataset.

        :param dataset: a Minari dataset, its id, or episodes
        :param gamma: γ, the discount of the returns
        :param time_limit: how an episode that a time limit ended counts: `cut`, `bootstrap` or `drop`
        :param validation: the share of episodes that are held out to measure R²; 0 holds none out
        :param seed: of the split, the first weights and the order of the data
        :param root: the folder of Minari datasets, None for the user's own
        :param report: called after each epoch with its number, that of all, the loss, and R² on the held-out episodes
        :param fitting: how the network is fitted, see `hurl.heuristics.network.Fitting`
        """
        settings = Fitting(**fitting)
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        begun = perf_counter()
        network, metrics = fit_returns(
            train, held_out, gamma=gamma, time_limit=time_limit, fitting=settings, seed=seed, report=report
        )
        metrics["seconds"] = perf_counter() - begun
        return cls(network, time_limit, **data_origin(episodes, gamma, **metrics))

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""
        return predict(self.network, observations, self.observation_space)

    def settings(self) -> dict[str, Any]:
        """Return the architecture, and how time limits counted."""
        return {"network": self.network.settings(), "time_limit": self.time_limit}

    def weights(self) -> Weights:
        """Return the network's."""
        return self.network.weights()

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        return cls(Network.restore(settings["network"], weights), settings["time_limit"], **origin)


def fit_returns(
    train: Episodes,
    held_out: Episodes | None,
    *,
    gamma: float,
    time_limit: TimeLimit,
    fitting: Fitting,
    seed: int,
    report: FitReport,
) -> tuple[Network, dict[str, float]]:
    """Fit a network to the returns of some episodes; return it and how well it fits them and the held-out ones."""
    if fitting.patience is not None and held_out is None:
        raise ValueError("patience needs episodes to be held out: set validation above 0")
    space = vector_space(train)
    variance = judging_variance((held_out, train), gamma, time_limit)

    def judge(network: Network) -> float:
        assert held_out is not None
        targets = returns_of(held_out, gamma, time_limit, network, space)
        return r_squared(targets, predict(network, held_out.observations, space), variance)

    inputs = as_inputs(train.observations, space)
    network, metrics = fit_network(
        inputs,
        lambda network: returns_of(train, gamma, time_limit, network, space),
        n=space.n,
        fitting=fitting,
        seed=seed,
        judge=judge if held_out is not None else None,
        report=report,
    )
    return network, metrics | scores(train, held_out, gamma, time_limit, partial(predict, network, space=space))


def vector_space(episodes: Episodes) -> ObservationSpace:
    """Return the space of some episodes' observations; images are refused, which take other networks."""
    space = ObservationSpace.of(episodes.observation_space)
    if episodes.states.dtype == np.uint8 and len(space.shape) == 3:
        raise HeuristicError(
            f"observations of shape {space.shape} and type uint8 are images, which this network is not for: fit an "
            "ImageMonteCarloHeuristic to them"
        )
    return space


def predict(network: Network, observations: Any, space: ObservationSpace) -> NDArray[np.float32]:
    """Return a network's values of a batch of observations, large ones taken in pieces. Shape (n,)."""
    return in_chunks(lambda inputs: network(inputs)[:, 0], as_inputs(observations, space))


def judging_variance(parts: Sequence[Episodes | None], gamma: float, time_limit: TimeLimit) -> float:
    """Return σ² of the first part whose `own_returns` vary, by which networks are compared while they are fitted.

    They are compared by the returns that they are fitted to, which go on with their own values behind time limits, and
    whose variance shrinks as they come to agree with themselves. (What came of `own_returns` in the place of these is
    in docs/safe-guidance.md, under what was tried.)
    """
    returns = [own_returns(part, gamma=gamma, time_limit=time_limit) for part in parts if part is not None]
    return next((float(np.var(varying)) for varying in returns if vary(varying)), 1.0)


def vary(returns: NDArray[np.float64]) -> bool:
    """Return whether returns differ by more than they are rounded by."""
    return bool(np.ptp(returns) > 1e-9 * np.abs(returns).max())


def r_squared(targets: NDArray[Any], predictions: NDArray[Any], variance: float | None = None) -> float:
    """Return R² = 1 − mean (y − f)² / σ²: 1 is perfect, 0 no better than the mean.

    :param variance: σ², that of the targets where none is given
    """
    error = np.mean((targets - predictions) ** 2, dtype=np.float64)
    variance = float(np.var(targets, dtype=np.float64)) if variance is None else variance
    return float(1 - error / variance) if variance > 0 else float(error == 0)


def scores(
    train: Episodes, held_out: Episodes | None, gamma: float, time_limit: TimeLimit, h: Heuristic
) -> dict[str, float]:
    """Return R² by `own_returns` on the episodes that h was fitted to, and on those held out, if any.

    It is of 50,000 transitions at the most, evenly spaced. There is none of returns that are all one.
    """
    found = {}
    for name, part in (("r2_training", train), ("r2_held_out", held_out)):
        if part is not None:
            returns = own_returns(part, gamma=gamma, time_limit=time_limit)
            scored = np.linspace(0, len(returns) - 1, min(len(returns), SCORED)).round().astype(np.intp)
            if vary(returns[scored]):
                found[name] = r_squared(returns[scored], np.asarray(h(part.observations[scored])))
    return found


def returns_of(
    episodes: Episodes, gamma: float, time_limit: TimeLimit, network: Network | None, space: ObservationSpace
) -> NDArray[np.float64]:
    """Return G of each transition; where time limits are bootstrapped, with the network's values beyond them."""
    if time_limit != "bootstrap" or network is None:
        return own_returns(episodes, gamma=gamma, time_limit=time_limit)
    last_values = predict(network, episodes.last_states, space)
    return discounted_returns(episodes, gamma=gamma, last_values=last_values)
