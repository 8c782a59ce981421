"""Wrappers and callbacks as a user would write them."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformReward
from stable_baselines3.common.callbacks import BaseCallback


class Scale(gym.ObservationWrapper):
    """Multiplies observations."""

    def __init__(self, env, factor=10.0):
        super().__init__(env)
        space = env.observation_space
        self.factor = factor
        self.observation_space = gym.spaces.Box(space.low * factor, space.high * factor, dtype=np.float32)

    def observation(self, observation):
        return (observation * self.factor).astype(np.float32)


def paying(env, bonus):
    """Pays more."""
    return TransformReward(env, lambda reward: reward + bonus)


def forgetful(env):
    """Returns nothing."""


class Counting(BaseCallback):
    """Writes down what it is called for."""

    calls: ClassVar[list[str]] = []

    def _on_training_start(self):
        self.calls.append(f"start {self.num_timesteps}")

    def _on_training_end(self):
        self.calls.append(f"end {self.num_timesteps}")

    def _on_step(self):
        return True


class Stopping(BaseCallback):
    """Ends the run after some steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def _on_step(self):
        return self.num_timesteps < self.steps


def as_images(env):
    """Shows grey squares."""
    space = gym.spaces.Box(0, 255, (1, 40, 40), np.uint8)
    return gym.wrappers.TransformObservation(env, lambda observation: np.zeros(space.shape, np.uint8), space)
