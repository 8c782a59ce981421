"""`hurl reproduce`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hurl.cli.app import Settings, Trust, app, console, make_table
from hurl.cli.chain import chain
from hurl.cli.report import report_on
from hurl.cli.steps import Jobs, Ray, count_jobs, run_campaign
from hurl.experiments.campaign import parse_seeds
from hurl.experiments.process import prepare_process
from hurl.experiments.reproduce import Cost, Reproduction, plan_reproduction
from hurl.experiments.tasks import TasksFailedError


@app.command(epilog="Example:  hurl reproduce figure-2f --scale overnight --dry-run")
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE|TABLE|gauntlet",
            help="figure-1 to 4, a panel such as figure-2f, table-1 to 5, or the gauntlet, gauntlet-hopper, …",
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="paper (30 seeds, 20 of Procgen, 3 to 5 of the gauntlet), overnight (3, shorter) or tiny (a trial)."
        ),
    ] = "paper",
    seeds: Annotated[str | None, typer.Option(help="Seeds such as 0-4, in place of the scale's.")] = None,
    games: Annotated[str | None, typer.Option(help="Games of figure-4, such as coinrun,starpilot.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Environment steps of each run, in place of the scale's.")
    ] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    out: Annotated[Path | None, typer.Option(help="The folder (reproductions/FIGURE-SCALE by default).")] = None,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, and stop.")] = False,
    trust: Trust = False,
) -> None:
    """Make a figure of the paper, or the gauntlet: data, heuristics and runs with its settings, then a report.

    The gauntlet is guidance by good and bad heuristics, with constant λ and with the ladder, against the algorithm
    alone.

    A trial of each environment tells first what it will cost. The same command carries on where a stopped one left off.

    The tables are of configurations: they are printed as the presets have them.
    """
    if name.startswith("table"):
        _print_paper_table(name)
        return
    if name == "figure-1":
        chain(out or Path("reproductions") / name)
        return
    at_a_time = count_jobs(jobs, ray)
    folder = out or Path("reproductions") / f"{name}-{scale}"
    plan = plan_reproduction(
        name,
        scale,
        folder,
        seeds=None if seeds is None else parse_seeds(seeds),
        games=None if games is None else [game.strip() for game in games.split(",")],
        steps=steps,
        settings=settings or [],
        trust=trust,
    )
    console.print("How fast it goes:")
    run_campaign(plan.trials, jobs=at_a_time, ray=ray)
    _print_costs(plan.costs(plan.speeds()), at_a_time if ray is None else None)
    if dry_run:
        return
    try:
        run_campaign(plan.campaign, jobs=at_a_time, ray=ray)
    except TasksFailedError:
        from hurl.reports import ReportError

        with suppress(ReportError):
            _report(plan, folder)  # what there is; then say what is missing
        raise
    _report(plan, folder)


def _report(plan: Reproduction, folder: Path) -> None:
    """Report on the runs that there are."""
    from hurl.reports import collect_panels

    panels = {}
    for name, panel in plan.panels.items():
        variants = [folder / panel.name / variant for variant in panel.variants]
        begun = [variant for variant in variants if variant.is_dir()]
        title = panel.title if panel.cells else f"{name[-2:]} {panel.title}"
        panels[title] = begun or [folder / panel.name]
    report_on(collect_panels(panels), folder / "report")


def _print_paper_table(name: str) -> None:
    prepare_process(threads=1)
    from hurl.experiments.paper_tables import paper_table

    headings, rows = paper_table(name)
    console.print(make_table(headings, rows, left=headings[:1], title=name, title_justify="left"))


def _print_costs(costs: list[Cost], jobs: int | None) -> None:
    """Print what it costs, and how long it takes where so many run at a time."""
    headings = ("preset", "runs", "iterations of all", "seconds an iteration", "core-hours")
    table = make_table(headings, left=("preset",), title="What it costs", title_justify="left")
    for cost in costs:
        speed, hours = f"{cost.speed.iteration:.2f}", f"{cost.seconds / 3600:,.2f}"
        table.add_row(cost.preset, str(cost.runs), f"{cost.iterations:,}", speed, hours)
    console.print(table)
    total = sum(cost.seconds for cost in costs) / 3600
    duration = "" if jobs is None else f", about {total / jobs:,.2f} hours with {jobs} at a time"
    console.print(f"{total:,.2f} core-hours in all, with data, heuristics and starting{duration}.")
