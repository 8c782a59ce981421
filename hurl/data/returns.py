"""Discounted returns of episodes, with three ways to treat those that a time limit ended."""

from __future__ import annotations

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from hurl.data.episodes import Episodes
from hurl.data.storage import DatasetError
from hurl.discounting import TimeLimit, check_gamma, reverse_discounted_sum


def discounted_returns(
    episodes: Episodes, *, gamma: float, last_values: NDArray[np.floating] | None = None
) -> NDArray[np.float64]:
    """Return what followed each transition, discounted.

        G_t = Σ_{k=t}^{T−1} γ^{k−t}·r_k + γ^{T−t}·v(s_T)

    with v(s_T) = 0 where s_T is terminal. How a time limit counts: `cut` is v = 0 there too, `bootstrap` is v = h, the
    heuristic being fitted, and `drop` leaves such episodes out (`usable_episodes`).

    :param last_values: v(s_T) of each episode, shape (E,); None means 0
    :return: G, shape (N,)
    """
    returns = reverse_discounted_sum(episodes.rewards, episodes.lengths, gamma)
    if last_values is not None:
        returns += bootstrap_weights(episodes, gamma=gamma) * np.asarray(last_values)[episodes.episode_of]
    return returns


def own_returns(episodes: Episodes, *, gamma: float, time_limit: TimeLimit) -> NDArray[np.float64]:
    """Return what followed each transition by the episodes alone: no heuristic tells what is behind time limits.

    With `bootstrap` an episode goes on behind its limit as it was on the whole: v(s_T) is the mean of its own returns,

        v = (1/T)·Σ_t (G_t + γ^{T−t}·v) = Σ_t G_t / Σ_t (1 − γ^{T−t})    with G_t the returns that are cut off

    which is right where rewards come at one rate. A fit begins with them (with v = 0 it needs about
    1/(1 − mean γ^{T−t}) epochs to get near, forty for limits of 50 steps and γ = 0.999), and R² is told of them: where
    γ^{T−t} is near 1, a heuristic is right about returns that go on with itself, whatever it says.

    :return: shape (N,)
    """
    returns = discounted_returns(episodes, gamma=gamma)
    if time_limit != "bootstrap":
        return returns
    weights = bootstrap_weights(episodes, gamma=gamma)
    values = np.add.reduceat(returns, episodes.starts) / np.add.reduceat(1.0 - weights, episodes.starts)
    return returns + weights * values[episodes.episode_of]


def bootstrap_weights(episodes: Episodes, *, gamma: float) -> NDArray[np.float64]:
    """Return γ^{T−t} of each transition, and 0 in episodes that ended in a terminal state. Shape (N,)."""
    remaining = np.repeat(episodes.ends, episodes.lengths) - np.arange(episodes.transitions)
    return np.where(np.repeat(episodes.terminated, episodes.lengths), 0.0, gamma ** remaining.astype(np.float64))


def usable_episodes(episodes: Episodes, gamma: float, time_limit: TimeLimit) -> Episodes:
    """Return the episodes whose returns count; γ, or a treatment of time limits, that can't be is refused."""
    check_gamma(gamma)
    if time_limit not in get_args(TimeLimit):
        raise ValueError(f"time_limit must be one of {', '.join(get_args(TimeLimit))}, got {time_limit!r}")
    if time_limit != "drop":
        return episodes
    if not episodes.terminated.any():
        raise DatasetError(
            f"all {len(episodes)} episodes of {episodes.name} ended at a time limit, so that time_limit='drop' leaves "
            "none: use one of cut, bootstrap"
        )
    return episodes.select(np.flatnonzero(episodes.terminated))
