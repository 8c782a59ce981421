"""The gauntlet: what guidance by good and bad heuristics is worth, with constant λ and with the ladder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hurl.experiments.layout import CampaignFolder
from hurl.experiments.metrics import auc
from hurl.experiments.reproduce import Cell, Panel, gauntlet_panels
from hurl.reports.collect import Environment, Run, Variant
from hurl.reports.statistics import Estimate, bootstrap, ratio

FINAL_ITERATIONS = 10
GUIDED = {"constant": "constant λ", "ladder": "ladder"}


@dataclass(frozen=True)
class Score:
    """What a column of a cell came to, over the iterations that all columns of the cell have.

    Ratios are of the seeds that both columns have. A column with less than half of the iterations of the longest has
    only begun, and is left out.

    :param auc: with the offset of the environment
    :param last: the mean return of the last ten iterations, with the offset
    :param ratio: of its AUC to that of the base; None without common seeds, and where the base's is not positive, for
        then a ratio says nothing
    """

    seeds: int
    auc: Estimate
    last: Estimate
    ratio: Estimate | None


@dataclass(frozen=True)
class CellScores:
    """A heuristic in an environment.

    :param good: whether constant λ should gain by it
    :param scores: of the base and, as far as they were run, of constant λ and the ladder
    :param kept: AUC of the ladder over that of constant λ
    :param kept_last: the same of the last ten iterations
    """

    environment: str
    heuristic: str
    good: bool
    iterations: int
    scores: Mapping[str, Score]
    kept: Estimate | None
    kept_last: Estimate | None

    def ratio(self, column: str) -> Estimate | None:
        """Return the AUC of a column over the base's, None where there is none."""
        return self.scores[column].ratio if column in self.scores else None


def gauntlet_of(environments: Iterable[Environment]) -> list[CellScores]:
    """Return the cells of the gauntlet whose base and one column more were run; none where the runs are not of it.

    Runs are known by where they are kept: `gauntlet-hopper/ladder-mc/seed-0`.
    """
    kept = _by_preset(environments)
    found = (
        _cell(panel.title + place, panel, heuristic, cell, variants)
        for name, panel in gauntlet_panels().items()
        for place, variants in kept.get(name, {}).items()
        for heuristic, cell in panel.cells.items()
    )
    return [scores for scores in found if scores is not None]


def worst_of(cells: Sequence[CellScores], column: str) -> CellScores | None:
    """Return the cell with the lowest ratio in a column; None where there is none."""
    ratios = [(estimate.value, index) for index, cell in enumerate(cells) if (estimate := cell.ratio(column))]
    return cells[min(ratios)[1]] if ratios else None


def _by_preset(environments: Iterable[Environment]) -> dict[str, dict[str, dict[str, Variant]]]:
    """Return the variants by the names of their folders, under those of their presets, and where these are.

    Where they are matters only where a variant is there twice, of two campaigns, which are not to be mixed. Of a folder
    whose runs are not all of one configuration, which the report warns of, those count that are the most.
    """
    variants = [variant for environment in environments for variant in environment.variants]
    variants.sort(key=lambda variant: len(variant.runs))  # the last of a folder counts
    folders = {variant.runs[0].folder.resolve().parent: variant for variant in variants if _is_of_campaign(variant)}
    times = Counter((folder.parent.name, folder.name) for folder in folders)
    twice = {preset for (preset, _), count in times.items() if count > 1}
    found: dict[str, dict[str, dict[str, Variant]]] = {}
    for folder, variant in folders.items():
        preset = folder.parent.name
        place = f" in {folder.parent.parent}" if preset in twice else ""
        found.setdefault(preset, {}).setdefault(place, {})[folder.name] = variant
    return found


def _is_of_campaign(variant: Variant) -> bool:
    return CampaignFolder.is_seed(variant.runs[0].folder.resolve())


def _cell(title: str, panel: Panel, heuristic: str, cell: Cell, variants: Mapping[str, Variant]) -> CellScores | None:
    run = {column: variants[name] for column, name in cell.columns(heuristic).items() if name in variants}
    longest = max((variant.iterations for variant in run.values()), default=0)
    run = {name: variant for name, variant in run.items() if name == "base" or variant.iterations >= longest / 2}
    if "base" not in run or len(run) < 2:
        return None
    iterations = min(variant.iterations for variant in run.values())
    areas, lasts = {}, {}
    for column, variant in run.items():
        runs = {found.config.seed: found for found in variant.reaching(iterations)}
        areas[column] = {seed: panel.offset + auc(found.rows, iterations) for seed, found in runs.items()}
        lasts[column] = {seed: panel.offset + _last(found, iterations) for seed, found in runs.items()}
    scores = {
        column: Score(len(found), _mean(found), _mean(lasts[column]), _paired(found, areas["base"]))
        for column, found in areas.items()
    }
    both = {"constant", "ladder"} <= run.keys()
    return CellScores(
        title,
        heuristic,
        cell.good,
        iterations,
        scores,
        _paired(areas["ladder"], areas["constant"]) if both else None,
        _paired(lasts["ladder"], lasts["constant"]) if both else None,
    )


def _last(run: Run, iterations: int) -> float:
    return float(run.column("return_mean")[:iterations][-FINAL_ITERATIONS:].mean())


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Return the ratio of the means over the seeds that both have: a seed that is easy is so for all columns."""
    common = sorted(ours.keys() & theirs.keys())
    first, second = (np.array([column[seed] for seed in common]) for column in (ours, theirs))
    return ratio(first, second, paired=True) if common else None


def _mean(sample: Mapping[int, float]) -> Estimate:
    return bootstrap(lambda mean: mean, np.array(list(sample.values())))
