"""Actors and critics of Stable-Baselines3, sb3-contrib and SBX as networks of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import HeuristicError
from hurl.heuristics.network import Activation, Network

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["networks_of"]

Array = NDArray[Any]
BATCH_RENORM_EPSILON = 1e-3  # SBX keeps it at its default


def networks_of(model: BaseAlgorithm) -> tuple[Network | None, list[Network]]:
    """Return the actor of an agent with an MlpPolicy, where its critics need one, and the critics.

    Quantiles are averaged, and batch normalisation is folded into the layers.
    """
    _check_policy(model)
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
    import flax.linen

    if function is flax.linen.tanh:
        return "tanh"
    if function is flax.linen.relu:
        return "relu"
    raise _unknown_layer(getattr(function, "__name__", repr(function)))


def _unknown_layer(name: str) -> HeuristicError:
    return HeuristicError(
        f"the agent's networks have {name} layers, and only linear layers with tanh or relu in between can be taken "
        "over: fit a heuristic to data of its policy instead"
    )
