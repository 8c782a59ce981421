"""Pictures of a report as PNG and SVG files; the page draws the same data."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hurl.experiments.metrics import CHARTS, Chart
from hurl.files import write_whole
from hurl.reports.gauntlet import GUIDED, CellScores
from hurl.reports.report import Report, Section
from hurl.reports.statistics import CONFIDENCE, PROFILE_SCORES, Estimate

# Okabe and Ito's colours, which people with any colour vision tell apart, without the yellow that is faint on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
# Lengths of dash and gap, in points: they tell curves apart from the ninth on, where the colours begin again.
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 2), (6, 2, 2, 2))
LEGEND_CHARACTERS = 70  # under a panel of several
NAME_CHARACTERS = 60  # of a variant or environment, of which a picture shows no more
FEW = 3  # points that a line of fewer is marked at, for it may be of one
RATIOS = (0.08, 12.5)  # the axis of the gauntlet
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hurl",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # names with $ are names
}


@dataclass(frozen=True)
class Look:
    """How a variant is drawn, in all pictures."""

    color: str
    dashes: tuple[float, ...]


def looks_of(report: Report) -> dict[str, Look]:
    """Return the look of each variant, the same in all pictures; two that share a picture differ."""
    together = [{variant.name for variant in section.environment.variants} for section in report.sections]
    places: dict[str, int] = {}
    for name in sorted(report.variants, key=lambda name: (-sum(name in names for names in together), name)):
        taken = {places[other] for names in together if name in names for other in names if other in places}
        places[name] = next(place for place in count() if place not in taken)
    return {name: Look(COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]) for name, i in places.items()}


def label_of(name: str) -> str:
    """Return a name as a picture shows it: a long one cut, one with an underscore first not hidden by it."""
    shown = name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"
    return f" {shown}" if shown.startswith("_") else shown


def ratios_of(section: Section) -> tuple[str, float, list[tuple[str, Estimate]]]:
    """Return what the AUCs of an environment are compared by, its neutral value, and each variant's.

    Ratios to the baseline, or differences where the baseline's AUC is not positive.
    """
    others = [summary for summary in section.summaries if summary.variant != section.baseline]
    if all(summary.ratio is not None for summary in section.summaries):
        return f"AUC / {section.baseline}", 1.0, [(s.variant, s.ratio) for s in others if s.ratio is not None]
    return f"AUC − {section.baseline}", 0.0, [(s.variant, s.difference) for s in others]


def write_pictures(report: Report, out: Path) -> None:
    """Draw the pictures of a report: curves and AUC of each environment, and the scores."""
    looks = looks_of(report)
    with mpl.rc_context(SETTINGS):
        for section in report.sections:
            for picture in dict.fromkeys(chart.picture for chart in section.charts):
                _save(_draw_picture(section, picture, looks), out / f"{section.slug}-{picture}")
            if len(section.summaries) > 1:
                _save(_draw_ratios(section, looks), out / f"{section.slug}-auc")
        if len(report.sections) > 1:
            _save(_draw_all_returns(report, looks), out / "returns")
        if report.score_titles:
            _save(_draw_scores(report, looks), out / "scores")
        if report.scores:
            _save(_draw_profiles(report, looks), out / "profiles")
        if report.gauntlet:
            _save(_draw_gauntlet(report.gauntlet), out / "gauntlet")


def _save(figure: Figure, file: Path) -> None:
    for ending, metadata in (("png", {}), ("svg", {"Date": None})):
        write_whole(file.with_name(f"{file.name}.{ending}"), _content(figure, ending, metadata))


def gauntlet_png(cells: Sequence[CellScores]) -> bytes:
    """Return the picture of the gauntlet as a PNG file has it."""
    with mpl.rc_context(SETTINGS):
        return _content(_draw_gauntlet(cells), "png", {})


def _content(figure: Figure, ending: str, metadata: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=130, metadata=metadata)
    return content.getvalue()


def _draw_gauntlet(cells: Sequence[CellScores]) -> Figure:
    """Draw a row for each cell: AUC of constant λ and of the ladder over that of the base, on a logarithmic scale."""
    figure = Figure(figsize=(8.4, 1.6 + 0.42 * len(cells)), layout="constrained")
    axes = figure.add_subplot()
    for (column, title), color, shift in zip(GUIDED.items(), COLORS[1::-1], (-0.14, 0.14), strict=True):
        drawn = [(place + shift, ratio) for place, cell in enumerate(cells) if (ratio := cell.ratio(column))]
        for place, ratio in drawn:
            _draw_ratio(axes, place, ratio, color)
        axes.plot([], [], "o", color=color, label=title)
    axes.axvline(1.0, color="0.4", linewidth=1, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlim(*RATIOS)
    axes.set_xticks(ticks := [0.1, 0.2, 0.5, 1, 2, 5, 10], [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_yticks(range(len(cells)), [f"{cell.environment}, {cell.heuristic}" for cell in cells])
    for label, cell in zip(axes.get_yticklabels(), cells, strict=True):
        label.set_fontweight("bold" if cell.good else "normal")
    for place, (before, after) in enumerate(pairwise(cells), start=1):
        if before.environment != after.environment:
            axes.axhline(place - 0.5, color="0.85", linewidth=0.8)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    axes.set(
        title="The gauntlet (bold: heuristics that were expected to be good)",
        xlabel=f"AUC / AUC of the base, {CONFIDENCE:.0%} bootstrap interval",
    )
    figure.legend(loc="outside lower center", frameon=False, ncols=len(GUIDED))
    return figure


def _draw_ratio(axes: Any, place: float, ratio: Estimate, color: str) -> None:
    """Draw a ratio and its interval; one beyond the axis as an arrow at its end, with the number."""
    low, high = RATIOS[0] * 1.05, RATIOS[1] / 1.05
    if ratio.low is not None and ratio.high is not None:
        axes.hlines(place, *np.clip((ratio.low, ratio.high), low, high), color=color, linewidth=5, alpha=0.35)
    marker = "<" if ratio.value < low else ">" if ratio.value > high else "o"
    axes.plot(np.clip(ratio.value, low, high), place, marker, color=color)
    if marker != "o":
        at_left = marker == "<"
        axes.annotate(
            f"{ratio.value:.3g}",
            (low if at_left else high, place),
            (8 if at_left else -8, 0),
            textcoords="offset points",
            ha="left" if at_left else "right",
            va="center",
            fontsize=8,
            color=color,
        )


def _draw_picture(section: Section, picture: str, looks: dict[str, Look]) -> Figure:
    """Draw the charts of a picture side by side."""
    charts = [chart for chart in section.charts if chart.picture == picture]
    figure = Figure(figsize=(3.4 + 4.2 * len(charts), 4.4), layout="constrained")
    panels = figure.subplots(1, len(charts), squeeze=False)[0]
    for axes, chart in zip(panels, charts, strict=True):
        _draw_chart(axes, section, chart, looks)
    figure.suptitle(label_of(section.environment.name))
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right center", frameon=False, title="variant (seeds)")
    return figure


def _draw_all_returns(report: Report, looks: dict[str, Look]) -> Figure:
    """Draw the curves of all environments side by side, each on axes of its own."""
    columns = 2 if len(report.sections) == 4 else min(3, len(report.sections))
    rows = -(-len(report.sections) // columns)
    figure = Figure(figsize=(4.2 * columns, 4.0 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for section, axes in zip(report.sections, panels, strict=False):
        _draw_chart(axes, section, CHARTS["return_mean"], looks)
        axes.set(title=label_of(section.environment.name), ylabel="")
        longest = max(len(label) for label in axes.get_legend_handles_labels()[1])
        fitting = max(1, LEGEND_CHARACTERS // (longest + 8))  # each with its line and some room
        axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=min(4, fitting))
    for axes in panels:
        axes.set_axis_off()
    figure.suptitle("Return: median, 25th to 75th percentile; variant (seeds)", fontsize=10)
    return figure


def _draw_chart(axes: Any, section: Section, chart: Chart, looks: dict[str, Look]) -> None:
    for variant, curve in zip(section.environment.variants, section.curves, strict=True):
        values = [curve.columns[line] for line in chart.lines]
        _draw_curve(
            axes, curve.steps, values, looks[variant.name], f"{label_of(variant.name)} ({int(curve.seeds.max())})"
        )
    axes.set_title(chart.title, fontsize=9)
    axes.set(xlabel="environment steps", ylabel=chart.label)
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(6))
    axes.grid(alpha=0.25)


def _draw_curve(axes: Any, steps: Any, values: Sequence[Any], look: Look, label: str) -> None:
    """Draw a line, with a band where a lower and an upper limit are given; a curve of one step is a level."""
    middle, *band = values
    style = {"color": look.color, "dashes": look.dashes or (None, None), "label": label, "linewidth": 1.8}
    if len(steps) == 1:
        if np.isfinite(middle[0]):
            axes.axhline(middle[0], **style)
            if band:
                axes.axhspan(*(limit[0] for limit in band), color=look.color, alpha=0.15, linewidth=0)
        return
    axes.plot(steps, middle, marker="o" if np.isfinite(middle).sum() < FEW else "", **style)
    if band:
        axes.fill_between(steps, *band, color=look.color, alpha=0.15, linewidth=0)


def _short(value: float) -> str:
    """Write a number of steps: 250k, 1.5M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


def _draw_ratios(section: Section, looks: dict[str, Look]) -> Figure:
    title, neutral, rows = ratios_of(section)
    title = label_of(title)
    figure = Figure(figsize=(6.4, 1.4 + 0.36 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    _draw_intervals(axes, rows, looks)
    axes.axvline(neutral, color="0.4", linewidth=1, linestyle=":")
    axes.set(
        title=f"{label_of(section.environment.name)}: {title}", xlabel=f"{title}, {CONFIDENCE:.0%} bootstrap interval"
    )
    return figure


def _draw_scores(report: Report, looks: dict[str, Look]) -> Figure:
    titles = report.score_titles
    figure = Figure(figsize=(max(2.8 * len(titles), 5.6), 1.5 + 0.36 * len(report.scores)), layout="constrained")
    panels = figure.subplots(1, len(titles), squeeze=False, sharey=True)[0]
    for axes, (score, title) in zip(panels, titles.items(), strict=True):
        _draw_intervals(axes, [(row.variant, getattr(row, score)) for row in report.scores], looks)
        axes.set_title(title, fontsize=9)
        if score == "improvement":
            axes.axvline(0.5, color="0.4", linewidth=1, linestyle=":")
    what = "scores over environments" if len(report.sections) > 1 else label_of(report.sections[0].environment.name)
    figure.suptitle(f"{what}, {CONFIDENCE:.0%} bootstrap intervals")
    return figure


def _draw_profiles(report: Report, looks: dict[str, Look]) -> Figure:
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for row in report.scores:
        values, lows, highs = (np.array(column, float) for column in zip(*map(astuple, row.profile), strict=True))
        axes.step(PROFILE_SCORES, values, where="post", color=looks[row.variant].color, label=label_of(row.variant))
        axes.fill_between(PROFILE_SCORES, lows, highs, step="post", color=looks[row.variant].color, alpha=0.12)
    axes.set(xlabel="score τ", ylabel="share of runs above τ", ylim=(-0.02, 1.02), title="performance profiles")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))  # profiles may be anywhere
    return figure


def _draw_intervals(axes: Any, rows: Sequence[tuple[str, Estimate | None]], looks: dict[str, Look]) -> None:
    """Draw a row for each variant, with its estimate where it has one."""
    for place, (name, estimate) in enumerate(rows):
        if estimate is None:
            continue
        color = looks[name].color
        if estimate.low is not None and estimate.high is not None:
            axes.hlines(place, estimate.low, estimate.high, color=color, linewidth=7, alpha=0.35)
        axes.plot(estimate.value, place, "o", color=color)
    axes.set_yticks(range(len(rows)), [label_of(name) for name, _ in rows])
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
