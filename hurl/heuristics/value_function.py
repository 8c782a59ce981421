"""The critic of an existing agent as a heuristic: its networks as NumPy arrays, evaluated without torch or JAX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import Guidance, HeuristicError, Shaping
from hurl.heuristics.agent_networks import networks_of
from hurl.heuristics.base import ObservationSpace, StorableHeuristic, Weights, register
from hurl.heuristics.network import Network, as_inputs, one_hot
from hurl.heuristics.storage import check_shape

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["ValueFunctionHeuristic", "check_estimates_original"]


@dataclass(frozen=True, eq=False)
class Normalisation:
    """x = (s − m) / d, cut off at ±clip: what `VecNormalize` shows an agent.

    :param mean: m, of flat observations
    :param deviation: d
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    clip: float

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the normalised observations, shape (n, inputs)."""
        return np.clip((inputs - self.mean) / self.deviation, -self.clip, self.clip).astype(np.float32)


@register("value-function")
class ValueFunctionHeuristic(StorableHeuristic):
    """The value function of an existing agent, so that it guides a new one.

        h(s) = V(s)                   PPO, A2C, TRPO
        h(s) = max_a Q(s, a)          DQN, and QR-DQN, whose Q is the mean of its quantiles
        h(s) = min_i Q_i(s, π(s))     SAC, TD3, DDPG, CrossQ, and TQC, whose Q_i is the mean of a critic's quantiles

    with π(s) the policy's deterministic action. The Q of SAC, CrossQ and TQC is soft: besides the rewards to come it
    counts the entropy of the actions to come, weighted by the temperature.

    All three are min_i max_j f_i(x)_j, with x the observation, or the observation and the action.

    :param critics: f_i
    :param actor: whose outputs' tanh is the action; None where the critics see observations alone
    :param normalisation: of observations, None where the agent saw them raw
    :param agent: a description of the agent
    """

    observation_space: ObservationSpace
    time_limit = "bootstrap"

    def __init__(
        self,
        critics: Sequence[Network],
        actor: Network | None,
        normalisation: Normalisation | None,
        agent: str,
        **origin: Any,
    ) -> None:
        super().__init__(**origin)
        self.critics = list(critics)
        self.actor = actor
        self.normalisation = normalisation
        self.agent = agent

    @classmethod
    def from_agent(cls, model: BaseAlgorithm) -> Self:
        """Take over the value function of an agent with an MlpPolicy.

        An agent that learns through `VecNormalize` must have it in its environment (`load(…, env=…)`): observations
        are normalised as at present, and values come in units of the raw rewards, less what `clip_reward` cut off.

        The critic of a guided agent estimates values of the reshaped MDP, with discount λγ: it is taken over once λ
        has reached 1, where that is the original MDP.

        :param model: an agent of Stable-Baselines3, sb3-contrib or SBX
        """
        guidance: Guidance | None = getattr(model, "guidance", None)
        original: AbstractContextManager[None] = nullcontext()
        if guidance is not None and guidance.has_fallback:  # a ladder learns it on its last rung
            original = model.on_rung(model.last_rung)  # type: ignore[attr-defined]
        elif guidance is not None:
            prior = getattr(model, "prior", None)
            check_estimates_original(guidance.lambda_, guidance.shaping, None if prior is None else prior.blend)
        with original:
            actor, critics = networks_of(model)
        space = ObservationSpace.of(model.observation_space)
        normalisation, reward_scale = _normalisation(model, space)
        return cls(
            [_check_inputs(_scaled(critic, reward_scale), space, actor) for critic in critics],
            actor,
            normalisation,
            f"{type(model).__name__} after {model.num_timesteps} steps",
            gamma=float(model.gamma if guidance is None else guidance.gamma),  # type: ignore[attr-defined]
            observation_space=space,
        )

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of observations, shape (n,)."""
        inputs = as_inputs(observations, self.observation_space)
        if self.normalisation is not None:
            inputs = self.normalisation(inputs)
        if self.actor is not None:
            inputs = one_hot(inputs, self.observation_space.n)
            inputs = np.concatenate([inputs, np.tanh(self.actor(inputs))], axis=1)
        values: NDArray[np.float32] = np.min([critic(inputs).max(axis=1) for critic in self.critics], axis=0)
        return values

    def settings(self) -> dict[str, Any]:
        """Return the architecture, and what agent it is from."""
        return {
            "agent": self.agent,
            "critics": [critic.settings() for critic in self.critics],
            "actor": None if self.actor is None else self.actor.settings(),
            "clip": None if self.normalisation is None else self.normalisation.clip,
        }

    def weights(self) -> Weights:
        """Return the networks' arrays, and the normalisation's."""
        weights: Weights = {}
        for index, critic in enumerate(self.critics):
            weights |= critic.weights(f"critic.{index}.")
        if self.actor is not None:
            weights |= self.actor.weights("actor.")
        if self.normalisation is not None:
            weights |= {"mean": self.normalisation.mean, "deviation": self.normalisation.deviation}
        return weights

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        critics = [
            Network.restore(critic, weights, f"critic.{index}.") for index, critic in enumerate(settings["critics"])
        ]
        actor = None if settings["actor"] is None else Network.restore(settings["actor"], weights, "actor.")
        normalisation = None
        if settings["clip"] is not None:
            shape = (math.prod(origin["observation_space"].shape),)
            normalisation = Normalisation(
                check_shape(weights, "mean", shape), check_shape(weights, "deviation", shape), settings["clip"]
            )
        return cls(critics, actor, normalisation, settings["agent"], **origin)


def check_estimates_original(lambda_: float, shaping: Shaping, blend: float | None) -> None:
    """Refuse the critic of an agent that learns on a reshaped MDP whose values are not those of the original one."""
    if blend is not None:
        raise HeuristicError(
            f"the agent learns from logged data with blend={blend:g}, so that its critic estimates values with other "
            "discounts: take the value function of an agent without blend, or with a ladder"
        )
    if shaping != "hurl":
        raise HeuristicError(
            f"the agent was guided with shaping={shaping!r}, so that its critic estimates V − h: "
            "take the value function of an agent without shaping"
        )
    if not math.isclose(lambda_, 1.0):
        raise HeuristicError(
            f"the agent is guided with λ={lambda_:g}, so that its critic estimates values with discount λγ: "
            "train it until λ is 1, or fit a heuristic to data of its policy"
        )


# From an agent ------------------------------------------------------------------------------------------------------


def _check_inputs(critic: Network, space: ObservationSpace, actor: Network | None) -> Network:
    """Refuse networks over something else than the observations, or their one-hot vectors."""
    expected = math.prod(space.shape) if space.n is None else space.n
    actions = 0 if actor is None else actor.sizes[-1]
    if critic.sizes[0] != expected + actions:
        raise HeuristicError(
            f"the agent's critic takes {critic.sizes[0]} inputs where observations of {space} make "
            f"{expected + actions}: train an agent that sees them flat, or one-hot"
        )
    return critic


def _normalisation(model: BaseAlgorithm, space: ObservationSpace) -> tuple[Normalisation | None, float]:
    """Return how `VecNormalize` shows observations to the agent, and the unit of its rewards."""
    env = model.get_vec_normalize_env()
    if env is None:
        return None, 1.0
    reward_scale = math.sqrt(env.ret_rms.var + env.epsilon) if env.norm_reward else 1.0
    if not env.norm_obs:
        return None, reward_scale
    statistics: Any = env.obs_rms
    if statistics.mean.shape != space.shape:
        raise HeuristicError(
            f"the agent's VecNormalize normalises observations of shape {statistics.mean.shape} before they become "
            f"those of {space}: put it outside of the other wrappers"
        )
    deviation = np.sqrt(statistics.var + env.epsilon)
    return Normalisation(statistics.mean.ravel().copy(), deviation.ravel(), float(env.clip_obs)), reward_scale


def _scaled(network: Network, factor: float) -> Network:
    *layers, (weight, bias) = network.layers
    layer = (weight * factor).astype(np.float32), (bias * factor).astype(np.float32)
    return replace(network, layers=(*layers, layer))
