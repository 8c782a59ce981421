"""A run made longer ends as one that was as long from the start, or is refused."""

import pytest
import yaml
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.checkpoint import checkpoint_paths
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError, TrainingEndedError
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from hurl.files import remove
from hurl.guidance import HeuristicError
from hurl.heuristics.simple import Engineered
from hurl.own_code import UntrustedCodeError
from tests.experiments.conftest import repeating

CONSTANT = {"heuristic": "tests.experiments.pendulum:upright", "schedule": {"kind": "constant", "lambda0": 0.9}}
PPO = {"name": "sb3.PPO", "parameters": {"n_steps": 50, "batch_size": 50, "n_epochs": 1}}
RUNS = {
    "sac, guided": {"guidance": CONSTANT, "keep_replay": True},
    "sac, ladder": {"guidance": CONSTANT | {"schedule": {"kind": "ladder"}}, "keep_replay": True},
    "ppo": {"guidance": None, "algorithm": PPO, "updates_per_iteration": None},
}


def of_length(small, iterations, **changes):
    return RunConfig.model_validate(
        small | {"iterations": iterations, "checkpoint_every": 2, "evaluation_episodes": 1} | changes
    )


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("first", [2, 3])  # with its last checkpoint where the longer run has one, and where not
def test_a_run_made_longer_ends_as_one_left_alone(small, tmp_path, name, first):
    train(of_length(small, first, **RUNS[name]), tmp_path / "run")
    train(of_length(small, 5, **RUNS[name]), tmp_path / "run")
    train(of_length(small, 5, **RUNS[name]), tmp_path / "alone")
    alone, longer = (repeating(tmp_path / folder / "metrics.csv") for folder in ("alone", "run"))
    assert len(alone) == 5
    assert alone == longer
    assert RunFolder(tmp_path / "run").is_finished(of_length(small, 5, **RUNS[name]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"its λ has risen over 2 iterations and would over 4: .* guidance.schedule.iterations"),
        ({"guidance": CONSTANT}, "its replay buffer was removed when it was finished: .* keep_replay: true"),
        (
            {
                "environment": {"id": "CartPole-v1", "n_envs": 2},
                "algorithm": {"name": "sb3.DQN", "parameters": {"buffer_size": 400, "batch_size": 16}},
                "guidance": None,
                "keep_replay": True,
            },
            "sb3.DQN explores less and less over all 2 iterations",
        ),
    ],
)
def test_a_run_that_depends_on_its_length_is_not_made_longer(small, tmp_path, changes, message):
    train(of_length(small, 2, **changes), tmp_path)
    before = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(RunFolderError, match=message):
        train(of_length(small, 4, **changes), tmp_path)
    assert RunFolder(tmp_path).parse_config().iterations == 2
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_a_run_that_can_not_be_made_longer_now_stays_what_it_is(small, tmp_path):
    saved, run = tmp_path / "h", tmp_path / "run"
    Engineered("tests.experiments.pendulum:upright").save(saved)
    changes = {"guidance": CONSTANT | {"heuristic": str(saved)}, "keep_replay": True}
    train(of_length(small, 3, **changes), run, trust=True)
    saved.rename(tmp_path / "elsewhere")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and "tensorboard" not in file.parts}
    with pytest.raises(HeuristicError, match="is not a saved heuristic"):
        train(of_length(small, 4, **changes), run, trust=True)
    assert {file: file.read_bytes() for file in before} == before
    assert RunFolder(run).is_finished(of_length(small, 3, **changes))
    (tmp_path / "elsewhere").rename(saved)
    assert len(train(of_length(small, 4, **changes), run, trust=True)) == 4


def test_a_run_is_made_longer_by_the_next_start_where_the_first_was_killed(small, tmp_path):
    train(of_length(small, 3, **RUNS["ppo"]), tmp_path / "run")
    remove(tmp_path / "run" / "checkpoints" / "000003")  # which is done before the configuration is written
    train(of_length(small, 5, **RUNS["ppo"]), tmp_path / "run")
    train(of_length(small, 5, **RUNS["ppo"]), tmp_path / "alone")
    assert repeating(tmp_path / "run" / "metrics.csv") == repeating(tmp_path / "alone" / "metrics.csv")


@pytest.mark.parametrize("name", ["sac, guided", "ppo"])
def test_a_run_that_a_callback_ended_is_made_longer_from_the_last_checkpoint_that_was_due(small, tmp_path, name):
    """The callback ends it again, as it would have ended a run of that length, whose metrics are the same."""
    changes = RUNS[name] | {"callbacks": [{"tests.experiments.own_code:Stopping": {"steps": 250}}]}
    for folder, iterations in (("run", 4), ("run", 6), ("alone", 6)):
        with pytest.raises(TrainingEndedError, match=f"after iteration 3 of {iterations}"):
            train(of_length(small, iterations, **changes), tmp_path / folder)
    assert repeating(tmp_path / "run" / "metrics.csv") == repeating(tmp_path / "alone" / "metrics.csv")
    assert RunFolder(tmp_path / "run").parse_config().iterations == 6
    assert [path.name for path in checkpoint_paths(RunFolder(tmp_path / "run"))] == ["000002", "000003"]


def test_a_run_is_not_made_shorter(small, tmp_path):
    train(of_length(small, 2, **RUNS["ppo"]), tmp_path)
    with pytest.raises(RunFolderError, match="iterations is 2 there and 1 here"):
        train(of_length(small, 1, **RUNS["ppo"]), tmp_path)


def test_continue_takes_what_was_set_when_the_run_began(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = small | {"iterations": 1, "evaluation_episodes": 1} | RUNS["ppo"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))

    def hurl_train(*words):
        return CliRunner().invoke(app, ["train", "run.yaml", "--out", "run", *words])

    assert hurl_train("--set", "gamma=0.77").exit_code == 0
    assert "gamma is 0.77 there" in str(hurl_train("--set", "iterations=2").exception)
    result = hurl_train("--continue", "--set", "iterations=2")
    assert result.exit_code == 0, result.output
    config = RunFolder(tmp_path / "run").parse_config()
    assert (config.gamma, config.iterations) == (0.77, 2)
    assert len(repeating(tmp_path / "run" / "metrics.csv")) == 2


def test_continue_runs_no_code_that_the_user_has_not_named(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(small | {"guidance": None}))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(small | {"guidance": CONSTANT | {"heuristic": "evil:h"}}))
    result = CliRunner().invoke(app, ["train", "run.yaml", "--out", "run", "--continue"])
    assert isinstance(result.exception, UntrustedCodeError)


def test_it_is_said_from_where_a_longer_run_goes_on(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = small | {"iterations": 3, "checkpoint_every": 2, "evaluation_episodes": 1} | RUNS["ppo"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    train(RunConfig.model_validate(values), tmp_path / "run")
    result = CliRunner().invoke(app, ["train", "run.yaml", "--out", "run", "--set", "iterations=4"])
    assert "made longer, from 3 iterations to 4, and goes on from iteration 2" in " ".join(result.output.split())


def test_what_can_not_be_made_longer_is_not_said_to_be(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = small | {"iterations": 2, "evaluation_episodes": 1, "guidance": None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    train(RunConfig.model_validate(values), tmp_path / "run")
    result = CliRunner().invoke(app, ["train", "run.yaml", "--out", "run", "--set", "iterations=4"])
    assert isinstance(result.exception, RunFolderError)
    assert "It is made longer" not in result.output
