import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hurl.experiments.config import load_config
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row

WriteRun = Callable[..., Path]
GUIDED = ("guidance.heuristic=judged:first", "guidance.schedule.lambda0=0.9")


def row(iteration: int, value: float, *, h: float = float("nan"), training: float = float("nan")) -> Row:
    return Row(
        iteration=iteration,
        steps=1_000 * iteration,
        return_mean=value,
        return_std=1.0,
        return_min=value - 1,
        return_max=value + 1,
        episode_length=50.0,
        training_return=training,
        lambda_=0.9,
        discount=0.45,
        h_mean=h,
        h_min=h - 2,
        h_max=h + 3,
        seconds_collecting=1.0,
        seconds_training=2.0,
        seconds_evaluating=3.0,
    )


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    return run_writer(tmp_path / "runs")


def run_writer(root: Path) -> WriteRun:
    """Write a run's folder as training does, with the returns of iterations 1, 2, … (or 0, 1, … for a warm start).

    A run with an h is a guided one.
    """

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
        guidance = () if math.isnan(h) else GUIDED
        own = [f"environment.id={environment}", f"seed={seed}", "iterations=20", *guidance, *settings]
        config = load_config("sparse-reacher/sac", own)
        folder = RunFolder(root / name)
        with folder.open(config):
            folder.write_metrics([row(start + n, value, h=h) for n, value in enumerate(returns)])
        return folder.path

    return write
