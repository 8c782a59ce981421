"""Files that are there whole or not at all, and what versions made them."""

from __future__ import annotations

import fcntl
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from hurl import __version__

__all__ = ["aside", "lock_file", "package_versions", "write_whole"]

PACKAGES = (
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


def lock_file(file: IO[str]) -> bool:
    """Take an open file for this process, until it is closed; return whether no other process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def package_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that results depend on."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "machine": platform.machine()}
    versions["hurl"] = __version__
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions
