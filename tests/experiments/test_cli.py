"""The command line as a stranger uses it: with bad input, and in processes of its own with kills and a full disk."""

import io
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from hurl.cli import main
from hurl.cli.app import console
from hurl.cli.progress import Bars
from hurl.experiments.evaluate import load_policy
from tests.experiments.conftest import SAC, heed_interruptions, repeating

HURL = Path(sys.executable).with_name("hurl")
HEURISTICS = """
import numpy as np
def upright(s): return 10 * s[:, 0]
def column(s): return s[:, :1]
def objects(s): return np.array([None] * len(s))
def nan(s): return np.full(len(s), np.nan)
def inf(s): return np.full(len(s), np.inf)
def leave(s): raise SystemExit(0)
def halve(s): s /= 2; return s[:, 0]
"""


@pytest.fixture
def folder(tmp_path, small):
    """A folder with a run's file and heuristics, as a user would have it."""
    (tmp_path / "swing.py").write_text(HEURISTICS)
    small["guidance"]["heuristic"] = "swing:upright"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(small))
    return tmp_path


def hurl(folder, *words, limit=""):
    command = f"{limit} exec {HURL} {' '.join(words)}"
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300)


def run_main(words, folder, monkeypatch):
    """Run a command in this process; return the exit code."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["hurl", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_train_then_evaluate(folder, monkeypatch, capsys):
    result = hurl(folder, "train run.yaml --out here --set iterations=2")
    assert result.returncode == 0, result.stderr
    assert "iteration 2/2" in result.stdout
    assert len(repeating(folder / "here/metrics.csv")) == 2

    def printed(words):
        assert run_main(words.split(), folder, monkeypatch) == 0
        return capsys.readouterr().out

    assert "It was trained to its end before" in printed("train run.yaml --out here --set iterations=2")
    for path in ("here", "here/checkpoints/000002"):
        table = printed(f"evaluate {path} --episodes 3")
        assert "return" in table
        assert "length" in table
    policy, observations = load_policy(folder / "here"), np.random.default_rng(0).normal(size=(5, 3))
    actions, _ = policy.predict(observations, deterministic=True)
    policy.model.save(folder / "agent.zip")
    again, _ = type(policy.model).load(folder / "agent.zip").predict(observations, deterministic=True)
    np.testing.assert_array_equal(again, actions)
    printed("evaluate here --episodes 1 --video films/swing.gif")
    assert (folder / "films/swing.gif").read_bytes().startswith(b"GIF")


def test_default_folder_is_named_after_source_and_seed(folder):
    assert hurl(folder, "train run.yaml --seed 3 --set iterations=1").returncode == 0
    assert (folder / "runs/run/seed-3/metrics.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train run.yml", "there is no file 'run.yml'"),
        ("train run.yaml --set iteratons=3", "did you mean 'iterations'"),
        ("train run.yaml --set environment.id=Pendulim-v1", "There is no environment 'Pendulim-v1'"),
        (
            "train run.yaml --set guidance.schedule.lambda0=1.2",
            "guidance.schedule: lambda0 must lie in [0, 1], got 1.2",
        ),
        ("train run.yaml --set guidance.heuristic=swing:column", "returned shape (2, 1) for 2"),
        ("train run.yaml --set guidance.heuristic=swing:objects", "returned values of type object for 2 observations"),
        ("train run.yaml --set guidance.heuristic=swing:nan", "returned NaN for 2 of 2 observations"),
        ("train run.yaml --set guidance.heuristic=swing:inf", "returned infinite values for 2 of 2 observations"),
        ("evaluate nowhere", "nowhere is not a run folder"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, words, message, monkeypatch, capsys):
    assert run_main(words.split(), folder, monkeypatch) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len([line for line in errors.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in errors
    assert not list(folder.glob("runs/run/*")), "a run that is refused leaves no folder"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("chain --out file", 2, "there is a file where the folder file should be: name another folder"),
        ("chain --out file/below", 2, "there is a file where the folder file/below should be: name another folder"),
        ("chain --out /proc/below", 1, "No such file or directory: '/proc/below'; nothing written before is lost"),
        ("report [/x]", 2, "there is no folder '[/x]'"),
        ("report \x1b[2J", 2, r"there is no folder '\x1b[2J'"),
        ("tune-trial [/x] 0", 2, "[/x] holds no study"),
        ("presets show [/x]", 2, "there is no preset '[/x]'"),
    ],
)
def test_2_is_for_what_was_written_and_1_for_what_went_wrong(tmp_path, monkeypatch, capsys, words, code, message):
    (tmp_path / "file").touch()
    assert run_main(words.split(), tmp_path, monkeypatch) == code
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "what fails leaves nothing behind"


@pytest.mark.parametrize(
    ("setting", "message", "code"),
    [
        ("guidance.heuristic=swing:leave", "error: the heuristic swing:leave failed for 2 observations", 2),
        ("guidance.heuristic=leaving:upright", "'leaving:upright' can't be imported: ", 2),
        ("environment.id=leaving:CartPole-v1", "'leaving:CartPole-v1' can't be imported: ", 2),
        ("environment.id=tests.experiments.odd_environments:Quitting-v0", "ended it with SystemExit(0)", 1),
        ("guidance.heuristic=swing:halve", "swing:halve writes into the observations that it is given", 2),
    ],
)
def test_code_that_ends_the_process_or_spoils_the_data_is_a_failure(
    folder, monkeypatch, capsys, setting, message, code
):
    (folder / "leaving.py").write_text("raise SystemExit(0)")
    assert run_main(["train", "run.yaml", "--set", setting], folder, monkeypatch) == code
    assert message in capsys.readouterr().err


def test_an_interruption_ends_any_command_with_130(tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("hurl.reports.collect_runs", interrupt)
    assert run_main(["report", "."], tmp_path, monkeypatch) == 130


def test_names_are_printed_to_the_letter(tmp_path, monkeypatch, capsys):
    out = tmp_path / "[/x]:smile:\x1b[2J"
    assert run_main(["chain", "--out", str(out)], tmp_path, monkeypatch) == 0
    assert f"Picture: {tmp_path}/[/x]:smile:\\x1b[2J/chain.png" in capsys.readouterr().out
    with Bars() as bars:
        bars.draw("[/x]", 1, 2, "[/y]")
        shown = Console(file=io.StringIO(), width=200)
        shown.print(bars.make_tasks_table(bars.tasks))
    assert "[/x]" in shown.file.getvalue()
    assert "[/y]" in shown.file.getvalue()
    with console.status("[/x]") as status:
        assert str(status.status) == "[/x]"


def test_debug_shows_the_traceback(folder):
    assert "Traceback" in hurl(folder, "train run.yaml --debug --set gamma=2").stderr


def test_a_full_disk_loses_nothing(folder):
    assert hurl(folder, "train run.yaml --out alone").returncode == 0
    full = hurl(folder, "train run.yaml --out here", limit="ulimit -f 16;")  # files of at most 16 kB
    assert full.returncode == 1, full.stderr
    assert "File too large: " in full.stderr
    assert "repeat the command" in full.stderr
    assert "Traceback" not in full.stderr
    assert len(repeating(folder / "here/metrics.csv")) == 2, "the checkpoint failed, the metrics before it are there"
    assert hurl(folder, "train run.yaml --out here").returncode == 0
    assert repeating(folder / "here/metrics.csv") == repeating(folder / "alone/metrics.csv")


def rows_of(metrics):
    return len(repeating(metrics)) if metrics.exists() else 0


def test_a_run_that_begins_anew_says_so_and_warnings_are_sentences(folder):
    """It was stopped before its first checkpoint; and it is too short for a ladder."""
    short = "train run.yaml --out here --set 'guidance.schedule={kind: ladder}' --set iterations=2"
    first = hurl(folder, short)
    assert first.returncode == 0, first.stderr
    shutil.rmtree(folder / "here/checkpoints")
    again = hurl(folder, short)
    assert "It was stopped before its first checkpoint, of iteration" in again.stdout
    assert "begins anew" not in first.stdout
    for result in (first, again):
        assert [line for line in result.stderr.splitlines() if "ladder" in line] == [
            "warning: 200 steps are fewer than 4 iterations of 100, by which a ladder judges its rungs at the least: "
            "lower steps_per_iteration, or learn for longer"
        ]


def test_three_kills_change_nothing(folder, small):
    small["algorithm"] = {"name": "sbx.SAC", "parameters": SAC}
    small |= {"iterations": 20, "checkpoint_every": 3, "updates_per_iteration": 200}
    (folder / "run.yaml").write_text(yaml.safe_dump(small))
    command = [str(HURL), "train", "run.yaml", "--out", "killed"]
    metrics = folder / "killed/metrics.csv"
    moments = random.Random(0)
    seen = []
    for _ in range(3):
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and rows_of(metrics) < (seen[-1] if seen else 0) + moments.randint(1, 5):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.1))
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(rows_of(metrics))
    assert all(0 < rows < 20 for rows in seen)
    assert hurl(folder, "train run.yaml --out killed").returncode == 0
    assert hurl(folder, "train run.yaml --out alone").returncode == 0
    assert repeating(metrics) == repeating(folder / "alone/metrics.csv")
    assert rows_of(metrics) == 20


def test_interruption_from_the_keyboard_says_how_to_go_on(folder):
    process = subprocess.Popen(
        [str(HURL), "train", "run.yaml", "--out", "here", "--set", "iterations=100000"],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interruptions,
    )  # fmt: skip
    while rows_of(folder / "here/metrics.csv") < 1:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command carries on" in errors
