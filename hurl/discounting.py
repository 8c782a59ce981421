"""Discounts, and discounted sums over episodes that lie end to end in an array."""

from __future__ import annotations

from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["TimeLimit", "check_gamma", "reverse_discounted_sum"]

# What returns count after a time limit: nothing, the value of the state there, or the episode is left out.
TimeLimit = Literal["cut", "bootstrap", "drop"]


def check_gamma(gamma: float, *, may_be_one: bool = False) -> None:
    """Refuse a discount that is no number, or outside of [0, 1), or of [0, 1] where episodes end."""
    if not isinstance(gamma, Real) or isinstance(gamma, bool):
        raise TypeError(f"gamma must be a number, such as 0.99, got {gamma!r}")
    if not (0.0 <= gamma < 1.0 or (may_be_one and gamma == 1.0)):
        raise ValueError(f"gamma must lie in [0, 1{']' if may_be_one else ')'}, got {gamma!r}")


def reverse_discounted_sum(
    rewards: NDArray[np.float64], lengths: NDArray[np.int64], gamma: float
) -> NDArray[np.float64]:
    """Return Σ_{k=t}^{T−1} γ^{k−t}·r_k within each of the episodes that lie end to end in `rewards`. Shape (N,).

    One step at a time from the ends, for all episodes that are long enough at once: G_t = r_t + γ·G_{t+1}.
    """
    returns = np.array(rewards, np.float64)
    longest_first = np.argsort(-lengths, kind="stable")
    last = np.cumsum(lengths)[longest_first] - 1
    # how many episodes have more than k transitions, for k = 1, 2, …
    counts = np.searchsorted(-lengths[longest_first], -np.arange(1, lengths.max(initial=1)), side="left")
    for distance, count in enumerate(counts, start=1):
        index = last[:count] - distance
        returns[index] += gamma * returns[index + 1]
    return returns
