"""Recipes: which run behaviour data is taken from, and that it is made but once, and alike wherever it is asked for."""

import re

import pytest
import yaml
from typer.testing import CliRunner

from hurl.cli import app
from hurl.data import load_episodes
from hurl.experiments.campaign import Campaign
from hurl.experiments.config import load_config, validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.layout import RUNS, CampaignFolder
from hurl.experiments.recipes import load_recipe, recipe_of
from hurl.experiments.sources import _presets
from hurl.experiments.tasks import run_tasks
from tests.experiments.conftest import SMALL

SMALL_DATA = {"train": "pendulum/sac", "iterations": 2, "transitions": 40, "settings": {"checkpoint_every": 1}}


@pytest.mark.parametrize("name", ["hopper", "halfcheetah", "swimmer", "humanoid"])
def test_the_papers_recipe_is_50_policies_of_200_iterations(name):
    recipe = load_recipe(name, seed=3)
    assert recipe.config.iterations == 200
    assert recipe.config.iterations // recipe.config.checkpoint_every == 50
    assert recipe.config.guidance is None
    assert (recipe.config.seed, recipe.seed) == (3, 3)
    assert (recipe.transitions, recipe.dataset) == (10_000, f"{name}/behaviour-v0")


def test_a_recipe_has_the_very_run_of_a_campaign_in_the_same_folder():
    runs = CampaignFolder(RUNS)
    config = load_config("hopper/hurl-mc")
    campaigns = recipe_of(config, config.data, runs)
    recipe = load_recipe("hopper")
    assert (recipe.name, recipe.config, recipe.run) == (campaigns.name, campaigns.config, campaigns.run)
    assert recipe.run.parent == runs.path / "shared/behaviour"
    assert load_recipe("hopper", seed=1).run != recipe.run


def test_an_unknown_recipe_is_named():
    with pytest.raises(ConfigurationError, match="no recipe 'hoper'; did you mean 'hopper'"):
        load_recipe("hoper")


@pytest.fixture
def pendulum(monkeypatch):
    """A preset of Pendulum-v1 beside those of the paper, with a variant that wants data; the values of that."""
    preset = yaml.safe_load(yaml.safe_dump(SMALL | {"guidance": None}))
    guided = {"warm_start": {"epochs": 1}, "data": SMALL_DATA}
    variants = {"sac": {}, "guided": guided}
    monkeypatch.setitem(_presets(), "pendulum", preset | {"description": "small", "variants": variants})
    return preset | guided


def collect_recipe(*options):
    result = CliRunner().invoke(app, ["collect", "--recipe", "pendulum", "--root", "data", *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_recipe_trains_and_collects_what_a_campaign_would(pendulum, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = collect_recipe()
    assert "80 collected" in output
    assert re.search(r"runs/shared/behaviour/pendulum-sac-[0-9a-f]{8}/000002", output)
    made = load_episodes("pendulum/behaviour-v0", tmp_path / "data")
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file() and file.name != "lock"}
    assert "Nothing was left to collect" in collect_recipe()
    assert times == {file: file.stat().st_mtime_ns for file in times}, "nothing is made twice"

    plan = Campaign(tmp_path / "campaign")
    config, (folder,) = plan.prepare(validate(pendulum, "test"))
    run_tasks(plan.tasks, jobs=1)
    assert folder == config.warm_start.root / config.warm_start.dataset
    assert load_episodes(config.warm_start.dataset, config.warm_start.root).digest == made.digest


def test_a_recipe_takes_a_run_a_seed_an_id_and_a_number_of_ones_own(pendulum, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    collect_recipe(
        "--run", "mine", "--seed", "1", "--dataset", "pendulum/mine-v0", "--transitions", "30", "--every", "2"
    )
    assert load_episodes("pendulum/mine-v0", tmp_path / "data").transitions == 30
    assert "seed: 1" in (tmp_path / "mine" / "config.yaml").read_text()
    assert not (tmp_path / "runs/shared").exists()


def test_little_data_is_of_some_policies_of_the_same_run():
    full, little = (load_config(f"gauntlet-hopper/{variant}") for variant in ("base", "base-little"))
    folder = CampaignFolder(RUNS)
    recipes = [recipe_of(config, config.data, folder) for config in (full, little)]
    assert recipes[0].run == recipes[1].run == recipe_of(load_config("hopper/sac-bc"), full.data, folder).run
    assert [recipe.policies for recipe in recipes] == [None, 10]
    assert [recipe.transitions for recipe in recipes] == [10_000, 1_000]
    assert (full.data.policy_count, little.data.policy_count) == (50, 10)
    assert recipes[0].dataset.endswith("/10000-seed-0-v0")
    assert recipes[1].dataset.endswith("/10x1000-seed-0-v0")


def test_data_of_all_policies_is_described_as_ever():
    assert "policies" not in load_config("hopper/sac-bc").data.model_dump()
    assert load_config("hopper/sac-bc", ["data.policies=60"]).data.policy_count == 50, "no more than there are"
    with pytest.raises(ConfigurationError, match=r"data\.policies: .*greater than or equal to 1, got 0"):
        load_config("hopper/sac-bc", ["data.policies=0"])


def test_a_campaign_collects_from_some_policies(pendulum, tmp_path):
    plan = Campaign(tmp_path)
    data = SMALL_DATA | {"policies": 1}
    config, _ = plan.prepare(validate(pendulum | {"data": data}, "test"))
    run_tasks(plan.tasks, jobs=1)
    episodes = load_episodes(config.warm_start.dataset, config.warm_start.root)
    assert episodes.transitions == 40, "of the last of two policies"


FUNCTION_DATA = {"policy": "tests.experiments.pendulum:push", "transitions": 40}


def test_a_campaign_rolls_a_function_out_where_the_run_acts(pendulum, tmp_path):
    plan = Campaign(tmp_path)
    config, _ = plan.prepare(validate(pendulum | {"data": FUNCTION_DATA}, "test"))
    (collect,) = plan.tasks
    assert collect.inputs == ()
    run_tasks(plan.tasks, jobs=1)
    episodes = load_episodes(config.warm_start.dataset, config.warm_start.root)
    assert episodes.lengths.tolist() == [30, 10], "the run's own time limit"
    assert (episodes.actions == 1).all()


def test_a_function_s_data_is_named_by_all_that_determines_it(pendulum):
    def dataset(**changes):
        config = validate(pendulum | {"data": FUNCTION_DATA} | changes, "test")
        return recipe_of(config, config.data, CampaignFolder(RUNS)).dataset

    assert re.fullmatch(r"tests-experiments-pendulum-push-[0-9a-f]{8}/40-seed-0-v0", dataset())
    environment = pendulum["environment"]
    assert dataset(environment=environment | {"n_envs": 4}) == dataset(iterations=7) == dataset()
    others = [
        dataset(environment=environment | {"options": {}}),
        dataset(environment=environment | {"backend": "gymnasium"}),
        dataset(data=FUNCTION_DATA | {"transitions": 41}),
        dataset(data=FUNCTION_DATA | {"policy": "tests.experiments.pendulum:upright"}),
        dataset(data=FUNCTION_DATA | {"seed": 1}),
    ]
    assert len({dataset(), *others}) == 6
    assert dataset(seed=1) == dataset(data=FUNCTION_DATA | {"seed": 1})


def test_a_recipe_of_a_function_is_collected_by_itself(pendulum, tmp_path, monkeypatch):
    monkeypatch.setitem(_presets()["pendulum"]["variants"]["guided"], "data", FUNCTION_DATA)
    monkeypatch.chdir(tmp_path)
    assert "40 collected" in collect_recipe()
    assert load_episodes("pendulum/behaviour-v0", tmp_path / "data").lengths.tolist() == [30, 10]
    assert not (tmp_path / "runs").exists(), "nothing is trained"
    result = CliRunner().invoke(app, ["collect", "--recipe", "pendulum", "--run", "mine"])
    assert "nothing is trained: leave --run mine out" in str(result.exception)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"transitions": 40}, "data: the key 'train' is missing, and there is no `policy`"),
        ({"transitions": 40, "train": "hopper/sac"}, "data: the key 'iterations' is missing"),
        (FUNCTION_DATA | {"train": "hopper/sac"}, "data: `policy` is in the place of a run, which 'train' is of"),
        (FUNCTION_DATA | {"settings": {"gamma": 1}}, "which 'settings' is of: leave one of them out"),
        (FUNCTION_DATA | {"policy": "push"}, r"data\.policy: input should be of the form module:function, got 'push'"),
        (FUNCTION_DATA | {"policie": 2}, r"unknown key 'data\.policie'; did you mean 'polic"),
    ],
)
def test_data_is_of_a_run_or_of_a_function(pendulum, data, message):
    with pytest.raises(ConfigurationError, match=message):
        validate(pendulum | {"data": data}, "test")
