"""`hurl tune`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from hurl.cli.app import Settings, Trust, app, console, interruptible, make_table, say
from hurl.cli.progress import LiveTable, describe, describe_last
from hurl.cli.steps import Jobs, Ray, count_jobs, run_campaign, run_steps
from hurl.experiments.campaign import Campaign, run_name
from hurl.experiments.config import RunConfig, load_config, with_values
from hurl.experiments.metrics import LABELS
from hurl.experiments.process import prepare_process
from hurl.experiments.sources import as_text, split_variant
from hurl.experiments.tasks import State
from hurl.experiments.tuning.grid import TRIALS, Stage, TuningError, check_stage, find_source, read_grid
from hurl.own_code import check_trust, foreign_code, look_beside

if TYPE_CHECKING:
    from hurl.experiments.tuning.study import Study

BEST = 10


@app.command(
    epilog="Example:  hurl tune hopper --stage base --budget 8 --out tuning/hopper,  then  "
    "hurl tune hopper/hurl-mc --stage guidance --from tuning/hopper --budget 8"
)
def tune(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.yaml", help="A preset's variant (alone: its sac), or a YAML file.")
    ],
    stage: Annotated[Stage, typer.Option(help="What to tune: base (without guidance) or guidance.")],
    trials: Annotated[int | None, typer.Option(min=1, help="Random configurations (base 300, guidance 120).")] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="Make it fit: hopeless trials are pruned, runs are shorter (a quarter at least), then trials fewer.",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE.yaml", help="Values to try: mujoco, procgen (for RLlib) or a file of yours."),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="For guidance: a study of the base, to use its best."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The study's seed; each trial has one of its own.")] = 0,
    out: Annotated[Path | None, typer.Option(help="The study's folder (tuning/NAME/STAGE by default).")] = None,
    settings: Settings = None,
    trust: Trust = False,
) -> None:
    """Tune in the paper's two stages: random configurations from a grid, the AUC of the training curve as the score.

    The same command carries on where a stopped one left off; given in a second terminal, it helps the first.
    """

    def run(heading: str, plan: Campaign, jobs: int) -> None:
        console.print(heading)
        run_campaign(plan, jobs=jobs, ray=ray, shared=True)

    at_a_time = count_jobs(jobs, ray)
    if ray is not None and budget is not None:
        raise TuningError("--budget is for this machine: with --ray, say how many --trials there are to be")
    if budget is not None and budget <= 0:
        raise TuningError(f"--budget {budget:g} must be more than 0 hours")
    if any(setting.startswith("seed=") for setting in settings or []):
        raise TuningError("each trial has a seed of its own: choose the study's with --seed")
    source = find_source(source, stage)
    config = _load(source, stage, base, [*(settings or []), f"seed={seed}"], trust)
    values = read_grid(grid or config.algorithm.library.grid, stage)
    texts = [str(choice) for choices in values.values() for choice in choices]
    named = foreign_code([*config.code, *(text for text in texts if ":" in text)])
    folder = out or Path("tuning") / run_name(source) / stage
    wanted = trials or TRIALS[stage]
    prepare_process(config.threads)
    from hurl.experiments.tuning.setup import set_up

    with interruptible():
        study = set_up(
            folder,
            source,
            stage,
            config,
            values,
            trials=wanted,
            jobs=at_a_time,
            budget=budget,
            run=run,
            wait=console.status,
            trust=trust,
        )
        number = study.settings.scale.trials if budget is not None else wanted
        _print_plan(study, number, at_a_time if ray is None else None)
        try:
            with _StudyTable(study, number, at_a_time) as table:
                tasks = study.tasks(number, trust=trust or bool(named))
                run_steps(tasks, table.show, jobs=at_a_time, ray=ray, root=study.folder, shared=True)
        finally:
            _print_results(study, number)


def _load(source: str, stage: Stage, base: Path | None, settings: list[str], trust: bool = False) -> RunConfig:
    """Return what is tuned, with the best values of a study of the base put in where one is named."""
    look_beside(split_variant(source)[0])
    config = load_config(source, settings)
    check_stage(stage, config)
    if base is None:
        return config
    if stage is Stage.base:
        raise TuningError(f"--from {base} is for the stage guidance: leave it out for the base")
    from hurl.experiments.tuning.results import best_values

    best = best_values(base, config.environment.id)
    numbers = ", ".join(str(number) for number in best.trials)
    say(f"The base of {base}: AUC {best.score:.1f} of trial {numbers}, {_text(best.values)}")
    tuned = with_values(config, best.values, "the grid")
    check_trust(base, [name for name in tuned.code if name not in config.code], trust)
    return tuned


def _print_plan(study: Study, trials: int, jobs: int | None) -> None:
    """Say what there is to do and how long it takes.

    :param jobs: trials at a time; None where a cluster decides
    """
    scale, timing = study.settings.scale, study.settings.timing
    share = trials / scale.trials / (jobs or 1) / 3600
    side_by_side = "one after the other on a machine like this" if jobs is None else f"{jobs} at a time"
    hours = _hours(scale.seconds(timing) * share)
    text = f"{trials} trials of {scale.iterations} iterations, {side_by_side}: about {hours}"
    if scale.pruning:
        most = scale.seconds(timing, at_most=True) * share
        text += (
            f", at most {_hours(most)}; from iteration {scale.pruning_starts} on, a trial whose AUC is below the "
            "median of the finished ones is stopped"
        )
    say(f"{text} → {study.folder}", bold=study.folder)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min" if hours >= 1 / 60 else f"{3600 * hours:.0f} s"


def _print_results(study: Study, trials: int) -> None:
    from hurl.experiments.tuning.results import write_results

    ranked = write_results(study)
    left = sum(not trial.state.is_finished() for trial in study.trials[:trials])
    if left:
        console.print(f"{left} of {trials} trials are not finished, or run by another process")
    if not ranked:
        say(f"No trial went to its end; all are in {study.folder / 'trials.csv'}")
        return
    console.print(f"The best of {len(ranked)} configurations, AUC as the mean over the trials of each:")
    table = make_table(("AUC", "trials", "pruned", *map(_short, study.settings.grid)))
    for configuration in ranked[:BEST]:
        numbers = f"{configuration.score:.1f}", str(len(configuration.scores)), str(configuration.pruned)
        table.add_row(*numbers, *map(as_text, configuration.values.values()))
    console.print(table)
    say(f"Best: {study.folder / 'best.yaml'}; trials.csv and scores.png are beside it", bold=study.folder / "best.yaml")


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _text(values: dict[str, Any]) -> str:
    return ", ".join(f"{_short(key)} {as_text(value)}" for key, value in values.items())


class _StudyTable(LiveTable):
    """The trials that run, how many are finished, the best and the time left; a line a trial without a terminal."""

    def __init__(self, study: Study, trials: int, jobs: int) -> None:
        super().__init__()
        self.study, self.trials = study, trials
        self.started = time.monotonic()
        self.finished = {trial.number for trial in study.trials[:trials] if trial.state.is_finished()}
        self.before = len(self.finished)
        scale = study.settings.scale
        self.seconds = scale.seconds(study.settings.timing) / scale.trials / jobs

    def show(self, states: dict[str, State]) -> None:
        """Show what runs, and what was finished since."""
        trials = self.study.trials[: self.trials]
        done = [trial for trial in trials if trial.state.is_finished()]
        news = [trial for trial in done if trial.number not in self.finished]
        self.finished |= {trial.number for trial in news}
        if console.is_terminal:
            running = [trial for trial in trials if states.get(f"trial {trial.number}") is State.running]
            self.update(self._table(running))
        elif news:
            for trial in news:
                print(f"{_describe(trial)}  ({_text(trial.params)})", flush=True)
            print(self._summary(), flush=True)

    def _summary(self) -> str:
        from hurl.experiments.tuning.results import rank

        here = len(self.finished) - self.before
        each = (time.monotonic() - self.started) / here if here else self.seconds
        left = each * (self.trials - len(self.finished)) / 3600
        ranked = rank(self.study)
        best = f", best AUC {ranked[0].score:.1f}" if ranked else ""
        return f"{len(self.finished)}/{self.trials} trials{best}, about {_hours(left)} left"

    def _table(self, running: list[Any]) -> Table:
        grid = self.study.settings.grid
        headings = ("trial", "iteration", *LABELS, *map(_short, grid))
        table = make_table(headings, title=self._summary(), title_justify="left")
        for trial in running:
            progress = describe_last(self.study.rows_of(trial.number), self.study.settings.scale.iterations)
            values = (as_text(trial.params[key]) for key in grid)
            table.add_row(str(trial.number), *progress, *values)
        return table


def _describe(trial: Any) -> str:
    """Say what became of a trial."""
    if trial.state.name == "COMPLETE":
        return f"trial {trial.number}: AUC {trial.value:.1f}"
    if trial.state.name == "PRUNED":
        return f"trial {trial.number}: pruned after iteration {trial.last_step}, AUC {trial.value:.1f} so far"
    if trial.state.name == "FAIL":
        return f"trial {trial.number}: failed, {trial.user_attrs.get('reason')}"
    return f"trial {trial.number}: another process has it"


@app.command("tune-trial", hidden=True, epilog="Example:  hurl tune-trial tuning/hopper 7")
def tune_trial(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A study's folder.")],
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=0, help="Which of its trials.")],
    trust: Trust = False,
) -> None:
    """Run one trial of a study of `hurl tune`, which starts this command for each."""
    from hurl.experiments.tuning.study import Study
    from hurl.experiments.tuning.trials import run_trial

    study = Study(folder)
    look_beside(split_variant(study.settings.source)[0])
    prepare_process(study.settings.config.threads)
    with interruptible():
        run_trial(
            study, number, lambda row: print(f"iteration {row.iteration}  {describe(row)}", flush=True), trust=trust
        )
    print(_describe(study.trials[number]))
