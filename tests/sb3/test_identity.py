"""With λ = 1 a guided algorithm is its base algorithm, bit for bit."""

import gymnasium as gym
import jax
import numpy as np
import pytest
import sbx
import stable_baselines3 as sb3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import hurl

OFF_POLICY = {"learning_starts": 60, "batch_size": 16, "buffer_size": 500, "train_freq": 20, "gradient_steps": 20}
ON_POLICY = {"n_steps": 64, "batch_size": 32, "n_epochs": 2}
CASES = {
    "sb3.SAC": (sb3.SAC, "Pendulum-v1", OFF_POLICY),
    "sb3.SAC-3-steps": (sb3.SAC, "Pendulum-v1", OFF_POLICY | {"n_steps": 3}),
    "sb3.DQN": (sb3.DQN, "CartPole-v1", OFF_POLICY),
    "sb3.PPO": (sb3.PPO, "CartPole-v1", ON_POLICY),
    "sbx.SAC": (sbx.SAC, "Pendulum-v1", OFF_POLICY),
    "sbx.PPO": (sbx.PPO, "Pendulum-v1", ON_POLICY),
}


def weights(model):
    if model.policy.__class__.__module__.startswith("sbx"):
        states = [value for value in vars(model.policy).values() if hasattr(value, "opt_state")]
        return [np.asarray(leaf) for state in states for leaf in jax.tree.leaves((state.params, state.opt_state))]
    return [tensor.detach().numpy() for tensor in model.policy.state_dict().values()]


def train(make, env_id, normalize=False, time_limit=50, **options):
    env = DummyVecEnv([lambda: gym.make(env_id, max_episode_steps=time_limit)] * 2)
    env = VecNormalize(env, gamma=0.97) if normalize else env
    policy_kwargs = (
        {"net_arch": [16]} if make.__name__.endswith(("DQN", "PPO")) else {"net_arch": {"pi": [16], "qf": [16]}}
    )
    model = make("MlpPolicy", env, seed=3, gamma=0.97, policy_kwargs=policy_kwargs, **options)
    return weights(model.learn(300))


def wild(observations):
    return 1e4 * np.sin(1e3 * observations[:, 0]) - 77


def guide(lambda_):
    return hurl.Guidance(wild, hurl.ConstantSchedule(lambda_), gamma=0.97, steps_per_iteration=50)


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("case", CASES)
def test_lambda_one_is_the_base_algorithm(case, normalize):
    algorithm, env_id, options = CASES[case]
    base = train(algorithm, env_id, normalize, **options)
    same = train(hurl.guided(algorithm), env_id, normalize, guidance=guide(1.0), **options)
    assert len(base) == len(same) > 0
    for expected, found in zip(base, same, strict=True):
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("case", CASES)
def test_a_ladder_of_one_rung_is_the_base_algorithm(case):
    algorithm, env_id, options = CASES[case]
    base = train(algorithm, env_id, **options)
    guidance = hurl.Guidance(wild, hurl.Ladder(1.0), gamma=0.97, steps_per_iteration=50)
    for expected, found in zip(base, train(hurl.guided(algorithm), env_id, guidance=guidance, **options), strict=True):
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("case", CASES)
def test_lambda_below_one_is_not(case):
    algorithm, env_id, options = CASES[case]
    base = train(algorithm, env_id, **options)
    other = train(hurl.guided(algorithm), env_id, guidance=guide(0.9), **options)
    assert any(not np.array_equal(first, second) for first, second in zip(base, other, strict=True))
