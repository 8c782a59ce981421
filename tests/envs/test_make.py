import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import envpool
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from hurl.envs import EnvPoolVecEnv, SparseReacherVecEnv, UnknownEnvironmentError, make_env

BACKENDS = ["envpool", "gymnasium"]
Start = Callable[[Any, np.ndarray], np.ndarray]


def start_mujoco(hidden: int, n_positions: int) -> Start:
    """Put a Gymnasium environment where an observation says; its first `hidden` positions are not observed."""

    def start(env: Any, observation: np.ndarray) -> np.ndarray:
        positions = np.concatenate([np.zeros(hidden), observation[:n_positions]])
        env.set_state(positions, observation[n_positions : n_positions + env.model.nv].astype(np.float64))
        return np.asarray(env._get_obs())

    return start


def start_reacher(env: Any, observation: np.ndarray) -> np.ndarray:
    cosines, sines, target, velocities = np.split(observation[:8].astype(np.float64), 4)
    env.set_state(np.concatenate([np.arctan2(sines, cosines), target]), np.concatenate([velocities, [0, 0]]))
    return np.asarray(env._get_obs())


def start_pendulum(env: Any, observation: np.ndarray) -> np.ndarray:
    env.state = np.array([np.arctan2(observation[1], observation[0]), observation[2]], np.float64)
    return np.asarray(env._get_obs())


def start_cartpole(env: Any, observation: np.ndarray) -> np.ndarray:
    env.state = observation.astype(np.float64)
    return np.asarray(env.state)


def start_together(pool: VecEnv, gymnasium: VecEnv, start: Start, seed: int) -> None:
    """Start both in the state that EnvPool draws from the seed, at full precision: contacts magnify what is rounded."""
    pool.seed(seed)
    gymnasium.reset()
    exact = envpool.make(pool.unwrapped.env_id, env_type="gymnasium", num_envs=1, num_threads=1, seed=seed).reset()[0]
    np.testing.assert_array_equal(pool.reset(), exact.astype(np.float32))
    np.testing.assert_allclose(start(gymnasium.unwrapped.envs[0].unwrapped, exact[0]), exact[0], atol=1e-6)


@pytest.mark.parametrize(
    ("env_id", "start"),
    [
        ("Hopper-v4", start_mujoco(1, 5)),
        ("HalfCheetah-v4", start_mujoco(1, 8)),
        ("Swimmer-v4", start_mujoco(2, 3)),
        ("Reacher-v4", start_reacher),
        ("Pendulum-v1", start_pendulum),
        ("CartPole-v1", start_cartpole),
    ],
)
def test_both_backends_are_the_same_task(env_id: str, start: Start) -> None:
    pool = make_env(env_id, seed=2, backend="envpool")
    gymnasium = make_env(env_id, seed=2, backend="gymnasium")
    assert pool.observation_space == gymnasium.observation_space
    assert pool.action_space == gymnasium.action_space
    assert pool.unwrapped.max_episode_steps == gymnasium.get_attr("spec")[0].max_episode_steps
    for seed in range(4):
        start_together(pool, gymnasium, start, seed)
        for _ in range(25):
            actions = np.array([pool.action_space.sample()])
            observations, rewards, dones, infos = pool.step(actions)
            expected, expected_rewards, expected_dones, expected_infos = gymnasium.step(actions)
            np.testing.assert_allclose(rewards, expected_rewards, atol=1e-5)
            assert dones == expected_dones
            if dones[0]:
                observations, expected = ([info[0]["terminal_observation"]] for info in (infos, expected_infos))
                assert infos[0]["TimeLimit.truncated"] == expected_infos[0]["TimeLimit.truncated"]
            np.testing.assert_allclose(observations, expected, atol=1e-5, rtol=1e-5)
            if dones[0]:
                break


def test_humanoid_differs_in_its_contact_forces_alone() -> None:
    gymnasium = make_env("Humanoid-v4", backend="gymnasium")
    for options, filled_in in [({}, False), ({"post_constraint": True}, True)]:
        pool = make_env("Humanoid-v4", backend="envpool", **options)
        start_together(pool, gymnasium, start_mujoco(2, 22), seed=0)
        largest_force = 0.0
        for _ in range(12):
            actions = np.array([gymnasium.action_space.sample()])
            observations, rewards, dones, _ = pool.step(actions)
            expected, expected_rewards, *_ = gymnasium.step(actions)
            assert not dones[0]
            np.testing.assert_allclose(rewards, expected_rewards, atol=1e-2)
            np.testing.assert_allclose(observations[:, :292], expected[:, :292], atol=1e-2)
            forces = expected[:, 292:] if filled_in else np.zeros((1, 84))
            np.testing.assert_allclose(observations[:, 292:], forces, atol=0.1, rtol=1e-3)
            largest_force = max(largest_force, np.abs(expected[:, 292:]).max())
        assert largest_force > 100


@pytest.mark.parametrize("backend", BACKENDS)
def test_termination_at_the_time_limit_is_termination(backend: Any) -> None:
    def first_end(limit: int | None) -> tuple[int, bool]:
        environments = make_env("CartPole-v1", seed=0, backend=backend, max_episode_steps=limit)
        environments.reset()
        for step in range(1, 200):
            _, _, dones, infos = environments.step(np.array([1]))
            if dones[0]:
                return step, infos[0]["TimeLimit.truncated"]
        raise AssertionError("the episode did not end")

    length, truncated = first_end(None)
    assert not truncated
    assert first_end(length) == (length, False)
    assert first_end(length - 1) == (length - 1, True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["Hopper-v4", "hurl/SparseReacher-v0"])
def test_seeds_repeat_and_differ(backend: Any, env_id: str) -> None:
    def run(seed: int) -> np.ndarray:
        environments = make_env(env_id, 2, seed, backend=backend, max_episode_steps=9)
        rows = [environments.reset()]
        for _ in range(30):
            actions = np.array([environments.action_space.sample() for _ in range(2)])
            observations, rewards, dones, _ = environments.step(actions)
            rows.append(np.column_stack([observations, rewards, dones])[:, :11])
        return np.array(rows)

    first = run(7)
    np.testing.assert_array_equal(first, run(7))
    assert not np.array_equal(first[0], run(8)[0])
    # Environment i has seed + i.
    np.testing.assert_array_equal(first[0, 1], run(8)[0, 0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "hurl/SparseReacher-v0"])
def test_episode_statistics(backend: Any, env_id: str) -> None:
    environments = make_env(env_id, 3, seed=0, backend=backend, max_episode_steps=30)
    environments.reset()
    returns, lengths, episodes = np.zeros(3), np.zeros(3, int), 0
    for _ in range(100):
        actions = np.array([environments.action_space.sample() for _ in range(3)])
        _, rewards, dones, infos = environments.step(actions)
        returns, lengths = returns + rewards, lengths + 1
        for index in np.flatnonzero(dones):
            assert infos[index]["episode"]["r"] == returns[index]
            assert infos[index]["episode"]["l"] == lengths[index]
            returns[index], lengths[index], episodes = 0, 0, episodes + 1
        assert all("episode" in info for info, done in zip(infos, dones, strict=True) if done)
    assert episodes >= 9


@pytest.mark.parametrize("backend", BACKENDS)
def test_observations_are_single_precision(backend: Any) -> None:
    environments = make_env("Hopper-v4", 2, backend=backend, max_episode_steps=1)
    assert environments.observation_space == spaces.Box(-np.inf, np.inf, (11,), np.float32)
    assert environments.reset().dtype == np.float32
    observations, _, dones, infos = environments.step(np.zeros((2, 3), np.float32))
    assert dones.all()
    assert observations.dtype == infos[0]["terminal_observation"].dtype == np.float32


@pytest.mark.parametrize(
    ("env_id", "options", "expected"),
    [
        ("Hopper-v4", {}, EnvPoolVecEnv),
        ("Hopper-v4", {"backend": "gymnasium"}, DummyVecEnv),
        ("hurl/SparseReacher-v0", {}, SparseReacherVecEnv),
        ("hurl.envs:hurl/SparseReacher-v0", {}, SparseReacherVecEnv),
        ("hurl.envs:hurl/SparseReacher-v0", {"backend": "gymnasium"}, DummyVecEnv),
        ("Pong-v5", {}, EnvPoolVecEnv),
        ("CartPole-v1", {"render_mode": "rgb_array"}, DummyVecEnv),
        ("CartPole-v1", {"render_mode": None}, EnvPoolVecEnv),
    ],
)
def test_backend(env_id: str, options: dict[str, Any], expected: type[VecEnv]) -> None:
    environments = make_env(env_id, 2, **options)
    assert type(environments) is VecMonitor
    assert type(environments.unwrapped) is expected
    assert environments.num_envs == 2


def test_what_envpool_lacks_is_gymnasiums() -> None:
    gym.register(
        "hurl-tests/Reacher-v0", entry_point="gymnasium.envs.mujoco.reacher_v4:ReacherEnv", max_episode_steps=3
    )
    environments = make_env("hurl-tests/Reacher-v0", 2)
    assert type(environments.unwrapped) is DummyVecEnv
    assert environments.reset().dtype == np.float32
    ends = [environments.step(np.zeros((2, 2), np.float32))[2].all() for _ in range(6)]
    assert ends == [False, False, True] * 2


def test_without_envpool_gymnasium_does_the_work() -> None:
    """A None in sys.modules is how Python itself marks a module that cannot be imported."""
    code = """
import sys
sys.modules["envpool"] = None
import hurl.envs
print(type(hurl.envs.make_env("hurl/SparseReacher-v0").unwrapped).__name__)
try:
    hurl.envs.make_env("CartPole-v1", backend="envpool")
except ImportError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.splitlines() == [
        "DummyVecEnv",
        "The backend 'envpool' needs envpool: pip install 'hurl-rl[fast]'",
    ]


@pytest.mark.parametrize(
    ("env_id", "backend", "message"),
    [
        (
            "Hoper-v4",
            "auto",
            "There is no environment 'Hoper-v4' in EnvPool or Gymnasium; did you mean 'Hopper-v4'[?]",
        ),
        ("SparseReacher-v0", "auto", "; did you mean 'hurl/SparseReacher-v0'[?]"),
        ("Pong-v5", "gymnasium", "There is no environment 'Pong-v5' in Gymnasium"),
        ("GymV21Environment-v0", "envpool", "There is no environment 'GymV21Environment-v0' in EnvPool"),
        ("?", "auto", "There is no environment '[?]' in EnvPool or Gymnasium, and no id there resembles it."),
        (
            "my/Maze-v0",
            "auto",
            " For one of your own write module:id, such as mymaze:my/Maze-v0, with the module, mymaze",
        ),
        ("tests.data:my/Maze-v0", "auto", " The module tests.data does not register it: call gymnasium.register"),
    ],
)
def test_unknown_id(env_id: str, backend: Any, message: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=message):
        make_env(env_id, backend=backend)


def test_a_module_of_environments_that_ends_the_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "quitting_envs.py").write_text("raise SystemExit(0)")
    with pytest.raises(ValueError, match=r"'quitting_envs:Mine-v0' can't be imported: .*SystemExit: 0"):
        make_env("quitting_envs:Mine-v0")
    with pytest.raises(ValueError, match=r"'no_such_envs:Mine-v0' can't be imported: .*No module named 'no_such_envs'"):
        make_env("no_such_envs:Mine-v0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_envs": 0}, "n_envs must be a whole number from 1 to 10,000, got 0"),
        ({"n_envs": -3}, "n_envs must be a whole number from 1 to 10,000, got -3"),
        ({"n_envs": 10**9}, "n_envs must be a whole number from 1 to 10,000, got 1000000000"),
        ({"threads": -5}, "threads must be a whole number from 1 to 1,024, got -5"),
        ({"threads": 1_000_000}, "threads must be a whole number from 1 to 1,024, got 1000000"),
        ({"backend": "gym"}, "backend must be one of auto, envpool, gymnasium, not 'gym'"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a whole number from 1 to .*, got 0"),
        ({"max_episode_steps": "long"}, "max_episode_steps must be a whole number from 1 to .*, got 'long'"),
        ({"render_mode": 3}, "render_mode must be a text or null, got 3"),
        ({"backend": "gymnasium", "gravity": 3}, "Gymnasium's CartPole-v1 can't have the options {'gravity': 3}"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_env("CartPole-v1", **arguments)
