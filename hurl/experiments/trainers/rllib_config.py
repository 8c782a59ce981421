"""From a run's configuration to RLlib's."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from ray.rllib import algorithms
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from hurl.experiments.config import EnvironmentConfig, RunConfig
from hurl.experiments.errors import ConfigurationError
from hurl.guidance import Guidance, HeuristicError
from hurl.heuristics.engineered import zero
from hurl.names import nearest
from hurl.rllib import guided
from hurl.rllib.guided import ALGORITHMS, replays
from hurl.rllib.modules import ImpalaCNNModule
from hurl.rllib.vector_env import on_envpool
from hurl.schedules import ConstantSchedule

EPISODE_RETURNS = "hurl_episode_returns"

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
# RLlib imports and calls whatever a text names as a replay buffer's `type`: a class of any module, or a file's.
BUFFERS = ("EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer")
EPISODES_BETWEEN_RESULTS = 1_000_000


def configure(config: RunConfig) -> AlgorithmConfig:
    """Return RLlib's configuration of a run, without its seed and its guidance."""
    # warnings of the stack that RLlib had before, and of what the configuration does not set
    for name in ("ray", "ray.rllib"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.ERROR)
    rllib_config = _default_config(config.algorithm.name)
    parameters = deepcopy(config.algorithm.parameters)
    demand = config.algorithm.demand
    _check_parameters(config)
    groups = {name: parameters.pop(name, {}) for name in GROUPS}
    model_config = parameters.pop(MODEL_CONFIG, None)
    if not replays(rllib_config):
        parameters = {
            "train_batch_size_per_learner": config.steps_per_iteration // max(1, demand.learners)
        } | parameters
    runners = max(1, demand.env_runners)
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
    if not replays(rllib_config):
        _check_batch(rllib_config, config.steps_per_iteration)
    return _with_model(rllib_config, config.algorithm.policy, model_config)


@contextmanager
def refusals(config: RunConfig) -> Iterator[None]:
    """Tell what RLlib refuses as an error in the configuration."""
    try:
        yield
    except (ConfigurationError, HeuristicError):
        raise
    except (TypeError, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"{config.algorithm.name} on {config.environment.id} can't be built: {reason}"
        ) from error


def check_run(config: RunConfig) -> None:
    """Refuse a run that RLlib could not be configured for."""
    with refusals(config):
        configure(config)


def _check_batch(rllib_config: AlgorithmConfig, steps_per_iteration: int) -> None:
    """Refuse a train batch that would make iterations longer than the configuration says."""
    batch = rllib_config.total_train_batch_size
    if batch < 1 or steps_per_iteration % batch:
        raise ConfigurationError(
            f"steps_per_iteration={steps_per_iteration} must be a multiple of the train batch of all learners, {batch} "
            "steps: leave train_batch_size_per_learner out, or change one of the two"
        )


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
    """Refuse parameters that the algorithm does not have, and values that could be more than values."""
    name, parameters = config.algorithm.name, config.algorithm.parameters
    _check_known(name, "", parameters, known_parameters(name))
    for group, arguments in GROUPS.items():
        _check_known(name, f"{group}.", parameters.get(group, {}), arguments)
    for key, value in parameters.items():
        _check_plain(key, value)


def _check_plain(path: str, value: Any) -> None:
    """Refuse all but numbers, words, and lists and mappings of them, so that a configuration can't name code to RLlib.

    :param path: the value's keys, dotted
    """
    if isinstance(value, dict):
        for key, part in value.items():
            _check_plain(f"{path}.{key}", part)
    elif isinstance(value, list):
        for part in value:
            _check_plain(path, part)
    elif path.endswith(".type"):
        if value not in BUFFERS:
            raise ConfigurationError(f"algorithm.parameters.{path}: must be {' or '.join(BUFFERS)}, got {value!r}")
    elif not (value is None or isinstance(value, bool | int | float) or _is_word(value)):
        raise ConfigurationError(
            f"algorithm.parameters.{path}: must be a number or a word such as relu, got {value!r}; classes and "
            "functions are given in Python, with hurl.rllib.guided()"
        )


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


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
    """Report the return of an episode, all of its chunks together."""
    total = sum(float(chunk.get_return()) for chunk in (*prev_episode_chunks, episode))
    metrics_logger.log_value(EPISODE_RETURNS, total, reduce="item_series", window=EPISODES_BETWEEN_RESULTS)
