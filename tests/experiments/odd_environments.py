"""Environments that misbehave: one pays an infinite reward late in an episode, one ends the process."""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Odd(gym.Env):
    """Shows the time, for 120 steps.

    :param pay: the reward as a function of the time
    """

    observation_space = Box(0, 120, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, pay, render_mode=None):
        self.pay = pay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time, np.float32), self.pay(self.time), False, self.time == 120, {}


gym.register("Priceless-v0", entry_point=Odd, kwargs={"pay": lambda time: np.inf if time == 100 else 0.0})
gym.register("Quitting-v0", entry_point=Odd, kwargs={"pay": lambda time: sys.exit(0)})
