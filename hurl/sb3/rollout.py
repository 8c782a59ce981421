"""On-policy guidance is an environment whose rewards are reshaped on their way into the rollout buffer."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from hurl.guidance import Guidance, Observations

__all__ = ["ReshapingVecEnv"]


class ReshapingVecEnv(VecEnvWrapper):
    """A vectorised environment that pays r̃ at the guidance's present λ, calling the heuristic once a step.

    The heuristic sees raw observations. Under `VecNormalize`, rewards are reshaped first and normalised then, by
    the statistics that `VecNormalize` keeps of the original rewards.

    :param normalization: the `VecNormalize` among the wrappers of `venv`, if any
    :param rollout_steps: steps of the rollout, over all environments: λ is that of the iteration which it completes
    :param begin: called before the first step, when the guidance has moved to that iteration; returns the raw
        observations that the environments show. Callbacks at a rollout's start still see the iteration before.
    """

    def __init__(
        self,
        venv: VecEnv,
        guidance: Guidance,
        normalization: VecNormalize | None,
        rollout_steps: int,
        begin: Callable[[], Observations],
    ) -> None:
        super().__init__(venv)
        self.guidance = guidance
        self.normalization = normalization
        self.steps_left = rollout_steps
        self.begin = begin
        self.observations: Observations | None = None

    def step_async(self, actions: NDArray[Any]) -> None:
        """Begin the step."""
        if self.observations is None:
            self.guidance.advance(0, look_ahead=self.steps_left)
            self.observations = self.begin()
        self.venv.step_async(actions)

    def reset(self) -> Any:
        """Reset the environments."""
        shown = self.venv.reset()
        self.observations = self._raw(shown)
        return shown

    def step_wait(self) -> tuple[Any, NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        """Finish the step; the rewards are those of the reshaped MDP."""
        shown, rewards, dones, infos = self.venv.step_wait()
        following = self._raw(shown)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos], dtype=bool)
        assert self.observations is not None
        terms = self.guidance.arriving_terms(
            self.observations, self._with_terminal(following, dones, infos), dones.astype(bool) & ~truncated
        )
        self.observations = following
        self.steps_left -= self.num_envs
        self.guidance.advance(self.num_envs, look_ahead=self.steps_left)
        if self.normalization is not None:
            rewards = self.normalization.get_original_reward()
        rewards = self.guidance.reshape(rewards, terms)
        if self.normalization is not None:
            rewards = self.normalization.normalize_reward(rewards)
        return shown, rewards, dones, infos

    def _raw(self, shown: Any) -> Observations:
        """Return the observations as the environment gave them."""
        raw: Observations = shown if self.normalization is None else self.normalization.get_original_obs()
        return raw

    def _with_terminal(self, following: Any, dones: NDArray[Any], infos: list[dict[str, Any]]) -> Observations:
        """Put in, where an episode ended, its last observation for the first one of the next."""
        if not dones.any():
            observations: Observations = following
            return observations
        following = deepcopy(following)
        for index in np.flatnonzero(dones):
            terminal = infos[index].get("terminal_observation")
            if terminal is None:
                continue
            if self.normalization is not None:
                terminal = self.normalization.unnormalize_obs(terminal)
            if isinstance(following, dict):
                for key in following:
                    following[key][index] = terminal[key]
            else:
                following[index] = terminal
        raw: Observations = following
        return raw
