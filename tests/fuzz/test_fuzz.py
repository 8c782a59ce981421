"""A few hundred cases of what `make fuzz` tries by the thousand, the same ones every time."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import artefacts, configurations, interruptions
from tests.fuzz.__main__ import run_case
from tests.fuzz.harness import Outcome, Result, Trap, call, differences, digest, make_canary

# Without an example that failed before: nothing is written into the tree.
FEW = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def check(case):
    verdict = run_case(case)
    assert not verdict.outcome.is_forbidden, f"{verdict.outcome.value}: {verdict.detail}\n{case}"


@settings(FEW, max_examples=160)
@given(configurations.cases())
def test_a_configuration_with_mistakes_is_refused_or_trained(case):
    check(case)


@settings(FEW, max_examples=70)
@given(artefacts.cases())
def test_a_damaged_artefact_is_refused_or_does_no_harm(case):
    check(case)


@pytest.mark.parametrize("work", interruptions.WORKS)
def test_a_command_that_was_killed_gives_the_same_results_when_it_is_repeated(work):
    for case in interruptions.spread(list(interruptions.kills(work)), 3):
        check(case)


@pytest.mark.parametrize("work", interruptions.WORKS)
def test_a_full_disk_loses_nothing(work):
    for case in interruptions.spread(list(interruptions.full_disks(work)), 2):
        check(case)


def test_a_file_that_finds_no_room_is_told_whichever_library_writes_it():
    check(interruptions.Interruption("collecting", largest_file=8_000))


# The harness sees what it is there for -------------------------------------------------------------------------------


def fail():
    raise KeyError("files")


@pytest.mark.parametrize(
    ("function", "arguments", "outcome"),
    [
        (time.sleep, (0,), Outcome.ran),
        (time.sleep, (1000,), Outcome.hang),
        (os.abort, (), Outcome.crash),
        (fail, (), Outcome.traceback),
        (sys.exit, (2,), Outcome.raw),
    ],
)
def test_the_end_of_a_process_is_told(tmp_path, function, arguments, outcome):
    seconds = 1 if outcome is Outcome.hang else 60
    assert call(function, arguments, tmp_path, seconds=seconds).verdict.outcome is outcome


@pytest.mark.parametrize(
    ("code", "errors", "outcome"),
    [
        (2, "error: gamma must lie in [0, 1], got 2", Outcome.refused),
        (1, "error: TrainingFailedError: training failed after iteration 3: NaN", Outcome.failed),
        (1, "error: KeyError: 'files' (repeat with --debug for the traceback)", Outcome.raw),
        (2, "error: 'utf-8' codec can't decode byte 0xff in position 0", Outcome.raw),
        (2, "error: nothing", Outcome.raw),
        (2, "error: one thing is wrong\nerror: another thing is wrong", Outcome.raw),
        (3, "error: the exit code is another", Outcome.raw),
        (0, "Exception in thread 1\nTraceback (most recent call last):", Outcome.traceback),
    ],
)
def test_a_sentence_is_told_from_a_librarys_words(code, errors, outcome):
    assert Result(code, errors).verdict.outcome is outcome


def write_thrice():
    for number in range(3):
        Path(str(number)).write_text("written")


def test_a_trap_closes_at_its_change(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    assert call(write_thrice, (), here, trap=Trap(interruptions.BEYOND)).changes == 3
    for file in here.iterdir():
        file.unlink()
    assert call(write_thrice, (), here, trap=Trap(2)).code == -signal.SIGKILL
    assert [file.name for file in here.iterdir()] == ["0"]
    assert "No space left on device" in call(write_thrice, (), here, trap=Trap(3, is_full=True)).errors
    assert sorted(file.name for file in here.iterdir()) == ["0", "1"]


def test_a_file_that_is_changed_or_lost_is_seen(tmp_path):
    before = digest(make_canary(tmp_path))
    assert not differences(before, digest(tmp_path))
    (tmp_path / "mine.npz").unlink()
    (tmp_path / "mine.csv").write_text("another's")
    (tmp_path / "new").touch()
    assert differences(before, digest(tmp_path)) == ["mine.csv", "mine.npz"]
