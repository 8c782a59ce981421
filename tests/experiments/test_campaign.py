"""Campaigns: what is done, in which order, with what."""

from pathlib import Path

import pytest

from hurl.experiments.campaign import parse_seeds, plan_campaign
from hurl.experiments.config import load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.sources import preset_names


def test_shared_steps_are_there_once_and_before_what_needs_them(tmp_path):
    plan = plan_campaign("hopper", ["bc", "sac", "sac-bc", "hurl-mc", "pbrs", "hurl-vae"], [0, 1], tmp_path)
    names = [task.name for task in plan.tasks]
    kinds = [name.split()[0] for name in names]
    assert kinds.count("behaviour") == 1
    assert kinds.count("data") == 2
    assert kinds.count("fit") == 4  # hurl-mc and pbrs share theirs
    assert len(plan.runs) == 12
    makers = {path: task.name for task in plan.tasks for path in task.outputs}
    for task in plan.tasks:
        needs = [makers[path] for path in task.inputs if path in makers]
        assert all(names.index(need) < names.index(task.name) for need in needs)
    guided = next(task for task in plan.tasks if task.name == "hopper/hurl-mc/seed-1")
    assert [makers[path].split()[0] for path in guided.inputs if path in makers] == ["data", "fit"]


def test_each_seed_has_data_and_a_heuristic_of_its_own(tmp_path):
    first, second = plan_campaign("hopper", ["hurl-mc"], [0, 1], tmp_path).runs
    assert first.config.warm_start.dataset != second.config.warm_start.dataset
    assert first.config.guidance.heuristic != second.config.guidance.heuristic
    assert (first.config.seed, second.config.seed) == (0, 1)


def test_a_run_is_the_preset_with_paths_put_in(tmp_path):
    plan = plan_campaign("hopper", ["hurl-mc"], [3], tmp_path, iterations=7)
    (run,) = plan.runs
    assert not list(tmp_path.iterdir()), "planning writes nothing"
    train = next(task for task in plan.tasks if task.name == "hopper/hurl-mc/seed-3")
    train.write_files()
    stored = load_config(str(tmp_path / "configs" / "hopper-hurl-mc-seed-3.yaml"))
    assert stored == run.config
    assert not stored.needs_data
    expected = load_config("hopper/hurl-mc", ["iterations=7", "seed=3"])
    for key in ("environment", "algorithm", "gamma", "iterations", "steps_per_iteration", "seed"):
        assert getattr(stored, key) == getattr(expected, key)
    assert stored.guidance.schedule == expected.guidance.schedule
    fit = next(task for task in plan.tasks if task.name.startswith("fit"))
    (heuristic,) = fit.outputs
    assert stored.guidance.heuristic == str(heuristic)
    dataset = Path(stored.warm_start.root) / stored.warm_start.dataset
    assert train.inputs == (tmp_path / "configs" / "hopper-hurl-mc-seed-3.yaml", dataset, heuristic)
    assert train.outputs == (run.folder,)
    assert fit.arguments[fit.arguments.index("--gamma") :][:2] == ("--gamma", "0.999")


def test_where_everything_is(tmp_path):
    """Campaigns of earlier versions are found again: what is made for a run is named by all that determines it."""
    plan = plan_campaign("hopper", ["hurl-mc"], [0], tmp_path)
    assert [[str(place.relative_to(tmp_path)) for place in task.places] for task in plan.tasks] == [
        ["shared/behaviour/hopper-sac-fc3cd748", "logs/behaviour-hopper-sac-fc3cd748.log"],
        [
            "shared/data/hopper-sac-fc3cd748/10000-seed-0-v0",
            "shared/data/hopper-sac-fc3cd748/.10000-seed-0-v0.part",
            "logs/data-hopper-sac-fc3cd748-10000-seed-0-v0.log",
        ],
        ["shared/heuristics/monte-carlo-seed-0-13006def", "logs/fit-monte-carlo-seed-0-13006def.log"],
        ["hopper/hurl-mc/seed-0", "logs/hopper-hurl-mc-seed-0.log"],
    ]


def test_other_parameters_are_another_heuristic(tmp_path):
    usual, other = (
        plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, settings).runs[0].config.guidance.heuristic
        for settings in ([], ["guidance.heuristic.parameters.epochs=3"])
    )
    assert usual != other


def test_a_preset_without_data_needs_nothing_before_it(tmp_path):
    plan = plan_campaign("sparse-reacher", ["sac", "hurl"], [0], tmp_path)
    assert [task.inputs for task in plan.tasks] == [
        (tmp_path / "configs" / f"sparse-reacher-{variant}-seed-0.yaml",) for variant in ("sac", "hurl")
    ]


@pytest.mark.parametrize(("text", "seeds"), [("0-2", [0, 1, 2]), ("3", [3]), ("0,2,5-6", [0, 2, 5, 6])])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-", "-1", "0,,2", "1.5"])
def test_what_is_no_range_of_seeds(text):
    with pytest.raises(ConfigurationError, match="is not a range of seeds"):
        parse_seeds(text)


def test_a_seed_named_twice():
    with pytest.raises(ConfigurationError, match="names a seed twice"):
        parse_seeds("0-2,1")


def test_unknown_presets_and_variants_suggest_the_nearest(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no preset 'hoper'; did you mean 'hopper'"):
        plan_campaign("hoper", ["sac"], [0], tmp_path)
    with pytest.raises(ConfigurationError, match=r"hopper has no variant 'hurl-mk'; did you mean 'hurl-mc'"):
        plan_campaign("hopper", ["hurl-mk"], [0], tmp_path)


def test_a_run_asks_for_the_cores_of_its_threads(tmp_path):
    plan = plan_campaign("hopper", ["sac-bc"], [0], tmp_path, ["threads=2", "data.settings={threads: 3}"])
    cores = {task.name.split()[0].split("/")[0]: task.cores for task in plan.tasks}
    assert cores == {"behaviour": 3, "data": 1, "hopper": 2}


def test_fewer_iterations_leave_behaviour_cloning_alone(tmp_path):
    plan = plan_campaign("hopper", ["bc", "sac"], [0], tmp_path, iterations=7)
    assert {run.folder.parent.name: run.config.iterations for run in plan.runs} == {"bc": 0, "sac": 7}


def test_a_setting_is_for_the_variants_that_have_a_place_for_it(tmp_path):
    settings = ["guidance.schedule.lambda0=0.7", "warm_start.epochs=2"]
    plan = plan_campaign("hopper", ["sac", "sac-bc", "hurl-mc"], [0], tmp_path, settings)
    sac, cloned, guided = (run.config for run in plan.runs)
    assert (sac.guidance, sac.warm_start) == (None, None)
    assert (cloned.guidance, cloned.warm_start.epochs) == (None, 2)
    assert guided.guidance.schedule.lambda0 == 0.7


def test_a_ladder_has_no_place_for_what_only_schedules_have(tmp_path):
    variants = ["hurl-mc", "hurl-ladder"]
    settings = ["guidance.schedule.lambda0=0.7", "guidance.schedule.rungs=[0.9, 1.0]"]
    constant, ladder = (
        run.config.guidance.schedule for run in plan_campaign("hopper", variants, [0], tmp_path, settings).runs
    )
    assert (constant.lambda0, ladder.rungs) == (0.7, [0.9, 1.0])
    settings = ["guidance.schedule.kind=constant", "guidance.schedule.lambda0=0.7", "guidance.schedule.alpha=1.0"]
    (changed,) = plan_campaign("hopper", ["hurl-ladder"], [0], tmp_path, settings).runs
    assert (changed.config.guidance.schedule.kind, changed.config.guidance.schedule.lambda0) == ("constant", 0.7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["iterations=7"], r"--set iterations=7 would be for runs that only clone, too: use --iterations"),
        (["guidance.schedule.lambda0=0.7"], r"none of the variants has a place for 'guidance.schedule.lambda0'"),
        (["environment.n_env=7"], r"unknown key 'environment.n_env'; did you mean 'n_envs'"),
    ],
)
def test_settings_that_no_variant_can_take(tmp_path, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        plan_campaign("hopper", ["sac", "bc"], [0], tmp_path, settings)


def test_what_is_to_be_fitted_is_checked_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no kind of heuristic 'vea'; did you mean 'vae'"):
        plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, ["guidance.heuristic.kind=vea"])
    with pytest.raises(ConfigurationError, match=r"monte-carlo has no parameter 'epoch'; did you mean 'epochs'"):
        plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, ["guidance.heuristic.parameters.epoch=3"])
    with pytest.raises(
        ConfigurationError, match=r"ensemble chooses beta by held-out episodes, .* validation=0 has none"
    ):
        plan_campaign("hopper", ["hurl-ensemble"], [0], tmp_path, ["guidance.heuristic.parameters.validation=0"])
    with pytest.raises(ConfigurationError, match=r"monte-carlo can't stop early by held-out episodes"):
        plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, ["guidance.heuristic.parameters.patience=3"])


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (
            "ensemble",
            "{members: two}",
            "ensemble can't be fitted so: members must be a whole number from 2 .*, got 'two'",
        ),
        ("ensemble", "{beta: -1}", "beta must be a finite number that is not negative or null, got -1"),
        ("monte-carlo", "{validation: 7}", "validation must be a number from 0 to below 1, got 7"),
        ("monte-carlo", "{hidden: 8}", "hidden must be a list, each a whole number from 1 .*, got 8"),
        ("vae", "{latent: 0}", "latent must be a whole number from 1 .*, got 0"),
        ("reversed", "{of: ensemble, members: 1}", "ensemble can't be fitted so: members must be .*, got 1"),
    ],
)
def test_values_of_a_fit_are_checked_before_anything_is_made(tmp_path, kind, parameters, message):
    heuristic = f"guidance.heuristic={{kind: {kind}, parameters: {parameters}}}"
    with pytest.raises(ConfigurationError, match=message):
        plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, [heuristic])


@pytest.mark.parametrize(
    ("variant", "settings", "message"),
    [
        ("bc", ["algorithm.name=sb3.DQN"], "warm_start is for algorithms with an actor .*: leave it out for sb3.DQN"),
        (
            "hurl-mc",
            ["algorithm.parameters={learning_rat: 0.1}"],
            "sbx.SAC has no parameter 'learning_rat'; did you mean 'learning_rate'",
        ),
        (
            "hurl-mc",
            ["algorithm={name: sb3.PPO, action_noise: 0.1}", "warm_start=null"],
            "algorithm.action_noise is for off-policy algorithms: leave it out for sb3.PPO",
        ),
        (
            "jsrl",
            ["environment.normalize=true"],
            "jump_start can't be had with normalised observations, .*: set environment.normalize.norm_obs=false",
        ),
        (
            "sac-prior",
            ["prior.share=0.001"],
            "prior.share: a share of 0.001 is 0 of the 128 transitions of a batch",
        ),
        (
            "hurl-mc",
            ["algorithm={name: sb3.PPO}", "updates_per_iteration=3"],
            "updates_per_iteration is for off-policy algorithms: leave it out for sb3.PPO",
        ),
        (
            "hurl-mc",
            [
                "algorithm={name: rllib.PPO, parameters: {num_epoch: 2}}",
                "warm_start=null",
                "updates_per_iteration=null",
            ],
            "rllib.PPO has no parameter 'num_epoch'; did you mean 'num_epochs'",
        ),
    ],
)
def test_a_run_that_could_not_learn_is_refused_before_anything_is_made(tmp_path, variant, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        plan_campaign("hopper", [variant], [0], tmp_path, settings)


@pytest.mark.parametrize("kind", ["monte-carlo", "vae", "ensemble"])
@pytest.mark.parametrize("time_limit", ["cut", "bootstrap"])
def test_every_heuristic_from_returns_can_be_named_with_its_time_limits(kind, time_limit, tmp_path):
    heuristic = f"{{kind: {kind}, parameters: {{time_limit: {time_limit}}}}}"
    plan = plan_campaign("hopper", ["hurl-ladder"], [0], tmp_path, [f"guidance.heuristic={heuristic}"])
    (fit,) = (task for task in plan.tasks if task.name.startswith("fit"))
    assert fit.arguments[:2] == ("fit", kind)
    assert f'time_limit="{time_limit}"' in fit.arguments


def test_a_variant_named_twice(tmp_path):
    with pytest.raises(ConfigurationError, match="the variant 'sac' is named twice"):
        plan_campaign("hopper", ["sac", "bc", "sac"], [0], tmp_path)


def test_more_seeds_than_anyone_means():
    with pytest.raises(ConfigurationError, match="names more than 10000 seeds"):
        parse_seeds("0-99999999999")


def test_a_schedule_may_have_an_n_of_its_own(tmp_path):
    settings = ["guidance.schedule.iterations=500"]
    (run,) = plan_campaign("humanoid", ["hurl-mc"], [0], tmp_path, settings, iterations=100).runs
    schedule = run.config.guidance.schedule
    assert run.config.iterations == 100
    assert schedule.build(100)(100) == load_config("humanoid/hurl-mc").guidance.schedule.build(500)(100)


def test_demonstrations_of_a_function_are_collected_and_nothing_is_trained_for_them(tmp_path):
    variants = [name.split("/")[1] for name in preset_names() if name.startswith("point-maze/")]
    plan = plan_campaign("point-maze", variants, [0], tmp_path)
    kinds = [task.name.split()[0] for task in plan.tasks]
    assert (kinds.count("behaviour"), kinds.count("data"), kinds.count("fit")) == (0, 1, 2)
    assert {run.config.prior.dataset for run in plan.runs if run.config.prior} == {
        run.config.warm_start.dataset for run in plan.runs if run.config.warm_start
    }
    (data,) = (task for task in plan.tasks if task.name.startswith("data"))
    assert data.arguments[:4] == ("collect", "hurl.envs.point_maze:demonstrate", "--env", "hurl/PointMaze-v0")


def test_demonstrations_are_made_in_the_environment_of_the_runs(tmp_path):
    settings = ["environment.options={max_episode_steps: 200}"]
    plan = plan_campaign("point-maze", ["sac-bc"], [0], tmp_path, settings)
    assert plan.tasks[0].arguments[4:6] == ("--set", 'options={"max_episode_steps": 200}')
    assert plan.tasks[0].outputs != plan_campaign("point-maze", ["sac-bc"], [0], tmp_path).tasks[0].outputs


OWN = """
description: Pendulum with and without a hint
environment: {id: Pendulum-v1, n_envs: 2}
algorithm: {name: sb3.SAC}
gamma: 0.9
iterations: 3
steps_per_iteration: 100
variants:
  sac:
  hurl:
    guidance: {heuristic: "hurl.heuristics.engineered:zero"}
  short: {iterations: 2, environment: {n_envs: 4}}
"""


def test_a_file_of_ones_own_has_variants_as_presets_have(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    campaign = plan_campaign(str(file), None, [0, 1], tmp_path / "out", ["gamma=0.8"])
    assert [str(run.folder.relative_to(tmp_path / "out")) for run in campaign.runs] == [
        f"mine/{variant}/seed-{seed}" for seed in (0, 1) for variant in ("sac", "hurl", "short")
    ]
    assert {run.config.gamma for run in campaign.runs} == {0.8}
    short = load_config(f"{file}/short")
    assert (short.iterations, short.environment.n_envs, short.environment.id) == (2, 4, "Pendulum-v1")
    some = plan_campaign(str(file), ["hurl"], [3], tmp_path / "out")
    assert [(run.config.seed, run.config.guidance is None) for run in some.runs] == [(3, False)]


def test_a_file_of_one_run_is_a_campaign_of_its_seeds(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN[: OWN.index("variants")])
    campaign = plan_campaign(str(file), None, [0, 1], tmp_path / "out")
    assert [run.folder.relative_to(tmp_path / "out").parts for run in campaign.runs] == [
        ("mine", "seed-0"),
        ("mine", "seed-1"),
    ]


def test_a_file_of_one_run_has_no_variants_to_choose_from(tmp_path):
    (tmp_path / "mine.yaml").write_text(OWN[: OWN.index("variants")])
    with pytest.raises(ConfigurationError, match=r"mine.yaml has no variants, of which 'sac' could be one: leave"):
        plan_campaign(str(tmp_path / "mine.yaml"), ["sac"], [0], tmp_path / "out")


def test_a_file_of_ones_own_extends_a_preset(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: hopper/sac\niterations: 7\nvariants: {slow: {algorithm: {parameters: {tau: 0.001}}}}")
    assert load_config(f"{file}/slow").algorithm.parameters["tau"] == 0.001
    assert load_config(f"{file}/slow").iterations == 7
    assert load_config(f"{file}/slow").gamma == load_config("hopper/sac").gamma


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        (
            OWN,
            "",
            "is several variants: write .*mine.yaml/sac or .*mine.yaml/hurl or .*, or run all with `hurl campaign",
        ),
        (OWN, "/sca", "mine.yaml has no variant 'sca'; did you mean 'sac'"),
        (OWN[: OWN.index("variants")], "/sac", "mine.yaml has no variants, of which 'sac' could be one"),
        (f"{OWN}  ../up: {{}}", "/sac", r"'\.\./up' can't be the name of a variant"),
        (f"{OWN}  more: 3", "/sac", "the variant 'more' must hold keys and values, got 3"),
        (f"{OWN[: OWN.index('variants')]}variants: [a]", "/a", r"variants must hold names, .* got \['a'\]"),
        (
            f"{OWN}extends: hoper/sac",
            "/sac",
            "extends must name a preset and its variant, got 'hoper/sac'; did you mean",
        ),
    ],
)
def test_variants_that_cannot_be_are_named(tmp_path, text, source, message):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_config(f"{tmp_path / 'mine.yaml'}{source}")
