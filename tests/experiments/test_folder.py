"""A run's folder holds all that belongs to the run, nothing that lies elsewhere, and what it was written with."""

import hashlib
import io
import json
import os
import platform
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.agents import value_function_of
from hurl.experiments.checkpoint import (
    CheckpointError,
    check_metrics,
    checkpoint_paths,
    read_state,
    read_weights,
    run_of,
)
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.policies import collect_policies
from hurl.experiments.run import train
from hurl.files import MisplacedError
from hurl.reports import ReportError, collect_runs
from tests.experiments.conftest import SMALL, repeating

CONFIG = RunConfig.model_validate(SMALL)
FOLDERS = ("replay", "tensorboard", "checkpoints")
FILES = ("lock", "config.yaml", "versions.json", "modules.json", "metrics.csv")


def stop_after(iteration):
    def report(row):
        if row.iteration == iteration:
            raise KeyboardInterrupt

    return report


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run that was stopped at its second checkpoint, and the same left alone."""
    folder = tmp_path_factory.mktemp("original")
    train(CONFIG, folder / "finished")
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, folder / "stopped", stop_after(4))
    return folder


@pytest.fixture
def stopped(original, tmp_path):
    return shutil.copytree(original / "stopped", tmp_path / "stopped")


@pytest.fixture
def finished(original, tmp_path):
    return shutil.copytree(original / "finished", tmp_path / "finished")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def readers(run):
    """What reads a run, by name."""
    return {
        "evaluate": lambda: evaluate_checkpoint(find_checkpoint(run), episodes=1, seed=0),
        "collect": lambda: collect_policies([str(run)], "test/x-v0", transitions=10, root=run.parent / "data"),
        "report": lambda: collect_runs([run]),
        "agent": lambda: value_function_of(run),
    }


# What is not the run's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_links_inside_a_run_are_refused_and_what_they_lead_to_is_left_alone(stopped, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(stopped / name, elsewhere)
    if elsewhere.is_dir():
        (elsewhere / "mine.npz").write_text("not hurl's")
        before = contents(elsewhere)
    (stopped / name).symlink_to(elsewhere)
    with pytest.raises(MisplacedError, match=rf"{name} is a link in the place of a .*: remove it, or put"):
        train(CONFIG, stopped)
    for read in readers(stopped).values():
        with pytest.raises((MisplacedError, ReportError), match=rf"{name} is a link"):
            read()
    if elsewhere.is_dir():
        assert contents(elsewhere) == before


@pytest.mark.parametrize("name", FOLDERS)
def test_a_link_to_nothing_is_a_link(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "nothing")
    with pytest.raises(MisplacedError, match=f"{name} is a link"), RunFolder(tmp_path / "run").open(CONFIG):
        pytest.fail("the folder was taken")
    assert not (tmp_path / "nothing").exists()


def test_links_inside_checkpoints_are_refused(stopped, tmp_path):
    last = stopped / "checkpoints/000004"
    for file in ("state.json", "digests.json", "model.safetensors"):
        shutil.move(last / file, tmp_path / file)
        (last / file).symlink_to(tmp_path / file)
        with pytest.raises(MisplacedError, match=f"{file} is a link in the place of a file"):
            read_weights(last)
        (last / file).unlink()
        shutil.move(tmp_path / file, last / file)
    shutil.move(last, tmp_path / "000004")
    last.symlink_to(tmp_path / "000004")
    with pytest.raises(MisplacedError, match="000004 is a link in the place of a folder"):
        train(CONFIG, stopped)


def test_a_run_may_be_reached_through_a_link(stopped, original, tmp_path):
    (tmp_path / "link").symlink_to(stopped)
    train(CONFIG, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert repeating(stopped / "metrics.csv") == repeating(original / "finished/metrics.csv")
    assert len(evaluate_checkpoint(find_checkpoint(tmp_path / "link"), episodes=1, seed=0).returns) == 1


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link"):
        with pytest.raises(RunFolderError, match=f"{name} is no folder, nor a link to one: choose another"):
            train(CONFIG, tmp_path / name)


def pipe(path):
    os.mkfifo(path)


def open_socket(path):
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(path))


@pytest.mark.parametrize("make", [pipe, open_socket, os.mkdir], ids=["pipe", "socket", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        *FILES,
        "replay/000002.npz",
        *(f"checkpoints/000004/{n}" for n in ("state.json", "digests.json", "model.safetensors")),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(stopped, monkeypatch, name, make):
    monkeypatch.chdir(stopped)
    (stopped / name).unlink()
    make(stopped / name)
    with pytest.raises(ValueError, match=rf"{name} is a (pipe|socket|folder) in the place of a file"):
        train(CONFIG, stopped)


def test_files_that_are_not_hurls_stay_in_replay(stopped):
    (stopped / "replay/mine.npz").write_text("not hurl's")
    train(CONFIG, stopped)
    assert contents(stopped / "replay") == {
        (stopped / "replay/mine.npz").relative_to(stopped / "replay"): b"not hurl's"
    }
    assert RunFolder(stopped).is_finished(CONFIG)


def test_the_run_of_a_checkpoint_is_found_from_anywhere(tmp_path, monkeypatch):
    checkpoint = tmp_path / "run/checkpoints/000004"
    checkpoint.mkdir(parents=True)
    (tmp_path / "newest").symlink_to(checkpoint)
    for here, name, run in [
        (checkpoint, ".", tmp_path / "run"),
        (checkpoint.parent, "000004", tmp_path / "run"),
        (tmp_path, "newest", tmp_path / "run"),
        (tmp_path, "run/checkpoints/000004", Path("run")),
        (tmp_path / "run", "checkpoints/000004", Path()),
    ]:
        monkeypatch.chdir(here)
        assert run_of(Path(name)).path == run


def test_the_next_start_removes_what_killed_processes_left(stopped):
    mine = stopped / ".notes.part"
    mine.write_text("not hurl's")
    alive = f".metrics.csv.{platform.node()}.{os.getppid()}.part"
    # Under the lock no other process writes here, whoever has the number.
    for name in (alive, ".config.yaml.another-machine.99999999.part", "replay/.000004.npz.7.part"):
        (stopped / name).write_text("half")
    shutil.copytree(stopped / "checkpoints/000004", stopped / "checkpoints/.000006.part")
    with RunFolder(stopped).open(CONFIG):
        assert list(stopped.rglob("*.part")) == [mine]


# What is not what it was ---------------------------------------------------------------------------------------------


def change_a_digit(file, where):
    content = bytearray(file.read_bytes())
    digits = [index for index, byte in enumerate(content) if chr(byte).isdigit()]
    index = digits[int(where * (len(digits) - 1))]
    content[index] = ord("0") + (content[index] - ord("0") + 1) % 10
    file.write_bytes(content)


@pytest.mark.parametrize("where", np.linspace(0, 1, 10))
def test_a_changed_digit_of_the_state_is_refused(stopped, where):
    last = stopped / "checkpoints/000004"
    change_a_digit(last / "state.json", where)
    for read in (lambda: train(CONFIG, stopped), lambda: read_state(last), readers(stopped)["evaluate"]):
        with pytest.raises(
            CheckpointError, match=rf"state.json is damaged, its hash differs.*: remove {last} to go on"
        ):
            read()


@pytest.mark.parametrize("where", np.linspace(0, 1, 10))
@pytest.mark.parametrize("name", ["stopped", "finished"])
def test_a_changed_digit_of_the_metrics_is_refused(request, name, where):
    run = request.getfixturevalue(name)
    change_a_digit(run / "metrics.csv", where)
    with pytest.raises(ValueError, match=r"metrics.csv is (not what .* was written with|damaged)"):
        train(CONFIG, run)
    assert not RunFolder(run).is_finished(CONFIG)
    try:
        warnings = collect_runs([run]).warnings
    except ReportError as error:
        warnings = [str(error)]
    assert any("metrics.csv is" in warning for warning in warnings)


def test_rows_after_the_last_checkpoint_are_computed_again(stopped, original):
    with (stopped / "metrics.csv").open("a") as file:
        file.write("5,500,1.0\n")
    train(CONFIG, stopped)
    assert repeating(stopped / "metrics.csv") == repeating(original / "finished/metrics.csv")


@pytest.mark.parametrize("name", ["state.json", "model.safetensors"])
def test_a_finished_run_whose_last_checkpoint_is_damaged_says_so(finished, name):
    change_a_digit(finished / "checkpoints/000005" / name, 0.5)
    with pytest.raises(CheckpointError, match=rf"{name} is damaged"):
        train(CONFIG, finished)
    result = CliRunner().invoke(app, ["evaluate", str(finished), "--episodes", "1"])
    assert isinstance(result.exception, CheckpointError)


def test_a_checkpoint_of_another_iteration_is_refused(stopped):
    last = stopped / "checkpoints/000004"
    shutil.rmtree(last)
    shutil.copytree(stopped / "checkpoints/000002", last)
    with pytest.raises(CheckpointError, match=r"its hash differs|it is that of iteration 2"):
        train(CONFIG, stopped)
    with pytest.raises(CheckpointError, match="it is that of iteration 2"):
        read_state(last)


def test_checkpoints_of_earlier_versions_are_read(stopped, original):
    for path in checkpoint_paths(RunFolder(stopped)):
        (path / "digests.json").unlink()
    train(CONFIG, stopped)
    assert repeating(stopped / "metrics.csv") == repeating(original / "finished/metrics.csv")


def test_a_column_that_a_later_version_adds_changes_no_hash(stopped):
    lines = (stopped / "metrics.csv").read_text().splitlines()
    names = lines[0].split(",")
    without = [
        ",".join(cell for number, cell in enumerate(line.split(",")) if number != names.index("guided_share"))
        for line in lines
    ]
    (stopped / "metrics.csv").write_text("\n".join(without) + "\n")
    check_metrics(RunFolder(stopped), stopped / "checkpoints/000004")


# Damage that the hashes agree with -----------------------------------------------------------------------------------


def rewrite(checkpoint, state=None, weights=None):
    """Write files of a checkpoint with hashes that agree, as an earlier version, or someone's hand, might have."""
    values = json.loads((checkpoint / "state.json").read_text())
    if weights is not None:
        (checkpoint / "model.safetensors").write_bytes(weights)
        values["files"]["model.safetensors"] = hashlib.sha256(weights).hexdigest()
    values = values if state is None else state(values)
    (checkpoint / "state.json").write_text(values if isinstance(values, str) else json.dumps(values))
    (checkpoint / "digests.json").unlink()


def without(key):
    return lambda values: {name: value for name, value in values.items() if name != key}


def replaced(value, *path):
    def change(values):
        inner = values
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return values

    return change


KEYS = ("iteration", "counters", "guidance", "episodes", "random", "replay", "files")
RUBBISH = (3, "x", [1], {"a": 1}, 10**30, [[[]]])
STATES = {
    **{f"no {key}": without(key) for key in KEYS},
    **{f"{key} is {value!r}": replaced(value, key) for key in KEYS for value in RUBBISH},
    "no JSON": lambda values: "{",
    "a list": lambda values: "[1, 2]",
    "deep": lambda values: "[" * 100_000,
    "a huge number": lambda values: '{"iteration": ' + "9" * 5000 + "}",
    "a counter is a word": replaced("x", "counters", "num_timesteps"),
    "a counter is a method": replaced(3, "counters", "predict"),
    "replay elsewhere": replaced("../../../mine.npz", "replay", "files", 0, "name"),
    "rows without end": replaced(10**12, "replay", "files", 0, "rows"),
    "no rows": lambda values: replaced([{"name": "000002.npz"}], "replay", "files")(values),
    "short random state": replaced([1, 2], "random", "torch"),
    "random state out of range": replaced([10**30] * 625, "random", "python", 1),
    "guidance without steps": replaced({}, "guidance"),
    "guidance of words": replaced("x", "guidance", "steps"),
    "other steps": replaced(100, "counters", "num_timesteps"),
    "an episode without a return": replaced([{"l": 3}], "episodes"),
}


@pytest.mark.parametrize("change", STATES.values(), ids=list(STATES))
def test_a_state_that_makes_no_sense_is_told_in_a_sentence(stopped, change):
    last = stopped / "checkpoints/000004"
    rewrite(last, change)
    with pytest.raises(CheckpointError, match=r"000004.* (damaged|missing).*: remove .* (to go|on)"):
        train(CONFIG, stopped)


def heading(structure):
    return save({"0": np.zeros(3, np.float32)}, {"structure": structure})


WEIGHTS = {
    "empty": b"",
    "no safetensors": b"not a safetensors file",
    "no structure": save({"0": np.zeros(3)}),
    "structure is no JSON": heading("{"),
    "structure without end": heading("[" * 100_000),
    "structure of a kind that is none": heading('{"dict": 3}'),
    "structure with two kinds": heading('{"dict": [], "list": []}'),
    "an array that is missing": heading('{"dict": [["parameters", {"array": "7"}]]}'),
    "an array in the place of all": heading('{"array": "0"}'),
    "nothing in it": heading('{"dict": []}'),
    "a number in the place of all": heading("3"),
    "arrays of another shape": heading('{"dict": [["parameters", {"dict": [["policy", {"array": "0"}]]}]]}'),
}


@pytest.mark.parametrize("content", WEIGHTS.values(), ids=list(WEIGHTS))
def test_weights_that_make_no_sense_are_told_in_a_sentence(stopped, content):
    last = stopped / "checkpoints/000004"
    rewrite(last, weights=content)
    for read in (lambda: train(CONFIG, stopped), readers(stopped)["evaluate"]):
        with pytest.raises(CheckpointError, match=r"000004 is damaged or does not fit .*: remove .* to go on"):
            read()


def cut(content):
    return content[: len(content) // 2]


def lacking(content):
    stored = dict(np.load(io.BytesIO(content)))
    file = io.BytesIO()
    np.savez(file, **{key: value for key, value in stored.items() if key != "rewards"})
    return file.getvalue()


@pytest.mark.parametrize("change", [cut, lacking, lambda content: b"", lambda content: b"PK\x03\x04rubbish"])
def test_replay_that_makes_no_sense_is_told_in_a_sentence(stopped, change):
    file = stopped / "replay/000002.npz"
    file.write_bytes(change(file.read_bytes()))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite(stopped / "checkpoints/000004", replaced(digest, "replay", "files", 0, "digest"))
    with pytest.raises(CheckpointError, match=r"000004 is damaged or does not fit .*: remove .* to go on"):
        train(CONFIG, stopped)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000, b"\xff", b'{"state.json": 3}'])
def test_damaged_digests_are_told_in_a_sentence(stopped, content):
    (stopped / "checkpoints/000004/digests.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"(digests.json is damaged|its hash differs).*: .*remove .* to go on"):
        train(CONFIG, stopped)


def test_a_run_that_is_refused_leaves_no_folder_above_it_either(small, tmp_path):
    small["guidance"]["heuristic"] = "tests.experiments.pendulum:none"
    config = RunConfig.model_validate(small)
    with pytest.raises(ValueError, match="has no function 'none'"):
        train(config, tmp_path / "runs" / "mine" / "seed-0")
    assert not list(tmp_path.iterdir())
