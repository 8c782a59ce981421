"""The paper's Figure 1, drawn and written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from hurl.files import write_whole
from hurl.names import needs
from hurl.tabular.chain import LEFT, N_STATES, RIGHT, ChainFigure, Rewards, arrows, chain_figure
from hurl.tabular.mdp import Floats
from hurl.tabular.solve import expectation


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
