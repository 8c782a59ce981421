"""Runs of RLlib's algorithms: the same folder as any run, carried on after whatever ended them."""

import math
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from copy import deepcopy

import grpc
import numpy as np
import psutil
import pytest
import ray
import tree
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hurl.data import load_episodes
from hurl.envs import make_env
from hurl.experiments.campaign import plan_campaign
from hurl.experiments.checkpoint import CheckpointError, checkpoint_paths, read_replay, read_state, read_weights
from hurl.experiments.config import RunConfig, load_config
from hurl.experiments.errors import ConfigurationError, TrainingFailedError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.policies import collect_policies
from hurl.experiments.recipes import load_recipe
from hurl.experiments.run import train
from hurl.experiments.trainers.rllib import build_policy, build_trainer
from hurl.experiments.trainers.rllib_config import configure
from hurl.guidance import HeuristicError
from hurl.heuristics.base import ObservationSpace
from hurl.heuristics.simple import Zero
from tests.experiments import pendulum
from tests.experiments.conftest import repeating
from tests.experiments.pendulum import upright

pytestmark = pytest.mark.usefixtures("ray_here")

GAMMA = 0.95
GUIDANCE = {"heuristic": "tests.experiments.pendulum:upright", "schedule": {"kind": "linear", "lambda0": 0.5}}
PPO = {
    "environment": {"id": "CartPole-v1", "n_envs": 1, "options": {"max_episode_steps": 60}},
    "algorithm": {
        "name": "rllib.PPO",
        "parameters": {"minibatch_size": 100, "num_epochs": 2, "lr": 0.003, "model_config": {"fcnet_hiddens": [8]}},
    },
    "guidance": GUIDANCE,
    "gamma": GAMMA,
    "iterations": 5,
    "steps_per_iteration": 200,
    "evaluation_episodes": 3,
    "checkpoint_every": 2,
}
SAC = PPO | {
    "environment": {"id": "Pendulum-v1", "n_envs": 2, "options": {"max_episode_steps": 20}},
    "algorithm": {
        "name": "rllib.SAC",
        "parameters": {
            "num_steps_sampled_before_learning_starts": 50,
            "training_intensity": 2.0,
            "train_batch_size_per_learner": 8,
            "model_config": {"fcnet_hiddens": [8], "head_fcnet_hiddens": [8]},
        },
    },
    "iterations": 2,
    "steps_per_iteration": 60,
    "checkpoint_every": 1,
}
DQN = {
    "num_steps_sampled_before_learning_starts": 50,
    "train_batch_size_per_learner": 8,
    "model_config": {"fcnet_hiddens": [8]},
}

KILLED_IN_ITERATION_3 = """
import os, signal, sys
from pathlib import Path
from hurl.experiments.process import prepare_process
prepare_process(1)
from hurl.experiments.config import load_config
from hurl.experiments.run import train
def report(row):
    if row.iteration == 3:
        os.kill(os.getpid(), signal.SIGKILL)
train(load_config(sys.argv[1]), Path(sys.argv[2]), report)
"""


def configured(base=PPO, **changes):
    return RunConfig.model_validate(deepcopy(base) | changes)


def with_parameters(base, **parameters):
    """Return the values of a run with some parameters set anew."""
    return deepcopy(base) | {
        "algorithm": base["algorithm"] | {"parameters": base["algorithm"]["parameters"] | parameters}
    }


@pytest.mark.parametrize(
    "parameters",
    [
        {"replay_buffer_config": {"type": "subprocess.Popen", "args": ["touch", "ran"]}},
        {"replay_buffer_config": {"type": "deepcopy"}},
        {"replay_buffer_config": {"type": "{type: subprocess.Popen, args: [touch, ran]}"}},
        {"replay_buffer_config": {"type": "buffer.yaml"}},
        {"replay_buffer_config": {"type": "EpisodeReplayBuffer", "underlying_buffer_config": {"type": "os.system"}}},
        {"model_config": {"fcnet_activation": "torch.nn.ReLU"}},
        {"model_config": {"custom_model": "evil:Model"}},
        {"before_learn_on_batch": "os.system"},
        {"optimizer": {"type": "subprocess.Popen"}},
    ],
)
def test_parameters_name_no_code(parameters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = configured(with_parameters(SAC | {"algorithm": {"name": "rllib.DQN", "parameters": {}}}, **parameters))
    with pytest.raises(ConfigurationError, match=r"algorithm.parameters\.\w+.*: must be .*, got "):
        configure(values)
    assert not (tmp_path / "ran").exists()


def test_parameters_are_words_and_numbers():
    buffer = {"type": "EpisodeReplayBuffer", "capacity": 500}
    values = with_parameters(SAC, replay_buffer_config=buffer, grad_clip_by="norm", target_entropy="auto", lr=None)
    assert configure(configured(values)).replay_buffer_config["type"] == "EpisodeReplayBuffer"


def test_cores_and_gpus_are_those_of_all_processes():
    assert (configured().cores, configured().gpus) == (1, 0)
    runners = with_parameters(PPO, env_runners={"num_env_runners": 3}, learners={"num_gpus_per_learner": 0.5})
    assert (configured(runners).cores, configured(runners).gpus) == (4, 0.5)
    learners = with_parameters(PPO, learners={"num_learners": 2, "num_gpus_per_learner": 1})
    assert (configured(learners).cores, configured(learners).gpus) == (3, 2)
    assert configured(learners, threads=8).cores == 8


def test_nobody_but_this_process_reaches_its_ray():
    ray.get(ray.remote(lambda: None).remote())  # a worker listens too
    process = psutil.Process()
    sockets = [
        (member.name(), socket.laddr.ip)
        for member in (process, *process.children(recursive=True))
        for socket in member.net_connections("tcp")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert {name for name, _ in sockets} >= {"gcs_server", "raylet"}
    assert {address.removeprefix("::ffff:") for _, address in sockets} == {"127.0.0.1"}
    with grpc.insecure_channel(ray.get_runtime_context().gcs_address) as channel:
        list_nodes = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetAllNodeInfo")
        for strangers in ((), (("authorization", f"Bearer {'0' * 64}"),)):
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                list_nodes(b"", metadata=strangers, timeout=20)
        assert list_nodes(b"", metadata=(("authorization", f"Bearer {os.environ['RAY_AUTH_TOKEN']}"),), timeout=20)


class InterruptionError(Exception):
    """Stands for whatever ends a process."""


seen = []  # by the function below


def note(observations):
    """A heuristic that keeps what it sees."""
    seen.extend(observations[:, 0].tolist())
    return observations[:, 0]


def entropy_coefficient(learner):
    return float(learner.entropy_coeff_schedulers_per_module["default_policy"].get_current_value())


def stop_after(iteration):
    def report(row):
        if row.iteration == iteration:
            raise InterruptionError

    return report


def updates_of(checkpoint):
    """Return how many updates the only optimiser has made."""
    (optimiser,) = read_weights(checkpoint)["optimisers"].values()
    return optimiser["state"]["state"][0]["step"]


def equal(first, second):
    """Return whether nested values are the same, arrays included."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(np.all(np.asarray(first) == np.asarray(second)))


def test_a_killed_run_ends_with_the_very_metrics_of_one_left_alone(tmp_path):
    config, run = configured(), tmp_path / "run"
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml())
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_ITERATION_3, file, run], stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    assert [row.iteration for row in RunFolder(run).read_metrics()] == [1, 2, 3]
    resumed = []
    rows = train(config, run, report_resuming=resumed.append)
    assert resumed == [2]
    assert [row.steps for row in rows] == [200, 400, 600, 800, 1000]
    assert [row.lambda_ for row in rows] == pytest.approx([0.5, 0.625, 0.75, 0.875, 1.0])
    updates = [updates_of(run / "checkpoints" / name) for name in ("000002", "000005")]
    assert updates[1] >= updates[0] + 3 * 4  # three iterations of two epochs, two minibatches or more each
    train(config, tmp_path / "alone")
    assert repeating(run / "metrics.csv") == repeating(tmp_path / "alone" / "metrics.csv")


PROCESSES = {
    "PPO, a learner of its own": with_parameters(PPO, learners={"num_learners": 1}),
    "SAC, an env runner of its own": with_parameters(SAC, env_runners={"num_env_runners": 1}),
    "DQN": PPO | {"algorithm": {"name": "rllib.DQN", "parameters": DQN}},
}


# Arrays of other processes lie where Ray puts them, and torch's sums may round otherwise there, which an agent that
# acts and learns by turns carries on: 0.2 % of its training returns, on a machine with three times its load.
TOLERANCES = {"SAC, an env runner of its own": 0.05}


@pytest.mark.parametrize("case", PROCESSES)
def test_an_interrupted_run_repeats_whatever_processes_it_has(case, tmp_path):
    config = configured(PROCESSES[case], iterations=2, checkpoint_every=1)
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(1))
    rows = train(config, tmp_path / "run")
    train(config, tmp_path / "alone")
    carried_on, alone = (repeating(tmp_path / name / "metrics.csv") for name in ("run", "alone"))
    for row, other in zip(carried_on, alone, strict=True):
        assert [float(value) for value in row.values()] == pytest.approx(
            [float(value) for value in other.values()], rel=TOLERANCES.get(case, 1e-4), nan_ok=True
        )
    assert [row.lambda_ for row in rows] == pytest.approx([0.5, 1.0])
    assert [row.steps for row in rows] == [config.steps_per_iteration, 2 * config.steps_per_iteration]
    assert all(np.isfinite([row.return_mean, row.h_mean]).all() for row in rows)
    assert not (tmp_path / "run" / "replay").exists()


def test_rows_of_a_guided_run_and_of_one_without_guidance(tmp_path):
    (guided,) = train(configured(iterations=1), tmp_path / "guided")
    (plain,) = train(configured(iterations=1, guidance=None), tmp_path / "plain")
    assert (guided.lambda_, guided.discount) == (0.5, 0.5 * GAMMA)
    assert guided.h_min < guided.h_mean < guided.h_max
    assert (plain.lambda_, plain.discount) == (1.0, GAMMA)
    assert all(math.isnan(value) for value in (plain.h_mean, plain.h_min, plain.h_max))
    for row in (guided, plain):
        assert row.steps == 200
        assert row.return_mean == row.episode_length > 1  # CartPole pays 1 a step
        assert 1 < row.training_return != row.return_mean
        assert row.return_min <= row.return_mean <= row.return_max
        assert min(row.seconds_collecting, row.seconds_training) > 0
    events = EventAccumulator(str(tmp_path / "guided" / "tensorboard"))
    events.Reload()
    assert [event.value for event in events.Scalars("guidance/lambda")] == [0.5]
    assert [event.step for event in events.Scalars("training/return")] == [200]


@pytest.mark.parametrize(("n_envs", "steps", "limit", "longer"), [(3, 201, 60, True), (8, 16, 5, False)])
def test_lambda_is_that_of_the_iteration_whether_or_not_sampling_goes_beyond_it(n_envs, steps, limit, longer, tmp_path):
    """Environments step together, and a step that begins an episode is none: batches may become longer."""
    values = with_parameters(PPO, minibatch_size=16)
    environment = PPO["environment"] | {"n_envs": n_envs, "options": {"max_episode_steps": limit}}
    rows = train(configured(values, environment=environment, steps_per_iteration=steps), tmp_path / "run")
    assert (rows[-1].steps > 5 * steps) is longer
    assert all(row.return_mean == row.episode_length for row in rows)  # of episodes that go on into the next batch too
    assert [row.lambda_ for row in rows] == pytest.approx([0.5, 0.625, 0.75, 0.875, 1.0])


def test_h_of_an_iteration_with_several_train_batches_is_that_of_all_its_steps(tmp_path):
    """CartPole's first episodes hardly differ, so that only the number of batches does."""
    values = with_parameters(PPO, train_batch_size_per_learner=50, minibatch_size=50, lr=0.0)
    values["algorithm"]["parameters"] |= {"num_epochs": 1}
    seen.clear()
    values |= {"guidance": GUIDANCE | {"heuristic": "tests.experiments.test_rllib_run:note"}}
    (row,) = train(configured(values, iterations=1), tmp_path / "run")
    assert len(seen) == 200
    assert (row.h_mean, row.h_min, row.h_max) == pytest.approx((np.mean(seen), np.min(seen), np.max(seen)))


def test_a_schedule_goes_on_where_the_algorithm_is_built_anew(tmp_path):
    values = with_parameters(PPO, entropy_coeff=[[0, 1.0], [400, 0.0]])
    config, folder = configured(values, iterations=3, checkpoint_every=1), RunFolder(tmp_path / "run")
    with folder.open(config), closing(build_trainer(config, folder)) as trainer:
        trainer.iterate()
        trainer.save(1)
        (result,) = trainer.algorithm.learner_group.foreach_learner(entropy_coefficient)
        assert result.get() == pytest.approx(0.5)


def test_episodes_longer_than_a_batch_count_whole(tmp_path):
    """Episodes of 30 steps, batches of 20: none ends in the first, and a checkpoint after it begins another."""
    environment = {"id": "Pendulum-v1", "n_envs": 1, "options": {"max_episode_steps": 30}}
    values = with_parameters(PPO, minibatch_size=20) | {"environment": environment, "steps_per_iteration": 20}
    rows = train(configured(values, iterations=3, checkpoint_every=3), tmp_path / "run")
    assert [row.episode_length for row in rows] == [30, 30, 30]
    first, second, *_ = (row.training_return for row in rows)
    assert math.isnan(first)
    assert second < -1


def test_what_is_replayed_has_not_arrived_again(tmp_path):
    """h of a row of SAC's is that of the iteration's own steps, though it learns from all."""
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(InterruptionError):
        train(configured(SAC, iterations=3), folder.path, stop_after(2))
    row, replay = folder.read_metrics()[1], read_replay(folder, read_state(find_checkpoint(folder.path))["replay"])
    following = np.split(replay["observations"], np.cumsum(replay["lengths"] + 1)[:-1])
    newest = upright(np.concatenate([observations[1:] for observations in following])[60:])
    assert (len(newest), row.h_min, row.h_max) == (60, pytest.approx(newest.min()), pytest.approx(newest.max()))
    assert row.h_mean == pytest.approx(newest.mean())


def test_a_checkpoint_holds_all_that_is_learnt_and_the_replay_buffer(tmp_path):
    config, folder = configured(SAC), RunFolder(tmp_path / "run")
    with pytest.raises(InterruptionError):
        train(config, folder.path, stop_after(1))
    (checkpoint,) = checkpoint_paths(folder)
    stored, replay = read_weights(checkpoint), read_replay(folder, read_state(checkpoint)["replay"])
    assert stored["adapted"].keys() == {"curr_log_alpha", "last_update_ts_by_mid"}
    assert replay["lengths"].sum() == 60
    again = folder.checkpoints / "000002"
    with closing(build_trainer(config, folder)) as trainer:
        trainer.iterate()  # what the run did, and once more
        trainer.iterate()
        trainer.save(2)
        other = read_weights(again)
        shutil.rmtree(again)
        trainer.load(checkpoint)
        trainer.save(2)
        assert equal(stored, read_weights(again))
        assert equal(replay, read_replay(folder, read_state(again)["replay"]))
        assert not any(equal(stored[part], other[part]) for part in ("weights", "optimisers", "adapted"))
        assert trainer.iterate()["steps"] == 120
    shutil.rmtree(again)
    (folder.replay / "000001.npz").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"000001.npz is damaged"):
        train(config, folder.path)


def test_a_damaged_checkpoint(tmp_path):
    config, run = configured(iterations=3), tmp_path / "run"
    with pytest.raises(InterruptionError):
        train(config, run, stop_after(2))
    checkpoint = find_checkpoint(run)
    model = checkpoint / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    for use in (lambda: train(config, run), lambda: evaluate_checkpoint(checkpoint, episodes=1, seed=0)):
        with pytest.raises(CheckpointError, match=r"model.safetensors is damaged.*remove .*000002 to go on"):
            use()


def test_a_policy_acts_in_the_units_of_the_environment_and_as_it_was_trained(tmp_path):
    values = with_parameters(SAC, model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8]})
    train(configured(values, iterations=1), tmp_path / "run")
    checkpoint = find_checkpoint(tmp_path / "run")
    first, again = (evaluate_checkpoint(checkpoint, episodes=2, seed=3, deterministic=False) for _ in range(2))
    greedy = evaluate_checkpoint(checkpoint, episodes=2, seed=3)
    assert np.array_equal(first.returns, again.returns)
    assert not np.array_equal(first.returns, greedy.returns)
    collect_policies([str(tmp_path / "run")], "pendulum/rllib-v0", transitions=60, n_envs=2, root=tmp_path)
    actions = load_episodes("pendulum/rllib-v0", tmp_path).actions
    assert 1 < np.abs(actions).max() <= 2  # Pendulum takes torques from -2 to 2


def test_a_recurrent_policy_is_evaluated_with_its_memory(tmp_path):
    model_config = {"fcnet_hiddens": [8], "use_lstm": True, "max_seq_len": 5, "lstm_cell_size": 4}
    (row,) = train(configured(with_parameters(PPO, model_config=model_config), iterations=1), tmp_path / "run")
    checkpoint = find_checkpoint(tmp_path / "run")
    config = RunFolder(tmp_path / "run").read_config()
    env = make_env("CartPole-v1", 2, max_episode_steps=60)
    policy = build_policy(config, env)
    policy.load(checkpoint)
    observations, starts = env.reset(), np.array([True, True])
    _, memory = policy.predict(observations, None, starts)
    _, going_on = policy.predict(observations, memory, np.array([False, True]))
    _, anew = policy.predict(observations, None, starts)
    part, same = tree.flatten(going_on)[0], tree.flatten(anew)[0]
    assert not equal(part[0], same[0]), "it remembers"
    assert equal(part[1], same[1]), "it forgets where an episode starts"
    assert evaluate_checkpoint(checkpoint, episodes=3, seed=0).returns.shape == (3,)
    assert row.return_mean > 1


def test_collecting_from_a_run_on_procgen(tmp_path):
    small = with_parameters(PPO, model_config={"depths": [4], "width": 8}, minibatch_size=256)
    small["algorithm"]["policy"] = "ImpalaCNN"
    environment = {"id": "BossfightEasy-v0", "n_envs": 4}
    config = configured(
        small, environment=environment, guidance=None, iterations=2, steps_per_iteration=512, checkpoint_every=1
    )
    rows = train(config, tmp_path / "run")
    assert [512 * n <= row.steps < 512 * n + 4 * n for n, row in enumerate(rows, 1)] == [True, True]
    collect_policies([str(tmp_path / "run")], "procgen/tiny-v0", transitions=40, n_envs=4, root=tmp_path)
    episodes = load_episodes("procgen/tiny-v0", tmp_path)
    assert (episodes.states.shape[1:], episodes.states.dtype) == ((3, 64, 64), np.uint8)
    assert episodes.transitions == 80
    assert len(np.unique(episodes.actions)) > 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warm_start": {"dataset": "a/b-v0"}}, r"warm_start can't be had with rllib.PPO: leave it out"),
        ({"updates_per_iteration": 3}, r"updates_per_iteration can't be had with rllib.PPO: leave it"),
        ({"algorithm": {"name": "rllib.PPQ"}}, r"RLlib has no algorithm 'PPQ'; did you mean 'PPO'\?"),
        ({"algorithm": {"name": "rllib.APPO"}}, r"APPO can't be guided: its batches wait in queues"),
        ({"algorithm": {"name": "rllib.PPO", "policy": "Mlp"}}, r"policy 'Mlp' must be one of MlpPolicy, ImpalaCNN"),
        (with_parameters(PPO, num_epoch=2), r"rllib.PPO has no parameter 'num_epoch'; did you mean 'num_epochs'"),
        (with_parameters(PPO, gamma=0.9), r"no place for 'gamma': set it at the top"),
        (with_parameters(PPO, env_runners={"rollout_length": 2}), r"no parameter 'env_runners.rollout_length'; did"),
        (with_parameters(PPO, env_runners=2), r"parameters.env_runners must be keys and values, got 2"),
        (with_parameters(PPO, env_runners={"num_env_runners": 2}), r"n_envs=1 must be a multiple of num_env_runners=2"),
        (with_parameters(PPO, env_runners={"num_env_runners": -1}), r"num_env_runners must be .* not negative, got -1"),
        (with_parameters(PPO, env_runners={"num_env_runners": "two"}), r"must be a number .*, got 'two'"),
        (
            with_parameters(PPO, learners={"num_learners": 0.5}),
            r"learners.num_learners must be a whole number, got 0.5",
        ),
        (with_parameters(PPO, train_batch_size_per_learner=800), r"=200 must be a multiple of .*, 800 steps: leave"),
        (
            with_parameters(PPO, train_batch_size_per_learner=0),
            r"_per_learner must be a whole number .*, got 0",
        ),
        (with_parameters(PPO, minibatch_size=1000), r"rllib.PPO on CartPole-v1 can't be built: .*minibatch_size"),
        (
            {"environment": {"id": "CartPole-v7", "n_envs": 1}},
            r"no environment 'CartPole-v7'.*did you mean 'CartPole-v1'",
        ),
        ({"guidance": GUIDANCE | {"heuristic": "no.such:thing"}}, r"guidance.heuristic: 'no.such:thing'"),
    ],
)
def test_what_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(configured(**changes), tmp_path / "run")


@pytest.mark.parametrize(
    ("factor", "error", "message"),
    [
        (
            8e37,
            TrainingFailedError,
            r"after iteration 1: \w+_loss is not finite, and there is no checkpoint yet: lower",
        ),
        (np.inf, HeuristicError, r"pendulum:upright returned infinite values"),
    ],
)
def test_what_is_not_finite_ends_a_run_before_it_is_written_down(factor, error, message, tmp_path, monkeypatch):
    monkeypatch.setattr(pendulum, "factor", factor)
    with pytest.raises(error, match=message):
        train(configured(checkpoint_every=1), tmp_path / "run")
    assert not checkpoint_paths(RunFolder(tmp_path / "run"))


def test_a_learner_with_weights_that_are_not_finite_is_found(tmp_path):
    config, folder = configured(), RunFolder(tmp_path / "run")
    with folder.open(config), closing(build_trainer(config, folder)) as trainer:
        trainer.iterate()
        assert trainer.not_finite() is None
        trainer.algorithm.learner_group.foreach_learner(lose_a_weight)
        assert trainer.not_finite().startswith("weights.")


def lose_a_weight(learner):
    next(learner.module["default_policy"].parameters()).data.view(-1)[0] = float("nan")


def test_a_heuristic_for_other_observations(tmp_path):
    Zero(observation_space=ObservationSpace((7,), "float")).save(tmp_path / "h")
    with pytest.raises(HeuristicError, match=r"observations of Box of shape \(7,\)"):
        train(configured(guidance=GUIDANCE | {"heuristic": str(tmp_path / "h")}), tmp_path / "run")


def test_without_ray_the_extra_is_named(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(configured().to_yaml())
    code = "import sys; sys.modules['ray'] = None; from hurl.cli import main; main()"
    command = [sys.executable, "-c", code, "train", str(file), "--out", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, "pip install 'hurl-rl[rllib]'" in result.stderr) == (2, True)


def test_the_preset_is_one_round_of_sampling_an_iteration():
    config = load_config("procgen/ppo")
    rllib_config = configure(config)
    assert rllib_config.total_train_batch_size == config.steps_per_iteration == 64 * 256
    assert config.iterations == 8_000_000 // config.steps_per_iteration
    refused = load_config("procgen/ppo", ["algorithm.parameters.train_batch_size_per_learner=4000"])
    with pytest.raises(ConfigurationError, match=r"steps_per_iteration=16384 must be a multiple of .*, 4000 steps"):
        configure(refused)


def test_the_data_of_the_preset_are_16_policies_of_the_run_s_own_game(tmp_path):
    assert load_config("procgen/ppo-hurl").data.policy_count == 16
    assert load_recipe("procgen").config.checkpoint_every == 31
    game = "StarpilotEasy-v0"
    plan = plan_campaign("procgen", ["ppo", "ppo-hurl"], [0], tmp_path, [f"environment.id={game}"])
    behaviour, data, fit = (task.arguments for task in plan.tasks if not task.name.startswith("procgen/"))
    assert behaviour[0] == "train"
    (made_of,) = [run.config for step, run in plan.trained.items() if step.startswith("behaviour")]
    assert made_of == load_config("procgen/ppo", [f"environment.id={game}", "checkpoint_every=31"])
    assert data[data.index("--transitions") + 1] == "12000"
    assert fit[:2] == ("fit", "image-monte-carlo")
    assert [run.config.environment.id for run in plan.runs] == [game, game]
    schedule = plan.runs[1].config.guidance.schedule
    assert (schedule.lambda0, schedule.alpha) == (0.99, 0.5)
