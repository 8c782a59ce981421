"""Heuristics from planning: relaxations bound V* from above, and shortest paths are V* of the problems they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from scipy import sparse

from hurl.tabular.mdp import FiniteMDP, mdp_from_gymnasium
from hurl.tabular.planning import (
    determinized,
    distances_to_goals,
    grid_values,
    relaxation_values,
    shortest_path_values,
)
from hurl.tabular.solve import optimal
from tests.tabular.strategies import mdps, seeds, thorough

REWARDS = [(0.0, 1.0), (-1.0, 0.0), (-0.5, 3.0), (0.01, 1.0)]


def grid_mdp(
    walls: NDArray[np.bool_], goals: list[tuple[int, int]], gamma: float, step_reward: float, goal_reward: float
) -> FiniteMDP:
    """A grid by plain loops: walls and edges are bumped into, goals are terminal."""
    rows, columns = walls.shape
    transitions, rewards = np.zeros((walls.size, 4, walls.size)), np.zeros((walls.size, 4))
    for row, column in np.ndindex(rows, columns):
        for action, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            there = (row + down, column + right)
            inside = 0 <= there[0] < rows and 0 <= there[1] < columns
            if (row, column) in goals or not inside or walls[there] or walls[row, column]:
                there = (row, column)
            transitions[row * columns + column, action, there[0] * columns + there[1]] = 1.0
            if (row, column) not in goals:
                rewards[row * columns + column, action] = step_reward + goal_reward * (there in goals)
    return FiniteMDP(transitions, rewards, gamma, np.full(walls.size, 1.0 / walls.size))


def random_grid(seed: int) -> tuple[NDArray[np.bool_], list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    walls = rng.random((5, 7)) < 0.35
    free = np.argwhere(~walls)
    goals = [(int(row), int(column)) for row, column in free[rng.permutation(len(free))[:2]]]
    return walls, goals


def deterministic(mdp: FiniteMDP, rng: np.random.Generator) -> FiniteMDP:
    following = rng.integers(mdp.n_states, size=mdp.rewards.shape)
    return FiniteMDP(np.eye(mdp.n_states)[following], mdp.rewards, mdp.gamma, mdp.initial)


@thorough
@given(mdps())
def test_a_relaxation_is_an_upper_bound(mdp: FiniteMDP) -> None:
    best = optimal(mdp).values
    assert (relaxation_values(mdp) >= best - 1e-9 * max(1.0, np.abs(best).max())).all()


@thorough
@given(mdps())
def test_a_relaxation_is_what_the_best_outcome_is_worth(mdp: FiniteMDP) -> None:
    values = relaxation_values(mdp)
    matrix = mdp.matrix.toarray() if mdp.is_sparse else mdp.matrix
    outcomes = np.where(matrix > 0, values, -np.inf).max(axis=1).reshape(mdp.rewards.shape)
    expected = (mdp.rewards + mdp.gamma * outcomes).max(axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-8)


@thorough
@given(mdps(), seeds())
def test_a_deterministic_mdp_is_its_own_relaxation(mdp: FiniteMDP, rng: np.random.Generator) -> None:
    mdp = deterministic(mdp, rng)
    np.testing.assert_allclose(relaxation_values(mdp), optimal(mdp).values, rtol=1e-8, atol=1e-8)


def test_a_relaxation_is_above_v_star_where_chance_matters() -> None:
    # A gamble on the second state, which pays 1 for ever: the relaxation always wins it.
    transitions = [[[0.9, 0.1, 0.0]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]]
    mdp = FiniteMDP(transitions, [[0.0], [1.0], [0.0]], 0.5, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(relaxation_values(mdp), [1.0, 2.0, 0.0])
    assert optimal(mdp).values[0] < 0.2


def test_the_determinised_mdp_moves_to_every_possible_successor() -> None:
    transitions = np.array([[[0.5, 0.5, 0.0], [0.0, 0.2, 0.8]], [[0.0, 1.0, 0.0]] * 2, [[0.0, 0.0, 1.0]] * 2])
    rewards = np.array([[1.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    for mdp in (
        FiniteMDP(transitions, rewards, 0.9, [1.0, 0.0, 0.0]),
        FiniteMDP([sparse.csr_array(transitions[:, a]) for a in range(2)], rewards, 0.9, [1.0, 0.0, 0.0]),
    ):
        relaxed = determinized(mdp)
        assert relaxed.n_actions == 3
        np.testing.assert_array_equal(relaxed.matrix.toarray()[:3], np.eye(3))
        # State 1 is reached by either action: the better one counts.
        np.testing.assert_array_equal(relaxed.rewards[0], [1.0, 3.0, 3.0])
        assert (relaxed.matrix.toarray()[3:6] == [0.0, 1.0, 0.0]).all()


@pytest.mark.parametrize(("step_reward", "goal_reward"), REWARDS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gamma", [0.0, 0.6, 0.98])
def test_shortest_paths_are_optimal_in_grids(seed: int, gamma: float, step_reward: float, goal_reward: float) -> None:
    walls, goals = random_grid(seed)
    mdp = grid_mdp(walls, goals, gamma, step_reward, goal_reward)
    best = optimal(mdp).values
    rewards = {"step_reward": step_reward, "goal_reward": goal_reward}
    np.testing.assert_allclose(grid_values(walls, goals, gamma=gamma, **rewards).ravel(), best, atol=1e-9)
    states = [row * walls.shape[1] + column for row, column in goals]
    np.testing.assert_allclose(shortest_path_values(mdp, states, **rewards), best, atol=1e-9)


def test_states_that_cannot_reach_a_goal_are_worth_the_steps_for_ever() -> None:
    walls = np.array([[0, 0, 1, 0], [0, 0, 1, 0]], bool)
    values = grid_values(walls, [(0, 0)], gamma=0.5, step_reward=-1.0, goal_reward=10.0)
    np.testing.assert_allclose(values, [[0.0, 9.0, -2.0, -2.0], [9.0, 3.5, -2.0, -2.0]])
    assert (grid_values(walls, [(0, 0)], gamma=0.5)[:, 2:] == 0.0).all()


def test_distances_are_to_the_nearest_goal_and_follow_the_arrows() -> None:
    # 0 → 1 → 2 → 3 → 3, so that nothing leads back.
    mdp = FiniteMDP(np.eye(4)[[[1], [2], [3], [3]]], np.zeros((4, 1)), 0.9, np.full(4, 0.25))
    np.testing.assert_array_equal(distances_to_goals(mdp, [3]), [3, 2, 1, 0])
    np.testing.assert_array_equal(distances_to_goals(mdp, [1, 3]), [1, 0, 1, 0])
    np.testing.assert_array_equal(distances_to_goals(mdp, [0]), [0, np.inf, np.inf, np.inf])


def test_the_shortest_path_is_optimal_in_cliff_walking() -> None:
    mdp = mdp_from_gymnasium("CliffWalking-v1", 0.95)
    values = shortest_path_values(mdp, [mdp.n_states - 1], step_reward=-1.0, goal_reward=0.0)
    np.testing.assert_allclose(values, optimal(mdp).values, atol=1e-9)


@pytest.mark.parametrize("size", ["4x4", "8x8"])
def test_a_lake_without_slips_is_a_relaxation_of_the_frozen_lake(size: str) -> None:
    import gymnasium as gym

    env: Any = gym.make("FrozenLake-v1", map_name=size).unwrapped
    cells = env.desc.astype(str)
    values = grid_values(cells == "H", [tuple(np.argwhere(cells == "G")[0])], gamma=0.95).ravel()
    best = optimal(mdp_from_gymnasium("FrozenLake-v1", 0.95, map_name=size)).values[:-1]
    sure = optimal(mdp_from_gymnasium("FrozenLake-v1", 0.95, map_name=size, is_slippery=False)).values[:-1]
    np.testing.assert_allclose(values, sure, atol=1e-9)
    assert (values >= best - 1e-9).all()
    # The terms of a good heuristic: it orders the states much as V* does.
    assert np.corrcoef(values[best > 0], best[best > 0])[0, 1] > 0.7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid_values([True], [(0, 0)], gamma=0.5), r"shape \(rows, columns\), got \(1,\)"),
        (lambda: grid_values(np.zeros((2, 2)), [(0, 2)], gamma=0.5), r"shape \(2, 2\), got \(0, 2\)"),
        (lambda: grid_values(np.eye(2), [(0, 0)], gamma=0.5), r"the goal \(0, 0\) is a wall"),
        (lambda: grid_values(np.zeros((2, 2)), [], gamma=0.5), "at least one goal"),
        (lambda: grid_values(np.zeros((2, 2)), [(0, 0)], gamma=1.0), r"gamma must lie in \[0, 1\), got 1.0"),
        (
            lambda: grid_values(np.zeros((2, 2)), [(0, 0)], gamma=0.5, step_reward=2.0),
            "goal_reward=1.0, step_reward=2.0, gamma=0.5",
        ),
        (
            lambda: distances_to_goals(FiniteMDP(np.ones((1, 1, 1)), np.zeros((1, 1)), 0.9, [1.0]), [1]),
            "goals must lie in 0…0, got 1",
        ),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
