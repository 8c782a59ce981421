"""What users of Stable-Baselines3 do with its algorithms, done with guided ones: facts of the libraries' own suites."""

import pickle
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecFrameStack, VecMonitor, VecNormalize

import hurl
from tests.sb3.conftest import GAMMA, heuristic

N_STEPS = 18
OFF_POLICY = {"buffer_size": 500, "learning_starts": 40, "batch_size": 8, "train_freq": 9, "gradient_steps": 9}


def guide(lambda_=0.6, h=heuristic, gamma=GAMMA, **options):
    return hurl.Guidance(h, hurl.ConstantSchedule(lambda_), gamma=gamma, **options)


def guided_sac(env, guidance=None, **options):
    options = OFF_POLICY | {"policy_kwargs": {"net_arch": [8]}, "seed": 0} | options
    return hurl.guided(sb3.SAC)("MlpPolicy", env, guidance=guidance or guide(), **options)


def guided_ppo(env, guidance=None, policy="MlpPolicy", **options):
    options = {"n_steps": N_STEPS, "batch_size": N_STEPS, "n_epochs": 1, "seed": 0} | options
    return hurl.guided(sb3.PPO)(policy, env, guidance=guidance or guide(), **options)


def parameters(model):
    return [tensor.detach().numpy() for tensor in model.policy.state_dict().values()]


# Wrappers above VecNormalize -----------------------------------------------------------------------------------------


class Images(gym.Env):
    """Images with their channels last, which Stable-Baselines3 puts first by a wrapper above all others."""

    observation_space = spaces.Box(0, 255, (40, 36, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), 1.0, self.time % 7 == 0, self.time % 5 == 0, {}

    def _observe(self):
        return np.full((40, 36, 3), self.time, np.uint8)


class Doubled(VecEnvWrapper):
    """Pays twice what it is paid."""

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, 2 * rewards, dones, infos


def test_h_sees_images_of_normalised_environments_with_their_channels_first():
    shapes = set()

    def brightness(observations):
        shapes.add(observations.shape[1:])
        return observations.mean(axis=(1, 2, 3))

    env = VecNormalize(DummyVecEnv([Images] * 2), norm_obs=False, gamma=GAMMA)
    guided_ppo(env, guide(h=brightness), "CnnPolicy", batch_size=12).learn(2 * N_STEPS)
    assert shapes == {(3, 40, 36)}


@pytest.mark.parametrize("wrapper", [lambda env: VecFrameStack(env, 2), VecMonitor, Doubled])
def test_a_wrapper_above_vec_normalize_keeps_its_place(walk, wrapper):
    def weights(lambda_, make):
        env = wrapper(VecNormalize(walk(2), gamma=GAMMA))
        return parameters(make(env, lambda_).learn(2 * N_STEPS))

    def base(env, lambda_):
        return sb3.PPO("MlpPolicy", env, gamma=GAMMA, n_steps=N_STEPS, batch_size=N_STEPS, n_epochs=1, seed=0)

    def guided(env, lambda_):
        return guided_ppo(env, guide(lambda_))

    expected, same, other = weights(1.0, base), weights(1.0, guided), weights(0.5, guided)
    assert all(np.array_equal(first, second) for first, second in zip(expected, same, strict=True))
    assert any(not np.array_equal(first, second) for first, second in zip(expected, other, strict=True))


def test_what_a_wrapper_pays_is_reshaped_and_not_replaced(walk):
    env = Doubled(VecNormalize(walk(), gamma=GAMMA, norm_obs=False, norm_reward=False))
    model = guided_ppo(env, learning_rate=0.0)
    paid = []

    class Note(BaseCallback):
        def _on_step(self):
            paid.append(float(self.locals["rewards"][0]))
            return True

    model.learn(N_STEPS, Note())
    assert paid[:3] == [0.0, 2.0, 4.0]
    stored = model.rollout_buffer.rewards.ravel()[:3]
    np.testing.assert_allclose(stored, paid[:3] + 0.4 * GAMMA * np.array([97, 94, 91]), rtol=1e-5)


@pytest.mark.parametrize("make", [guided_sac, guided_ppo])
def test_callbacks_see_rewards_as_they_were_paid(walk, make):
    paid = []

    class Note(BaseCallback):
        def _on_step(self):
            paid.append(float(self.locals["rewards"][0]))
            return True

    make(walk()).learn(N_STEPS, Note())
    assert paid[:9] == [0, 1, 2, 3, 4, 5, 6, 10, 11]


# Replay buffers ------------------------------------------------------------------------------------------------------


def test_single_transitions_can_be_added_and_move_no_clock(walk):
    model = guided_sac(walk())
    observation = np.array([[0.0, 3.0]], np.float32)
    model.replay_buffer.add(observation, observation + np.array([[0, 1]]), np.zeros((1, 1)), 5.0, False, [{}])
    many = [np.stack([value] * 3) for value in (observation, observation, np.zeros((1, 1)), np.ones(1), np.ones(1))]
    model.replay_buffer.extend(*many, [[{}]] * 3)
    assert (model.replay_buffer.size(), model.guidance.steps, model.guidance.statistics.count) == (4, 0, 0)
    expected = [5 + 0.4 * GAMMA * 88, 1, 1, 1]
    np.testing.assert_allclose(model.replay_buffer.rewards[:4, 0], expected, rtol=1e-6)


def test_the_rewards_of_a_buffer_are_an_array_to_who_reads_them(walk):
    rewards = guided_sac(walk()).learn(30).replay_buffer.rewards
    whole = np.asarray(rewards)
    assert (len(rewards), rewards.shape, rewards.dtype) == (500, (500, 1), np.float32)
    assert rewards.mean() == whole.mean()
    assert rewards.sum() == whole.sum()
    np.testing.assert_array_equal(2 * rewards + 1, 2 * whole + 1)


def test_a_buffer_of_ones_own_samples_with_its_own_arguments(walk):
    class Weighted(ReplayBuffer):
        def sample(self, batch_size, env=None, beta=0.0):
            samples = super().sample(batch_size, env)
            return samples._replace(rewards=samples.rewards * beta)

    model = guided_sac(walk(), replay_buffer_class=Weighted).learn(30)
    assert not model.replay_buffer.sample(4).rewards.any()
    assert model.replay_buffer.sample(4, beta=0.9).rewards.any()
    assert model.replay_buffer.sample(4, beta=0.9).discounts.numpy() == pytest.approx(0.6 * GAMMA)


def test_a_copy_of_the_rewards_is_a_copy(walk):
    rewards = guided_sac(walk(), guide(1.0)).learn(30).replay_buffer.rewards
    np.array(rewards)[:] = 77
    assert not (rewards.raw == 77).any()


def test_a_rollout_buffer_is_the_plain_one_after_its_rollout(walk):
    model = guided_ppo(walk()).learn(N_STEPS)
    copied = pickle.loads(pickle.dumps(model.rollout_buffer))
    assert (type(copied), copied.gamma) == (RolloutBuffer, 0.6 * GAMMA)
    np.testing.assert_array_equal(deepcopy(model.rollout_buffer).rewards, model.rollout_buffer.rewards)


# γ -------------------------------------------------------------------------------------------------------------------


def test_gamma_that_is_set_anew_is_that_of_the_guidance(walk):
    model = guided_sac(walk()).learn(30)
    model.gamma = 0.5
    assert (model.gamma, model.guidance.gamma, model.guidance.discount) == (0.5, 0.5, 0.3)
    assert model.replay_buffer.sample(4).discounts.numpy() == pytest.approx(0.3)
    np.testing.assert_allclose(model.replay_buffer.rewards[0], 0.4 * 0.5 * 97, rtol=1e-6)

    model = guided_ppo(walk())
    model.gamma = 0.5
    assert (model.gamma, model.guidance.gamma) == (0.3, 0.5)
    model.learn(N_STEPS)
    assert model.rollout_buffer.gamma == 0.3


def test_a_model_with_n_step_returns_and_another_gamma_can_be_loaded(walk, tmp_path):
    model = guided_sac(walk(), n_steps=3).learn(30)
    model.gamma = 0.5
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model", env=walk()).guidance.gamma == 0.5


def test_gamma_of_the_buffer_must_be_that_of_the_guidance(walk):
    guided_sac(walk(), n_steps=3, replay_buffer_kwargs={"gamma": GAMMA})
    with pytest.raises(ValueError, match=r"gamma is 0.5 in replay_buffer_kwargs and 0.9 for the guidance"):
        guided_sac(walk(), n_steps=3, replay_buffer_kwargs={"gamma": 0.5})


@pytest.mark.parametrize("make", [guided_sac, guided_ppo])
def test_episodic_tasks_need_no_discount(walk, make):
    model = make(walk(), guide(gamma=1.0), gamma=1.0).learn(2 * N_STEPS)
    assert model.guidance.discount == 0.6


# Classes, files, logs ------------------------------------------------------------------------------------------------


class WithoutGamma(sb3.SAC):
    """A subclass that fixes the discount."""

    def __init__(self, policy, env, **options):
        super().__init__(policy, env, gamma=0.8, **options)


def test_guided_classes_are_pickled_by_what_they_guide():
    guided = hurl.guided(sb3.SAC)
    assert pickle.loads(pickle.dumps(guided)) is guided


def test_a_subclass_without_gamma_can_be_guided(walk):
    model = hurl.guided(WithoutGamma)("MlpPolicy", walk(), guidance=guide(gamma=0.8), **OFF_POLICY).learn(36)
    assert model.guidance.steps == 36
    with pytest.raises(ValueError, match=r"gamma is 0.8 for the algorithm and 0.9 for its guidance"):
        hurl.guided(WithoutGamma)("MlpPolicy", walk(), guidance=guide(), **OFF_POLICY)


def test_on_policy_logs_are_dumped_by_iteration(walk):
    class Keep(KVWriter):
        def write(self, key_values, key_excluded, step=0):
            self.written = dict(key_values)

    model, keep = guided_ppo(walk()), Keep()
    model.set_logger(Logger(None, [keep]))
    model.learn(N_STEPS)
    model.dump_logs(iteration=7)
    assert (keep.written["time/iterations"], keep.written["guidance/lambda"]) == (7, 0.6)


@pytest.mark.parametrize("make", [guided_sac, guided_ppo])
def test_other_guidance_at_loading_counts_on(walk, make, tmp_path):
    schedule = hurl.LinearSchedule(0.0, iterations=5)

    def fresh():
        return hurl.Guidance(heuristic, schedule, gamma=GAMMA, steps_per_iteration=N_STEPS)

    make(walk(), fresh()).learn(2 * N_STEPS).save(tmp_path / "model")
    loaded = type(make(walk())).load(tmp_path / "model", env=walk(), guidance=fresh())
    assert (loaded.guidance.steps, loaded.guidance.lambda_) == (2 * N_STEPS, 0.25)

    elsewhere = fresh()
    elsewhere.advance(4 * N_STEPS)
    loaded = type(make(walk())).load(tmp_path / "model", env=walk(), guidance=elsewhere)
    assert loaded.guidance.steps == 4 * N_STEPS, "a guidance that has counted keeps its own count"
