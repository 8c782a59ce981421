"""Kills at every change of the file system, and full disks: the same command again must give the very same results."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Outcome, Trap, Verdict, differences, digest, make_canary, run_hurl
from tests.fuzz.works import COLLECT, DQN, LADDER, PPO, SAC, Work, shelf, train, transitions, write_yaml

BEYOND = 1_000_000  # a change that no command gets to
SIZES = (1_000, 2_000, 4_000, 8_000, 12_000, 16_000, 24_000, 32_000)  # bytes that a file may have at most


def _train_first(folder: Path) -> None:
    write_yaml(SAC, folder)
    assert run_hurl(("train", "run.yaml", "--out", "swing"), folder).code == 0


WORKS = {
    "guided DQN": train(DQN),
    "guided SAC": train(SAC),
    "ladder of DQN": train(LADDER),
    "guided PPO": train(PPO),
    "collecting": Work(COLLECT, _train_first, transitions),
}


@dataclass(frozen=True)
class Interruption:
    """A command that is killed, or finds no room, and is then repeated.

    :param work: its name
    :param trap: the change of the file system at which it is killed, or from which on the disk is full
    :param largest_file: or the bytes that a file may have at most
    """

    work: str
    trap: Trap | None = None
    largest_file: int | None = None

    def run(self, folder: Path) -> Verdict:
        """Interrupt the command in a folder, repeat it, and compare its results with those of one left alone."""
        work, here = WORKS[self.work], folder / "here"
        canary = digest(make_canary(folder / "foreign"))
        shutil.copytree(alone(self.work).prepared, here)
        interrupted = run_hurl(work.words, here, trap=self.trap, largest_file=self.largest_file)
        verdict = interrupted.verdict
        is_killed = self.trap is not None and not self.trap.is_full and interrupted.code == -9
        if verdict.outcome.is_forbidden and not is_killed:
            return verdict
        again = run_hurl(work.words, here).verdict
        if again.outcome is not Outcome.ran:
            return again if again.outcome.is_forbidden else Verdict(Outcome.different, f"repeated: {again.detail}")
        if work.results(here) != alone(self.work).results:
            return Verdict(Outcome.different, "the results are not those of a command left alone")
        leftovers = [str(path.relative_to(here)) for path in here.rglob(".*.part")]
        if leftovers:
            return Verdict(Outcome.different, f"left behind: {', '.join(leftovers)}")
        lost = differences(canary, digest(folder / "foreign"))
        return Verdict(Outcome.foreign, ", ".join(lost)) if lost else again if is_killed else verdict


@dataclass(frozen=True)
class Alone:
    """A command that was left alone: what it began with, its results, and how often it changed the file system."""

    prepared: Path
    results: Any
    changes: int


@cache
def alone(name: str) -> Alone:
    """Run a command once, uninterrupted."""
    work = WORKS[name]
    prepared, here = shelf() / name, shelf() / f"{name}, alone"
    prepared.mkdir()
    work.prepare(prepared)
    shutil.copytree(prepared, here)
    result = run_hurl(work.words, here, trap=Trap(BEYOND))
    assert result.code == 0, result
    return Alone(prepared, work.results(here), result.changes)


def kills(name: str) -> Iterator[Interruption]:
    """Return a kill at each change of a command."""
    return (Interruption(name, Trap(number)) for number in range(1, alone(name).changes + 1))


def full_disks(name: str) -> Iterator[Interruption]:
    """Return a disk that is full from each change on, and files that can't be larger than some sizes."""
    yield from (Interruption(name, Trap(number, is_full=True)) for number in range(1, alone(name).changes + 1))
    yield from (Interruption(name, largest_file=size) for size in SIZES)


def spread(cases: Sequence[Interruption], count: int) -> list[Interruption]:
    """Return so many of some cases, evenly spaced, or all where there are fewer."""
    return [cases[index * len(cases) // count] for index in range(count)] if count < len(cases) else list(cases)
