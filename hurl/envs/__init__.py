"""Environments as Stable-Baselines3 takes them, from EnvPool or Gymnasium, the paper's Sparse-Reacher, a maze."""

from hurl.envs.make import find_wrapper, make_env, register_environments
from hurl.envs.pool import EnvPoolVecEnv
from hurl.envs.procgen import PROCGEN_GAMES, procgen_id
from hurl.envs.sparse_reacher import SparseReacherEnv, SparseReacherVecEnv
from hurl.heuristics.engineered import sparse_reward
from hurl.names import UnknownEnvironmentError

__all__ = [
    "PROCGEN_GAMES",
    "EnvPoolVecEnv",
    "SparseReacherEnv",
    "SparseReacherVecEnv",
    "UnknownEnvironmentError",
    "find_wrapper",
    "make_env",
    "procgen_id",
    "register_environments",
    "sparse_reward",
]

register_environments()
