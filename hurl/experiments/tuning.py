"""Tuning in two stages: the base algorithm first, then λ0 and α with the base fixed; each by random draws from a grid.

A study is a folder:

    study.yaml          what determines it: stage, configuration, grid, seed, how many trials of how many iterations
    journal.log         Optuna's record of the trials, which several processes share
    trials/0007/        the run of trial 7, an ordinary run folder
    locks/, logs/       who is running which trial, the output of each
    shared/             data and heuristic, made once for all trials
    trials.csv, best.yaml, scores.png       the results

A trial is a command of hurl, `hurl tune-trial FOLDER 7`: it does nothing where the trial is finished or another process
has it, and carries on where it was stopped. So a study is run by whatever runs commands, and by several at a time.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hurl.experiments.config import (
    ConfigurationError,
    RunConfig,
    apply_settings,
    as_overrides,
    load_config,
    parse_yaml,
    preset_names,
    validate,
)
from hurl.experiments.folder import Row, RunFolder
from hurl.experiments.tasks import Task
from hurl.files import lock_file, write_whole
from hurl.names import is_yaml, nearest

__all__ = [
    "TRIALS",
    "Configuration",
    "Outcome",
    "Scale",
    "Stage",
    "Study",
    "StudyConfig",
    "Timing",
    "TuningError",
    "auc",
    "best_values",
    "check_grid",
    "check_stage",
    "find_source",
    "plan_scale",
    "rank",
    "read_grid",
    "run_trial",
    "setting_up",
    "timing_config",
    "with_values",
    "write_results",
]

Scalar = bool | int | float | str | None
Grid = dict[str, list[Scalar]]
TrialState = optuna.trial.TrialState

STUDY_NAME = "hurl"
# Pruning compares with the median of finished trials, which a few must make first.
STARTUP_TRIALS = 5
WARM_UP_SHARE = 1 / 4
# What a trial that may be pruned is expected to take: one half go to the end, the other half stop after the warm-up.
PRUNED_SHARE = (1 + WARM_UP_SHARE) / 2
SHORTEST_SHARE = 1 / 4
FEWEST_TRIALS = 2 * STARTUP_TRIALS
TIMING_ITERATIONS = 2


class TuningError(ValueError):
    """A study that can't be run, with what to change."""


class Stage(StrEnum):
    """What is tuned: the base algorithm without guidance, or the guidance with the base fixed."""

    base = "base"
    guidance = "guidance"


# The numbers of random configurations in the paper.
TRIALS = {Stage.base: 300, Stage.guidance: 120}


def find_source(source: str, stage: Stage) -> str:
    """Return the preset variant or YAML file that is tuned; for the base, a preset alone means its plain algorithm."""
    alone = {name.split("/")[0] for name in preset_names()}
    if source not in alone:
        return source
    names = [name for name in preset_names() if name.startswith(f"{source}/")]
    configs = {name: load_config(name) for name in names}
    if stage is Stage.base:
        return next((name for name, config in configs.items() if config.is_plain), names[0])
    guided = [name for name, config in configs.items() if config.guidance is not None]
    raise TuningError(f"{source!r} does not say which guidance to tune: name a variant, such as {' or '.join(guided)}")


def read_grid(name: str, stage: Stage) -> Grid:
    """Return the values to try for each key of the configuration.

    :param name: a grid of the package, such as `mujoco`, or a YAML file with the keys of each stage
    """
    values = parse_yaml(_grid_text(name), name)
    if unknown := [key for key in values if key not in list(Stage)]:
        raise TuningError(
            f"{name}: unknown stage {unknown[0]!r}{nearest(str(unknown[0]), [stage.value for stage in Stage])}"
        )
    if not values.get(stage):
        raise TuningError(f"{name} has no grid for the stage {stage}: choose another with --grid")
    grid = values[stage]
    if not isinstance(grid, dict):
        raise TuningError(f"{name}: {stage} must hold keys of the configuration, each with a list of values")
    for key, choices in grid.items():
        _check_choices(f"{name}: {key}", choices)
    return {str(key): list(choices) for key, choices in grid.items()}


def _grid_text(name: str) -> str:
    if is_yaml(name):
        if not Path(name).is_file():
            raise TuningError(f"there is no grid file {name!r}")
        return Path(name).read_text("utf-8")
    files = {file.name: file for file in resources.files("hurl.experiments").joinpath("grids").iterdir()}
    names = [file.removesuffix(".yaml") for file in sorted(files)]
    if name not in names:
        hint = nearest(name, names) or f"; there are {', '.join(names)}, or give a YAML file"
        raise TuningError(f"there is no grid {name!r}{hint}")
    return files[f"{name}.yaml"].read_text("utf-8")


def _check_choices(name: str, choices: Any) -> None:
    if not isinstance(choices, list) or not choices:
        raise TuningError(f"{name} must be a list of one value or more, got {choices!r}")
    for value in choices:
        if not isinstance(value, bool | int | float | str | None):
            raise TuningError(f"{name}: a value must be a number, a text, true, false or null, got {value!r}")


def check_stage(stage: Stage, config: RunConfig) -> None:
    """Refuse a configuration that the stage has nothing to tune in."""
    if config.iterations == 0:
        raise TuningError("tuning scores the training curve, and a run of 0 iterations has none: set iterations")
    if stage is Stage.base and config.guidance is not None:
        raise TuningError("the base is tuned without guidance: name a variant that has none, or --set guidance=null")
    if stage is Stage.guidance and config.guidance is None:
        raise TuningError("there is no guidance to tune in a configuration without one: name another variant")


def check_grid(grid: Grid, config: RunConfig) -> None:
    """Refuse a grid with a key or a value that the configuration does not take."""
    for key, choices in grid.items():
        if key in ("seed", "iterations"):
            raise TuningError(f"{key!r} can't be in a grid: each trial has its own seed, and all have the same length")
        if config.needs_data and _determines_preparation(key, config):
            raise TuningError(f"{key!r} can't be in the grid, since data and heuristic are made with it once for all")
        if key.startswith("algorithm.parameters."):
            _check_parameter(key.split(".")[2], config)
        for value in choices:
            with_values(config, {key: value})


def _determines_preparation(key: str, config: RunConfig) -> bool:
    if config.heuristic_to_fit is not None and (key == "gamma" or key.startswith("guidance.heuristic")):
        return True
    return key.split(".")[0] == "data"


def _check_parameter(name: str, config: RunConfig) -> None:
    if name in config.algorithm.parameters:
        return
    known = _known_parameters(config)
    if name not in known:
        raise TuningError(
            f"the grid has algorithm.parameters.{name}, but {config.algorithm.name} has no parameter "
            f"{name!r}{nearest(name, known)}"
        )


def _known_parameters(config: RunConfig) -> Collection[str]:
    if config.algorithm.library == "rllib":
        from hurl.experiments.rllib_build import known_parameters

        return known_parameters(config.algorithm.name)
    from hurl.experiments.build import find_algorithm

    return inspect.signature(find_algorithm(config.algorithm.name)).parameters


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with the values of some dotted keys set anew."""
    return validate(apply_settings(config.model_dump(mode="json"), as_overrides(values)), "the grid")


@dataclass(frozen=True)
class Timing:
    """What a trial takes, measured by a short run.

    :param startup: seconds before its first iteration
    :param iteration: seconds of an iteration
    """

    startup: float
    iteration: float

    @classmethod
    def of_runs(cls, runs: Sequence[Sequence[Row]], seconds: float) -> Timing:
        """Return what the rows of short runs say, which took so long side by side.

        The last iteration is what all that follow take; the first compiles, which counts as before.
        """
        last = [rows[-1] for rows in runs]
        iteration = float(np.mean([row.seconds for row in last]))
        return cls(max(seconds - last[0].iteration * iteration, 0.0), iteration)


@dataclass(frozen=True)
class Scale:
    """How much is tried: so many trials of so many iterations, hopeless ones pruned or not."""

    trials: int
    iterations: int
    pruning: bool

    @property
    def pruning_starts(self) -> int:
        """The first iteration after which a trial may be pruned."""
        return max(1, int(WARM_UP_SHARE * self.iterations))

    def seconds(self, timing: Timing, *, at_most: bool = False) -> float:
        """Return what all trials take, one after the other.

        :param at_most: whether no trial is pruned; otherwise one half of those that may be are
        """
        whole = self.trials if at_most or not self.pruning else min(self.trials, STARTUP_TRIALS)
        share = whole + PRUNED_SHARE * (self.trials - whole)
        return self.trials * timing.startup + share * self.iterations * timing.iteration


def timing_config(config: RunConfig) -> RunConfig:
    """Return the short run that says what a trial takes."""
    return config.model_copy(update={"iterations": min(config.iterations, TIMING_ITERATIONS)})


def plan_scale(trials: int, iterations: int, timing: Timing, jobs: int, budget: float | None) -> Scale:
    """Fit trials and iterations into a budget.

    Where all fits as it is, nothing is changed. Otherwise hopeless trials are pruned, and that is counted on; if that
    is not enough, runs are shorter, down to a quarter; if that is not enough, there are fewer trials.

    :param budget: in hours, with `jobs` trials at a time; None means no limit
    """
    whole = Scale(trials, iterations, pruning=False)
    available = np.inf if budget is None else 3600 * budget * jobs
    if whole.seconds(timing) <= available:
        return whole
    shortest = max(1, int(np.ceil(SHORTEST_SHARE * iterations)))
    scales = [Scale(trials, length, pruning=True) for length in range(iterations, shortest - 1, -1)]
    scales += [Scale(fewer, shortest, pruning=True) for fewer in range(trials - 1, FEWEST_TRIALS - 1, -1)]
    for scale in scales:
        if scale.seconds(timing) <= available:
            return scale
    least = scales[-1]
    hours = least.seconds(timing) / jobs / 3600
    raise TuningError(
        f"a budget of {budget:g} hours is too little: {least.trials} trials of {least.iterations} iterations, the "
        f"fewest that say something, take {hours:.2g} hours with {jobs} at a time; raise --budget or --jobs"
    )


class StudyConfig(BaseModel):
    """All that determines a study, and what it is expected to take.

    :param source: the preset variant or YAML file that it is of
    :param config: of the best trial but for the grid's keys; its seed is the study's
    :param prepared: the same with the paths of data and heuristic, from which each trial is made
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: Stage
    source: str
    grid: Grid
    budget: float | None = None
    config: RunConfig
    prepared: RunConfig
    scale: Scale
    timing: Timing

    def check_same(self, folder: Path, **wanted: Any) -> None:
        """Refuse to go on with a study of other values than the wanted ones."""
        different = [key for key, value in wanted.items() if getattr(self, key) != value]
        if "config" in different:
            ours, theirs = self.config.model_dump(), wanted["config"].model_dump()
            different.remove("config")
            different += [key for key in ours if ours[key] != theirs[key]]
        if different:
            raise TuningError(
                f"{folder} holds another study (it differs in {', '.join(different)}): choose another --out, "
                "or remove that folder"
            )


class Outcome(StrEnum):
    """What became of a trial."""

    complete = "complete"
    pruned = "pruned"
    failed = "failed"
    elsewhere = "elsewhere"


OUTCOMES = {
    TrialState.COMPLETE: Outcome.complete,
    TrialState.PRUNED: Outcome.pruned,
    TrialState.FAIL: Outcome.failed,
}


class Study:
    """The folder of a study.

    :param folder: made by `setting_up`
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.file = folder / "study.yaml"
        self.journal = folder / "journal.log"
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    @property
    def exists(self) -> bool:
        """Whether it was begun before."""
        return self.file.exists()

    @cached_property
    def settings(self) -> StudyConfig:
        """What determines it."""
        if not self.exists:
            raise TuningError(f"{self.folder} holds no study, it has no {self.file.name}: begin one with `hurl tune`")
        try:
            return StudyConfig.model_validate(parse_yaml(self.file.read_text("utf-8"), str(self.file)))
        except (ValidationError, ConfigurationError, UnicodeDecodeError):
            raise TuningError(f"{self.file} is damaged: remove {self.folder}, or choose another --out") from None

    def write(self, settings: StudyConfig) -> None:
        """Write down what determines it."""
        text = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_whole(self.file, text.encode())
        self.__dict__.pop("settings", None)

    def add_trials(self) -> None:
        """Draw configurations from the grid, as many as are missing.

        They are drawn uniformly and independently, as in the paper, so that one may come twice: with another seed.
        Trial k is the same whoever runs it, and however many there are.
        """
        distributions = {
            key: optuna.distributions.CategoricalDistribution(choices) for key, choices in self.settings.grid.items()
        }
        draws = optuna.create_study(sampler=optuna.samplers.RandomSampler(self.settings.config.seed))
        drawn = [draws.ask(distributions).params for _ in range(self.settings.scale.trials)]
        for values in drawn[len(self.trials) :]:
            self.optuna.add_trial(
                optuna.trial.create_trial(state=TrialState.WAITING, params=values, distributions=distributions)
            )

    @cached_property
    def storage(self) -> Any:
        """Optuna's journal, whose lock holds over a shared folder too."""
        _check_last_line(self.journal)
        backend = optuna.storages.journal
        lock = backend.JournalFileOpenLock(str(self.journal))
        try:
            return optuna.storages.JournalStorage(backend.JournalFileBackend(str(self.journal), lock))
        except (ValueError, KeyError, TypeError, AssertionError):
            raise _damaged(self.journal) from None

    @cached_property
    def optuna(self) -> Any:
        """The study as Optuna sees it."""
        scale = self.settings.scale
        pruner = optuna.pruners.MedianPruner(STARTUP_TRIALS, scale.pruning_starts)
        return optuna.create_study(
            storage=self.storage,
            study_name=STUDY_NAME,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner if scale.pruning else optuna.pruners.NopPruner(),
        )

    @property
    def trials(self) -> list[Any]:
        """All trials, as Optuna knows them now."""
        trials: list[Any] = self.optuna.get_trials(deepcopy=False)
        return trials

    def run_folder(self, number: int) -> Path:
        """Return the folder of a trial's run."""
        return self.folder / "trials" / f"{number:04d}"

    def config_of(self, number: int) -> RunConfig:
        """Return the configuration of a trial, with a seed of its own."""
        own = {"iterations": self.settings.scale.iterations, "seed": _trial_seed(self.settings.config.seed, number)}
        return with_values(self.settings.prepared, self.trials[number].params | own)

    def tasks(self, trials: int) -> list[Task]:
        """Return a command for each of the first so many trials that is not finished; those begun before come first."""
        unfinished = [trial for trial in self.trials[:trials] if not trial.state.is_finished()]
        process = os.getpid()  # another one that helps has logs of its own
        begun = sorted(unfinished, key=lambda trial: trial.state is TrialState.WAITING)
        return [
            Task(
                f"trial {trial.number}",
                ("tune-trial", str(self.folder.resolve()), str(trial.number)),
                self.folder / "logs" / f"{trial.number:04d}-{process}.log",
                cores=self.settings.config.cores,
                gpus=self.settings.config.gpus,
            )
            for trial in begun
        ]


def _check_last_line(journal: Path) -> None:
    """Refuse a journal that was cut in the middle of a line: what is added to it would be lost."""
    for _ in range(5):  # another process may be writing the line
        content = journal.read_bytes() if journal.exists() else b""
        if not content or content.endswith(b"\n"):
            return
        time.sleep(0.2)
    raise _damaged(journal)


def _damaged(journal: Path) -> TuningError:
    return TuningError(
        f"{journal} is damaged: remove it and repeat the command; finished runs are found again in the trials' folders"
    )


def _trial_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1)


@contextmanager
def setting_up(folder: Path, report_waiting: Callable[[], None] = lambda: None) -> Iterator[Study]:
    """Take a study's folder for setting it up, so that of several processes one does it and the others find it done."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "lock").exists() and any(folder.iterdir()):
        raise TuningError(f"{folder} holds other things than a study: choose another --out")
    with (folder / "lock").open("w") as lock:
        if not lock_file(lock):
            report_waiting()
            while not lock_file(lock):
                time.sleep(0.5)
        yield Study(folder)


class _PrunedError(Exception):
    """Raised in the middle of a run whose trial is pruned."""


def run_trial(study: Study, number: int, report: Callable[[Row], None] = lambda row: None) -> Outcome:
    """Run a trial from where it is, unless it is finished or another process has it; return what became of it.

    A run that breaks down, as with weights that diverge, is a failed trial: its configuration is no good. What can
    be mended, such as a full disk, is an error, and leaves the trial to be carried on.

    :param report: called with each row as it comes, those of an earlier part of the run included
    """
    lock_path = study.folder / "locks" / f"{number:04d}"
    lock_path.parent.mkdir(exist_ok=True)
    with lock_path.open("w") as lock:
        if not lock_file(lock):
            return Outcome.elsewhere
        trial_id = _begin(study, number)
        if not study.storage.get_trial(trial_id).state.is_finished():
            _finish(study, number, trial_id, report)
            _tidy(study, number, trial_id)
        return OUTCOMES[study.storage.get_trial(trial_id).state]


def _begin(study: Study, number: int) -> int:
    """Mark a trial that waits as running; return Optuna's id of it."""
    if number >= len(study.trials):
        raise TuningError(f"{study.folder} has no trial {number}: they are 0 to {len(study.trials) - 1}")
    study_id = study.storage.get_study_id_from_name(STUDY_NAME)
    trial_id: int = study.storage.get_trial_id_from_study_id_trial_number(study_id, number)
    if study.storage.get_trial(trial_id).state is TrialState.WAITING:
        study.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    return trial_id


def _finish(study: Study, number: int, trial_id: int, report: Callable[[Row], None]) -> None:
    """Train to the end, and tell Optuna how it ended."""
    from hurl.experiments.run import TrainingFailedError

    try:
        score = auc(_train(study, number, trial_id, report))
    except _PrunedError:
        study.optuna.tell(number, state=TrialState.PRUNED)
    except TrainingFailedError as error:
        study.storage.set_trial_user_attr(trial_id, "reason", str(error))
        study.optuna.tell(number, state=TrialState.FAIL)
    else:
        study.optuna.tell(number, score)


def _train(study: Study, number: int, trial_id: int, report: Callable[[Row], None]) -> list[Row]:
    from hurl.experiments.run import TrainingFailedError, train

    config = study.config_of(number)
    rows: list[Row] = []

    def watch(row: Row) -> None:
        rows.append(row)
        report(row)
        score = auc(rows) if row.iteration > 0 else 0.0
        if not np.isfinite(score):  # Optuna would take such a trial for one without a value
            raise TrainingFailedError(f"its AUC is {score} after iteration {row.iteration}")
        if study.settings.scale.pruning and 0 < row.iteration < config.iterations:
            study.storage.set_trial_intermediate_value(trial_id, row.iteration, score)
            if study.optuna.pruner.prune(study.optuna, study.storage.get_trial(trial_id)):
                raise _PrunedError

    return train(config, study.run_folder(number), watch)


def auc(rows: Sequence[Row]) -> float:
    """Return the score of a run: AUC = 1/n Σ return_i over its iterations 1 … n so far, as in reports."""
    return float(np.mean([row.return_mean for row in rows if row.iteration > 0]))


def _tidy(study: Study, number: int, trial_id: int) -> None:
    """Remove what would fill a disk: all checkpoints but the last, and all of a run that did not go to its end."""
    run = RunFolder(study.run_folder(number))
    complete = study.storage.get_trial(trial_id).state is TrialState.COMPLETE
    checkpoints = sorted(run.checkpoints.iterdir()) if run.checkpoints.exists() else []
    for path in checkpoints[:-1] if complete else [*checkpoints, run.replay]:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Configuration:
    """A point of the grid that was tried.

    :param values: of the grid's keys
    :param scores: AUC of each trial that went to its end
    :param trials: the numbers of these trials
    :param pruned: how many others were pruned
    """

    values: dict[str, Scalar]
    scores: tuple[float, ...]
    trials: tuple[int, ...]
    pruned: int
    failed: int

    @property
    def score(self) -> float:
        """The mean over its trials, which differ in their seeds."""
        return float(np.mean(self.scores))


def rank(study: Study) -> list[Configuration]:
    """Return the configurations with a trial that went to its end, the best first.

    A pruned trial counts with the AUC that it had: without it, a configuration would be judged by its lucky seeds. One
    with trials that broke down comes after all that have none.
    """
    groups: dict[str, list[Any]] = defaultdict(list)
    for trial in study.trials:
        groups[json.dumps(trial.params, sort_keys=True)].append(trial)
    found = []
    for trials in groups.values():
        count = Counter(trial.state for trial in trials)
        if count[TrialState.COMPLETE]:
            values = {key: trials[0].params[key] for key in study.settings.grid}
            scored = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
            scores, numbers = zip(*((trial.value, trial.number) for trial in scored), strict=True)
            pruned, failed = count[TrialState.PRUNED], count[TrialState.FAIL]
            found.append(Configuration(values, scores, numbers, pruned, failed))
    return sorted(found, key=lambda configuration: (configuration.failed > 0, -configuration.score))


def best_values(folder: Path, environment: str) -> Configuration:
    """Return the best configuration of the base that a study has found.

    :param environment: the id that it must be for
    """
    study = Study(folder)
    settings = study.settings
    if settings.stage is not Stage.base:
        raise TuningError(f"{folder} is a study of the stage {settings.stage}: name one of the stage base")
    if settings.config.environment.id != environment:
        raise TuningError(f"{folder} tuned {settings.config.environment.id}, and not {environment}")
    ranked = rank(study)
    if not ranked:
        raise TuningError(f"no trial in {folder} is finished: run that study first")
    return ranked[0]


def write_results(study: Study) -> list[Configuration]:
    """Write the table of trials, the best configuration and the picture; return the configurations, the best first."""
    write_whole(study.folder / "trials.csv", _table(study).encode())
    ranked = rank(study)
    if ranked:
        best = with_values(study.settings.config, ranked[0].values)
        write_whole(study.folder / "best.yaml", best.to_yaml().encode())
        write_whole(study.folder / "scores.png", _draw_scores(study))
    return ranked


def _table(study: Study) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "auc", "iterations", "seconds", "seed", *study.settings.grid])
    for trial in study.trials:
        rows = RunFolder(study.run_folder(trial.number)).read_metrics()
        seconds = sum(row.seconds for row in rows)
        values = [trial.params[key] for key in study.settings.grid]
        seed = _trial_seed(study.settings.config.seed, trial.number)
        state = OUTCOMES[trial.state] if trial.state.is_finished() else trial.state.name.lower()
        score = "" if trial.value is None else trial.value
        iterations = rows[-1].iteration if rows else 0
        writer.writerow([trial.number, state, score, iterations, f"{seconds:.1f}", seed, *values])
    return text.getvalue()


def _draw_scores(study: Study) -> bytes:
    """Draw the AUC of each finished trial against each value of each key, with the median of each value."""
    from matplotlib.figure import Figure

    grid = study.settings.grid
    trials = [trial for trial in study.trials if trial.state is TrialState.COMPLETE]
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(trials))
    figure = Figure(figsize=(3.2 * len(grid) + 0.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(grid), sharey=True, squeeze=False)[0]
    for axes, (key, choices) in zip(panels, grid.items(), strict=True):
        places = np.array([choices.index(trial.params[key]) for trial in trials])
        scores = np.array([trial.value for trial in trials])
        axes.plot(places + jitter, scores, "o", alpha=0.5, markersize=4)
        for place in np.unique(places):
            axes.hlines(np.median(scores[places == place]), place - 0.3, place + 0.3, color="black")
        labels = [f"{value:g}" if isinstance(value, float) else str(value) for value in choices]
        axes.set_xticks(range(len(choices)), labels)
        axes.set(
            xlim=(-0.5, len(choices) - 0.5),
            xlabel=key.removeprefix("algorithm.parameters.").removeprefix("guidance.schedule."),
        )
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("AUC (a dot a trial, line: median)")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    return content.getvalue()
