"""Which configuration is the best, and the table and picture of all trials."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hurl.experiments.config import with_values
from hurl.experiments.sources import as_text
from hurl.experiments.tuning.grid import Scalar, Stage, TuningError
from hurl.experiments.tuning.study import Study, TrialState, trial_seed
from hurl.files import write_table, write_whole


@dataclass(frozen=True)
class Configuration:
    """A point of the grid that was tried.

    :param values: of the grid's keys
    :param scores: AUC of each trial, that of a pruned one up to where it was stopped
    :param trials: the numbers of these trials
    :param pruned: how many of them were pruned
    :param failed: how many others broke down
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
    headings = ["trial", "state", "auc", "iterations", "seconds", "seed", *study.settings.grid]
    write_table(study.folder / "trials.csv", headings, _rows(study))
    ranked = rank(study)
    if ranked:
        best = with_values(study.settings.config, ranked[0].values, "the grid")
        write_whole(study.folder / "best.yaml", best.to_yaml().encode())
        write_whole(study.folder / "scores.png", _draw_scores(study))
    return ranked


def _rows(study: Study) -> Iterator[list[object]]:
    for trial in study.trials:
        rows = study.rows_of(trial.number)
        seconds = sum(row.seconds for row in rows)
        values = [trial.params[key] for key in study.settings.grid]
        seed = trial_seed(study.settings.config.seed, trial.number)
        state = "failed" if trial.state is TrialState.FAIL else trial.state.name.lower()
        iterations = rows[-1].iteration if rows else 0
        yield [trial.number, state, trial.value, iterations, f"{seconds:.1f}", seed, *values]


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
        axes.set_xticks(range(len(choices)), [as_text(value) for value in choices])
        axes.set(
            xlim=(-0.5, len(choices) - 0.5),
            xlabel=key.removeprefix("algorithm.parameters.").removeprefix("guidance.schedule."),
        )
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("AUC (a dot a trial, line: median)")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    return content.getvalue()
