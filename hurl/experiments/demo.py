"""The demonstration: SAC, SAC with potential-based shaping and HuRL on a sparse-reward task, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hurl.experiments.campaign import Campaign, plan_campaign
from hurl.experiments.folder import Row, RunFolder
from hurl.experiments.plots import plot_learning_curves, returns_of

__all__ = ["Result", "plan_demo", "summarize_demo"]

LABELS = {"sac": "SAC", "pbrs": "SAC + PBRS", "hurl": "HuRL"}
LAST_ITERATIONS = 5


@dataclass(frozen=True)
class Result:
    """How one algorithm did over its seeds."""

    label: str
    final: float
    worst: float
    best: float
    mean: float


def plan_demo(folder: Path, seeds: int) -> Campaign:
    """Return the demonstration's runs."""
    return plan_campaign("demo", list(LABELS), range(seeds), folder)


def summarize_demo(campaign: Campaign, picture: Path) -> list[Result]:
    """Draw the picture of the runs, which are done, and return their table."""
    curves = {
        label: [RunFolder(run.folder).read_metrics() for run in campaign.runs if run.variant == variant]
        for variant, label in LABELS.items()
    }
    plot_learning_curves(curves, campaign.runs[0].config.environment.id, picture)
    return [_summarize(label, runs) for label, runs in curves.items()]


def _summarize(label: str, runs: list[list[Row]]) -> Result:
    returns = returns_of(runs)
    final = returns[:, -LAST_ITERATIONS:].mean(axis=1)
    return Result(
        label, float(np.median(final)), float(final.min()), float(final.max()), float(np.median(returns.mean(axis=1)))
    )
