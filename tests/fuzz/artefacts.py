"""Damaged runs, heuristics, datasets, zip files and studies, and the commands that read them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.harness import Outcome, Trap, Verdict, call, differences, digest, make_canary, run_hurl
from tests.fuzz.works import COLLECT, DATASET, NAME, SAC, metrics, shelf, write_yaml

TRAIN = ("train", "run.yaml", "--out", NAME)
EVALUATE = ("evaluate", NAME, "--episodes", "1")
REPORT = ("report", NAME, "--out", "report")
FIT = ("fit", "value-function", "--run", NAME, "--out", "heuristic")
DIAGNOSE = ("diagnose", f"{NAME}-h", "--dataset", DATASET, "--root", "data", "--out", "diagnosis")
REGRESS = ("fit", "monte-carlo", "--dataset", DATASET, "--root", "data", "--gamma", "0.9", "--out", "heuristic")
GUIDED = (*TRAIN, "--set", f"guidance.heuristic={NAME}-h", "--set", "gamma=0.9")
PRIOR = (*TRAIN, "--set", f"prior={{dataset: {DATASET}, root: data}}")
ZIP = ("collect", f"{NAME}.zip", "--algorithm", "sb3.SAC", "--env", "Pendulum-v1", *COLLECT[2:])
TRIAL = ("tune-trial", f"{NAME}-study", "0")
CHANGING = ("collect", "train", "tune-trial")  # commands that go on with what they find


@dataclass(frozen=True)
class Artefact:
    """Something that hurl wrote, and that may come back damaged.

    :param files: what is damaged, files and folders
    :param commands: which read it; one that is named more often is tried more often
    """

    files: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


def _under(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


RUN_FILES = _under(
    NAME, "config.yaml", "metrics.csv", "versions.json", "inputs.json", "lock", "checkpoints", "tensorboard"
)
ARTEFACTS = {
    "unfinished run": Artefact(
        (
            *RUN_FILES,
            *_under(NAME, "replay", "replay/000001.npz", "replay/000002.npz", "checkpoints/000001/state.json"),
            *_under(f"{NAME}/checkpoints/000002", "state.json", "model.safetensors", ""),
        ),
        (TRAIN, TRAIN, TRAIN, EVALUATE, COLLECT, REPORT),
    ),
    "finished run": Artefact(
        (*RUN_FILES, *_under(f"{NAME}/checkpoints/000004", "state.json", "model.safetensors", "")),
        (TRAIN, TRAIN, EVALUATE, REPORT, COLLECT, FIT),
    ),
    "heuristic": Artefact(_under(f"{NAME}-h", "config.json", "weights.safetensors", ""), (DIAGNOSE, GUIDED)),
    "dataset": Artefact(
        _under(f"data/{DATASET}", "data/main_data.hdf5", "data/metadata.json", "data", ""),
        (DIAGNOSE, PRIOR, COLLECT, REGRESS),
    ),
    "zip file": Artefact((f"{NAME}.zip",), (ZIP,)),
    "study": Artefact(_under(f"{NAME}-study", "study.yaml", "journal.log", "lock", "trials"), (TRIAL,)),
}


# Damage --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """What happens to a file or folder.

    :param kind: a name of `DAMAGES`
    :param place: where in the file, from 0 to 1
    """

    kind: str
    place: float = 0.0


def _cut(path: Path, place: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(place * len(content))])


def _flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[int(place * len(content))] ^= 1 << int(place * 1000) % 8
        path.write_bytes(content)


def _change_digit(path: Path, place: float) -> None:
    content = path.read_bytes()
    digits = [match.start() for match in re.finditer(rb"\d", content)]
    if digits:
        at = digits[int(place * len(digits))]
        path.write_bytes(content[:at] + b"%d" % ((int(content[at : at + 1]) + 1) % 10) + content[at + 1 :])


def _repeat_line(path: Path, place: float) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = int(place * len(lines))
    path.write_bytes(b"".join(lines[: at + 1] + lines[at:]))


def _drop_line(path: Path, place: float) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = int(place * len(lines))
    path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))


def _swap(path: Path, place: float) -> None:
    """Exchange it with a file beside it, or of the same name elsewhere."""
    near = {*path.parent.iterdir(), *path.parent.parent.glob(f"*/{path.name}")} - {path}
    others = sorted(other for other in near if other.is_file())
    if others:
        other = others[int(place * len(others))]
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(ours)


def _grow(path: Path, place: float) -> None:
    path.write_bytes(path.read_bytes() + bytes(range(256)) * (1 + int(place * 16)))


def _link_to(target: str) -> Callable[[Path, float], None]:
    """Return what puts a link in the place of a path; `foreign` is the folder of somebody else beside the case's."""

    def link(path: Path, place: float) -> None:
        root = next(parent for parent in path.parents if (parent.parent / "foreign").is_dir())
        path.symlink_to(root.parent / target)

    return link


# Of what is there, and what stands in its place, or where there is nothing.
CHANGES = {
    "change a digit": _change_digit,
    "cut": _cut,
    "drop a line": _drop_line,
    "empty": lambda path, place: path.write_bytes(b""),
    "flip a bit": _flip,
    "grow": _grow,
    "repeat a line": _repeat_line,
    "swap": _swap,
}
REPLACEMENTS = {
    "a folder": lambda path, place: path.mkdir(parents=True),
    "a link to a device": _link_to("/dev/zero"),
    "a link to another's file": _link_to("foreign/mine.npz"),
    "a link to another's folder": _link_to("foreign"),
    "a link to nowhere": _link_to("nowhere"),
    "a pipe": lambda path, place: os.mkfifo(path),
    "nothing": lambda path, place: None,
}


def damage(path: Path, change: Damage) -> None:
    """Damage a file or folder; a folder can only be replaced, and what is missing not be changed."""
    if change.kind in REPLACEMENTS:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        REPLACEMENTS[change.kind](path, change.place)
    elif path.is_file():
        CHANGES[change.kind](path, change.place)


# Cases ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damaged:
    """A command that reads what was damaged.

    :param artefact: a name of `ARTEFACTS`
    :param file: what is damaged, a path in the working folder
    """

    artefact: str
    file: str
    damage: Damage
    words: tuple[str, ...]

    def run(self, folder: Path) -> Verdict:
        """Run the command, and see what it has changed."""
        here = folder / "here"
        shutil.copytree(workshop() / self.artefact, here)
        canary = digest(make_canary(folder / "foreign"))
        damage(here / self.file, self.damage)
        before = digest(here)
        verdict = run_hurl(self.words, here).verdict
        lost = differences(canary, digest(folder / "foreign"))
        if verdict.outcome is Outcome.refused or self.words[0] not in CHANGING:
            lost += [path for path in differences(before, digest(here)) if not _is_transient(path)]
        if lost:
            return Verdict(Outcome.foreign, ", ".join(lost))
        if (
            verdict.outcome is Outcome.ran
            and self.words == TRAIN
            and metrics(here) != metrics(workshop() / "finished run")
        ):
            return Verdict(Outcome.different, "the metrics are not those of a run left alone")
        is_named = NAME in verdict.detail or Path(self.file).name in verdict.detail
        if verdict.outcome in (Outcome.refused, Outcome.failed) and not is_named:
            return Verdict(Outcome.raw, f"what is damaged is not named: {verdict.detail}")
        return verdict


def _is_transient(path: str) -> bool:
    """Return whether a file is one that a command may write, or clear away, before it refuses."""
    return path.endswith((".part", "/lock", "/journal.log"))


@st.composite
def cases(draw: st.DrawFn) -> Damaged:
    """Return a strategy of damaged artefacts and the commands that read them."""
    name = draw(st.sampled_from(sorted(ARTEFACTS)))
    artefact = ARTEFACTS[name]
    kind = draw(st.sampled_from(sorted([*CHANGES, *REPLACEMENTS])))
    place = draw(st.integers(0, 999)) / 1000
    return Damaged(
        name, draw(st.sampled_from(artefact.files)), Damage(kind, place), draw(st.sampled_from(artefact.commands))
    )


# What is damaged -----------------------------------------------------------------------------------------------------


@cache
def workshop() -> Path:
    """Make each artefact, with what its commands need beside it, in a folder of its own."""
    made = shelf() / "artefacts"
    finished = made / "finished run"
    finished.mkdir(parents=True)
    write_yaml(SAC, finished)
    shutil.copytree(finished, made / "unfinished run")
    assert run_hurl(TRAIN, made / "unfinished run", trap=Trap(1, path="000003")).code == -9
    _run(finished, TRAIN)

    heuristic = made / "heuristic"
    shutil.copytree(finished, heuristic)
    _run(heuristic, COLLECT)
    _run(heuristic, (*FIT[:-1], f"{NAME}-h"))
    shutil.copytree(heuristic, made / "dataset")
    for name in ("heuristic", "dataset"):  # commands train runs of their own there
        shutil.rmtree(made / name / NAME)
    for name, make in (("zip file", save_zip), ("study", begin_study)):
        (made / name).mkdir()
        result = call(make, (), made / name)
        assert result.code == 0, result.errors
    return made


def _run(folder: Path, words: tuple[str, ...]) -> None:
    result = run_hurl(words, folder)
    assert result.code == 0, result.errors


def save_zip() -> None:
    """Save a model as Stable-Baselines3 does."""
    import stable_baselines3

    stable_baselines3.SAC("MlpPolicy", "Pendulum-v1", **SAC["algorithm"]["parameters"]).save(f"{NAME}.zip")


def begin_study() -> None:
    """Begin a study of two trials."""
    from hurl.experiments.config import RunConfig
    from hurl.experiments.tuning.grid import Stage
    from hurl.experiments.tuning.scale import Scale, Timing
    from hurl.experiments.tuning.study import StudyConfig, setting_up

    config = RunConfig.model_validate(SAC | {"guidance": None, "iterations": 2})
    grid: dict[str, Any] = {"gamma": [0.9, 0.95]}
    with setting_up(Path(f"{NAME}-study")) as study:
        scale, timing = Scale(2, config.iterations, False), Timing(1.0, 1.0)
        study.write(
            StudyConfig(
                stage=Stage.base,
                source="run.yaml",
                grid=grid,
                config=config,
                prepared=config,
                scale=scale,
                timing=timing,
            )
        )
        study.add_trials()
