"""The demonstration: SAC, SAC with potential-based shaping and HuRL on a sparse-reward task, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hurl.experiments.config import load_config
from hurl.experiments.folder import Row, RunFolder
from hurl.experiments.parallel import RunSpec, run_side_by_side
from hurl.experiments.plots import plot_learning_curves, returns_of

__all__ = ["LABELS", "Result", "demo_specs", "run_demo"]

LABELS = {"demo/sac": "SAC", "demo/pbrs": "SAC + PBRS", "demo/hurl": "HuRL"}
LAST_ITERATIONS = 5


@dataclass(frozen=True)
class Result:
    """How one algorithm did over its seeds."""

    label: str
    final: float
    worst: float
    best: float
    mean: float


def demo_specs(folder: Path, seeds: int) -> list[RunSpec]:
    """Return the demonstration's runs, a seed of every algorithm before the next seed."""
    return [
        RunSpec(source, seed, folder / source.removeprefix("demo/") / f"seed-{seed}")
        for seed in range(seeds)
        for source in LABELS
    ]


def run_demo(folder: Path, seeds: int, jobs: int, watch: Callable[[], None]) -> tuple[list[Result], Path]:
    """Run the demonstration; return its table and its picture. Runs that were finished before are not repeated."""
    specs = demo_specs(folder, seeds)
    run_side_by_side(specs, jobs, watch)
    curves = {
        label: [RunFolder(spec.folder).read_metrics() for spec in specs if spec.source == source]
        for source, label in LABELS.items()
    }
    picture = folder / "demo.png"
    plot_learning_curves(curves, load_config("demo/hurl").environment.id, picture)
    return [_summarize(label, runs) for label, runs in curves.items()], picture


def _summarize(label: str, runs: list[list[Row]]) -> Result:
    returns = returns_of(runs)
    final = returns[:, -LAST_ITERATIONS:].mean(axis=1)
    return Result(
        label, float(np.median(final)), float(final.min()), float(final.max()), float(np.median(returns.mean(axis=1)))
    )
