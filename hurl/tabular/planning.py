"""Heuristics from planning: the value of an easier problem, in which the agent chooses what chance would decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from hurl.discounting import check_gamma
from hurl.tabular.mdp import FiniteMDP, Floats, check_indices
from hurl.tabular.solve import optimal


def determinized(mdp: FiniteMDP) -> FiniteMDP:
    """Return the all-outcomes determinisation: in s, the agent moves to any s' that some action can lead to.

        r'(s, s') = max_a r(s, a)   over the actions with P(s' | s, a) > 0

    Action k is the move to the k-th of the successors of s; states with fewer successors repeat their last. Its optimal
    values are at least V*, as the best outcome of an action is no worse than the expected one; they equal V* where
    the MDP is deterministic already. Rewards belong to pairs here: one that depends on the outcome is in r(s, a) as its
    mean, and can be taken time and again by choosing to stay, so that in such MDPs (`FrozenLake-v1`) the bound is
    loose and `grid_values` or `shortest_path_values` serve better. Source: Yoon et al. (2007), FF-Replan.
    """
    starts, successors, rewards = _moves(mdp)
    degrees = np.bincount(starts, minlength=mdp.n_states)
    first = np.cumsum(degrees) - degrees
    states = np.arange(mdp.n_states)
    chosen = [first + np.minimum(rank, degrees - 1) for rank in range(degrees.max())]
    transitions = [
        sparse.csr_array((np.ones(states.size), (states, successors[moves])), shape=(states.size, states.size))
        for moves in chosen
    ]
    return FiniteMDP(transitions, np.stack([rewards[moves] for moves in chosen], axis=1), mdp.gamma, mdp.initial)


def relaxation_values(mdp: FiniteMDP) -> Floats:
    """Return the optimal values of the determinised MDP, shape (S,): an upper bound of V* that planning finds easily.

    See `determinized`.
    """
    return optimal(determinized(mdp)).values


def distances_to_goals(mdp: FiniteMDP, goals: Iterable[int]) -> Floats:
    """Return d(s), the fewest steps from s to a goal with the best of luck, shape (S,); ∞ where none can be reached.

    :param goals: states, at least one
    """
    starts, successors, _ = _moves(mdp)
    graph = sparse.csr_array((np.ones(starts.size), (starts, successors)), shape=(mdp.n_states, mdp.n_states))
    return _distances(graph, np.fromiter(goals, np.int64))


def shortest_path_values(
    mdp: FiniteMDP, goals: Iterable[int], *, step_reward: float = 0.0, goal_reward: float = 1.0
) -> Floats:
    """Turn shortest paths to the goals into discounted values, shape (S,).

    Each step pays c, the one that reaches a goal g more, and a goal is worth nothing once it is reached:

        V(s) = c·(1 − γ^d)/(1 − γ) + g·γ^(d − 1)   at d = d(s) ≥ 1 steps        V(goal) = 0

    and V(s) = c/(1 − γ) where no goal can be reached. With c = 0 and g = 1 this is γ^(d − 1), with c = −1 and g = 0 the
    discounted number of steps. It is V* of a deterministic MDP that pays so. Only its γ and which transitions are
    possible are read from the MDP.

    :param goals: states, at least one
    :param step_reward: c
    :param goal_reward: g ≥ c·γ/(1 − γ), so that no goal is worth avoiding
    """
    return _discounted(distances_to_goals(mdp, goals), mdp.gamma, step_reward, goal_reward)


def grid_values(
    walls: ArrayLike,
    goals: Iterable[tuple[int, int]],
    *,
    gamma: float,
    step_reward: float = 0.0,
    goal_reward: float = 1.0,
) -> Floats:
    """Return the values of shortest paths in a grid, in its shape, with moves to the four neighbours.

    See `shortest_path_values` for the equation. Nothing reaches a goal from within a wall.

    :param walls: whether each cell is a wall, shape (rows, columns)
    :param goals: cells as (row, column), none of them a wall
    :param gamma: γ ∈ [0, 1)
    :param step_reward: c
    :param goal_reward: g
    """
    walls = np.asarray(walls, bool)
    if walls.ndim != 2:
        raise ValueError(f"walls must have shape (rows, columns), got {walls.shape}")
    check_gamma(gamma)
    cells = [_cell(walls, goal) for goal in goals]
    distances = _distances(_grid_graph(walls), np.array(cells, np.int64))
    return _discounted(distances, gamma, step_reward, goal_reward).reshape(walls.shape)


def _moves(mdp: FiniteMDP) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return s, s' and the best reward of an action that may lead from one to the other; ordered by s, then s'."""
    matrix = sparse.coo_array(mdp.matrix)
    possible = matrix.data > 0
    pairs, successors = matrix.coords[0][possible].astype(np.int64), matrix.coords[1][possible].astype(np.int64)
    edges, edge = np.unique(pairs // mdp.n_actions * mdp.n_states + successors, return_inverse=True)
    rewards = np.full(edges.size, -np.inf)
    np.maximum.at(rewards, edge, mdp.rewards.ravel()[pairs])
    return edges // mdp.n_states, edges % mdp.n_states, rewards


def _distances(graph: sparse.csr_array, goals: NDArray[np.int64]) -> Floats:
    """Return the fewest edges from each vertex to a goal."""
    if not goals.size:
        raise ValueError("there must be at least one goal")
    check_indices("goals", goals, graph.shape[0])
    backwards: Any = graph.T.tocsr()
    return np.asarray(dijkstra(backwards, indices=goals, unweighted=True, min_only=True), np.float64)


def _discounted(distances: Floats, gamma: float, step_reward: float, goal_reward: float) -> Floats:
    if not goal_reward >= step_reward * gamma / (1.0 - gamma):
        raise ValueError(
            f"goal_reward must be at least step_reward·γ/(1 − γ), else no goal is worth reaching: got "
            f"goal_reward={goal_reward!r}, step_reward={step_reward!r}, gamma={gamma!r}"
        )
    arrives = np.power(gamma, np.maximum(distances - 1.0, 0.0))
    values = step_reward * (1.0 - gamma * arrives) / (1.0 - gamma) + goal_reward * arrives
    return np.where(distances == 0.0, 0.0, values)


def _grid_graph(walls: NDArray[np.bool_]) -> sparse.csr_array:
    """Join every two neighbouring cells that are no walls, both ways."""
    numbers = np.arange(walls.size).reshape(walls.shape)
    below, right = ~walls[:-1] & ~walls[1:], ~walls[:, :-1] & ~walls[:, 1:]
    one = np.concatenate([numbers[:-1][below], numbers[:, :-1][right]])
    other = np.concatenate([numbers[1:][below], numbers[:, 1:][right]])
    ends = np.concatenate([one, other]), np.concatenate([other, one])
    return sparse.csr_array((np.ones(2 * one.size), ends), shape=(walls.size, walls.size))


def _cell(walls: NDArray[np.bool_], goal: tuple[int, int]) -> int:
    row, column = goal
    if not (0 <= row < walls.shape[0] and 0 <= column < walls.shape[1]):
        raise ValueError(f"goals must lie in a grid of shape {walls.shape}, got {goal!r}")
    if walls[row, column]:
        raise ValueError(f"the goal {goal!r} is a wall")
    return int(row * walls.shape[1] + column)
