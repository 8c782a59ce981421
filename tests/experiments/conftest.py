"""Small runs, and what of their metrics must repeat."""

import csv
import signal
import time

import psutil
import pytest
import yaml

SAC = {
    "batch_size": 16,
    "buffer_size": 400,
    "learning_starts": 0,
    "policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}},
}
SMALL = {
    "environment": {"id": "Pendulum-v1", "n_envs": 2, "options": {"max_episode_steps": 30}},
    "algorithm": {"name": "sb3.SAC", "parameters": SAC},
    "guidance": {
        "heuristic": "tests.experiments.pendulum:upright",
        "schedule": {"kind": "linear", "lambda0": 0.5},
    },
    "gamma": 0.95,
    "iterations": 5,
    "steps_per_iteration": 100,
    "updates_per_iteration": 10,
    "evaluation_episodes": 2,
    "checkpoint_every": 2,
}


@pytest.fixture
def small():
    """The values of a small run; change them at will."""
    return yaml.safe_load(yaml.safe_dump(SMALL))


def repeating(file):
    """Return the metrics without the columns of time."""
    with file.open(newline="") as lines:
        return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in csv.DictReader(lines)]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_until_ended(process):
    """Wait for a process that is nobody's child any more; not every machine clears those away."""
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def heed_interruptions():
    """Let a new process heed SIGINT, which it would not where the tests run in a shell's background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
