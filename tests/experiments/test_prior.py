"""Logged data in the batches of a run: pinned, resumed exactly, and named where it is missing."""

import shutil

import numpy as np
import pytest

from hurl.data import DatasetError
from hurl.experiments.agents import value_function_of
from hurl.experiments.campaign import plan_campaign
from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import ConfigurationError, RunFolderError
from hurl.experiments.run import train
from hurl.guidance import HeuristicError
from tests.experiments.conftest import SAC, repeating
from tests.experiments.swinging import DATASET, write_pushing
from tests.experiments.test_run import InterruptionError, stop_after


@pytest.fixture
def logged(small, tmp_path, monkeypatch):
    """The values of a small run with prior data, which is under `tmp_path / "data"`."""
    place = write_pushing(tmp_path / "data", monkeypatch)
    return small | {"iterations": 3, "prior": {"dataset": place["dataset"], "root": place["root"], "share": 0.3}}


def changed(values, **changes):
    return RunConfig.model_validate(values | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": {"name": "sbx.SAC", "parameters": SAC}},
        {"algorithm": {"name": "sb3.TD3", "parameters": SAC | {"n_steps": 3}}, "guidance": None},
        {"guidance": {"heuristic": "tests.experiments.pendulum:upright"}},
    ],
    ids=["sbx", "n-step", "ladder"],
)
def test_an_interrupted_run_ends_as_one_left_alone(logged, tmp_path, changes):
    config = changed(logged, **changes)
    train(config, tmp_path / "alone")
    for iteration in (1, 2):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed", stop_after(iteration))
    train(config, tmp_path / "killed")
    assert repeating(tmp_path / "killed/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")


def test_it_changes_what_is_learnt(logged, tmp_path):
    with_data, without = train(changed(logged), tmp_path / "a"), train(changed(logged, prior=None), tmp_path / "b")
    (row, *_) = train(changed(logged, guidance=None, iterations=1), tmp_path / "c")
    assert np.isnan(row.h_mean), "without guidance there is no h"
    assert with_data[0].training_return == without[0].training_return
    assert with_data[-1].return_mean != without[-1].return_mean


def test_data_that_is_gone_or_another_is_named_and_nothing_is_lost(logged, tmp_path, monkeypatch):
    config = changed(logged)
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(2))
    before = repeating(tmp_path / "run/metrics.csv")
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match=f"there is no dataset '{DATASET}' in .*/data"):
        train(config, tmp_path / "run")
    write_pushing(tmp_path / "data", monkeypatch, seed=1)
    with pytest.raises(RunFolderError, match=f"the dataset {DATASET} has changed since the run in .* began"):
        train(config, tmp_path / "run")
    assert repeating(tmp_path / "run/metrics.csv") == before
    shutil.rmtree(tmp_path / "data")
    shutil.move(tmp_path / "elsewhere", tmp_path / "data")
    assert len(train(config, tmp_path / "run")) == 3


def test_data_of_one_id_in_two_folders_is_told_apart(logged, tmp_path, monkeypatch):
    other = write_pushing(tmp_path / "other", monkeypatch, seed=1)
    config = changed(logged, warm_start={"dataset": DATASET, "root": other["root"], "epochs": 1, "rehearsal": 2})
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(1))
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(tmp_path / "data", tmp_path / "other")
    with pytest.raises(RunFolderError, match=f"the dataset {DATASET} in .*/other has changed since the run"):
        train(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0}, "prior.share: input should be greater than 0, got 0"),
        ({"share": 1.0}, "prior.share: input should be less than 1, got 1.0"),
        ({"blend": 3}, "prior.blend: input should be less than or equal to 1, got 3"),
        ({"shares": 0.5}, "unknown key 'prior.shares'; did you mean 'share'"),
        ({"dataset": None}, "a warm_start or prior without a dataset"),
    ],
)
def test_mistakes_are_named(logged, values, message):
    with pytest.raises(ConfigurationError, match=message):
        validate(logged | {"prior": logged["prior"] | values}, "values")


def test_returns_are_not_blended_in_beside_a_potential(logged):
    pbrs = logged["guidance"] | {"schedule": {"kind": "constant", "lambda0": 1.0}, "shaping": "pbrs"}
    with pytest.raises(ConfigurationError, match=r"blend=0\.5 can't be had with shaping='pbrs'"):
        validate(logged | {"guidance": pbrs, "prior": logged["prior"] | {"blend": 0.5}}, "values")


@pytest.mark.parametrize("schedule", [{"kind": "constant", "lambda0": 1.0}, {"kind": "ladder", "rungs": [1.0]}])
def test_a_critic_with_returns_blended_in_is_no_value_function(schedule, logged, tmp_path):
    guidance = {"heuristic": "tests.experiments.pendulum:upright", "schedule": schedule}
    values = logged | {"guidance": guidance, "iterations": 1, "prior": logged["prior"] | {"blend": 0.5}}
    with pytest.raises(ConfigurationError, match=r"blend=0\.5 needs a heuristic for what follows the time limits"):
        train(validate(values | {"guidance": None}, "values"), tmp_path / "unguided")
    train(validate(values, "values"), tmp_path / "run")
    with pytest.raises(HeuristicError, match=r"learns from logged data with blend=0\.5"):
        value_function_of(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithm": {"name": "sb3.PPO", "parameters": {"batch_size": 50}}, "updates_per_iteration": None},
            "prior is for algorithms with a replay buffer, such as sbx.SAC: leave it out for sb3.PPO",
        ),
        ({"share": 0.001}, "prior.share: a share of 0.001 is 0 of the 16 transitions of a batch: take one from 0.032"),
        ({"blend": 0.5, "guidance": None}, "prior: blend=0.5 needs a heuristic for what follows the time limits"),
    ],
)
def test_what_can_not_be_learnt_from_is_refused_by_its_own_name(logged, tmp_path, changes, message):
    prior = {key: changes.pop(key) for key in ("share", "blend") if key in changes}
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        train(changed(logged | {"prior": logged["prior"] | prior}, **changes), tmp_path / "run")


@pytest.mark.parametrize(
    ("variant", "key", "more"),
    [
        ("sac-prior", "prior", ""),
        ("jsrl", "jump_start", ""),
        ("sac-bc", "warm_start.rehearsal", "warm_start.rehearsal=2"),
    ],
)
def test_algorithms_without_a_replay_are_refused_before_data_is_made(tmp_path, variant, key, more):
    settings = ["algorithm={name: sb3.PPO}", *([more] if more else [])]
    with pytest.raises(ConfigurationError, match=f"{key} is for algorithms with a replay buffer, such as sbx.SAC"):
        plan_campaign("hopper", [variant], [0], tmp_path, settings)
