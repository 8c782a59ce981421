"""A heuristic for Pendulum-v1, the higher the better, and a policy."""

import numpy as np


def upright(observations):
    return 10 * observations[:, 0]


def push(observations):
    return np.ones((len(observations), 1))
