"""Time to fit the paper's Monte-Carlo network to data of the paper's size, beside an ensemble and a loop in PyTorch.

500,000 transitions of 11 numbers, a network (256, 256) with tanh, Adam, batches of 128, 30 epochs: about 117,000
updates. The data is made up, since only its size matters for time. PyTorch takes a few hundred updates, of the same
network on the same data; the ensemble has five such networks, each on half of the episodes, for as many epochs.

    python benchmarks/fitting.py
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hurl.data import Episodes
from hurl.heuristics import EnsembleLowerBound, MonteCarloHeuristic

EPISODES, LENGTH, DIMENSION, BATCH = 500, 1_000, 11, 128


def make_data() -> Episodes:
    """Episodes of noise, with returns that a network can learn."""
    generator = np.random.default_rng(0)
    states = generator.normal(size=(EPISODES * (LENGTH + 1), DIMENSION)).astype(np.float32)
    episodes = Episodes(
        states,
        np.zeros((EPISODES * LENGTH, 1), np.float32),
        np.zeros(EPISODES * LENGTH),
        np.full(EPISODES, LENGTH),
        np.ones(EPISODES, bool),
        gym.spaces.Box(-np.inf, np.inf, (DIMENSION,), np.float32),
        gym.spaces.Box(-1, 1, (1,), np.float32),
        "benchmark/noise-v0",
    )
    episodes.rewards[:] = np.tanh(episodes.observations[:, 0])
    return episodes


def time_torch(inputs: NDArray[np.float32], targets: NDArray[np.float64], updates: int) -> float:
    """Return the updates a second of the same regression, written as one does in PyTorch."""
    layers = [torch.nn.Linear(DIMENSION, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(256, 1))
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    data, labels = torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.float32))
    begun = perf_counter()
    for _ in range(updates):
        batch = torch.randint(len(data), (BATCH,))
        loss = torch.nn.functional.mse_loss(network(data[batch])[:, 0], labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return updates / (perf_counter() - begun)


def time_fit(kind: Any, episodes: Episodes, epochs: int, **settings: Any) -> tuple[float, Any]:
    """Return the seconds that fitting takes, compilation included, and the heuristic."""
    with Progress() as progress:
        task = progress.add_task(kind.__name__, total=epochs)
        begun = perf_counter()
        heuristic = kind.fit(episodes, gamma=0.0, epochs=epochs, report=lambda *_: progress.advance(task), **settings)
        return perf_counter() - begun, heuristic


def main() -> None:
    """Time all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--torch-updates", type=int, default=1_000)
    arguments = parser.parse_args()
    episodes = make_data()
    torch_rate = time_torch(episodes.observations, episodes.rewards, arguments.torch_updates)
    seconds, heuristic = time_fit(MonteCarloHeuristic, episodes, arguments.epochs)
    ensemble_seconds, _ = time_fit(EnsembleLowerBound, episodes, arguments.epochs, patience=None)
    updates = arguments.epochs * (int(0.9 * episodes.transitions) // BATCH)
    table = Table(title=f"{arguments.epochs} epochs of {episodes.transitions:,} transitions")
    for heading in ("", "seconds", "updates/s", "ratio"):
        table.add_column(heading, justify="right")
    table.add_row("MonteCarloHeuristic.fit", f"{seconds:.0f}", f"{updates / seconds:,.0f}", "")
    ratio = updates / seconds / torch_rate
    table.add_row(
        "EnsembleLowerBound.fit, 5 members", f"{ensemble_seconds:.0f}", "", f"{seconds / ensemble_seconds:.2f}"
    )
    table.add_row("PyTorch loop", f"{updates / torch_rate:.0f} (extrapolated)", f"{torch_rate:,.0f}", f"{ratio:.1f}")
    Console().print(table)
    print(f"R² on held-out episodes: {heuristic.metrics['r2_held_out']:.3f}")


if __name__ == "__main__":
    main()
