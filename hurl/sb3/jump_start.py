"""`jump_started(Algorithm)`: Jump-Start Reinforcement Learning (Uchendu et al., 2022) around an off-policy algorithm.

A guide, here a policy cloned from data, acts in the first h steps of every training episode, and the learner in the
rest; h falls to 0 as the returns of both together allow.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

from hurl.jump_start import JumpStart
from hurl.sb3 import internals
from hurl.sb3.algorithms import DerivedClass, GuidedAlgorithm, with_keywords
from hurl.turns import FEWER_RESETS, LARGEST_CUT_OFF


class Curriculum:
    """For how many steps of an episode the guide acts, by what training episodes pay.

    In stage 0 the guide acts alone, until every environment has ended its share of one evaluation's episodes: their
    mean length is H, for which those that end first, the short ones, would be too few. (One that
    a reset cuts off counts if it was the longest so far: where resets come often, no long one ever ends.) From then on
    there is a moving average of the newest evaluations, and a stage ends with one that is close enough to the best
    before it.

    :param settings: the stages, and what is close enough
    """

    def __init__(self, settings: JumpStart) -> None:
        self.settings = settings
        self._stage = 0
        self._guide_length = 0.0
        self._guide_lengths: list[list[int]] = []  # of the guide's own episodes, by environment
        self._best: float | None = None
        self._evaluations: list[float] = []
        self._returns: list[float] = []  # of the episodes since the newest evaluation
        self._steps, self._cut_off = 0, 0  # of all environments, and of episodes that were abandoned
        self._elapsed: NDArray[np.int64] = np.zeros(0, np.int64)
        self._paid: NDArray[np.float64] = np.zeros(0)

    def abandon_episodes(self) -> None:
        """Forget the episodes that are under way: the environments begin new ones."""
        if self._stage == 0 and any(steps and not lengths for steps, lengths in self._under_way()):
            warnings.warn(
                f"no episode has ended in {self._elapsed.max()} steps of an environment, before it was reset, and a "
                f"jump start judges whole episodes: {FEWER_RESETS}",
                stacklevel=2,
            )
        self._cut_off += int(self._elapsed.sum())
        self._guide_lengths = self._lengths_if_abandoned()
        self._elapsed, self._paid = np.zeros(0, np.int64), np.zeros(0)

    @property
    def stage(self) -> int:
        """How many stages have begun."""
        return self._stage

    @property
    def horizon(self) -> float:
        """The steps at the beginning of an episode in which the guide acts, h."""
        stages = self.settings.stages
        return self._guide_length * (stages - self._stage) / stages if self._stage else np.inf

    def guided(self, environments: int) -> NDArray[np.bool_]:
        """Return in which environments the guide acts now, shape (environments,)."""
        if len(self._elapsed) != environments:
            self._elapsed, self._paid = np.zeros(environments, np.int64), np.zeros(environments)
        if len(self._guide_lengths) != environments:
            self._guide_lengths = [[] for _ in range(environments)]
        return self._elapsed < self.horizon

    def observe(self, rewards: NDArray[Any], dones: NDArray[Any]) -> None:
        """Take in a step of all environments: what it paid, and which episodes it ended; shape (environments,) each."""
        ended = dones.astype(bool)
        self._steps += len(ended)
        self._elapsed += 1
        self._paid += rewards
        if self._stage == 0:
            self._measure_guide(ended)
        else:
            self._returns = [*self._returns, *self._paid[ended].tolist()]
        self._elapsed[ended], self._paid[ended] = 0, 0.0
        if len(self._returns) >= self.settings.episodes:
            self._evaluate()
            self._returns = []

    def _measure_guide(self, ended: NDArray[np.bool_]) -> None:
        steps = zip(self._guide_lengths, self._elapsed.tolist(), ended, strict=True)
        self._guide_lengths = [[*lengths, elapsed] if done else lengths for lengths, elapsed, done in steps]
        count = -(-self.settings.episodes // len(ended))
        if min(map(len, self._guide_lengths)) < count:
            return
        self._guide_length = float(np.mean([lengths[:count] for lengths in self._guide_lengths]))
        self._stage = 1
        if self._cut_off > LARGEST_CUT_OFF * self._steps:
            warnings.warn(
                f"{self._cut_off / self._steps:.0%} of the guide's steps were in episodes that resets cut off, so "
                f"that its length is that of the short ones: {FEWER_RESETS}",
                stacklevel=2,
            )

    def _evaluate(self) -> None:
        self._evaluations = [*self._evaluations, float(np.mean(self._returns))][-self.settings.window :]
        if self._stage < self.settings.stages and len(self._evaluations) == self.settings.window:
            self._compare(float(np.mean(self._evaluations)))

    def _compare(self, average: float) -> None:
        if self._best is None:
            self._best = average
            return
        if average >= self._best - self.settings.tolerance * abs(self._best):
            self._stage += 1
        self._best = max(self._best, average)

    def _under_way(self) -> Iterable[tuple[int, list[int]]]:
        """Return the steps of each environment's present episode, and the lengths of those that it has ended."""
        steps = self._elapsed.tolist() or [0] * len(self._guide_lengths)
        return zip(steps, self._guide_lengths, strict=True)

    def _lengths_if_abandoned(self) -> list[list[int]]:
        """Return the lengths of the guide's episodes, with those under way that are longer than what has ended."""
        if self._stage > 0:
            return self._guide_lengths
        return [
            [*known, steps] if steps and steps >= max(known, default=0) else known for steps, known in self._under_way()
        ]

    _STATE = ("_stage", "_guide_length", "_guide_lengths", "_best", "_evaluations", "_returns", "_steps", "_cut_off")

    def state(self) -> dict[str, Any]:
        """Return how far it is; the episodes that are under way count as abandoned."""
        state = {name.removeprefix("_"): getattr(self, name) for name in self._STATE}
        cut_off = self._cut_off + int(self._elapsed.sum())
        return state | {"cut_off": cut_off, "guide_lengths": self._lengths_if_abandoned()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; the environments begin new episodes."""
        self.abandon_episodes()
        state = {"cut_off": 0, "guide_lengths": []} | dict(state)  # not in earlier checkpoints
        for name in self._STATE:
            setattr(self, name, state[name.removeprefix("_")])


class JumpStarted(OffPolicyAlgorithm, metaclass=DerivedClass):
    """What a jump start adds to an algorithm with a replay buffer: who acts in training, and nothing else."""

    guide: BasePolicy | None = None
    curriculum: Curriculum | None = None
    jump_start_state: dict[str, Any] | None = None

    def __init__(self, *args: Any, jump_start: JumpStart | None = None, **kwargs: Any) -> None:
        if isinstance(self, GuidedAlgorithm):
            raise TypeError("guidance and a jump start can't be had together: take guided() or jump_started()")
        self.jump_start = JumpStart() if jump_start is None else jump_start
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        if not isinstance(self.jump_start, JumpStart):
            raise TypeError(f"jump_start must be a hurl.sb3.JumpStart, got {self.jump_start!r}")
        super()._setup_model()

    def take_guide(self) -> None:
        """Let the policy as it stands be the guide, and the curriculum begin; so do new episodes.

        It is for after `warm_start` and before `learn`. Until then the algorithm learns without a guide.
        """
        if self._vec_normalize_env is not None and self._vec_normalize_env.norm_obs:
            raise ValueError(
                "a jump start can't be had with normalised observations, for the guide would change with their "
                "statistics: set norm_obs=False, or leave the jump start out"
            )
        self.guide, self.curriculum = internals.copy_policy(self), Curriculum(self.jump_start)
        self._last_obs = None

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        if self.guide is None:
            warnings.warn(
                "no guide begins the episodes: clone a policy with hurl.sb3.warm_start(model, dataset), and call "
                "model.take_guide() before learn",
                stacklevel=3,
            )
        before = self._last_obs
        prepared = super()._setup_learn(*args, **kwargs)
        if self.curriculum is not None and self._last_obs is not before:  # the environments were reset
            self.curriculum.abandon_episodes()
        return prepared

    def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> Any:
        action, stored = super()._sample_action(learning_starts, action_noise, n_envs)
        if self.guide is None or self.curriculum is None:
            return action, stored
        guided = self.curriculum.guided(n_envs)
        if not guided.any():
            return action, stored
        assert self._last_obs is not None
        chosen, _ = self.guide.predict(self._last_obs, deterministic=True)
        scaled = self.policy.scale_action(chosen) if isinstance(self.action_space, Box) else chosen
        guided = guided.reshape(-1, *(1,) * (chosen.ndim - 1))
        return np.where(guided, chosen, action), np.where(guided, scaled, stored)

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
    ) -> None:
        if self.curriculum is not None:
            normalization = self._vec_normalize_env
            self.curriculum.observe(reward if normalization is None else normalization.get_original_reward(), dones)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def dump_logs(self, *args: Any, **kwargs: Any) -> None:
        """Write log data: the algorithm's, and how far the curriculum is."""
        if self.curriculum is not None:
            self.logger.record("jump_start/stage", self.curriculum.stage)
            if np.isfinite(self.curriculum.horizon):
                self.logger.record("jump_start/horizon", self.curriculum.horizon)
        super().dump_logs(*args, **kwargs)

    # Saving ----------------------------------------------------------------------------------------------------------

    def read_jump_start(self) -> dict[str, Any] | None:
        """Return the guide's weights and how far the curriculum is, None where there is no guide."""
        if self.guide is None or self.curriculum is None:
            return None
        return {"guide": internals.read_actor(self.guide), "curriculum": self.curriculum.state()}

    def write_jump_start(self, state: Mapping[str, Any]) -> None:
        """Put in what `read_jump_start` returned."""
        self.take_guide()
        assert self.curriculum is not None
        internals.write_actor(self.guide, state["guide"])
        self.curriculum.restore(state["curriculum"])

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the model, and with it the guide and how far the curriculum is."""
        self.jump_start_state = self.read_jump_start()
        super().save(*args, **kwargs)
        self.jump_start_state = None

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Self:
        """Load a model, with its guide where it has one; new episodes begin."""
        model = super().load(*args, **kwargs)
        if model.jump_start_state is not None:
            model.write_jump_start(model.jump_start_state)
            model.jump_start_state = None
        return model

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "guide", "curriculum"]


def jump_started(algorithm: type[Any]) -> type[Any]:
    """Return the algorithm with a jump start: the same class with one more keyword, `jump_start`, and `take_guide`.

    The learner begins with the guide's own weights, the paper's warm start; transitions of both go into the replay
    buffer, and `predict` is the learner's alone. Without a guide it is the algorithm itself, bit for bit.

        model = hurl.sb3.jump_started(SAC)("MlpPolicy", env, jump_start=hurl.sb3.JumpStart(stages=10))
        hurl.sb3.warm_start(model, "hopper/behaviour-v0")
        model.take_guide()
        model.learn(800_000)

    :param algorithm: an off-policy algorithm of Stable-Baselines3, sb3-contrib or SBX
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, OffPolicyAlgorithm)):
        raise TypeError(
            f"{getattr(algorithm, '__name__', repr(algorithm))} can't be jump-started, since what a guide does can be "
            "learnt from off-policy only: take SAC, TQC, CrossQ, TD3 or another algorithm with a replay buffer"
        )
    return algorithm if issubclass(algorithm, JumpStarted) else _subclass(algorithm)


@cache
def _subclass(algorithm: type[OffPolicyAlgorithm]) -> type[Any]:
    attributes = {
        "__doc__": f"{algorithm.__name__} with a jump start.",
        "__module__": __name__,
        "__signature__": with_keywords(algorithm, jump_start=JumpStart),
        "derivation": (jump_started, (algorithm,)),
    }
    return DerivedClass(f"JumpStarted{algorithm.__name__}", (JumpStarted, algorithm), attributes)
