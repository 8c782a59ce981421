"""From folders to runs: finding them, reading what can be read, and grouping the seeds of one algorithm."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hurl.experiments.checkpoint import CheckpointError, check_metrics, checkpoint_paths
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.metrics import COLUMNS, DamagedError, Row, read_rows
from hurl.files import MisplacedError
from hurl.names import HeuristicFolder, printable

Floats = NDArray[np.float64]

SLUG_CHARACTERS = 80  # of an environment in the names of files, which must not be too long
SEED_ENDING = re.compile(r"[-_.]?seed[-_]?\d+$")
# What may differ between the seeds of one algorithm: it does not say what is learned, only which run of it this is.
NOT_THE_ALGORITHM = ("seed", "threads", "checkpoint_every", "keep_replay")
# What an algorithm is given besides guidance.
ADDITIONS = ("warm_start", "prior", "jump_start")
# Where variants of one name are told apart by their configurations: so many settings, and so much of their text.
NAMED_DIFFERENCES, DIFFERENCE_CHARACTERS = 2, 60


class ReportError(ValueError):
    """Runs that can't be reported, with what to do about it."""


@dataclass(frozen=True)
class Run:
    """One run, as far as its metrics can be read."""

    folder: Path
    config: RunConfig
    rows: Sequence[Row]

    def column(self, name: str) -> Floats:
        """Return a column of the metrics over iterations 1, 2, …, without the row of the cloned policy."""
        return self._columns[name][self._first :]

    def column_with_start(self, name: str) -> Floats:
        """Return a column of the metrics, from iteration 0 on where the run has one."""
        return self._columns[name]

    @property
    def iterations(self) -> int:
        """How many iterations were trained: 0 for behaviour cloning alone."""
        return len(self.rows) - self._first

    @property
    def seconds(self) -> Floats:
        """The time since the run began, as of each row: collecting, training and evaluating."""
        return np.cumsum(np.nan_to_num([row.seconds for row in self.rows]))

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        return dict(zip(COLUMNS, np.array([[*vars(row).values()] for row in self.rows], float).T, strict=True))

    @property
    def _first(self) -> int:
        return int(self.rows[0].iteration == 0)


@dataclass(frozen=True)
class Variant:
    """The seeds of one algorithm in one environment."""

    name: str
    runs: Sequence[Run]

    @property
    def iterations(self) -> int:
        """The iterations of its longest run; runs that are shorter are unfinished."""
        return max(run.iterations for run in self.runs)

    @property
    def is_cloning(self) -> bool:
        """Whether it is a cloned policy that never trains: its return is a level, not a curve."""
        return self.iterations == 0

    @property
    def is_guided(self) -> bool:
        """Whether a heuristic has a say in what it learns: with λ = 1 throughout it has none."""
        guidance = self.runs[0].config.guidance
        if guidance is None:
            return False
        parameters = guidance.schedule.parameters
        is_alone = parameters.get("rungs") == [1.0] or (
            guidance.schedule.kind == "constant" and parameters["lambda0"] == 1.0
        )
        return not (is_alone and guidance.shaping == "hurl")

    @property
    def additions(self) -> frozenset[str]:
        """What its algorithm is given besides guidance: a warm start, prior data, a jump start."""
        config = self.runs[0].config
        return frozenset(key for key in ADDITIONS if getattr(config, key) is not None)

    def other_differences(self, other: Variant) -> list[str]:
        """Return the settings in which it differs from another, but for guidance, additions, data and length."""
        left_out = {*NOT_THE_ALGORITHM, *ADDITIONS, "guidance", "data", "iterations"}
        configs = [variant.runs[0].config.model_dump(mode="json", exclude=left_out) for variant in (self, other)]
        return [".".join(path) for path in _differing(configs)]

    def reaching(self, iterations: int) -> list[Run]:
        """Return the runs that have so many iterations."""
        return [run for run in self.runs if run.iterations >= iterations]


@dataclass(frozen=True)
class Environment:
    """The variants that were run in one environment; runs of different environments never share a picture."""

    name: str
    variants: Sequence[Variant]

    @property
    def runs(self) -> list[Run]:
        """All runs in it."""
        return [run for variant in self.variants for run in variant.runs]

    @property
    def slug(self) -> str:
        """Its name as part of a file's name."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-").lower()[:SLUG_CHARACTERS]

    def variant(self, name: str) -> Variant:
        """Return the variant of a name."""
        return next(variant for variant in self.variants if variant.name == name)


@dataclass(frozen=True)
class Collection:
    """What was found: runs by environment and variant, and sentences on what was left out."""

    environments: Sequence[Environment]
    warnings: Sequence[str]

    @property
    def runs(self) -> list[Run]:
        """All runs."""
        return [run for environment in self.environments for run in environment.runs]


def collect_runs(folders: Iterable[Path]) -> Collection:
    """Search folders for runs, and group them by environment and variant.

    Runs are the seeds of one variant if their configurations differ in nothing but the seed, threads,
    checkpoint_every and keep_replay. Where a run's folder is called `seed-N`, the folder above names the variant, and
    the paths of datasets and heuristics, which may be made anew for each seed, may differ too.
    """
    folders = list(folders)
    warnings: list[str] = []
    runs = [run for folder in _run_folders(folders) if (run := _read_run(folder, warnings)) is not None]
    if not runs:
        names = ", ".join(str(folder) for folder in folders)
        hint = f" ({warnings[0]})" if warnings else ""
        raise ReportError(
            f"there is no run to report in {names}{hint}: name folders that hold runs of `hurl train` or of a campaign"
        )
    by_environment = defaultdict(list)
    for run in runs:
        by_environment[printable(run.config.environment.name)].append(run)
    environments = [Environment(name, _variants(found, warnings)) for name, found in sorted(by_environment.items())]
    return Collection(environments, warnings)


def collect_panels(panels: Mapping[str, Iterable[Path]]) -> Collection:
    """Search the folders of each panel of a figure for its runs; a panel has a title in place of an environment's name.

    :param panels: folders by title; those of one panel are of one environment
    """
    environments: list[Environment] = []
    warnings: list[str] = []
    for title, folders in panels.items():
        try:
            found = collect_runs(folders)
        except ReportError as error:
            warnings.append(f"{title} is not in the report: {error}")
            continue
        if len(found.environments) > 1:
            names = ", ".join(environment.name for environment in found.environments)
            warnings.append(f"{title} is not in the report: it can't be one picture, its runs are of {names}")
        else:
            environments.append(Environment(title, found.environments[0].variants))
            warnings += found.warnings
    if not environments:
        raise ReportError("; ".join(warnings))
    return Collection(environments, warnings)


def _run_folders(folders: Iterable[Path]) -> list[Path]:
    """Return the folders with a config.yaml, each once, in the order of their names and numbers."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"there is no folder {str(folder)!r}: name a run's folder, or one that holds runs")
        for path in _walk(folder):
            found.setdefault(path.resolve(), path)
    return sorted(found.values(), key=_natural)


def _walk(folder: Path) -> Iterator[Path]:
    for name, inner, _ in os.walk(folder):
        path = Path(name)
        if path.name == CampaignFolder.SHARED:  # what is no variant is reported only when named itself
            inner[:] = [kind for kind in inner if kind not in CampaignFolder.NOT_RESULTS]
        if RunFolder(path).exists:
            inner.clear()  # checkpoints and events are no runs
            yield path


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort `seed-2` before `seed-10`."""
    return [(int(part or -1), text) for text, part in re.findall(r"(\D+)(\d*)", str(path))]


def _read_run(folder: Path, warnings: list[str]) -> Run | None:
    """Return the run in a folder, or None with a sentence added to the warnings."""
    try:
        config = RunFolder(folder).parse_config()
    except (ConfigurationError, UnicodeDecodeError) as error:
        warnings.append(f"left out a configuration that is not of this version: {error}")
        return None
    except MisplacedError as error:
        warnings.append(f"left out {folder}: {error}")
        return None
    file = RunFolder(folder).metrics_file
    if not file.is_file():
        warnings.append(f"left out {folder}: it has no {file.name} yet")
        return None
    rows, damaged = _read_rows(file)
    if damaged is not None:
        warnings.append(
            f"{file} is damaged in line {damaged}: the run is reported up to the line before; repeating its command, "
            "where it is not finished, mends what comes after its last checkpoint"
        )
    if not rows:
        warnings.append(f"left out {folder}: its {file.name} has no whole line of results")
        return None
    if rows[-1].iteration == 0 and config.iterations > 0:
        warnings.append(f"left out {folder}: it has only its warm start yet")
        return None
    try:
        _check_rows(RunFolder(folder), rows)
    except (CheckpointError, MisplacedError) as error:
        warnings.append(f"left out {folder}: {error}")
        return None
    return Run(folder, config, rows)


def _read_rows(file: Path) -> tuple[list[Row], int | None]:
    """Return the rows up to the first line that is damaged or has no finite return, and the number of that line."""
    rows: list[Row] = []
    try:
        for row in read_rows(file):
            if not np.isfinite(row.return_mean):
                return rows, len(rows) + 2
            rows.append(row)
    except DamagedError as error:
        return rows, error.line
    return rows, None


def _check_rows(folder: RunFolder, rows: Sequence[Row]) -> None:
    """Refuse rows that are others than those which the newest checkpoint among them was written with."""
    checkpoints = [path for path in checkpoint_paths(folder) if int(path.name) <= rows[-1].iteration]
    if checkpoints:
        check_metrics(folder, checkpoints[-1])


def _variants(runs: Sequence[Run], warnings: list[str]) -> list[Variant]:
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[_group(run)].append(run)
    names = _names([found[0] for found in groups.values()])
    for (parent, _), count in Counter((parent, "") for parent, _ in groups if parent).items():
        if count > 1:
            warnings.append(f"the runs in {parent} differ in more than the seed: they are shown as {count} variants")
    return [
        Variant(name, _without_repetitions(found, warnings))
        for name, found in sorted(zip(names, groups.values(), strict=True), key=lambda pair: pair[0])
    ]


def _group(run: Run) -> tuple[str, str]:
    """Return what the seeds of one variant have in common."""
    config: dict[str, Any] = run.config.model_dump(mode="json", exclude=set(NOT_THE_ALGORITHM))
    if not CampaignFolder.is_seed(run.folder.resolve()):
        return "", json.dumps(config, sort_keys=True)
    for key in ("warm_start", "prior"):
        if config.get(key):
            config[key] |= {"dataset": None, "root": None}
    guidance = run.config.guidance
    if guidance is not None and isinstance(guidance.heuristic, HeuristicFolder):
        config["guidance"] |= {"heuristic": None}
    return str(run.folder.resolve().parent), json.dumps(config, sort_keys=True)


def _names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each group of runs, from its first.

    As few parts of the path as tell them apart, and what differs in their configurations where no path does.
    """
    paths = [_named_folder(run) for run in runs]
    short = {path: path.name for path in paths}
    for parts in range(2, max(len(path.parts) for path in paths)):
        count = Counter(short.values())
        short = {path: name if count[name] == 1 else "/".join(path.parts[-parts:]) for path, name in short.items()}
    names = [printable(short[path]) for path in paths]
    for name, count_of_name in Counter(names).items():
        if count_of_name > 1:
            alike = [index for index, other in enumerate(names) if other == name]
            for index, difference in zip(alike, _differences([runs[index] for index in alike]), strict=True):
                names[index] = f"{name} ({difference})"
    return names


def _differences(runs: Sequence[Run]) -> list[str]:
    """Return for each of some runs what sets it apart: `gamma=0.5`, or its folder where the same is said of two."""
    configs = [run.config.model_dump(mode="json", exclude=set(NOT_THE_ALGORITHM)) for run in runs]
    keys = list(_differing(configs))[:NAMED_DIFFERENCES]
    texts = [", ".join(_setting(config, key) for key in keys)[:DIFFERENCE_CHARACTERS] for config in configs]
    if len({*texts}) < len(texts):
        texts = [str(run.folder.resolve()) for run in runs]
    return [printable(text) for text in texts]


def _differing(configs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the keys in which configurations differ, those within a part that all of them have by their path."""
    for key in {key: None for config in configs for key in config}:
        values = [config.get(key) for config in configs]
        if all(isinstance(value, dict) for value in values):
            yield from ((key, *path) for path in _differing([value or {} for value in values]))
        elif any(value != values[0] for value in values):
            yield (key,)


def _setting(config: Any, path: Sequence[str]) -> str:
    """Write a setting as `--set` takes it, or whether there is a part of the configuration at all."""
    for key in path:
        config = config.get(key)
    name = ".".join(path)
    if config is None or isinstance(config, dict):
        return f"{'without' if config is None else 'with'} {name}"
    return f"{name}={config if isinstance(config, str) else json.dumps(config)}"


def _named_folder(run: Run) -> Path:
    """Return the path whose last part names the variant of a run."""
    folder = run.folder.resolve()
    if CampaignFolder.is_seed(folder):
        return folder.parent
    return folder.with_name(SEED_ENDING.sub("", folder.name) or folder.name)


def _without_repetitions(runs: Sequence[Run], warnings: list[str]) -> list[Run]:
    """Leave out a second run of the same seed: it is no further evidence."""
    kept: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: run.config.seed):
        first = kept.setdefault(run.config.seed, run)
        if first is not run:
            warnings.append(f"left out {run.folder}: {first.folder} is a run of the same seed and configuration")
    return list(kept.values())
