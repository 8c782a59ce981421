"""Campaigns from the command line to their last file."""

import os
import random
import signal
import subprocess
import sys
import time

from .conftest import repeating

TINY = {
    "environment.n_envs": 4,
    "algorithm.parameters.batch_size": 16,
    "algorithm.parameters.policy_kwargs.net_arch": "{pi: [8], qf: [8]}",
    "steps_per_iteration": 200,
    "updates_per_iteration": 8,
    "evaluation_episodes": 1,
}
SETTINGS = {
    **TINY,
    "checkpoint_every": 2,
    "warm_start.epochs": 1,
    "guidance.heuristic.parameters": "{validation: 0.0, epochs: 1, hidden: [8]}",
    "data.iterations": 4,
    "data.transitions": 300,
    "data.settings": "{" + ", ".join(f"{key}: {value}" for key, value in TINY.items()) + "}",
}
SEEDS = (0, 1, 2)


def _command(out):
    options = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    arguments = ["campaign", "hopper", "--variants", "hurl-mc", "--seeds", "0-2", "--iterations", "6", "--jobs", "2"]
    return [sys.executable, "-m", "hurl", *arguments, *options, "--out", str(out)]


def _run_a_while(command, seconds):
    """Run a command, and kill it with all that it started when the time is over; return whether it came to an end."""
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    assert process.returncode == 0
    return True


def test_a_campaign_killed_again_and_again_ends_with_the_metrics_of_one_left_alone(tmp_path):
    subprocess.run(_command(tmp_path / "alone"), check=True, capture_output=True)
    chance = random.Random(time.time_ns())
    waits = [chance.uniform(4, 20) for _ in range(4)]
    for seconds in waits:
        if _run_a_while(_command(tmp_path / "killed"), seconds):
            break
    subprocess.run(_command(tmp_path / "killed"), check=True, capture_output=True)
    for seed in SEEDS:
        runs = [tmp_path / campaign / "hopper" / "hurl-mc" / f"seed-{seed}" for campaign in ("alone", "killed")]
        alone, killed = (repeating(run / "metrics.csv") for run in runs)
        assert len(alone) == 7, waits  # the cloned policy, and six iterations
        assert killed == alone, waits
    metrics = [repeating(tmp_path / "alone" / "hopper" / "hurl-mc" / f"seed-{seed}" / "metrics.csv") for seed in SEEDS]
    assert metrics[0] != metrics[1]
    assert metrics[1] != metrics[2]
