"""From runs to a report: what is computed, and the files it is written into."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import CHARTS, Chart
from hurl.files import package_versions, read_regular, write_whole
from hurl.names import nearest
from hurl.reports.collect import Collection, Environment, ReportError, Run, Variant
from hurl.reports.gauntlet import CellScores, gauntlet_of
from hurl.reports.losses import losses_of
from hurl.reports.statistics import (
    SCORE_TITLES,
    AggregateScores,
    Comparison,
    Curve,
    Percentiles,
    Summary,
    aggregate,
    compare,
    curve_of,
    default_threshold,
    summarize,
)

NAMED = 4  # of the settings in which a variant differs from the baseline


@dataclass(frozen=True)
class Section:
    """The report on one environment: curves in the order of its variants, and rows of those that are compared.

    :param slug: the environment's name as part of a file's name, different for each
    :param losses: of each variant, by tag
    """

    environment: Environment
    slug: str
    comparison: Comparison
    threshold: float
    curves: Sequence[Curve]
    summaries: Sequence[Summary]
    losses: Sequence[Mapping[str, Percentiles]]

    @property
    def baseline(self) -> str:
        """The name of the variant that others are measured against."""
        return self.comparison.baseline.name

    @property
    def loss_tags(self) -> list[str]:
        """The names of all losses that a variant has."""
        return sorted({tag for losses in self.losses for tag in losses})

    @property
    def caption(self) -> str:
        """Over which iterations its numbers are."""
        iterations = self.comparison.iterations
        if not iterations:
            return "cloned policies, which do not train"
        common = "" if self.comparison.are_of_one_length else ", which all variants have"
        return f"over iterations 1 to {iterations}{common}"

    @property
    def remarks(self) -> list[str]:
        """What must be known besides to read its table."""
        remarks = list(self.comparison.remarks)
        if len(self.environment.variants) > 1 and all(variant.is_guided for variant in self.environment.variants):
            remarks.append(
                f"{self.environment.name}: no variant is without guidance; {self.baseline} is the baseline, "
                "--baseline names another"
            )
        for variant in self.environment.variants:
            differences = variant.other_differences(self.comparison.baseline)
            if differences:
                named, more = ", ".join(differences[:NAMED]), len(differences) - NAMED
                remarks.append(
                    f"{self.environment.name}: {variant.name} differs from {self.baseline} in other settings too: "
                    f"{named}{f' and {more} more' if more > 0 else ''}"
                )
        return remarks

    @property
    def charts(self) -> list[Chart]:
        """The charts that there is something to draw in: that of h, say, only where a heuristic guides."""
        return [
            chart
            for chart in CHARTS.values()
            if any(np.isfinite(curve.columns[chart.lines[0]]).any() for curve in self.curves)
        ]


@dataclass(frozen=True)
class Report:
    """All that is reported.

    :param remarks: on the scores over environments
    :param warnings: on runs that were left out, or reported in part
    :param versions: of the software that made the runs, a package's versions each with the number of runs
    :param gauntlet: the cells of the gauntlet, where runs are of it
    """

    sections: Sequence[Section]
    scores: Sequence[AggregateScores]
    remarks: Sequence[str]
    warnings: Sequence[str]
    versions: Mapping[str, Mapping[str, int]]
    command: str
    gauntlet: Sequence[CellScores] = ()

    @property
    def score_titles(self) -> dict[str, str]:
        """The scores that say something: over one environment alone, a mean of normalised AUCs is the AUC again."""
        shown = SCORE_TITLES if len(self.sections) > 1 else ("improvement",)
        return {score: SCORE_TITLES[score] for score in shown if any(getattr(row, score) for row in self.scores)}

    @property
    def variants(self) -> list[str]:
        """The names of all variants, in the order of their colours."""
        return sorted({variant.name for section in self.sections for variant in section.environment.variants})


def write_report(report: Report, out: Path) -> None:
    """Write a page `report.html`, with pictures (PNG, SVG) and tables (CSV) beside it.

    :param out: the folder of the report, made where it is missing
    """
    # The pictures' library takes a while to load: bad input is told before.
    from hurl.reports.page import page_of
    from hurl.reports.pictures import write_pictures
    from hurl.reports.tables import write_tables

    out.mkdir(parents=True, exist_ok=True)
    write_tables(report, out)
    write_pictures(report, out)
    write_whole(out / "report.html", page_of(report).encode(errors="backslashreplace"))  # paths may hold any bytes


def compute_report(
    collection: Collection,
    *,
    baseline: str | None = None,
    thresholds: Mapping[str, float] | None = None,
    command: str = "hurl report",
) -> Report:
    """Return the report on some runs.

    :param baseline: the variant that others are measured against; by default one without guidance, see
        `usual_baseline`
    :param thresholds: of the return, by environment; see `default_threshold` for the others
    :param command: how the report was asked for, told on the page
    """
    thresholds = thresholds or {}
    environments = collection.environments
    _check_thresholds(environments, thresholds)
    comparisons = [compare(*found) for found in zip(environments, _baselines(environments, baseline), strict=True)]
    sections = [
        _section(environment, slug, comparison, thresholds)
        for environment, slug, comparison in zip(environments, _slugs(environments), comparisons, strict=True)
    ]
    scores, remarks = aggregate(comparisons)
    gauntlet = gauntlet_of(environments)
    return Report(sections, scores, remarks, collection.warnings, _versions(collection.runs), command, gauntlet)


def _section(environment: Environment, slug: str, comparison: Comparison, thresholds: Mapping[str, float]) -> Section:
    threshold = thresholds.get(environment.name, default_threshold(comparison))
    return Section(
        environment,
        slug,
        comparison,
        threshold,
        [curve_of(variant) for variant in environment.variants],
        summarize(comparison, threshold),
        [losses_of(variant) for variant in environment.variants],
    )


def _check_thresholds(environments: Sequence[Environment], thresholds: Mapping[str, float]) -> None:
    names = [environment.name for environment in environments]
    for name in thresholds:
        if name not in names:
            hint = nearest(name, names) or f"; there are {', '.join(names)}"
            raise ReportError(f"there is no run of the environment {name!r} that a threshold is given for{hint}")


def _baselines(environments: Sequence[Environment], wanted: str | None) -> list[str]:
    """Return the baseline in each environment: the one wanted where it was run."""
    names = {variant.name for environment in environments for variant in environment.variants}
    if wanted is not None and wanted not in names:
        hint = nearest(wanted, names) or f"; the variants are {', '.join(sorted(names))}"
        raise ReportError(f"there is no variant {wanted!r} to be the baseline{hint}")
    found = []
    for environment in environments:
        is_here = any(variant.name == wanted for variant in environment.variants)
        found.append(wanted if wanted is not None and is_here else usual_baseline(environment.variants).name)
    return found


def usual_baseline(variants: Sequence[Variant]) -> Variant:
    """Return the variant that shows what guidance is worth: the one that trains without it, or the longest.

    Of several, the one whose warm start and prior data are those of the most guided variants, for then nothing else
    differs; of several such, the plainest.
    """
    unguided = sorted((v for v in variants if not v.is_guided), key=lambda v: (v.is_cloning, len(v.additions)))
    if not unguided:
        return max(variants, key=lambda variant: variant.iterations)
    shared = [sum(v.is_guided and v.additions == one.additions for v in variants) for one in unguided]
    return unguided[shared.index(max(shared))]


def _slugs(environments: Sequence[Environment]) -> list[str]:
    seen: Counter[str] = Counter()
    slugs = []
    for environment in environments:
        seen[environment.slug] += 1
        count = seen[environment.slug]
        slugs.append(environment.slug if count == 1 else f"{environment.slug}-{count}")
    return slugs


def _versions(runs: Iterable[Run]) -> dict[str, dict[str, int]]:
    """Return the versions of packages that runs were made with, as they wrote them down."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        try:
            versions = dict(json.loads(read_regular(RunFolder(run.folder).versions_file)))
        except (OSError, TypeError, ValueError, RecursionError):
            versions = dict.fromkeys(["python", "hurl"], "unknown")
        for package, version in versions.items():
            if version is not None:
                found[package][str(version)] += 1
    order = list(package_versions())
    return {package: dict(found[package]) for package in sorted(found, key=lambda name: (name not in order, name))}
