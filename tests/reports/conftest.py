from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hurl.experiments.config import load_config
from hurl.experiments.folder import Row, RunFolder

WriteRun = Callable[..., Path]


def row(iteration: int, value: float, *, h: float = float("nan")) -> Row:
    return Row(
        iteration, 1_000 * iteration, value, 1.0, value - 1, value + 1, 50.0, 0.9, 0.45, h, h - 2, h + 3, 1.0, 2.0, 3.0
    )


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    return run_writer(tmp_path / "runs")


def run_writer(root: Path) -> WriteRun:
    """Write a run's folder as training does, with the returns of iterations 1, 2, … (or 0, 1, … for a warm start)."""

    def write(
        name: str,
        returns: Sequence[float],
        *,
        seed: int = 0,
        environment: str = "Hopper-v4",
        settings: Sequence[str] = (),
        start: int = 1,
        h: float = float("nan"),
    ) -> Path:
        config = load_config(
            "sparse-reacher/sac", [f"environment.id={environment}", f"seed={seed}", "iterations=20", *settings]
        )
        folder = RunFolder(root / name)
        with folder.open(config):
            folder.write_metrics([row(start + n, value, h=h) for n, value in enumerate(returns)])
        return folder.path

    return write
