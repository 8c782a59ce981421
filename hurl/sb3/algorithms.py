"""`guided(Algorithm)`: the paper's Algorithm 1 around an algorithm of Stable-Baselines3, sb3-contrib or SBX."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from hurl.guidance import Guidance
from hurl.sb3.replay import guide_replay_buffer
from hurl.sb3.rollout import ReshapingVecEnv

__all__ = ["GuidedAlgorithm", "guided"]


class GuidedAlgorithm(BaseAlgorithm):
    """What guidance adds to any algorithm: the keyword `guidance`, and its figures in the log."""

    guidance: Guidance | None

    def __init__(self, *args: Any, guidance: Guidance | None = None, **kwargs: Any) -> None:
        # `load` builds the model bare and fills it afterwards: then there is no guidance yet.
        if guidance is None and kwargs.get("_init_setup_model", True):
            raise TypeError(f"{type(self).__name__} needs guidance=hurl.Guidance(heuristic, schedule, gamma=…)")
        self.guidance = guidance
        if guidance is not None:
            _check_guidance(guidance)
            given = inspect.signature(type(self)).bind_partial(*args, **kwargs).arguments
            if "gamma" not in given | kwargs:
                kwargs["gamma"] = guidance.gamma
        super().__init__(*args, **kwargs)

    def _start_guidance(self) -> Guidance:
        """Check the guidance and count its steps for this model alone: several models may be given the same one."""
        guidance = _check_guidance(self.guidance)
        if self.__dict__["gamma"] != guidance.gamma:
            raise ValueError(
                f"gamma is {self.__dict__['gamma']!r} for the algorithm and {guidance.gamma!r} for its guidance: "
                "give both the same, or leave it out of the algorithm's arguments"
            )
        self.guidance = guidance.start()
        return self.guidance

    def dump_logs(self, *args: Any) -> None:
        """Write log data: the algorithm's, and λ, γ̃ and the h of the observations since the last time."""
        assert self.guidance is not None
        self.logger.record("guidance/lambda", self.guidance.lambda_)
        self.logger.record("guidance/discount", self.guidance.discount)
        statistics = self.guidance.read_statistics()
        if statistics.count:
            self.logger.record("guidance/h_mean", statistics.mean)
            self.logger.record("guidance/h_min", statistics.minimum)
            self.logger.record("guidance/h_max", statistics.maximum)
        super().dump_logs(*args)


class GuidedOffPolicy(GuidedAlgorithm, OffPolicyAlgorithm):
    """Guidance for algorithms with a replay buffer: the buffer is guided, the algorithm unchanged."""

    def _setup_model(self) -> None:
        super()._setup_model()
        assert self.replay_buffer is not None
        self.replay_buffer = guide_replay_buffer(self.replay_buffer, self._start_guidance())

    def load_replay_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Load a replay buffer, of a guided or an unguided model; h is computed for what it holds."""
        super().load_replay_buffer(*args, **kwargs)
        assert self.replay_buffer is not None
        assert self.guidance is not None
        self.replay_buffer = guide_replay_buffer(self.replay_buffer, self.guidance)

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        # A user may have put another buffer in its place.
        assert self.replay_buffer is not None
        assert self.guidance is not None
        if getattr(self.replay_buffer, "guidance", None) is not self.guidance:
            self.replay_buffer = guide_replay_buffer(self.replay_buffer, self.guidance)
        return super()._setup_learn(*args, **kwargs)


class GuidedOnPolicy(GuidedAlgorithm, OnPolicyAlgorithm):
    """Guidance for algorithms with a rollout buffer: each rollout is one of the reshaped MDP, at one λ."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self._start_guidance()

    @property
    def gamma(self) -> float:
        """The discount in force: γ̃ of the present iteration."""
        gamma: float = self.__dict__["gamma"]
        return gamma if self.guidance is None else self.guidance.discount

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self.__dict__["gamma"] = gamma

    def collect_rollouts(self, env: VecEnv, callback: Any, rollout_buffer: Any, *args: Any, **kwargs: Any) -> bool:
        """Collect a rollout with the rewards and the discount of the iteration that it completes."""
        guidance, normalization = self.guidance, self._vec_normalize_env
        assert guidance is not None

        def begin() -> Any:
            rollout_buffer.gamma = guidance.discount
            return self._last_obs if normalization is None else normalization.get_original_obs()

        rollout_steps = rollout_buffer.buffer_size * env.num_envs
        reshaping = ReshapingVecEnv(env, guidance, normalization, rollout_steps, begin)
        return super().collect_rollouts(reshaping, callback, rollout_buffer, *args, **kwargs)


def guided(algorithm: type[BaseAlgorithm]) -> type[Any]:
    """Return the algorithm with heuristic guidance: the same class with one more keyword, `guidance`.

    `learn`, `predict`, `save`, `load`, `set_env` and the rest behave as those of the algorithm; λ advances with the
    environment steps. With λ = 1 it is the algorithm itself, bit for bit.

        model = hurl.guided(SAC)("MlpPolicy", env, guidance=guidance)

    :param algorithm: an off-policy or on-policy algorithm of Stable-Baselines3, sb3-contrib or SBX
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        raise TypeError(
            f"guided() takes an algorithm class of Stable-Baselines3, sb3-contrib or SBX, got {algorithm!r}"
        )
    return algorithm if issubclass(algorithm, GuidedAlgorithm) else _subclass(algorithm)


@cache
def _subclass(algorithm: type[BaseAlgorithm]) -> type[Any]:
    if issubclass(algorithm, OffPolicyAlgorithm):
        base: type[GuidedAlgorithm] = GuidedOffPolicy
    elif issubclass(algorithm, OnPolicyAlgorithm):
        base = GuidedOnPolicy
    else:
        raise TypeError(
            f"{algorithm.__name__} can't be guided: it learns neither from a replay buffer nor from rollouts with a "
            "discount; take an off-policy (SAC, TD3, DQN, …) or on-policy (PPO, A2C, …) algorithm"
        )
    attributes = {
        "__doc__": f"{algorithm.__name__} with heuristic guidance.",
        "__module__": __name__,
        "__signature__": _with_guidance(algorithm),
    }
    return type(f"Guided{algorithm.__name__}", (base, algorithm), attributes)


def _check_guidance(guidance: Any) -> Guidance:
    if not isinstance(guidance, Guidance):
        raise TypeError(f"guidance must be a hurl.Guidance, got {guidance!r}")
    return guidance


def _with_guidance(algorithm: type[BaseAlgorithm]) -> inspect.Signature:
    """Return the algorithm's signature with `guidance` as one more keyword."""
    signature = inspect.signature(algorithm)
    keyword = inspect.Parameter("guidance", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Guidance | None)
    parameters = [*signature.parameters.values()]
    position = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    return signature.replace(parameters=[*parameters[:position], keyword, *parameters[position:]])
