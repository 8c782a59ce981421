"""One trial: a run, scored by the AUC of its training curve, pruned where it is hopeless."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np

from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row, auc
from hurl.experiments.tuning.grid import TuningError
from hurl.experiments.tuning.study import OUTCOMES, STUDY_NAME, Outcome, Study, TrialState
from hurl.files import lock_file

__all__ = ["run_trial"]


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


def _tidy(study: Study, number: int, trial_id: int) -> None:
    """Remove what would fill a disk: all checkpoints but the last, and all of a run that did not go to its end."""
    from hurl.experiments.checkpoint import checkpoint_paths  # heavy, and loaded by the run already

    run = RunFolder(study.run_folder(number))
    complete = study.storage.get_trial(trial_id).state is TrialState.COMPLETE
    checkpoints = checkpoint_paths(run)
    for path in checkpoints[:-1] if complete else [*checkpoints, run.replay]:
        shutil.rmtree(path, ignore_errors=True)
