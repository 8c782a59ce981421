"""Small commands that write, and what of their results must repeat."""

from __future__ import annotations

import atexit
import csv
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PARAMETERS = {"batch_size": 8, "buffer_size": 60, "learning_starts": 0, "policy_kwargs": {"net_arch": [4]}}
DQN: dict[str, Any] = {
    "environment": {"id": "CartPole-v1", "n_envs": 2, "backend": "gymnasium"},
    "algorithm": {"name": "sb3.DQN", "parameters": PARAMETERS},
    "guidance": {"heuristic": "hurl.heuristics.engineered:zero", "schedule": {"kind": "tanh", "lambda0": 0.5}},
    "gamma": 0.9,
    "iterations": 4,
    "steps_per_iteration": 16,
    "evaluation_episodes": 1,
    "checkpoint_every": 1,
}
SAC: dict[str, Any] = DQN | {
    "environment": {"id": "Pendulum-v1", "n_envs": 2, "backend": "gymnasium", "options": {"max_episode_steps": 8}},
    "algorithm": {"name": "sb3.SAC", "parameters": PARAMETERS},
}
POOL = SAC | {"environment": {"id": "Pendulum-v1", "n_envs": 2, "options": {"max_episode_steps": 8}}}
LADDER = DQN | {"guidance": {"heuristic": "hurl.heuristics.engineered:zero"}}
PPO = DQN | {
    "algorithm": {
        "name": "sb3.PPO",
        "parameters": {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "policy_kwargs": {"net_arch": [4]}},
    },
}
# All that a case can damage has this name in its path, so that a sentence can be seen to name it.
NAME = "swing"
DATASET = f"{NAME}/try-v0"
COLLECT = ("collect", NAME, "--dataset", DATASET, "--root", "data", "--transitions", "24", "--n-envs", "2")


@dataclass(frozen=True)
class Work:
    """A command, the files that it needs, and what of its results must repeat.

    :param prepare: makes what the command reads, in a folder
    :param results: what must be the same however often the command was interrupted
    """

    words: tuple[str, ...]
    prepare: Callable[[Path], None]
    results: Callable[[Path], Any]


def metrics(folder: Path) -> list[dict[str, str]]:
    """Return the metrics of the run in a folder, without the columns of time."""
    with (folder / NAME / "metrics.csv").open(newline="") as lines:
        return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in csv.DictReader(lines)]


def transitions(folder: Path) -> list[str]:
    """Return the hashes of the arrays of the dataset."""
    from hurl.data import load_episodes

    episodes = load_episodes(DATASET, folder / "data")
    arrays = (episodes.observations, episodes.actions, episodes.rewards, episodes.lengths)
    return [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]


def write_yaml(values: Any, folder: Path) -> None:
    """Write a run's file."""
    (folder / "run.yaml").write_text(yaml.safe_dump(values))


def train(values: dict[str, Any]) -> Work:
    """Return the training of a run."""
    return Work(("train", "run.yaml", "--out", NAME), lambda folder: write_yaml(values, folder), metrics)


@cache
def shelf() -> Path:
    """Return a folder for what is made once for all cases; it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="hurl-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
