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

    grid.py     what is tuned, and the values to try
    scale.py    how much is tried, within a budget
    study.py    the folder;  setup.py how it begins
    trials.py   one trial
    results.py  which configuration is the best
"""

from hurl.experiments.tuning.grid import (
    TRIALS,
    Grid,
    Stage,
    TuningError,
    check_grid,
    check_stage,
    default_grid,
    find_source,
    read_grid,
    with_values,
)
from hurl.experiments.tuning.results import Configuration, best_values, rank, write_results
from hurl.experiments.tuning.scale import Scale, Timing, plan_scale
from hurl.experiments.tuning.setup import set_up
from hurl.experiments.tuning.study import Outcome, Study, StudyConfig, setting_up
from hurl.experiments.tuning.trials import run_trial

__all__ = [
    "TRIALS",
    "Configuration",
    "Grid",
    "Outcome",
    "Scale",
    "Stage",
    "Study",
    "StudyConfig",
    "Timing",
    "TuningError",
    "best_values",
    "check_grid",
    "check_stage",
    "default_grid",
    "find_source",
    "plan_scale",
    "rank",
    "read_grid",
    "run_trial",
    "set_up",
    "setting_up",
    "with_values",
    "write_results",
]
