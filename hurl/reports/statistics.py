"""What runs amount to: percentiles over seeds, areas under curves, and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hurl.experiments.metrics import CHARTS, COLUMNS, PERCENTILES, auc
from hurl.reports.collect import Environment, Floats, Run, Variant

LAST_ITERATIONS = 5
RESAMPLES = 10_000
RLIABLE_RESAMPLES = 2_000
CONFIDENCE = 0.95
SCORE_TITLES = {
    "iqm": "interquartile mean",
    "median": "median",
    "mean": "mean",
    "optimality_gap": "optimality gap (lower is better)",
    "improvement": "P(better than baseline)",
}
# Scores at which performance profiles are drawn.
PROFILE_SCORES = np.linspace(0.0, 1.0, 51)
# Between the lowest first evaluation and the best final return, where learning counts as done.
THRESHOLD_SHARE = 0.8


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap interval; with one seed there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Percentiles:
    """The median of a number over seeds, and its quartiles, an entry an iteration."""

    middle: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Curve:
    """What is drawn of a variant, one entry an iteration; percentiles are over the seeds that have reached it.

    :param columns: by name, what the lines of charts are
    """

    iterations: Floats
    steps: Floats
    seconds: Floats
    seeds: Floats
    columns: Mapping[str, Floats]


@dataclass(frozen=True)
class Comparison:
    """What the tables of an environment are of: some variants, over the iterations that all of them have.

    :param iterations: how many those are; 0 where all are cloned policies that never train
    :param remarks: on variants that are left out
    """

    environment: str
    baseline: Variant
    variants: Sequence[Variant]
    iterations: int
    remarks: Sequence[str]

    @property
    def are_of_one_length(self) -> bool:
        """Whether nothing of any run is left out by comparing over the common iterations."""
        return all(v.is_cloning or v.iterations == self.iterations for v in self.variants)

    def runs(self, variant: Variant) -> list[Run]:
        """Return the runs of a variant that have gone so far."""
        return list(variant.runs) if variant.is_cloning else variant.reaching(self.iterations)

    def areas(self, variant: Variant) -> Floats:
        """Return the AUC of each of these runs."""
        return np.array([auc(run.rows, self.iterations) for run in self.runs(variant)])


@dataclass(frozen=True)
class Summary:
    """A variant's row in the table of its environment, over the iterations that are compared.

    :param seeds: runs that have gone so far, which the numbers are of
    :param unfinished: runs that have not
    :param iterations: those of its longest run, which may have gone further
    :param planned: the iterations that its configuration asks for
    :param samples: median over seeds of the environment steps until the threshold; None where half of them never do
    :param ratio: of its AUC to the baseline's; None where the baseline's is not positive, for then a ratio says nothing
    :param difference: of its AUC to the baseline's
    """

    variant: str
    seeds: int
    unfinished: int
    iterations: int
    planned: int
    auc: Estimate
    final: Estimate
    samples: float | None
    reached: int
    ratio: Estimate | None
    difference: Estimate


@dataclass(frozen=True)
class AggregateScores:
    """Scores of a variant over environments, by rliable.

    :param seeds: of each environment, the smallest number among them
    :param profile: the share of runs whose score is above each of `PROFILE_SCORES`, with its interval
    """

    variant: str
    environments: Sequence[str]
    seeds: int
    profile: Sequence[Estimate]
    iqm: Estimate
    median: Estimate
    mean: Estimate
    optimality_gap: Estimate
    improvement: Estimate | None


def compare(environment: Environment, baseline: str) -> Comparison:
    """Return what can be compared in an environment.

    A variant that has only begun would cut all others down to its own few iterations: with less than half of the
    longest's it is left out, unless it is the baseline.
    """
    longest = max(variant.iterations for variant in environment.variants)
    compared = [v for v in environment.variants if v.is_cloning or v.iterations >= longest / 2 or v.name == baseline]
    iterations = min((variant.iterations for variant in compared if not variant.is_cloning), default=0)
    return Comparison(
        environment.name,
        environment.variant(baseline),
        compared,
        iterations,
        [
            f"{environment.name}: {variant.name} is in the curves alone, it has {variant.iterations} iterations where "
            f"others have {longest}"
            for variant in environment.variants
            if variant not in compared
        ],
    )


def final_return(run: Run, iterations: int | None = None) -> float:
    """Return the mean evaluation return of the last 5 iterations: one evaluation of 10 episodes is a noisy number.

    :param iterations: the last of them; None means the last that there is
    """
    returns = run.column("return_mean")[:iterations] if run.iterations else run.column_with_start("return_mean")
    return float(returns[-LAST_ITERATIONS:].mean())


def curve_of(variant: Variant) -> Curve:
    """Return the percentiles over seeds of what the runs of a variant did."""

    def over_seeds(column: str) -> Floats:
        return _padded([run.column_with_start(column) for run in runs], length)

    runs = variant.runs
    length = max(len(run.rows) for run in runs)
    iterations = _percentile(over_seeds("iteration"))
    columns: dict[str, Floats] = {}
    for name, chart in CHARTS.items():
        if chart.columns:
            columns |= {column: _percentile(over_seeds(column)) for column in chart.columns}
        else:
            columns |= {f"{chart.name}_{part}": _percentile(over_seeds(name), part) for part in PERCENTILES}
        if COLUMNS[name].of_training:
            columns |= {line: np.where(iterations > 0, columns[line], np.nan) for line in chart.lines}
    return Curve(
        iterations=iterations,
        steps=_percentile(over_seeds("steps")),
        seconds=_percentile(_padded([run.seconds for run in runs], length)),
        seeds=np.sum(~np.isnan(over_seeds("iteration")), axis=0).astype(np.float64),
        columns=columns,
    )


def percentiles_of(columns: Sequence[Floats]) -> Percentiles:
    """Return the median and the quartiles over seeds of columns that may end sooner or later."""
    table = _padded(columns, max(len(column) for column in columns))
    low, middle, high = (_percentile(table, percentile) for percentile in PERCENTILES)
    return Percentiles(middle, low, high)


def _padded(columns: Sequence[Floats], length: int) -> Floats:
    """Put columns of different lengths into one array, shape (runs, length), NaN where a run ends before."""
    table = np.full((len(columns), length), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    return table


def _percentile(table: Floats, percentile: float = 50) -> Floats:
    """Return a percentile over the runs that have a number; NaN where none has."""
    numbers = ~np.isnan(table)
    whole, some = numbers.all(axis=0), numbers.any(axis=0)
    result = np.full(table.shape[1], np.nan)
    result[whole] = np.percentile(table[:, whole], percentile, axis=0)
    for column in np.flatnonzero(some & ~whole):  # few: NumPy's own percentile of arrays with NaN is slow
        result[column] = np.percentile(table[numbers[:, column], column], percentile)
    return result


def bootstrap(statistic: Callable[..., Floats], *samples: Floats, paired: bool = False, seed: int = 0) -> Estimate:
    """Return a statistic of means with its 95 % percentile interval, the seeds of each sample resampled independently.

    :param statistic: of the means of the samples, each of them a number or an array of resampled ones
    :param samples: a number for each seed, shape (seeds,)
    :param paired: all samples are of the same seeds in the same order, and resampled together
    """
    value = float(statistic(*(sample.mean() for sample in samples)))
    if min(len(sample) for sample in samples) < 2:
        return Estimate(value)
    generator = np.random.default_rng(seed)
    drawn = [generator.integers(len(sample), size=(RESAMPLES, len(sample))) for sample in samples]
    means = [sample[drawn[0] if paired else seeds].mean(axis=1) for sample, seeds in zip(samples, drawn, strict=True)]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(statistic(*means), (tail, 100 - tail))
    return Estimate(value, float(low), float(high))


def ratio(ours: Floats, theirs: Floats, *, paired: bool = False) -> Estimate | None:
    """Return the ratio of the means of two samples, None where theirs is not positive, for then it says nothing.

    It has no interval where resampled seeds of theirs could all be at 0 or below.

    :param paired: see `bootstrap`
    """
    if theirs.mean() <= 0:
        return None
    if theirs.min() <= 0:
        return Estimate(float(ours.mean() / theirs.mean()))
    return bootstrap(np.divide, ours, theirs, paired=paired)


def default_threshold(comparison: Comparison) -> float:
    """Return low + 0.8 (high − low): low the lowest median first evaluation, high the best median final return.

    A share of the final return alone would mean nothing where returns are negative.
    """
    first, final = [], []
    for variant in comparison.variants:
        runs = comparison.runs(variant)
        first.append(np.median([run.column_with_start("return_mean")[0] for run in runs]))
        final.append(np.median([final_return(run, comparison.iterations) for run in runs]))
    low, high = float(min(first)), float(max(final))
    return low + THRESHOLD_SHARE * (high - low)


def summarize(comparison: Comparison, threshold: float) -> list[Summary]:
    """Return a row for each variant that is compared."""
    return [_summary(variant, comparison, threshold) for variant in comparison.variants]


def _summary(variant: Variant, comparison: Comparison, threshold: float) -> Summary:
    runs = comparison.runs(variant)
    samples = np.array([_samples_to(run, threshold, comparison.iterations) for run in runs])
    median = float(np.median(samples))
    ours, theirs = comparison.areas(variant), comparison.areas(comparison.baseline)
    itself = variant is comparison.baseline
    difference = Estimate(0.0) if itself else bootstrap(lambda x, y: x - y, ours, theirs)
    share = ratio(ours, theirs)
    if itself and share is not None:
        share = Estimate(1.0)
    return Summary(
        variant=variant.name,
        seeds=len(runs),
        unfinished=len(variant.runs) - len(runs),
        iterations=variant.iterations,
        planned=max(run.config.iterations for run in runs),
        auc=bootstrap(lambda mean: mean, ours),
        final=bootstrap(lambda mean: mean, np.array([final_return(run, comparison.iterations) for run in runs])),
        samples=median if np.isfinite(median) else None,
        reached=int(np.isfinite(samples).sum()),
        ratio=share,
        difference=difference,
    )


def _samples_to(run: Run, threshold: float, iterations: int) -> float:
    """Return the environment steps of the first evaluation that reaches the threshold, or infinity."""
    reached = (run.column_with_start("return_mean") >= threshold) & (run.column_with_start("iteration") <= iterations)
    return float(run.column_with_start("steps")[reached.argmax()]) if reached.any() else float("inf")


def aggregate(comparisons: Sequence[Comparison]) -> tuple[list[AggregateScores], list[str]]:
    """Return scores over environments by rliable, a row for each variant with two seeds or more, and remarks.

    A run's score is (AUC − low)/(high − low), low and high being the lowest and the highest AUC of a run in that
    environment, so that 0 is the worst run there and 1 the best. AUCs are over the iterations that all variants have.
    """
    remarks: list[str] = []
    scores = [_scores(comparison, remarks) for comparison in comparisons]
    baselines = [comparison.baseline.name for comparison in comparisons]
    names = sorted({name for found in scores for name in found})
    rows = []
    for name in names:
        tasks = [index for index, found in enumerate(scores) if name in found]
        against = [index for index in tasks if baselines[index] in scores[index] and baselines[index] != name]
        matrix = _matrix([scores[index][name] for index in tasks])
        if any(len(scores[index][name]) > len(matrix) for index in tasks):
            remarks.append(f"{name}: the first {len(matrix)} seeds of each environment count, as many as all have")
        improvement = None
        if against:
            improvement = _improvement(
                _matrix([scores[index][name] for index in against]),
                _matrix([scores[index][baselines[index]] for index in against]),
            )
        rows.append(
            AggregateScores(
                variant=name,
                environments=[comparisons[index].environment for index in tasks],
                seeds=len(matrix),
                profile=_profile(matrix),
                **_aggregates(matrix),
                improvement=improvement,
            )
        )
    return rows, remarks


def _scores(comparison: Comparison, remarks: list[str]) -> dict[str, Floats]:
    """Return the normalised AUC of each seed, for the variants that have two or more."""
    name = comparison.environment
    remarks += comparison.remarks
    areas = {variant.name: comparison.areas(variant) for variant in comparison.variants}
    remarks += [
        f"{name}: {variant} has one seed, no score without two" for variant, found in areas.items() if len(found) < 2
    ]
    areas = {variant: values for variant, values in areas.items() if len(values) > 1}
    if not areas:
        return {}
    everything = np.concatenate(list(areas.values()))
    low, high = everything.min(), everything.max()
    if low == high:
        remarks.append(f"{name}: all runs have the same AUC, there is nothing to score")
        return {}
    over = f"AUC over iterations 1 to {comparison.iterations}"
    remarks.append(f"{name}: {over}, 0 is {low:.5g} and 1 is {high:.5g}")
    return {variant: (values - low) / (high - low) for variant, values in areas.items()}


def _matrix(columns: Sequence[Floats]) -> Floats:
    """Return scores of shape (seeds, environments), as many seeds as all of the environments have."""
    seeds = min(len(column) for column in columns)
    return np.stack([column[:seeds] for column in columns], axis=1)


def _aggregates(scores: Floats) -> dict[str, Estimate]:
    """Return the interquartile mean, median, mean and optimality gap."""
    from rliable import metrics

    functions = {name: getattr(metrics, f"aggregate_{name}") for name in ("iqm", "median", "mean", "optimality_gap")}
    estimates = _intervals(scores, lambda x: np.array([function(x) for function in functions.values()]))
    return dict(zip(functions, estimates, strict=True))


def _profile(scores: Floats) -> list[Estimate]:
    """Return the performance profile: P(score > τ) for each τ of `PROFILE_SCORES`."""
    return _intervals(scores, lambda x: (x[..., None] > PROFILE_SCORES).mean(axis=(0, 1)))


def _improvement(ours: Floats, theirs: Floats) -> Estimate:
    return _intervals((ours, theirs), lambda x, y: np.array([probability_of_improvement(x, y)]))[0]


def probability_of_improvement(ours: Floats, theirs: Floats) -> float:
    """Return P(X > Y) + P(X = Y)/2 for runs X of ours and Y of theirs, the mean over environments.

    This is rliable's probability of improvement, U/(n m) with the Mann-Whitney statistic U, without the p-value that
    takes scipy most of the time.
    """
    wins = np.sign(ours[:, None, :] - theirs[None, :, :])
    return float(0.5 + 0.5 * wins.mean())


def _intervals(scores: Floats | tuple[Floats, Floats], function: Callable[..., Floats]) -> list[Estimate]:
    from rliable import library

    # rliable draws from NumPy's global generator, whatever random_state it is given.
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        values, limits = library.get_interval_estimates(
            {"scores": scores}, function, reps=RLIABLE_RESAMPLES, confidence_interval_size=CONFIDENCE
        )
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return [
        Estimate(float(value), float(low), float(high))
        for value, low, high in zip(values["scores"], *limits["scores"], strict=True)
    ]
