"""What a ladder costs: the paper's Hopper iteration with a constant λ and with two rungs, interleaved in one run.

As long as it is open which rung is the best, each learns from whole batches; once it is decided they share one. Both
are measured: the bandit is told returns that leave it open, and returns that decide it. See `throughput.py` for the
iteration and the turns.

    python benchmarks/ladder.py --repeats 7
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import sbx
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits
from throughput import GAMMA, N_ENVS, SETTINGS, STEPS, iterate, network

import hurl
from hurl.envs import make_env

CONSTANT, OPEN, DECIDED = "constant λ", "ladder, open", "ladder, decided"
SCHEDULES = {CONSTANT: hurl.ConstantSchedule(0.95), OPEN: hurl.Ladder(0.95, 1.0), DECIDED: hurl.Ladder(0.95, 1.0)}
BETTER = {OPEN: 0.0, DECIDED: 1e6}


def build(schedule: Any) -> Any:
    """Build a guided SAC."""
    guidance = hurl.Guidance(network, schedule, gamma=GAMMA, steps_per_iteration=STEPS)
    env = make_env("Hopper-v4", N_ENVS, 0, threads=2)
    options = SETTINGS | {"train_freq": (STEPS // N_ENVS, "step")}
    return hurl.guided(sbx.SAC)("MlpPolicy", env, guidance=guidance, **options)


def tell(model: Any, better: float) -> None:
    """Tell a bandit returns by which its first rung is so much better."""
    bandit = model.guidance.bandit
    for block in range(bandit.ladder.window):
        for rung in range(bandit.count):
            bandit.add(rung, block + better * (rung == 0))
        bandit.close_block()


def measure(models: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return the seconds of an iteration of each, collecting and training."""
    spent = {name: np.zeros(2) for name in models}
    for name in (*models, *reversed(models)):
        if name in BETTER:
            tell(models[name], BETTER[name])
        spent[name] += iterate(models[name]) / 2
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="turns (default: 7)")
    repeats = parser.parse_args().repeats
    threadpool_limits(1, user_api="blas")
    models = {name: build(schedule) for name, schedule in SCHEDULES.items()}
    measure(models)  # which compiles
    turns = [measure(models) for _ in track(range(repeats), description="turns", transient=True)]
    totals = {name: np.array([turn[name].sum() for turn in turns]) for name in models}
    table = Table("", "steps/s", "iteration", "speed against constant λ", title="Hopper-v4, 4,000 steps, 1,024 updates")
    for name, seconds in totals.items():
        ratio = np.median(totals[CONSTANT] / seconds)
        table.add_row(name, f"{STEPS / np.median(seconds):,.0f}", f"{np.median(seconds):.2f} s", f"{ratio:.3f}×")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
