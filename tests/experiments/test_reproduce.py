"""The paper's figures: what is run for them, at which scale, and what they are made of in the end."""

import json
import subprocess
import sys

import pytest

from hurl.cli.reproduce import _report
from hurl.envs import PROCGEN_GAMES, procgen_id
from hurl.experiments.config import load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.reproduce import Speed, figure_names, plan_reproduction
from hurl.experiments.tasks import run_tasks
from tests.reports.conftest import run_writer

DENSE = ["bc", "sac", "sac-bc", "hurl-zero", "hurl-mc", "pbrs"]


def test_the_figures():
    second, third = (f"figure-2{panel}" for panel in "abcdef"), (f"figure-3{panel}" for panel in "abcd")
    fourth = (f"figure-4{panel}" for panel in "abcdefghijklmnop")
    gauntlet = (f"gauntlet-{name}" for name in ("halfcheetah", "hopper", "mountain-car", "sparse-reacher", "swimmer"))
    figures = ["figure-2", *second, "figure-3", *third, "figure-4", *fourth]
    assert figure_names() == [*figures, "gauntlet", *gauntlet]


def test_figure_2_at_the_scale_of_the_paper(tmp_path):
    plan = plan_reproduction("figure-2", "paper", tmp_path)
    runs = {(preset, variant, config.seed) for preset, variant, config in plan.configs}
    expected = {("sparse-reacher", variant) for variant in ("sac", "pbrs", "hurl")}
    expected |= {(preset, variant) for preset in ("humanoid", "hopper", "swimmer", "halfcheetah") for variant in DENSE}
    expected |= {("hopper-lambda", value) for value in ("0.9", "0.95", "0.98", "0.99", "1")}
    assert runs == {(preset, variant, seed) for preset, variant in expected for seed in range(30)}
    for preset, variant, config in plan.configs:
        assert config == load_config(f"{preset}/{variant}", [f"seed={config.seed}"])


def test_a_smaller_scale_has_fewer_seeds_and_iterations(tmp_path):
    plan = plan_reproduction("figure-2c", "overnight", tmp_path)
    assert {config.seed for _, _, config in plan.configs} == {0, 1, 2}
    assert {variant: config.iterations for _, variant, config in plan.configs} == {
        variant: 0 if variant == "bc" else 100 for variant in DENSE
    }
    assert all(config.data is None or config.data.iterations == 200 for _, _, config in plan.configs)


def test_figure_4_at_the_scale_of_the_paper(tmp_path):
    plan = plan_reproduction("figure-4", "paper", tmp_path)
    games = {config.environment.id for _, _, config in plan.configs}
    assert games == {procgen_id(game) for game in PROCGEN_GAMES}
    assert len(plan.configs) == 16 * 2 * 20
    for name, variant, config in plan.configs:
        settings = [f"seed={config.seed}", f"environment.id={config.environment.id}"]
        assert config == load_config(f"procgen/{variant}", settings)
        assert procgen_id(name.removeprefix("procgen-")) == config.environment.id
    assert {config.iterations * config.steps_per_iteration for _, _, config in plan.configs} == {488 * 16_384}


def test_games_share_the_trial_that_tells_the_speed(tmp_path):
    plan = plan_reproduction("figure-4", "tiny", tmp_path)
    assert len(plan.trial_of) == 16
    (task,) = plan.trials.tasks
    assert "BigfishEasy-v0" in task.name


def test_some_games_for_so_many_steps(tmp_path):
    plan = plan_reproduction(
        "figure-4", "overnight", tmp_path, games=["starpilot", "coinrun"], seeds=[0], steps=100_000
    )
    assert [(name, variant) for name, variant, _ in plan.configs] == [
        (f"procgen-{game}", variant) for game in ("coinrun", "starpilot") for variant in ("ppo", "ppo-hurl")
    ]
    for _, variant, config in plan.configs:
        assert (config.steps_per_iteration, config.iterations) == (2048, 49)
        assert config.environment.n_envs * config.algorithm.parameters["env_runners"]["rollout_fragment_length"] == 2048
        assert (config.data is None) == (variant == "ppo")
        if config.data is not None:  # made by the same algorithm at the same scale
            assert config.data.run.algorithm == config.algorithm
            assert (config.data.run.iterations, config.data.policy_count) == (74, 15)
    behaviours = {task.arguments for task in plan.campaign.tasks if task.name.startswith("behaviour")}
    assert len(behaviours) == 2  # one for each game


def test_runs_of_a_game_share_one_heuristic_and_are_sent_no_images(tmp_path):
    plan = plan_reproduction("figure-4f", "tiny", tmp_path, seeds=range(5)).campaign
    steps = [task.name.split()[0] for task in plan.tasks if not task.name.startswith("procgen")]
    assert steps == ["behaviour", "data", "fit"]
    guided = [task for task in plan.tasks if "ppo-hurl" in task.name]
    assert len(guided) == 5
    (fitted,) = next(task.outputs for task in plan.tasks if task.name.startswith("fit"))
    assert {task.inputs[1:] for task in guided} == {(fitted,)}, "beside their configuration"


def test_steps_are_counted_in_the_iterations_that_are_run(tmp_path):
    settings = ["steps_per_iteration=1024", "algorithm.parameters.train_batch_size_per_learner=1024"]
    plan = plan_reproduction("figure-4f", "overnight", tmp_path, seeds=[0], steps=5_000, settings=settings)
    assert {(config.iterations, config.steps_per_iteration) for _, _, config in plan.configs} == {(5, 1024)}


def test_settings_hold_for_runs_and_for_those_of_their_data(tmp_path):
    gpus = "algorithm.parameters.learners.num_gpus_per_learner=1"
    settings = [gpus, "guidance.schedule.lambda0=0.95"]
    plan = plan_reproduction("figure-4f", "paper", tmp_path, seeds=[0], settings=settings)
    assert {variant: config.gpus for _, variant, config in plan.configs} == {"ppo": 1, "ppo-hurl": 1}
    _, _, guided = plan.configs[1]
    assert guided.guidance.schedule.lambda0 == 0.95
    assert guided.data.run.gpus == 1
    assert guided.data.policy_count == 16
    (*_, (_, _, sparser)) = plan_reproduction("figure-4f", "paper", tmp_path, settings=["checkpoint_every=99"]).configs
    assert sparser.checkpoint_every == 99
    assert sparser.data.policy_count == 16, "what the recipe of the data sets wins"
    settings = ["environment.n_envs=8", "checkpoint_every=99"]
    (*_, (_, _, small)) = plan_reproduction("figure-4f", "overnight", tmp_path, settings=settings).configs
    assert (small.environment.n_envs, small.checkpoint_every) == (8, 99)
    assert (small.data.run.environment.n_envs, small.data.run.checkpoint_every) == (8, 5)
    assert {task.gpus for task in plan.campaign.tasks if task.arguments[0] == "train"} == {1}
    with pytest.raises(ConfigurationError, match=r"seed=7 would give all runs the same seed: use --seeds"):
        plan_reproduction("figure-4f", "paper", tmp_path, settings=["seed=7"])
    with pytest.raises(ConfigurationError, match=r"none of the variants has a place for 'guidance.schedul.alpha'"):
        plan_reproduction("figure-4f", "paper", tmp_path, settings=["guidance.schedul.alpha=1"])


def test_steps_leave_behaviour_cloning_alone(tmp_path):
    plan = plan_reproduction("figure-2c", "paper", tmp_path, seeds=[0], steps=10_000)
    assert {variant: config.iterations for _, variant, config in plan.configs} == {
        variant: 0 if variant == "bc" else 3 for variant in DENSE
    }


def test_seeds_of_ones_own(tmp_path):
    plan = plan_reproduction("figure-2f", "tiny", tmp_path, seeds=[4, 7])
    assert {config.seed for _, _, config in plan.configs} == {4, 7}


def test_unknown_figures_and_scales(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nothing called 'figure-2g' to reproduce; did you mean"):
        plan_reproduction("figure-2g", "tiny", tmp_path)
    with pytest.raises(ConfigurationError, match=r"figure-4 has no game 'coinrum'; did you mean 'coinrun'"):
        plan_reproduction("figure-4", "tiny", tmp_path, games=["coinrum"])
    with pytest.raises(ConfigurationError, match=r"figure-2 has no games: leave --games out"):
        plan_reproduction("figure-2", "tiny", tmp_path, games=["coinrun"])
    with pytest.raises(ConfigurationError, match=r"no scale 'papper'; did you mean 'paper'"):
        plan_reproduction("figure-2", "papper", tmp_path)


def _hurl(*arguments):
    return subprocess.run([sys.executable, "-m", "hurl", *map(str, arguments)], capture_output=True, text=True)


def test_a_panel_at_a_tiny_scale_from_the_command_to_the_page(tmp_path):
    """Of a figure's panels, which differ by the presets that they name: training those takes minutes of each."""
    command = ("reproduce", "figure-2c", "--scale", "tiny", "--out", tmp_path, "--jobs", 2)
    asked = _hurl(*command, "--dry-run")
    assert asked.returncode == 0, asked.stderr
    assert "core-hours in all" in asked.stdout
    assert not (tmp_path / "hopper").exists()  # nothing is run before the cost is told
    done = _hurl(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("core-hours in all") < done.stdout.index("hopper/hurl-mc/seed-0")
    assert _panels(tmp_path) == {"2c Hopper": ["hurl-mc", "sac-bc"]}
    assert (tmp_path / "report" / "2c-hopper-return.png").is_file()


def _panels(folder):
    page = (folder / "report" / "report.html").read_text("utf-8")
    data = json.loads(page.partition('type="application/json" id="data">')[2].partition("</script>")[0])
    return {panel["name"]: [variant["name"] for variant in panel["variants"]] for panel in data["environments"]}


def test_the_page_of_a_whole_figure_has_its_panels_in_order(tmp_path):
    plan = plan_reproduction("figure-2", "tiny", tmp_path)
    write = run_writer(tmp_path)
    for preset, variant, config in plan.configs:
        write(f"{preset}/{variant}/seed-0", [1.0, 2.0], environment=config.environment.id)
    _report(plan, tmp_path)
    dense = ["hurl-mc", "sac-bc"]
    assert _panels(tmp_path) == {
        "2a Sparse-Reacher": ["hurl"],
        "2b Humanoid": dense,
        "2c Hopper": dense,
        "2d Swimmer": dense,
        "2e HalfCheetah": dense,
        "2f Hopper, constant λ": ["0.9", "1"],
    }
    assert (tmp_path / "report" / "returns.png").is_file()


def test_a_game_of_procgen_at_a_tiny_scale(tmp_path):
    arguments = ["--games", "bossfight", "--scale", "tiny", "--ray", "local", "--out", tmp_path]
    done = _hurl("reproduce", "figure-4", *arguments)  # a Ray in the tasks of another
    assert done.returncode == 0, done.stderr
    assert "4b BossFight" in done.stdout
    (row, *_) = reversed(RunFolder(tmp_path / "procgen-bossfight" / "ppo-hurl" / "seed-0").read_metrics())
    assert (row.iteration, row.lambda_) == (3, 1.0)
    assert row.h_min < row.h_mean < row.h_max


def test_a_panel_without_results_hides_no_other(tmp_path, capsys):
    plan = plan_reproduction("figure-2", "tiny", tmp_path)
    write = run_writer(tmp_path)
    for seed in (0, 1):
        write(f"hopper/sac-bc/seed-{seed}", [1.0, 2.0], seed=seed)
    write("halfcheetah/sac-bc/seed-0", [1.0], start=0, settings=["warm_start.dataset=a/b-v0"])
    _report(plan, tmp_path)
    printed = capsys.readouterr()
    assert "warning: 2e HalfCheetah is not in the report: " in printed.err
    assert "2c Hopper" in printed.out
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_cost_counts_what_runs_share_once(tmp_path):
    """Trials that were run before tell the speed; the rest is arithmetic."""
    plan = plan_reproduction("figure-2f", "tiny", tmp_path)
    run_tasks(plan.trials.tasks, jobs=1)
    (cost,) = plan.costs(plan.speeds())
    assert (cost.preset, cost.runs, cost.iterations) == ("hopper-lambda", 2, 4)
    (twice,) = plan_reproduction("figure-2f", "tiny", tmp_path, seeds=[0, 1]).costs(plan.speeds())
    behaviour = cost.seconds * 2 - twice.seconds  # the one step that seeds share
    assert behaviour == pytest.approx(8.0 + 4 * cost.speed.iteration)


def test_the_cost_of_a_ladder_is_that_of_more_than_one_learner(tmp_path):
    plan = plan_reproduction("gauntlet-mountain-car", "paper", tmp_path, seeds=[0])
    (cost,) = plan.costs(dict.fromkeys(plan.trial_of, Speed(iteration=10.0, step=0.1, update=0.01)))
    iterations = plan.configs[0][2].iterations
    assert cost.seconds == pytest.approx(5 * 8.0 + iterations * (3 * 10.0 + 2 * 15.0)), "two of five have a ladder"


def test_the_cost_counts_what_is_made_for_each_game(tmp_path):
    plan = plan_reproduction("figure-4", "tiny", tmp_path, games=["coinrun", "maze"])
    one, other = plan.costs(dict.fromkeys(plan.trial_of, Speed(iteration=10.0, step=0.1, update=0.01)))
    assert one.seconds == pytest.approx(other.seconds)
    training, collecting, fitting = 8.0 + 3 * 10.0, 8.0 + 200 * 0.1, 8.0 + 200 * 0.01 / 3
    assert one.seconds == pytest.approx(2 * training + collecting + fitting)
