import time
from pathlib import Path
from typing import Any

import envpool
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor

from hurl.envs import EnvPoolVecEnv


def sample_actions(environments: EnvPoolVecEnv, steps: int, seed: int = 0) -> np.ndarray:
    environments.action_space.seed(seed)
    return np.array([[environments.action_space.sample() for _ in range(environments.num_envs)] for _ in range(steps)])


def trajectory(environments: EnvPoolVecEnv, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    steps = [environments.step(action)[:3] for action in actions]
    observations, rewards, dones = zip(*steps, strict=True)
    return np.array(observations), np.array(rewards), np.array(dones)


@pytest.mark.parametrize(("env_id", "limit"), [("CartPole-v1", 20), ("Hopper-v4", 25)])
def test_episodes_are_those_of_the_bare_pool(env_id: str, limit: int) -> None:
    """The bare pool spends one step on a reset; without those steps, its stream is what the VecEnv must return."""
    environments = EnvPoolVecEnv(env_id, 1, seed=5, max_episode_steps=limit)
    pool = envpool.make(env_id, env_type="gymnasium", num_envs=1, num_threads=1, seed=5, max_episode_steps=limit)
    np.testing.assert_array_equal(environments.reset(), pool.reset()[0].astype(np.float32))
    ends = set()
    for action in sample_actions(environments, 300):
        observations, rewards, dones, infos = environments.step(action)
        expected, expected_rewards, terminated, truncated, _ = pool.step(action)
        assert rewards == expected_rewards
        assert dones == (terminated | truncated)
        if dones[0]:
            ends.add(infos[0]["TimeLimit.truncated"])
            np.testing.assert_array_equal(infos[0]["terminal_observation"], expected[0].astype(np.float32))
            expected = pool.step(action)[0]
        else:
            assert infos == [{}]
        np.testing.assert_array_equal(observations, expected.astype(np.float32))
    assert ends == {True, False}


def test_environments_end_one_by_one() -> None:
    """The rows of environments that go on are untouched by the reset of their neighbours, whoever steps them."""
    together = EnvPoolVecEnv("CartPole-v1", 6, seed=0, threads=3)
    actions = sample_actions(together, 80)
    together.reset()
    observations, _, dones = trajectory(together, actions)
    assert {1, 2} <= set(dones.sum(axis=1))
    for index in range(6):
        alone = EnvPoolVecEnv("CartPole-v1", 1, seed=index)
        alone.reset()
        expected, _, expected_dones = trajectory(alone, actions[:, [index]])
        np.testing.assert_array_equal(observations[:, index], expected[:, 0])
        np.testing.assert_array_equal(dones[:, index], expected_dones[:, 0])
        assert dones[:, index].any()


def test_time_limit_truncates() -> None:
    environments = EnvPoolVecEnv("Pendulum-v1", 2, seed=0, max_episode_steps=5)
    environments.reset()
    for step in range(1, 16):
        _, _, dones, infos = environments.step(np.zeros((2, 1), np.float32))
        assert dones.tolist() == [step % 5 == 0] * 2
        assert [info.get("TimeLimit.truncated") for info in infos] == [True if step % 5 == 0 else None] * 2


@pytest.mark.parametrize(("env_id", "action"), [("CartPole-v1", 1), ("Hopper-v4", [1.0, 1.0, 1.0])])
def test_termination_at_the_time_limit_is_termination(env_id: str, action: Any) -> None:
    def first_end(limit: int | None) -> tuple[int, bool]:
        environments = EnvPoolVecEnv(env_id, 1, seed=0, max_episode_steps=limit)
        environments.reset()
        for step in range(1, 200):
            _, _, dones, infos = environments.step(np.array([action]))
            if dones[0]:
                return step, infos[0]["TimeLimit.truncated"]
        raise AssertionError("the episode did not end")

    length, truncated = first_end(None)
    assert not truncated
    assert first_end(length) == (length, False)
    assert first_end(length - 1) == (length - 1, True)


def test_the_tasks_own_time_limit_is_the_default() -> None:
    assert EnvPoolVecEnv("Pendulum-v1", 1, seed=0).max_episode_steps == 200
    assert EnvPoolVecEnv("Hopper-v4", 1, seed=0).max_episode_steps == 1000


def test_double_precision_becomes_single() -> None:
    environments = EnvPoolVecEnv("Hopper-v4", 2, seed=0, max_episode_steps=2)
    assert environments.observation_space == spaces.Box(-np.inf, np.inf, (11,), np.float32)
    assert environments.action_space == spaces.Box(-1, 1, (3,), np.float32)
    assert environments.reset().dtype == np.float32
    for _ in range(2):
        observations, rewards, _, infos = environments.step(np.zeros((2, 3), np.float32))
        assert observations.dtype == rewards.dtype == np.float32
    assert infos[0]["terminal_observation"].dtype == np.float32


def test_images_stay_bytes() -> None:
    environments = EnvPoolVecEnv("Pong-v5", 2, seed=0)
    assert environments.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert environments.reset().dtype == np.uint8
    observations, *_ = environments.step(np.array([2, 3]))
    assert observations.dtype == np.uint8
    assert observations.shape == (2, 4, 84, 84)


def test_returned_arrays_are_the_callers() -> None:
    """CartPole's float32 observations are not copied, so the pool itself must not write to them again."""
    environments = EnvPoolVecEnv("CartPole-v1", 3, seed=0)
    returned = [environments.reset()]
    copies = [returned[0].copy()]
    for action in sample_actions(environments, 100):
        observations, _, _, infos = environments.step(action)
        for array in [observations, *(info["terminal_observation"] for info in infos if info)]:
            returned.append(array)
            copies.append(array.copy())
    for array, copy in zip(returned, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_seed_starts_again() -> None:
    fresh = EnvPoolVecEnv("Hopper-v4", 3, seed=11)
    used = EnvPoolVecEnv("Hopper-v4", 3, seed=4, threads=2)
    actions = sample_actions(fresh, 60)
    used.reset()
    trajectory(used, actions[:7])
    assert used.seed(11) == [11, 12, 13]
    np.testing.assert_array_equal(used.reset(), fresh.reset())
    for found, expected in zip(trajectory(used, actions), trajectory(fresh, actions), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_reset_without_a_seed_goes_on() -> None:
    environments = EnvPoolVecEnv("Hopper-v4", 2, seed=0)
    environments.seed(3)
    first, second = environments.reset(), environments.reset()
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_any_seed_of_stable_baselines3_is_taken() -> None:
    environments = EnvPoolVecEnv("Hopper-v4", 2, seed=2**32 - 1)
    first = environments.reset()
    environments.seed(2**32 - 1)
    np.testing.assert_array_equal(environments.reset(), first)
    environments.seed(None)
    assert not np.array_equal(environments.reset(), first)


def test_options_reach_the_task() -> None:
    environments = EnvPoolVecEnv("Hopper-v4", 1, seed=0, exclude_current_positions_from_observation=False)
    assert environments.reset().shape == (1, 12)


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("Hopper-v4", {"gravity": 1}, "EnvPool's Hopper-v4 has no option 'gravity'; there are .*frame_skip"),
        ("Hopper-v4", {"frame_skp": 1}, "EnvPool's Hopper-v4 has no option 'frame_skp'; did you mean 'frame_skip'"),
        *[
            ("CartPole-v1", {name: value}, f"EnvPool's CartPole-v1 has no option '{name}'")
            for name, value in {
                "base_path": "/nowhere",
                "batch_size": 1,
                "env_seed": [1],
                "from_pixels": True,
                "max_num_players": 10**9,
                "num_envs": 7,
                "num_threads": -5,
            }.items()
        ],
        ("CartPole-v1", {"max_episode_steps": -1}, "max_episode_steps of .* a whole number from 1 to .*, got -1"),
        ("CartPole-v1", {"max_episode_steps": 2**31}, "max_episode_steps of .* to 2,147,483,646, got 2147483648"),
        ("CartPole-v1", {"reward_threshold": "x"}, "reward_threshold of EnvPool's CartPole-v1 must be a finite number"),
        ("CartPole-v1", {"thread_affinity_offset": -7}, "thread_affinity_offset of .* number from -1 to .*, got -7"),
        ("Hopper-v4", {"healthy_z_min": float("nan")}, "healthy_z_min of .* must be a finite number, got nan"),
        ("Hopper-v4", {"post_constraint": "x"}, "post_constraint of .* must be true or false, got 'x'"),
        ("Hopper-v4", {"xml_file": 3}, "xml_file of .* must be a text, got 3"),
        ("Hopper-v4", {"frame_stack": 0}, "frame_stack of .* must be a whole number from 1 to"),
        ("Pong-v5", {"noop_max": 0}, "noop_max of .* must be a whole number from 1 to"),
        ("Pong-v5", {"img_height": 1.5}, "img_height of .* must be a whole number from 1 to .*, got 1.5"),
    ],
)
def test_what_a_task_does_not_take_is_named(env_id: str, options: dict[str, Any], message: str) -> None:
    """Some of it would end the whole process."""
    with pytest.raises(ValueError, match=message):
        EnvPoolVecEnv(env_id, 2, seed=0, **options)


def test_options_that_would_end_the_process_end_another_one() -> None:
    with pytest.raises(ValueError, match=r"Pong-v5 does not run with the options .*'nope'.*: ROM file .* not found"):
        EnvPoolVecEnv("Pong-v5", 1, seed=0, task="nope")


def test_a_replay_buffer_gets_the_true_next_observations() -> None:
    environments = EnvPoolVecEnv("CartPole-v1", 2, seed=0, max_episode_steps=4)
    model = DQN("MlpPolicy", environments, learning_starts=1000, buffer_size=100, seed=0)
    model.learn(24)
    buffer = model.replay_buffer
    assert buffer is not None
    steps = np.arange(12)
    ended = steps % 4 == 3
    np.testing.assert_array_equal(buffer.dones[:12], np.repeat(ended[:, None], 2, axis=1))
    np.testing.assert_array_equal(buffer.timeouts[:12], buffer.dones[:12])
    following = buffer.observations[1:12] == buffer.next_observations[:11]
    np.testing.assert_array_equal(following.all(axis=(1, 2)), ~ended[:11])


def test_what_envpool_cannot_do_says_so() -> None:
    environments = EnvPoolVecEnv("CartPole-v1", 3, seed=0)
    assert environments.get_attr("render_mode") == [None, None, None]
    assert environments.get_attr("render_mode", 1) == [None]
    assert environments.env_is_wrapped(Monitor, [0, 2]) == [False, False]
    assert environments.get_images() == [None, None, None]
    assert not environments.has_attr("gravity")
    with pytest.raises(AttributeError, match=r"'gravity' cannot be read: EnvPool runs CartPole-v1 in C\+\+"):
        environments.get_attr("gravity")
    with pytest.raises(NotImplementedError, match="'gravity' cannot be set"):
        environments.set_attr("gravity", 1)
    with pytest.raises(NotImplementedError, match="'compute_reward' cannot be called"):
        environments.env_method("compute_reward")
    with pytest.raises(ValueError, match="CartPole-v1 cannot be rendered through EnvPool"):
        EnvPoolVecEnv("CartPole-v1", 1, seed=0, render_mode="rgb_array")
    with pytest.raises(ValueError, match="MiniGrid-Empty-5x5-v0 has a Dict space"):
        EnvPoolVecEnv("MiniGrid-Empty-5x5-v0", 1, seed=0)


def test_reset_options_are_ignored() -> None:
    environments = EnvPoolVecEnv("CartPole-v1", 2, seed=0)
    environments.set_options({"low": 0.0})
    assert environments.reset().shape == (2, 4)
    assert environments._options == [{}, {}]


def test_close_ends_the_threads() -> None:
    def threads() -> set[str]:
        return {path.name for path in Path("/proc/self/task").iterdir()}

    before = threads()
    environments = EnvPoolVecEnv("CartPole-v1", 2, seed=0, threads=2)
    environments.reset()
    started = threads() - before
    assert len(started) >= 2
    environments.close()
    environments.close()
    patience = time.monotonic() + 5
    while started & threads():
        assert time.monotonic() < patience, "the threads of a closed pool still run"
