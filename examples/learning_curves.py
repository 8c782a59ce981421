"""What the examples share: how long to learn, the returns of training episodes, and a picture of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback


def arguments(description: str | None, steps: int) -> argparse.Namespace:
    """Read the command line: --steps and --out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps, help="environment steps of each agent")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the picture")
    return parser.parse_args()


class Episodes(BaseCallback):
    """Keeps steps and return of every training episode that ends."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self.rows += [(self.num_timesteps, float(episode["r"])) for episode in ended]
        return True


def learn(model: BaseAlgorithm, steps: int) -> NDArray[np.float64]:
    """Train a model; return environment steps and return of each training episode, shape (n, 2)."""
    episodes = Episodes()
    model.learn(steps, callback=episodes)
    return np.array(episodes.rows, np.float64).reshape(-1, 2)


def draw(curves: dict[str, NDArray[np.float64]], picture: Path, ylabel: str = "return of training episodes") -> None:
    """Draw returns against steps, each point the mean of a twentieth of the episodes."""
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for name, curve in curves.items():
        draw_curve(axes, name, curve)
    axes.set(xlabel="environment steps", ylabel=ylabel)
    if axes.has_data():
        axes.legend()
    save(figure, picture)


def draw_curve(axes: Any, name: str, curve: NDArray[np.float64]) -> None:
    """Draw one smoothed curve, and print where it ends."""
    if not len(curve):
        print(f"{name}: no episode ended")
        return
    window = max(1, len(curve) // 20)
    smooth = np.convolve(curve[:, 1], np.ones(window) / window, "valid")
    axes.plot(curve[window - 1 :, 0], smooth, label=name)
    print(f"{name}: return {smooth[-1]:.1f} at the end, {curve[:, 1].mean():.1f} over all episodes")


def save(figure: Any, picture: Path) -> None:
    """Write a picture."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=100)
    plt.close(figure)
    print(f"picture: {picture}")
