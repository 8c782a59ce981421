"""Heuristics from a batch of transitions: pessimistic ones, and those that they are to be compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hurl.discounting import check_gamma, reverse_discounted_sum
from hurl.tabular.mdp import FiniteMDP, Floats, check_indices, empirical_mdp
from hurl.tabular.solve import bellman, optimal
from hurl.values import check_argument, number, whole

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# What a batch has for each transition.
COLUMNS = {"states": int, "actions": int, "rewards": float, "next_states": int, "terminated": bool, "truncated": bool}


@dataclass(frozen=True, eq=False)
class Batch:
    """n transitions of a finite MDP, in the order in which they happened; arrays of shape (n,).

    A terminal state is worth nothing, and nobody acts in it: transitions that end an episode in a state that is
    otherwise lived in (Taxi-v3 has some) need a next state of their own, as `mdp_from_gymnasium` gives them.

    :param states: s
    :param actions: a
    :param rewards: r
    :param next_states: s'
    :param terminated: whether s' is terminal
    :param truncated: whether the episode was cut off after the transition, although s' is not terminal
    :param n_states: S, all states of the MDP
    :param n_actions: A, all actions of the MDP
    """

    states: Integers
    actions: Integers
    rewards: Floats
    next_states: Integers
    terminated: Flags
    truncated: Flags
    n_states: int
    n_actions: int

    def __post_init__(self) -> None:
        for name, kind in COLUMNS.items():
            column = np.asarray(getattr(self, name))
            if kind is int and column.dtype.kind not in "iu":
                raise ValueError(f"{name} must be integers, got {column.dtype}")
            object.__setattr__(self, name, column.astype(kind))
            if column.shape != (self.states.size,) or not column.size:
                raise ValueError(
                    f"the columns of a batch have one length, at least 1: states {self.states.shape}, "
                    f"{name} {column.shape}"
                )
        check_indices("states", self.states, self.n_states)
        check_indices("next_states", self.next_states, self.n_states)
        check_indices("actions", self.actions, self.n_actions)
        if not np.isfinite(self.rewards).all():
            raise ValueError(f"rewards must be finite, got {self.rewards[~np.isfinite(self.rewards)][0]}")
        lived_in = np.intersect1d(self.next_states[self.terminated], self.states)
        if lived_in.size:
            raise ValueError(f"state {lived_in[0]} is terminal in one transition and acted in in another")

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        seen = int((self.counts > 0).sum())
        return (
            f"Batch({len(self)} transitions, {int(self.ends.sum())} episodes, "
            f"{seen} of {self.counts.size} pairs of {self.n_states} states and {self.n_actions} actions)"
        )

    @property
    def counts(self) -> Integers:
        """n(s, a): how often each pair was tried, shape (S, A)."""
        pairs = self.states * self.n_actions + self.actions
        return np.bincount(pairs, minlength=self.n_states * self.n_actions).reshape(self.n_states, self.n_actions)

    @property
    def ends(self) -> Flags:
        """Whether each transition is the last of its episode, shape (n,); that of the batch always is."""
        ends = self.terminated | self.truncated
        ends[-1] = True
        return ends

    @property
    def terminal(self) -> Flags:
        """Which states the batch knows to be terminal, shape (S,)."""
        terminal = np.zeros(self.n_states, bool)
        terminal[self.next_states[self.terminated]] = True
        return terminal


@dataclass(frozen=True, eq=False)
class BatchHeuristic:
    """A heuristic h(s) = Q(s, π') that was planned in the model of a batch.

    Whether Q ≤ B h in the true MDP, so that h is improvable, is a matter of probability: see `bellman_pessimism`.

    :param h: shape (S,)
    :param q: Q, shape (S, A)
    :param policy: π', the actions that are greedy for Q, shape (S,)
    """

    h: Floats
    q: Floats
    policy: Integers

    def __repr__(self) -> str:
        return f"BatchHeuristic({self.h.size} states, h from {self.h.min():.4g} to {self.h.max():.4g})"


def pessimistic_values(
    batch: Batch,
    *,
    gamma: float,
    reward_range: tuple[float, float],
    failure_probability: float = 0.1,
    bonus_scale: float = 1.0,
) -> BatchHeuristic:
    """Pessimistic value iteration: plan in the model of the batch, less a bonus for what is uncertain in it.

        Q(s, a) = max(v_low, r̂(s, a) + γ·Ê_{s'|s,a}[h(s')] − b(s, a))        h(s) = max_a Q(s, a)
        b(s, a) = scale·(v_high − v_low)·√(ln(S·A·N/δ) / (2·n(s, a)))

    with v_low = low/(1 − γ), v_high = high/(1 − γ) and N transitions in the batch, n(s, a) of them from (s, a);
    pairs that it does not hold have Q = v_low. At scale 1, b is Hoeffding's bound for a fixed h. As h comes from the
    same data, the proof needs the bound for all h at once: at

        scale = √(1 + S·ln 2 / ln(S·A·N/δ))

    Q ≤ B h holds with probability at least 1 − δ, whatever policy gathered the data. That is careful; in practice
    much smaller scales already hold, and give larger h. Source: Jin et al. (2021), Is Pessimism Provably Efficient
    for Offline RL?, in discounted form.

    :param gamma: γ ∈ [0, 1)
    :param reward_range: low and high, between which all rewards of the MDP lie; a terminal state pays 0
    :param failure_probability: δ ∈ (0, 1)
    :param bonus_scale: scale ≥ 0
    """
    check_argument("failure_probability", failure_probability, number(0, 1, above=True, below=True))
    check_argument("bonus_scale", bonus_scale, number(0))
    lowest, highest = _value_range(batch, gamma, reward_range)
    logarithm = math.log(batch.counts.size * len(batch) / failure_probability)
    bonus = bonus_scale * (highest - lowest) * np.sqrt(logarithm / (2.0 * np.maximum(batch.counts, 1)))
    return _plan(batch, gamma, minimum_count=1, bonus=bonus, unsupported=lowest, lowest=lowest)


def absorbing_values(
    batch: Batch, *, gamma: float, reward_range: tuple[float, float], minimum_count: int
) -> BatchHeuristic:
    """Plan in the model of the batch, in which pairs without enough support lead to the worst there is.

        Q(s, a) = r̂(s, a) + γ·Ê_{s'|s,a}[h(s')]   where n(s, a) ≥ m,   else v_low        h(s) = max_a Q(s, a)

    with v_low = low/(1 − γ). Where the MDP is deterministic, Q ≤ B h holds at any m ≥ 1; else up to the error of
    means of m samples. Source: Liu et al. (2020), Provably Good Batch Reinforcement Learning Without Great
    Exploration.

    :param gamma: γ ∈ [0, 1)
    :param reward_range: low and high, between which all rewards of the MDP lie; a terminal state pays 0
    :param minimum_count: m ≥ 1
    """
    check_argument("minimum_count", minimum_count, whole(1))
    lowest, _ = _value_range(batch, gamma, reward_range)
    return _plan(batch, gamma, minimum_count=minimum_count, bonus=0.0, unsupported=lowest, lowest=lowest)


def naive_values(batch: Batch, *, gamma: float) -> BatchHeuristic:
    """Empirical value iteration: believe the model of the batch.

        Q(s, a) = r̂(s, a) + γ·Ê_{s'|s,a}[h(s')]   where n(s, a) ≥ 1,   else 0        h(s) = max_a Q(s, a)

    It overestimates in two ways: the maximum prefers what the noise has flattered, and the 0 of unseen pairs, the
    value that learning commonly starts from, is above the truth where rewards are costs.

    :param gamma: γ ∈ [0, 1)
    """
    check_gamma(gamma)
    lowest = min(0.0, float(batch.rewards.min())) / (1.0 - gamma)  # no value in the model is below this
    return _plan(batch, gamma, minimum_count=1, bonus=0.0, unsupported=0.0, lowest=lowest)


def monte_carlo_values(batch: Batch, *, gamma: float) -> Floats:
    """Mean discounted return of the visits of each state, shape (S,).

        G_t = r_t + γ·G_{t+1} within an episode        h(s) = mean of G_t over all t with s_t = s

    It estimates the value of the policy that gathered the data. What a time limit cut off counts as 0, and so do
    states without visits.

    :param gamma: γ ∈ [0, 1)
    """
    check_gamma(gamma)
    ends = batch.ends
    broken = np.flatnonzero(~ends[:-1] & (batch.next_states[:-1] != batch.states[1:]))
    if broken.size:
        raise ValueError(f"transition {broken[0]} neither ends its episode nor leads to the state of the next one")
    returns = reverse_discounted_sum(batch.rewards, np.diff(np.flatnonzero(ends), prepend=-1), gamma)
    visits = np.bincount(batch.states, minlength=batch.n_states)
    totals = np.bincount(batch.states, weights=returns, minlength=batch.n_states)
    means: Floats = totals / np.maximum(visits, 1)
    return means


def _plan(
    batch: Batch, gamma: float, *, minimum_count: int, bonus: float | Floats, unsupported: float, lowest: float
) -> BatchHeuristic:
    """Solve Q = max(lowest, r̂ − b + γ·Ê[max Q]) for the pairs with support; the others have the value `unsupported`."""
    supported = batch.counts >= minimum_count
    kept = supported[batch.states, batch.actions]
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated)
    model = empirical_mdp(
        *(column[kept] for column in columns),
        n_states=batch.n_states,
        n_actions=batch.n_actions,
        gamma=gamma,
        initial=np.full(batch.n_states, 1.0 / batch.n_states),
    )
    # The model leads from pairs without support to its absorbing state, the last, so that their reward is their value.
    rewards = np.where(supported, model.rewards[:-1] - bonus, unsupported)
    rewards[batch.terminal] = 0.0
    planned = replace(model, rewards=np.vstack([rewards, model.rewards[-1:]]))
    values = optimal(_with_giving_up(planned, lowest)).values
    q = np.maximum(bellman(planned, values)[:-1], lowest)
    return BatchHeuristic(q.max(axis=1), q, np.argmax(q, axis=1))


def _with_giving_up(mdp: FiniteMDP, worth: float) -> FiniteMDP:
    """Add an action that earns `worth` and leads to the absorbing last state, so that no other value is below it."""
    assert isinstance(mdp.transitions, tuple)
    size = mdp.n_states
    to_last = sparse.csr_array((np.ones(size), (np.arange(size), np.full(size, size - 1))), shape=(size, size))
    rewards = np.append(np.full(size - 1, worth), 0.0)
    return replace(mdp, transitions=(*mdp.transitions, to_last), rewards=np.column_stack([mdp.rewards, rewards]))


def _value_range(batch: Batch, gamma: float, reward_range: tuple[float, float]) -> tuple[float, float]:
    """v_low and v_high; refuse a range that the batch contradicts."""
    low, high = reward_range
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"reward_range must be two finite numbers, the smaller first, got {reward_range!r}")
    check_gamma(gamma)
    paid = np.append(batch.rewards, 0.0) if batch.terminated.any() else batch.rewards
    if paid.min() < low or paid.max() > high:
        raise ValueError(
            f"the batch has rewards from {paid.min()} to {paid.max()}, outside reward_range {reward_range!r}"
        )
    return low / (1.0 - gamma), high / (1.0 - gamma)
