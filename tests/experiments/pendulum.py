"""A heuristic for Pendulum-v1, the higher the better, and a policy."""

import numpy as np

factor = 10.0  # which tests may change


def upright(observations):
    return factor * observations[:, 0]


def push(observations):
    return np.ones((len(observations), 1))
