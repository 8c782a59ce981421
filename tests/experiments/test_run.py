import json
from copy import deepcopy

import numpy as np
import pytest
import torch

from hurl.experiments.checkpoint import CheckpointError, checkpoint_paths
from hurl.experiments.config import RunConfig, validate
from hurl.experiments.errors import RunFolderError, TrainingFailedError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from hurl.files import MisplacedError
from hurl.guidance import HeuristicError
from tests.experiments import pendulum
from tests.experiments.conftest import SAC, repeating

CARTPOLE = {"environment": {"id": "CartPole-v1", "n_envs": 2}}
BASES = {
    "sbx.SAC": {},
    "sb3.SAC": {},
    "sb3.SAC, 3 steps": {"algorithm": {"name": "sb3.SAC", "parameters": SAC | {"n_steps": 3}}},
    "sb3.SAC, warm-up": {"algorithm": {"name": "sb3.SAC", "parameters": SAC | {"learning_starts": 250}}},
    "sb3.DQN": CARTPOLE | {"algorithm": {"name": "sb3.DQN", "parameters": {"buffer_size": 300, "learning_starts": 0}}},
    "sb3.PPO, pbrs": CARTPOLE | {"algorithm": {"name": "sb3.PPO", "parameters": {"batch_size": 50}}},
    "sb3.TD3, noise": {"algorithm": {"name": "sb3.TD3", "action_noise": 0.1, "parameters": SAC}},
    "contrib.TQC": {},
    "sb3.A2C": {"algorithm": {"name": "sb3.A2C", "parameters": {"n_steps": 10}}},
    "sb3.PPO": CARTPOLE | {"algorithm": {"name": "sb3.PPO", "parameters": {"batch_size": 50}}},
    "sbx.PPO": {"algorithm": {"name": "sbx.PPO", "parameters": {"batch_size": 50}}},
    "sbx.SAC, ladder": {},
    "sb3.SAC, ladder": {},
    "sb3.DQN, ladder": CARTPOLE
    | {"algorithm": {"name": "sb3.DQN", "parameters": {"buffer_size": 300, "learning_starts": 0}}},
    "sb3.PPO, ladder": CARTPOLE | {"algorithm": {"name": "sb3.PPO", "parameters": {"batch_size": 50}}},
    "contrib.QRDQN, unguided": CARTPOLE
    | {"algorithm": {"name": "contrib.QRDQN", "parameters": {"learning_starts": 0}}, "guidance": None},
}


def configure(small, base):
    values = deepcopy(small | {"algorithm": {"name": base.split(",")[0], "parameters": SAC}} | BASES[base])
    if "PPO" in base or "A2C" in base:
        del values["updates_per_iteration"]
    if base.endswith("pbrs"):
        values["guidance"]["shaping"] = "pbrs"
    if base.endswith("ladder"):
        values["guidance"]["schedule"] = {"kind": "ladder", "rungs": [0.8, 1.0]}
    return RunConfig.model_validate(values)


class InterruptionError(KeyboardInterrupt):
    """Stands for whatever ends a process."""


def stop_after(iteration):
    def report(row):
        if row.iteration == iteration:
            raise InterruptionError

    return report


@pytest.mark.parametrize("base", BASES)
def test_an_interrupted_run_ends_as_one_left_alone(small, tmp_path, base):
    config = configure(small, base)
    train(config, tmp_path / "alone")
    for iteration in (1, 3, 4):  # before the first checkpoint, after one, right at one
        with pytest.raises(InterruptionError):
            train(config, tmp_path / "interrupted", stop_after(iteration))
    train(config, tmp_path / "interrupted")
    alone, interrupted = (repeating(tmp_path / name / "metrics.csv") for name in ("alone", "interrupted"))
    assert len(alone) == 5
    assert alone == interrupted
    first, second = (checkpoint_paths(RunFolder(tmp_path / name))[-1] for name in ("alone", "interrupted"))
    states = [json.loads((path / "state.json").read_text()) for path in (first, second)]
    assert states[0]["random"] == states[1]["random"]
    assert states[0]["guidance"] == states[1]["guidance"]


def test_a_run_repeats_and_another_seed_differs(small, tmp_path):
    config = RunConfig.model_validate(small)
    train(config, tmp_path / "first")
    train(config, tmp_path / "second")
    train(config.model_copy(update={"seed": 1}), tmp_path / "other")
    first, second, other = (repeating(tmp_path / name / "metrics.csv") for name in ("first", "second", "other"))
    assert first == second != other


def test_metrics_are_those_of_the_schedule_and_the_steps(small, tmp_path):
    rows = train(RunConfig.model_validate(small), tmp_path / "run")
    assert [row.iteration for row in rows] == [1, 2, 3, 4, 5]
    assert [row.steps for row in rows] == [100, 200, 300, 400, 500]
    assert [row.lambda_ for row in rows] == pytest.approx([0.5, 0.625, 0.75, 0.875, 1.0])
    assert [row.discount for row in rows] == pytest.approx([0.95 * row.lambda_ for row in rows])
    assert all(-10 <= row.h_min < row.h_mean < row.h_max <= 10 for row in rows)
    assert all(row.return_min <= row.return_mean <= row.return_max for row in rows)
    assert {row.episode_length for row in rows} == {30}
    assert repr(RunFolder(tmp_path / "run").read_metrics()) == repr(rows)  # where NaN equals NaN


def test_metrics_of_a_ladder_say_what_its_rungs_pay(small, tmp_path):
    small["guidance"]["schedule"] = {"kind": "ladder", "rungs": [0.8, 1.0]}
    rows = train(RunConfig.model_validate(small), tmp_path / "run")
    assert {row.lambda_ for row in rows} <= {0.8, 1.0}
    assert all(0 <= row.guided_share <= 1 for row in rows)
    assert 0 < sum(row.guided_share for row in rows) < len(rows)
    better = 0.8 if rows[-1].guided_return > rows[-1].base_return else 1.0
    assert rows[-1].lambda_ == better
    policies = evaluate_checkpoint(find_checkpoint(tmp_path / "run"), episodes=2, seed=3)
    assert len(policies.returns) == 2


def test_lambda_one_is_the_unguided_run(small, tmp_path):
    guided = small | {"guidance": small["guidance"] | {"schedule": {"kind": "constant", "lambda0": 1.0}}}
    first = train(RunConfig.model_validate(guided), tmp_path / "guided")
    second = train(RunConfig.model_validate(small | {"guidance": None}), tmp_path / "base")
    assert [row.return_mean for row in first] == [row.return_mean for row in second]


def test_checkpoints_cost_what_is_new(small, tmp_path):
    sizes = {}

    def note(row):
        sizes.update({file.name: file.stat().st_size for file in (tmp_path / "run" / "replay").glob("*.npz")})

    config = RunConfig.model_validate(small | {"iterations": 6})
    train(config, tmp_path / "run", note)
    assert list(sizes) == ["000002.npz", "000004.npz", "000006.npz"]
    assert len(set(sizes.values())) == 1
    transition = 4 * (3 + 3 + 1 + 4 + 1)  # observations, action, reward, term, done and timeout, in 32 bits
    assert sizes["000002.npz"] < 200 * transition * 1.5
    assert not (tmp_path / "run" / "replay").exists(), "a finished run needs no replay files"


def test_no_file_of_a_run_is_a_pickle(small, tmp_path):
    for base in ("sb3.SAC", "sbx.SAC"):
        config = configure(small, base)
        with pytest.raises(InterruptionError):
            train(config, tmp_path / base, stop_after(4))
        for file in (tmp_path / base).rglob("*.npz"):
            with np.load(file, allow_pickle=False) as arrays:
                assert all(arrays[key].dtype != object for key in arrays)
        for file in (tmp_path / base).rglob("*.pt"):
            assert torch.load(file, weights_only=True)["parameters"]


@pytest.mark.parametrize("base", ["sb3.SAC", "sbx.SAC"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(small, tmp_path, base):
    config = configure(small, base)
    train(config, tmp_path / "alone")
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(4))
    weights = next((tmp_path / "run/checkpoints/000004").glob("model.*"))
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"000004.model.* is damaged.*remove .*000004 to go on"):
        train(config, tmp_path / "run")
    for file in (tmp_path / "run/checkpoints/000004").iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match=r"state.json is missing or damaged"):
        train(config, tmp_path / "run")
    (tmp_path / "run/checkpoints/000004").rmdir()
    train(config, tmp_path / "run")
    assert repeating(tmp_path / "run/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")


def test_a_damaged_replay_file_is_named(small, tmp_path):
    config = RunConfig.model_validate(small)
    with pytest.raises(InterruptionError):
        train(config, tmp_path, stop_after(4))
    (tmp_path / "replay/000002.npz").unlink()
    with pytest.raises(CheckpointError, match=r"000002.npz is missing: remove the checkpoints from .*000002 on"):
        train(config, tmp_path)


def test_a_run_that_failed_at_its_last_checkpoint_is_not_done(small, tmp_path):
    config = RunConfig.model_validate(small)
    train(config, tmp_path / "alone")
    blocker = tmp_path / "run/checkpoints/000005"

    def block(row):
        if row.iteration == 4:
            blocker.write_text("in the way: the folder of this name can't be put there")

    with pytest.raises(MisplacedError, match="000005 is a file in the place of a folder"):
        train(config, tmp_path / "run", block)
    assert len(RunFolder(tmp_path / "run").read_metrics()) == 5
    blocker.unlink()
    train(config, tmp_path / "run")
    assert checkpoint_paths(RunFolder(tmp_path / "run"))[-1].name == "000005"
    assert repeating(tmp_path / "run/metrics.csv") == repeating(tmp_path / "alone/metrics.csv")


def test_damaged_metrics_are_named_with_the_remedy(small, tmp_path):
    config = RunConfig.model_validate(small)
    with pytest.raises(InterruptionError):
        train(config, tmp_path, stop_after(4))
    metrics = tmp_path / "metrics.csv"
    whole = metrics.read_text()
    metrics.write_text(whole[:-40])
    with pytest.raises(RunFolderError, match=r"damaged in the line of iteration '4': remove that line"):
        train(config, tmp_path)
    metrics.write_text("".join(whole.splitlines(keepends=True)[:3]))
    with pytest.raises(RunFolderError, match=r"has 2 of the 4 iterations.*remove the checkpoints after 2"):
        train(config, tmp_path)
    metrics.unlink()
    with pytest.raises(RunFolderError, match=r"gamma is 0.95 there and 0.5 here"):
        train(config.model_copy(update={"gamma": 0.5}), tmp_path)


def test_a_finished_run_that_lost_a_row_is_not_taken_for_whole(small, tmp_path):
    config = RunConfig.model_validate(small)
    rows = train(config, tmp_path)
    RunFolder(tmp_path).write_metrics(rows[:-1])
    with pytest.raises(RunFolderError, match=rf"has {len(rows) - 1} of the {len(rows)} .*put the whole file back"):
        train(config, tmp_path)


def test_diverged_weights_are_a_failure_of_the_run(small, tmp_path):
    small["algorithm"]["parameters"]["learning_rate"] = 1e30
    with pytest.raises(TrainingFailedError, match="training failed after iteration"):
        train(RunConfig.model_validate(small | {"updates_per_iteration": 200}), tmp_path)


def test_weights_that_diverge_in_the_last_update_are_a_failure_of_the_run(small, tmp_path):
    """Nothing but the evaluation acts with what the only update leaves."""
    small["algorithm"]["parameters"]["learning_rate"] = 1e30
    with pytest.raises(TrainingFailedError, match="training failed after iteration 1"):
        train(RunConfig.model_validate(small | {"updates_per_iteration": 1, "iterations": 1}), tmp_path)


LARGE = 8e37  # a float of 32 bits, unlike its square


@pytest.mark.parametrize("base", ["sb3.TD3, noise", "sbx.SAC", "contrib.TQC", "sb3.PPO", "sb3.SAC, ladder"])
def test_what_is_not_finite_ends_a_run_before_it_is_written_down(small, tmp_path, monkeypatch, base):
    monkeypatch.setattr(pendulum, "factor", LARGE)
    with pytest.raises(
        TrainingFailedError, match=r"\w is not finite, and there is no checkpoint yet: lower the learning"
    ):
        train(configure(small | {"checkpoint_every": 1}, base), tmp_path)
    assert not checkpoint_paths(RunFolder(tmp_path))
    assert not RunFolder(tmp_path).read_metrics()


def test_the_checkpoint_before_a_run_diverged_is_kept_and_goes_on(small, tmp_path, monkeypatch):
    config = RunConfig.model_validate(small)

    def diverge(row):
        monkeypatch.setattr(pendulum, "factor", LARGE if row.iteration == 2 else 10.0)

    with pytest.raises(TrainingFailedError, match=r"after iteration 3: train/critic_loss .*000002 is as it was: lower"):
        train(config, tmp_path, diverge)
    assert [path.name for path in checkpoint_paths(RunFolder(tmp_path))] == ["000002"]
    monkeypatch.setattr(pendulum, "factor", 10.0)
    assert len(train(config, tmp_path)) == 5


def test_a_heuristic_beyond_the_range_of_rewards_is_refused(small, tmp_path, monkeypatch):
    monkeypatch.setattr(pendulum, "factor", 3e38)
    with pytest.raises(HeuristicError, match=r"pendulum:upright returned -?\d.\d+e\+38 for .* at most 8.51e\+37"):
        train(RunConfig.model_validate(small), tmp_path)


@pytest.mark.parametrize("guidance", [None, {"heuristic": "hurl.heuristics.engineered:zero"}])
def test_an_environment_whose_returns_are_not_finite_fails_the_run(guidance, small, tmp_path):
    small["environment"] = {"id": "tests.experiments.odd_environments:Priceless-v0", "n_envs": 2}
    with pytest.raises(TrainingFailedError, match=r"after iteration 1: .*Priceless-v0 .* an episode is inf: mend its"):
        train(RunConfig.model_validate(small | {"guidance": guidance}), tmp_path)
    assert not checkpoint_paths(RunFolder(tmp_path))


def test_evaluation_needs_no_heuristic_and_heeds_its_seed(small, tmp_path):
    train(RunConfig.model_validate(small), tmp_path)
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("tests.experiments.pendulum:upright", "gone:upright"))
    first, second, again = (
        evaluate_checkpoint(find_checkpoint(tmp_path), episodes=3, seed=seed).returns for seed in (0, 1, 0)
    )
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)


def test_a_folder_of_another_configuration_is_refused(small, tmp_path):
    config = RunConfig.model_validate(small)
    before = train(config, tmp_path / "run")
    other = config.model_copy(update={"gamma": 0.5})
    with pytest.raises(RunFolderError, match=r"gamma is 0.95 there and 0.5 here.*choose another --out"):
        train(other, tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_metrics() == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/diary.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="holds other things than a run"):
        train(config, tmp_path / "notes")
    assert [entry.name for entry in (tmp_path / "notes").iterdir()] == ["diary.txt"]


def test_one_process_at_a_time(small, tmp_path):
    config = RunConfig.model_validate(small)
    with (
        RunFolder(tmp_path / "run").open(config),
        pytest.raises(RunFolderError, match="another process is running"),
    ):
        train(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": {"name": "sb3.SACK"}}, r"no algorithm 'SACK'; did you mean 'SAC'"),
        ({"algorithm": {"name": "SAC"}}, "does not say of which library: write sb3.SAC or sbx.SAC or rllib.SAC"),
        ({"algorithm": {"name": "sb3.SAC", "parameters": {"batchsize": 3}}}, "no parameter 'batchsize'; did you mean"),
        ({"algorithm": {"name": "sb3.SAC", "parameters": {"gamma": 0.3}}}, "no place for 'gamma': set it at the top"),
        (
            {"algorithm": {"name": "sb3.SAC", "parameters": {"use_sde": True}}},
            "no place for 'use_sde': a run with it could not be resumed exactly",
        ),
        ({"algorithm": {"name": "sb3.SAC", "parameters": {"train_freq": 7}}}, "sets 'train_freq' already"),
        (
            {"algorithm": {"name": "sb3.PPO", "parameters": {"n_steps": 200}}, "updates_per_iteration": None},
            "n_steps=200 must divide .* = 50",
        ),
        (
            {"environment": {"id": "Pendulum-v1", "n_envs": 2, "options": {"gravity": 3}}},
            "EnvPool's Pendulum-v1 has no option 'gravity'; there are .*max_episode_steps",
        ),
        ({"algorithm": {"name": "sb3.PPO"}}, "updates_per_iteration is for off-policy algorithms"),
        (
            {"algorithm": {"name": "sb3.SAC", "parameters": {"policy_kwargs": {"activation_fn": "tan"}}}},
            "activation_fn 'tan' must be one of",
        ),
        ({"guidance": {"heuristic": "nowhere:h", "schedule": {"lambda0": 1}}}, "No module named 'nowhere'"),
        ({"guidance": {"heuristic": "nowhere", "schedule": {"lambda0": 1}}}, "not of the form module:function"),
        (
            {"guidance": {"heuristic": "tests.experiments.pendulum:upwright", "schedule": {"lambda0": 1}}},
            r"no function 'upwright'; did you mean 'upright'\?",
        ),
    ],
)
def test_what_cannot_be_built_is_named(small, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train(validate(small | change, "run.yaml"), tmp_path)
