"""Random finite MDPs, policies and heuristics: Hypothesis draws the kinds and a seed, NumPy the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.reshaping import reshaped
from hurl.tabular.solve import evaluate, optimal, uniform_policy

# Every property on 200 examples, the same ones each time, so that CI does not fail by chance.
thorough = settings(max_examples=200, deadline=None, derandomize=True)

GAMMAS = (0.0, 0.1, 0.5, 0.9, 0.97, 0.99, 0.999)
SUPPORTS = ("full", "sparse", "deterministic")
REWARDS = ("uniform", "rare", "binary", "constant")
POLICIES = ("actions", "uniform", "stochastic", "optimal", "guided", "worst")
HEURISTICS = ("random", "optimal", "policy", "zero", "adversarial", "shifted", "near-optimal", "within-bounds")


@dataclass(frozen=True)
class Problem:
    """All that a statement is about: a finite MDP, a heuristic, λ, a policy, and some other function of states."""

    mdp: FiniteMDP
    h: Floats
    lambda_: float
    policy: NDArray[Any]
    values: Floats

    @property
    def guided(self) -> FiniteMDP:
        return reshaped(self.mdp, self.h, self.lambda_)


def seeds() -> st.SearchStrategy[np.random.Generator]:
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def coefficients() -> st.SearchStrategy[float]:
    """λ ∈ [0, 1]: each end in about a quarter of the examples."""
    return st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0), st.floats(0.05, 0.95))


@st.composite
def mdps(draw: st.DrawFn, *, signed: bool = True) -> FiniteMDP:
    """MDPs with 2–12 states and 1–4 actions, rewards in [0, 1], or, where `signed`, in [−2, 2] too."""
    states, actions = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    support, rewards = draw(st.sampled_from(SUPPORTS)), draw(st.sampled_from(REWARDS))
    gamma = draw(st.one_of(st.sampled_from(GAMMAS), st.floats(0.0, 0.999)))
    absorbing, paid = draw(st.integers(0, states)) // 2, draw(st.booleans())
    as_matrices, from_one_state = draw(st.booleans()), draw(st.booleans())
    negative = signed and draw(st.booleans())
    rng = draw(seeds())

    transitions = rng.dirichlet(np.ones(states), size=(states, actions))
    if support != "full":
        kept = 1 if support == "deterministic" else min(states, 3)
        # The kept successors are those with the largest of independent random numbers: any of them, equally likely.
        order = rng.random(transitions.shape).argsort(axis=2).argsort(axis=2)
        transitions = np.where(order < kept, transitions + 1e-3, 0.0)
        transitions /= transitions.sum(axis=2, keepdims=True)
    ends = rng.permutation(states)[:absorbing]
    transitions[ends] = np.eye(states)[ends][:, None, :]

    table = rng.random((states, actions))
    if rewards == "rare":
        table *= rng.random(table.shape) < 0.2
    elif rewards == "binary":
        table = np.round(table)
    elif rewards == "constant":
        table[:] = table[0, 0]
    if negative:
        table = 4.0 * table - 2.0
    if not paid:
        table[ends] = 0.0

    initial = np.eye(states)[rng.integers(states)] if from_one_state else rng.dirichlet(np.ones(states))
    by_action = [sparse.csr_array(transitions[:, action]) for action in range(actions)]
    return FiniteMDP(by_action if as_matrices else transitions, table, gamma, initial)


def make_policy(mdp: FiniteMDP, kind: str, rng: np.random.Generator) -> NDArray[Any]:
    """Return a policy of one of the POLICIES but `guided`, which needs a heuristic."""
    if kind == "optimal":
        return optimal(mdp).policy
    if kind == "worst":
        return optimal(FiniteMDP(mdp.transitions, -mdp.rewards, mdp.gamma, mdp.initial)).policy
    if kind == "uniform":
        return uniform_policy(mdp)
    if kind == "stochastic":
        return rng.dirichlet(np.full(mdp.n_actions, 0.5), size=mdp.n_states)
    return rng.integers(mdp.n_actions, size=mdp.n_states)


def make_heuristic(mdp: FiniteMDP, kind: str, rng: np.random.Generator) -> Floats:
    """Return a heuristic of one of the HEURISTICS."""
    noise = rng.normal(size=mdp.n_states)
    if kind == "zero":
        return np.zeros(mdp.n_states)
    if kind == "random":
        return 10.0 * noise
    if kind == "within-bounds":
        return rng.choice([0.0, 1.0, rng.random()], size=mdp.n_states) / (1.0 - mdp.gamma)
    if kind == "policy":
        return evaluate(mdp, make_policy(mdp, "stochastic", rng))
    best = optimal(mdp).values
    if kind == "adversarial":  # the best states look worst
        return best.min() + best.max() - best
    return best + {"optimal": 0.0, "shifted": float(rng.normal()) * 50.0, "near-optimal": 0.1 * noise}[kind]


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    signed: bool = True,
    heuristics: tuple[str, ...] = HEURISTICS,
    policies: tuple[str, ...] = POLICIES,
) -> Problem:
    """Problems with heuristics and policies of the kinds that are named."""
    mdp, lambda_ = draw(mdps(signed=signed)), draw(coefficients())
    heuristic, policy = draw(st.sampled_from(heuristics)), draw(st.sampled_from(policies))
    rng = draw(seeds())
    h = make_heuristic(mdp, heuristic, rng)
    chosen = optimal(reshaped(mdp, h, lambda_)).policy if policy == "guided" else make_policy(mdp, policy, rng)
    return Problem(mdp, h, lambda_, chosen, make_heuristic(mdp, rng.choice(["random", "adversarial", "policy"]), rng))
