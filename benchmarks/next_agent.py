"""The next agent: an old PPO's value function, out of its zip file, guides a new PPO on a longer version of the task.

A point finds its way to a post, from 4 steps away in the task that the old agent has learnt and from 40 in the new one;
each step costs 1, and nothing else is paid. A line each of a CSV file: variant, seed, steps, return; and a picture.

    python benchmarks/next_agent.py --out runs/next-agent --seeds 0 1 2 3 4
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import hurl
from hurl.experiments.agents import value_function_of_zip

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from from_agent import GAMMA, NEW, OLD, make_ppo

SCHEDULES: dict[str, Any] = {"ladder": None, "constant": hurl.ConstantSchedule(0.9)}


class Returns(BaseCallback):
    """Keeps the mean return of the newest episodes after each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.curve: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in list(self.model.ep_info_buffer)[-20:]]
        if returns:
            self.curve.append((self.num_timesteps, float(np.mean(returns))))


def train_old(file: Path, steps: int) -> None:
    """Train the old agent, and keep it as people do."""
    make_ppo(OLD, seed=100).learn(steps).save(file)


def run(variant: str, seed: int, steps: int, old: Path) -> list[tuple[int, float]]:
    """Return the learning curve of a new agent."""
    guidance, returns = None, Returns()
    if variant in SCHEDULES:
        h = value_function_of_zip(old, "sb3.PPO", NEW)
        guidance = hurl.Guidance(h, SCHEDULES[variant], gamma=GAMMA, steps_per_iteration=2048)
    model = make_ppo(NEW, seed, guidance)
    model.learn(steps, callback=returns)
    return returns.curve


def draw(rows: Iterable[tuple[str, int, int, float]], file: Path) -> None:
    """Draw each variant's mean over seeds, and its seeds thinly."""
    import matplotlib.pyplot as plt

    rows = list(rows)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for number, variant in enumerate(dict.fromkeys(row[0] for row in rows)):
        curves: dict[int, list[tuple[int, float]]] = {}
        for _, seed, steps, value in (row for row in rows if row[0] == variant):
            curves.setdefault(seed, []).append((steps, value))
        grid = np.linspace(max(curve[0][0] for curve in curves.values()), rows[-1][2], 100)
        lines = [np.interp(grid, *zip(*curve, strict=True)) for curve in curves.values()]
        for line in lines:
            axes.plot(grid, line, color=f"C{number}", alpha=0.25, linewidth=0.8)
        axes.plot(grid, np.mean(lines, axis=0), color=f"C{number}", label=variant)
    axes.set(xlabel="environment steps", ylabel="return", title="A task ten times as long: PPO with the old agent's V")
    axes.legend(frameon=False)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Train the old agent once, then all new ones, and write figures and picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--variants", nargs="+", default=["alone", *SCHEDULES])
    parser.add_argument("--steps", type=int, default=80_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    old = arguments.out / "old.zip"
    if not old.exists():
        train_old(old, 60_000)
    rows = []
    for variant in arguments.variants:
        for seed in arguments.seeds:
            curve = run(variant, seed, arguments.steps, old)
            rows += [(variant, seed, steps, round(value, 2)) for steps, value in curve]
            mean = np.mean([value for _, value in curve])
            print(f"{variant:>10} seed {seed}  mean {mean:8.1f}  last {curve[-1][1]:8.1f}")
    with (arguments.out / "next-agent.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("variant", "seed", "steps", "return"), *rows])
    draw(rows, arguments.out / "next-agent.png")


if __name__ == "__main__":
    main()
