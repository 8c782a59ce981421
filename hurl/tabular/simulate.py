"""Drawing from finite MDPs: states for many runs at once, and batches of transitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.pessimism import Batch, Flags, Integers
from hurl.values import check_argument, whole

# Differences up to this size, relative to the values, are rounding.
ROUNDING = 1e-9


class Simulator:
    """Draws from a finite MDP for many runs at once, by inverting cumulative probabilities.

    :param mdp: dense or sparse
    """

    def __init__(self, mdp: FiniteMDP) -> None:
        matrix = sparse.csr_array(mdp.matrix, copy=True)
        matrix.eliminate_zeros()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        summed = np.cumsum(matrix.data)
        # Row i holds the numbers from i to i + 1, so that one sorted array serves all rows.
        before = np.concatenate([[0.0], summed])[matrix.indptr[:-1]]
        self._cumulative = rows + (summed - before[rows])
        self._first, self._last = matrix.indptr[:-1], matrix.indptr[1:] - 1
        self._successors = matrix.indices.astype(np.int64)
        self._initial = np.cumsum(mdp.initial)
        self._last_initial = int(np.flatnonzero(mdp.initial)[-1])
        self._n_actions = mdp.n_actions
        # Terminal are the states that no action leaves, and none pays in.
        stay = np.bincount(rows, matrix.data * (matrix.indices == rows // mdp.n_actions), matrix.shape[0])
        stays_unpaid = (stay.reshape(mdp.rewards.shape) >= 1.0 - ROUNDING) & (mdp.rewards == 0.0)
        self.terminal: Flags = stays_unpaid.all(axis=1)

    def start(self, uniforms: Floats) -> Integers:
        """Return s ∼ d0 for each number in [0, 1)."""
        drawn = np.searchsorted(self._initial, uniforms, side="right")
        return np.minimum(drawn, self._last_initial)

    def step(self, states: Integers, actions: Integers, uniforms: Floats) -> Integers:
        """Return s' ∼ P(· | s, a) for each pair, by a number in [0, 1)."""
        rows = states * self._n_actions + actions
        drawn = np.searchsorted(self._cumulative, rows + uniforms, side="right")
        # Where the sums of rows are off 1 by rounding, a draw may fall beside its row.
        following: Integers = self._successors[np.clip(drawn, self._first[rows], self._last[rows])]
        return following


def sample_batch(
    mdp: FiniteMDP, policy: NDArray[Any], n_transitions: int, rng: np.random.Generator, *, horizon: int
) -> Batch:
    """Follow a policy from d0 for as many episodes as give `n_transitions`, and return these.

    An episode terminates in a state that no action leaves and that pays nothing; an absorbing state that pays is
    lived in until the time limit, like any other.

    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    :param rng: where all randomness comes from
    :param horizon: the time limit, the most steps of an episode
    """
    check_argument("n_transitions", n_transitions, whole(1))
    check_argument("horizon", horizon, whole(1))
    policy = mdp.check_policy(policy)
    probabilities = policy if policy.ndim == 2 else np.eye(mdp.n_actions)[policy]
    simulator = Simulator(mdp)
    if simulator.terminal[mdp.initial > 0].all():
        raise ValueError("every initial state is terminal: there is no transition to sample")
    pieces: list[tuple[NDArray[Any], ...]] = []
    collected = episodes = 0
    while collected < n_transitions:
        # As many episodes as the mean length so far asks for; at first, as if none ended early.
        mean_length = collected / episodes if collected else horizon
        more = math.ceil((n_transitions - collected) / mean_length)
        pieces.append(_episodes(simulator, probabilities, more, horizon, rng))
        collected += len(pieces[-1][0])
        episodes += more
    states, actions, following, truncated = (
        np.concatenate(column)[:n_transitions] for column in zip(*pieces, strict=True)
    )
    terminated = simulator.terminal[following]
    truncated[-1] |= not terminated[-1]
    rewards = mdp.rewards[states, actions]
    return Batch(states, actions, rewards, following, terminated, truncated, mdp.n_states, mdp.n_actions)


def _episodes(
    simulator: Simulator, probabilities: Floats, episodes: int, horizon: int, rng: np.random.Generator
) -> tuple[NDArray[Any], ...]:
    """Roll episodes out side by side: states, actions, next states and cut-offs, one episode after the other."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    running, states = np.arange(episodes), simulator.start(rng.random(episodes))
    steps: list[tuple[NDArray[Any], ...]] = []
    for step in range(1, horizon + 1):
        alive = ~simulator.terminal[states]
        running, states = running[alive], states[alive]
        if not states.size:
            break
        actions = (cumulative[states] <= rng.random((states.size, 1))).sum(axis=1)
        following = simulator.step(states, actions, rng.random(states.size))
        cut_off = ~simulator.terminal[following] & (step == horizon)
        steps.append((running, states, actions, following, cut_off))
        states = following
    if not steps:
        return tuple(np.empty(0, kind) for kind in (np.int64, np.int64, np.int64, np.bool_))
    order = np.argsort(np.concatenate([columns[0] for columns in steps]), kind="stable")
    return tuple(np.concatenate(column)[order] for column in list(zip(*steps, strict=True))[1:])
