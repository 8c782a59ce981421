"""A run is a folder: its configuration, versions, metrics, events and checkpoints, each file written whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import RunFolderError
from hurl.experiments.metrics import Row, read_rows, write_rows
from hurl.experiments.yaml_text import parse_yaml
from hurl.files import lock_file, package_versions, write_whole


class RunFolder:
    """The folder of one run.

    :param path: the folder; made by `open`
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.inputs_file = path / "inputs.json"
        self.metrics_file = path / "metrics.csv"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.replay = path / "replay"

    @property
    def exists(self) -> bool:
        """Whether it is the folder of a run."""
        return self.config_file.is_file()

    def read_config(self) -> RunConfig:
        """Return the configuration of the run."""
        if not self.exists:
            raise RunFolderError(
                f"{self.path} is not a run folder, it has no {self.config_file.name}: name the folder of a run, "
                "or one of its checkpoints"
            )
        return validate(parse_yaml(self.config_file.read_bytes(), str(self.config_file)), str(self.config_file))

    @contextmanager
    def open(self, config: RunConfig) -> Iterator[None]:
        """Take the folder for a run of this configuration, making it where it is missing.

        A run that is refused, or fails, before it has a result leaves no folder where there was none.
        """
        is_new = not self.path.exists()
        if not is_new and not self.exists and any(map(_is_foreign, self.path.iterdir())):
            raise RunFolderError(f"{self.path} holds other things than a run: choose another folder with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as lock:
            if not lock_file(lock):
                raise RunFolderError(f"another process is running in {self.path}: wait for it, or choose another --out")
            if self.metrics_file.exists() or self.checkpoints.exists():
                _compare(self.read_config(), config, self.path)
            else:
                text = config.to_yaml().encode()
                if self.exists and self.config_file.read_bytes() != text:
                    self.inputs_file.unlink(missing_ok=True)  # of a run that was given up before it had a result
                write_whole(self.path / "versions.json", json.dumps(package_versions(), indent=2).encode())
                write_whole(self.config_file, text)
            try:
                yield
            except Exception:
                if is_new and not self.metrics_file.exists() and not self.checkpoints.exists():
                    shutil.rmtree(self.path, ignore_errors=True)  # what went wrong is told, not what is left
                raise

    def is_finished(self, config: RunConfig) -> bool:
        """Whether it holds this very run, trained to its end; what is damaged is not finished."""
        last = self.checkpoints / f"{config.iterations:06d}"
        if not last.is_dir() or self.replay.exists():
            return False
        try:
            rows = self.read_metrics()
            return len(rows) == config.rows_until(config.iterations) and self.read_config() == config
        except ValueError:
            return False

    def pin_input(self, name: str, digest: str) -> None:
        """Write down the hash of something that the run is made from; where there is one already, compare them.

        :param name: what it is, e.g. `dataset hopper/behaviour-v0`
        """
        pinned = self._read_inputs()
        if pinned.get(name, digest) != digest:
            raise RunFolderError(
                f"the {name} has changed since the run in {self.path} began: put the old one back, choose another "
                "--out, or remove that folder"
            )
        write_whole(self.inputs_file, json.dumps(pinned | {name: digest}, indent=2).encode())

    def _read_inputs(self) -> dict[str, str]:
        if not self.inputs_file.exists():
            return {}
        try:
            return dict(json.loads(self.inputs_file.read_bytes()))
        except (TypeError, ValueError):
            raise RunFolderError(
                f"{self.inputs_file} is damaged: remove it to go on with what the run is made from now"
            ) from None

    def read_metrics(self, last: int | None = None) -> list[Row]:
        """Return the rows of the metrics, up to an iteration; what comes after it may be damaged."""
        rows: list[Row] = []
        for row in read_rows(self.metrics_file) if self.metrics_file.exists() else ():
            if last is None or row.iteration <= last:
                rows.append(row)
            if row.iteration == last:
                break
        return rows

    def write_metrics(self, rows: list[Row]) -> None:
        """Write the metrics, whole."""
        write_rows(self.metrics_file, rows)


def _is_foreign(entry: Path) -> bool:
    """Return whether a file is none that a run writes before its configuration."""
    return entry.name not in ("lock", "versions.json") and not entry.name.startswith(".")


def _compare(stored: RunConfig, wanted: RunConfig, path: Path) -> None:
    differences = [
        f"{key} is {old!r} there and {new!r} here"
        for key, old, new in _differences(stored.model_dump(), wanted.model_dump())
    ]
    if differences:
        raise RunFolderError(
            f"{path} holds a run of another configuration ({'; '.join(differences[:3])}"
            f"{'; …' if len(differences) > 3 else ''}): choose another --out, or remove that folder"
        )


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in old | new:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}", before, after
