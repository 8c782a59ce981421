"""Tables of a report: what they say, and their CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hurl.files import write_table, write_whole
from hurl.reports.gauntlet import FINAL_ITERATIONS, GUIDED, CellScores, worst_of
from hurl.reports.report import Report, Section
from hurl.reports.statistics import LAST_ITERATIONS, SCORE_TITLES, AggregateScores, Estimate, Summary

NOTHING = "—"
MOST_DIGITS = 6  # of a number: what differs only behind them is rounding


@dataclass(frozen=True)
class TextTable:
    """A table for people: the first column is on the left, numbers on the right.

    :param strong: row and column of the cells that stand out
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: frozenset[tuple[int, int]] = field(default=frozenset())


def summary_table(section: Section) -> TextTable:
    """Return the table of an environment."""
    rows, baseline = section.summaries, section.baseline
    auc, final = (form_of([getattr(row, name) for row in rows]) for name in ("auc", "final"))
    ratio = form_of([row.ratio for row in rows], 1.0)
    difference = f"+{form_of([row.difference for row in rows], 0.0)}"
    last = min([LAST_ITERATIONS, *(row.iterations for row in rows if row.iterations)])
    headings = ["variant", "seeds", "iterations", "AUC", f"final return (last {last})"]
    headings += [f"steps to {section.threshold:,.5g}"]
    if len(rows) > 1:  # one alone is measured against nothing
        headings += [f"AUC / {baseline}", f"AUC − {baseline}"]
    return TextTable(
        headings,
        [
            [
                row.variant,
                str(row.seeds) + (f" of {row.seeds + row.unfinished}" if row.unfinished else ""),
                str(row.iterations) + (f" of {row.planned}" if row.iterations < row.planned else ""),
                show(row.auc, auc),
                show(row.final, final),
                _samples(row),
                "baseline" if row.variant == baseline else show(row.ratio, ratio),
                "baseline" if row.variant == baseline else show(row.difference, difference),
            ][: len(headings)]
            for row in rows
        ],
    )


def _samples(summary: Summary) -> str:
    """Write after how many steps the median seed is at the threshold, and how many seeds ever are."""
    if summary.reached == 0:
        return "never"
    reached = f"{summary.reached} of {summary.seeds}"
    if summary.samples is None:
        return f"{reached} seeds"
    return f"{summary.samples:,.0f}" + (f" ({reached})" if summary.reached < summary.seeds else "")


def form_of(estimates: Iterable[Estimate | None], *others: float) -> str:
    """Return the format of a column of numbers: three significant digits of the range that they lie in.

    :param others: numbers that belong to the range, as 1 does to that of ratios
    """
    values = [value for one in estimates if one is not None for value in (one.value, one.low, one.high)]
    numbers = [value for value in (*values, *others) if value is not None and math.isfinite(value)]
    largest = max(map(abs, numbers), default=0.0)
    spread = max(numbers, default=0.0) - min(numbers, default=0.0)
    return f"z,.{max(0, min(_decimals(spread or largest, 3), _decimals(largest, MOST_DIGITS)))}f"


def _decimals(size: float, digits: int) -> int:
    """Return how many decimals a number of some size needs for so many significant digits."""
    return digits - 1 - math.floor(math.log10(size)) if size > 0 else 0


def scores_table(scores: Sequence[AggregateScores]) -> TextTable:
    """Return the table of scores over environments."""
    headings = ("variant", "environments", "seeds each", *SCORE_TITLES.values())
    form = form_of([], 0.0, 1.0)
    rows = [
        [row.variant, str(len(row.environments)), str(row.seeds), *(show(getattr(row, s), form) for s in SCORE_TITLES)]
        for row in scores
    ]
    return TextTable(headings, rows)


def gauntlet_table(cells: Sequence[CellScores]) -> TextTable:
    """Return the table of the gauntlet; the worst cell of constant λ and that of the ladder stand out."""
    headings = ["environment, heuristic", "", f"seeds: base, {', '.join(GUIDED.values())}", "iterations"]
    headings += ["AUC of the base"]
    headings += [f"AUC, {title} / base" for title in GUIDED.values()]
    headings += ["AUC, ladder / constant λ", f"last {FINAL_ITERATIONS}, ladder / constant λ"]
    rows = [
        [
            f"{cell.environment}, {cell.heuristic}",
            "good" if cell.good else "",
            ", ".join(str(cell.scores[name].seeds) if name in cell.scores else "0" for name in ("base", *GUIDED)),
            str(cell.iterations),
            show(cell.scores["base"].auc, form_of([cell.scores["base"].auc], 0.0)),
            *(show(cell.ratio(column), ".2f") for column in GUIDED),
            show(cell.kept, ".2f"),
            show(cell.kept_last, ".2f"),
        ]
        for cell in cells
    ]
    first = len(headings) - 2 - len(GUIDED)
    worst = ((worst_of(cells, column), first + place) for place, column in enumerate(GUIDED))
    return TextTable(headings, rows, frozenset((cells.index(cell), place) for cell, place in worst if cell is not None))


def gauntlet_summary(cells: Sequence[CellScores]) -> str:
    """Return what counts of the gauntlet in a sentence: the worst cells."""
    texts = []
    for column, title in GUIDED.items():
        cell = worst_of(cells, column)
        if cell is not None:
            ratio = show(cell.ratio(column), ".2f")
            texts.append(
                f"{title} has {ratio} of the base's AUC in its worst cell, {cell.environment}, {cell.heuristic}"
            )
    return f"{'; '.join(texts)}." if texts else "No cell has been run together with its base."


def as_markdown(table: TextTable) -> str:
    """Return a table as Markdown has it."""
    lines = ["| " + " | ".join(table.headings) + " |", "|---|" + "---:|" * (len(table.headings) - 1)]
    for row, cells in enumerate(table.rows):
        shown = (f"**{cell}**" if (row, column) in table.strong else cell for column, cell in enumerate(cells))
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def show(estimate: Estimate | None, form: str) -> str:
    """Write a number and its interval: `1.40 [1.21, 1.58]`."""
    if estimate is None or not np.isfinite(estimate.value):
        return NOTHING
    text = format(estimate.value, form)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{format(estimate.low, form)}, {format(estimate.high, form)}]"


def write_tables(report: Report, out: Path) -> None:
    """Write the CSV files of a report: curves and table of each environment, and the scores."""
    for section in report.sections:
        write_table(out / f"{section.slug}-curves.csv", *_curves(section))
        write_table(out / f"{section.slug}-table.csv", *_summaries(section))
    write_table(out / "scores.csv", *_scores(report.scores))
    if report.gauntlet:
        write_table(out / "gauntlet.csv", *_gauntlet(report.gauntlet))
        text = f"{gauntlet_summary(report.gauntlet)}\n\n{as_markdown(gauntlet_table(report.gauntlet))}"
        write_whole(out / "gauntlet.md", text.encode())


def _curves(section: Section) -> tuple[list[str], Iterable[Sequence[object]]]:
    headings = ["variant", "iteration", "steps", "seconds", "seeds", *section.curves[0].columns]

    def rows() -> Iterable[Sequence[object]]:
        for variant, curve in zip(section.environment.variants, section.curves, strict=True):
            columns = [curve.iterations, curve.steps, curve.seconds, curve.seeds, *curve.columns.values()]
            for values in zip(*(column.tolist() for column in columns), strict=True):
                iteration, steps, seconds, seeds, *rest = values
                yield variant.name, int(iteration), int(steps), round(seconds, 3), int(seeds), *rest

    return headings, rows()


def _summaries(section: Section) -> tuple[list[str], Iterable[Sequence[object]]]:
    headings = ["variant", "seeds", "unfinished", "iterations"]
    headings += _triple("auc") + _triple("final_return")
    headings += ["threshold", "steps_to_threshold", "seeds_reaching_threshold", "baseline"]
    headings += _triple("auc_ratio") + _triple("auc_difference")
    rows = [
        [
            *(row.variant, row.seeds, row.unfinished, row.iterations),
            *_values(row.auc),
            *_values(row.final),
            *(section.threshold, row.samples, row.reached, section.baseline),
            *_values(row.ratio),
            *_values(row.difference),
        ]
        for row in section.summaries
    ]
    return headings, rows


def _scores(scores: Sequence[AggregateScores]) -> tuple[list[str], Iterable[Sequence[object]]]:
    headings = ["variant", "environments", "seeds", *(name for score in SCORE_TITLES for name in _triple(score))]
    rows = [
        [
            *(row.variant, " ".join(row.environments), row.seeds),
            *(value for score in SCORE_TITLES for value in _values(getattr(row, score))),
        ]
        for row in scores
    ]
    return headings, rows


def _gauntlet(cells: Sequence[CellScores]) -> tuple[list[str], Iterable[Sequence[object]]]:
    headings = ["environment", "heuristic", "good", "iterations"]
    columns = ("base", *GUIDED)
    for column in columns:
        headings += [f"{column}_seeds", *_triple(f"{column}_auc"), *_triple(f"{column}_last")]
    headings += [name for column in GUIDED for name in _triple(f"{column}_auc_ratio")]
    headings += _triple("ladder_over_constant_auc") + _triple("ladder_over_constant_last")

    def rows() -> Iterable[Sequence[object]]:
        for cell in cells:
            row: list[object] = [cell.environment, cell.heuristic, cell.good, cell.iterations]
            for column in columns:
                score = cell.scores.get(column)
                row += [None] * 7 if score is None else [score.seeds, *_values(score.auc), *_values(score.last)]
            estimates = [*(cell.ratio(column) for column in GUIDED), cell.kept, cell.kept_last]
            yield row + [value for estimate in estimates for value in _values(estimate)]

    return headings, rows()


def _triple(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _values(estimate: Estimate | None) -> list[float | None]:
    return [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]
