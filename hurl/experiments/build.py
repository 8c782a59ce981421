"""From a configuration to what it names: the algorithm, the heuristic, the environments, the model."""

from __future__ import annotations

import inspect
from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from hurl.envs import make_env
from hurl.experiments.config import ConfigurationError, GuidanceConfig, RunConfig
from hurl.guidance import Guidance, Heuristic, HeuristicError
from hurl.heuristics import storage
from hurl.names import nearest
from hurl.sb3 import guided

__all__ = [
    "build_environment",
    "build_guidance",
    "build_model",
    "find_algorithm",
    "find_heuristic",
    "resolve_policy_kwargs",
]

LIBRARIES = {"sb3": "stable_baselines3", "contrib": "sb3_contrib", "sbx": "sbx"}
NOT_RESUMABLE = ("replay_buffer_class", "rollout_buffer_class", "optimize_memory_usage", "use_sde", "target_kl")
ACTIVATIONS = ("relu", "tanh", "elu", "gelu", "silu")


def build_environment(config: RunConfig, n_envs: int, seed: int) -> VecEnv:
    """Make the run's environments."""
    environment = config.environment
    return make_env(
        environment.id, n_envs, seed, backend=environment.backend, threads=config.threads, **environment.options
    )


def build_model(config: RunConfig, env: VecEnv) -> BaseAlgorithm:
    """Make the run's model, guided where the configuration has guidance, with fresh weights from its seed.

    A run of no iterations is guided by nothing, and needs no heuristic.
    """
    algorithm = find_algorithm(config.algorithm.name)
    parameters = _parameters(config, algorithm)
    if config.algorithm.action_noise is not None:
        shape = env.action_space.shape or ()
        parameters["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, config.algorithm.action_noise))
    if config.guidance is not None and config.iterations:
        algorithm = guided(algorithm)
        parameters["guidance"] = build_guidance(config.guidance, config, env)
    model: BaseAlgorithm = algorithm(config.algorithm.policy, env, gamma=config.gamma, seed=config.seed, **parameters)
    return model


def find_algorithm(name: str) -> type[Any]:
    """Return the class that `sbx.SAC`, `sb3.PPO` or `contrib.TQC` names."""
    library, _, class_name = name.partition(".")
    if library == "rllib":
        raise ConfigurationError(f"{name!r} is of RLlib, where an algorithm of {', '.join(LIBRARIES)} is needed")
    if library not in LIBRARIES:
        raise ConfigurationError(
            f"algorithm.name {name!r} must begin with one of {', '.join(LIBRARIES)} and a dot, "
            "or be of RLlib, such as rllib.PPO"
        )
    module = import_module(LIBRARIES[library])
    names = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, BaseAlgorithm)]
    if class_name not in names:
        raise ConfigurationError(f"{LIBRARIES[library]} has no algorithm {class_name!r}{nearest(class_name, names)}")
    algorithm: type[Any] = getattr(module, class_name)
    return algorithm


def find_heuristic(name: str, env: VecEnv, gamma: float) -> Heuristic:
    """Return the heuristic that a configuration names: `module:function`, or the folder of one that was saved.

    :param env: the environments it is for
    :param gamma: the discount it is for
    """
    try:
        return storage.find_heuristic(name, env.observation_space, gamma)
    except HeuristicError:  # of a heuristic that was found, and does not suit
        raise
    except ValueError as error:
        raise ConfigurationError(f"guidance.heuristic: {error}") from None


def build_guidance(guidance: GuidanceConfig, config: RunConfig, env: VecEnv) -> Guidance:
    """Make the run's guidance, its heuristic checked against the environments."""
    assert isinstance(guidance.heuristic, str)  # `train` refuses what must be fitted first
    return Guidance(
        find_heuristic(guidance.heuristic, env, config.gamma),
        guidance.schedule.build(config.iterations),
        gamma=config.gamma,
        steps_per_iteration=config.steps_per_iteration,
        shaping=guidance.shaping,
    )


def _parameters(config: RunConfig, algorithm: type[Any]) -> dict[str, Any]:
    """Return the arguments of the algorithm: those of the configuration, checked, and the iteration's batch sizes."""
    parameters = deepcopy(config.algorithm.parameters)  # algorithms write into what they are given
    known = inspect.signature(algorithm).parameters
    for key in parameters:
        if key in ("gamma", "seed"):
            raise ConfigurationError(f"set {key!r} at the top of the configuration, not in algorithm.parameters")
        if key in NOT_RESUMABLE:
            raise ConfigurationError(
                f"a run with {key!r} could not be resumed exactly: leave it out of algorithm.parameters, "
                "or train in Python with hurl.guided()"
            )
        if key not in known:
            raise ConfigurationError(f"{config.algorithm.name} has no parameter {key!r}{nearest(key, known)}")
    if "policy_kwargs" in parameters:
        parameters["policy_kwargs"] = resolve_policy_kwargs(parameters["policy_kwargs"], config.algorithm.name)
    return _batches(config, algorithm, parameters) | parameters


def _batches(config: RunConfig, algorithm: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that make one iteration one batch of data, and the updates that follow it."""
    steps_each = config.steps_per_iteration // config.environment.n_envs
    if not issubclass(algorithm, OffPolicyAlgorithm):
        if config.updates_per_iteration is not None:
            raise ConfigurationError(
                f"updates_per_iteration is for off-policy algorithms: leave it out for {config.algorithm.name} "
                "and set n_epochs in algorithm.parameters"
            )
        _check_divides("n_steps", parameters.get("n_steps", steps_each), steps_each)
        return {"n_steps": steps_each}
    if config.updates_per_iteration is None:
        _check_divides("train_freq", parameters.get("train_freq", 1), steps_each)
        return {}
    for key in ("train_freq", "gradient_steps"):
        if key in parameters:
            raise ConfigurationError(f"updates_per_iteration sets {key!r} already: leave one of the two out")
    return {"train_freq": (steps_each, "step"), "gradient_steps": config.updates_per_iteration}


def _check_divides(name: str, value: Any, steps_each: int) -> None:
    """Refuse rollouts that do not add up to iterations."""
    if not isinstance(value, int) or steps_each % value:
        raise ConfigurationError(
            f"{name}={value!r} must divide the steps of each environment in an iteration, "
            f"steps_per_iteration / n_envs = {steps_each}"
        )


def resolve_policy_kwargs(policy_kwargs: dict[str, Any], algorithm: str) -> dict[str, Any]:
    """Put the activation function in for its name."""
    name = policy_kwargs.get("activation_fn")
    if name is None:
        return policy_kwargs
    if name not in ACTIVATIONS:
        raise ConfigurationError(f"activation_fn {name!r} must be one of {', '.join(ACTIVATIONS)}")
    if algorithm.startswith("sbx."):
        function = getattr(import_module("flax.linen"), name)
    else:
        classes = {key.lower(): value for key, value in vars(import_module("torch.nn")).items()}
        function = classes[name]
    return policy_kwargs | {"activation_fn": function}
