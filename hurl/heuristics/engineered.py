"""Heuristics written by hand, from what is known about a task. NumPy only, so that they cost nothing to import."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

GOAL_RADIUS = 0.01
FINGERTIP_TO_TARGET = slice(8, 11)


def distance_to_target(observations: Floats) -> Floats:
    """‖fingertip − target‖ of Reacher-v4 observations, shape (..., 11): columns 8 to 10 are the difference."""
    return np.asarray(np.linalg.norm(observations[..., FINGERTIP_TO_TARGET], axis=-1))


# The reward is defined here and not in hurl.envs, which offers it too, because importing that room loads Gymnasium and
# Stable-Baselines3.
def sparse_reward(observations: Floats) -> Floats:
    """The reward of Sparse-Reacher, for any action taken in these states.

        r(s) = 0 if ‖fingertip − target‖ ≤ 0.01, else −1

    :param observations: of Reacher-v4, *before* the step, shape (..., 11)
    :return: r, shape (...), in the floating type of `observations`
    """
    distances = distance_to_target(observations)
    return np.where(distances <= GOAL_RADIUS, 0.0, -1.0).astype(distances.dtype)


def zero(observations: Floats) -> Floats:
    """h(s) = 0: guidance by it only shortens the horizon.

    :param observations: any, shape (n, …)
    :return: 0 for each, shape (n,)
    """
    return np.zeros(len(observations), np.float32)


def sparse_reacher(observations: Floats) -> Floats:
    """The paper's engineered heuristic for Sparse-Reacher.

        h(s) = r(s) − 100·‖fingertip − target‖, with r the sparse reward

    :param observations: of Reacher-v4, shape (n, 11)
    :return: h, shape (n,), in the floating type of `observations`
    """
    return np.asarray(sparse_reward(observations) - 100 * distance_to_target(observations))
