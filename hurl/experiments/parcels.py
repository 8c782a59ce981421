"""Parcels: files of a folder packed on one machine and put in place on another, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from hurl.files import own_aside

CHUNK_BYTES = 32 * 2**20

Version = tuple[int, int, int]


def list_files(root: Path, places: Iterable[Path]) -> dict[str, Version]:
    """Return the files at some places in a folder: their names in it, and what differs when a file is another.

    Locks and files that are being written aside, whose names begin with a point, are left out.

    :param places: files, or folders with all that is in them
    """
    found = {}
    for place in places:
        for file in [place] if place.is_file() else _walk(place):
            with suppress(FileNotFoundError):
                status = file.stat()
                found[str(file.relative_to(root))] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(path, name) for name in files if not name.startswith(".") and name != "lock")


def pack(root: Path, names: Iterable[str], file: IO[bytes]) -> None:
    """Write some of a folder's files into a parcel."""
    with tarfile.open(fileobj=file, mode="w", dereference=True) as archive:
        for name in names:
            archive.add(root / name, arcname=name, recursive=False)


def read_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a parcel's content from its beginning, in pieces that memory has room for."""
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def unpack(file: IO[bytes], root: Path) -> None:
    """Put a parcel's files in place in a folder; those of a folder that is new appear together."""
    file.seek(0)
    aside = own_aside(root / "parcel")
    aside.mkdir()
    try:
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                _extract(archive, member, aside)
        _merge(aside, root)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file of a parcel; what is no file, or would lie outside the folder, is refused."""
    path = PurePosixPath(member.name)
    content = archive.extractfile(member) if member.isreg() else None
    if content is None or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a parcel holds {member.name!r}, which is no file in its folder")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())


def _merge(source: Path, target: Path) -> None:
    # Backwards, as a run's `checkpoints` must come after the `metrics.csv` and the `replay` that they refer to.
    for child in sorted(source.iterdir(), reverse=True):
        place = target / child.name
        try:
            child.replace(place)
        except OSError:
            if not (child.is_dir() and place.is_dir()):
                raise
            _merge(child, place)


def remove_others(root: Path, places: Iterable[Path], names: Iterable[str]) -> None:
    """Remove the files at some places that are not among the names, and the folders that this empties."""
    for name in list_files(root, places).keys() - set(names):
        (root / name).unlink(missing_ok=True)
        with suppress(OSError):
            os.removedirs((root / name).parent)
