"""`guided(Algorithm)`: the paper's Algorithm 1 around an algorithm of Stable-Baselines3, sb3-contrib or SBX."""

from __future__ import annotations

import copyreg
import inspect
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Dict as DictSpace
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from hurl.guidance import Guidance
from hurl.heuristics.engineered import zero
from hurl.prior import PriorData, PriorDataError, check_blend
from hurl.sb3 import internals
from hurl.sb3.prior import LoggedTransitions
from hurl.sb3.replay import GuidedReplayBuffer, guide_replay_buffer
from hurl.sb3.rollout import guided_rollout
from hurl.schedules import ConstantSchedule


class DerivedClass(ABCMeta):
    """The class of algorithms that are made from others: pickled, they are made anew in the same way."""

    unguided: type[BaseAlgorithm]
    derivation: tuple[Callable[[type[Any]], type[Any]], tuple[type[BaseAlgorithm]]]


def _reduce(cls: DerivedClass) -> Any:
    return vars(cls).get("derivation", cls.__qualname__)


copyreg.pickle(DerivedClass, _reduce)


class GuidedAlgorithm(BaseAlgorithm, metaclass=DerivedClass):
    """What guidance adds to any algorithm: two keywords, figures in the log, and networks for each rung.

    `guidance` reshapes what it learns from, and `prior` is logged data that it learns from beside its own experience
    (off-policy); with `prior` alone nothing is reshaped, as with λ = 1.

    With a ladder the model's own networks are those of its last rung, λ = 1, and there are others beside them, which
    take their place while their rung is at work, see `on_rung`. With a schedule there is nothing beside them.
    """

    guidance: Guidance | None
    guidance_state: dict[str, Any] | None = None
    guidance_changes_nothing = False  # of a saved model, whose guidance itself can't be read without running code
    prior: PriorData | None
    prior_name: str | None = None  # of the data that it has learnt from, which a saved model does not hold
    rung_states: dict[float, dict[str, Any]] | None = None
    _networks: list[dict[str, Any]]  # of all rungs; those of the rung in place are the model's own attributes
    _in_place: int
    _is_asked_for = False  # whether the rung in place is one that a user has asked for
    _has_own_guidance = False  # until `_setup_model`, it is the one that was given, which other models may share

    def __init__(
        self, *args: Any, guidance: Guidance | None = None, prior: PriorData | None = None, **kwargs: Any
    ) -> None:
        # `load` builds the model bare and fills it afterwards: then there is no guidance yet.
        is_bare = not kwargs.get("_init_setup_model", True)
        given = inspect.signature(type(self)).bind_partial(*args, **kwargs).arguments
        self._takes_gamma = not (is_bare or "gamma" in given | kwargs)  # of its guidance
        if guidance is not None:
            _check_guidance(guidance)
        elif not is_bare and prior is None:
            raise TypeError(f"{type(self).__name__} needs guidance=hurl.Guidance(heuristic, gamma=…), or prior data")
        self.guidance, self.prior = guidance, prior
        super().__init__(*args, **kwargs)

    def _set_gamma(self, gamma: float) -> None:
        if self._has_own_guidance:
            assert self.guidance is not None
            self.guidance.gamma = gamma
        self.__dict__["gamma"] = gamma

    def _start_guidance(self) -> Guidance:
        """Check the guidance and count its steps for this model alone: several models may be given the same one.

        A model that was saved counts on from where it was, also with another guidance, unless that has counted itself.
        """
        if self.prior is not None and not isinstance(self.prior, PriorData):
            raise TypeError(f"prior must be a hurl.PriorData, got {self.prior!r}")
        if self.guidance is None and self.prior is not None:  # λ = 1: nothing is reshaped
            self.guidance = Guidance(zero, ConstantSchedule(1.0), gamma=self.__dict__["gamma"])
        if self.guidance is None:
            unguided = type(self).unguided.__name__
            raise TypeError(
                f"the file holds a model without guidance: load it with guidance=hurl.Guidance(heuristic, "
                f"gamma={self.__dict__['gamma']}), or by {unguided}.load to go on without"
            )
        guidance = _check_guidance(self.guidance)
        if self._takes_gamma and self.__dict__["gamma"] == _default_gamma(type(self).unguided):
            self.__dict__["gamma"] = guidance.gamma
        if self.__dict__["gamma"] != guidance.gamma:
            raise ValueError(
                f"gamma is {self.__dict__['gamma']!r} for the algorithm and {guidance.gamma!r} for its guidance: "
                "give both the same, or leave it out of the algorithm's arguments"
            )
        self.guidance = guidance.start(self.seed)
        if self.guidance_state is not None and guidance.steps == 0:
            self.guidance.restore(self.guidance_state)
        self._has_own_guidance = True
        return self.guidance

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        before = self._last_obs
        prepared = super()._setup_learn(*args, **kwargs)
        assert self.guidance is not None
        if self.guidance.turns is not None:
            self.guidance.turns.check_length(self._total_timesteps - self.num_timesteps)
        if self._last_obs is not before:  # the environments were reset
            self.guidance.abandon_episodes()
        return prepared

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the model, and with it how far its guidance is, and the networks of a ladder's rungs."""
        assert self.guidance is not None
        self.guidance_state, self.rung_states = self.guidance.state(), self.read_rungs()
        is_blended = self.prior is not None and self.prior.blend is not None
        self.guidance_changes_nothing = self.guidance.changes_nothing and not is_blended
        with self._at_rung(self.last_rung):
            super().save(*args, **kwargs)
        self.rung_states = None

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Self:
        """Load a model; rungs that the file does not hold begin with the networks of λ = 1."""
        model = super().load(*args, **kwargs)
        model.share_networks()
        model.write_rungs(model.rung_states or {})
        model.rung_states = None
        return model

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "_networks",
            "_in_place",
            "_is_asked_for",
            "_takes_gamma",
            "prior",
            "_logged",
        ]

    # The ladder ------------------------------------------------------------------------------------------------------

    @property
    def last_rung(self) -> int:
        """The number of the rung of λ = 1; 0 where there is a schedule."""
        return len(self._networks) - 1

    def share_networks(self) -> None:
        """Give every rung of a ladder copies of the networks of λ = 1, as after a warm start."""
        assert self.guidance is not None
        before = self._in_place if "_networks" in vars(self) else None
        if before is not None:
            self._put_in_place(self.last_rung)
        self._networks = [*(internals.copy_networks(self) for _ in self.guidance.rungs[1:]), {}]
        self._in_place = self.last_rung
        if before is not None:
            self._put_in_place(before)

    @contextmanager
    def on_rung(self, rung: int) -> Iterator[None]:
        """Let the model's networks and λ be those of a rung, by its number, for a while, and `predict` act on it."""
        before, self._is_asked_for = self._is_asked_for, True
        try:
            with self._at_rung(rung):
                yield
        finally:
            self._is_asked_for = before

    @contextmanager
    def _at_rung(self, rung: int) -> Iterator[None]:
        """Put a rung's networks and λ in place, for a while."""
        assert self.guidance is not None
        if rung not in range(len(self._networks)):
            raise ValueError(f"the rungs of {self.guidance.schedule} are numbered 0 to {self.last_rung}, got {rung!r}")
        before = self._in_place
        with self.guidance.on(rung):
            self._put_in_place(rung)
            try:
                yield
            finally:
                self._put_in_place(before)

    def _put_in_place(self, rung: int) -> None:
        if rung != self._in_place:
            self._networks[self._in_place] = {name: vars(self)[name] for name in self._networks[rung]}
            vars(self).update(self._networks[rung])
            self._in_place = rung

    def read_rungs(self) -> dict[float, dict[str, Any]]:
        """Return weights, optimiser states, keys and counters of all rungs but the last, by their λ."""
        assert self.guidance is not None
        states = {}
        for rung, lambda_ in enumerate(self.guidance.rungs[:-1]):
            with self._at_rung(rung):
                counters = {name: vars(self)[name] for name in internals.COUNTERS if name in vars(self)}
                states[lambda_] = {"networks": internals.read_state(self), "counters": counters}
        return states

    def write_rungs(self, states: Mapping[float, dict[str, Any]]) -> None:
        """Put in what `read_rungs` returned, where there is a rung of that λ."""
        assert self.guidance is not None
        for rung, lambda_ in enumerate(self.guidance.rungs[:-1]):
            if lambda_ in states:
                with self._at_rung(rung):
                    internals.write_state(self, states[lambda_]["networks"])
                    vars(self).update(states[lambda_]["counters"])

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the actions for observations, as ever; with a ladder, those of the rung with the best returns.

        Within `on_rung` they are those of that rung.
        """
        best = None if self.guidance is None or self._is_asked_for else self.guidance.best_rung
        if best is None:
            return super().predict(*args, **kwargs)
        with self._at_rung(best):
            return super().predict(*args, **kwargs)

    # The log ---------------------------------------------------------------------------------------------------------

    def dump_logs(self, *args: Any, **kwargs: Any) -> None:
        """Write log data: the algorithm's, and λ, γ̃, the h of the present iteration and what each rung is worth."""
        assert self.guidance is not None
        figures = {} if self.guidance.turns is None else self.guidance.turns.figures()
        for name, value in figures.items():
            self.logger.record(f"guidance/{name}", value)
        self.logger.record("guidance/lambda", self.guidance.lambda_)
        self.logger.record("guidance/discount", self.guidance.discount)
        statistics = self.guidance.statistics
        if statistics.count:
            self.logger.record("guidance/h_mean", statistics.mean)
            self.logger.record("guidance/h_min", statistics.minimum)
            self.logger.record("guidance/h_max", statistics.maximum)
        super().dump_logs(*args, **kwargs)


class GuidedOffPolicy(GuidedAlgorithm, OffPolicyAlgorithm):
    """Guidance for algorithms with a replay buffer: the buffer is guided, the algorithm unchanged."""

    def _setup_model(self) -> None:
        guidance = self._start_guidance()
        gamma = (self.replay_buffer_kwargs or {}).get("gamma", guidance.gamma)
        if gamma != guidance.gamma:
            raise ValueError(
                f"gamma is {gamma!r} in replay_buffer_kwargs and {guidance.gamma!r} for the guidance, which discounts "
                "what the buffer samples: leave it out of replay_buffer_kwargs"
            )
        if self.use_sde and len(guidance.rungs) > 1:
            raise ValueError(
                "use_sde can't be had off-policy with a ladder, whose rungs would not all draw their noise: leave it "
                "out, or give the guidance a schedule"
            )
        super()._setup_model()
        assert self.replay_buffer is not None
        self._logged = self._read_prior()
        self.replay_buffer = guide_replay_buffer(self.replay_buffer, guidance, self._logged)
        self.share_networks()

    def _read_prior(self) -> LoggedTransitions | None:
        if self.prior is None:
            return None
        if isinstance(self.replay_buffer, HerReplayBuffer):
            raise PriorDataError(
                "prior data can't be had with hindsight replay, which relabels goals with states of its own episodes: "
                "leave out prior, or HerReplayBuffer"
            )
        assert self.guidance is not None
        check_blend(self.prior.blend, self.guidance.shaping)
        if isinstance(self.observation_space, DictSpace):
            raise PriorDataError(
                "prior data can't be had with dictionaries of observations, which data is not read of: wrap the "
                "environment, and that of the data, in gymnasium's FlattenObservation"
            )
        logged = LoggedTransitions(self.prior, self)
        cut_off = int((~logged.episodes.terminated).sum())
        has_heuristic = not (self.guidance.heuristic is zero and self.guidance.changes_nothing)
        if self.prior.blend is not None and not has_heuristic and cut_off:
            raise PriorDataError(
                f"blend={self.prior.blend} needs a heuristic for what follows the time limits that end {cut_off} of "
                f"the {len(logged.episodes)} episodes of {logged.episodes.name}: give guidance, or leave blend out"
            )
        self.prior_name = logged.episodes.name
        return logged

    @property
    def gamma(self) -> float:
        """The discount of the original MDP; where it is set anew, so is what is stored with the transitions."""
        gamma: float = self.__dict__["gamma"]
        return gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self._set_gamma(gamma)
        buffer_options = self.__dict__.get("replay_buffer_kwargs") or {}
        if "gamma" in buffer_options:  # where Stable-Baselines3 has put it for n-step returns
            buffer_options["gamma"] = gamma
        buffer = self.__dict__.get("replay_buffer")
        if isinstance(buffer, GuidedReplayBuffer):
            buffer.compute_terms()

    def load_replay_buffer(self, *args: Any, **kwargs: Any) -> None:
        """Load a replay buffer, of a guided or an unguided model; h is computed for what it holds."""
        super().load_replay_buffer(*args, **kwargs)
        assert self.replay_buffer is not None
        assert self.guidance is not None
        self.replay_buffer = guide_replay_buffer(self.replay_buffer, self.guidance, self._logged)

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        # A user may have put another buffer in its place.
        assert self.replay_buffer is not None
        assert self.guidance is not None
        if getattr(self.replay_buffer, "guidance", None) is not self.guidance:
            self.replay_buffer = guide_replay_buffer(self.replay_buffer, self.guidance, self._logged)
        if self.prior is None and self.prior_name is not None:
            warnings.warn(
                f"the model has learnt from the logged data {self.prior_name}, which its file does not hold, and goes "
                "on without: load it with prior=hurl.PriorData(…)",
                stacklevel=3,
            )
        return super()._setup_learn(*args, **kwargs)

    def _store_transition(self, replay_buffer: Any, *args: Any, **kwargs: Any) -> None:
        with replay_buffer.arriving():
            super()._store_transition(replay_buffer, *args, **kwargs)

    # The ladder: every rung learns from all transitions, and acts for whole episodes.

    _is_collecting = _has_acted = False

    def train(self, gradient_steps: int, batch_size: int, **kwargs: Any) -> None:
        """Train on the replay buffer, the rungs whose turn it is."""
        assert self.guidance is not None
        for rung in [0] if self.guidance.bandit is None else self.guidance.bandit.learners():
            with self._at_rung(rung):
                super().train(gradient_steps, batch_size, **kwargs)

    def _sample_action(self, *args: Any, **kwargs: Any) -> Any:
        self._is_collecting, self._has_acted = True, False
        try:
            chosen = super()._sample_action(*args, **kwargs)
        finally:
            self._is_collecting = False
        assert self.guidance is not None
        if not self._has_acted and self.guidance.turns is not None:
            self.guidance.turns.act_without_rungs(self.n_envs)
        return chosen

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        """Return actions for observations: of the best rung, or in training of that which acts in an environment."""
        self._has_acted = True
        if not self._is_collecting or len(self._networks) == 1:
            return super().predict(observation, *args, **kwargs)
        assert self.guidance is not None
        assert self.guidance.turns is not None
        acting = self.guidance.turns.acting(self.n_envs)
        actions, state = None, None
        for rung in np.unique(acting).tolist():
            with self._at_rung(rung):
                chosen, state = super(GuidedAlgorithm, self).predict(observation, *args, **kwargs)
            actions = chosen if actions is None else np.where(_with_axes_of(acting == rung, chosen), chosen, actions)
        return actions, state

    def _on_step(self) -> None:
        for rung in range(len(self._networks)):
            with self._at_rung(rung):
                super()._on_step()


def _with_axes_of(mask: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of rows with as many axes as the values."""
    return mask.reshape(-1, *(1,) * (values.ndim - 1))


class GuidedOnPolicy(GuidedAlgorithm, OnPolicyAlgorithm):
    """Guidance for algorithms with a rollout buffer: each rollout is one of the reshaped MDP, at one λ."""

    def _setup_model(self) -> None:
        if self.prior is not None:
            raise TypeError(
                f"{type(self).unguided.__name__} learns from its own rollouts alone and can't take prior data: give it "
                "to an off-policy algorithm (SAC, TD3, DQN, …), or clone it with hurl.sb3.warm_start"
            )
        self._start_guidance()
        super()._setup_model()
        self.share_networks()

    @property
    def gamma(self) -> float:
        """The discount in force, γ̃ of the present iteration; what is set is γ."""
        gamma: float = self.__dict__["gamma"]
        return self.guidance.discount if self._has_own_guidance and self.guidance is not None else gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self._set_gamma(gamma)

    def collect_rollouts(self, env: VecEnv, callback: Any, rollout_buffer: Any, *args: Any, **kwargs: Any) -> bool:
        """Collect a rollout with the rewards and the discount of the iteration that it completes."""
        assert self.guidance is not None
        self.guidance.advance(0, ahead=rollout_buffer.buffer_size * env.num_envs)
        before, turns = self._turn, self.guidance.turns
        self._turn = 0 if turns is None else turns.take(env.num_envs)
        if self._turn != before:
            self._last_episode_starts = np.ones(env.num_envs, bool)  # memory is of the other rung's networks
        with (
            self._at_rung(self._turn),
            guided_rollout(env, self.guidance, self._vec_normalize_env, self._last_obs, rollout_buffer),
        ):
            return super().collect_rollouts(env, callback, rollout_buffer, *args, **kwargs)

    # The ladder: rollouts belong to one rung each, which acts in all environments and learns from them alone.

    _turn = 0

    def train(self) -> None:
        """Train on the newest rollout: with a ladder, the rung that has collected it."""
        with self._at_rung(self._turn):
            super().train()


def guided(algorithm: type[BaseAlgorithm]) -> type[Any]:
    """Return the algorithm with heuristic guidance: the same class with two more keywords, `guidance` and `prior`.

    `learn`, `predict`, `save`, `load`, `set_env` and the rest behave as those of the algorithm; λ advances with the
    environment steps. With λ = 1 it is the algorithm itself, bit for bit.

        model = hurl.guided(SAC)("MlpPolicy", env, guidance=guidance)
        model = hurl.guided(SAC)("MlpPolicy", env, guidance=guidance, prior=hurl.PriorData("hopper/behaviour-v0"))

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
        "__signature__": with_keywords(algorithm, guidance=Guidance, prior=PriorData),
        "unguided": algorithm,
        "derivation": (guided, (algorithm,)),
    }
    return DerivedClass(f"Guided{algorithm.__name__}", (base, algorithm), attributes)


def _check_guidance(guidance: Any) -> Guidance:
    if not isinstance(guidance, Guidance):
        hint = ": write hurl.Guidance(heuristic, gamma=…)" if callable(guidance) else ""
        raise TypeError(f"guidance must be a hurl.Guidance, got {guidance!r}{hint}")
    return guidance


def with_keywords(algorithm: type[BaseAlgorithm], **added: type[Any]) -> inspect.Signature:
    """Return the algorithm's signature with further keywords, by their types, which may be None."""
    signature = inspect.signature(algorithm)
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind | None)
        for name, kind in added.items()
    ]
    parameters = [*signature.parameters.values()]
    position = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    return signature.replace(parameters=[*parameters[:position], *keywords, *parameters[position:]])


def _default_gamma(algorithm: type[BaseAlgorithm]) -> float | None:
    """Return the discount that an algorithm has where none is given, by the nearest class that takes one."""
    for base in algorithm.__mro__:
        parameter = inspect.signature(base).parameters.get("gamma")
        if parameter is not None and parameter.default is not parameter.empty:
            return float(parameter.default)
    return None
