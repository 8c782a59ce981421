"""What guidance costs RLlib's PPO: guided and unguided take turns in one process, the same work in each.

    python benchmarks/rllib.py mlp --repeats 9     # Hopper on EnvPool, a heuristic of 256-256
    python benchmarks/rllib.py cnn --repeats 3     # Procgen, the paper's model and a heuristic of its size

λ is 1: guidance does all of its work, and the guided agent stays the unguided one. The table shows medians of the
environment steps trained on in a second, and ratios within the turns.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hurl
from hurl.experiments.ray_start import ray_here
from hurl.impala import ImpalaCNN
from hurl.rllib import guided, on_envpool, on_procgen

GAMMA = 0.99


def mlp_config() -> PPOConfig:
    """PPO on Hopper with RLlib's own networks."""
    config = on_envpool(PPOConfig(), "Hopper-v4").env_runners(num_env_runners=0, num_envs_per_env_runner=16)
    return config.training(gamma=GAMMA, train_batch_size_per_learner=4_000, minibatch_size=128, num_epochs=10)


def mlp_heuristic(observations: np.ndarray) -> np.ndarray:
    """A tanh network with two layers of 256, as the paper fits it."""
    values = observations
    for weights in WEIGHTS[:-1]:
        values = np.tanh(values @ weights)
    return (values @ WEIGHTS[-1])[:, 0]


WEIGHTS = [
    np.random.default_rng(0).normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
    for rows, columns in ((11, 256), (256, 256), (256, 1))
]


def cnn_config() -> PPOConfig:
    """The paper's PPO on Procgen, at a quarter of its environments."""
    config = on_procgen(PPOConfig(), "coinrun").env_runners(
        num_env_runners=0, num_envs_per_env_runner=16, rollout_fragment_length=128
    )
    return config.training(gamma=GAMMA, train_batch_size_per_learner=2_048, minibatch_size=1_024, num_epochs=3)


class CNNHeuristic:
    """An IMPALA-CNN of the model's size with random weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = ImpalaCNN((3, 64, 64), {"value": 1}).to(memory_format=torch.channels_last)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return h of a batch of images, 256 at a time."""
        with torch.no_grad():
            parts = [
                self.network.heads["value"](self.network.features(torch.from_numpy(part)))
                for part in np.array_split(observations, -(-len(observations) // 256))
            ]
        return torch.cat(parts)[:, 0].numpy()


KINDS: dict[str, Any] = {"mlp": (mlp_config, lambda: mlp_heuristic), "cnn": (cnn_config, CNNHeuristic)}


def steps_in_a_second(algorithm: Any) -> float:
    """Train for an iteration; return the environment steps sampled and trained on in a second."""
    started = perf_counter()
    result = algorithm.train()
    return float(result["env_runners"]["num_env_steps_sampled"]) / (perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What guidance costs RLlib's PPO.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    with ray_here(cores=2):
        measure(arguments.kind, arguments.repeats)


def measure(kind: str, repeats: int) -> None:
    """Let the two take turns, and print the table."""
    make_config, make_heuristic = KINDS[kind]
    guidance = hurl.Guidance(make_heuristic(), hurl.ConstantSchedule(1.0), gamma=GAMMA, steps_per_iteration=4_000)
    algorithms = {
        "PPO": make_config().debugging(seed=0, log_level="ERROR").build_algo(),
        "guided PPO": guided(make_config().debugging(seed=0, log_level="ERROR"), guidance).build_algo(),
    }
    speeds: dict[str, list[float]] = {name: [] for name in algorithms}
    for turn in track(range(repeats + 1), "turns"):
        for name in list(algorithms)[:: 1 if turn % 2 else -1]:
            speed = steps_in_a_second(algorithms[name])
            if turn:  # the first warms up
                speeds[name].append(speed)
    ratios = [ours / theirs for ours, theirs in zip(speeds["guided PPO"], speeds["PPO"], strict=True)]
    table = Table(title=f"{kind}, {repeats} turns")
    for heading in ("", "steps/s", "speed against PPO"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("PPO", f"{statistics.median(speeds['PPO']):,.0f}", "1.000×")
    table.add_row("guided PPO", f"{statistics.median(speeds['guided PPO']):,.0f}", f"{statistics.median(ratios):.3f}×")
    Console().print(table)


if __name__ == "__main__":
    main()
