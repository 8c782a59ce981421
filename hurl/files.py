"""Files that are there whole or not at all, and what versions made them."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from hurl import __version__

__all__ = [
    "MisplacedError",
    "aside",
    "check_file",
    "check_folder",
    "lock_file",
    "make_folder",
    "making",
    "open_lock",
    "open_log",
    "own_aside",
    "package_versions",
    "read_regular",
    "remove",
    "remove_leftovers",
    "write_table",
    "write_whole",
]

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


# What a name in a folder can be of, as people call it.
KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
# What `aside` names of a folder with a number, and `own_aside` of anything: with machine and number of the process.
LEFTOVER = re.compile(r"\.(.+\.)?\d+\.part")


class MisplacedError(ValueError):
    """What is in the place of a file or folder and must not be followed, waited for or removed, with what to do."""

    def __init__(self, path: Path, found: str, wanted: str) -> None:
        super().__init__(
            f"{path} is a {found} in the place of a {wanted}, and is left alone: remove it, or put the {wanted} itself "
            "there"
        )


# Reading -------------------------------------------------------------------------------------------------------------


def read_regular(path: Path, *, follow_links: bool = False) -> bytes:
    """Return what a file holds; a link, a pipe, a device or a folder in its place is refused, not waited for.

    :param follow_links: whether it may lie elsewhere, as what a user names may
    """
    with os.fdopen(_open_regular(path, os.O_RDONLY, follow_links), "rb") as file:
        return file.read()


def check_file(path: Path, *, follow_links: bool = False) -> None:
    """Refuse what is in the place of a file and is none."""
    _check(path, stat.S_IFREG, follow_links)


def check_folder(path: Path) -> None:
    """Refuse what is in the place of a folder and is none."""
    _check(path, stat.S_IFDIR)


def _check(path: Path, wanted: int, follow_links: bool = False) -> None:
    try:
        kind = stat.S_IFMT(path.stat(follow_symlinks=follow_links).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return
    if kind != wanted:
        raise MisplacedError(path, KINDS.get(kind, "thing of an unknown kind"), KINDS[wanted])


def _open_regular(path: Path, flags: int, follow_links: bool = False) -> int:
    """Open a file by its descriptor, without ever waiting for what is in its place."""
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            check_file(path, follow_links=follow_links)
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise MisplacedError(path, KINDS.get(kind, "thing of an unknown kind"), KINDS[stat.S_IFREG])
    return descriptor


# Writing -------------------------------------------------------------------------------------------------------------


def aside(path: Path) -> Path:
    """Return where something is made that is to appear whole at a path: beside it, under a hidden name."""
    return path.with_name(f".{path.name}.part")


def own_aside(path: Path) -> Path:
    """Return where this process alone makes something that is to appear at a path, as others may be making it too.

    What processes of this machine that are dead have left there is removed.
    """
    for leftover in _leftovers(path):
        remove(leftover)
    return aside(path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}"))


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; where what follows fails, those that it made and that are empty are removed."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # of the first that is not empty
            for path in filter(Path.exists, missing):
                path.rmdir()
        raise


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is there whole or not at all: aside first, then renamed."""
    part = own_aside(path)
    try:
        with part.open("xb") as file:
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


def _leftovers(path: Path) -> list[Path]:
    """Return what processes of this machine that are dead, or had the number of this one, made aside of a path.

    The folder may be shared, and whether a process of another machine is alive can't be asked here.
    """
    name = re.compile(rf"\.{re.escape(f'{path.name}.{platform.node()}')}\.(\d+)\.part")
    parts = {part: match[1] for part in path.parent.iterdir() if (match := name.fullmatch(part.name))}
    return [part for part, process in parts.items() if int(process) == os.getpid() or not _is_alive(int(process))]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def make_folder(path: Path) -> None:
    """Make a folder where it is missing; a link in its place is refused."""
    check_folder(path)
    path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left aside in a folder, which this process has the lock of."""
    for path in folder.glob(".*.part"):
        if LEFTOVER.fullmatch(path.name):
            remove(path)


# Locks and logs ------------------------------------------------------------------------------------------------------


def open_lock(path: Path) -> IO[str]:
    """Open a file that is there to be locked, and made where it is missing."""
    return os.fdopen(_open_regular(path, os.O_RDWR | os.O_CREAT), "r+")


def lock_file(file: IO[str], *, wait: bool = False) -> bool:
    """Take an open file for this process, until it is closed; return whether no other process has it.

    :param wait: until the other process is done with it, or gone
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def open_log(path: Path, *, anew: bool = True) -> IO[bytes]:
    """Open a file, and the folder that it is in, for output to be added to.

    :param anew: whether what it holds is dropped
    """
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if anew else 0)
    return os.fdopen(_open_regular(path, flags), "ab")


# Versions ------------------------------------------------------------------------------------------------------------


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
