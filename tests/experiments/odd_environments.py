"""Environments that share their spaces: one pays an infinite reward, one ends the process, one pays what is done."""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Odd(gym.Env):
    """Shows the time, for 120 steps.

    :param pay: the reward as a function of time and action
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
        return np.full(1, self.time, np.float32), self.pay(self.time, action), False, self.time == 120, {}


gym.register("Priceless-v0", entry_point=Odd, kwargs={"pay": lambda time, action: np.inf if time == 100 else 0.0})
gym.register("Quitting-v0", entry_point=Odd, kwargs={"pay": lambda time, action: sys.exit(0)})
gym.register("Paying-v0", entry_point=Odd, kwargs={"pay": lambda time, action: float(action[0])})
