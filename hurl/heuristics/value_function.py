"""The critic of an existing agent as a heuristic: its networks as NumPy arrays, evaluated without torch or JAX."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import Guidance, HeuristicError, Shaping
from hurl.heuristics.base import ObservationSpace, StorableHeuristic, Weights
from hurl.heuristics.network import Activation, Network, as_inputs, one_hot
from hurl.heuristics.storage import check_shape

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["ValueFunctionHeuristic", "check_estimates_original"]

Array = NDArray[Any]
BATCH_RENORM_EPSILON = 1e-3  # SBX keeps it at its default


@dataclass(frozen=True, eq=False)
class Normalisation:
    """x = (s − m) / d, cut off at ±clip: what `VecNormalize` shows an agent.

    :param mean: m, of flat observations
    :param deviation: d
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    clip: float

    def __call__(self, inputs: Array) -> NDArray[np.float32]:
        """Return the normalised observations, shape (n, inputs)."""
        return np.clip((inputs - self.mean) / self.deviation, -self.clip, self.clip).astype(np.float32)


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
        if guidance is not None:
            check_estimates_original(guidance.lambda_, guidance.shaping)
        _check_policy(model)
        space = ObservationSpace.of(model.observation_space)
        actor, critics = _networks(model)
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


def check_estimates_original(lambda_: float, shaping: Shaping) -> None:
    """Refuse the critic of an agent that learns on a reshaped MDP whose values are not those of the original one."""
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


# From a model to its networks ----------------------------------------------------------------------------------------


def _check_policy(model: BaseAlgorithm) -> None:
    from stable_baselines3.common.preprocessing import is_image_space

    if type(model.policy) is not model.policy_aliases.get("MlpPolicy"):
        raise HeuristicError(
            f"the agent's policy is of class {type(model.policy).__name__}, and only the critics of MlpPolicy "
            "agents can be taken over: fit a heuristic to data of its policy instead"
        )
    if is_image_space(model.observation_space):
        raise HeuristicError(
            f"the agent's observations are images of shape {model.observation_space.shape}, and only critics over "
            "state vectors can be taken over: fit an ImageMonteCarloHeuristic to data of its policy instead"
        )


def _networks(model: BaseAlgorithm) -> tuple[Network | None, list[Network]]:
    """Return the actor, where the critics need one, and the critics."""
    policy: Any = model.policy
    if hasattr(policy, "vf_state"):
        return None, [_from_flax(policy.vf_state, policy, policy.net_arch_vf)]
    if hasattr(policy, "actor_state"):
        return _flax_actor_and_critics(policy)
    if hasattr(policy, "qf_state"):
        return None, [_from_flax(policy.qf_state, policy, [policy.n_units] * 2)]
    if hasattr(policy, "value_net"):
        _check_features(policy.vf_features_extractor)
        return None, [_from_torch([*policy.mlp_extractor.value_net, policy.value_net])]
    if hasattr(policy, "critic"):
        return _torch_actor_and_critics(policy)
    if hasattr(policy, "q_net"):
        _check_features(policy.q_net.features_extractor)
        return None, [_from_torch(policy.q_net.q_net)]
    if hasattr(policy, "quantile_net"):
        _check_features(policy.quantile_net.features_extractor)
        return None, [_mean_of_quantiles(_from_torch(policy.quantile_net.quantile_net), policy.n_quantiles)]
    raise HeuristicError(
        f"{type(model).__name__} has no critic: take an agent of PPO, A2C, TRPO, DQN, QR-DQN, SAC, TQC, CrossQ, TD3 "
        "or DDPG"
    )


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
    return replace(network, layers=(*layers, _single(weight * factor, bias * factor)))


def _mean_of_quantiles(network: Network, quantiles: int) -> Network:
    """Return the network whose outputs are the means over quantiles: a mean of outputs is one of a layer's columns."""
    *layers, (weight, bias) = network.layers
    last = weight.reshape(len(weight), quantiles, -1).mean(axis=1), bias.reshape(quantiles, -1).mean(axis=0)
    return replace(network, layers=(*layers, _single(*last)))


def _single(weight: Array, bias: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return weight.astype(np.float32), bias.astype(np.float32)


@dataclass(frozen=True)
class _Affine:
    """x ↦ x·scale + shift: what a normalising layer does in evaluation."""

    scale: Array
    shift: Array

    @classmethod
    def of(cls, mean: Any, variance: Any, scale: Any, bias: Any, epsilon: float) -> _Affine:
        factor = np.asarray(scale, np.float64) / np.sqrt(np.asarray(variance, np.float64) + epsilon)
        return cls(factor, np.asarray(bias) - np.asarray(mean) * factor)

    def before(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Return the layer that does this and then its own."""
        return self.scale[:, None] * weight, bias + self.shift @ weight


# Torch: Stable-Baselines3 and sb3-contrib ----------------------------------------------------------------------------


def _torch_actor_and_critics(policy: Any) -> tuple[Network, list[Network]]:
    _check_features(policy.actor.features_extractor)
    _check_features(policy.critic.features_extractor)
    if getattr(policy.actor, "use_sde", False):
        raise HeuristicError(
            "the agent explores with gSDE (use_sde), whose actor's means are cut off, and that can't be taken over: "
            "fit a heuristic to data of its policy instead"
        )
    if hasattr(policy.actor, "latent_pi"):
        actor = _from_torch([*policy.actor.latent_pi, policy.actor.mu])
    else:
        actor = _from_torch(policy.actor.mu[:-1])  # the last is the tanh that all actors end in
    critics = [_from_torch(network) for network in policy.critic.q_networks]
    quantiles = getattr(policy.critic, "n_quantiles", 1)
    return actor, [_mean_of_quantiles(critic, quantiles) for critic in critics]


def _check_features(extractor: Any) -> None:
    from stable_baselines3.common.torch_layers import FlattenExtractor

    if type(extractor) is not FlattenExtractor:
        raise HeuristicError(
            f"the agent's observations pass through a {type(extractor).__name__}, and only critics over flat "
            "observations can be taken over: fit a heuristic to data of its policy instead"
        )


def _from_torch(modules: Iterable[Any]) -> Network:
    """Return linear layers with one kind of activation in between, batch normalisation folded into them."""
    from sb3_contrib.common.torch_layers import BatchRenorm
    from torch import nn

    names: dict[type[nn.Module], Activation] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
    layers, activation = [], None
    normalising: _Affine | None = None
    for module in modules:
        arrays = {name: tensor.detach().cpu().double().numpy() for name, tensor in module.state_dict().items()}
        if type(module) is nn.Linear:
            layer = arrays["weight"].T, arrays["bias"]
            layers.append(_single(*(normalising.before(*layer) if normalising else layer)))
            normalising = None
        elif isinstance(module, BatchRenorm):
            normalising = _Affine.of(arrays["ra_mean"], arrays["ra_var"], arrays["scale"], arrays["bias"], module.eps)
        elif type(module) in names:
            activation = names[type(module)]
        else:
            raise _unknown_layer(type(module).__name__)
    return Network(tuple(layers), activation or "tanh")


# Flax: SBX -----------------------------------------------------------------------------------------------------------


def _flax_actor_and_critics(policy: Any) -> tuple[Network, list[Network]]:
    if policy.dropout_rate:
        raise HeuristicError(
            f"the agent's critics drop units at random (dropout_rate={policy.dropout_rate}), so that they have no "
            "one value: fit a heuristic to data of its policy instead"
        )
    actor = _from_flax(policy.actor_state, policy, policy.net_arch_pi, getattr(policy, "batch_norm_actor", False))
    if hasattr(policy, "qf1_state"):
        pair = [_from_flax(state, policy, policy.net_arch_qf) for state in (policy.qf1_state, policy.qf2_state)]
        return actor, [_mean_of_quantiles(critic, policy.n_quantiles) for critic in pair]
    batch_norm = getattr(policy, "batch_norm", False)
    critics = [
        _from_flax(policy.qf_state, policy, policy.net_arch_qf, batch_norm, member)
        for member in range(policy.n_critics)
    ]
    return actor, critics


def _from_flax(
    state: Any, policy: Any, hidden: Sequence[int], batch_norm: bool = False, member: int | None = None
) -> Network:
    """Return the first dense layers of a module, batch normalisation folded into them.

    :param hidden: widths of the hidden layers; an actor's next dense layer is the mean, the one after it the deviation
    :param member: which of several critics, whose arrays are stacked
    """
    arrays: Mapping[str, Any] = state.params.get("params", state.params)
    statistics: Mapping[str, Any] = state.batch_stats if batch_norm else {}
    if member is not None:
        arrays, statistics = _member(arrays, member), _member(statistics, member)
    for name in arrays:
        if name.rsplit("_", 1)[0] not in ("Dense", "BatchRenorm", "log_std"):
            raise _unknown_layer(name.rsplit("_", 1)[0])
    layers = []
    for index in range(len(hidden) + 1):
        layer = tuple(np.asarray(arrays[f"Dense_{index}"][name], np.float64) for name in ("kernel", "bias"))
        if batch_norm:
            running, learnt = statistics[f"BatchRenorm_{index}"], arrays[f"BatchRenorm_{index}"]
            normalising = _Affine.of(
                running["mean"], running["var"], learnt["scale"], learnt["bias"], BATCH_RENORM_EPSILON
            )
            layer = normalising.before(*layer)
        layers.append(_single(*layer))
    return Network(tuple(layers), _flax_activation(policy.activation_fn))


def _member(stacked: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """Return the arrays of one critic, of a tree that holds one module for all of them."""
    import jax

    tree: Mapping[str, Any] = jax.tree.map(lambda array: array[index], next(iter(stacked.values()), {}))
    return tree


def _flax_activation(function: Any) -> Activation:
    import flax.linen as nn

    if function is nn.tanh:
        return "tanh"
    if function is nn.relu:
        return "relu"
    raise _unknown_layer(getattr(function, "__name__", repr(function)))


def _unknown_layer(name: str) -> HeuristicError:
    return HeuristicError(
        f"the agent's networks have {name} layers, and only linear layers with tanh or relu in between can be taken "
        "over: fit a heuristic to data of its policy instead"
    )
