"""A run is a folder: its configuration, versions, metrics, events and checkpoints, each file written whole."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import ConfigurationError, RunFolderError
from hurl.experiments.metrics import Row, read_rows, write_rows
from hurl.experiments.sources import apply_settings
from hurl.experiments.yaml_text import parse_yaml
from hurl.files import (
    check_file,
    check_folder,
    lock_file,
    making,
    open_lock,
    package_versions,
    read_regular,
    remove_leftovers,
    write_whole,
)
from hurl.own_code import check_trust, foreign_code, look_in, module_folders

REPLAY_FILE = re.compile(r"[0-9]{6,}\.npz")


class RunFolder:
    """The folder of one run.

    :param path: the folder; made by `open`
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.config_file = path / "config.yaml"
        self.versions_file = path / "versions.json"
        self.inputs_file = path / "inputs.json"
        self.modules_file = path / "modules.json"
        self.metrics_file = path / "metrics.csv"
        self.tensorboard = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.replay = path / "replay"

    @property
    def exists(self) -> bool:
        """Whether it is the folder of a run."""
        return self.config_file.is_file()

    def check_places(self) -> None:
        """Refuse links, pipes and the like in the places of the run's files and folders: nothing outside is touched."""
        described = (self.config_file, self.versions_file, self.inputs_file, self.modules_file)
        for file in (self.lock, self.metrics_file, *described):
            check_file(file)
        for folder in (self.tensorboard, self.checkpoints, self.replay):
            check_folder(folder)

    def read_config(self, *, trust: bool = False) -> RunConfig:
        """Return the configuration of the run, to let its policy act: only the environment's code is run for that.

        :param trust: whether code that it names may be run, other than hurl's own; modules that are not found are
            then looked for where they were when the run was trained
        """
        config = self.parse_config()
        check_trust(self.config_file, config.environment.code, trust)
        if trust:
            self._look_for_modules(config.environment.code)
        return config

    def read_config_to_train(
        self, settings: Sequence[str], *, named: Collection[str] = (), trust: bool = False
    ) -> RunConfig:
        """Return the configuration of the run, to train on, some values set anew.

        :param settings: `key=value` each
        :param named: code that the user has named
        :param trust: whether other code that it names may be run
        """
        config = self.parse_config()
        check_trust(self.config_file, [name for name in config.code if name not in named], trust)
        if trust:
            self._look_for_modules(config.code)
        return validate(apply_settings(config.model_dump(mode="json"), settings), str(self.config_file), settings)

    def parse_config(self) -> RunConfig:
        """Return the configuration of the run, to be shown or compared: nothing that it names may be run."""
        self.check_places()
        if not self.exists:
            raise RunFolderError(
                f"{self.path} is not a run folder, it has no {self.config_file.name}: name the folder of a run, "
                "or one of its checkpoints"
            )
        return validate(parse_yaml(read_regular(self.config_file), str(self.config_file)), str(self.config_file))

    @contextmanager
    def open(self, config: RunConfig) -> Iterator[None]:
        """Take the folder for a run of this configuration, making it where it is missing.

        What processes that were killed have left aside is removed. A run that is refused, or fails, before it has a
        result leaves no folder where there was none.
        """
        is_new = not os.path.lexists(self.path)
        if not is_new and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is no folder, nor a link to one: choose another folder with --out")
        self.check_places()
        if not is_new and not self.exists and any(map(_is_foreign, self.path.iterdir())):
            raise RunFolderError(f"{self.path} holds other things than a run: choose another folder with --out")
        with making(self.path) if is_new else nullcontext(), open_lock(self.lock) as lock:
            if not lock_file(lock):
                raise RunFolderError(f"another process is running in {self.path}: wait for it, or choose another --out")
            for folder in (self.path, self.checkpoints, self.replay):
                remove_leftovers(folder)
            if self.metrics_file.exists() or self.checkpoints.exists():
                self._take_up(config)
            else:
                text = config.to_yaml().encode()
                if self.exists and read_regular(self.config_file) != text:
                    self.inputs_file.unlink(missing_ok=True)  # of a run that was given up before it had a result
                write_whole(self.versions_file, json.dumps(package_versions(), indent=2).encode())
                write_whole(self.config_file, text)
            self._remember_modules(config.code)
            try:
                yield
            except Exception:
                if is_new and not self.metrics_file.exists() and not self.checkpoints.exists():
                    shutil.rmtree(self.path, ignore_errors=True)  # what went wrong is told, not what is left
                raise

    def _take_up(self, config: RunConfig) -> None:
        """Refuse a run that is other than the one that is there, and not only longer, or can't be made longer."""
        from hurl.experiments.extension import check_extension, is_longer  # which know this class

        stored = self.parse_config()
        if is_longer(stored, config):
            check_extension(self, stored, config)
        else:
            _compare(stored, config, self.path)

    def _remember_modules(self, names: list[str]) -> None:
        """Write down the folders of the user's own modules that the run names."""
        found = module_folders(foreign_code(names))
        own = {package: folder for package, folder in found.items() if folder is not None}
        if own:
            write_whole(self.modules_file, json.dumps(own, indent=2).encode())

    def _look_for_modules(self, names: list[str]) -> None:
        """Let modules that can't be found be found where they were when the run was trained."""
        missing = [package for package, folder in module_folders(foreign_code(names)).items() if folder is None]
        if not missing or not self.modules_file.exists():
            return
        try:
            folders = dict(json.loads(read_regular(self.modules_file)))
            places = [Path(folders[package]) for package in missing if package in folders]
        except (TypeError, ValueError, RecursionError):
            raise RunFolderError(
                f"{self.modules_file} is damaged: remove it, and work where the modules of the run are"
            ) from None
        for place in places:
            if place.is_dir():
                look_in(place)

    def is_finished(self, config: RunConfig) -> bool:
        """Whether it holds this very run, trained to its end; what is damaged is not finished."""
        last = self.checkpoints / f"{config.iterations:06d}"
        if not last.is_dir() or (self.replay_files() and not config.keep_replay):
            return False
        from hurl.experiments.checkpoint import check_metrics  # which knows this class

        try:
            rows = self.read_metrics()
            check_metrics(self, last)
            return len(rows) == config.rows_until(config.iterations) and self.parse_config() == config
        except ValueError:
            return False

    def replay_files(self) -> list[Path]:
        """Return the files of a replay buffer: those in `replay` that have the names which runs give them."""
        return sorted(file for file in self.replay.glob("*.npz") if REPLAY_FILE.fullmatch(file.name))

    def remove_replay(self) -> None:
        """Remove the files of a replay buffer, and their folder where it holds nothing else."""
        for file in self.replay_files():
            file.unlink()
        with suppress(OSError):
            self.replay.rmdir()

    @contextmanager
    def naming_config(self) -> Iterator[None]:
        """Name the configuration of the run in what is wrong with it where its policy is built."""
        try:
            yield
        except ConfigurationError as error:
            raise RunFolderError(f"{self.config_file}: {error}") from error

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
            return dict(json.loads(read_regular(self.inputs_file)))
        except (TypeError, ValueError, RecursionError):
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
