"""On-policy guidance is a rollout buffer: what the environments pay is watched, and reshaped as it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, VecTransposeImage

from hurl.guidance import Guidance, Observations


class Arrivals:
    """Lets a guidance observe the transitions of environments, which it changes nothing of.

    For a while it takes their `reset` and `step_wait`: a wrapper among wrappers would be met by callbacks that compare
    theirs with those of other environments. Where there is `VecNormalize` the environments are those beneath it, whose
    observations and rewards are raw. One step is observed for each that is stored: others are a callback's.

    :param buffer: where the transitions are stored
    :param normalization: the `VecNormalize` that the environments stand beneath, if any
    :param observations: what the environments show at present
    :param arrange: turns observations, or a single one, into what the heuristic is to see
    """

    def __init__(
        self,
        env: VecEnv,
        guidance: Guidance,
        buffer: RolloutBuffer,
        normalization: VecNormalize | None,
        observations: Any,
        arrange: Callable[[Any], Any],
    ) -> None:
        self.env, self.guidance, self.normalization, self.arrange = env, guidance, normalization, arrange
        self.buffer, self._observed = buffer, -1  # the place of the newest step that was observed
        self.observations: Observations = arrange(observations)
        self._reset, self._step_wait = env.reset, env.step_wait

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe what arrives, for a while."""
        before = vars(self.env).copy()
        vars(self.env).update(reset=self.reset, step_wait=self.step_wait)
        try:
            yield
        finally:
            for name in ("reset", "step_wait"):
                del vars(self.env)[name]
                vars(self.env).update({name: before[name]} if name in before else {})

    def reset(self) -> Any:
        """Reset the environments."""
        shown = self._reset()
        self.observations = self.arrange(shown)
        self.guidance.abandon_episodes(in_turn=True)
        return shown

    def step_wait(self) -> tuple[Any, NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        """Finish the step, calling the heuristic once."""
        if self.buffer.pos == self._observed:
            if self.guidance.turns is not None:
                self.guidance.turns.miss()
            return self._step_wait()
        self._observed = self.buffer.pos
        shown, self.rewards, dones, infos = self._step_wait()
        following = self.arrange(shown)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos], dtype=bool)
        self.terms = self.guidance.observe(
            self.observations, self._with_terminal(following, dones, infos), self.rewards, dones & ~truncated, truncated
        )
        self.observations = following
        return shown, self.rewards.copy(), dones, infos

    def _with_terminal(self, following: Any, dones: NDArray[Any], infos: list[dict[str, Any]]) -> Any:
        """Put in, where an episode ended, its last observation for the first one of the next."""
        if not dones.any():
            return following
        following = deepcopy(following)
        for index in np.flatnonzero(dones):
            terminal = infos[index].get("terminal_observation")
            if terminal is None:
                continue
            terminal = self.arrange(terminal)
            if isinstance(following, dict):
                for key in following:
                    following[key][index] = terminal[key]
            else:
                following[index] = terminal
        return following

    def reshape(self, rewards: NDArray[Any]) -> NDArray[Any]:
        """Return what is paid for the newest step, reshaped.

            r̃ = r + (1−λ)·term                        as it is
            r + n(r₀ + (1−λ)·term) − n(r₀)            where `VecNormalize` normalises raw rewards r₀ by n

        :param rewards: r, as wrappers and the bootstrap at time limits have left them
        """
        if self.normalization is None:
            return self.guidance.reshape(rewards, self.terms)
        reshaped, normalize = self.guidance.reshape(self.rewards, self.terms), self.normalization.normalize_reward
        if reshaped is self.rewards:
            return rewards
        normalized: NDArray[Any] = rewards + (normalize(reshaped) - normalize(self.rewards))
        return normalized


@contextmanager
def guided_rollout(
    env: VecEnv, guidance: Guidance, normalization: VecNormalize | None, shown: Any, buffer: RolloutBuffer
) -> Iterator[None]:
    """Guide a rollout: a guidance observes what arrives, which is reshaped as the buffer stores it.

    :param normalization: the `VecNormalize` among the wrappers of `env`, if any
    :param shown: the observations that `env` shows at present
    :param buffer: guided for a while, in place, and after it the plain one again
    """
    if normalization is None:
        arrivals = Arrivals(env, guidance, buffer, None, shown, lambda observations: observations)
    else:
        raw = normalization.get_original_obs()
        arrivals = Arrivals(normalization.venv, guidance, buffer, normalization, raw, _transposing(env))
    with arrivals.watching(), _guided_buffer(buffer, arrivals):
        yield


def _transposing(env: VecEnv) -> Callable[[Any], Any]:
    """Return what puts the channels of images first where a wrapper above `VecNormalize` does."""
    while isinstance(env, VecEnvWrapper) and not isinstance(env, VecNormalize):
        if isinstance(env, VecTransposeImage):
            return env.transpose_observations
        env = env.venv
    return lambda observations: observations


class GuidedRolloutBuffer(RolloutBuffer):
    """What guidance adds to a rollout buffer, whichever it is: rewards are stored as r̃, and discounted by γ̃."""

    arrivals: Arrivals

    @property
    def gamma(self) -> float:  # type: ignore[override]
        """γ̃ of the iteration that the rollout completes."""
        return self.arrivals.guidance.discount

    def add(self, obs: Any, action: Any, reward: NDArray[Any], *args: Any, **kwargs: Any) -> None:
        """Store a step of each environment, its reward reshaped."""
        super().add(obs, action, self.arrivals.reshape(reward), *args, **kwargs)


@contextmanager
def _guided_buffer(buffer: Any, arrivals: Arrivals) -> Iterator[None]:
    plain: type[RolloutBuffer] = type(buffer)
    buffer.__class__, buffer.arrivals = _guided(plain), arrivals
    try:
        yield
    finally:
        buffer.__class__ = plain
        buffer.gamma = arrivals.guidance.discount  # which its advantages are discounted with
        del buffer.arrivals


@cache
def _guided(buffer_class: type[RolloutBuffer]) -> type[GuidedRolloutBuffer]:
    name = f"Guided{buffer_class.__name__}"
    return type(name, (GuidedRolloutBuffer, buffer_class), {"__module__": __name__})
