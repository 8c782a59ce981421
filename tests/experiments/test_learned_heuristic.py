"""A run guided by a heuristic that was fitted to data and saved, end to end."""

import json

import numpy as np
import pytest
import yaml

import hurl
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.run import train
from hurl.heuristics.storage import find_heuristic
from hurl.names import parse_heuristic
from tests.experiments.conftest import repeating
from tests.experiments.swinging import pushing_episodes
from tests.experiments.test_cli import hurl as command
from tests.experiments.test_run import InterruptionError, stop_after


def fit(folder, seed=0):
    heuristic = hurl.MonteCarloHeuristic.fit(pushing_episodes(seed=seed), gamma=0.95, epochs=2)
    heuristic.save(folder)
    return heuristic


@pytest.fixture
def guided(small, tmp_path, monkeypatch):
    """The values of a small run guided by the heuristic in the folder `saved/h`, where the test is."""
    monkeypatch.chdir(tmp_path)
    fit(tmp_path / "saved/h")
    small["guidance"]["heuristic"] = "saved/h"
    return small | {"iterations": 3}


def test_an_interrupted_run_ends_as_one_left_alone(guided, tmp_path):
    config = RunConfig.model_validate(guided)
    rows = train(config, tmp_path / "alone")
    assert all(row.h_min < row.h_mean < row.h_max for row in rows)
    for iteration in (1, 2):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed", stop_after(iteration))
    train(config, tmp_path / "killed")
    assert repeating(tmp_path / "killed/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")
    assert yaml.safe_load((tmp_path / "alone/config.yaml").read_text())["guidance"]["heuristic"] == "saved/h"


def test_it_is_the_saved_heuristic_that_guides(guided, tmp_path):
    learned = train(RunConfig.model_validate(guided), tmp_path / "learned")
    guided["guidance"]["heuristic"] = "tests.experiments.pendulum:upright"
    by_hand = train(RunConfig.model_validate(guided), tmp_path / "by-hand")
    assert [row.h_mean for row in learned] != [row.h_mean for row in by_hand]
    assert all(row.h_max <= 0 for row in learned), "returns of Pendulum are negative"


def test_a_heuristic_fitted_anew_is_refused_by_a_run_that_had_begun(guided, tmp_path):
    config = RunConfig.model_validate(guided)
    before = json.dumps(fit(tmp_path / "saved/h").digest)
    for iteration in (1, 2):  # before the first checkpoint, and at it
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "run", stop_after(iteration))
        assert before in (tmp_path / "run/inputs.json").read_text()
        fit(tmp_path / "saved/h", seed=50)
        with pytest.raises(RunFolderError, match=r"heuristic saved/h has changed since the run in .* began"):
            train(config, tmp_path / "run")
        fit(tmp_path / "saved/h")
    finished = train(config, tmp_path / "run")
    fit(tmp_path / "saved/h", seed=50)
    assert train(config, tmp_path / "run") == finished, "a run that is over needs no heuristic"
    assert len(evaluate_checkpoint(find_checkpoint(tmp_path / "run"), episodes=2, seed=0).returns) == 2


def test_a_folder_without_a_separator_is_a_saved_heuristic_too(guided, tmp_path):
    from hurl.envs import make_env

    heuristic = fit(tmp_path / "here")
    observations = pushing_episodes().observations
    found = find_heuristic(parse_heuristic("here"), make_env("Pendulum-v1", 1, 0).observation_space, 0.95)
    np.testing.assert_array_equal(found(observations), heuristic(observations))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 0.9}, r"is for gamma=0\.95, but here gamma=0\.9"),
        (
            {"environment": {"id": "MountainCarContinuous-v0", "n_envs": 2}},
            r"is for observations of Box of shape \(3,\)",
        ),
    ],
)
def test_a_heuristic_for_another_problem_is_refused(guided, tmp_path, change, message):
    with pytest.raises(hurl.HeuristicError, match=message):
        train(RunConfig.model_validate(guided | change), tmp_path / "run")


def test_altered_weights_are_refused(guided, tmp_path):
    file = tmp_path / "saved/h/weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(hurl.HeuristicError, match=r"weights\.safetensors"):
        train(RunConfig.model_validate(guided), tmp_path / "run")


def test_a_folder_that_is_not_there_is_one_sentence_of_the_command_line(guided, tmp_path):
    guided["guidance"]["heuristic"] = "saved/g"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(guided))
    result = command(tmp_path, "train run.yaml --out run")
    assert result.returncode == 2, result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "saved/g" in errors[0]
    assert "Traceback" not in result.stderr
