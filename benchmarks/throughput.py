"""Throughput of the paper's Hopper iteration: guided SBX, plain SBX and Stable-Baselines3, interleaved in one run.

One iteration is 4,000 environment steps and 1,024 updates of SAC (batch 128, critics 256-256, actor 64-64). They take
turns, there and back in each, so that whatever else the machine does meets them alike; the table shows medians, and
ratios within the turns. λ is 1: guidance does all of its work, and the guided agent stays the unguided one bit for
bit, so that both meet the same episodes.

    python benchmarks/throughput.py --repeats 11
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import sbx
import stable_baselines3 as sb3
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.callbacks import BaseCallback
from threadpoolctl import threadpool_limits

import hurl
from hurl.envs import make_env

STEPS, UPDATES, N_ENVS, GAMMA = 4_000, 1_024, 32, 0.999
SETTINGS: dict[str, Any] = {
    "batch_size": 128,
    "gamma": GAMMA,
    "tau": 0.02,
    "learning_rate": 2.5e-4,
    "learning_starts": 0,
    "gradient_steps": UPDATES,
    "policy_kwargs": {"net_arch": {"pi": [64, 64], "qf": [256, 256]}},
    "seed": 0,
}
WEIGHTS = [np.random.default_rng(0).normal(0, size**-0.5, (size, following)).astype(np.float32) for size, following in
           ((11, 256), (256, 256), (256, 1))]  # fmt: skip


def network(observations: np.ndarray) -> np.ndarray:
    """A heuristic of the size that the paper fits: a tanh network with two layers of 256."""
    values = observations
    for weights in WEIGHTS[:-1]:
        values = np.tanh(values @ weights)
    return (values @ WEIGHTS[-1])[:, 0]


class Stopwatch(BaseCallback):
    """Notes the seconds spent collecting and training."""

    def _on_training_start(self) -> None:
        self.started = perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.collected = perf_counter()

    def _on_training_end(self) -> None:
        self.collecting, self.training = self.collected - self.started, perf_counter() - self.collected


def contestants() -> dict[str, Any]:
    """Build the three models."""
    pooled = {"train_freq": (STEPS // N_ENVS, "step"), **SETTINGS}
    guidance = hurl.Guidance(network, hurl.ConstantSchedule(1.0), gamma=GAMMA, steps_per_iteration=STEPS)
    return {
        "guided SBX SAC on EnvPool": hurl.guided(sbx.SAC)(
            "MlpPolicy", make_env("Hopper-v4", N_ENVS, 0, threads=2), guidance=guidance, **pooled
        ),
        "SBX SAC on EnvPool": sbx.SAC("MlpPolicy", make_env("Hopper-v4", N_ENVS, 0, threads=2), **pooled),
        "SB3 SAC on Gymnasium": sb3.SAC("MlpPolicy", gym.make("Hopper-v4"), train_freq=(STEPS, "step"), **SETTINGS),
    }


def iterate(model: Any) -> NDArray[np.float64]:
    """Run one iteration; return the seconds spent collecting and training."""
    watch = Stopwatch()
    model.learn(STEPS, callback=watch, log_interval=None, reset_num_timesteps=False)
    return np.array([watch.collecting, watch.training])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="turns (default: 9)")
    repeats = parser.parse_args().repeats
    threadpool_limits(1, user_api="blas")  # for the heuristic, as `hurl train` does
    models = contestants()
    guided, plain, sb3_name = models
    seconds: dict[str, list[NDArray[np.float64]]] = {name: [] for name in models}
    for turn in track(range(-1, repeats), description="turns", transient=True):
        first, second = (guided, plain) if turn % 2 else (plain, guided)
        spent = {name: np.zeros(2) for name in models}
        for name in (first, second, sb3_name, second, first):
            spent[name] += iterate(models[name]) / (1 if name == sb3_name else 2)
        if turn >= 0:  # the first compiles
            for name in models:
                seconds[name].append(spent[name])
    Console(width=110).print(tabulate({name: np.array(values) for name, values in seconds.items()}))


def tabulate(seconds: dict[str, np.ndarray]) -> Table:
    """Make the table: medians over the turns, and medians of the ratios within each turn."""
    table = Table(title=f"Hopper-v4: {STEPS:,} steps and {UPDATES:,} updates an iteration")
    table.add_column("")
    for heading in ("steps/s", "updates/s", "iteration", "speed against SB3", "speed against SBX"):
        table.add_column(heading, justify="right")
    totals = {name: values.sum(axis=1) for name, values in seconds.items()}
    for name, values in seconds.items():
        collecting, training = np.median(values, axis=0)
        ratios = [np.median(totals[other] / totals[name]) for other in ("SB3 SAC on Gymnasium", "SBX SAC on EnvPool")]
        table.add_row(
            name,
            f"{STEPS / collecting:,.0f}",
            f"{UPDATES / training:,.0f}",
            f"{np.median(totals[name]):.2f} s",
            f"{ratios[0]:.2f}×",
            f"{ratios[1]:.3f}×",
        )
    return table


if __name__ == "__main__":
    main()
