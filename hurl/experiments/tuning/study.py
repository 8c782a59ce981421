"""The folder of a study: what determines it, its trials, and who may write to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from pydantic import ValidationError

from hurl.experiments.config import RunConfig, Strict, with_values
from hurl.experiments.errors import ConfigurationError, RunFolderError
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.metrics import Row
from hurl.experiments.tasks import Task
from hurl.experiments.tuning.grid import Grid, Stage, TuningError
from hurl.experiments.tuning.scale import STARTUP_TRIALS, Scale, Timing
from hurl.experiments.yaml_text import parse_yaml, write_yaml
from hurl.files import lock_file, open_lock, read_regular, write_whole

TrialState = optuna.trial.TrialState

STUDY_NAME = "hurl"


class StudyConfig(Strict):
    """All that determines a study, and what it is expected to take.

    :param source: the preset variant or YAML file that it is of
    :param config: of the best trial but for the grid's keys; its seed is the study's
    :param prepared: the same with the paths of data and heuristic, from which each trial is made
    """

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


class _JournalLock:
    """One writer at a time; unlike Optuna's own, which is a file that must be removed, it ends with its process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self) -> bool:
        """Wait for the journal."""
        self.file = self.path.open("a")
        return lock_file(self.file, wait=True)

    def release(self) -> None:
        """Leave the journal to others."""
        self.file.close()


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
            return StudyConfig.model_validate(parse_yaml(read_regular(self.file), str(self.file)))
        except (ValidationError, ConfigurationError):
            raise TuningError(f"{self.file} is damaged: remove {self.folder}, or choose another --out") from None

    def write(self, settings: StudyConfig) -> None:
        """Write down what determines it."""
        text = write_yaml(settings.model_dump(mode="json"))
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
        """Optuna's journal."""
        _check_last_line(self.journal)
        lock = _JournalLock(self.journal.with_name(f"{self.journal.name}.lock"))
        try:
            return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(self.journal), lock))
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
        return list(self.optuna.get_trials(deepcopy=False))

    def begin(self, number: int) -> Any:
        """Return a trial to report to and to tell the end of, marked as running."""
        study_id = self.storage.get_study_id_from_name(STUDY_NAME)
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
        if self.trials[number].state is TrialState.WAITING:
            self.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        return optuna.Trial(self.optuna, trial_id)

    def run_folder(self, number: int) -> Path:
        """Return the folder of a trial's run."""
        return self.folder / "trials" / f"{number:04d}"

    def rows_of(self, number: int) -> list[Row]:
        """Return the metrics of a trial's run; none where they are damaged, as the trial itself will say."""
        try:
            return RunFolder(self.run_folder(number)).read_metrics()
        except RunFolderError:
            return []

    def config_of(self, number: int) -> RunConfig:
        """Return the configuration of a trial, with a seed of its own."""
        own = {"iterations": self.settings.scale.iterations, "seed": trial_seed(self.settings.config.seed, number)}
        return with_values(self.settings.prepared, self.trials[number].params | own, "the grid")

    def tasks(self, trials: int, *, trust: bool = False) -> list[Task]:
        """Return a command for each of the first so many trials that is not finished; those begun before come first.

        :param trust: whether code that the study names may be run, other than hurl's own
        """
        unfinished = [trial for trial in self.trials[:trials] if not trial.state.is_finished()]
        process = os.getpid()  # another one that helps has logs of its own
        return [
            Task(
                f"trial {trial.number}",
                ("tune-trial", str(self.folder), str(trial.number), *(("--trust",) if trust else ())),
                CampaignFolder(self.folder).log(f"{trial.number:04d}-{process}"),
                cores=self.settings.config.cores,
                gpus=self.settings.config.gpus,
            )
            for trial in sorted(unfinished, key=lambda trial: trial.state is TrialState.WAITING)
        ]


def _check_last_line(journal: Path) -> None:
    """Refuse a journal that was cut in the middle of a line: what is added to it would be lost."""
    for _ in range(5):  # another process may be writing the line
        content = read_regular(journal) if journal.exists() else b""
        if not content or content.endswith(b"\n"):
            return
        time.sleep(0.2)
    raise _damaged(journal)


def _damaged(journal: Path) -> TuningError:
    return TuningError(
        f"{journal} is damaged: remove it and repeat the command; finished runs are found again in the trials' folders"
    )


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of a trial, from that of the study."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1)


@contextmanager
def setting_up(folder: Path, wait: Callable[[str], AbstractContextManager[object]] = nullcontext) -> Iterator[Study]:
    """Take a study's folder for setting it up, so that of several processes one does it and the others find it done.

    :param wait: entered with a sentence while another process has it
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "lock").exists() and any(folder.iterdir()):
        raise TuningError(f"{folder} holds other things than a study: choose another --out")
    with open_lock(folder / "lock") as lock:
        if not lock_file(lock):
            with wait(f"waiting for the process that sets {folder} up"):
                while not lock_file(lock):
                    time.sleep(0.5)
        yield Study(folder)
