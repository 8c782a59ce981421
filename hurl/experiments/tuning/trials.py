"""One trial: a run, scored by the AUC of its training curve, pruned where it is hopeless."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna

from hurl.experiments.errors import TrainingEndedError, TrainingFailedError
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row, auc
from hurl.experiments.tuning.grid import TuningError
from hurl.experiments.tuning.study import Study, TrialState
from hurl.files import lock_file, make_folder, open_lock, remove
from hurl.own_code import check_trust


def run_trial(
    study: Study, number: int, report: Callable[[Row], None] = lambda row: None, *, trust: bool = False
) -> TrialState:
    """Run a trial from where it is, unless it is finished or another process has it; return the state that it is in.

    A run that breaks down, as with weights that diverge, is a failed trial: its configuration is no good. What can
    be mended, such as a full disk, is an error, and leaves the trial to be carried on. One that a callback has ended,
    as where its task is solved, counts with the iterations that it had.

    :param report: called with each row as it comes, those of an earlier part of the run included
    :param trust: whether code that the study names may be run, other than hurl's own
    """
    if number >= len(study.trials):
        raise TuningError(f"{study.folder} has no trial {number}: they are 0 to {len(study.trials) - 1}")
    lock_path = study.folder / "locks" / f"{number:04d}"
    make_folder(lock_path.parent)
    with open_lock(lock_path) as lock:
        if lock_file(lock) and not study.trials[number].state.is_finished():
            check_trust(study.file, study.config_of(number).code, trust)
            _finish(study, study.begin(number), report, trust)
            _tidy(study, number)
    return study.trials[number].state


def _finish(study: Study, trial: optuna.Trial, report: Callable[[Row], None], trust: bool) -> None:
    """Train to the end, and tell Optuna how it ended."""
    from hurl.experiments.run import train

    config = study.config_of(trial.number)
    known = study.trials[trial.number].intermediate_values  # of an earlier part of the run
    is_finished = RunFolder(study.run_folder(trial.number)).is_finished(config)  # as where the journal was lost
    rows: list[Row] = []

    def watch(row: Row) -> None:
        rows.append(row)
        report(row)
        score = auc(rows) if row.iteration > 0 else 0.0
        if not np.isfinite(score):  # Optuna would take such a trial for one without a value
            raise TrainingFailedError(f"its AUC is {score} after iteration {row.iteration}")
        if study.settings.scale.pruning and 0 < row.iteration < config.iterations:
            if row.iteration not in known:
                trial.report(score, row.iteration)
            if not is_finished and trial.should_prune():
                raise optuna.TrialPruned

    try:
        study.optuna.tell(trial, auc(train(config, study.run_folder(trial.number), watch, trust=trust)))
    except TrainingEndedError:
        study.optuna.tell(trial, auc(rows))
    except optuna.TrialPruned:
        study.optuna.tell(trial, state=TrialState.PRUNED)
    except TrainingFailedError as error:
        trial.set_user_attr("reason", str(error))
        study.optuna.tell(trial, state=TrialState.FAIL)


def _tidy(study: Study, number: int) -> None:
    """Remove what would fill a disk: all checkpoints but the last, and all of a run that did not go to its end."""
    from hurl.experiments.checkpoint import checkpoint_paths  # heavy, and loaded by the run already

    run = RunFolder(study.run_folder(number))
    checkpoints = checkpoint_paths(run)
    complete = study.trials[number].state is TrialState.COMPLETE
    for path in checkpoints[:-1] if complete else checkpoints:
        remove(path)
    run.remove_replay()
