"""One case: a command in a process of its own, what must not change beside it, and how it ended."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import re
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.fuzz.preload"])
LOCK = threading.Lock()  # a process's exit code is read by any thread that starts another, and can be read once
SECONDS = 180.0  # after which a command hangs; it takes one, and on a busy machine many
MEMORY = 4 << 30  # bytes, beyond what the imports take
FEWEST_WORDS = 4
# A library's own words, as the command line shows an error that nobody foresaw, but for two kinds that are foreseen.
RAW = re.compile(
    r"(?!TrainingFailedError|TasksFailedError)\w*(Error|Exception|Exit|Interrupt|StopIteration)\b|'[\w-]+' codec can't"
)


class Outcome(Enum):
    """How a case may end, and how it must not."""

    refused = "refused"
    ran = "ran"
    failed = "failed with a sentence"
    raw = "no sentence"
    traceback = "traceback"
    hang = "hang"
    crash = "killed by a signal"
    foreign = "a file changed or lost"
    different = "other results"

    @property
    def is_forbidden(self) -> bool:
        """Whether no case may end so."""
        return self not in (Outcome.refused, Outcome.ran, Outcome.failed)


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and what tells of it."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Result:
    """What became of a process.

    :param code: its exit code, minus a signal's number, or None where its time was up
    :param changes: how often it has changed the file system, where a trap counted it
    """

    code: int | None
    errors: str
    changes: int = 0

    @property
    def sentence(self) -> str | None:
        """The one line that the command line tells an error in, if it is one."""
        lines = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        if len(lines) != 1 or not self.errors.rstrip().endswith(lines[0]):
            return None
        words = lines[0].removeprefix("error: ")
        return None if RAW.match(words) or len(words.split()) < FEWEST_WORDS else words

    @property
    def verdict(self) -> Verdict:
        """How the command ended, by itself."""
        last = next((line for line in reversed(self.errors.splitlines()) if line.strip()), "")
        if self.code is None:
            return Verdict(Outcome.hang, last)
        if self.code < 0:
            return Verdict(Outcome.crash, f"{signal.Signals(-self.code).name} {last}")
        if "Traceback (most recent call last)" in self.errors:
            return Verdict(Outcome.traceback, last)
        if self.code == 0:
            return Verdict(Outcome.ran)
        if self.code not in (1, 2) or self.sentence is None:
            return Verdict(Outcome.raw, f"exit {self.code}: {last}")
        return Verdict(Outcome.refused if self.code == 2 else Outcome.failed, self.sentence)


# A command in a process ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trap:
    """What happens to a command at its n-th change of the file system, counted from 1.

    :param is_full: whether the disk is full from there on, else the process is killed
    :param path: of changes of paths with this in them only
    """

    number: int
    is_full: bool = False
    path: str = ""


def run_hurl(words: Sequence[str], folder: Path, **options: Any) -> Result:
    """Run a command of the command line in a folder; see `call`."""
    return call(_run_hurl, (list(words),), folder, **options)


def call(
    function: Callable[..., None],
    arguments: Sequence[Any],
    folder: Path,
    *,
    trap: Trap | None = None,
    largest_file: int | None = None,
    seconds: float = SECONDS,
) -> Result:
    """Call a function in a fork of a process that has all imports, with the working folder given.

    :param largest_file: bytes that a file may have at most
    """
    errors, changes = folder.with_name(f"{folder.name}.err"), folder.with_name(f"{folder.name}.changes")
    errors.touch()
    limits = _Limits(trap, largest_file)
    process = PROCESSES.Process(target=_begin, args=(function, arguments, folder, errors, changes, limits))
    with LOCK:
        process.start()
    wait([process.sentinel], seconds)
    with LOCK:
        code = process.exitcode
    if code is None:
        process.kill()
        wait([process.sentinel])
    text = errors.read_text("utf-8", "replace")
    return Result(code, text, changes.stat().st_size if changes.exists() else 0)


@dataclass(frozen=True)
class _Limits:
    trap: Trap | None
    largest_file: int | None


def _begin(
    function: Callable[..., None],
    arguments: Sequence[Any],
    folder: Path,
    errors: Path,
    changes: Path,
    limits: _Limits,
) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.chdir(folder)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.largest_file, limits.largest_file))
    if limits.trap is not None:
        _set(limits.trap, folder, changes)
    function(*arguments)


def _run_hurl(words: list[str]) -> None:
    import hurl.cli

    sys.argv = ["hurl", *words]
    hurl.cli.main()


def _set(trap: Trap, folder: Path, changes: Path) -> None:
    """Count the changes that Python is about to make in a folder, a byte each; the trap closes at one of them."""
    counter = os.open(changes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    root, count = os.path.realpath(folder), 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if not _is_change(event, arguments):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith(root) or trap.path not in path:
            return
        count += 1
        os.write(counter, b".")
        if trap.is_full and count >= trap.number and event in ("open", "os.mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if not trap.is_full and count == trap.number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def _is_change(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        path, _, flags = arguments
        return isinstance(path, str | bytes) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir")


# What must not change ------------------------------------------------------------------------------------------------


def make_canary(folder: Path) -> Path:
    """Make a folder of somebody else's, with files of all kinds that hurl reads, writes and removes."""
    (folder / "000001").mkdir(parents=True)
    for name in ("mine.npz", "000001.npz", "mine.json", "mine.csv", "lock", ".mine.part", "000001/state.json"):
        (folder / name).write_bytes(f"of {name}, which is nobody else's\n".encode())
    return folder


def digest(folder: Path) -> dict[str, str]:
    """Return what there is in a folder: of each path, its kind and the hash of what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else b""
        content += os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
        found[str(path.relative_to(folder))] = f"{stat.S_IFMT(mode)} {hashlib.sha256(content).hexdigest()}"
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the paths that were changed or lost; new ones are allowed."""
    return [path for path, content in before.items() if after.get(path) != content]
