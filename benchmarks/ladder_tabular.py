"""Samples that a ladder of λ needs in finite MDPs, beside each λ alone, and what its bandit loses by its choices.

Q-learning on a corridor and on random MDPs with a good, a zero and a reversed heuristic, until the greedy policy is
within 5 % of the optimum for five evaluations in a row; then the bandit alone, on rungs whose returns are drawn. All
of it repeats exactly. It writes results/gauntlet/tabular.csv and docs/ladder-tabular.png.

    python benchmarks/ladder_tabular.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from hurl.ladder import Ladder, rungs_for
from hurl.tabular import (
    FiniteMDP,
    choice_regret,
    corridor_mdp,
    expectation,
    ladder_sample_complexity,
    optimal,
    sample_complexity,
)

ROOT = Path(__file__).parents[1]
TABLE, PICTURE = ROOT / "results" / "gauntlet" / "tabular.csv", ROOT / "docs" / "ladder-tabular.png"

LEARNERS = ("λ = 0", "λ = 0.5", "λ for H^0.4", "λ = 1", "ladder of 2", "ladder of 4")
FIXED, RUNS = 4, 20  # the third λ is that of `rungs_for`, whose horizon is H^0.4 with H = 1/(1 − γ)
RANDOM_MDPS, STATES, ACTIONS, SUCCESSORS, PAID = 6, 30, 3, 2, 5
SETTINGS: dict[str, dict[str, Any]] = {
    "corridor": {"budget": 200_000, "evaluation_interval": 500, "horizon": 1_000},
    "random MDPs": {"budget": 30_000, "evaluation_interval": 250, "horizon": 100},
}
GAPS, EPISODES, CHANGE, REPEATS = (0.25, 0.5, 1.0, 2.0), 1_000, 500, 20
BETTER = ("λ = 1", "guidance")


def main() -> None:
    """Measure, print, write."""
    threadpool_limits(1)
    problems = list(make_problems())
    measured: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, mdp in track(problems, description="problems", transient=True):
        for heuristic, steps in samples(mdp, SETTINGS[name]).items():
            measured.setdefault((name, heuristic), []).append(steps)
    steps = {cell: np.concatenate(parts, axis=1) for cell, parts in measured.items()}
    curves = {(gap, better): regret(means(gap, better)) for gap in GAPS for better in BETTER}
    console = Console(width=120)
    console.print(tabulate_samples(steps))
    console.print(tabulate_regret(curves))
    write(steps)
    draw(steps, curves)


def make_problems() -> Iterator[tuple[str, FiniteMDP]]:
    """Yield the corridor of docs/theory.md, and random MDPs."""
    yield "corridor", corridor_mdp(30, slip=0.1, gamma=0.99)
    for seed in range(RANDOM_MDPS):
        yield "random MDPs", random_mdp(np.random.default_rng(seed))


def random_mdp(rng: np.random.Generator) -> FiniteMDP:
    """Draw successors, probabilities, and the few pairs that pay."""
    transitions = np.zeros((STATES, ACTIONS, STATES))
    for pair in np.ndindex(STATES, ACTIONS):
        transitions[pair][rng.choice(STATES, SUCCESSORS, replace=False)] = rng.dirichlet(np.ones(SUCCESSORS))
    rewards = np.zeros(STATES * ACTIONS)
    rewards[rng.choice(rewards.size, PAID, replace=False)] = rng.random(PAID)
    return FiniteMDP(transitions, rewards.reshape(STATES, ACTIONS), 0.95, np.eye(STATES)[0])


def samples(mdp: FiniteMDP, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the steps to ε-optimality of every learner by heuristic, shape (learners, runs)."""
    values = optimal(mdp).values
    heuristics = {"good (V*)": values, "zero": np.zeros(mdp.n_states), "reversed (−V*)": -values}
    options = settings | {"epsilon": 0.05 * expectation(mdp, values), "exploration": 0.2, "runs": RUNS}
    lambdas = (0.0, 0.5, *rungs_for(mdp.gamma))
    fixed = sample_complexity(mdp, heuristics, lambdas, rng=np.random.default_rng(0), **options).steps
    ladders = [
        ladder_sample_complexity(mdp, heuristics, ladder, rng=np.random.default_rng(0), **options)
        for ladder in (Ladder(), Ladder(*lambdas))
    ]
    together = np.concatenate([fixed, np.stack(ladders, axis=1)], axis=1)
    return dict(zip(heuristics, together, strict=True))


def means(gap: float, better: str) -> list[float]:
    """Return the mean returns of two rungs, guidance and λ = 1, one of which is better by so many deviations."""
    return [0.0, gap] if better == "λ = 1" else [gap, 0.0]


def regret(rungs: ArrayLike) -> np.ndarray:
    """Return the regret of a ladder with such mean returns of its rungs, mean of the runs."""
    ladder, rng = Ladder(0.9, 1.0), np.random.default_rng(0)
    return np.mean([choice_regret(ladder, rungs, 1.0, episodes=EPISODES, rng=rng) for _ in range(REPEATS)], axis=0)


def lost_after_change(gap: float, better: str) -> float:
    """Return the episodes lost once a rung that was behind is ahead of the other, which stays; mean of the runs."""
    after = np.array(means(gap, better))
    curve = regret(np.where(np.arange(EPISODES)[:, None] < CHANGE, -after, after))
    return float(curve[-1] - curve[CHANGE - 1]) / gap


def tabulate_samples(steps: dict[tuple[str, str], np.ndarray]) -> Table:
    """Make the table of medians."""
    table = Table(title="environment steps to within 5 % of the optimum, medians")
    for heading in ("problem", "h", *LEARNERS):
        table.add_column(heading, justify="left" if heading in ("problem", "h") else "right")
    for (problem, heuristic), cells in steps.items():
        table.add_row(problem, heuristic, *map(count, middle(cells)))
    return table


def tabulate_regret(curves: dict[tuple[float, str], np.ndarray]) -> Table:
    """Make the table of what the bandit loses, in deviations of the returns."""
    table = Table(title="two rungs, in deviations of their returns")
    table.add_column("gap", justify="right")
    for better in BETTER:
        for heading in (f"{better} better: at 100", "at 500", "at 1,000", "lost after a change"):
            table.add_column(heading, justify="right")
    table.add_column("exploration alone", justify="right")
    for gap in GAPS:
        cells = []
        for better in BETTER:
            cells += [f"{curves[gap, better][episodes - 1]:.1f}" for episodes in (100, 500, 1_000)]
            cells.append(f"{lost_after_change(gap, better):.0f}")
        table.add_row(f"{gap:g}", *cells, f"{Ladder().exploration * gap * EPISODES:.1f}")
    return table


def middle(cells: np.ndarray) -> np.ndarray:
    """Return lower medians over the runs: of runs that never get there, too."""
    return np.sort(cells, axis=1)[:, (cells.shape[1] - 1) // 2]


def count(steps: float) -> str:
    """Write a number of steps."""
    return f"{steps:,.0f}" if np.isfinite(steps) else "never"


def write(steps: dict[tuple[str, str], np.ndarray]) -> None:
    """Write the table: a row for each problem, heuristic and learner; an empty cell is a budget that ended first."""
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["problem", "heuristic", "learner", "runs", "reached", "lower", "median", "upper"])
        for (problem, heuristic), cells in steps.items():
            for learner, runs in zip(LEARNERS, np.sort(cells, axis=1), strict=True):
                quartiles = (runs[(len(runs) - 1) * part // 4] for part in (1, 2, 3))
                figures = (f"{value:.0f}" if np.isfinite(value) else "" for value in quartiles)
                writer.writerow([problem, heuristic, learner, len(runs), np.isfinite(runs).sum(), *figures])


def draw(steps: dict[tuple[str, str], np.ndarray], curves: dict[tuple[float, str], np.ndarray]) -> None:
    """Draw the samples of both problems and the regret."""
    picture = Figure(figsize=(13.0, 4.2), layout="constrained")
    panels = picture.subplots(1, 3)
    for axes, problem in zip(panels, SETTINGS, strict=False):
        draw_samples(axes, problem, {h: cells for (name, h), cells in steps.items() if name == problem})
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(LEARNERS), fontsize=9)
    for index, gap in enumerate(GAPS):
        for better, line in zip(BETTER, ("-", "--"), strict=True):
            label = f"gap {gap:g} σ" if line == "-" else None
            panels[2].plot(curves[gap, better], f"C{index}{line}", label=label)
    panels[2].set(title="regret (dashed: guidance is better)", xlabel="episodes", ylabel="σ of the returns")
    panels[2].legend(fontsize=8)
    for axes in panels:
        axes.grid(alpha=0.3)
    picture.savefig(PICTURE, dpi=110)


def draw_samples(axes: Any, problem: str, steps: dict[str, np.ndarray]) -> None:
    """Draw the median and the quartiles of every learner, side by side for each heuristic."""
    never = 2.0 * SETTINGS[problem]["budget"]
    for index, learner in enumerate(LEARNERS):
        runs = np.sort([np.minimum(cells[index], never) for cells in steps.values()], axis=1)
        low, median, high = (runs[:, (runs.shape[1] - 1) * part // 4] for part in (1, 2, 3))
        places = np.arange(len(steps)) + 0.13 * (index - (len(LEARNERS) - 1) / 2)
        style = {"fmt": "o", "alpha": 0.55} if index < FIXED else {"fmt": "D", "markeredgecolor": "black"}
        axes.errorbar(places, median, (median - low, high - median), color=f"C{index}", label=learner, **style)
    axes.axhline(never, color="gray", linewidth=0.8, linestyle=":")
    axes.set(title=f"{problem} (dotted: never)", ylabel="steps to within 5 % of V*", yscale="log")
    axes.set_xticks(range(len(steps)), list(steps))


if __name__ == "__main__":
    main()
