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
from hurl.reports.collect import Collection, Environment, ReportError, Run
from hurl.reports.gauntlet import CellScores, gauntlet_of
from hurl.reports.statistics import (
    AggregateScores,
    Curve,
    Summary,
    aggregate,
    curve_of,
    default_threshold,
    summarize,
)

# Against which a variant is measured where the user names none: the first of these that there is.
# In an ablation of λ, λ = 1 is the algorithm alone.
USUAL_BASELINES = ("sac-bc", "sac", "1")


@dataclass(frozen=True)
class Section:
    """The report on one environment: curves and rows in the order of its variants.

    :param slug: the environment's name as part of a file's name, different for each
    """

    environment: Environment
    slug: str
    baseline: str
    threshold: float
    curves: Sequence[Curve]
    summaries: Sequence[Summary]

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

    :param baseline: the variant that others are measured against; `sac-bc`, `sac` or the first by default
    :param thresholds: of the return, by environment; see `default_threshold` for the others
    :param command: how the report was asked for, told on the page
    """
    thresholds = thresholds or {}
    environments = collection.environments
    _check_thresholds(environments, thresholds)
    baselines = _baselines(environments, baseline)
    sections = [
        _section(environment, slug, against, thresholds)
        for environment, slug, against in zip(environments, _slugs(environments), baselines, strict=True)
    ]
    scores, remarks = aggregate(environments, baselines)
    gauntlet = gauntlet_of(environments)
    return Report(sections, scores, remarks, collection.warnings, _versions(collection.runs), command, gauntlet)


def _section(environment: Environment, slug: str, baseline: str, thresholds: Mapping[str, float]) -> Section:
    threshold = thresholds.get(environment.name, default_threshold(environment))
    return Section(
        environment,
        slug,
        baseline,
        threshold,
        [curve_of(variant) for variant in environment.variants],
        summarize(environment, baseline, threshold),
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
    preferred = USUAL_BASELINES if wanted is None else (wanted, *USUAL_BASELINES)
    found = []
    for environment in environments:
        here = [variant.name for variant in environment.variants]
        found.append(next((name for name in preferred if name in here), here[0]))
    return found


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
