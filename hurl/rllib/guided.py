"""`guided(config, guidance)`: the paper's Algorithm 1 around an algorithm of RLlib."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.utils import force_list
from ray.rllib.utils.metrics import LEARNER_RESULTS

from hurl.guidance import Guidance
from hurl.rllib.learner import GUIDANCE_KEY, guided_learner, observe_samples


@dataclass(frozen=True)
class GuidableAlgorithm:
    """An algorithm of RLlib that can be guided.

    :param config: the class of its configuration
    :param replays: whether it learns from a replay buffer, and not from the newest episodes alone
    """

    config: type[AlgorithmConfig]
    replays: bool


ALGORITHMS = {
    "PPO": GuidableAlgorithm(PPOConfig, replays=False),
    "SAC": GuidableAlgorithm(SACConfig, replays=True),
    "DQN": GuidableAlgorithm(DQNConfig, replays=True),
}


def guided(config: AlgorithmConfig, guidance: Guidance) -> AlgorithmConfig:
    """Return the configuration with guidance in it: one of `ALGORITHMS` on the reshaped MDP.

        config = PPOConfig().environment("CartPole-v1").training(gamma=0.99)
        algorithm = hurl.rllib.guided(config, guidance).build_algo()

    `train`, `save_to_path`, `from_checkpoint`, Tune and the rest work as ever; λ advances with the environment steps
    sampled, and is in the results with γ̃ and h, under `learners/default_policy/guidance_…` (h of algorithms that replay
    under `env_runners/guidance_h_…`). With λ = 1 it is the algorithm itself.

    :param config: for one agent, on RLlib's new API stack; it is copied, not changed
    """
    _check(config, guidance)
    guided_config = config.copy(copy_frozen=False)
    learner = guided_learner(config.learner_class, replays=replays(config))
    guided_config.learners(learner_class=learner, learner_config_dict={GUIDANCE_KEY: guidance})
    guided_config.callbacks(on_train_result=[*force_list(config.callbacks_on_train_result), tell_of_no_samples])
    if replays(config):
        callbacks = [*force_list(config.callbacks_on_sample_end), observe_samples]
        guided_config.callbacks(on_sample_end=callbacks)
    return guided_config


def tell_of_no_samples(*, algorithm: Any, result: dict[str, Any], **_: Any) -> None:
    """Warn of an iteration in which nothing was sampled or learnt: RLlib then leaves `learners` out of the results."""
    if LEARNER_RESULTS not in result and not replays(algorithm.config):  # which sample for a while before they learn
        warnings.warn(
            f"no env runner was done within sample_timeout_s={algorithm.config.sample_timeout_s}: the iteration has no "
            f"samples, and its results have no {LEARNER_RESULTS!r}; give env runners longer with "
            ".env_runners(sample_timeout_s=…), or let fewer run at a time",
            stacklevel=2,
        )


def replays(config: AlgorithmConfig) -> bool:
    """Whether a configuration is of an algorithm that learns from a replay buffer."""
    return any(isinstance(config, found.config) and found.replays for found in ALGORITHMS.values())


def _check(config: AlgorithmConfig, guidance: Guidance) -> None:
    if not isinstance(config, AlgorithmConfig):
        raise TypeError(f"guided() takes a configuration of RLlib, such as PPOConfig(), got {config!r}")
    if not isinstance(guidance, Guidance):
        raise TypeError(f"guided() takes a hurl.Guidance, got {guidance!r}")
    name = type(config).__name__.removesuffix("Config")
    *others, last = ALGORITHMS
    remedy = f"take {', '.join(others)} or {last}"
    if isinstance(config, IMPALAConfig):
        raise ValueError(
            f"{name} can't be guided: its batches wait in queues between the reshaping of rewards and the loss, so "
            f"that the two would use different λ; {remedy}"
        )
    configs = tuple(algorithm.config for algorithm in ALGORITHMS.values())
    if not isinstance(config, configs) or isinstance(config, CQLConfig):
        raise ValueError(f"{name} can't be guided: {remedy}")
    if not config.enable_rl_module_and_learner or not config.enable_env_runner_and_connector_v2:
        raise ValueError(f"{name} is configured for RLlib's old API stack, which can't be guided: leave api_stack out")
    if config.is_multi_agent:
        raise ValueError("a multi-agent configuration can't be guided: h is a function of one agent's observations")
    if not config.add_default_connectors_to_learner_pipeline:
        raise ValueError("guidance needs RLlib's own learner connectors: leave add_default_connectors_to_… as it is")
    if config.gamma != guidance.gamma:
        raise ValueError(
            f"gamma is {config.gamma!r} for {name} and {guidance.gamma!r} for its guidance: "
            f"set .training(gamma={guidance.gamma!r})"
        )
    if guidance.bandit is not None:
        raise ValueError(
            f"{guidance.schedule} can't be had with RLlib: its learners and env runners are processes with one network "
            "each, where every rung needs its own; give the guidance a schedule, such as ConstantSchedule(0.95)"
        )
    n_step = getattr(config, "n_step", 1)
    if n_step != 1:
        raise ValueError(
            f"n_step={n_step!r} can't be guided: RLlib's replay buffer sums rewards before they can be reshaped; "
            "set .training(n_step=1)"
        )
