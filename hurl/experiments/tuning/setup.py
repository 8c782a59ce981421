"""How a study begins: what all trials are made from is made, short runs are timed, trials are drawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hurl.experiments.campaign import Campaign
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import RunFolder
from hurl.experiments.sources import split_variant
from hurl.experiments.tuning.grid import Grid, Stage, check_grid
from hurl.experiments.tuning.scale import Scale, Timing, plan_scale
from hurl.experiments.tuning.study import Study, StudyConfig, setting_up
from hurl.files import remove
from hurl.names import is_yaml

TIMING_ITERATIONS = 2

# Runs steps, so many at a time, under a heading that says what for.
Run = Callable[[str, Campaign, int], None]


def set_up(
    folder: Path,
    source: str,
    stage: Stage,
    config: RunConfig,
    grid: Grid,
    *,
    trials: int,
    jobs: int,
    budget: float | None,
    run: Run,
    wait: Callable[[str], AbstractContextManager[object]],
    trust: bool = False,
) -> Study:
    """Return the study in a folder, begun where there is none.

    :param source: the preset variant or YAML file that it is of
    :param trials: how many there are to be; fewer where a budget is short
    :param jobs: how many will run at a time
    :param budget: in hours; None means no limit
    :param run: runs what comes before the trials: the steps that make data and heuristic, and short runs to time
    :param wait: entered with a sentence while another process sets the study up
    :param trust: see `Campaign`
    """
    given: dict[str, Any] = {"stage": stage, "grid": grid, "budget": budget, "config": config}
    if not Study(folder).exists:
        check_grid(grid, config)
    with setting_up(folder, wait) as study:
        if study.exists:
            study.settings.check_same(folder, **given)
            scale = study.settings.scale
            if budget is None and trials > scale.trials:
                more = Scale(trials, scale.iterations, scale.pruning)
                study.write(study.settings.model_copy(update={"scale": more}))
        else:
            prepared = _prepare(config, folder, run, trust)
            timing = _measure(prepared, folder, jobs, run, trust or Campaign.names_fitted_code(config))
            scale = plan_scale(trials, config.iterations, timing, jobs, budget)
            given["source"] = str(Path(source).resolve()) if is_yaml(split_variant(source)[0]) else source
            study.write(StudyConfig(**given, prepared=prepared, scale=scale, timing=timing))
        study.add_trials()
    return study


def _prepare(config: RunConfig, folder: Path, run: Run, trust: bool) -> RunConfig:
    """Make data and heuristic, once for all trials; return the configuration with their paths."""
    if not config.needs_data:
        return config
    plan = Campaign(folder, trust=trust)
    prepared, _ = plan.prepare(config)
    run("First what all trials are made from:", plan, 1)
    return prepared


def _measure(config: RunConfig, folder: Path, jobs: int, run: Run, trust: bool) -> Timing:
    """Return what a trial takes, by short runs side by side; what is wrong with all trials is found here, too."""
    short = Campaign(folder / "timing", trust=trust)
    remove(short.folder.path)  # half of a run says nothing of a whole one
    first = config.model_copy(update={"iterations": min(config.iterations, TIMING_ITERATIONS)})
    runs = [short.add_training(f"short run {number}", first, short.folder.run("run", number)) for number in range(jobs)]
    started = time.perf_counter()
    run("How long a trial takes:", short, jobs)
    timing = Timing.of_runs([RunFolder(run.folder).read_metrics() for run in runs], time.perf_counter() - started)
    remove(short.folder.path)
    return timing
