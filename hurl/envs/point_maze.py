"""Gymnasium-Robotics' point in a U-shaped maze, as an episodic task with a sparse reward, and a poor demonstrator."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from hurl.names import install_extra

try:
    from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv as Maze
except ImportError as error:
    raise ImportError(f"hurl/PointMaze-v0 needs Gymnasium-Robotics ({error}): {install_extra('robotics')}") from error

# 1 is a wall; r is where the ball begins and g where the goal is, the ends of the two arms.
U: list[list[int | str]] = [[1, 1, 1, 1, 1], [1, "r", 0, 0, 1], [1, 1, 1, 0, 1], [1, "g", 0, 0, 1], [1, 1, 1, 1, 1]]
SPEED = 2.3  # of the demonstrator; the ball's limit is 5 in each direction


class PointMazeEnv(gym.Env[NDArray[np.float64], NDArray[np.float32]]):
    """PointMaze_UMaze-v3 from one end of the U to the other; −1 is paid for each step that does not reach the goal.

    An observation is position, velocity and goal, two numbers each. The goal ends the episode and pays 0, so the return
    says how long it took. (Of the package's own reward, 1 at the goal, it would be the same for all who arrive, and an
    algorithm that is paid for entropy too had better not arrive.)

    :param maze_map: rows of cells: 1 is a wall, r a start, g a goal
    """

    metadata = Maze.metadata

    def __init__(self, maze_map: list[list[int | str]] = U, render_mode: str | None = None) -> None:
        self._maze = Maze(maze_map, render_mode, continuing_task=False)
        Path(self._maze.tmp_xml_file_path).unlink()  # read by now, and of no use to anyone
        self.render_mode = render_mode
        self.observation_space = Box(-np.inf, np.inf, (6,), np.float64)
        self.action_space = self._maze.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Put the ball and the goal somewhere into their cells."""
        super().reset(seed=seed)
        observation, info = self._maze.reset(seed=seed, options=options)
        return _flatten(observation), info

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Push the ball."""
        observation, reached, terminated, truncated, info = self._maze.step(action)
        return _flatten(observation), float(reached) - 1, terminated, truncated, info

    def render(self) -> Any:
        """Return a picture, or show it."""
        return self._maze.render()

    def close(self) -> None:
        """Close the windows."""
        self._maze.close()


def _flatten(observation: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([observation["observation"], observation["desired_goal"]])


def demonstrate(observations: NDArray[Any]) -> NDArray[np.float32]:
    """Push the ball around the U, at half the speed that it could have and with a trembling hand.

    Two of three demonstrations arrive within the time limit.
    """
    position, velocity, goal = np.split(observations, 3, axis=1)
    x, y = position.T
    in_the_goals_arm = np.abs(y - goal[:, 1]) < 0.5
    in_the_bend = x > 0.7
    # the corner of this arm, then that of the goal's, then the goal
    corner = np.where(in_the_bend, np.sign(goal[:, 1]), np.sign(y))
    target = np.where(in_the_goals_arm[:, None], goal, np.stack([np.ones_like(corner), corner], axis=1))
    way = target - position
    wanted = SPEED * way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 0.3)
    trembling = np.random.normal(size=way.shape)  # noqa: NPY002  the generator that `hurl collect` seeds
    return np.asarray(np.clip(0.3 * (wanted - velocity) + trembling, -1, 1), np.float32)
