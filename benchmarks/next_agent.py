"""The next agent: an old PPO's value function, out of its zip file, guides a new PPO on a longer version of the task.

A point finds its way to a post, from 4 steps away in the task that the old agent has learnt and from 40 in the new one;
each step costs 1, and nothing else is paid. A line each of a CSV file: variant, seed, steps, return; and a picture.

    python benchmarks/next_agent.py --out runs/next-agent --seeds 0 1 2 3 4
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import hurl
from hurl.experiments.agents import value_function_of_zip

GAMMA, STEP, REACH = 0.99, 0.5, 0.5
SETTINGS = {
    "n_steps": 128,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "gamma": GAMMA,
    "policy_kwargs": {"activation_fn": torch.nn.ReLU},  # beyond what it has seen, the old agent's V goes on straight
}
SCHEDULES: dict[str, Any] = {"ladder": None, "constant": hurl.ConstantSchedule(0.9)}
OLD, NEW = "Post-near-v0", "Post-far-v0"


class Post(gym.Env[np.ndarray, np.ndarray]):
    """A point in the plane, which starts at a distance from a post, in any direction.

    :param distance: in steps
    """

    def __init__(self, distance: int) -> None:
        self.distance = distance * STEP
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.position = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin somewhere on the circle."""
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self.position = np.array([np.cos(angle), np.sin(angle)], np.float32) * np.float32(self.distance)
        return self.position.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go a step, no longer than STEP."""
        length = max(1.0, float(np.linalg.norm(action)))
        self.position = self.position + np.float32(STEP / length) * np.asarray(action, np.float32)
        return self.position.copy(), -1.0, bool(np.linalg.norm(self.position) < REACH), False, {}


gym.register(OLD, entry_point=Post, max_episode_steps=100, kwargs={"distance": 4})
gym.register(NEW, entry_point=Post, max_episode_steps=200, kwargs={"distance": 40})


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
    PPO("MlpPolicy", make_vec_env(OLD, 8, seed=100), seed=100, **SETTINGS).learn(steps).save(file)


def run(variant: str, seed: int, steps: int, old: Path) -> list[tuple[int, float]]:
    """Return the learning curve of a new agent."""
    env, returns = make_vec_env(NEW, 8, seed=seed), Returns()
    if variant == "alone":
        model = PPO("MlpPolicy", env, seed=seed, **SETTINGS)
    else:
        h = value_function_of_zip(old, "sb3.PPO", NEW)
        guidance = hurl.Guidance(h, SCHEDULES[variant], gamma=GAMMA, steps_per_iteration=2048)
        model = hurl.guided(PPO)("MlpPolicy", env, seed=seed, guidance=guidance, **SETTINGS)
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
