"""The maze of Gymnasium-Robotics: what it pays and shows, how it ends, and who shows the way."""

import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.utils import set_random_seed

from hurl.data import load_episodes
from hurl.envs import make_env
from hurl.envs.point_maze import demonstrate
from hurl.experiments.policies import collect_policies

MAZE = "hurl/PointMaze-v0"


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    root = tmp_path_factory.mktemp("demonstrations")
    names = ["hurl.envs.point_maze:demonstrate"]
    return load_episodes(collect_policies(names, "maze/demo-v0", transitions=5000, env_id=MAZE, root=root))


def test_an_observation_is_position_velocity_and_goal():
    env = gym.make(MAZE)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.observation_space == Box(-np.inf, np.inf, (6,), np.float64)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        position, velocity, goal = np.split(observation, 3)
        np.testing.assert_allclose(position, [-1, 1], atol=0.25)
        np.testing.assert_allclose(goal, [-1, -1], atol=0.25)
        assert (velocity == 0).all()
        after, *_ = env.step(np.array([1, 0], np.float32))
        assert after[0] > position[0]
        assert after[2] > 0
        assert (after[4:] == goal).all()


def test_a_seed_is_of_start_and_goal():
    starts = [make_env(MAZE, 2, seed=seed).reset() for seed in (0, 0, 1)]
    assert (starts[0] == starts[1]).all()
    assert (starts[0] != starts[2])[:, [0, 1, 4, 5]].all()
    assert (starts[0][0] != starts[0][1])[[0, 1, 4, 5]].all()


def test_each_step_costs_one_until_the_goal_ends_the_episode(demonstrations):
    ends = np.cumsum(demonstrations.lengths) - 1
    assert (np.delete(demonstrations.rewards, ends) == -1).all()
    assert (demonstrations.rewards[ends] == np.where(demonstrations.terminated, 0, -1)).all()
    after = demonstrations.states[demonstrations.positions + 1]
    distances = np.linalg.norm(after[:, :2] - after[:, 4:], axis=1)
    reached = np.zeros(len(distances), bool)
    reached[ends] = demonstrations.terminated
    assert (reached == (distances <= 0.45)).all()


def test_demonstrations_are_slow_and_some_fail(demonstrations):
    whole = demonstrations.lengths[:-1]  # the last is cut
    arrived = demonstrations.terminated[:-1]
    assert 0.5 < arrived.mean() < 1
    assert (whole[~arrived] == 300).all(), "the time limit"
    assert whole[arrived].min() > 180


def test_the_demonstrator_trembles_as_it_is_seeded():
    observations = make_env(MAZE, 3).reset()

    def actions(seed):
        set_random_seed(seed)
        return demonstrate(observations)

    assert np.array_equal(actions(0), actions(0))
    assert not np.array_equal(actions(0), actions(1))
    assert actions(0).dtype == np.float32
    assert np.abs(actions(0)).max() <= 1


def test_another_maze_can_be_asked_for():
    corridor = [[1, 1, 1, 1], [1, "r", "g", 1], [1, 1, 1, 1]]
    env = gym.make(MAZE, maze_map=corridor)
    observation, _ = env.reset(seed=0)
    np.testing.assert_allclose(observation[4:] - observation[:2], [1, 0], atol=0.5)


def test_no_file_stays_behind():
    before = set(Path(tempfile.gettempdir()).glob("ant_maze*"))
    gym.make(MAZE).close()
    assert set(Path(tempfile.gettempdir()).glob("ant_maze*")) <= before


def test_without_the_package_an_error_names_the_remedy():
    code = f"""
import sys
sys.modules["gymnasium_robotics"] = None
from hurl.envs import make_env
make_env({MAZE!r})
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: hurl/PointMaze-v0 needs Gymnasium-Robotics" in result.stderr
    assert "hurl-rl[robotics]" in result.stderr
