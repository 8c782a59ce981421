"""The gauntlet: what is run for it, and what its table says."""

import csv

import numpy as np
import pytest

from hurl.cli.reproduce import _report
from hurl.experiments.config import load_config
from hurl.experiments.fitting import check_fit
from hurl.experiments.reproduce import gauntlet_panels, plan_reproduction
from hurl.experiments.sources import preset_names
from hurl.reports import collect_runs, compute_report, write_report
from hurl.reports.gauntlet import gauntlet_of, worst_of
from hurl.reports.tables import gauntlet_table
from tests.reports.conftest import run_writer

VARIANTS = [name for name in preset_names() if name.startswith("gauntlet-")]


def test_each_preset_holds_the_variants_of_its_cells():
    named = {f"{panel.preset}/{variant}" for panel in gauntlet_panels().values() for variant in panel.variants}
    assert named == set(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_its_base_by_its_guidance_alone(name):
    preset, variant = name.split("/")
    config = load_config(name)
    base = load_config(f"{preset}/base-little" if variant.endswith("-little") else f"{preset}/base")
    assert config.model_copy(update={"guidance": None}) == base
    if config.guidance is not None:
        assert variant.startswith(config.guidance.schedule.kind)
    if config.heuristic_to_fit is not None:
        check_fit(config.heuristic_to_fit.kind, config.heuristic_to_fit.parameters)


@pytest.mark.parametrize("preset", ["hopper", "swimmer", "halfcheetah"])
def test_the_base_is_the_papers_with_cloning_but_shorter(preset):
    shorter = {"iterations": 60, "checkpoint_every": 20}
    assert load_config(f"gauntlet-{preset}/base") == load_config(f"{preset}/sac-bc").model_copy(update=shorter)


def test_seeds_are_those_of_the_cells(tmp_path):
    plan = plan_reproduction("gauntlet", "paper", tmp_path)
    seeds = {}
    for preset, variant, config in plan.configs:
        seeds.setdefault(f"{preset}/{variant}", []).append(config.seed)
    assert set(seeds) == set(VARIANTS)
    assert seeds["gauntlet-hopper/base"] == seeds["gauntlet-hopper/ladder-mc"] == [0, 1, 2, 3, 4]
    assert seeds["gauntlet-hopper/ladder-zero"] == seeds["gauntlet-hopper/constant-random"] == [0, 1, 2]
    assert seeds["gauntlet-swimmer/base"] == seeds["gauntlet-sparse-reacher/ladder-reversed"] == [0, 1, 2]
    assert seeds["gauntlet-mountain-car/base"] == [0, 1, 2, 3, 4]


def test_little_data_is_taken_from_the_run_that_full_data_is_of(tmp_path):
    plan = plan_reproduction("gauntlet-hopper", "paper", tmp_path, seeds=[0])
    names = [task.name for task in plan.campaign.tasks]
    assert len([name for name in names if name.startswith("behaviour")]) == 1
    assert len([name for name in names if name.startswith("data")]) == 2
    assert len([name for name in names if name.startswith("fit")]) == 8, "three kinds on both data, reversed and random"


def test_one_environment_and_some_seeds(tmp_path):
    plan = plan_reproduction("gauntlet-mountain-car", "paper", tmp_path, seeds=[7])
    assert {(preset, config.seed) for preset, _, config in plan.configs} == {("gauntlet-mountain-car", 7)}
    assert len(plan.configs) == 5


@pytest.fixture
def runs(tmp_path):
    """Some cells of two environments, with returns that are easy to compare."""
    write = run_writer(tmp_path)
    levels = {"base": 100, "constant-mc": 200, "ladder-mc": 190, "constant-reversed": 40, "ladder-reversed": 95}
    for variant, level in levels.items():
        for seed in (0, 1):
            returns = np.full(20, level + 2.0 * seed - 1.0)
            write(f"gauntlet-hopper/{variant}/seed-{seed}", returns, seed=seed)
    for variant, level in {"base": -490, "ladder-engineered": -300}.items():
        environment = "hurl/SparseReacher-v0"
        write(f"gauntlet-sparse-reacher/{variant}/seed-0", [level] * 20, environment=environment)
    return tmp_path


def test_cells_are_ratios_to_the_base(runs):
    cells = gauntlet_of(collect_runs([runs]).environments)
    assert [(cell.environment, cell.heuristic) for cell in cells] == [
        ("Hopper", "mc"),
        ("Hopper", "reversed"),
        ("Sparse-Reacher", "engineered"),
    ]
    good, reverse, reacher = cells
    assert (good.good, reverse.good) == (True, False)
    assert good.ratio("constant").value == pytest.approx(2.0)
    assert good.ratio("constant").low < 2.0 < good.ratio("constant").high
    assert good.kept.value == good.kept_last.value == pytest.approx(0.95)
    assert reacher.ratio("ladder").value == pytest.approx(200 / 10), "returns + 500"
    assert reacher.ratio("ladder").low is None, "one seed has no interval"
    assert reacher.ratio("constant") is None
    assert reacher.kept is None
    assert worst_of(cells, "constant") is worst_of(cells, "ladder") is reverse


def test_a_base_at_zero_has_no_ratio(tmp_path):
    write = run_writer(tmp_path)
    for variant, level in {"base": -500, "constant-engineered": -300}.items():
        write(f"gauntlet-sparse-reacher/{variant}/seed-0", [level] * 3, environment="hurl/SparseReacher-v0")
    collection = collect_runs([tmp_path])
    (cell,) = gauntlet_of(collection.environments)
    assert cell.ratio("constant") is None
    write_report(compute_report(collection), tmp_path / "report")
    assert "No cell has been run together with its base." in (tmp_path / "report/gauntlet.md").read_text()


def test_columns_are_compared_over_the_iterations_that_all_have(tmp_path):
    write = run_writer(tmp_path)
    write("gauntlet-hopper/base/seed-0", [10.0] * 5)
    write("gauntlet-hopper/ladder-mc/seed-0", [20.0] * 5 + [900.0] * 5)
    (cell,) = gauntlet_of(collect_runs([tmp_path]).environments)
    assert (cell.iterations, cell.ratio("ladder").value) == (5, 2.0)


def test_ratios_are_of_the_seeds_that_both_columns_have(tmp_path):
    write = run_writer(tmp_path)
    for seed, level in enumerate((10.0, 40.0)):
        write(f"gauntlet-hopper/base/seed-{seed}", [level] * 5, seed=seed)
    write("gauntlet-hopper/constant-mc/seed-0", [30.0] * 5)
    write("gauntlet-hopper/ladder-mc/seed-1", [20.0] * 5, seed=1)
    (cell,) = gauntlet_of(collect_runs([tmp_path]).environments)
    assert [cell.ratio(column).value for column in ("constant", "ladder")] == [3.0, 0.5]
    assert cell.kept is cell.kept_last is None


def test_a_column_that_has_only_begun_is_left_out(tmp_path):
    write = run_writer(tmp_path)
    for variant, level, iterations in (("base", 10.0, 10), ("constant-mc", 20.0, 10), ("ladder-mc", 30.0, 4)):
        write(f"gauntlet-hopper/{variant}/seed-0", [level] * iterations)
    (cell,) = gauntlet_of(collect_runs([tmp_path]).environments)
    assert (cell.iterations, cell.ratio("constant").value, cell.ratio("ladder")) == (10, 2.0, None)


def test_of_a_folder_with_two_configurations_the_larger_part_counts(tmp_path):
    write = run_writer(tmp_path)
    for seed, level in enumerate((10.0, 10.0, 90.0)):
        other = ["algorithm.parameters.tau=0.5"] if seed == 2 else []
        write(f"gauntlet-hopper/base/seed-{seed}", [level] * 5, seed=seed, settings=other)
    write("gauntlet-hopper/ladder-mc/seed-0", [20.0] * 5)
    collection = collect_runs([tmp_path])
    (cell,) = gauntlet_of(collection.environments)
    assert (cell.scores["base"].seeds, cell.ratio("ladder").value) == (2, 2.0)


def test_the_table_says_how_many_seeds_each_column_has(runs):
    rows = gauntlet_table(gauntlet_of(collect_runs([runs]).environments)).rows
    assert [row[2] for row in rows] == ["2, 2, 2", "2, 2, 2", "1, 0, 1"]


def test_runs_of_other_presets_have_no_gauntlet(tmp_path):
    write = run_writer(tmp_path)
    write("hopper/base/seed-0", [1.0, 2.0])
    write("hopper/ladder-mc/seed-0", [1.0, 2.0])
    report = compute_report(collect_runs([tmp_path]))
    assert report.gauntlet == []
    write_report(report, tmp_path / "report")
    assert not (tmp_path / "report/gauntlet.md").exists()
    assert "gauntlet" not in (tmp_path / "report/report.html").read_text().split("</style>")[1]


def test_table_picture_and_page(runs, capsys):
    _report(plan_reproduction("gauntlet", "paper", runs), runs)
    out = runs / "report"
    assert "constant λ has 0.40" in capsys.readouterr().out
    table = (out / "gauntlet.md").read_text()
    assert "ladder has 0.95 [0.95, 0.95] of the base's AUC in its worst cell, Hopper, reversed" in table
    assert "| **0.40 [" in table
    assert "| **0.95 [" in table
    assert table.count("**") == 4
    with (out / "gauntlet.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["ladder_auc_ratio"]) for row in rows] == pytest.approx([1.9, 0.95, 20.0])
    assert (rows[0]["constant_seeds"], rows[2]["constant_seeds"]) == ("2", "")
    assert (out / "gauntlet.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert "<h2>The gauntlet</h2>" in page
    assert "<strong>0.95 [" in page
    assert 'src="data:image/png;base64,' in page


def test_two_campaigns_are_not_mixed(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for campaign, gamma, levels in (
        (old, 0.98, {"base": 100, "constant-mc": 150}),
        (new, 0.97, {"base": 300, "ladder-mc": 310}),
    ):
        for variant, level in levels.items():
            run_writer(campaign)(f"gauntlet-hopper/{variant}/seed-0", [level] * 3, settings=[f"gamma={gamma}"])
    cells = {cell.environment: cell for cell in gauntlet_of(collect_runs([tmp_path]).environments)}
    assert cells.keys() == {f"Hopper in {old}", f"Hopper in {new}"}
    assert cells[f"Hopper in {old}"].ratio("constant").value == pytest.approx(1.5)
    assert cells[f"Hopper in {new}"].ratio("ladder").value == pytest.approx(31 / 30)
    assert cells[f"Hopper in {new}"].ratio("constant") is None
