"""EnvPool's environments in RLlib's env runners, and PPO on a game of Procgen."""

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from hurl import ConstantSchedule, Guidance
from hurl.data import Episodes
from hurl.data.rollout import Policy, roll_out
from hurl.envs import UnknownEnvironmentError, make_env
from hurl.heuristics import ImageMonteCarloHeuristic
from hurl.rllib import guided
from hurl.rllib.modules import CHUNK, ImpalaCNNModule, on_procgen
from hurl.rllib.vector_env import EnvPoolVectorEnv, on_envpool

GAMMA = 0.99
STAY = 4  # the action that presses no key
SMALL = {"depths": [4, 4], "width": 16}

pytestmark = pytest.mark.usefixtures("ray_here")


# The vector environment ----------------------------------------------------------------------------------------------


def cartpole(limit):
    env = gym.make("CartPole-v1", max_episode_steps=limit)
    env.reset(seed=0)
    return env


def replay(episode, limit):
    """Play an episode again with Gymnasium's CartPole: it must pass the same states and end in the same way."""
    observations, rewards = episode.get_observations(), episode.get_rewards()
    env = cartpole(limit)
    env.unwrapped.state = observations[0].astype(np.float64)
    for t, action in enumerate(episode.get_actions()):
        expected, reward, terminated, truncated, _ = env.step(int(action))
        np.testing.assert_allclose(observations[t + 1], expected, atol=1e-4)
        assert rewards[t] == reward
        assert (terminated or truncated) == (episode.is_done and t + 1 == len(episode))
    assert (episode.is_terminated, episode.is_truncated) == (terminated, truncated)


def env_runner(config, envs):
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=envs).debugging(seed=1)
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    runner.env.action_space.seed(1)
    return runner


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_episodes_are_those_of_gymnasium(backend):
    limit = 18
    if backend == "envpool":
        config = on_envpool(PPOConfig(), "CartPole-v1", max_episode_steps=limit)
    else:
        config = PPOConfig().environment("CartPole-v1", env_config={"max_episode_steps": limit})
    runner = env_runner(config, envs=5)
    episodes = runner.sample(num_timesteps=3000, random_actions=True)
    for episode in episodes:
        replay(episode, limit)
    flags = {(episode.is_terminated, episode.is_truncated) for episode in episodes if episode.is_done}
    assert flags == {(True, False), (False, True), (True, True)}
    runner.stop()


def test_an_episode_goes_on_in_the_next_sample():
    runner = env_runner(on_envpool(PPOConfig(), "CartPole-v1"), envs=2)
    first = {episode.id_: episode for episode in runner.sample(num_timesteps=6, random_actions=True)}
    for episode in runner.sample(num_timesteps=6, random_actions=True):
        np.testing.assert_array_equal(episode.get_observations(0), first[episode.id_].get_observations(-1))
    runner.stop()


def test_a_reset_after_an_end_begins_one_episode():
    env = EnvPoolVectorEnv({"env_id": "CartPole-v1", "num_envs": 3, "max_episode_steps": 10})
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    env.reset(seed=0)
    ended = np.zeros(3, bool)
    while not ended.any():
        _, _, terminated, truncated, _ = env.step(np.ones(3, int))
        ended = terminated | truncated
    observations, infos = env.reset()
    assert infos == {}
    after, rewards, *_ = env.step(np.zeros(3, int))
    assert rewards.tolist() == [1, 1, 1]
    for begin, end in zip(observations, after, strict=True):
        single = cartpole(10)
        single.unwrapped.state = begin.astype(np.float64)
        np.testing.assert_allclose(single.step(0)[0], end, atol=1e-5)


def test_the_step_after_an_end_ends_nothing_and_pays_nothing():
    env = EnvPoolVectorEnv({"env_id": "CartPole-v1", "num_envs": 5, "max_episode_steps": 18})
    env.reset(seed=1)
    env.action_space.seed(1)
    ended = np.zeros(5, bool)
    for _ in range(600):
        _, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
        assert not (terminated | truncated)[ended].any()
        np.testing.assert_array_equal(rewards, ~ended)
        ended = terminated | truncated


def test_doubles_come_as_floats():
    env = EnvPoolVectorEnv({"env_id": "Hopper-v4", "num_envs": 2})
    assert env.single_observation_space == spaces.Box(-np.inf, np.inf, (11,), np.float32)
    observations, _ = env.reset(seed=0)
    assert observations.dtype == np.float32
    observations, *_ = env.step(env.action_space.sample())
    assert observations.dtype == np.float32
    assert env.observation_space.contains(observations)


def test_a_game_goes_from_its_clock_to_the_next_level():
    env = EnvPoolVectorEnv({"env_id": "MazeEasy-v0", "num_envs": 2})
    first, _ = env.reset(seed=0)
    for step in range(1, 501):
        last, _, terminated, truncated, _ = env.step(np.full(2, STAY))
        assert not terminated.any()
        assert truncated.tolist() == [step == 500] * 2
    np.testing.assert_array_equal(last, first)
    after, rewards, terminated, truncated, _ = env.step(np.full(2, STAY))
    assert not (terminated | truncated | rewards.astype(bool)).any()
    assert all(not np.array_equal(image, old) for image, old in zip(after, first, strict=True))


def levels(seed, count=4):
    env = EnvPoolVectorEnv({"env_id": "CoinrunEasy-v0", "num_envs": count})
    return [image.tobytes() for image in env.reset(seed=seed)[0]]


def test_seeds_repeat_and_share_no_level():
    assert levels(5) == levels(5)
    # RLlib seeds its env runners with one number after the other
    assert len({image for seed in (5, 6, 7) for image in levels(seed)}) == 12
    assert len({*levels(None), *levels(None)}) == 8
    env = EnvPoolVectorEnv({"env_id": "CoinrunEasy-v0", "num_envs": 2})
    first, second, again = (env.reset(seed=seed)[0] for seed in (5, None, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


def test_env_runners_play_levels_of_their_own():
    config = on_procgen(PPOConfig(), "coinrun").rl_module(model_config=SMALL).debugging(seed=3)
    config.env_runners(num_env_runners=2, num_envs_per_env_runner=3)

    def first_images(worker):
        runner = SingleAgentEnvRunner(config=config, worker_index=worker, num_workers=2)
        episodes = runner.sample(num_timesteps=3)
        return {episode.get_observations(0).tobytes() for episode in episodes}

    assert len(first_images(1) | first_images(2)) == 6
    assert first_images(1) == first_images(1)


def test_what_can_not_be_made():
    with pytest.raises(UnknownEnvironmentError, match=r"'CoinrunEazy-v0' in EnvPool; did you mean 'CoinrunEasy-v0'"):
        on_envpool(PPOConfig(), "CoinrunEazy-v0")
    with pytest.raises(ValueError, match="the game's own"):
        EnvPoolVectorEnv({"env_id": "CoinrunEasy-v0", "num_envs": 1, "max_episode_steps": 5})
    with pytest.raises(ValueError, match="CoinrunEasy-v0 has no option 'num_level'; did you mean 'num_levels'"):
        EnvPoolVectorEnv({"env_id": "CoinrunEasy-v0", "num_envs": 1, "num_level": 5})
    with pytest.raises(ValueError, match="MiniGrid-Empty-5x5-v0 has a Dict space"):
        EnvPoolVectorEnv({"env_id": "MiniGrid-Empty-5x5-v0", "num_envs": 1})


# The model -----------------------------------------------------------------------------------------------------------


def module(space=None, actions=None, **model_config):
    space = space or spaces.Box(0, 255, (3, 64, 64), np.uint8)
    return ImpalaCNNModule(
        observation_space=space, action_space=actions or spaces.Discrete(15), model_config=model_config
    )


def images(count):
    return {Columns.OBS: torch.randint(0, 256, (count, 3, 64, 64), dtype=torch.uint8)}


def test_policy_and_value_share_the_papers_network():
    model = module()
    assert model.network.depths == [16, 32, 32]
    batch = images(2)
    forward = model.forward_train(batch)
    expected = model.network(batch[Columns.OBS])
    torch.testing.assert_close(forward[Columns.ACTION_DIST_INPUTS], expected["policy"])
    values = model.compute_values(batch, forward[Columns.EMBEDDINGS])
    torch.testing.assert_close(values, expected["value"][:, 0])
    torch.testing.assert_close(model.forward_inference(batch)[Columns.ACTION_DIST_INPUTS], expected["policy"])
    values.sum().backward()
    assert model.network.stages[0].weight.grad.abs().sum() > 0
    assert model.network.stages[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_values_of_a_train_batch_have_no_gradient():
    model = module(**SMALL)
    assert model.network.depths == [4, 4]
    batch = images(CHUNK + 3)
    values = model.compute_values(batch)
    with torch.no_grad():
        torch.testing.assert_close(values.detach(), model.network(batch[Columns.OBS])["value"][:, 0])
    values.sum().backward()
    assert model.network.stages[0].weight.grad is None


@pytest.mark.parametrize(
    ("space", "actions", "words"),
    [
        (spaces.Box(0, 255, (64, 64, 3), np.uint8), None, "takes images of uint8, channels first, got"),
        (spaces.Box(0, 1, (3, 64, 64), np.float32), None, "takes images of uint8, channels first, got"),
        (spaces.Box(0, 255, (64,), np.uint8), None, "takes images of uint8, channels first, got"),
        (None, spaces.Box(-1, 1, (2,)), "takes a Discrete action space, got Box"),
    ],
)
def test_spaces_that_the_model_is_not_for(space, actions, words):
    with pytest.raises(ValueError, match=words):
        module(space, actions)


# Training ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heuristic():
    """Fitted to what is seen through `make_env`."""
    env = make_env("StarpilotEasy-v0", 4, seed=0)
    generator = np.random.default_rng(0)
    policy = Policy("random", lambda seed: lambda observations: generator.integers(15, size=4), "", "", "")
    data = roll_out(policy, env, transitions=100, seed=0)
    spaces_ = env.observation_space, env.action_space
    episodes = Episodes(data.states, data.actions, data.rewards, data.lengths, data.terminated, *spaces_, "starpilot")
    return ImageMonteCarloHeuristic.fit(episodes, gamma=GAMMA, batch_size=50, validation=0)


def small_ppo(env_runners):
    return (
        on_procgen(PPOConfig(), "starpilot")
        .env_runners(num_env_runners=env_runners, num_envs_per_env_runner=4, rollout_fragment_length=16)
        .training(gamma=GAMMA, train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config=SMALL)
        .debugging(seed=3, log_level="ERROR")
    )


def weights_of(algorithm):
    return {name: np.copy(weight) for name, weight in algorithm.get_weights()["default_policy"].items()}


def train(config):
    """Return the results of two iterations, after a check that the policy that samples has learnt in both."""
    algorithm = config.build_algo()
    try:
        results, weights = [], [weights_of(algorithm)]
        for _ in range(2):
            results.append(algorithm.train())
            weights.append(weights_of(algorithm))
        for before, after in pairwise(weights):
            assert all(not np.array_equal(after[name], before[name]) for name in before)
        return results
    finally:
        algorithm.stop()


def test_ppo_plays():
    results = train(small_ppo(env_runners=0))
    # a step that resets an environment counts for none: the others go on until there are enough
    sampled = [result["env_runners"]["num_env_steps_sampled"] for result in results]
    assert all(64 <= steps < 64 + 4 for steps in sampled)


def test_guided_ppo_plays(heuristic):
    guidance = Guidance(heuristic, ConstantSchedule(0.75), gamma=GAMMA, steps_per_iteration=64)
    for result in train(guided(small_ppo(env_runners=1), guidance)):
        learner = result["learners"]["default_policy"]
        assert learner["guidance_lambda"] == pytest.approx(0.75)
        assert learner["guidance_discount"] == pytest.approx(0.75 * GAMMA)
        assert learner["guidance_h_min"] < learner["guidance_h_mean"] < learner["guidance_h_max"]
