"""Guided algorithms of RLlib: what they learn on, and that nothing else about them has changed."""

import time
import warnings
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import ray
import torch
from gymnasium.spaces import Box, Discrete
from ray import tune
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hurl import ConstantSchedule, Guidance, HeuristicError, LinearSchedule
from hurl.heuristics.base import ObservationSpace
from hurl.heuristics.simple import Zero
from hurl.rllib import guided

GAMMA = 0.9
SMALL = DefaultModelConfig(fcnet_hiddens=[8], head_fcnet_hiddens=[])

pytestmark = pytest.mark.usefixtures("ray_here")


def slope(observations):
    """A heuristic of the first coordinate."""
    return 10.0 * observations[:, 0]


def zero(observations):
    return np.zeros(len(observations))


def guidance(heuristic=slope, schedule=None, **more):
    return Guidance(heuristic, schedule or ConstantSchedule(0.5), gamma=GAMMA, steps_per_iteration=40, **more)


def ppo(gamma=GAMMA):
    config = PPOConfig().environment("CartPole-v1")
    return _common(config).training(
        gamma=gamma, train_batch_size_per_learner=40, minibatch_size=20, num_epochs=2, lr=0.01
    )


def sac(gamma=GAMMA):
    tune.register_env("short-pendulum", lambda _: gym.make("Pendulum-v1", max_episode_steps=20))
    config = SACConfig().environment("short-pendulum")
    return _off_policy(config, gamma).training(actor_lr=0.01, critic_lr=0.01, alpha_lr=0.01)


def dqn(gamma=GAMMA):
    return _off_policy(DQNConfig().environment("CartPole-v1"), gamma).training(lr=0.01)


def _off_policy(config, gamma):
    return _common(config).training(
        gamma=gamma,
        train_batch_size_per_learner=8,
        num_steps_sampled_before_learning_starts=20,
        training_intensity=2.0,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500},
    )


def _common(config):
    return (
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .rl_module(model_config=SMALL)
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=0)
        .debugging(seed=3, log_level="ERROR")
    )


ALGORITHMS = {"PPO": ppo, "SAC": sac, "DQN": dqn}


def weights_after(config, iterations=2):
    algorithm = config.build_algo()
    if getattr(algorithm, "local_replay_buffer", None) is not None:
        algorithm.local_replay_buffer.rng = np.random.default_rng(0)  # RLlib gives it no seed
    try:
        for _ in range(iterations):
            result = algorithm.train()
        return algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID], result
    finally:
        algorithm.stop()


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_lambda_1_is_the_algorithm_itself(name):
    plain, plain_result = weights_after(ALGORITHMS[name]())
    other, other_result = weights_after(guided(ALGORITHMS[name](), guidance(schedule=ConstantSchedule(1.0))))
    assert same(plain, other)
    returns = [result["env_runners"]["episode_return_mean"] for result in (plain_result, other_result)]
    assert returns[0] == returns[1]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_h_0_is_the_algorithm_with_a_smaller_discount(name):
    """γ̃ = λγ everywhere: with h = 0 nothing else is left of guidance."""
    short, _ = weights_after(ALGORITHMS[name](gamma=0.5 * GAMMA))
    zero_guided, result = weights_after(guided(ALGORITHMS[name](), guidance(zero)))
    assert same(short, zero_guided)
    assert result["learners"][DEFAULT_MODULE_ID]["guidance_discount"] == 0.5 * GAMMA


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_heuristic_changes_what_is_learned_and_not_what_is_reported(name):
    plain, _ = weights_after(ALGORITHMS[name]())
    other, result = weights_after(guided(ALGORITHMS[name](), guidance(lambda x: np.full(len(x), 1e4))))
    assert not same(plain, other)
    assert abs(result["env_runners"]["episode_return_mean"]) < 2_000  # the environment's rewards, not the reshaped ones


def episode(length, *, terminated, start=0):
    """Return an episode of CartPole's spaces whose rewards are 1, 2, …, observations 0.1·t in all coordinates."""
    observations = [np.full(4, 0.1 * (start + t), np.float32) for t in range(length + 1)]
    return SingleAgentEpisode(
        observation_space=Box(-10, 10, (4,), np.float32),
        action_space=Discrete(2),
        observations=observations,
        actions=[t % 2 for t in range(length)],
        rewards=[float(t + 1) for t in range(length)],
        extra_model_outputs={
            Columns.ACTION_LOGP: [np.float32(-0.7)] * length,
            Columns.ACTION_DIST_INPUTS: [np.zeros(2, np.float32)] * length,
        },
        terminated=terminated,
        truncated=False,
        len_lookback_buffer=0,
    )


def reshaped_by_hand(length, terminated, lambda_, start=0):
    """Return r + (1−λ)γh(s'), h = 10 x, and h(s') = 0 after the last step of an episode that terminated."""
    after = np.array([10 * 0.1 * (start + t + 1) for t in range(length)])
    if terminated:
        after[-1] = 0
    return np.arange(1, length + 1) + (1 - lambda_) * GAMMA * after


@pytest.fixture(scope="module")
def learner():
    """The learner of a guided PPO with λ = 0.6."""
    algorithm = guided(ppo(), guidance(schedule=ConstantSchedule(0.6))).build_algo()
    learner = algorithm.learner_group._learner
    learner.before_gradient_based_update(timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 40})
    yield learner
    algorithm.stop()


def run_pipeline(learner, episodes):
    batch = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=episodes, shared_data={}, metrics=learner.metrics
    )
    return {key: value.detach().numpy() for key, value in batch[DEFAULT_MODULE_ID].items() if torch.is_tensor(value)}


def test_advantages_equal_a_computation_by_hand(learner):
    lengths, ends = (4, 3), (True, False)
    episodes = [episode(4, terminated=True), episode(3, terminated=False, start=5)]
    batch = run_pipeline(learner, episodes)
    real = batch[Columns.LOSS_MASK]
    rewards = [reshaped_by_hand(4, True, 0.6), reshaped_by_hand(3, False, 0.6, start=5)]
    np.testing.assert_allclose(batch[Columns.REWARDS][real], np.concatenate(rewards), rtol=1e-6)

    values = learner.module[DEFAULT_MODULE_ID].compute_values({Columns.OBS: torch.from_numpy(batch[Columns.OBS])})
    values = np.split(values.detach().numpy().astype(np.float64), [lengths[0] + 1])
    discount, gae = 0.6 * GAMMA, learner.config.lambda_
    advantages = []
    for reward, value, terminated in zip(rewards, values, ends, strict=True):
        next_values = value[1:].copy()
        if terminated:
            next_values[-1] = 0.0
        errors = reward + discount * next_values - value[:-1]
        advantage = np.zeros(len(reward) + 1)
        for t in reversed(range(len(reward))):
            advantage[t] = errors[t] + discount * gae * advantage[t + 1]
        advantages.append(advantage[:-1])
    targets = np.concatenate([a + v[:-1] for a, v in zip(advantages, values, strict=True)])
    np.testing.assert_allclose(batch[Postprocessing.VALUE_TARGETS][real], targets, rtol=1e-5)


def test_the_heuristic_is_called_once_for_a_batch(learner, monkeypatch):
    calls = []
    monkeypatch.setattr(learner.guidance, "heuristic", lambda x: calls.append(len(x)) or slope(x))
    run_pipeline(learner, [episode(4, terminated=True), episode(3, terminated=False, start=5)])
    assert calls == [7]


def test_episodes_are_left_as_they_are(learner):
    one = episode(3, terminated=False)
    run_pipeline(learner, [one])
    assert [float(reward) for reward in one.get_rewards(slice(0, 3))] == [1.0, 2.0, 3.0]


def test_pbrs(learner, monkeypatch):
    monkeypatch.setattr(learner.guidance, "shaping", "pbrs")
    batch = run_pipeline(learner, [episode(2, terminated=True)])
    # r + γh(s') − h(s)
    expected = [1 + GAMMA * 1.0 - 0.0, 2 + 0.0 - 1.0]
    np.testing.assert_allclose(batch[Columns.REWARDS][batch[Columns.LOSS_MASK]], expected, rtol=1e-6)


def _state(learner):
    rewards = run_pipeline(learner, [episode(4, terminated=True)])[Columns.REWARDS]
    return learner.guidance.lambda_, learner.guidance.discount, rewards.tolist()


def test_env_runners_and_learners_all_have_the_lambda_of_the_steps_sampled():
    config = guided(
        ppo().env_runners(num_env_runners=2).learners(num_learners=2, num_cpus_per_learner=0.5),
        guidance(schedule=LinearSchedule(0.5, iterations=10)),
    )
    algorithm = config.build_algo()
    try:
        for _ in range(2):
            result = algorithm.train()
        sampled = int(result["num_env_steps_sampled_lifetime"])
        expected = LinearSchedule(0.5, iterations=10)(-(-sampled // 40))
        assert result["learners"][DEFAULT_MODULE_ID]["guidance_lambda"] == pytest.approx(expected)
        states = [state.get() for state in algorithm.learner_group.foreach_learner(_state)]
    finally:
        algorithm.stop()
    assert len(states) == 2
    for lambda_, discount, rewards in states:
        assert (lambda_, discount) == (expected, expected * GAMMA)
        np.testing.assert_allclose(rewards[:4], reshaped_by_hand(4, True, expected), rtol=1e-6)


def test_a_killed_env_runner_is_restarted_and_training_goes_on():
    config = ppo().env_runners(num_env_runners=2).fault_tolerance(restart_failed_env_runners=True)
    algorithm = guided(config, guidance(schedule=LinearSchedule(0.5, iterations=10))).build_algo()
    try:
        before = algorithm.train()
        ray.kill(algorithm.env_runner_group._worker_manager.actors()[1], no_restart=False)
        deadline = time.monotonic() + 60
        after = algorithm.train()
        while algorithm.env_runner_group.num_healthy_remote_workers() < 2 and time.monotonic() < deadline:
            after = algorithm.train()
        assert algorithm.env_runner_group.num_healthy_remote_workers() == 2
    finally:
        algorithm.stop()
    key = "guidance_lambda"
    assert after["learners"][DEFAULT_MODULE_ID][key] > before["learners"][DEFAULT_MODULE_ID][key]
    assert after["num_env_steps_sampled_lifetime"] > before["num_env_steps_sampled_lifetime"]


def test_a_restored_algorithm_goes_on_with_its_lambda(tmp_path):
    schedule = LinearSchedule(0.5, iterations=20)
    algorithm = guided(ppo(), guidance(schedule=schedule)).build_algo()
    for _ in range(2):
        before = algorithm.train()
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    algorithm.stop()
    restored = PPO.from_checkpoint(path)
    try:
        after = restored.train()
    finally:
        restored.stop()
    steps = [int(result["num_env_steps_sampled_lifetime"]) for result in (before, after)]
    lambdas = [result["learners"][DEFAULT_MODULE_ID]["guidance_lambda"] for result in (before, after)]
    assert lambdas == pytest.approx([schedule(-(-step // 40)) for step in steps])
    assert lambdas[1] > lambdas[0] > 0.5


def test_figures_are_in_the_results_and_in_tensorboard(tmp_path):
    config = guided(ppo(), guidance())
    run = tune.RunConfig(stop={"training_iteration": 1}, storage_path=str(tmp_path), name="run", verbose=0)
    (result,) = tune.Tuner(config.algo_class, param_space=config, run_config=run).fit()
    figures = result.metrics["learners"][DEFAULT_MODULE_ID]
    assert (figures["guidance_lambda"], figures["guidance_discount"]) == (0.5, 0.5 * GAMMA)
    assert figures["guidance_h_min"] <= figures["guidance_h_mean"] <= figures["guidance_h_max"]
    events = EventAccumulator(result.path)
    events.Reload()
    tags = events.Tags()["scalars"]
    for name in ("lambda", "discount", "h_mean", "h_min", "h_max"):
        assert f"ray/tune/learners/{DEFAULT_MODULE_ID}/guidance_{name}" in tags


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (APPOConfig().training(gamma=GAMMA), r"APPO can't be guided: its batches wait in queues"),
        (IMPALAConfig().training(gamma=GAMMA), r"IMPALA can't be guided: its batches wait in queues"),
        (BCConfig().training(gamma=GAMMA), r"BC can't be guided: take PPO, SAC or DQN"),
        (
            PPOConfig().training(gamma=0.99),
            r"gamma is 0.99 for PPO and 0.9 for its guidance: set .training\(gamma=0.9\)",
        ),
        (
            DQNConfig().training(gamma=GAMMA, n_step=3),
            r"n_step=3 can't be guided: .*; set .training\(n_step=1\)",
        ),
        (
            PPOConfig().training(gamma=GAMMA).multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *_: "a"),
            r"a multi-agent configuration can't be guided",
        ),
        (
            PPOConfig()
            .training(gamma=GAMMA)
            .api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False),
            r"old API stack, which can't be guided",
        ),
    ],
)
def test_what_cannot_be_guided(config, message):
    with pytest.raises(ValueError, match=message):
        guided(config, guidance())


def test_what_is_no_configuration_or_no_guidance():
    with pytest.raises(TypeError, match=r"takes a configuration of RLlib, such as PPOConfig\(\), got 'PPO'"):
        guided("PPO", guidance())
    ladder = Guidance(np.sum, gamma=GAMMA)
    with pytest.raises(ValueError, match=r"Ladder\(.*, 1\) can't be had with RLlib: .*; give the guidance a schedule"):
        guided(PPOConfig().training(gamma=GAMMA), ladder)
    with pytest.raises(TypeError, match=r"takes a hurl.Guidance, got 0.9"):
        guided(ppo(), 0.9)


def test_a_heuristic_for_other_observations():
    other = Zero(observation_space=ObservationSpace((7,), "float"))
    with pytest.raises(HeuristicError, match=r"observations of Box of shape \(7,\).*but here they are"):
        weights_after(guided(ppo(), guidance(other)))


def test_the_configuration_is_copied():
    config = ppo()
    guided(config, guidance())
    assert config.learner_class is PPOTorchLearner
    assert not config.learner_config_dict


def test_an_iteration_without_samples_says_so():
    config = guided(ppo(), guidance())
    told = config.callbacks_on_train_result[-1]
    with pytest.warns(UserWarning, match=r"within sample_timeout_s=60.0: the iteration has no samples"):
        told(algorithm=SimpleNamespace(config=config), result={"env_runners": {}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told(algorithm=SimpleNamespace(config=config), result={"learners": {}})
        told(algorithm=SimpleNamespace(config=guided(sac(), guidance())), result={"env_runners": {}})
