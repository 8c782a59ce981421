"""A small walk whose every transition can be worked out by hand."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from hurl.sb3 import internals

GAMMA = 0.9
LENGTH = 7


class Walk(gym.Env):
    """Observations count up: (episode number, time). The reward is 10·episode + time.

    Odd episodes terminate after `LENGTH` steps, even ones are truncated there.
    """

    def __init__(self, action="box", observation="box"):
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if action == "box" else spaces.Discrete(2)
        self.dictionary = observation == "dict"
        box = spaces.Box(-1000, 1000, (2,), np.float32)
        self.observation_space = spaces.Dict({"walk": box, "sign": spaces.Discrete(2)}) if self.dictionary else box
        self.episode = -1

    def _observe(self):
        walk = np.array([self.episode, self.time], np.float32)
        return {"walk": walk, "sign": np.int64(self.time % 2)} if self.dictionary else walk

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        reward = float(10 * self.episode + self.time)
        self.time += 1
        over = self.time == LENGTH
        odd = self.episode % 2 == 1
        return self._observe(), reward, over and odd, over and not odd, {}


def heuristic(observations):
    """h(episode, time) = 100 − 3·time + episode."""
    if isinstance(observations, dict):
        assert observations["sign"].ndim == 1
        observations = observations["walk"]
    return 100 - 3 * observations[:, 1] + observations[:, 0]


class ByHand:
    """Equation (2) and potential-based shaping for the walk, one transition at a time."""

    def __init__(self, lambda_, shaping="hurl"):
        self.lambda_, self.shaping = lambda_, shaping
        self.discount = GAMMA if shaping == "pbrs" else lambda_ * GAMMA

    def terminated(self, episode, time):
        return time + 1 == LENGTH and episode % 2 == 1

    def reward(self, episode, time):
        following = 0.0 if self.terminated(episode, time) else 100 - 3 * (time + 1) + episode
        raw = 10 * episode + time
        if self.shaping == "hurl":
            return raw + (1 - self.lambda_) * GAMMA * following
        return raw + GAMMA * following - (100 - 3 * time + episode)


@pytest.fixture
def walk():
    """Make a vectorised walk; its environments walk in step."""

    def make(n_envs=1, **options):
        return DummyVecEnv([lambda: Walk(**options) for _ in range(n_envs)])

    return make


def leaves(model):
    """Return weights and optimiser states as flat arrays; random keys begin anew when SBX loads a model."""
    found = []
    internals.map_tensors(internals.read_state(model), lambda array: found.append(np.array(array)) or array)
    return [array for array in found if array.dtype != np.uint32]


def differ(first, second):
    return any(not np.array_equal(one, other) for one, other in zip(first, second, strict=True))
