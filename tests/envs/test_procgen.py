"""Procgen through EnvPool: every game, its layout, how its episodes end, and what it needs of the system."""

import subprocess
import sys

import envpool
import numpy as np
import pytest
from gymnasium import spaces

from hurl.envs import make_env
from hurl.envs.procgen import PROCGEN_GAMES, procgen_id

STAY = 4  # the action that presses no key
ALL_IDS = [procgen_id(game, difficulty) for game in PROCGEN_GAMES for difficulty in ("easy", "hard")]


def test_the_games_are_all_that_envpool_has():
    listed = {name for name in envpool.list_all_envs() if name.endswith(("Easy-v0", "Hard-v0"))}
    assert set(ALL_IDS) == listed
    assert len(listed) == 32


@pytest.mark.parametrize("env_id", ALL_IDS)
def test_every_game_can_be_played(env_id):
    environments = make_env(env_id, 2, seed=1)
    assert environments.observation_space == spaces.Box(0, 255, (3, 64, 64), np.uint8)
    assert environments.action_space == spaces.Discrete(15)
    first = environments.reset()
    assert not np.array_equal(first[0], first[1])  # two levels
    for action in range(15):
        observations, rewards, *_ = environments.step(np.full(2, action))
        assert observations.dtype == np.uint8
        assert observations.shape == (2, 3, 64, 64)
        assert np.isfinite(rewards).all()
    assert not np.array_equal(observations[0], first[0])


def test_easy_and_hard_are_different_tasks():
    easy, hard = (make_env(procgen_id("maze", difficulty), 8, seed=1).reset() for difficulty in ("easy", "hard"))
    assert not np.array_equal(easy, hard)


def test_colours_come_first():
    first = make_env("CoinrunEasy-v0", 2, seed=1).reset()
    last = make_env("CoinrunEasy-v0", 2, seed=1, channel_first=False).reset()
    assert last.shape == (2, 64, 64, 3)
    np.testing.assert_array_equal(first, np.moveaxis(last, -1, 1))


def test_the_end_of_a_level_is_terminal_and_shows_that_level():
    environments = make_env("StarpilotEasy-v0", 4, seed=3)
    observations = environments.reset()
    ends = 0
    for _ in range(150):
        before = observations.astype(float)
        observations, _, dones, infos = environments.step(np.full(4, STAY))
        for index in np.flatnonzero(dones):
            last = infos[index]["terminal_observation"]
            assert not infos[index]["TimeLimit.truncated"]
            assert np.abs(last - before[index]).mean() < 0.5 * np.abs(last - observations[index].astype(float)).mean()
            ends += 1
    assert ends >= 4


def test_the_games_clock_is_a_truncation():
    environments = make_env("MazeEasy-v0", 1, seed=0)
    first = environments.reset()
    for _ in range(499):
        observations, _, dones, infos = environments.step(np.array([STAY]))
        assert not dones[0]
    observations, _, dones, infos = environments.step(np.array([STAY]))
    assert dones[0]
    assert infos[0]["TimeLimit.truncated"]
    np.testing.assert_array_equal(infos[0]["terminal_observation"], first[0])
    assert not np.array_equal(observations, first)


def test_names_and_limits_that_do_not_exist():
    with pytest.raises(ValueError, match=r"no game 'coin': take one of bigfish, .* coinrun, .* starpilot"):
        procgen_id("coin")
    with pytest.raises(ValueError, match="difficulty must be one of easy, hard, not 'Easy'"):
        procgen_id("coinrun", "Easy")
    with pytest.raises(ValueError, match=r"limit of CoinrunEasy-v0 is the game's own: leave max_episode_steps=20 out"):
        make_env("CoinrunEasy-v0", max_episode_steps=20)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_without_the_package_the_systems_qt_serves_or_an_error_names_the_remedy():
    of_the_system = python("import ctypes; ctypes.CDLL('libQt5Gui.so.5')").returncode == 0
    finished = python(
        "import sys; sys.modules['PyQt5'] = None; from hurl.envs import make_env\n"
        "print(make_env('CartPole-v1').reset().shape, flush=True)\n"
        "make_env('CoinrunEasy-v0')"
    )
    assert finished.stdout == "(1, 4)\n"
    assert (finished.returncode == 0) is of_the_system
    if of_the_system:
        return
    assert finished.stderr.splitlines()[-1] == (
        "ImportError: CoinrunEasy-v0 needs Qt 5's Core and Gui libraries, and there are none: "
        "pip install 'hurl-rl[rllib]'"
    )
