import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hurl.envs import SparseReacherEnv, SparseReacherVecEnv, register_environments, sparse_reward
from hurl.heuristics.engineered import sparse_reacher


def at_distance(*distances: float) -> np.ndarray:
    observations = np.full((len(distances), 11), 7.0)
    observations[:, 8:11] = np.outer(distances, [2 / 3, -1 / 3, 2 / 3])
    return observations


def reach(observations: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Actions that bring the fingertip to the target: a spring on the arm's Jacobian, with damping and noise."""
    cosines, sines, velocities, difference = np.split(observations[:, [0, 1, 2, 3, 6, 7, 8, 9]], 4, axis=1)
    elbow = cosines[:, 0] * cosines[:, 1] - sines[:, 0] * sines[:, 1]
    elbow_sine = sines[:, 0] * cosines[:, 1] + cosines[:, 0] * sines[:, 1]
    outer = 0.11 * np.stack([-elbow_sine, elbow], axis=1)
    inner = outer + 0.1 * np.stack([-sines[:, 0], cosines[:, 0]], axis=1)
    torques = -np.stack([(inner * difference).sum(axis=1), (outer * difference).sum(axis=1)], axis=1)
    return np.clip(20 * torques - 0.05 * velocities + noise, -1, 1).astype(np.float32)


def start_like(env: SparseReacherEnv, observation: np.ndarray) -> None:
    cosines, sines, target, velocities = np.split(observation[:8].astype(np.float64), 4)
    env.set_state(np.concatenate([np.arctan2(sines, cosines), target]), np.concatenate([velocities, [0, 0]]))


def test_reward_is_zero_at_the_goal_and_minus_one_elsewhere() -> None:
    rewards = sparse_reward(at_distance(0, 0.00999, 0.01001, 0.2))
    assert rewards.tolist() == [0, 0, -1, -1]
    # The limit itself belongs to the goal.
    on_the_limit = np.zeros(11)
    on_the_limit[9] = -0.01
    assert sparse_reward(on_the_limit) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reward_keeps_shape_and_precision(dtype: Any) -> None:
    rewards = sparse_reward(np.zeros((2, 3, 11), dtype))
    assert rewards.shape == (2, 3)
    assert rewards.dtype == dtype
    assert sparse_reacher(np.zeros((5, 11), dtype)).dtype == dtype


@given(arrays(np.float64, (4, 11), elements=st.floats(-1, 1)))
def test_heuristic_is_the_papers(observations: np.ndarray) -> None:
    distances = np.sqrt(np.square(observations[:, 8:11]).sum(axis=1))
    # Two ways of rounding a square root may fall on two sides of the goal's edge.
    assume(np.abs(distances - 0.01).min() > 1e-9)
    expected = [(0 if distance <= 0.01 else -1) - 100 * distance for distance in distances]
    np.testing.assert_allclose(sparse_reacher(observations), expected, atol=1e-9)


def test_heuristic_examples() -> None:
    np.testing.assert_allclose(sparse_reacher(at_distance(0, 0.005, 0.02, 0.1)), [0, -0.5, -3, -11])


def test_both_forms_are_the_same_task() -> None:
    n_envs, steps = 4, 200
    pool = SparseReacherVecEnv(n_envs, seed=3)
    observations = pool.reset()
    envs = [gym.make("hurl/SparseReacher-v0") for _ in range(n_envs)]
    for env, observation in zip(envs, observations, strict=True):
        env.reset(seed=0)
        start_like(env.unwrapped, observation)
    random = np.random.default_rng(0)
    seen = set()
    for _ in range(steps):
        clear_of_the_limit = np.abs(np.linalg.norm(observations[:, 8:11], axis=1) - 0.01) > 1e-5
        actions = reach(observations, random.normal(0, 0.1, (n_envs, 2)))
        observations, rewards, dones, _ = pool.step(actions)
        expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        np.testing.assert_allclose(observations, [step[0] for step in expected], atol=1e-4)
        expected_rewards = np.array([step[1] for step in expected])
        np.testing.assert_array_equal(rewards[clear_of_the_limit], expected_rewards[clear_of_the_limit])
        assert not dones.any()
        assert not any(step[2] or step[3] for step in expected)
        seen.update(rewards.tolist())
    assert seen == {0, -1}


def test_reward_is_of_the_state_before_the_step() -> None:
    pool = SparseReacherVecEnv(8, seed=0)
    before = pool.reset()
    entered = 0
    for _ in range(150):
        after, rewards, _, _ = pool.step(reach(before, np.zeros((8, 2))))
        np.testing.assert_array_equal(rewards, sparse_reward(before))
        entered += int((sparse_reward(before) != sparse_reward(after)).sum())
        before = after.copy()
        after[:] = 0  # a caller may do with the observations as they like
    assert entered > 0


def test_horizon_is_500_and_nothing_terminates() -> None:
    pool = SparseReacherVecEnv(2, seed=0)
    pool.reset()
    env = gym.make("hurl/SparseReacher-v0")
    env.reset(seed=0)
    for step in range(1, 501):
        _, _, dones, infos = pool.step(np.full((2, 2), 0.1, np.float32))
        _, reward, terminated, truncated, _ = env.step(np.full(2, 0.1, np.float32))
        assert reward in (0, -1)
        assert not terminated
        assert truncated == (step == 500)
        assert dones.tolist() == [step == 500] * 2
    assert [info["TimeLimit.truncated"] for info in infos] == [True, True]


def test_after_an_episode_the_reward_is_of_the_new_start() -> None:
    pool = SparseReacherVecEnv(1, seed=0, max_episode_steps=100)
    before = pool.reset()
    for _ in range(99):
        before, *_ = pool.step(reach(before, np.zeros((1, 2))))
    start, reward, dones, infos = pool.step(reach(before, np.zeros((1, 2))))
    assert dones[0]
    assert reward == sparse_reward(infos[0]["terminal_observation"]) == 0
    _, reward, _, _ = pool.step(np.zeros((1, 2), np.float32))
    assert reward == sparse_reward(start) == -1


def test_registration_can_be_repeated() -> None:
    spec = gym.spec("hurl/SparseReacher-v0")
    register_environments()
    assert gym.spec("hurl/SparseReacher-v0") is spec


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_gymnasium_finds_it_by_module() -> None:
    code = 'import gymnasium; print(gymnasium.make("hurl.envs:hurl/SparseReacher-v0").unwrapped)'
    assert run_python(code).startswith("<SparseReacherEnv")


def test_the_heuristic_needs_numpy_alone() -> None:
    heavy = {"gymnasium", "stable_baselines3", "torch", "jax", "mujoco", "envpool"}
    code = f"import sys, hurl.heuristics.engineered; print(sorted({heavy} & set(sys.modules)))"
    assert run_python(code) == "[]"
