"""Runs of RLlib's algorithms, resumed where they stopped.

An iteration is one call of RLlib's `train`, which samples until there are `steps_per_iteration` environment steps. At
a checkpoint's boundary every run, interrupted or not, is built anew from the checkpoint, with a seed derived from run
seed and iteration: so nothing of environments, samplers and random states needs saving.
"""

from __future__ import annotations

import hurl.rllib  # noqa: F401 - first, for it says how to install Ray where it is missing

# isort: split
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import ray
import torch
import tree
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    TIMERS,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv
from torch.utils.tensorboard import SummaryWriter

from hurl.experiments.checkpoint import (
    checkpoint_paths,
    read_replay,
    read_state,
    read_weights,
    reading,
    write_checkpoint,
    write_replay,
)
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import ConfigurationError, TrainingFailedError
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row
from hurl.experiments.ray_start import ray_here
from hurl.experiments.trainers.base import (
    TRAINING,
    build_environment,
    build_guidance,
    derive_seed,
    find_not_finite,
    guidance_columns,
    heuristic_columns,
)
from hurl.experiments.trainers.rllib_config import EPISODE_RETURNS, configure, refusals
from hurl.experiments.trainers.rllib_config import check_run as check_run
from hurl.experiments.trainers.rllib_config import known_parameters as known_parameters
from hurl.guidance import HeuristicStatistics
from hurl.rllib import guided
from hurl.rllib.learner import GuidedLearner
from hurl.sb3.internals import map_tensors

NEWEST_EPISODES = 100
HEURISTIC = ("h_mean", "h_min", "h_max")
# What learners adapt as they go, and RLlib's state of a learner leaves out: PPO's coefficient of the KL divergence,
# SAC's temperature, the step at which the target networks were updated.
ADAPTED = ("curr_kl_coeffs_per_module", "curr_log_alpha", "last_update_ts_by_mid")


def build_trainer(
    config: RunConfig, folder: RunFolder, checkpoint: Path | None = None, *, trust: bool = False
) -> RLlibTrainer:
    """Build the run's algorithm, with what a checkpoint holds where there is one."""
    return RLlibTrainer(config, folder, checkpoint, trust=trust)


class RLlibTrainer:
    """An algorithm of a run, see `Trainer`."""

    algorithm: Algorithm

    def __init__(self, config: RunConfig, folder: RunFolder, checkpoint: Path | None, *, trust: bool = False) -> None:
        torch.set_num_threads(config.threads)
        self.config, self.folder = config, folder
        self.iteration = self.steps = 0
        self.returns: deque[float] = deque(maxlen=NEWEST_EPISODES)
        self._losses: dict[str, float] = {}
        with closing(build_environment(config, 1, config.seed)) as env:  # which must exist
            self.guidance = build_guidance(config, env, folder, trust=trust)
            with refusals(config):
                self._policy = RLlibPolicy(config, env)
        self.events = SummaryWriter(str(folder.tensorboard))
        self.stack, self.running = ExitStack(), ExitStack()
        self.stack.callback(self.events.close)
        try:
            self.stack.enter_context(_ray_on_this_machine(config))
            if checkpoint is None:
                self.algorithm = self._build()
            else:
                self.load(checkpoint)
        except BaseException:
            self.stack.close()
            raise

    def _build(self) -> Algorithm:
        """Build the algorithm for what follows the present iteration, until `running` is closed."""
        with refusals(self.config):
            rllib_config = configure(self.config)
            if self.guidance is not None:
                rllib_config = guided(rllib_config, self.guidance)
            seed = derive_seed(self.config, TRAINING, self.iteration)
            rllib_config.debugging(seed=seed, log_level="ERROR").validate()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*Overriding environment")  # RLlib registers the same one each time
                algorithm = rllib_config.build_algo()
        buffer = getattr(algorithm, "local_replay_buffer", None)
        if buffer is not None:
            buffer.rng = np.random.default_rng(seed)
        # RLlib smooths its timers; logged as a sum before, this one is the time of all sampling in an iteration
        algorithm.metrics.log_value((TIMERS, ENV_RUNNER_SAMPLING_TIMER), 0.0, reduce="sum")
        self.running = self.stack.enter_context(ExitStack())
        self.running.callback(algorithm.stop)
        return algorithm

    @property
    def policy(self) -> PolicyPredictor:
        """The policy of the learner's weights."""
        weights = _learner_state(self.algorithm)[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
        self._policy.take(weights, self.steps)
        return self._policy

    @property
    def ended_by(self) -> str | None:
        """Nothing: callbacks are refused."""
        return None

    def clone(self, report: Callable[[int, float], None]) -> float:
        """Refuse it: there is no cloning into RLlib's modules."""
        raise ConfigurationError(f"warm_start is not for {self.config.algorithm.name}: leave it out")

    def iterate(self) -> dict[str, float]:
        """Let RLlib sample and learn."""
        if self.guidance is not None:
            self.algorithm.learner_group.foreach_learner(_begin_iteration, iteration=self.iteration + 1)
        began = perf_counter()
        try:
            results = self.algorithm.train()
        except RuntimeError as error:
            raise TrainingFailedError(f"training failed after iteration {self.iteration}: {error}") from error
        seconds = perf_counter() - began
        sampled, learnt = results[ENV_RUNNER_RESULTS], results.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {})
        self._losses = {name: float(value) for name, value in learnt.items() if name.endswith("loss")}
        self.iteration += 1
        self.steps = int(sampled[NUM_ENV_STEPS_SAMPLED_LIFETIME])
        # RLlib takes a single value out of its list
        self.returns.extend(float(value) for value in np.atleast_1d(sampled.get(EPISODE_RETURNS, [])))
        collecting = float(results[TIMERS][ENV_RUNNER_SAMPLING_TIMER])
        return {
            "steps": self.steps,
            "training_return": float(np.mean(self.returns)) if self.returns else np.nan,
            "seconds_collecting": collecting,
            "seconds_training": seconds - collecting,
            **self._guidance_columns(results),
        }

    def _guidance_columns(self, results: Mapping[str, Any]) -> dict[str, float]:
        """Return λ and γ̃ of the learners, and h of what has arrived: at them, or where they replay, at env runners."""
        if self.guidance is None:
            return guidance_columns(None, self.config.gamma)
        learners = [found.get() for found in self.algorithm.learner_group.foreach_learner(_read_guidance)]
        columns, sampled = dict(learners[0][0]), results[ENV_RUNNER_RESULTS]
        columns |= heuristic_columns(HeuristicStatistics.of_all([statistics for _, statistics in learners]))
        return columns | {
            name: float(sampled[f"guidance_{name}"]) for name in HEURISTIC if f"guidance_{name}" in sampled
        }

    def not_finite(self) -> str | None:
        """Look at the learners' parameters and optimisers, and at what they have logged of their losses."""
        found = (result.get() for result in self.algorithm.learner_group.foreach_learner(_find_not_finite))
        return find_not_finite(self._losses) or next(filter(None, found), None)

    def log(self, row: Row) -> None:
        """Write the figures of an iteration."""
        for tag, value in row.scalars().items():
            self.events.add_scalar(tag, value, row.steps)

    def save(self, iteration: int) -> None:
        """Write a checkpoint, and go on from it."""
        self.events.flush()
        learner = _learner_state(self.algorithm)
        weights = {
            "weights": learner[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID],
            "optimisers": map_tensors(learner[COMPONENT_OPTIMIZER], np.asarray),
            "adapted": next(iter(self.algorithm.learner_group.foreach_learner(_read_adapted))).get(),
        }
        state = {
            "counters": {"steps": self.steps},
            "returns": list(self.returns),
            "replay": _save_replay(self.folder, self.algorithm, iteration),
        }
        path = write_checkpoint(self.folder, iteration, state, weights)
        if iteration < self.config.iterations:
            self.load(path)

    def load(self, checkpoint: Path) -> None:
        """Build the algorithm anew with what a checkpoint holds."""
        state, stored = read_state(checkpoint), read_weights(checkpoint)
        with reading(checkpoint):
            self.iteration, self.steps = state["iteration"], int(state["counters"]["steps"])
            self.returns = deque(map(float, state["returns"]), maxlen=NEWEST_EPISODES)
        self.running.close()
        self.algorithm = self._build()
        with reading(checkpoint):
            _set_learner_state(self.algorithm, stored)
            if state["replay"] is not None:
                _load_replay(self.folder, self.algorithm, state["replay"])
        _count_steps(self.algorithm, self.steps)
        self.algorithm.learner_group.foreach_learner(_move_schedules, steps=self.steps)
        set_random_seed(derive_seed(self.config, TRAINING, self.iteration))

    def close(self) -> None:
        """End the algorithm, and Ray where it was started for the run."""
        self.stack.close()


@contextmanager
def _ray_on_this_machine(config: RunConfig) -> Iterator[None]:
    """Start Ray for the run alone, unless the process has one."""
    if ray.is_initialized():
        yield
        return
    with ray_here(config.cores):
        yield


def _begin_iteration(learner: GuidedLearner, iteration: int) -> None:
    learner.begin_iteration(iteration)


def _read_guidance(learner: GuidedLearner) -> tuple[dict[str, float], HeuristicStatistics]:
    guidance = learner.guidance
    return {"lambda_": guidance.lambda_, "discount": guidance.discount}, guidance.statistics


# The learner ---------------------------------------------------------------------------------------------------------


def _learner_state(algorithm: Algorithm) -> dict[str, Any]:
    state: dict[str, Any] = algorithm.learner_group.get_state()[COMPONENT_LEARNER]
    return state


def _set_learner_state(algorithm: Algorithm, stored: Mapping[str, Any]) -> None:
    fresh = _learner_state(algorithm)[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
    # RLlib would pass over weights that are missing or too many
    shapes = [{name: np.shape(value) for name, value in values.items()} for values in (fresh, stored["weights"])]
    if shapes[0] != shapes[1]:
        raise ValueError("its weights have other names or shapes")
    optimisers = map_tensors(stored["optimisers"], torch.as_tensor)
    learner = {COMPONENT_RL_MODULE: {DEFAULT_MODULE_ID: stored["weights"]}, COMPONENT_OPTIMIZER: optimisers}
    algorithm.learner_group.set_state({COMPONENT_LEARNER: learner})
    algorithm.learner_group.foreach_learner(_set_adapted, adapted=stored["adapted"])
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group, inference_only=True)


def _find_not_finite(learner: Learner) -> str | None:
    """Look at what is learnt alone: modules keep constants that may be infinite, such as limits."""
    parameters = learner.module[DEFAULT_MODULE_ID].named_parameters()
    learnt = {name: parameter.detach().cpu().numpy() for name, parameter in parameters}
    optimisers = map_tensors(learner.get_state(components=COMPONENT_OPTIMIZER)[COMPONENT_OPTIMIZER], np.asarray)
    return find_not_finite({"weights": learnt, "optimisers": optimisers})


def _read_adapted(learner: Learner) -> dict[str, float]:
    values = {name: getattr(learner, name)[DEFAULT_MODULE_ID] for name in ADAPTED if hasattr(learner, name)}
    return {name: float(torch.as_tensor(value).detach()) for name, value in values.items()}


def _set_adapted(learner: Learner, adapted: dict[str, float]) -> None:
    for name, value in adapted.items():
        by_module = getattr(learner, name)
        if isinstance(by_module[DEFAULT_MODULE_ID], torch.Tensor):
            by_module[DEFAULT_MODULE_ID].data.fill_(value)  # in place: an optimiser may hold it
        else:
            by_module[DEFAULT_MODULE_ID] = int(value)


def _move_schedules(learner: Learner, steps: int) -> None:
    """Move what follows the steps sampled so far, and RLlib moves after an update only: PPO's entropy coefficient."""
    schedulers = getattr(learner, "entropy_coeff_schedulers_per_module", None)
    if schedulers is not None:
        schedulers[DEFAULT_MODULE_ID].update(timestep=steps)


def _count_steps(algorithm: Algorithm, steps: int) -> None:
    """Let the algorithm count on from a number of environment steps, as if an env runner had sampled them.

    λ, learning-rate schedules and exploration follow this count.
    """
    sampled = MetricsLogger(root=False)
    sampled.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
    algorithm.metrics.aggregate([sampled.reduce()], key=ENV_RUNNER_RESULTS)
    algorithm.env_runner_group.sync_env_runner_states(
        config=algorithm.config,
        env_steps_sampled=steps,
        env_to_module=algorithm.env_to_module_connector,
        module_to_env=algorithm.module_to_env_connector,
    )


# Replay --------------------------------------------------------------------------------------------------------------


def _save_replay(folder: RunFolder, algorithm: Algorithm, iteration: int) -> dict[str, str] | None:
    """Write the episodes of the replay buffer; the last checkpoint's stay until the next."""
    buffer = getattr(algorithm, "local_replay_buffer", None)
    if buffer is None:
        return None
    needed = [f"{path.name}.npz" for path in checkpoint_paths(folder)[-1:]]
    return write_replay(folder, iteration, _replay_arrays(list(buffer.episodes)), needed)


def _replay_arrays(episodes: list[SingleAgentEpisode]) -> dict[str, Any]:
    """Return episodes end to end; each has one observation more than steps."""
    arrays = {
        "lengths": np.array([len(episode) for episode in episodes]),
        "terminated": np.array([episode.is_terminated for episode in episodes]),
        "truncated": np.array([episode.is_truncated for episode in episodes]),
        "observations": np.concatenate([episode.get_observations() for episode in episodes]),
        "actions": np.concatenate([episode.get_actions() for episode in episodes]),
        "rewards": np.concatenate([episode.get_rewards() for episode in episodes]),
    }
    for key in episodes[0].extra_model_outputs:
        arrays[f"extra.{key}"] = np.concatenate([episode.get_extra_model_outputs(key) for episode in episodes])
    return arrays


def _load_replay(folder: RunFolder, algorithm: Algorithm, replay: dict[str, str]) -> None:
    """Fill the replay buffer; priorities begin anew."""
    arrays = read_replay(folder, replay)
    begin = 0
    for number, length in enumerate(arrays["lengths"].tolist()):
        steps = slice(begin, begin + length)
        observations = arrays["observations"][begin + number : begin + number + length + 1]
        episode = SingleAgentEpisode(
            observations=list(observations),
            actions=list(arrays["actions"][steps]),
            rewards=arrays["rewards"][steps].tolist(),
            infos=[{} for _ in observations],
            terminated=bool(arrays["terminated"][number]),
            truncated=bool(arrays["truncated"][number]),
            extra_model_outputs={
                key.removeprefix("extra."): list(array[steps])
                for key, array in arrays.items()
                if key.startswith("extra.")
            },
            len_lookback_buffer=0,
        )
        algorithm.local_replay_buffer.add(episode.to_numpy())
        begin += length


# A policy to roll out ------------------------------------------------------------------------------------------------


class RLlibPolicy:
    """The policy of an RLlib run, to be rolled out in environments of Stable-Baselines3's kind; no Ray is started.

    :param config: the run's; its heuristic is not needed
    :param env: where it is to act
    """

    def __init__(self, config: RunConfig, env: VecEnv) -> None:
        self.config = configure(config)
        self.action_space = env.action_space
        spaces = {DEFAULT_MODULE_ID: (env.observation_space, env.action_space)}
        self.module = self.config.get_rl_module_spec(spaces=spaces, inference_only=True).build()
        self.steps = 0

    def load(self, checkpoint: Path) -> None:
        """Take the weights of a checkpoint."""
        stored, state = read_weights(checkpoint), read_state(checkpoint)
        with reading(checkpoint):
            self.take(stored["weights"], int(state["counters"]["steps"]))

    def take(self, weights: Mapping[str, NDArray[Any]], steps: int) -> None:
        """Take a learner's weights.

        :param steps: environment steps so far, which exploration may depend on
        """
        self.module.load_state_dict({name: torch.tensor(weights[name]) for name in self.module.state_dict()})
        self.steps = steps

    def seed(self, seed: int) -> None:
        """Seed what actions are drawn with."""
        set_random_seed(seed)

    @property
    def has_memory(self) -> bool:
        """Whether the module is recurrent."""
        return bool(self.module.is_stateful())

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Return the actions for a batch of observations, as the environments take them, and the memory after them."""
        observations = torch.as_tensor(np.asarray(observation))
        observations = observations.float() if observations.dtype == torch.float64 else observations
        batch: dict[str, Any] = {Columns.OBS: observations}
        if self.has_memory:  # recurrent modules take sequences: here, each of one step
            memory = self._memory(len(observations), state, episode_start)
            batch = {Columns.OBS: observations.unsqueeze(1), Columns.STATE_IN: memory}
        with torch.no_grad():
            actions, memory = self._act(batch, deterministic)
        actions = actions.squeeze(1) if self.has_memory else actions
        convert = unsquash_action if self.config.normalize_actions else clip_action
        return np.asarray(convert(actions.numpy(), self.action_space)), memory

    def _memory(self, count: int, state: Any, episode_start: Any) -> Any:
        """Return what is remembered, which is nothing where an episode starts."""
        fresh = tree.map_structure(
            lambda part: torch.as_tensor(part).expand(count, *part.shape), self.module.get_initial_state()
        )
        if state is None:
            return fresh
        starts = torch.as_tensor(np.asarray(episode_start, bool))
        return tree.map_structure(
            lambda old, new: torch.where(starts.reshape(-1, *[1] * (old.ndim - 1)), new, old), state, fresh
        )

    def _act(self, batch: dict[str, Any], deterministic: bool) -> tuple[torch.Tensor, Any]:
        """Return actions, and what is remembered of the step."""
        module = self.module
        if deterministic:
            outputs, kind = module.forward_inference(batch), module.get_inference_action_dist_cls()
        else:
            outputs = module.forward_exploration(batch, t=self.steps)
            kind = module.get_exploration_action_dist_cls()
        actions = outputs.get(Columns.ACTIONS)
        if actions is None:
            distribution = kind.from_logits(outputs[Columns.ACTION_DIST_INPUTS])
            actions = (distribution.to_deterministic() if deterministic else distribution).sample()
        return torch.as_tensor(actions), outputs.get(Columns.STATE_OUT)


def build_policy(config: RunConfig, env: VecEnv) -> RLlibPolicy:
    """Build a policy that is to act only."""
    return RLlibPolicy(config, env)
