"""`hurl collect` as a stranger uses it: with bad input, killed, and once more."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hurl.cli
from hurl.data import load_episodes
from hurl.experiments.config import validate
from hurl.experiments.run import train
from tests.experiments.conftest import SMALL, heed_interruptions

HURL = Path(sys.executable).with_name("hurl")
FUNCTIONS = """
import numpy as np
def push(s): return np.ones((len(s), 1))
def flat(s): return np.ones(len(s))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run of four checkpoints, and functions."""
    folder = tmp_path_factory.mktemp("collect")
    train(validate(SMALL | {"iterations": 4, "checkpoint_every": 1}, "test"), folder / "run")
    (folder / "pushing.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """Run a command line in this process; return its exit code, output and errors."""

    def run(words):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["hurl", *words.split()])
        with pytest.raises(SystemExit) as exit_:
            hurl.cli.main()
        output = capsys.readouterr()
        return exit_.value.code or 0, output.out, output.err

    return run


def test_a_run_is_collected_and_then_found_collected(folder, call):
    code, output, _ = call("collect run --dataset pendulum/run-v0 --transitions 90 --every 2 --root data")
    assert code == 0
    assert "policy 2/2  run/000004" in output
    assert "180 collected" in output
    assert "steps/s" in output
    assert output.count("run/00000") == 4, "each of the two policies as it was rolled out, and in the table"
    episodes = load_episodes("pendulum/run-v0", folder / "data")
    assert episodes.lengths.tolist() == [30] * 6, "the run's own time limit"
    code, output, _ = call("collect run --dataset pendulum/run-v0 --transitions 90 --every 2 --root data")
    assert code == 0
    assert "Nothing was left to collect" in output


def test_sources_of_several_kinds_share_a_dataset(folder, call):
    code, output, errors = call(
        "collect run/checkpoints/000001 random pushing:push --dataset pendulum/mix-v0 --transitions 40 --root data"
    )
    assert code == 0, errors
    assert load_episodes("pendulum/mix-v0", folder / "data").transitions == 120
    assert "policy 3/3  pushing:push" in output
    for heading in ("worst", "median", "best", "return"):
        assert heading in output


def test_an_environment_that_is_named_can_be_set(folder, call):
    code, _, errors = call(
        "collect pushing:push --env Pendulum-v1 --set options.max_episode_steps=25 --set backend=gymnasium "
        "--dataset pendulum/short-v0 --transitions 60 --root data"
    )
    assert code == 0, errors
    assert load_episodes("pendulum/short-v0", folder / "data").lengths.tolist() == [25, 25, 10]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("collect", "there is no policy to roll out"),
        ("collect run", "the dataset has no id"),
        ("collect nothing --env Pendulum-v1 --dataset d-v0", "'nothing' is no policy"),
        ("collect random --dataset d-v0", "name one with --env"),
        ("collect random --env Pendulim-v1 --dataset d-v0", "There is no environment 'Pendulim-v1'"),
        ("collect run --dataset d", "'d' is not of the form namespace/name-v0"),
        ("collect run --dataset d-v0 --transitions 0", "must be at least 1, got 0"),
        ("collect pushing:flat --env Pendulum-v1 --dataset d-v0", "returned actions of shape (10,) for 10"),
        ("collect pushing:posh --env Pendulum-v1 --dataset d-v0", "no function 'posh'; did you mean 'push'"),
        ("collect run --env CartPole-v1 --dataset d-v0", "run was trained in Pendulum-v1"),
        ("collect model.zip --env Pendulum-v1 --dataset d-v0", "there is no file model.zip"),
        (
            "collect run --set backend=gymnasium --dataset d-v0",
            "an environment that is not named: name it",
        ),
        (
            "collect random --env Pendulum-v1 --set backnd=x --dataset d-v0",
            "did you mean 'backend'",
        ),
        ("collect --recipe hoper", "there is no recipe 'hoper'"),
        ("collect run --recipe hopper", "leave either --recipe or 'run' out"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(call, words, message):
    code, _, errors = call(f"{words} --root refused")
    assert code == 2
    (line,) = [line for line in errors.splitlines() if line.startswith("error:")]
    assert message in line


def test_help_shows_examples():
    result = subprocess.run([str(HURL), "collect", "--help"], capture_output=True, text=True, timeout=60)
    assert "hurl collect --recipe hopper" in " ".join(result.stdout.split())


def parts(root):
    return len(list(root.glob("pendulum/.killed-v0.part/*.npz")))


def test_kills_and_an_interruption_change_nothing(folder, call):
    words = "collect run random --dataset pendulum/killed-v0 --transitions 6000"
    moments, environment = random.Random(0), os.environ | {"OMP_NUM_THREADS": "1"}
    for number in (1, 3):
        process = subprocess.Popen(
            [str(HURL), *words.split(), "--root", "killed"],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=heed_interruptions,
        )  # fmt: skip
        while parts(folder / "killed") < number:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL if number == 1 else signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert not (folder / "killed/pendulum/killed-v0").exists()
    assert process.returncode == 130
    assert "the same command carries on" in errors
    code, output, _ = call(f"{words} --root killed")
    assert code == 0
    assert "(from an earlier collection)" in output
    assert call(f"{words} --root alone")[0] == 0
    digests = {load_episodes("pendulum/killed-v0", folder / root).digest for root in ("killed", "alone")}
    assert len(digests) == 1
