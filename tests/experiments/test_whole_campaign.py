"""Campaigns from the command line to their last file."""

import os
import random
import signal
import subprocess
import sys
import time

from hurl.experiments.campaign import plan_campaign
from hurl.experiments.tasks import State, first_states

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
SEEDS = (0, 1)


def _command(out):
    options = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    arguments = ["campaign", "hopper", "--variants", "hurl-mc", "--seeds", "0-1", "--iterations", "12", "--jobs", "2"]
    return [sys.executable, "-m", "hurl", *arguments, *options, "--out", str(out)]


def _kill_when(command, reached, seconds, chance):
    """Run a command until something is there, and a random moment longer; then kill it, alone or with its children."""
    process = subprocess.Popen(command, start_new_session=True)
    while not reached() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(chance.uniform(0, seconds))
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL) if chance.random() < 0.5 else os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_campaign_killed_again_and_again_ends_with_the_metrics_of_one_left_alone(tmp_path):
    subprocess.run(_command(tmp_path / "alone"), check=True)
    moment = time.time_ns()
    print("chance is seeded with", moment)
    chance = random.Random(moment)
    killed = tmp_path / "killed"
    # in the preparation, in the first run, and in the last
    for pattern in ("shared/behaviour/*/metrics.csv", "hopper/*/*/checkpoints/000002", "hopper/*/seed-1/metrics.csv"):
        _kill_when(_command(killed), lambda pattern=pattern: any(killed.glob(pattern)), 0.5, chance)
    subprocess.run(_command(killed), check=True)
    for seed in SEEDS:
        runs = [tmp_path / campaign / "hopper" / "hurl-mc" / f"seed-{seed}" for campaign in ("alone", "killed")]
        alone, repeated = (repeating(run / "metrics.csv") for run in runs)
        assert len(alone) == 13  # the cloned policy, and twelve iterations
        assert repeated == alone
    metrics = [repeating(tmp_path / "alone" / "hopper" / "hurl-mc" / f"seed-{seed}" / "metrics.csv") for seed in SEEDS]
    assert metrics[0] != metrics[1]
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    again, other = (
        plan_campaign("hopper", ["hurl-mc"], SEEDS, killed, settings, iterations=iterations) for iterations in (12, 13)
    )
    assert set(first_states(again.tasks).values()) == {State.done}
    assert {task.name for task in other.tasks if not task.finished} == {f"hopper/hurl-mc/seed-{seed}" for seed in SEEDS}


def test_each_use_of_logged_data_is_trained_at_a_tiny_size(tmp_path):
    settings = TINY | {
        "warm_start.epochs": 1,
        "guidance.heuristic.parameters": "{epochs: 1, hidden: [8], members: 2}",
        "data.transitions": 1500,
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    variants = "sac-prior,rlpd,jsrl,hurl-ladder,hurl-prior,hurl-ladder-prior"
    arguments = ["campaign", "point-maze", "--variants", variants, "--seeds", "0", "--iterations", "2", "--jobs", "2"]
    subprocess.run([sys.executable, "-m", "hurl", *arguments, *options, "--out", str(tmp_path)], check=True)
    last = {}
    for variant in variants.split(","):
        metrics = repeating(tmp_path / "point-maze" / variant / "seed-0" / "metrics.csv")
        assert (metrics[-1]["iteration"], metrics[-1]["steps"]) == ("2", "400")
        last[variant] = metrics[-1]
    assert {variant for variant, row in last.items() if row["h_mean"] != "nan"} == {
        "hurl-ladder", "hurl-prior", "hurl-ladder-prior",
    }  # fmt: skip
    assert {variant for variant, row in last.items() if row["guided_share"] != "nan"} == {
        "hurl-ladder", "hurl-ladder-prior",
    }  # fmt: skip
