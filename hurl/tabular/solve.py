"""Exact solutions of finite MDPs: values, optimal policies and state distributions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import gmres, spsolve

from hurl.tabular.mdp import FiniteMDP, Floats, Matrix

# Up to this many states, linear systems are solved densely and optimal values by policy iteration.
DENSE_STATES = 500
# So often, at most, modified policy iteration applies the operator of a policy before it improves the policy.
EVALUATION_SWEEPS = 30
# How far rounding takes a Bellman backup from the truth, as a part of the largest value.
ROUNDING = 8 * float(np.finfo(np.float64).eps)
# The residual of a linear system that is small enough, as a part of the largest number in it.
RESIDUAL = 1e-12


@dataclass(frozen=True)
class Solution:
    """An optimal policy with its values.

    :param values: V*, shape (S,), each within `error_bound` of the truth
    :param policy: actions that are greedy for them, shape (S,)
    :param sweeps: Bellman backups of all pairs that it took
    """

    values: Floats
    policy: NDArray[np.int64]
    error_bound: float
    sweeps: int


def bellman(mdp: FiniteMDP, values: Floats) -> Floats:
    """(B v)(s, a) = r(s, a) + γ·E_{s'|s,a}[v(s')], shape (S, A). Source: the Definition in section 4.3."""
    backups = mdp.expect(np.asarray(values, np.float64))
    backups *= mdp.gamma
    backups += mdp.rewards
    return backups


def greedy(mdp: FiniteMDP, values: Floats) -> NDArray[np.int64]:
    """argmax_a (B v)(s, a), shape (S,); the first of equal actions."""
    actions: NDArray[np.int64] = np.argmax(bellman(mdp, values), axis=1)
    return actions


def uniform_policy(mdp: FiniteMDP) -> Floats:
    """Every action with the same probability, shape (S, A)."""
    return np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)


def evaluate(mdp: FiniteMDP, policy: NDArray[Any]) -> Floats:
    """V^π, the solution of (I − γ·P_π) v = r_π, shape (S,).

    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    transitions, rewards = mdp.under(policy)
    return _solve(transitions, mdp.gamma, rewards)


def action_values(mdp: FiniteMDP, policy: NDArray[Any]) -> Floats:
    """Q^π(s, a) = r(s, a) + γ·E_{s'|s,a}[V^π(s')], shape (S, A)."""
    return bellman(mdp, evaluate(mdp, policy))


def average_distribution(mdp: FiniteMDP, policy: NDArray[Any]) -> Floats:
    """d^π = (1 − γ)·Σ_t γ^t·d_t^π, shape (S,): the solution of (I − γ·P_πᵀ) d = (1 − γ)·d0."""
    transitions, _ = mdp.under(policy)
    distribution = _solve(transitions.T, mdp.gamma, (1.0 - mdp.gamma) * mdp.initial)
    return np.maximum(distribution, 0.0)  # rounding may leave −1e-18


def expectation(mdp: FiniteMDP, values: Floats, distribution: Floats | None = None) -> float:
    """V(d) = E_{s∼d}[V(s)]; d is d0 where it is left out."""
    return float(np.dot(mdp.initial if distribution is None else distribution, values))


def optimal(mdp: FiniteMDP, tolerance: float = 1e-10) -> Solution:
    """Return V* and an optimal policy, the values of large MDPs within `tolerance`, or as near as rounding allows.

    Small MDPs by policy iteration, whose `error_bound` is ‖T v − v‖∞/(1−γ); large ones by modified policy iteration
    with MacQueen's bounds: for any v

        T v + γ/(1−γ)·min(T v − v)  ≤  V*  ≤  T v + γ/(1−γ)·max(T v − v)

    so that the middle of the two is within γ/(1−γ)·span(T v − v)/2 of V*. Both bounds allow for rounding.
    Source: Puterman, Markov Decision Processes (1994), sections 6.4 to 6.6.
    """
    if mdp.n_states <= DENSE_STATES:
        return _policy_iteration(mdp)
    return _modified_policy_iteration(mdp, tolerance)


def _policy_iteration(mdp: FiniteMDP) -> Solution:
    policy = greedy(mdp, np.zeros(mdp.n_states))
    total = -np.inf
    sweeps = 1
    while True:
        values = evaluate(mdp, policy)
        improved, best = _improve(policy, bellman(mdp, values))
        sweeps += 1
        # A better policy has a higher sum of values. Where rounding says otherwise there is nothing left to gain, and
        # to go on might be to go round in circles.
        if np.array_equal(improved, policy) or values.sum() <= total:
            error = float(np.abs(best - values).max()) / (1.0 - mdp.gamma)
            return Solution(values, policy, error + _rounding(mdp, float(np.abs(values).max())), sweeps)
        policy, total = improved, values.sum()


def _modified_policy_iteration(mdp: FiniteMDP, tolerance: float) -> Solution:
    values, policy = mdp.rewards.max(axis=1), np.argmax(mdp.rewards, axis=1)
    transitions: Matrix = None
    factor = mdp.gamma / (1.0 - mdp.gamma)
    solved = False
    sweeps = 0
    while True:
        improved, best = _improve(policy, bellman(mdp, values))
        sweeps += 1
        change = best - values
        low, high = float(change.min()), float(change.max())
        middle, error = factor * (low + high) / 2, factor * (high - low) / 2
        rounding = _rounding(mdp, float(np.abs(best).max()) + abs(middle))
        allowed = max(tolerance - rounding, rounding)
        changed = float(np.mean(improved != policy))
        policy = improved
        # After 40/(1−γ) sweeps value iteration alone would leave nothing but rounding: γⁿ < e⁻⁴⁰.
        if error <= allowed or (solved and not changed) or sweeps > 40.0 / (1.0 - mdp.gamma):
            return Solution(best + middle, policy, error + rounding, sweeps)
        if changed or transitions is None:
            transitions, rewards = mdp.under(policy)
        # The less of a policy changes, the better it is evaluated: to the end when it stays, and exactly where it mixes
        # too slowly for sweeps.
        goal = max(allowed / factor, changed * (high - low))
        values, reached = _sweep(transitions, mdp.gamma, rewards, best, goal)
        solved = not (changed or reached)
        if solved:
            values = _solve(transitions, mdp.gamma, rewards)


def _improve(policy: NDArray[np.int64], backups: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the greedy policy, with the old action where the gain is mere rounding, and max_a of the backups."""
    best = reduce(np.maximum, backups.T)  # many times faster than `max(axis=1)` for few actions
    gains = best - backups[np.arange(len(policy)), policy]
    better = np.flatnonzero(gains > ROUNDING * np.abs(best).max())
    improved = policy.copy()
    improved[better] = np.argmax(backups[better], axis=1)
    return improved, best


def _rounding(mdp: FiniteMDP, largest: float) -> float:
    """Return how far rounding, that of the probabilities too, may take values of this size from the truth."""
    return (ROUNDING + mdp.row_error) * largest / (1.0 - mdp.gamma)


def _sweep(transitions: Matrix, gamma: float, rewards: Floats, values: Floats, goal: float) -> tuple[Floats, bool]:
    """Repeat v ← r_π + γ·P_π v until the span of the change reaches the goal; return v and whether it did."""
    for _ in range(EVALUATION_SWEEPS):
        following = transitions @ values
        following *= gamma
        following += rewards
        values -= following
        change = float(np.ptp(values))
        values = following
        if change <= goal:
            return values, True
    return values, False


def _solve(transitions: Matrix, gamma: float, right: Floats) -> Floats:
    """Solve (I − γ·P) x = b: densely where it is small, else by GMRES, else by a sparse factorisation.

    Random graphs, whose factors would fill the memory, mix fast, so that GMRES needs few steps there; chains and
    grids, which mix slowly, have sparse factors.
    """
    size = right.shape[0]
    if not sparse.issparse(transitions):
        return np.linalg.solve(np.eye(size) - gamma * transitions, right)
    if size <= DENSE_STATES:
        return np.linalg.solve(np.eye(size) - gamma * transitions.toarray(), right)
    system = sparse.csr_array(sparse.eye_array(size, format="csr") - gamma * transitions)
    if transitions.nnz > size:  # a deterministic chain has factors as sparse as itself
        solution, left = np.zeros(size), right
        for _ in range(3):  # the second and third solve for what is left over
            correction, failed = gmres(system, left, rtol=1e-8, atol=0.0, restart=100, maxiter=3)
            solution += correction
            left = right - system @ solution
            largest = max(np.abs(right).max(), np.abs(solution).max())
            if failed or np.abs(left).max() <= ROUNDING * largest:
                break
        if np.abs(left).max() <= RESIDUAL * largest:
            return solution
    return np.asarray(spsolve(system.tocsc(), right), np.float64)
