"""A warm start as a step of a run: cloned once, evaluated as iteration 0, and resumed like the rest."""

import shutil

import numpy as np
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hurl.data import DatasetError
from hurl.experiments.checkpoint import checkpoint_paths
from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import ConfigurationError, RunFolderError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from hurl.experiments.trainers.base import EVALUATION, derive_seed
from hurl.experiments.trainers.sb3 import SB3Trainer
from tests.experiments.conftest import SAC, repeating
from tests.experiments.swinging import DATASET, write_pushing
from tests.experiments.test_cli import hurl
from tests.experiments.test_run import InterruptionError, stop_after

BASES = ("sbx.SAC", "sb3.TD3", "sb3.PPO", "sbx.PPO", "contrib.CrossQ")


@pytest.fixture
def warm(small, tmp_path, monkeypatch):
    """The values of a small run with a warm start, its data under `tmp_path / "data"`."""
    return small | {"iterations": 3, "warm_start": write_pushing(tmp_path / "data", monkeypatch)}


def configure(values, base="sb3.SAC"):
    values = values | {"algorithm": {"name": base, "parameters": SAC}}
    if "PPO" in base:
        values = values | {
            "algorithm": {"name": base, "parameters": {"batch_size": 50}},
            "updates_per_iteration": None,
        }
    return RunConfig.model_validate(values)


def stop_cloning_after(stop):
    def report(epoch, loss):
        if epoch == stop:
            raise InterruptionError

    return report


@pytest.mark.parametrize("base", BASES)
def test_an_interrupted_warm_start_ends_as_one_left_alone(warm, tmp_path, base):
    config = configure(warm, base)
    rows = train(config, tmp_path / "alone")
    assert [row.iteration for row in rows] == [0, 1, 2, 3]
    assert [row.steps for row in rows] == [0, 100, 200, 300]
    for epoch in (1, 5):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed", report_cloning=stop_cloning_after(epoch))
    for iteration in (0, 1, 2):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed", stop_after(iteration))
    train(config, tmp_path / "killed")
    assert repeating(tmp_path / "killed/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")


LADDER = {"heuristic": "tests.experiments.pendulum:upright", "schedule": {"kind": "ladder", "rungs": [0.5, 1.0]}}


@pytest.mark.parametrize(("base", "changes"), [("sbx.SAC", {}), ("sb3.TD3", {"guidance": LADDER})])
def test_a_run_interrupted_while_it_rehearses_ends_as_one_left_alone(warm, tmp_path, base, changes):
    warm["warm_start"] |= {"rehearsal": 5}
    config = configure(warm | {"iterations": 4, "updates_per_iteration": 40} | changes, base)
    train(config, tmp_path / "alone")
    for iteration in (0, 3):
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed", stop_after(iteration))
    train(config, tmp_path / "killed")
    assert repeating(tmp_path / "killed/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")
    log = EventAccumulator(str(tmp_path / "alone/tensorboard")).Reload()
    assert [event.step for event in log.Scalars("rehearsal/loss")] == [100, 200, 300]


def test_a_rehearsal_needs_the_data_it_began_with_until_it_is_over(warm, tmp_path, monkeypatch):
    warm["warm_start"] |= {"rehearsal": 4}
    config = configure(warm | {"iterations": 6})
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(2))
    shutil.move(tmp_path / "data", tmp_path / "old")
    with pytest.raises(DatasetError, match=f"no dataset '{DATASET}'"):
        train(config, tmp_path / "run")
    write_pushing(tmp_path / "data", monkeypatch, seed=100)
    with pytest.raises(RunFolderError, match=rf"dataset {DATASET} has changed since the run .* began"):
        train(config, tmp_path / "run")
    shutil.rmtree(tmp_path / "data")
    shutil.move(tmp_path / "old", tmp_path / "data")
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(4))
    shutil.rmtree(tmp_path / "data")
    assert len(train(config, tmp_path / "run")) == 7


def test_an_algorithm_that_can_not_rehearse_is_refused_before_anything_is_cloned(warm, tmp_path):
    warm["warm_start"] |= {"rehearsal": 2}
    epochs = []
    with pytest.raises(ConfigurationError, match=r"warm_start\.rehearsal is for algorithms with a replay buffer"):
        train(configure(warm, "sb3.PPO"), tmp_path / "run", report_cloning=lambda epoch, loss: epochs.append(epoch))
    assert epochs == []


def test_a_run_killed_before_its_first_checkpoint_clones_again(warm, tmp_path, monkeypatch):
    config = configure(warm)
    train(config, tmp_path / "alone")

    def fail(*arguments):
        raise InterruptionError

    with monkeypatch.context() as context:
        context.setattr(SB3Trainer, "save", fail)
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "killed")
    assert len(RunFolder(tmp_path / "killed").read_metrics()) == 1
    train(config, tmp_path / "killed")
    assert repeating(tmp_path / "killed/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")


def test_a_checkpoint_needs_no_data(warm, tmp_path):
    config, resumed = configure(warm), []
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(0))
    shutil.rmtree(tmp_path / "data")
    epochs = []
    train(
        config,
        tmp_path / "run",
        report_cloning=lambda epoch, loss: epochs.append(epoch),
        report_resuming=resumed.append,
    )
    assert (epochs, resumed) == ([], [0])


def test_no_iterations_evaluate_the_cloned_policy_alone(warm, tmp_path):
    warm["guidance"]["heuristic"] = "needed:by_nothing"
    losses = []
    rows = train(
        configure(warm | {"iterations": 0}),
        tmp_path / "run",
        report_cloning=lambda epoch, loss: losses.append(loss),
    )
    assert [(row.iteration, row.steps, row.lambda_, row.discount) for row in rows] == [(0, 0, 1.0, 0.95)]
    assert np.isnan([rows[0].h_mean, rows[0].h_min, rows[0].h_max]).all()
    assert losses[-1] < losses[0]
    assert [path.name for path in checkpoint_paths(RunFolder(tmp_path / "run"))] == ["000000"]
    assert train(configure(warm | {"iterations": 0}), tmp_path / "run")[0].return_mean == rows[0].return_mean
    seed = derive_seed(configure(warm), EVALUATION, 0)
    returns = evaluate_checkpoint(find_checkpoint(tmp_path / "run"), episodes=2, seed=seed).returns
    assert returns.mean() == pytest.approx(rows[0].return_mean)


def test_the_log_has_the_loss_of_each_epoch_and_the_cloned_policys_return(warm, tmp_path):
    losses = []
    rows = train(configure(warm), tmp_path / "run", report_cloning=lambda epoch, loss: losses.append(loss))
    log = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    events = log.Scalars("cloning/loss")
    assert [event.step for event in events] == [1, 2, 3, 4, 5]
    assert [event.value for event in events] == pytest.approx(losses)
    returns = log.Scalars("evaluation/return_mean")
    assert [event.step for event in returns] == [0, 100, 200, 300]
    assert returns[0].value == pytest.approx(rows[0].return_mean)


def test_data_that_changed_before_the_clone_was_done_is_refused(warm, tmp_path, monkeypatch):
    config = configure(warm)
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", report_cloning=stop_cloning_after(2))
    shutil.rmtree(tmp_path / "data")
    write_pushing(tmp_path / "data", monkeypatch, seed=100)
    with pytest.raises(RunFolderError, match=rf"dataset {DATASET} has changed since the run .* began: put the old"):
        train(config, tmp_path / "run")
    # Another configuration begins anew in a folder that has no result yet.
    train(configure(warm | {"seed": 5, "iterations": 0}), tmp_path / "run")


def test_damaged_inputs_and_missing_rows_are_named_with_the_remedy(warm, tmp_path):
    config = configure(warm)
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", report_cloning=stop_cloning_after(2))
    (tmp_path / "run/inputs.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"inputs\.json is damaged: remove it"):
        train(config, tmp_path / "run")
    (tmp_path / "run/inputs.json").unlink()
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(2))
    metrics = tmp_path / "run/metrics.csv"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:2]))
    with pytest.raises(RunFolderError, match=r"has 1 of the 3 iterations.*remove the checkpoints after 0"):
        train(config, tmp_path / "run")
    metrics.write_text(lines[0])
    with pytest.raises(RunFolderError, match=r"has 0 of the 3 iterations.*remove all checkpoints"):
        train(config, tmp_path / "run")


def test_a_warm_start_is_part_of_the_configuration(warm):
    config = configure(warm)
    assert validate(yaml.safe_load(config.to_yaml()), "copy") == config
    defaults = RunConfig.model_validate(warm | {"warm_start": {"dataset": DATASET}}).warm_start
    assert (defaults.epochs, defaults.learning_rate, defaults.batch_size, defaults.rehearsal) == (30, None, 128, None)
    for values, message in (
        ({"warm_start": None, "iterations": 0}, "iterations: .*greater than or equal to 1, got 0 without a warm_start"),
        ({"warm_start": {"dataset": DATASET, "epochs": 0}}, r"warm_start\.epochs: .*greater than or equal to 1, got 0"),
        ({"warm_start": {"dataset": DATASET, "epoch": 3}}, r"unknown key 'warm_start\.epoch'; did you mean 'epochs'"),
        ({"warm_start": {"dataset": DATASET, "rehearsal": -1}}, r"rehearsal: .*greater than or equal to 1, got -1"),
        ({"iterations": -1}, "iterations: .*greater than or equal to 0, got -1"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            validate(warm | values, "values")


def test_a_missing_dataset_is_named(warm, tmp_path):
    warm["warm_start"]["dataset"] = "pendulum/pulling-v0"
    with pytest.raises(DatasetError, match=rf"no dataset 'pendulum/pulling-v0' in .*/data \(there are {DATASET}\)"):
        train(configure(warm), tmp_path / "run")


def test_data_of_another_environment_is_refused_before_anything_is_trained(warm, tmp_path):
    values = warm | {"environment": {"id": "MountainCarContinuous-v0", "n_envs": 2}}
    with pytest.raises(DatasetError, match=r"pushing-v0 has observations of Box.*\(3,\).*model's are of Box.*\(2,\)"):
        train(configure(values | {"guidance": None}), tmp_path / "run")
    assert not checkpoint_paths(RunFolder(tmp_path / "run"))


def test_the_command_line_shows_the_clone_and_where_it_resumes(warm, tmp_path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(warm | {"guidance": None}))
    result = hurl(tmp_path, "train run.yaml --out bc --set iterations=0")
    assert result.returncode == 0, result.stderr
    for line in ("cloning, epoch 1/5  loss", "cloning, epoch 5/5  loss", "iteration 0/0  return", "after 0 steps"):
        assert line in result.stdout
    with pytest.raises(InterruptionError):
        train(RunConfig.model_validate(warm | {"guidance": None}), tmp_path / "run", stop_after(2))
    result = hurl(tmp_path, "train run.yaml --out run")
    assert result.returncode == 0, result.stderr
    assert "resuming from iteration 2" in result.stdout
    assert "cloning, epoch" not in result.stdout


def test_the_command_line_tells_its_version(tmp_path):
    assert hurl(tmp_path, "--version").stdout.startswith("hurl 0.")
