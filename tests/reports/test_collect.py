from pathlib import Path

import pytest

from hurl.reports import ReportError, collect_panels, collect_runs

from .conftest import WriteRun

NOT_A_NUMBER = "4,4000,nan,1.0,6.0,8.0,50.0,nan,0.9,0.45,nan,nan,nan,1.0,2.0,3.0\n"


def names(folder: Path) -> dict[str, dict[str, int]]:
    """Return the number of seeds by environment and variant."""
    found = collect_runs([folder]).environments
    return {e.name: {variant.name: len(variant.runs) for variant in e.variants} for e in found}


def test_seeds_of_a_variant_are_grouped_and_environments_kept_apart(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1, 10):
        write_run(f"hopper/sac/seed-{seed}", [1.0], seed=seed)
    write_run("hopper/hurl/seed-0", [1.0])
    write_run("swimmer/sac/seed-0", [1.0], environment="Swimmer-v4")
    assert names(tmp_path) == {"Hopper-v4": {"hurl": 1, "sac": 3}, "Swimmer-v4": {"sac": 1}}


def test_seed_folders_may_differ_in_dataset_and_heuristic_folder(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        settings = [
            f"warm_start.dataset=hopper/seed-{seed}-v0",
            f"guidance.heuristic=heuristics/{seed}",
            "guidance.schedule.lambda0=0.9",
            f"threads={seed + 1}",
        ]
        write_run(f"hurl-mc/seed-{seed}", [1.0], seed=seed, settings=settings)
    assert names(tmp_path) == {"Hopper-v4": {"hurl-mc": 2}}


def test_a_folder_with_a_colon_in_its_path_is_no_function(write_run: WriteRun, tmp_path: Path) -> None:
    for seed, (folder, function) in enumerate([("runs/a:b/h", "swing:low"), ("runs/a:c/h", "swing:high")]):
        schedule = "guidance.schedule.lambda0=0.9"
        write_run(f"mc/seed-{seed}", [1.0], seed=seed, settings=[f"guidance.heuristic={folder}", schedule])
        write_run(f"hand/seed-{seed}", [1.0], seed=seed, settings=[f"guidance.heuristic={function}", schedule])
    assert names(tmp_path) == {
        "Hopper-v4": {
            "hand (guidance.heuristic=swing:high)": 1,
            "hand (guidance.heuristic=swing:low)": 1,
            "mc": 2,
        }
    }


def test_seeds_may_differ_in_what_does_not_touch_learning(write_run: WriteRun, tmp_path: Path) -> None:
    settings = ([], ["checkpoint_every=5"], ["keep_replay=true"], ["threads=2"])
    for seed, differs in enumerate(settings):
        write_run(f"hurl/seed-{seed}", [1.0, 2.0], seed=seed, settings=differs)
    (environment,) = collect_runs([tmp_path]).environments
    (variant,) = environment.variants
    assert len(variant.runs) == 4


def test_seed_folders_that_differ_in_more_are_two_variants(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [1.0])
    write_run("sac/seed-1", [1.0], seed=1, settings=["gamma=0.5"])
    collection = collect_runs([tmp_path])
    assert [variant.name for variant in collection.environments[0].variants] == ["sac (gamma=0.5)", "sac (gamma=0.9)"]
    assert "differ in more than the seed" in collection.warnings[0]


def test_variants_of_one_name_are_told_apart_by_what_differs(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("my_run", [1.0])
    write_run("my_run-seed-1", [1.0], seed=1, h=1.0)
    write_run("my_run_seed2", [1.0], seed=2, settings=["gamma=0.5", "environment.n_envs=2", "evaluation_episodes=3"])
    assert names(tmp_path) == {
        "Hopper-v4": {
            "my_run (environment.n_envs=20, with guidance)": 1,
            "my_run (environment.n_envs=20, without guidance)": 1,
            "my_run (environment.n_envs=2, without guidance)": 1,
        }
    }


def test_other_folders_are_grouped_by_configuration(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", [1.0], seed=0)
    write_run("b", [1.0], seed=1)
    write_run("c", [1.0], seed=0, settings=["gamma=0.5"])
    assert names(tmp_path) == {"Hopper-v4": {"a": 2, "c": 1}}


def test_variants_of_one_name_are_told_apart_by_their_folders(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("monday/sac/seed-0", [1.0])
    write_run("tuesday/sac/seed-0", [1.0], settings=["gamma=0.5"])
    assert names(tmp_path) == {"Hopper-v4": {"monday/sac": 1, "tuesday/sac": 1}}


def test_environment_options_make_another_environment(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [1.0])
    write_run("sac/seed-1", [1.0], seed=1, settings=["environment.options={frame_skip: 2}"])
    assert list(names(tmp_path)) == ["Hopper-v4", 'Hopper-v4 {"frame_skip": 2}']


def test_a_run_named_twice_counts_once(write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run("sac/seed-0", [1.0])
    assert len(collect_runs([tmp_path, folder, tmp_path / "runs"]).runs) == 1


def test_a_copy_of_a_run_is_no_further_evidence(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", [1.0])
    write_run("copy", [1.0])
    collection = collect_runs([tmp_path])
    assert len(collection.runs) == 1
    assert "a run of the same seed" in collection.warnings[0]


def test_runs_that_made_a_campaigns_data_are_no_variants(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("hopper/sac/seed-0", [1.0])
    write_run("shared/trials/Hopper-v4", [1.0], settings=["gamma=0.5"])
    behaviour = write_run("shared/behaviour/hopper-sac", [1.0], settings=["gamma=0.5"])
    assert names(tmp_path) == {"Hopper-v4": {"sac": 1}}
    assert names(behaviour) == {"Hopper-v4": {"hopper-sac": 1}}
    assert names(write_run("team/shared/pbrs/seed-0", [1.0]).parents[2]) == {"Hopper-v4": {"pbrs": 1}}


@pytest.mark.parametrize(
    "left",
    [
        "4,4000,7",
        "4,4000,7.0,1.0,6.0,8.0,50.0,nan,0.9,0.45,nan,nan,nan,1.0,2.0,3",
        "x\n",
        NOT_A_NUMBER,
        NOT_A_NUMBER.replace("4000,nan", "nan,7.0"),
    ],
)
def test_a_metrics_file_is_read_up_to_the_damaged_line(write_run: WriteRun, tmp_path: Path, left: str) -> None:
    damaged = write_run("sac/seed-0", [1.0, 2.0, 3.0]) / "metrics.csv"
    damaged.write_text(damaged.read_text() + left)
    write_run("sac/seed-1", [1.0, 2.0, 3.0, 4.0], seed=1)
    collection = collect_runs([tmp_path])
    assert [run.column("return_mean").tolist() for run in collection.runs] == [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]]
    (warning,) = collection.warnings
    assert str(damaged) in warning
    assert "line 5" in warning


def test_a_configuration_of_another_version_is_named_and_left_out(write_run: WriteRun, tmp_path: Path) -> None:
    old = write_run("sac/seed-0", [1.0]) / "config.yaml"
    old.write_text(old.read_text() + "gama: 0.9\n")
    write_run("sac/seed-1", [2.0], seed=1)
    collection = collect_runs([tmp_path])
    assert [run.config.seed for run in collection.runs] == [1]
    assert str(old) in collection.warnings[0]
    assert "unknown key 'gama'; did you mean 'gamma'" in collection.warnings[0]


def test_a_run_without_results_is_left_out(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [])
    (write_run("sac/seed-1", [1.0], seed=1) / "metrics.csv").unlink()
    write_run("sac/seed-2", [1.0], seed=2)
    collection = collect_runs([tmp_path])
    assert [run.config.seed for run in collection.runs] == [2]
    assert len(collection.warnings) == 2


def test_folders_without_runs_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no run to report in .*: name folders that hold runs"):
        collect_runs([tmp_path])
    with pytest.raises(ReportError, match="there is no folder 'nowhere'"):
        collect_runs([Path("nowhere")])


def test_a_cloned_policy_is_row_zero(write_run: WriteRun) -> None:
    trained = write_run("sac-bc/seed-0", [5.0, 6.0, 7.0], start=0, settings=["warm_start.dataset=a/b-v0"])
    (run,) = collect_runs([trained]).runs
    assert run.iterations == 2
    assert run.column("return_mean").tolist() == [6.0, 7.0]
    assert run.column_with_start("return_mean").tolist() == [5.0, 6.0, 7.0]
    assert run.seconds.tolist() == [6.0, 12.0, 18.0]


def test_a_panel_has_a_title_and_runs_of_one_environment(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("hopper/sac/seed-0", [1.0, 2.0])
    write_run("hopper/hurl/seed-0", [3.0, 4.0])
    write_run("ablation/0.9/seed-0", [5.0, 6.0])
    write_run("swimmer/sac/seed-0", [7.0], environment="Swimmer-v4")
    runs = tmp_path / "runs"
    panels = {"c Hopper": [runs / "hopper" / "sac"], "f λ": [runs / "ablation"]}
    found = collect_panels(panels)
    names = {environment.name: [v.name for v in environment.variants] for environment in found.environments}
    assert names == {"c Hopper": ["sac"], "f λ": ["0.9"]}
    with pytest.raises(ReportError, match=r"all is not .*can't be one picture, its runs are of Hopper-v4, Swimmer-v4"):
        collect_panels({"all": [runs]})
    found = collect_panels({"all": [runs], "missing": [runs / "ant"]} | panels)
    assert [environment.name for environment in found.environments] == list(panels)
    assert [warning.partition(" is not in the report")[0] for warning in found.warnings] == ["all", "missing"]


def test_a_run_that_has_only_its_warm_start_is_no_behaviour_cloning(write_run: WriteRun, tmp_path: Path) -> None:
    cloned = ["warm_start.dataset=a/b-v0"]
    write_run("begun/seed-0", [5.0], start=0, settings=cloned)
    write_run("bc/seed-0", [5.0], start=0, settings=[*cloned, "iterations=0"])
    found = collect_runs([tmp_path])
    assert [variant.name for variant in found.environments[0].variants] == ["bc"]
    assert "has only its warm start yet" in found.warnings[0]
