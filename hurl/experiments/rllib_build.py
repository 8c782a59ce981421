"""From a configuration to an algorithm of RLlib, and to the policy of one of its checkpoints."""

from __future__ import annotations

import hurl.rllib  # noqa: F401 - first, for it says how to install Ray where it is missing

# isort: split
import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib import algorithms
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.config import ConfigurationError, EnvironmentConfig, RunConfig
from hurl.guidance import Guidance, HeuristicError
from hurl.heuristics.engineered import zero
from hurl.names import nearest
from hurl.rllib import guided
from hurl.rllib.modules import ImpalaCNNModule
from hurl.rllib.vector_env import on_envpool
from hurl.schedules import ConstantSchedule

__all__ = [
    "EPISODE_LENGTHS",
    "EPISODE_RETURNS",
    "RLlibPolicy",
    "build_algorithm",
    "configure",
    "known_parameters",
]

EPISODE_RETURNS, EPISODE_LENGTHS = "hurl_episode_returns", "hurl_episode_lengths"

ALGORITHMS = ("PPO", "SAC", "DQN")
POLICIES = ("MlpPolicy", "ImpalaCNN")
# Parameters that are not arguments of `.training()`, under the names of the methods that they are arguments of.
GROUPS = {
    "env_runners": ("num_env_runners", "rollout_fragment_length", "batch_mode", "sample_timeout_s"),
    "learners": ("num_learners", "num_gpus_per_learner"),
}
MODEL_CONFIG = "model_config"
# Arguments of `.training()` that the configuration sets elsewhere, or that only code can give.
NOT_FOR_USERS = (
    "train_batch_size",
    "model",
    "learner_class",
    "learner_connector",
    "learner_config_dict",
    "add_default_connectors_to_learner_pipeline",
)
EPISODES_BETWEEN_RESULTS = 1_000_000


def configure(config: RunConfig, seed: int) -> AlgorithmConfig:
    """Return RLlib's configuration of a run, without its guidance; what RLlib refuses is an error in the run's."""
    with _refusals(config):
        rllib_config = _configure(config).debugging(seed=seed, log_level="ERROR")
        rllib_config.validate()
    return rllib_config


def build_algorithm(config: RunConfig, rllib_config: AlgorithmConfig) -> Algorithm:
    """Make the run's algorithm from its configuration, with fresh weights; Ray must have been started."""
    with _refusals(config):
        return rllib_config.build_algo()


@contextmanager
def _refusals(config: RunConfig) -> Iterator[None]:
    try:
        yield
    except (ConfigurationError, HeuristicError):
        raise
    except (TypeError, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"{config.algorithm.name} on {config.environment.id} can't be built: {reason}"
        ) from error


# The configuration ---------------------------------------------------------------------------------------------------


def _configure(config: RunConfig) -> AlgorithmConfig:
    """Return RLlib's configuration of the run, without its seed and its guidance."""
    # warnings of the stack that RLlib had before, and of what the configuration does not set
    for name in ("ray", "ray.rllib"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.ERROR)
    _check_keys(config)
    rllib_config = _default_config(config.algorithm.name)
    parameters = deepcopy(config.algorithm.parameters)
    _check_parameters(config)
    groups = {name: parameters.pop(name, {}) for name in GROUPS}
    model_config = parameters.pop(MODEL_CONFIG, None)
    if isinstance(rllib_config, PPOConfig):
        batch = config.steps_per_iteration // max(1, config.algorithm.learners)
        parameters = {"train_batch_size_per_learner": batch} | parameters
    runners = max(1, config.algorithm.env_runners)
    if config.environment.n_envs % runners:
        raise ConfigurationError(
            f"environment.n_envs={config.environment.n_envs} must be a multiple of num_env_runners={runners}, "
            "which share the environments"
        )
    rllib_config = _on_environment(rllib_config, config.environment, threads=max(1, config.threads // runners))
    rllib_config.training(gamma=config.gamma, **parameters)
    rllib_config.env_runners(num_envs_per_env_runner=config.environment.n_envs // runners, num_env_runners=0)
    rllib_config.env_runners(**groups["env_runners"]).learners(**groups["learners"])
    rllib_config.reporting(min_sample_timesteps_per_iteration=config.steps_per_iteration, min_time_s_per_iteration=0)
    rllib_config.callbacks(on_episode_end=_log_episode)
    if isinstance(rllib_config, PPOConfig):
        _check_batch(rllib_config, config.steps_per_iteration)
    return _with_model(rllib_config, config.algorithm.policy, model_config)


def _check_batch(rllib_config: PPOConfig, steps_per_iteration: int) -> None:
    """Refuse a train batch that would make iterations longer than the configuration says."""
    batch = rllib_config.total_train_batch_size
    if batch < 1 or steps_per_iteration % batch:
        raise ConfigurationError(
            f"steps_per_iteration={steps_per_iteration} must be a multiple of the train batch of all learners, {batch} "
            "steps: leave train_batch_size_per_learner out, or change one of the two"
        )


def _check_keys(config: RunConfig) -> None:
    """Refuse what only runs of Stable-Baselines3 know."""
    name = config.algorithm.name
    for key, value in (
        ("warm_start", config.warm_start),
        ("updates_per_iteration", config.updates_per_iteration),
        ("algorithm.action_noise", config.algorithm.action_noise),
    ):
        if value is not None:
            raise ConfigurationError(f"{key} is for algorithms of Stable-Baselines3 and SBX: leave it out for {name}")


def _default_config(name: str) -> AlgorithmConfig:
    """Return RLlib's own configuration of the algorithm that `rllib.PPO` names, one that can be guided."""
    class_name = name.partition(".")[2]
    kind = getattr(algorithms, f"{class_name}Config", None)
    if kind is None:
        hint = nearest(class_name, ALGORITHMS) or f"; take {', '.join(ALGORITHMS)}"
        raise ConfigurationError(f"RLlib has no algorithm {class_name!r}{hint}")
    config: AlgorithmConfig = kind()
    try:
        guided(config, Guidance(zero, ConstantSchedule(1.0), gamma=config.gamma))
    except ValueError as error:
        raise ConfigurationError(f"algorithm.name {name!r}: {error}") from None
    return config


def _check_parameters(config: RunConfig) -> None:
    """Refuse parameters that the algorithm does not have."""
    name, parameters = config.algorithm.name, config.algorithm.parameters
    for key in parameters:
        if key in ("gamma", "seed"):
            raise ConfigurationError(f"set {key!r} at the top of the configuration, not in algorithm.parameters")
    _check_known(name, "", parameters, known_parameters(name))
    for group, arguments in GROUPS.items():
        _check_known(name, f"{group}.", config.algorithm.group(group), arguments)


def known_parameters(name: str) -> list[str]:
    """Return the parameters of an algorithm, `rllib.PPO`."""
    return [*_training_arguments(type(_default_config(name))), *GROUPS, MODEL_CONFIG]


def _check_known(name: str, prefix: str, given: Iterable[str], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise ConfigurationError(f"{name} has no parameter {prefix + key!r}{nearest(key, known)}")


def _training_arguments(kind: type[AlgorithmConfig]) -> list[str]:
    """Return the arguments of `.training()`, whose classes hand those of their bases on."""
    methods = [vars(base)["training"] for base in kind.__mro__ if "training" in vars(base)]
    names = {
        name
        for method in methods
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default != "__deprecated__"
    }
    return sorted(names - {"gamma", *NOT_FOR_USERS})


def _on_environment(rllib_config: AlgorithmConfig, environment: EnvironmentConfig, *, threads: int) -> AlgorithmConfig:
    """Return the configuration with the run's environments: EnvPool's where it has the id, or else Gymnasium's."""
    import envpool

    in_envpool = environment.id in envpool.list_all_envs()
    if environment.backend == "envpool" or (environment.backend == "auto" and in_envpool):
        return on_envpool(rllib_config, environment.id, threads=threads, **environment.options)
    return rllib_config.environment(environment.id, env_config=environment.options)


def _with_model(rllib_config: AlgorithmConfig, policy: str, model_config: Any) -> AlgorithmConfig:
    """Return the configuration with the model that a policy names."""
    if policy not in POLICIES:
        raise ConfigurationError(
            f"algorithm.policy {policy!r} must be one of {', '.join(POLICIES)} for algorithms of RLlib"
        )
    if policy == "ImpalaCNN":
        rllib_config.rl_module(rl_module_spec=RLModuleSpec(module_class=ImpalaCNNModule))
    return rllib_config.rl_module(model_config=model_config) if model_config is not None else rllib_config


def _log_episode(
    *,
    episode: SingleAgentEpisode,
    prev_episode_chunks: Sequence[SingleAgentEpisode] = (),
    metrics_logger: MetricsLogger,
    **_: Any,
) -> None:
    """Report the return and the length of an episode, all of its chunks together."""
    total = sum(float(chunk.get_return()) for chunk in (*prev_episode_chunks, episode))
    # PPO's learner lengthens earlier chunks by a step without reward, so that their lengths would not add up
    for key, value in ((EPISODE_RETURNS, total), (EPISODE_LENGTHS, episode.t)):
        metrics_logger.log_value(key, value, reduce="item_series", window=EPISODES_BETWEEN_RESULTS)


# A policy to roll out ------------------------------------------------------------------------------------------------


class RLlibPolicy:
    """The policy of an RLlib run, to be rolled out in environments of Stable-Baselines3's kind; no Ray is started.

    :param config: the run's; its heuristic is not needed
    :param env: where it is to act
    """

    def __init__(self, config: RunConfig, env: VecEnv) -> None:
        self.config = _configure(config)
        self.action_space = env.action_space
        spaces = {DEFAULT_MODULE_ID: (env.observation_space, env.action_space)}
        self.module = self.config.get_rl_module_spec(spaces=spaces, inference_only=True).build()
        self.steps = 0

    def load(self, weights: Mapping[str, torch.Tensor], steps: int) -> None:
        """Take the weights of a checkpoint.

        :param steps: environment steps before it, which exploration may depend on
        """
        self.module.load_state_dict({name: weights[name] for name in self.module.state_dict()})
        self.steps = steps

    def predict(
        self, observations: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], None]:
        """Return the actions for a batch of observations, as the environments take them, and no memory."""
        tensor = torch.as_tensor(np.asarray(observations))
        batch = {Columns.OBS: tensor.float() if tensor.dtype == torch.float64 else tensor}
        with torch.no_grad():
            actions = self._infer(batch) if deterministic else self._explore(batch)
        convert = unsquash_action if self.config.normalize_actions else clip_action
        return np.asarray(convert(actions.numpy(), self.action_space)), None

    def _infer(self, batch: dict[str, Any]) -> torch.Tensor:
        outputs = self.module.forward_inference(batch)
        if Columns.ACTIONS in outputs:
            return torch.as_tensor(outputs[Columns.ACTIONS])
        distribution = self.module.get_inference_action_dist_cls().from_logits(outputs[Columns.ACTION_DIST_INPUTS])
        return torch.as_tensor(distribution.to_deterministic().sample())

    def _explore(self, batch: dict[str, Any]) -> torch.Tensor:
        outputs = self.module.forward_exploration(batch, t=self.steps)
        if Columns.ACTIONS in outputs:
            return torch.as_tensor(outputs[Columns.ACTIONS])
        distribution = self.module.get_exploration_action_dist_cls().from_logits(outputs[Columns.ACTION_DIST_INPUTS])
        return torch.as_tensor(distribution.sample())
