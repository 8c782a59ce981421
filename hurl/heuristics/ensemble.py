"""Pessimism by disagreement: several Monte-Carlo networks, which differ where the data says little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import Episodes, TimeLimit, discounted_returns, load_episodes
from hurl.data.returns import own_returns, usable_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin, register
from hurl.heuristics.monte_carlo import judging_variance, r_squared, scores, vector_space
from hurl.heuristics.network import (
    Fitting,
    Network,
    as_inputs,
    fit_networks,
    in_chunks,
    initial_parameters,
    one_hot,
    standardisation,
)
from hurl.values import check_argument, number, whole

__all__ = ["EnsembleLowerBound"]

Floats = NDArray[np.floating[Any]]
PATIENCE = 3
PRIOR_WIDTH = 64
BETAS = (1.0, 10.0)  # the least and the most pessimistic that is chosen from data
GROUPS = 10


@register("ensemble")
class EnsembleLowerBound(StorableHeuristic):
    """h(s) = m(s) − β·d(s), mean and deviation of k Monte-Carlo networks f_1, …, f_k at s.

    Each network is fitted to one half of the episodes, drawn anew for each, and starts from other weights, so that d
    estimates the error of m: small where many episodes agree, large where there are few or none. (Means of halves vary
    as much as means of the bootstrap's samples, at half the cost: Buja and Stuetzle 2006.) Far from the data d must
    grow, and networks alone may agree there: each is the sum of the one that is fitted and of a random one that is not,
    p, whose values the data cancels where it is (Osband et al. 2018). Those have rectified units, so that they grow
    without bound.

    :param networks: f_1 − p_1, …, f_k − p_k
    :param priors: p_1, …, p_k; none means 0
    :param beta: β, how pessimistic the heuristic is; 0 is the mean
    """

    observation_space: ObservationSpace

    def __init__(
        self,
        networks: Sequence[Network],
        beta: float,
        time_limit: TimeLimit,
        priors: Sequence[Network] = (),
        **origin: Any,
    ) -> None:
        super().__init__(**origin)
        _check(len(networks), beta)
        if priors and len(priors) != len(networks):
            raise HeuristicError(f"{len(networks)} networks need as many priors, or none, got {len(priors)}")
        self.networks, self.priors = tuple(networks), tuple(priors)
        self._stacked = [_stack(group) for group in (self.networks, self.priors) if group]
        self.beta = float(beta)
        self.time_limit = time_limit

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        members: int = 5,
        beta: float | None = None,
        prior: float = 1.0,
        time_limit: TimeLimit = "bootstrap",
        validation: float = 0.1,
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **fitting: Any,
    ) -> Self:
        """Fit the networks, all in one loop, until the held-out episodes are predicted no better.

        Parameters that are not named here are those of `MonteCarloHeuristic.fit`.

        :param members: k, how many networks
        :param beta: β, how many deviations below the mean h is; None chooses it by the held-out episodes, see
            `choose_beta`
        :param time_limit: what follows a time limit: the networks' own value there (`bootstrap`), as the algorithm that
            h is for will take it, or nothing (`cut`), for which states count less the later in an episode they come,
            however good; or `drop` leaves such episodes out
        :param prior: the deviation of the random networks over the data, in deviations of the returns, which are
            cut at time limits for this; 0 has none
        :param validation: the share of episodes that no network sees; 0 holds none out, and then β must be given
        :param fitting: how a network is fitted, see `hurl.heuristics.network.Fitting`; where episodes are held out,
            `patience` is 3 unless it is set
        """
        _check(members, 0.0 if beta is None else beta)
        check_argument("prior", prior, number(0), HeuristicError)
        if not validation and (beta is None or fitting.get("patience") is not None):
            raise HeuristicError(
                "without held-out episodes (validation=0) beta can't be chosen, nor fitting stopped early: hold some "
                "out, or set beta and leave patience out"
            )
        settings = Fitting(**({"patience": PATIENCE} if validation else {}) | fitting)
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        space = vector_space(episodes)
        train, held_out = _split(episodes, validation, seed)
        begun, origin = perf_counter(), data_origin(episodes, gamma)
        n, inputs = space.n, as_inputs(train.observations, space)
        generators = np.random.default_rng(seed).spawn(members)
        scale = prior * float(discounted_returns(train, gamma=gamma).std())
        priors = [_prior(inputs, n, scale, generator) for generator in generators] if prior else []
        known = np.array([_evaluate(network, inputs, n) for network in priors]) if priors else np.zeros((members, 1))

        def ensemble(networks: Sequence[Network]) -> EnsembleLowerBound:
            return cls(networks, 0.0, time_limit, priors, **origin)

        first = own_returns(train, gamma=gamma, time_limit=time_limit)
        variance = judging_variance((held_out, train), gamma, time_limit)

        def targets(networks: Sequence[Network] | None) -> list[Floats]:
            return list((first if networks is None else _returns(train, gamma, ensemble(networks))) - known)

        def judge(networks: Sequence[Network]) -> float:
            assert held_out is not None
            fitted = ensemble(networks)
            returns = _returns(held_out, gamma, fitted).mean(axis=0)
            return r_squared(returns, fitted.mean(held_out.observations), variance)

        networks, metrics = fit_networks(
            inputs,
            [_half(train, generator) for generator in generators],
            targets,
            n=n,
            fitting=settings,
            seeds=[int(generator.integers(2**31)) for generator in generators],
            judge=judge if held_out is not None else None,
            report=report,
        )
        fitted = ensemble(networks)
        metrics |= scores(train, held_out, gamma, time_limit, fitted.mean)
        if beta is None:
            assert held_out is not None
            beta = choose_beta(fitted, held_out, gamma)
        metrics |= {"beta": float(beta), "seconds": perf_counter() - begun}
        return cls(networks, beta, time_limit, priors, **origin | {"metrics": metrics})

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""
        values = self.values(observations)
        bound: NDArray[np.float32] = values.mean(axis=0) - np.float32(self.beta) * values.std(axis=0)
        return bound

    def mean(self, observations: Any) -> NDArray[np.float32]:
        """Return m(s), the mean of the networks, shape (n,)."""
        mean: NDArray[np.float32] = self.values(observations).mean(axis=0)
        return mean

    def deviation(self, observations: Any) -> NDArray[np.float32]:
        """Return d(s), the deviation of the networks, shape (n,)."""
        deviation: NDArray[np.float32] = self.values(observations).std(axis=0)
        return deviation

    def values(self, observations: Any) -> NDArray[np.float32]:
        """Return f_1(s), …, f_k(s), shape (k, n)."""
        n = self.observation_space.n

        def evaluate(chunk: NDArray[Any]) -> NDArray[np.float32]:
            outputs = [stacked(one_hot(chunk, n))[..., 0] for stacked in self._stacked]
            summed: NDArray[np.float32] = np.sum(outputs, axis=0, dtype=np.float32)
            return summed.T

        return in_chunks(evaluate, as_inputs(observations, self.observation_space)).T

    def settings(self) -> dict[str, Any]:
        """Return the architecture, β, and how time limits counted."""
        return {
            "networks": [network.settings() for network in self.networks],
            "priors": [network.settings() for network in self.priors],
            "beta": self.beta,
            "time_limit": self.time_limit,
        }

    def weights(self) -> Weights:
        """Return those of all networks, and of their priors."""
        groups = ("", self.networks), ("prior.", self.priors)
        return {
            name: array
            for prefix, networks in groups
            for index, network in enumerate(networks)
            for name, array in network.weights(f"{prefix}{index}.").items()
        }

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored; an older one may have no priors."""
        networks, priors = (
            [Network.restore(network, weights, f"{prefix}{index}.") for index, network in enumerate(described)]
            for prefix, described in (("", settings["networks"]), ("prior.", settings.get("priors", [])))
        )
        return cls(networks, settings["beta"], settings["time_limit"], priors, **origin)


def choose_beta(heuristic: EnsembleLowerBound, held_out: Episodes, gamma: float) -> float:
    """Return the smallest β ≥ 1 that makes h pessimistic on average wherever held-out episodes have been.

    States are grouped by tenths of m, so that the most promising ones are a group of their own, and the first states of
    episodes are one more; with means over a group,

        m̄ − β·d̄ ≤ Ḡ  in each group,  G the return that followed: β = max (m̄ − Ḡ)/d̄

    It is cut off at 10. Behind time limits (`bootstrap`) G goes on with m itself, so that what m promises there is not
    held against anything.
    """
    values, returns = heuristic.values(held_out.observations), _returns(held_out, gamma, heuristic).mean(axis=0)
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    groups = [*np.array_split(np.argsort(mean, kind="stable"), min(GROUPS, len(mean))), held_out.starts]
    needed = [(mean[group].mean() - returns[group].mean()) / max(deviation[group].mean(), 1e-9) for group in groups]
    return float(np.clip(max(needed), *BETAS))


def _returns(episodes: Episodes, gamma: float, heuristic: EnsembleLowerBound) -> Floats:
    """Return G of each transition; where time limits are bootstrapped, with each member's values beyond them.

    :return: shape (k, N), or (1, N) where all members have the same
    """
    if heuristic.time_limit != "bootstrap":
        return discounted_returns(episodes, gamma=gamma)[None]
    beyond = heuristic.values(episodes.last_states)
    return np.array([discounted_returns(episodes, gamma=gamma, last_values=values) for values in beyond])


def _check(members: int, beta: float) -> None:
    check_argument("members", members, whole(2), HeuristicError)
    check_argument("beta", beta, number(0), HeuristicError)


def _split(episodes: Episodes, validation: float, seed: int) -> tuple[Episodes, Episodes | None]:
    """Return the episodes that networks are fitted to, at least two, and those that are held out, if any are."""
    alone = len(episodes) < 2  # nothing can be split
    train, held_out = episodes.split(validation, seed) if validation and not alone else (episodes, None)
    if len(train) < 2:
        count, what = f"{len(episodes)} {'episode' if alone else 'episodes'}", "hold any out and " if validation else ""
        raise HeuristicError(
            f"dataset {episodes.name} has {count}, too few to {what}fit networks to halves of the rest: collect more"
        )
    return train, held_out


def _half(episodes: Episodes, generator: np.random.Generator) -> NDArray[np.integer[Any]]:
    """Return the transitions of one half of the episodes, drawn without replacement."""
    chosen = np.zeros(len(episodes), bool)
    chosen[generator.permutation(len(episodes))[: (len(episodes) + 1) // 2]] = True
    return np.flatnonzero(chosen[episodes.episode_of])


def _prior(inputs: NDArray[Any], n: int | None, scale: float, generator: np.random.Generator) -> Network:
    """Return a random network with one layer of rectified units, whose values over the inputs have a deviation."""
    mean, deviation = standardisation(inputs, n)
    (weight, _), (last, _) = initial_parameters([len(mean), PRIOR_WIDTH, 1], generator)
    weight = (weight / deviation[:, None]).astype(np.float32)
    bias = (generator.normal(size=PRIOR_WIDTH) - mean @ weight).astype(np.float32)
    network = Network(((weight, bias), (last, np.zeros(1, np.float32))), "relu")
    spread = float(_evaluate(network, inputs, n).std())
    spread = spread if spread > 1e-3 else 1.0  # inputs that hardly differ
    return replace(network, layers=(network.layers[0], (last * np.float32(scale / spread), np.zeros(1, np.float32))))


def _evaluate(network: Network, inputs: NDArray[Any], n: int | None) -> Floats:
    return in_chunks(lambda chunk: network(one_hot(chunk, n))[:, 0], inputs)


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
