"""Heuristics written by hand, from what is known about a task. NumPy only, so that they cost nothing to import."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

GOAL_RADIUS = 0.01
FINGERTIP_TO_TARGET = slice(8, 11)
LONGEST_DISTANCE = 0.41  # the arm reaches 0.21 from the middle, the target is within 0.2
MOUNTAIN_CAR_GAMMA = 0.99
MOUNTAIN_CAR_STEPS = 120  # about what a good policy takes from the valley to the goal


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


def sparse_reacher_reversed(observations: Floats) -> Floats:
    """The engineered heuristic of Sparse-Reacher, mirrored in the middle of its range: it praises distance.

        −(1 + 100·d) − h(s), d the longest distance there is

    :param observations: of Reacher-v4, shape (n, 11)
    :return: shape (n,), in the floating type of `observations`
    """
    return np.asarray(-(1 + 100 * LONGEST_DISTANCE) - sparse_reacher(observations))


def mountain_car(observations: Floats) -> Floats:
    """A guess of the discounted return of MountainCar-v0, by the energy that the car lacks to be at the goal.

        E(x, v) = v²/2 + 0.0025/3·sin 3x,   n(s) = N·(E_goal − E)/(E_goal − E_valley), cut off at 0 and N
        h(s) = −(1 − γⁿ)/(1 − γ)

    with γ = 0.99 and N = 120 steps from the valley to the goal.

    :param observations: position x and velocity v, shape (n, 2)
    :return: h, shape (n,), in the floating type of `observations`
    """
    position, velocity = observations[..., 0], observations[..., 1]
    # in units of 0.0025/3, so that the height of the valley is −1
    energy = velocity**2 / 2 * (3 / 0.0025) + np.sin(3 * position)
    goal = np.sin(3 * 0.5)
    steps = MOUNTAIN_CAR_STEPS * np.clip((goal - energy) / (goal + 1), 0, 1)
    return np.asarray(_pay_of_steps(steps), observations.dtype)


def mountain_car_reversed(observations: Floats) -> Floats:
    """The heuristic of MountainCar-v0, mirrored in the middle of its range: it praises standing in the valley.

    :param observations: position and velocity, shape (n, 2)
    :return: shape (n,), in the floating type of `observations`
    """
    return np.asarray(_pay_of_steps(MOUNTAIN_CAR_STEPS) - mountain_car(observations), observations.dtype)


def _pay_of_steps(steps: Any) -> Any:
    """Return the discounted sum of −1 over some steps, −(1 − γⁿ)/(1 − γ)."""
    return -(1 - MOUNTAIN_CAR_GAMMA**steps) / (1 - MOUNTAIN_CAR_GAMMA)
