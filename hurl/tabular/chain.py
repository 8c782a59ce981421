"""The chain of the paper's Figure 1, what a good and a bad heuristic do to the policy found on it; and a corridor."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hurl.files import write_whole
from hurl.names import needs
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


def write_chain(folder: Path, rewards: Rewards = "settled") -> ChainFigure:
    """Write Figure 1 as `chain.png` and its numbers as `chain.json`."""
    figure = chain_figure(rewards)
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {
        "optimal_value": figure.optimal_value.tolist(),
        "heuristics": {name: values.tolist() for name, values in figure.heuristics.items()},
        "policies": {name: arrows(policy) for name, policy in figure.policies.items()},
        "curves": figure.curves,
    }
    write_whole(folder / "chain.json", f"{json.dumps(numbers, indent=2)}\n".encode())
    draw_chain(figure, folder / "chain.png")
    return figure


def arrows(policy: NDArray[np.int64]) -> str:
    """Write the actions in states 2 to 9 as `<` and `>`."""
    return "".join("<" if action == LEFT else ">" for action in policy[1:-1])


def draw_chain(figure: ChainFigure, file: Path) -> None:
    """Draw the three parts of Figure 1: values, policies, and the value found at each λ."""
    with needs("a picture", "experiments"):
        from matplotlib.figure import Figure

    picture = Figure(figsize=(13.0, 3.8), layout="constrained")
    values, policies, curves = picture.subplots(1, 3, width_ratios=[1.15, 1.0, 1.0])
    _draw_values(values, figure)
    _draw_policies(policies, figure)
    _draw_curves(curves, figure)
    content = io.BytesIO()
    picture.savefig(content, format=file.suffix.removeprefix("."), dpi=150)
    write_whole(file, content.getbuffer())


def _draw_values(axes: Any, figure: ChainFigure) -> None:
    rows = {
        "reward of ←": figure.mdp.rewards[:, LEFT],
        "reward of →": figure.mdp.rewards[:, RIGHT],
        "V*": figure.optimal_value,
        "good h = V(random)": figure.heuristics["good"],
        "bad h = V(myopic)": figure.heuristics["bad"],
    }
    _draw_cells(axes, rows, "(a) values")
    for row, numbers in enumerate(rows.values()):
        for column, value in enumerate(numbers):
            axes.text(column + 1, row, f"{round(value, 2) + 0.0:.2f}", ha="center", va="center", fontsize=7)


def _draw_policies(axes: Any, figure: ChainFigure) -> None:
    labels = {
        "optimal": "π*",
        "zero, lambda 0.5": "h = 0, λ = 0.5",
        "good, lambda 0.5": "good h, λ = 0.5",
        "bad, lambda 0.5": "bad h, λ = 0.5",
        "bad, lambda 1": "bad h, λ = 1",
    }
    shades = {label: np.where(figure.policies[name] == RIGHT, 0.4, -0.4) for name, label in labels.items()}
    for shade in shades.values():
        shade[[0, -1]] = 0.0
    _draw_cells(axes, shades, "(b) policies")
    for row, name in enumerate(labels):
        for column, action in enumerate(figure.policies[name][1:-1], start=2):
            axes.text(column, row, "←" if action == LEFT else "→", ha="center", va="center")


def _draw_cells(axes: Any, rows: dict[str, Floats], title: str) -> None:
    cells = np.array(list(rows.values()))
    axes.imshow(cells, cmap="PiYG", vmin=-1, vmax=1, aspect="auto", extent=(0.5, 10.5, len(rows) - 0.5, -0.5))
    axes.set(title=title, xlabel="state (start in 3; 1 and 10 absorb)", xticks=range(1, N_STATES + 1))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xticks(np.arange(1.5, N_STATES), minor=True)
    axes.set_yticks(np.arange(0.5, len(rows) - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)


def _draw_curves(axes: Any, figure: ChainFigure) -> None:
    styles = {"good": ("good h", "o-"), "bad": ("bad h", "s--"), "zero": ("h = 0", "^:")}
    for name, (label, style) in styles.items():
        axes.plot(*zip(*figure.curves[name], strict=True), style, label=label)
    best = expectation(figure.mdp, figure.optimal_value)
    axes.axhline(best, color="gray", linewidth=1)
    axes.text(0.0, best, "V*", va="bottom", color="gray")
    axes.set(title="(c) value found, from the start", xlabel="λ", ylim=(0, 1.3 * best))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper center", ncols=3, frameon=False)


def _guided_policy(mdp: FiniteMDP, h: Floats, lambda_: float) -> NDArray[np.int64]:
    """Return an optimal policy of the reshaped MDP."""
    return optimal(reshaped(mdp, h, lambda_)).policy
