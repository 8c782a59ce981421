"""Learning curves: one picture for a comparison of algorithms over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hurl.experiments.folder import Row

__all__ = ["plot_learning_curves", "returns_of"]


def returns_of(runs: Sequence[Sequence[Row]]) -> NDArray[np.float64]:
    """Return the mean evaluation returns, shape (runs, iterations), over the iterations that all runs have."""
    iterations = min(len(rows) for rows in runs)
    return np.array([[row.return_mean for row in rows[:iterations]] for rows in runs])


def plot_learning_curves(curves: Mapping[str, Sequence[Sequence[Row]]], title: str, file: Path) -> None:
    """Draw the median return against environment steps, with the spread over seeds, a curve for each label."""
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for (label, runs), style in zip(curves.items(), cycle(("-", "--", "-.", ":")), strict=False):
        returns = returns_of(runs)
        steps = np.array([row.steps for row in runs[0][: returns.shape[1]]])
        (line,) = axes.plot(steps, np.median(returns, axis=0), style, label=label, linewidth=2)
        axes.fill_between(
            steps, returns.min(axis=0), returns.max(axis=0), color=line.get_color(), alpha=0.2, linewidth=0
        )
    seeds = max(len(runs) for runs in curves.values())
    axes.set(title=title, xlabel="environment steps", ylabel=f"return (median and range of {seeds} seeds)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
