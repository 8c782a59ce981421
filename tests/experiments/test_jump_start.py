"""A jump start in a run: the cloned policy begins training episodes, and a run that is resumed goes on with it."""

import json

import pytest
import yaml

from hurl.experiments.checkpoint import checkpoint_paths
from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from tests.experiments.conftest import SAC, repeating
from tests.experiments.swinging import write_pushing
from tests.experiments.test_run import InterruptionError, stop_after

QUICK = {"stages": 3, "tolerance": 0.5, "window": 2, "episodes": 2}
BASES = {"sbx.SAC": {}, "sb3.SAC": {}, "sb3.TD3": {"action_noise": 0.1}, "contrib.CrossQ": {}}


@pytest.fixture
def started(small, tmp_path, monkeypatch):
    """The values of a small run with a jump start."""
    warm_start = write_pushing(tmp_path / "data", monkeypatch)
    return small | {"guidance": None, "warm_start": warm_start, "jump_start": QUICK}


def configure(values, base="sb3.SAC"):
    algorithm = {"name": base, "parameters": SAC} | BASES[base]
    return RunConfig.model_validate(values | {"algorithm": algorithm})


def read_states(path):
    return [json.loads((folder / "state.json").read_text()) for folder in checkpoint_paths(RunFolder(path))]


@pytest.mark.parametrize("base", BASES)
def test_an_interrupted_run_ends_as_one_left_alone(started, tmp_path, base):
    config = configure(started, base)
    train(config, tmp_path / "alone")
    for iteration in (0, 1, 3, 4):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "interrupted", stop_after(iteration))
    train(config, tmp_path / "interrupted")
    assert repeating(tmp_path / "interrupted/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")
    alone, interrupted = (read_states(tmp_path / name) for name in ("alone", "interrupted"))
    assert [state["curriculum"] for state in alone] == [state["curriculum"] for state in interrupted]
    assert alone[-1]["random"] == interrupted[-1]["random"]
    stages = [state["curriculum"]["stage"] for state in alone]
    assert stages[0] == 0 < stages[1] <= stages[-1] == 3


def test_a_jump_start_changes_the_training_alone(started, tmp_path):
    rows = train(configure(started), tmp_path / "with")
    without = train(configure(started | {"jump_start": None}), tmp_path / "without")
    assert rows[0].return_mean == without[0].return_mean  # the cloned policy
    assert rows[1].return_mean != without[1].return_mean
    checkpoint = find_checkpoint(tmp_path / "with")
    assert len(evaluate_checkpoint(checkpoint, episodes=2, seed=0).returns) == 2


def test_it_is_part_of_the_configuration(started):
    config = configure(started)
    assert validate(yaml.safe_load(config.to_yaml()), "copy") == config
    plain = configure(started | {"jump_start": None})
    assert "jump_start" not in plain.model_dump()  # digests of configurations stay what they were
    assert set(plain.model_dump(exclude={"seed", "gamma"})) == set(plain.model_dump()) - {"seed", "gamma"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warm_start": None}, "jump_start needs a policy to begin episodes with: add a warm_start"),
        ({"guidance": {"heuristic": "some:thing"}}, "jump_start and guidance are two ways to the same end: leave one"),
        (
            {"algorithm": {"name": "rllib.SAC"}, "updates_per_iteration": None},
            r"jump_start can't be had with rllib.SAC: leave it out, or take an algorithm of sb3",
        ),
        ({"jump_start": {"stages": 0}}, r"jump_start\.stages: .*greater than or equal to 1, got 0"),
        ({"jump_start": {"tolerance": 1.0}}, r"jump_start\.tolerance: .*less than 1, got 1\.0"),
        ({"jump_start": {"stage": 3}}, r"unknown key 'jump_start\.stage'; did you mean 'stages'"),
    ],
)
def test_what_makes_no_sense_is_named(started, change, message):
    with pytest.raises(ConfigurationError, match=message):
        validate(started | change, "values")


def test_an_algorithm_that_cannot_have_one_is_named(started, tmp_path):
    ppo = {"name": "sb3.PPO", "parameters": {"batch_size": 50}}
    values = started | {"algorithm": ppo, "updates_per_iteration": None}
    with pytest.raises(ConfigurationError, match="jump_start is for algorithms with a replay buffer"):
        train(RunConfig.model_validate(values), tmp_path / "run")
