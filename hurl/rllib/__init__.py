"""Guidance for RLlib: rewards reshaped in the learner, γ̃ wherever an algorithm discounts."""

from hurl.names import install_extra

try:
    import ray.rllib  # noqa: F401
except ImportError as error:
    raise ImportError(f"hurl.rllib needs Ray with RLlib ({error}): {install_extra('rllib')}") from error

from hurl.rllib.connector import ReshapeRewards
from hurl.rllib.guided import guided
from hurl.rllib.learner import GuidedLearner
from hurl.rllib.modules import ImpalaCNNModule, on_procgen
from hurl.rllib.vector_env import EnvPoolVectorEnv, on_envpool

__all__ = [
    "EnvPoolVectorEnv",
    "GuidedLearner",
    "ImpalaCNNModule",
    "ReshapeRewards",
    "guided",
    "on_envpool",
    "on_procgen",
]
