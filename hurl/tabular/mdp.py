"""Finite MDPs as arrays, dense or sparse, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hurl.discounting import check_gamma

# An array of floats or a `scipy.sparse.csr_array`; SciPy comes without types.
Matrix: TypeAlias = Any
Floats = NDArray[np.float64]

# How far a row of probabilities may be from summing to 1.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """M = (S, A, P, r, γ) with an initial state distribution d0; states and actions are counted from 0.

    :param transitions: P(s' | s, a), shape (S, A, S), or one sparse matrix of shape (S, S) for each action
    :param rewards: r(s, a), shape (S, A)
    :param gamma: γ ∈ [0, 1)
    :param initial: d0, shape (S,)
    """

    transitions: Floats | tuple[Matrix, ...]
    rewards: Floats
    gamma: float
    initial: Floats

    def __init__(
        self, transitions: ArrayLike | Sequence[Any], rewards: ArrayLike, gamma: float, initial: ArrayLike
    ) -> None:
        if isinstance(transitions, Sequence) and all(sparse.issparse(matrix) for matrix in transitions):
            object.__setattr__(self, "transitions", tuple(map(_as_csr, transitions)))
        else:
            object.__setattr__(self, "transitions", _frozen(transitions))
        object.__setattr__(self, "rewards", _frozen(rewards))
        object.__setattr__(self, "gamma", float(gamma))
        object.__setattr__(self, "initial", _frozen(initial))
        self._check()

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return f"FiniteMDP({self.n_states} states, {self.n_actions} actions, gamma={self.gamma}, {kind})"

    @property
    def n_states(self) -> int:
        """How many states there are."""
        return int(self.rewards.shape[0])

    @property
    def n_actions(self) -> int:
        """How many actions there are."""
        return int(self.rewards.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the transitions are sparse matrices."""
        return isinstance(self.transitions, tuple)

    @cached_property
    def matrix(self) -> Matrix:
        """P as one matrix of shape (S·A, S); row s·A + a holds P(· | s, a)."""
        if not isinstance(self.transitions, tuple):
            return self.transitions.reshape(-1, self.n_states)
        stacked = sparse.vstack(self.transitions, format="csr")
        order = np.arange(self.n_actions * self.n_states).reshape(self.n_actions, -1).T.ravel()
        return sparse.csr_array(stacked[order])

    @cached_property
    def row_error(self) -> float:
        """The largest |Σ_s' P(s' | s, a) − 1|, which is rounding."""
        return float(np.abs(self.expect(np.ones(self.n_states)) - 1.0).max())

    def expect(self, values: Floats) -> Floats:
        """E_{s'|s,a}[v(s')] for every pair, shape (S, A); v has shape (S,)."""
        expected: Floats = (self.matrix @ values).reshape(self.n_states, self.n_actions)
        return expected

    def under(self, policy: NDArray[Any]) -> tuple[Matrix, Floats]:
        """P_π, shape (S, S), and r_π, shape (S,): the Markov chain that a policy makes of the MDP.

        :param policy: actions, shape (S,), or probabilities π(a | s), shape (S, A)
        """
        policy = self.check_policy(policy)
        states = np.arange(self.n_states)
        if policy.ndim == 1:
            rows = states * self.n_actions + policy
            return self.matrix[rows], self.rewards[states, policy]
        rewards: Floats = (policy * self.rewards).sum(axis=1)
        if not isinstance(self.transitions, tuple):
            return np.einsum("sa,sat->st", policy, self.transitions), rewards
        starts = np.arange(self.n_states + 1) * self.n_actions
        weights = sparse.csr_array((policy.ravel(), np.arange(policy.size), starts))
        return sparse.csr_array(weights @ self.matrix), rewards

    def check_policy(self, policy: NDArray[Any]) -> NDArray[Any]:
        """Refuse what is neither an action for each state nor a distribution over actions for each."""
        policy = np.asarray(policy)
        if policy.shape == (self.n_states,) and policy.dtype.kind in "iu":
            if policy.size and not (policy.min() >= 0 and policy.max() < self.n_actions):
                raise ValueError(f"actions must lie in 0…{self.n_actions - 1}, got {policy.min()}…{policy.max()}")
            return policy
        if policy.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"a policy has shape ({self.n_states},), of actions, or ({self.n_states}, {self.n_actions}), "
                f"of probabilities, got {policy.shape} of {policy.dtype}"
            )
        _check_distribution("policy", policy.sum(axis=1), policy.min())
        return policy.astype(np.float64)

    def _check(self) -> None:
        if self.rewards.ndim != 2 or not self.rewards.size:
            raise ValueError(f"rewards must have shape (S, A), at least (1, 1), got {self.rewards.shape}")
        states, actions = self.rewards.shape
        if isinstance(self.transitions, tuple):
            shapes = [matrix.shape for matrix in self.transitions]
            if shapes != [(states, states)] * actions:
                raise ValueError(
                    f"sparse transitions must be {actions} matrices of shape ({states}, {states}) to fit the rewards, "
                    f"got {', '.join(map(str, shapes))}"
                )
        elif self.transitions.shape != (states, actions, states):
            raise ValueError(
                f"transitions must have shape ({states}, {actions}, {states}) to fit the rewards, "
                f"got {self.transitions.shape}"
            )
        if self.initial.shape != (states,):
            raise ValueError(f"initial must have shape ({states},), got {self.initial.shape}")
        check_gamma(self.gamma)
        if not np.isfinite(self.rewards).all():
            raise ValueError(f"rewards must be finite, got {self.rewards[~np.isfinite(self.rewards)][0]}")
        _check_distribution("initial", self.initial.sum(), self.initial.min())
        entries = self.matrix.data if isinstance(self.matrix, sparse.csr_array) else self.matrix
        _check_distribution("transitions", self.expect(np.ones(states)), entries.min(initial=0.0))


def mdp_from_gymnasium(env_id: str, gamma: float, **options: Any) -> FiniteMDP:
    """Return the MDP of a toy-text environment (`FrozenLake-v1`, `Taxi-v3`, `CliffWalking-v1`), read from its model.

    A transition that ends the episode goes to one absorbing state more, the last, that pays nothing.
    """
    import gymnasium as gym

    env: Any = gym.make(env_id, **options).unwrapped
    if not hasattr(env, "P"):
        raise ValueError(f"{env_id!r} does not tell its transitions: only toy-text environments with a model P do")
    states, actions = int(env.observation_space.n), int(env.action_space.n)
    transitions = np.zeros((states + 1, actions, states + 1))
    rewards = np.zeros((states + 1, actions))
    for state, by_action in env.P.items():
        for action, outcomes in by_action.items():
            for probability, following, reward, terminated in outcomes:
                transitions[state, action, states if terminated else int(following)] += probability
                rewards[state, action] += probability * reward
    transitions[states, :, states] = 1.0
    initial = np.append(np.asarray(env.initial_state_distrib, np.float64), 0.0)
    return FiniteMDP(transitions, rewards, gamma, initial / initial.sum())


def empirical_mdp(
    states: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    next_states: ArrayLike,
    terminated: ArrayLike,
    *,
    n_states: int,
    n_actions: int,
    gamma: float,
    initial: ArrayLike,
) -> FiniteMDP:
    """Return the maximum-likelihood MDP of a batch of n transitions, arrays of shape (n,).

    Terminal transitions, and pairs that the batch does not hold, lead to one absorbing state more, the last, that
    pays nothing.
    """
    states, actions = np.asarray(states, np.int64), np.asarray(actions, np.int64)
    following = np.where(np.asarray(terminated, bool), n_states, np.asarray(next_states, np.int64))
    check_indices("states", states, n_states)
    check_indices("actions", actions, n_actions)
    check_indices("next_states", following[~np.asarray(terminated, bool)], n_states)
    pairs = states * n_actions + actions
    counts = np.bincount(pairs, minlength=(n_states + 1) * n_actions)
    seen = np.maximum(counts, 1)
    means = np.bincount(pairs, np.asarray(rewards, np.float64), len(counts)) / seen
    unseen = np.flatnonzero(counts == 0)  # the absorbing state's own pairs among them
    rows, columns = np.append(pairs, unseen), np.append(following, np.full(len(unseen), n_states))
    matrix = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(counts), n_states + 1)).tocsr()
    matrix.data /= np.repeat(seen, np.diff(matrix.indptr))
    return FiniteMDP(
        [matrix[action::n_actions] for action in range(n_actions)],
        means.reshape(-1, n_actions),
        gamma,
        np.append(np.asarray(initial, np.float64), 0.0),
    )


def _frozen(values: Any) -> NDArray[np.float64]:
    """Return the values as floats that nobody can write to: a copy, unless they are such already."""
    if sparse.issparse(values) or any(
        sparse.issparse(value) for value in (values if isinstance(values, list | tuple) else ())
    ):
        raise ValueError("sparse transitions are given as a list with one sparse matrix for each action")
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and not values.flags.writeable:
        return values
    array = np.array(values, np.float64)
    array.setflags(write=False)
    return array


def check_indices(name: str, indices: NDArray[np.int64], size: int) -> None:
    """Refuse indices outside 0…size − 1."""
    outside = indices[(indices < 0) | (indices >= size)]
    if outside.size:
        raise ValueError(f"{name} must lie in 0…{size - 1}, got {outside[0]}")


def _as_csr(matrix: Any) -> Matrix:
    matrix = sparse.csr_array(matrix, dtype=np.float64)
    if max(*matrix.shape, matrix.nnz) > np.iinfo(np.int32).max:
        return matrix
    # Half as many bytes to read in each product.
    indices, starts = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array((matrix.data, indices, starts), shape=matrix.shape)


def _check_distribution(name: str, sums: Floats, smallest: float) -> None:
    """Refuse negative probabilities, NaN, and what does not sum to 1; sums has shape (), (S,) or (S, A)."""
    if not smallest >= 0:
        raise ValueError(f"{name} must hold probabilities, got {smallest}")
    wrong = np.argwhere(~(np.abs(sums - 1.0) <= ROUNDING))
    if len(wrong):
        where = [f"{kind} {index}" for kind, index in zip(("in state", "action"), wrong[0], strict=False)]
        raise ValueError(" ".join([f"{name} must sum to 1, got {sums[tuple(wrong[0])]}", *where]))
