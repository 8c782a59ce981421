"""The paper's Sparse-Reacher: Reacher-v4 with a reward that is 0 at the goal and −1 elsewhere, for 500 steps."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.envs.mujoco.reacher_v4 import ReacherEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from hurl.envs.pool import Array, EnvPoolVecEnv
from hurl.heuristics.engineered import sparse_reward

SPARSE_REACHER_ID = "hurl/SparseReacher-v0"
HORIZON = 500


class SparseReacherEnv(ReacherEnv):
    """Reacher-v4 in Gymnasium, paid by `sparse_reward` of the state before each step; it never terminates."""

    def step(
        self, a: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], np.float64, bool, bool, dict[str, np.float64]]:
        """Take one step of Reacher-v4."""
        reward = np.float64(sparse_reward(self._get_obs()))  # type: ignore[no-untyped-call]
        observation, _, terminated, truncated, info = super().step(a)  # type: ignore[no-untyped-call]
        return observation, reward, terminated, truncated, info


class SparseReacherVecEnv(EnvPoolVecEnv):
    """EnvPool's Reacher-v4, paid by `sparse_reward` of the states before each step; it never terminates.

    The parameters are those of `EnvPoolVecEnv`.
    """

    def __init__(self, n_envs: int, *, max_episode_steps: int | None = None, **options: Any) -> None:
        horizon = HORIZON if max_episode_steps is None else max_episode_steps
        super().__init__("Reacher-v4", n_envs, max_episode_steps=horizon, **options)

    def reset(self) -> Array:
        """Reset every environment."""
        observations = super().reset()
        self._next_rewards = sparse_reward(observations)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Step every environment, and reset those whose episode ended."""
        observations, _, dones, infos = super().step_wait()
        rewards = self._next_rewards
        # Computed at once, so that a caller who changes the observations in place changes no reward.
        self._next_rewards = sparse_reward(np.asarray(observations))
        return observations, rewards, dones, infos
