"""The chain of the paper's Figure 1, what a good and a bad heuristic do to the policy found on it; and a corridor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.reshaping import reshaped
from hurl.tabular.solve import evaluate, expectation, optimal, uniform_policy

Rewards = Literal["settled", "caption"]

N_STATES, START, GAMMA = 10, 3, 0.9
LEFT, RIGHT = 0, 1
LAMBDAS = [round(0.1 * step, 1) for step in range(11)]


def chain_mdp(rewards: Rewards = "settled") -> FiniteMDP:
    """Return the chain: states 1 to 10, of which 1 and 10 absorb, actions ← and →, start in 3, γ = 0.9.

    The caption of Figure 1 and the text beside it contradict each other. `caption` takes the caption's rewards to the
    letter: r(2, ←) = 0.1, r(4, →) = −0.2, r(5, →) = 0.1. `settled` is the nearest chain under which all holds that the
    text says of the start state: r(2, ←) = 0.1, r(4, →) = −0.1, r(s, →) = 0.1 for s = 5, …, 9.
    """
    transitions = np.zeros((N_STATES, 2, N_STATES))
    for index in range(N_STATES):
        absorbing = index in (0, N_STATES - 1)
        transitions[index, LEFT, index if absorbing else index - 1] = 1.0
        transitions[index, RIGHT, index if absorbing else index + 1] = 1.0
    paid = np.zeros((N_STATES, 2))
    paid[2 - 1, LEFT] = 0.1
    if rewards == "caption":
        paid[4 - 1, RIGHT], paid[5 - 1, RIGHT] = -0.2, 0.1
    else:
        paid[4 - 1, RIGHT], paid[5 - 1 : 9, RIGHT] = -0.1, 0.1
    initial = np.zeros(N_STATES)
    initial[START - 1] = 1.0
    return FiniteMDP(transitions, paid, GAMMA, initial)


def corridor_mdp(length: int, *, slip: float, gamma: float) -> FiniteMDP:
    """Return a corridor: from its left end, to where 1 is paid for leaving it; a step may slip the other way.

    :param length: how many states there are before the absorbing one
    :param slip: the probability of a slip
    """
    if length < 1:
        raise ValueError(f"a corridor has at least 1 state, got length={length!r}")
    transitions, rewards = np.zeros((length + 1, 2, length + 1)), np.zeros((length + 1, 2))
    for state in range(length):
        for action, (wanted, other) in enumerate(((state - 1, state + 1), (state + 1, state - 1))):
            transitions[state, action, max(wanted, 0)] += 1 - slip
            transitions[state, action, max(other, 0)] += slip
    transitions[length, :, length] = 1.0
    rewards[length - 1] = transitions[length - 1, :, length]
    return FiniteMDP(transitions, rewards, gamma, np.eye(length + 1)[0])


@dataclass(frozen=True)
class ChainFigure:
    """The numbers of Figure 1.

    :param optimal_value: V*, shape (10,)
    :param heuristics: `good` is V of the random policy, `bad` is V of the policy that h = 0 yields at λ = 0.5
    :param policies: optimal policies of the reshaped chains of part (b), actions, shape (10,)
    :param curves: for each heuristic, the value from the start of the policy that HuRL finds at each λ
    """

    mdp: FiniteMDP
    optimal_value: Floats
    heuristics: dict[str, Floats]
    policies: dict[str, NDArray[np.int64]]
    curves: dict[str, list[tuple[float, float]]]


def chain_figure(rewards: Rewards = "settled") -> ChainFigure:
    """Compute Figure 1."""
    mdp = chain_mdp(rewards)
    solution = optimal(mdp)
    zero = np.zeros(N_STATES)
    myopic = _guided_policy(mdp, zero, 0.5)
    good, bad = evaluate(mdp, uniform_policy(mdp)), evaluate(mdp, myopic)
    policies = {
        "optimal": solution.policy,
        "zero, lambda 0.5": myopic,
        "good, lambda 0.5": _guided_policy(mdp, good, 0.5),
        "bad, lambda 0.5": _guided_policy(mdp, bad, 0.5),
        "bad, lambda 1": _guided_policy(mdp, bad, 1.0),
    }
    curves = {
        name: [(lambda_, expectation(mdp, evaluate(mdp, _guided_policy(mdp, h, lambda_)))) for lambda_ in LAMBDAS]
        for name, h in (("good", good), ("bad", bad), ("zero", zero))
    }
    return ChainFigure(mdp, solution.values, {"good": good, "bad": bad}, policies, curves)


def arrows(policy: NDArray[np.int64]) -> str:
    """Write the actions in states 2 to 9 as `<` and `>`."""
    return "".join("<" if action == LEFT else ">" for action in policy[1:-1])


def _guided_policy(mdp: FiniteMDP, h: Floats, lambda_: float) -> NDArray[np.int64]:
    """Return an optimal policy of the reshaped MDP."""
    return optimal(reshaped(mdp, h, lambda_)).policy
