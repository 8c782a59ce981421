"""Files that are there whole or not at all, and what versions made them."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

__all__ = ["aside", "lock_file", "making", "package_versions", "write_table", "write_whole"]

PACKAGES = (
    "hurl",
    "numpy",
    "gymnasium",
    "mujoco",
    "envpool",
    "torch",
    "jax",
    "stable-baselines3",
    "sb3-contrib",
    "sbx-rl",
    "minari",
    "d3rlpy",
    "ray",
)


def aside(path: Path) -> Path:
    """Return where something is made that is to appear whole at a path: beside it, under a hidden name."""
    return path.with_name(f".{path.name}.part")


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; where what follows fails, those that it made and that are empty are removed."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # of the first that is not empty
            for path in missing:
                path.rmdir()
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all: aside first, then renamed."""
    part = aside(path.with_name(f"{path.name}.{os.getpid()}"))  # another process may be writing the same file
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_table(path: Path, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as a CSV file; a text that a spreadsheet would run as a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_as_cell(value) for value in row] for row in rows)
    write_whole(path, text.getvalue().encode())


def _as_cell(value: object) -> object:
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def lock_file(file: IO[str], *, wait: bool = False) -> bool:
    """Take an open file for this process, until it is closed; return whether no other process has it.

    :param wait: until the other process is done with it, or gone
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def package_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that results depend on."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions
