"""`hurl report`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from hurl.cli.app import app, console, say
from hurl.names import printable

if TYPE_CHECKING:
    from hurl.reports import Collection
    from hurl.reports.report import Report, Section
    from hurl.reports.tables import TextTable


@app.command(epilog="Example:  hurl report runs/hopper --baseline sac-bc --threshold Hopper-v4=2000")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER…", help="Folders of runs; they are searched to any depth.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    baseline: Annotated[
        str | None, typer.Option(metavar="VARIANT", help="What to measure against (by default, what has no guidance).")
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="[ENVIRONMENT=]RETURN", help="Count the steps to this return; once an environment."),
    ] = None,
) -> None:
    """Report on runs: curves and statistics over seeds, in a page that opens offline, with PNG, SVG and CSV."""
    from hurl.reports import collect_runs

    with console.status("reading runs"):
        collection = collect_runs(folders)
    thresholds = _thresholds(threshold or [], [environment.name for environment in collection.environments])
    report_on(collection, out, baseline=baseline, thresholds=thresholds)


def report_on(
    collection: Collection, out: Path, *, baseline: str | None = None, thresholds: Mapping[str, float] | None = None
) -> None:
    """Write a report into a folder, and print its tables."""
    from hurl.reports import compute_report, write_report

    command = shlex.join(["hurl", *sys.argv[1:]])
    with console.status(f"reporting on {len(collection.runs)} runs"):
        report = compute_report(collection, baseline=baseline, thresholds=thresholds, command=command)
        write_report(report, out)
    _print_report(report, out)


def _print_report(report: Report, out: Path) -> None:
    from hurl.reports.tables import gauntlet_summary, gauntlet_table, summary_table

    for warning in report.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    for section in report.sections:
        title = f"{section.environment.name}, {section.caption}"
        _print(title, summary_table(section), leave_out={_less_telling(section)})
        for remark in section.remarks:
            say(f"  {remark}")
    if report.gauntlet:
        table = gauntlet_table(report.gauntlet)
        _print("The gauntlet", table, leave_out=set(table.headings[1:4]))  # how good, seeds, iterations
        say(f"The gauntlet: {gauntlet_summary(report.gauntlet)}")
    if len(report.sections) > 1:
        _print_scores(report)
    say(f"Report: {out / 'report.html'}, pictures and tables beside it", bold=out / "report.html")


def _print_scores(report: Report) -> None:
    from hurl.reports.tables import scores_table

    if not report.scores:
        say(f"No scores over environments: {'; '.join(report.remarks)}")
        return
    _print("Scores over environments", scores_table(report.scores), leave_out={"median", "mean"})
    for remark in report.remarks:
        say(f"  {remark}")


def _thresholds(texts: list[str], environments: list[str]) -> dict[str, float]:
    """Return the thresholds by environment; a number alone is for the only one."""
    thresholds = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name and len(environments) > 1:
            raise ValueError(
                f"--threshold {text} does not say which of {', '.join(environments)} it is for: "
                f"write --threshold {environments[0]}={text}"
            )
        try:
            thresholds[name or environments[0]] = float(number)
        except ValueError:
            raise ValueError(f"--threshold {text!r} is not of the form RETURN or ENVIRONMENT=RETURN") from None
    return thresholds


def _less_telling(section: Section) -> str:
    """Return which comparison to leave out: the difference, or the ratio where there is none."""
    ratios = any(summary.ratio is not None for summary in section.summaries)
    return f"AUC {'−' if ratios else '/'} {section.baseline}"


def _print(title: str, table: TextTable, leave_out: set[str]) -> None:
    """Print a table as far as it fits a terminal; the page has the other columns too."""
    shown = Table(title=title, title_justify="left")
    columns = [index for index, heading in enumerate(table.headings) if heading not in leave_out]
    for index in columns:
        heading = table.headings[index]
        is_one_word = " " not in heading and all(len(row[index]) <= len(heading) for row in table.rows)
        shown.add_column(heading, justify="right" if index else "left", overflow="fold", no_wrap=is_one_word)
    for row in table.rows:
        shown.add_row(*(row[index] for index in columns))
    console.print(shown)
