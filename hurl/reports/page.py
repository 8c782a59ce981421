"""The page of a report: one HTML file with its data, style and script inside, which needs no network."""

from __future__ import annotations

import base64
import html
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from hurl import __version__
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.metrics import CHARTS, SUCCESS, Chart
from hurl.experiments.reproduce import gauntlet_panels
from hurl.names import HeuristicFolder
from hurl.reports.collect import Floats, Variant
from hurl.reports.gauntlet import FINAL_ITERATIONS
from hurl.reports.pictures import Look, gauntlet_png, looks_of, ratios_of
from hurl.reports.report import Report, Section
from hurl.reports.statistics import (
    CONFIDENCE,
    LAST_ITERATIONS,
    PROFILE_SCORES,
    RESAMPLES,
    RLIABLE_RESAMPLES,
    THRESHOLD_SHARE,
    AggregateScores,
    Curve,
    Estimate,
    Percentiles,
)
from hurl.reports.tables import TextTable, gauntlet_summary, gauntlet_table, scores_table, summary_table

# Numbers of the data are rounded to so many digits: more can't be seen, and would make the page several times as large.
DIGITS, DIGITS_OF_SEEDS = 6, 4
# What is black on paper is white on a dark screen.
BLACK, INK = "#000000", "currentColor"
# Before the names of the charts of losses, which are tags and might be those of others.
LOSS = "loss:"
ENDINGS = ("svg", "png")


def page_of(report: Report) -> str:
    """Return the page."""
    looks = looks_of(report)
    sections = "\n".join(_section(section, index) for index, section in enumerate(report.sections))
    return Template(_asset("report.html")).substitute(
        title=html.escape(_title(report)),
        style=_asset("report.css"),
        script=_asset("report.js"),
        data=_json(_data(report, looks)),
        overview=_overview(report),
        switches=_switches(report),
        warnings=_warnings(report.warnings),
        gauntlet=_gauntlet(report),
        sections=sections,
        scores=_scores(report),
        method=_method(),
        reproduce=_reproduce(report),
    )


def _asset(name: str) -> str:
    return resources.files("hurl.reports").joinpath("page", name).read_text("utf-8")


def _title(report: Report) -> str:
    return f"Report on {', '.join(section.environment.name for section in report.sections)}"


def _json(data: Any) -> str:
    """Return data for a script element: nothing in it may end the element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _data(report: Report, looks: dict[str, Look]) -> dict[str, Any]:
    return {
        "charts": {
            **{chart.name: {"label": chart.label, "wide": chart.is_wide} for chart in CHARTS.values()},
            **{
                f"{LOSS}{tag}": {"label": "loss", "wide": False}
                for section in report.sections
                for tag in section.loss_tags
            },
        },
        "environments": [_environment_data(section, looks) for section in report.sections],
        "scores": [
            {
                "title": title,
                "neutral": 0.5 if score == "improvement" else None,
                "rows": _interval_rows(
                    [(row.variant, value) for row in report.scores if (value := getattr(row, score))], looks
                ),
            }
            for score, title in report.score_titles.items()
        ],
        "profiles": {
            "scores": _numbers(PROFILE_SCORES),
            "rows": [_profile_data(row, looks[row.variant]) for row in report.scores],
        },
    }


def _profile_data(row: AggregateScores, look: Look) -> dict[str, Any]:
    middle, low, high = (
        _numbers(np.array([getattr(estimate, name) for estimate in row.profile], float))
        for name in ("value", "low", "high")
    )
    return {"name": row.variant, **_look_data(look), "middle": middle, "low": low, "high": high}


def _look_data(look: Look) -> dict[str, Any]:
    return {"color": INK if look.color == BLACK else look.color, "dashes": list(look.dashes)}


def _environment_data(section: Section, looks: dict[str, Look]) -> dict[str, Any]:
    title, neutral, rows = ratios_of(section)
    return {
        "name": section.environment.name,
        "variants": [
            _variant_data(variant, looks[variant.name], curve, losses)
            for variant, curve, losses in zip(section.environment.variants, section.curves, section.losses, strict=True)
        ],
        "auc": {"title": title, "neutral": neutral, "rows": _interval_rows(rows, looks)},
    }


def _variant_data(variant: Variant, look: Look, curve: Curve, losses: Mapping[str, Percentiles]) -> dict[str, Any]:
    return {
        "name": variant.name,
        **_look_data(look),
        "level": variant.is_cloning,
        "seeds": _numbers(curve.seeds),
        "x": {
            "steps": _numbers(curve.steps),
            "iterations": _numbers(curve.iterations),
            "time": _numbers(curve.seconds),
        },
        "y": {chart.name: _chart_data(column, chart, variant, curve) for column, chart in CHARTS.items()}
        | {f"{LOSS}{tag}": _loss_data(loss) for tag, loss in losses.items()},
    }


def _chart_data(column: str, chart: Chart, variant: Variant, curve: Curve) -> dict[str, Any]:
    """Return the lines of a chart; where they are percentiles over seeds, also what each seed did."""
    lines = {
        part: _numbers(curve.columns[line]) for part, line in zip(("middle", "low", "high"), chart.lines, strict=False)
    }
    is_single = bool(chart.columns) or variant.is_cloning or not np.isfinite(curve.columns[chart.lines[0]]).any()
    if is_single:
        return lines
    return lines | {"seeds": [_numbers(run.column_with_start(column), DIGITS_OF_SEEDS) for run in variant.runs]}


def _loss_data(loss: Percentiles) -> dict[str, Any]:
    return {part: _numbers(getattr(loss, part)) for part in ("middle", "low", "high")}


def _interval_rows(rows: Iterable[tuple[str, Estimate]], looks: dict[str, Look]) -> list[dict[str, Any]]:
    return [
        {"name": name, **_look_data(looks[name]), "value": e.value, "low": e.low, "high": e.high}
        for name, e in rows
        if np.isfinite(e.value)
    ]


def _numbers(values: Floats, digits: int = DIGITS) -> list[float | None]:
    """Return numbers as JSON has them, null where there is none."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.tolist()]


def _overview(report: Report) -> str:
    runs = sum(len(section.environment.runs) for section in report.sections)
    seeds = sorted({len(v.runs) for section in report.sections for v in section.environment.variants})
    environments = len(report.sections)
    text = (
        f"{_count(runs, 'run')} in {_count(environments, 'environment')}, {_count(len(report.variants), 'variant')}, "
        f"{'' if len(seeds) == 1 else f'{seeds[0]} to '}{_count(seeds[-1], 'seed')} each."
    )
    if environments > 1:
        text += " Each environment has pictures of its own: returns of different tasks do not share an axis."
    files = " ".join(f'<a href="returns.{ending}">{ending.upper()}</a>' for ending in ENDINGS)
    together = f" All curves in one picture: {files}." if environments > 1 else ""
    return f"<p>{html.escape(text)}{together}</p>"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _switches(report: Report) -> str:
    """Return a check box for each of the things that a reader may want to see, where there are such."""
    switches = {"seeds": "single seeds"}
    if any(chart.name == SUCCESS.name for section in report.sections for chart in section.charts):
        switches["success"] = "success rates"
    if any(section.loss_tags for section in report.sections):
        switches["losses"] = "losses"
    return "\n".join(
        f'<label><input type="checkbox" name="{name}"> {title}</label>' for name, title in switches.items()
    )


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{html.escape(warning)}</li>" for warning in warnings)
    return f'<section class="warnings" role="note"><h2>Left out or incomplete</h2><ul>{items}</ul></section>'


def _offsets() -> str:
    """Return what is added to the returns of environments of the gauntlet, such as `Sparse-Reacher 500`."""
    return ", ".join(f"{panel.title} {panel.offset:g}" for panel in gauntlet_panels().values() if panel.offset)


def _gauntlet(report: Report) -> str:
    """Return the part on the gauntlet, nothing where no runs are of it."""
    if not report.gauntlet:
        return ""
    picture = base64.b64encode(gauntlet_png(report.gauntlet)).decode()
    summary = gauntlet_summary(report.gauntlet)
    return (
        '<section class="gauntlet"><h2>The gauntlet</h2>'
        "<p>Guidance by good and bad heuristics, with constant λ and with the ladder, against the algorithm alone on "
        f"the same data (the base): {html.escape(summary)} A good cell is one where constant λ should gain. Seeds are "
        "those of base, constant λ and ladder; AUCs are over the iterations that all three have, with what is added "
        f"where returns are negative ({_offsets()}); the last column is of the last "
        f"{FINAL_ITERATIONS} iterations.</p>"
        f'<img src="data:image/png;base64,{picture}" alt="AUC over that of the base, a row for each cell">'
        f"{_table(gauntlet_table(report.gauntlet))}"
        '<p class="files">Files beside this page: <a href="gauntlet.svg">picture (SVG)</a> '
        '<a href="gauntlet.png">PNG</a> <a href="gauntlet.csv">table (CSV)</a> '
        '<a href="gauntlet.md">table (Markdown)</a></p></section>'
    )


def _section(section: Section, index: int) -> str:
    name = html.escape(section.environment.name)
    figures = "".join(_figure(index, chart.name, chart.title, _shape(chart)) for chart in section.charts)
    pictures = {chart.picture: chart.picture for chart in section.charts}
    if len(section.summaries) > 1:
        title, _, _ = ratios_of(section)
        figures += _figure(index, "auc", f"{title}: {CONFIDENCE:.0%} bootstrap interval", "")
        pictures["auc"] = "AUC"
    losses = "".join(
        _figure(index, f"{LOSS}{tag}", f"{tag}: median, 25th to 75th percentile over seeds", "losses")
        for tag in section.loss_tags
    )
    links = [
        (f"{name}.{ending}", f"{title} ({ending.upper()})") for name, title in pictures.items() for ending in ENDINGS
    ]
    links += [("curves.csv", "curves (CSV)"), ("table.csv", "table (CSV)")]
    files = " ".join(f'<a href="{html.escape(f"{section.slug}-{file}")}">{title}</a>' for file, title in links)
    alone = [summary.variant for summary in section.summaries if summary.seeds == 1]
    remarks = [f"One seed, so no interval: {', '.join(alone)}."] if alone else []
    remarks += [f"{remark}." for remark in section.remarks]
    told = "".join(f"<p>{html.escape(remark)}</p>" for remark in remarks)
    caption = f"Evaluation returns {section.caption}; baseline: {section.baseline}."
    return (
        f'<section class="environment" data-environment="{index}"><h2>{name}</h2>'
        f'<div class="legend" role="group" aria-label="curves of {name}"></div>'
        f'<div class="charts">{figures}{losses}</div>{_table(summary_table(section), caption)}{told}'
        f'<p class="files">Files beside this page: {files}</p></section>'
    )


def _shape(chart: Chart) -> str:
    return "wide" if chart.is_wide else "success" if chart is SUCCESS else ""


def _figure(index: int, chart: str, title: str, shape: str) -> str:
    return (
        f'<figure class="{shape}"><figcaption>{html.escape(title)}</figcaption>'
        f'<div class="chart" data-environment="{index}" data-chart="{html.escape(chart)}"></div></figure>'
    )


def _table(table: TextTable, caption: str = "") -> str:
    headings = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in table.headings)
    rows = ""
    for row, (name, *cells) in enumerate(table.rows):
        shown = (
            f"<td><strong>{html.escape(cell)}</strong></td>"
            if (row, column) in table.strong
            else f"<td>{html.escape(cell)}</td>"
            for column, cell in enumerate(cells, start=1)
        )
        rows += f'<tr><th scope="row">{html.escape(name)}</th>{"".join(shown)}</tr>'
    title = f'<p class="caption">{html.escape(caption)}</p>' if caption else ""
    return f'{title}<div class="scroll"><table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>'


def _scores(report: Report) -> str:
    """Return the part on what runs are worth beside others: over environments, or of the seeds of a single one."""
    several = len(report.sections) > 1
    title = "Scores over environments" if several else "Runs beside runs"
    remarks = "<ul>" + "".join(f"<li>{html.escape(remark)}</li>" for remark in report.remarks) + "</ul>"
    if not report.scores:
        return f'<section class="scores"><h2>{title}</h2><p>There are none:</p>{remarks}</section>' if several else ""
    figures = "".join(
        f'<figure><figcaption>{html.escape(title)}</figcaption><div class="chart" data-chart="score-{index}"></div>'
        "</figure>"
        for index, title in enumerate(report.score_titles.values())
    )
    figures += (
        "<figure><figcaption>Performance profiles: share of runs whose score is above τ</figcaption>"
        '<div class="chart" data-chart="profiles"></div></figure>'
    )
    apart = " Scores of variants that were run in different environments can't be compared." if several else ""
    baselines = ", ".join(f"{section.baseline} in {section.environment.name}" for section in report.sections)
    links = [("scores", "scores")] if report.score_titles else []
    files = " ".join(
        f'<a href="{file}.{ending}">{text} ({ending.upper()})</a>'
        for file, text in [*links, ("profiles", "performance profiles")]
        for ending in ENDINGS
    )
    return (
        f'<section class="scores"><h2>{title}</h2>'
        "<p>The score of a run is (AUC − low) / (high − low), low and high being the lowest and highest AUC of a run "
        f"in that environment.{apart} Baseline: {html.escape(baselines)}.</p>"
        f'<div class="charts small">{figures}</div>{_table(scores_table(report.scores)) if several else ""}{remarks}'
        f'<p class="files">Files beside this page: {files} <a href="scores.csv">scores (CSV)</a></p></section>'
    )


def _method() -> str:
    percent = f"{CONFIDENCE:.0%}"
    items = [
        "Return: the mean of the evaluation episodes of an iteration, by the policy without exploration. "
        "Curves show percentiles over the seeds that have reached an iteration.",
        "AUC: the mean of the return over iterations 1 to N, the mean over seeds. A cloned policy that does not train "
        "has its return at every iteration. All numbers of a table are over the iterations that its variants have in "
        "common, without those that have less than half of the longest's; where the baseline's AUC is not positive "
        "there is no ratio, and where that of one of its seeds is not, no interval of it.",
        "Baseline: the variant without guidance whose warm start and prior data are those of the most guided ones, "
        "unless --baseline names another.",
        f"Final return: the mean over the last {LAST_ITERATIONS} iterations, the mean over seeds.",
        f"Intervals: {percent}, percentile bootstrap, {RESAMPLES:,} resamples of the seeds of each variant; from few "
        "seeds they are too narrow.",
        "Steps to a threshold: the environment steps at the first evaluation that reaches it, the median over seeds. "
        f"By default the threshold is low + {THRESHOLD_SHARE:g} (high − low), low the lowest median first evaluation "
        "and high the best median final return.",
        "Scores: interquartile mean, median, mean and optimality gap of normalised AUCs, and the probability that a "
        f"run is better than one of the baseline, by rliable with {RLIABLE_RESAMPLES:,} stratified resamples.",
        "Performance profiles: the share of a variant's runs whose score is above τ, with the same intervals; higher "
        "everywhere is better everywhere.",
        "Smoothing: the mean of an iteration and those before it, of the lines as they are drawn; tables are not "
        "smoothed.",
        "Runs that have not come so far are in the curves, and not in the table, where seeds reads “2 of 3”.",
    ]
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"


def _reproduce(report: Report) -> str:
    commands = []
    for section in report.sections:
        for variant in section.environment.variants:
            for run in variant.runs:
                config = shlex.quote(str(RunFolder(run.folder).config_file))
                out = shlex.quote(f"again/{section.slug}/{variant.name}/{CampaignFolder.seed(run.config.seed)}")
                commands.append(f"hurl train {config} --out {out}")
    versions = "; ".join(
        f"{package} "
        + ", ".join(f"{version} ({count} runs)" if len(found) > 1 else version for version, count in found.items())
        for package, found in report.versions.items()
    )
    listing = html.escape("\n".join(commands))
    return (
        f"<p>This page:</p><pre>{html.escape(report.command)}</pre>{_needs(report)}"
        f"<details><summary>{_count(len(commands), 'run')}, a command each</summary><pre>{listing}</pre></details>"
        f"<p>The runs were made with {html.escape(versions)}. This page was made with hurl {__version__}.</p>"
    )


def _needs(report: Report) -> str:
    """Return a paragraph on what the runs were made from, where it must be made before them."""
    configs = [run.config for section in report.sections for run in section.environment.runs]
    heuristics = [config.guidance.heuristic for config in configs if config.guidance is not None]
    parts = [part for config in configs for part in (config.warm_start, config.prior) if part is not None]
    data = {f"dataset {part.dataset}" for part in parts}
    made = sorted(data | {f"heuristic {name}" for name in heuristics if isinstance(name, HeuristicFolder)})
    if not made:
        return ""
    listing = html.escape("\n".join(made))
    return (
        "<p>Some runs were made from data or from a fitted heuristic, which must be where their configurations say "
        "before they can be trained again; <code>hurl campaign</code> and <code>hurl reproduce</code> make all that "
        f"their runs need.</p><details><summary>What they were made from</summary><pre>{listing}</pre></details>"
    )
