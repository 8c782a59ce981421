from pathlib import Path

import numpy as np
import pytest
from rliable import metrics

from hurl.reports import Environment, collect_runs
from hurl.reports.statistics import (
    PROFILE_SCORES,
    Comparison,
    Estimate,
    aggregate,
    bootstrap,
    compare,
    curve_of,
    default_threshold,
    probability_of_improvement,
    summarize,
)

from .conftest import WriteRun


def environment_of(folder: Path) -> Environment:
    (environment,) = collect_runs([folder]).environments
    return environment


def comparison_of(folder: Path, baseline: str = "sac") -> Comparison:
    return compare(environment_of(folder), baseline)


def test_curves_are_percentiles_over_the_seeds_that_have_come_so_far(write_run: WriteRun, tmp_path: Path) -> None:
    for seed, returns in enumerate([[0.0, 0.0, 0.0], [4.0, 8.0], [8.0, 4.0, 2.0]]):
        write_run(f"sac/seed-{seed}", returns, seed=seed, h=1.5)
    curve = curve_of(environment_of(tmp_path).variants[0])
    percentiles = [curve.columns[f"return_{percentile}"].tolist() for percentile in (25, 50, 75)]
    assert percentiles == [[2.0, 2.0, 0.5], [4.0, 4.0, 1.0], [6.0, 6.0, 1.5]]
    assert curve.seeds.tolist() == [3, 3, 2]
    assert curve.steps.tolist() == [1_000, 2_000, 3_000]
    assert curve.seconds.tolist() == [6.0, 12.0, 18.0]
    assert [curve.columns[name][0] for name in ("h_mean", "h_min", "h_max")] == [1.5, -0.5, 4.5]


def test_a_table_counts_finished_runs_and_iterations_from_one(write_run: WriteRun, tmp_path: Path) -> None:
    returns = [100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    write_run("sac-bc/seed-0", returns, start=0, settings=["warm_start.dataset=a/b-v0"])
    write_run("sac-bc/seed-1", returns[:3], seed=1, start=0, settings=["warm_start.dataset=a/b-v0"])
    (row,) = summarize(comparison_of(tmp_path, "sac-bc"), threshold=6.5)
    assert (row.seeds, row.unfinished, row.iterations) == (1, 1, 7)
    assert (row.auc.value, row.auc.low) == (4.0, None)
    assert row.final.value == 5.0
    assert (row.samples, row.reached) == (0.0, 1)  # the cloned policy is good enough before any training


def test_every_number_is_over_the_iterations_that_all_have(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(f"sac/seed-{seed}", [1.0, 3.0, 80.0, 80.0], seed=seed)
        write_run(f"hurl/seed-{seed}", [5.0, 7.0], seed=seed)
        write_run(f"bc/seed-{seed}", [21.0], seed=seed, start=0, settings=["warm_start.dataset=a/b-v0", "iterations=0"])
    write_run("sac/seed-2", [1.0], seed=2)
    comparison = comparison_of(tmp_path)
    assert comparison.iterations == 2
    assert default_threshold(comparison) == pytest.approx(1.0 + 0.8 * 20.0)
    rows = {row.variant: row for row in summarize(comparison, threshold=50.0)}
    assert {name: row.auc.value for name, row in rows.items()} == {"bc": 21.0, "hurl": 6.0, "sac": 2.0}
    assert {name: row.final.value for name, row in rows.items()} == {"bc": 21.0, "hurl": 6.0, "sac": 2.0}
    assert (rows["sac"].iterations, rows["sac"].seeds, rows["sac"].unfinished) == (4, 2, 1)
    assert rows["hurl"].ratio is not None
    assert (rows["hurl"].ratio.value, rows["hurl"].ratio.low, rows["hurl"].ratio.high) == (3.0, 3.0, 3.0)
    assert rows["hurl"].difference.value == 4.0
    assert rows["bc"].difference.value == 21.0 - 2.0
    assert (rows["sac"].samples, rows["sac"].reached) == (None, 0), "it is at 50 after the iterations that count"
    scores, _ = aggregate([comparison])
    assert {row.variant: row.mean.value for row in scores} == {"bc": 1.0, "hurl": pytest.approx(4 / 19), "sac": 0.0}


def test_a_baseline_that_has_only_begun_counts_all_the_same(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [1.0])
    write_run("hurl/seed-0", [2.0, 3.0, 4.0, 5.0])
    comparison = comparison_of(tmp_path)
    assert comparison.iterations == 1
    assert [row.auc.value for row in summarize(comparison, threshold=9.0)] == [2.0, 1.0]


def test_there_is_no_ratio_to_a_negative_return(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [-500.0])
    write_run("hurl/seed-0", [-400.0])
    rows = summarize(comparison_of(tmp_path), threshold=0.0)
    assert [(row.ratio, row.difference.value) for row in rows] == [(None, 100.0), (None, 0.0)]


def test_a_seed_of_the_baseline_below_zero_takes_the_interval_alone(write_run: WriteRun, tmp_path: Path) -> None:
    for seed, value in enumerate((-1.0, 5.0)):
        write_run(f"sac/seed-{seed}", [value], seed=seed)
        write_run(f"hurl/seed-{seed}", [value + 2.0], seed=seed)
    rows = summarize(comparison_of(tmp_path), threshold=0.0)
    assert [row.ratio for row in rows] == [Estimate(2.0), Estimate(1.0)]


def test_the_threshold_lies_between_the_first_and_the_best_return(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [-500.0] * 9)
    write_run("hurl/seed-0", [-500.0] * 4 + [-400.0] * 5)
    assert default_threshold(comparison_of(tmp_path)) == pytest.approx(-420.0)


def test_the_bootstrap_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    sample = np.random.default_rng(1).normal(3.0, 2.0, 400)
    estimate = bootstrap(lambda mean: mean, sample)
    error = 1.96 * sample.std() / 20.0
    assert estimate.value == sample.mean()
    assert estimate.low == pytest.approx(sample.mean() - error, abs=0.02)
    assert estimate.high == pytest.approx(sample.mean() + error, abs=0.02)
    assert bootstrap(lambda mean: mean, sample) == estimate


def test_probability_of_improvement_is_rliables() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        ours, theirs = generator.integers(0, 4, (5, 3)).astype(float), generator.integers(0, 4, (4, 3)).astype(float)
        expected = metrics.probability_of_improvement(ours, theirs)
        assert probability_of_improvement(ours, theirs) == pytest.approx(expected)


def test_scores_are_normalised_in_each_environment(write_run: WriteRun, tmp_path: Path) -> None:
    for task, size in (("Hopper-v4", 1.0), ("Swimmer-v4", -100.0)):
        for seed, low in enumerate((0.0, 2.0)):
            write_run(f"{task}/sac/seed-{seed}", [10.0 * size + low], seed=seed, environment=task)
            write_run(f"{task}/hurl/seed-{seed}", [10.0 * size + low + 8.0], seed=seed, environment=task)
        write_run(f"{task}/once/seed-0", [1e6], environment=task)
    environments = collect_runs([tmp_path]).environments
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    scores, remarks = aggregate([compare(environment, "sac") for environment in environments])
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    by_name = {row.variant: row for row in scores}
    assert set(by_name) == {"hurl", "sac"}
    assert sum("once has one seed" in remark for remark in remarks) == 2
    assert by_name["hurl"].environments == ["Hopper-v4", "Swimmer-v4"]
    assert by_name["hurl"].mean.value == pytest.approx(0.9)
    assert by_name["sac"].iqm.value == pytest.approx(0.1)
    assert by_name["sac"].optimality_gap.value == pytest.approx(0.9)
    assert by_name["sac"].improvement is None
    assert by_name["hurl"].improvement is not None
    assert by_name["hurl"].improvement.value == 1.0
    assert by_name["hurl"].mean.low == pytest.approx(0.8)
    above = {row.variant: np.interp([0.1, 0.5, 0.9], PROFILE_SCORES, [e.value for e in row.profile]) for row in scores}
    np.testing.assert_allclose(above["hurl"], [1.0, 1.0, 0.5])
    np.testing.assert_allclose(above["sac"], [0.5, 0.0, 0.0])


def test_scores_repeat(write_run: WriteRun, tmp_path: Path) -> None:
    for seed, value in enumerate(np.random.default_rng(0).normal(size=6)):
        write_run(f"sac/seed-{seed}", [float(value)], seed=seed)
    comparison = comparison_of(tmp_path)
    np.random.seed(1)  # noqa: NPY002
    first = aggregate([comparison])
    np.random.seed(2)  # noqa: NPY002
    assert aggregate([comparison]) == first


def test_a_variant_that_has_only_begun_does_not_shorten_the_others(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(f"sac/seed-{seed}", [0.0, 0.0, 9.0, float(seed)], seed=seed)
        write_run(f"hurl/seed-{seed}", [7.0], seed=seed)
    scores, remarks = aggregate([comparison_of(tmp_path)])
    assert [row.variant for row in scores] == ["sac"]
    assert any("hurl is in the curves alone" in remark for remark in remarks)
    assert any("iterations 1 to 4" in remark for remark in remarks)
