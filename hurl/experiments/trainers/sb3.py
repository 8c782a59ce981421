"""Runs of Stable-Baselines3, sb3-contrib and SBX, resumed exactly where they stopped.

At a checkpoint's boundary the environments begin new episodes from a seed derived from run seed and iteration, in every
run, interrupted or not. A checkpoint holds weights, optimiser states, counters and all random states; the replay buffer
is saved as what came since the checkpoint before, so that a checkpoint costs what is new.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections import deque
from collections.abc import Callable, Collection
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from hurl.data import DatasetError, Episodes, load_episodes
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
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.libraries import LIBRARIES, check_algorithm, find_library
from hurl.experiments.metrics import Row
from hurl.experiments.trainers.base import (
    CLONING,
    TRAINING,
    build_environment,
    build_guidance,
    derive_seed,
    find_not_finite,
    guidance_columns,
)
from hurl.experiments.trainers.callbacks import build_callbacks
from hurl.guidance import Guidance, HeuristicError
from hurl.names import nearest
from hurl.prior import PriorData, PriorDataError
from hurl.sb3 import JumpStart, Rehearsal, guided, internals, jump_started, normalization, warm_start
from hurl.sb3.algorithms import GuidedAlgorithm
from hurl.sb3.jump_start import JumpStarted
from hurl.sb3.prior import check_share
from hurl.sb3.replay import GuidedReplayBuffer
from hurl.sb3.spaces import check_spaces
from hurl.sb3.warm_start import WITH_ACTOR
from hurl.values import show

# Where a checkpoint's weights hold those of a ladder's rungs but the last, whose place is that of a model without one.
RUNGS = "rungs"
# Where they hold those of the policy that begins the episodes of a jump start.
GUIDE = "guide"
# Where they hold the running statistics of `VecNormalize`.
NORMALIZATION = "normalization"
ACTIVATIONS = ("relu", "tanh", "elu", "gelu", "silu")


def build_trainer(
    config: RunConfig, folder: RunFolder, checkpoint: Path | None = None, *, trust: bool = False
) -> SB3Trainer:
    """Build the run's model, with the weights and counters of a checkpoint where there is one."""
    trainer = SB3Trainer(config, folder, trust=trust)
    if checkpoint is not None:
        trainer.load(checkpoint)
    return trainer


class SB3Trainer:
    """A model of a run, see `Trainer`."""

    def __init__(self, config: RunConfig, folder: RunFolder, *, trust: bool = False) -> None:
        torch.set_num_threads(config.threads)
        self.config, self.folder = config, folder
        self._datasets: WeakValueDictionary[tuple[str, Path | None], Episodes] = WeakValueDictionary()
        env = build_environment(config, config.environment.n_envs, derive_seed(config, TRAINING, 0))
        guidance = build_guidance(config, env, folder, trust=trust)
        self.env = normalized(config, env)
        self.callbacks = build_callbacks(config.callbacks)
        self.model = _build_model(config, self.env, guidance, self._read_prior())
        self.model.set_logger(configure(str(folder.tensorboard), ["tensorboard"]))
        self.is_learning = False
        self.rehearsal: Rehearsal | None = None

    def _read_prior(self) -> PriorData | None:
        """Read the data that batches take a share of."""
        prior = self.config.prior
        if prior is None or self.config.iterations == 0:
            return None
        return PriorData(self._read_data(prior.dataset, prior.root), prior.share, prior.blend)

    def _read_data(self, dataset: str | None, root: Path | None) -> Episodes:
        """Read a dataset, once where several are the same; it must not change while a run goes on.

        It is kept for as long as something else needs it: what was only cloned is not in memory while a run learns.
        """
        assert dataset is not None  # `train` refuses a run whose data is still to be made
        data = self._datasets.get((dataset, root))
        if data is None:
            self._datasets[dataset, root] = data = load_episodes(dataset, root)
            self.folder.pin_input(self._data_name(dataset, root), data.digest)
        return data

    def _data_name(self, dataset: str, root: Path | None) -> str:
        """Return what a dataset is pinned as: its id, with its folder where another has data of the same id."""
        uses = (self.config.prior, self.config.warm_start)
        roots = {use.root for use in uses if use is not None and use.dataset == dataset}
        return f"dataset {dataset}" if root is None or len(roots) == 1 else f"dataset {dataset} in {root}"

    @property
    def policy(self) -> PolicyPredictor:
        """The model itself, which normalises what it sees as it has in training."""
        return self.model if self.model.get_vec_normalize_env() is None else NormalizedPolicy(self.model)

    @property
    def ended_by(self) -> str | None:
        """The callback that wants the run to end, if any."""
        return self.callbacks.ended_by

    @property
    def guidance(self) -> Guidance | None:
        """The model's, which counts its steps."""
        return getattr(self.model, "guidance", None)

    def clone(self, report: Callable[[int, float], None]) -> float:
        """Warm-start the actor with the configuration's dataset."""
        settings = self.config.warm_start
        assert settings is not None

        def log(epoch: int, loss: float) -> None:
            self.model.logger.record("cloning/loss", loss)
            self.model.logger.dump(epoch)
            report(epoch, loss)

        data = self._read_data(settings.dataset, settings.root)
        env = self.model.get_vec_normalize_env()
        if env is not None:  # else the clone would be of a policy that sees other numbers as soon as it learns
            check_spaces(self.model, data)
            normalization.observe(env, data.observations)
        self._begin_rehearsal(0)  # an algorithm that can't is refused before anything is cloned
        result = warm_start(
            self.model,
            data,
            epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            batch_size=settings.batch_size,
            seed=derive_seed(self.config, CLONING, 0),
            report=log,
        )
        if isinstance(self.model, JumpStarted):
            self.model.take_guide()
        return result.seconds

    def _begin_rehearsal(self, iteration: int) -> None:
        """Let the rehearsal begin anew after an iteration, so that nothing of it needs saving; or let it be over."""
        settings = self.config.warm_start
        if settings is None or settings.rehearsal is None or iteration >= settings.rehearsal:
            self.rehearsal = None
            return
        if self.rehearsal is None:
            self.rehearsal = Rehearsal(
                self._read_data(settings.dataset, settings.root),
                steps=settings.rehearsal * self.config.steps_per_iteration,
                learning_rate=settings.learning_rate,
                batch_size=settings.batch_size,
            )
            self.rehearsal.init_callback(self.model)
        self.rehearsal.begin(derive_seed(self.config, CLONING, iteration + 1))

    def iterate(self) -> dict[str, float]:
        """Collect rollouts and train after each, until the iteration's steps are taken."""
        all_steps = self.config.iterations * self.config.steps_per_iteration
        if not self.is_learning:
            self._begin_episodes(self._iteration)
            self._begin_rehearsal(self._iteration)
            internals.begin_learning(self.model, all_steps, self.callbacks)
            self.is_learning = True
        collecting, training, left = 0.0, 0.0, self.config.steps_per_iteration
        while left > 0:
            began = perf_counter()
            steps = internals.collect(self.model, self.callbacks)
            collected = perf_counter()
            internals.train(self.model, steps)
            if self.rehearsal is not None:
                self.rehearsal.rehearse()
            collecting, training = collecting + collected - began, training + perf_counter() - collected
            left -= steps
        if self.ended_by is not None or self.model.num_timesteps >= all_steps:
            self.callbacks.on_training_end()
        returns = [float(episode["r"]) for episode in self.model.ep_info_buffer or ()]
        return {
            "steps": self.model.num_timesteps,
            "training_return": float(np.mean(returns)) if returns else np.nan,
            "seconds_collecting": collecting,
            "seconds_training": training,
            **guidance_columns(None if self.config.guidance is None else self.guidance, self.config.gamma),
        }

    def not_finite(self) -> str | None:
        """Look at the networks of all rungs and their optimisers, and at the losses that are to be logged."""
        rungs = self.model.read_rungs() if isinstance(self.model, GuidedAlgorithm) else {}
        networks = {"model": internals.read_state(self.model)}
        networks |= {f"rung {rung}": state["networks"] for rung, state in rungs.items()}
        losses = {
            name: float(value) for name, value in self.model.logger.name_to_value.items() if name.endswith("loss")
        }
        env = self.model.get_vec_normalize_env()
        statistics = {} if env is None else {NORMALIZATION: normalization.read_statistics(env)}
        return find_not_finite(losses) or find_not_finite(networks | statistics)

    def log(self, row: Row) -> None:
        """Write the row beside what the model logs."""
        for tag, value in row.scalars().items():
            self.model.logger.record(tag, value)
        if row.iteration:
            self.model.dump_logs()
        else:
            self.model.logger.dump(0)

    def save(self, iteration: int) -> None:
        """Write a checkpoint, and begin new episodes."""
        _cut_episodes(self.model)
        rungs = list(self.model.read_rungs().values()) if isinstance(self.model, GuidedAlgorithm) else []
        jump_start = (self.model.read_jump_start() if isinstance(self.model, JumpStarted) else None) or {}
        state = {
            "counters": _counters(self.model),
            "rungs": [rung["counters"] for rung in rungs],
            "best_rung": None if self.guidance is None else self.guidance.best_rung,
            "guidance": None if self.guidance is None else self.guidance.state(),
            "curriculum": jump_start.get("curriculum"),
            "episodes": list(self.model.ep_info_buffer or []),
            "random": _random_states(self.model),
            "replay": _save_replay(self.folder, self.model, iteration),
        }
        weights = internals.read_state(self.model) | {RUNGS: [rung["networks"] for rung in rungs]}
        weights |= {GUIDE: jump_start["guide"]} if jump_start else {}
        env = self.model.get_vec_normalize_env()
        weights |= {} if env is None else {NORMALIZATION: normalization.read_statistics(env)}
        write_checkpoint(self.folder, iteration, state, weights)
        if 0 < iteration < self.config.iterations:
            self._begin_episodes(iteration)
            self._begin_rehearsal(iteration)

    def load(self, checkpoint: Path) -> None:
        """Put a checkpoint into the model, which is freshly built."""
        state, model = read_state(checkpoint), self.model
        stored = load_weights(model, checkpoint)
        with reading(checkpoint):
            if isinstance(model, GuidedAlgorithm) and self.guidance is not None:
                rungs = zip(self.guidance.rungs, stored.get(RUNGS, ()), state.get("rungs", ()), strict=False)
                model.write_rungs(
                    {
                        rung: {"networks": networks, "counters": _checked_counters(model, own)}
                        for rung, networks, own in rungs
                    }
                )
            if isinstance(model, JumpStarted):
                model.write_jump_start({"guide": stored[GUIDE], "curriculum": state["curriculum"]})
            if state["replay"] is not None:
                _load_replay(self.folder, model, state["replay"])
            if self.guidance is not None:
                self.guidance.restore(state["guidance"])
            vars(model).update(_checked_counters(model, state["counters"]))
            if self._iteration != state["iteration"]:
                raise ValueError(f"it has {state['counters']['num_timesteps']} steps")
            model.ep_info_buffer = deque(_checked_episodes(state["episodes"]), maxlen=model._stats_window_size)
            model.ep_success_buffer = deque(maxlen=model._stats_window_size)
            _set_random_states(model, state["random"])
        self._begin_rehearsal(self._iteration)  # whose data may be missing

    def close(self) -> None:
        """Let go of the environments."""
        self.model.logger.close()
        self.env.close()

    @property
    def _iteration(self) -> int:
        """How many iterations are done."""
        return self.model.num_timesteps // self.config.steps_per_iteration

    def _begin_episodes(self, iteration: int) -> None:
        internals.begin_episodes(self.model, self.env, derive_seed(self.config, TRAINING, iteration))


# A policy to roll out ------------------------------------------------------------------------------------------------


class NormalizedPolicy:
    """A model that sees raw observations, and normalises them as its `VecNormalize`, if any, stands at that moment."""

    def __init__(self, model: BaseAlgorithm) -> None:
        self.model = model

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """Return the actions for a batch of observations, and the memory that follows."""
        env = self.model.get_vec_normalize_env()
        seen = observation if env is None else env.normalize_obs(observation)
        return self.model.predict(seen, state, episode_start, deterministic)


class SB3Policy(NormalizedPolicy):
    """A model that is to act only, see `CheckpointPolicy`."""

    def __init__(self, model: BaseAlgorithm) -> None:
        super().__init__(model)
        internals.sample_at_once(model)

    @property
    def has_memory(self) -> bool:
        """Whether the model is recurrent."""
        return internals.has_memory(self.model)

    def load(self, checkpoint: Path) -> None:
        """Take the weights of a checkpoint, with a ladder those of the best rung, and how far it explored."""
        state = read_state(checkpoint)
        load_weights(self.model, checkpoint, state.get("best_rung"))
        names = [name for name in ("num_timesteps", "exploration_rate") if hasattr(self.model, name)]
        with reading(checkpoint):
            counters = {name: state["counters"][name] for name in names}
            vars(self.model).update(_checked_counters(self.model, counters))

    def seed(self, seed: int) -> None:
        """Seed what actions are drawn with."""
        internals.seed_actions(self.model, seed)


def build_policy(config: RunConfig, env: VecEnv) -> SB3Policy:
    """Make a model that is to act only: without guidance and the code of its heuristic, and with no room for replay."""
    algorithm = config.algorithm
    if issubclass(find_algorithm(algorithm.name), OffPolicyAlgorithm):
        parameters = algorithm.parameters | {"buffer_size": env.num_envs}
        algorithm = algorithm.model_copy(update={"parameters": parameters})
    config = config.model_copy(update={"algorithm": algorithm, "jump_start": None})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of batch sizes, which don't matter where nothing is trained
        return SB3Policy(_build_model(config, normalized(config, env)))


def load_weights(model: BaseAlgorithm, checkpoint: Path, rung: int | None = None) -> dict[str, Any]:
    """Put the weights of a checkpoint, and the statistics that it normalises by, into a model; return all of it.

    :param rung: of a ladder, by its number; none means those of λ = 1, which a run without a ladder has alone
    """
    stored: dict[str, Any] = read_weights(checkpoint)
    with reading(checkpoint):
        rungs = [*stored.get(RUNGS, ()), stored]
        internals.write_state(model, rungs[-1 if rung is None else rung])
        env = model.get_vec_normalize_env()
        if env is not None:
            normalization.write_statistics(env, stored[NORMALIZATION])
    return stored


# From a configuration to a model -------------------------------------------------------------------------------------


def find_algorithm(name: str) -> type[Any]:
    """Return the class that `sbx.SAC`, `sb3.PPO` or `contrib.TQC` names."""
    package, class_name = find_library(name).package, name.partition(".")[2]
    if find_library(name).trainers_module != "sb3":
        others = [key for key, library in LIBRARIES.items() if library.trainers_module == "sb3"]
        raise ConfigurationError(f"{name!r} is of {package}, where an algorithm of {', '.join(others)} is needed")
    check_algorithm(name)
    algorithm: type[Any] = getattr(import_module(package), class_name)
    return algorithm


def normalized(config: RunConfig, env: VecEnv) -> VecEnv:
    """Return environments as the run's agent sees them."""
    settings = config.environment.normalize
    if settings is None:
        return env
    if settings.norm_obs and is_image_space(env.observation_space):
        raise ConfigurationError(
            f"environment.normalize: {config.environment.id} shows images, which policies scale themselves: set "
            "environment.normalize.norm_obs=false"
        )
    try:
        return VecNormalize(env, gamma=config.gamma, **settings.model_dump())
    except (KeyError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"environment.normalize: the observations of {config.environment.id} can't be normalised ({reason}): set "
            "environment.normalize.norm_obs=false, or norm_obs_keys"
        ) from error


def check_run(config: RunConfig) -> None:
    """Refuse a run whose algorithm can't learn from data in the ways that it asks for, or lacks a parameter."""
    name = config.algorithm.name
    algorithm = find_algorithm(name)
    if config.needs_replay and not issubclass(algorithm, OffPolicyAlgorithm):
        raise ConfigurationError(
            f"{config.needs_replay[0]} is for algorithms with a replay buffer, such as sbx.SAC: leave it out for {name}"
        )
    if config.warm_start is not None and algorithm.__name__ not in WITH_ACTOR:
        raise ConfigurationError(
            f"warm_start is for algorithms with an actor that predicts actions by itself, {', '.join(WITH_ACTOR)}: "
            f"leave it out for {name}"
        )
    if config.prior is not None:
        default = inspect.signature(algorithm).parameters["batch_size"].default
        try:
            check_share(config.prior.share, config.algorithm.parameters.get("batch_size", default))
        except PriorDataError as error:
            raise ConfigurationError(f"prior.share: {error}") from None
    normalize = config.environment.normalize
    if config.jump_start is not None and normalize is not None and normalize.norm_obs:
        raise ConfigurationError(
            "jump_start can't be had with normalised observations, for the guide would change with their statistics: "
            "set environment.normalize.norm_obs=false, or leave jump_start out"
        )
    if config.algorithm.action_noise is not None and "action_noise" not in known_parameters(name):
        raise ConfigurationError(f"algorithm.action_noise is for off-policy algorithms: leave it out for {name}")
    _parameters(config, algorithm)


def known_parameters(algorithm: str) -> Collection[str]:
    """Return the arguments of an algorithm's constructor."""
    return inspect.signature(find_algorithm(algorithm)).parameters.keys()


def _build_model(
    config: RunConfig, env: VecEnv, guidance: Guidance | None = None, prior: PriorData | None = None
) -> BaseAlgorithm:
    """Make a model with fresh weights from the run's seed."""
    algorithm = find_algorithm(config.algorithm.name)
    parameters = _parameters(config, algorithm)
    if config.algorithm.action_noise is not None:
        shape = env.action_space.shape or ()
        parameters["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, config.algorithm.action_noise))
    if guidance is not None or prior is not None:
        algorithm = guided(algorithm)
        parameters |= {"guidance": guidance, "prior": prior}
    if config.jump_start is not None:
        algorithm = jump_started(algorithm)
        parameters["jump_start"] = JumpStart(**config.jump_start.model_dump())
    policy = config.algorithm.policy
    try:
        model: BaseAlgorithm = algorithm(policy, env, gamma=config.gamma, seed=config.seed, **parameters)
    except (ConfigurationError, DatasetError, HeuristicError, OSError):
        raise
    except PriorDataError as error:
        raise ConfigurationError(f"prior: {error}") from error
    except Exception as error:  # libraries raise what they like
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(
            f"{config.algorithm.name} on {config.environment.id} can't be built with algorithm.policy {policy!r} and "
            f"algorithm.parameters {show(config.algorithm.parameters)}: {reason}"
        ) from error
    # Environments with their spaces in the class body share them, and the generator of random actions, with all others.
    model.action_space = deepcopy(model.action_space)
    return model


def _parameters(config: RunConfig, algorithm: type[Any]) -> dict[str, Any]:
    """Return the arguments of the algorithm: those of the configuration, and the iteration's batch sizes."""
    parameters = deepcopy(config.algorithm.parameters)  # algorithms write into what they are given
    known = inspect.signature(algorithm).parameters
    for key in parameters:
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
    functions = vars(import_module(find_library(algorithm).activations))
    known = {key.lower(): function for key, function in functions.items() if callable(function)}
    return policy_kwargs | {"activation_fn": known[name]}


# Counters and random states ------------------------------------------------------------------------------------------


def _counters(model: BaseAlgorithm) -> dict[str, Any]:
    """Return every number among the model's attributes: steps, updates, exploration rate, …"""
    return {key: value for key, value in vars(model).items() if isinstance(value, int | float) and key != "start_time"}


def _checked_counters(model: BaseAlgorithm, counters: dict[str, Any]) -> dict[str, Any]:
    """Return what `_counters` returned, which must be numbers that are to take the places of numbers."""
    for key, value in counters.items():
        if not isinstance(value, int | float) or not isinstance(getattr(model, key, None), int | float | None):
            raise TypeError(f"the counter {key!r} can't be {value!r}")
    return counters


def _checked_episodes(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what Stable-Baselines3 keeps of finished episodes, with return and length of each."""
    for episode in episodes:
        if not all(isinstance(episode[key], int | float) for key in ("r", "l")):
            raise TypeError(f"{episode!r} is no episode")
    return episodes


def _random_states(model: BaseAlgorithm) -> dict[str, Any]:
    algorithm, keys, *rest = np.random.get_state()  # noqa: NPY002 - Stable-Baselines3 samples with the global generator
    version, numbers, gauss = random.getstate()
    return {
        "numpy": [algorithm, np.asarray(keys).tolist(), *rest],
        "python": [version, list(numbers), gauss],
        "torch": torch.get_rng_state().tolist(),
        "actions": model.action_space.np_random.bit_generator.state,
    }


def _set_random_states(model: BaseAlgorithm, states: dict[str, Any]) -> None:
    algorithm, keys, *rest = states["numpy"]
    np.random.set_state((algorithm, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    model.action_space.np_random.bit_generator.state = states["actions"]


# Replay --------------------------------------------------------------------------------------------------------------


def _save_replay(folder: RunFolder, model: BaseAlgorithm, iteration: int) -> dict[str, Any] | None:
    """Write the transitions that are newer than the last checkpoint; return which files make up the buffer."""
    if not isinstance(model, OffPolicyAlgorithm):
        return None
    buffer = model.replay_buffer
    assert buffer is not None
    earlier = checkpoint_paths(folder)
    previous: dict[str, Any] = read_state(earlier[-1])["replay"] if earlier else {"added": 0, "files": []}
    added = model.num_timesteps // buffer.n_envs
    new = min(added - previous["added"], buffer.buffer_size)
    rows = np.arange(added - new, added) % buffer.buffer_size
    arrays = {key: array[rows] for key, array in _replay_arrays(buffer).items()}
    file = write_replay(folder, iteration, arrays, [file["name"] for file in previous["files"]])
    return {"added": added, "files": _newest([*previous["files"], {**file, "rows": new}], buffer.buffer_size)}


def _newest(files: list[dict[str, Any]], capacity: int) -> list[dict[str, Any]]:
    """Return the files that hold the newest `capacity` rows."""
    kept: list[dict[str, Any]] = []
    for file in reversed(files):
        if sum(other["rows"] for other in kept) >= capacity:
            break
        kept.insert(0, file)
    return kept


def _load_replay(folder: RunFolder, model: BaseAlgorithm, replay: dict[str, Any]) -> None:
    assert isinstance(model, OffPolicyAlgorithm)
    buffer = model.replay_buffer
    assert buffer is not None
    row = replay["added"] - sum(file["rows"] for file in replay["files"])
    arrays = _replay_arrays(buffer)
    for file in replay["files"]:
        stored = read_replay(folder, file)
        if len(stored["actions"]) != file["rows"]:
            raise ValueError(f"{file['name']} has {len(stored['actions'])} of {file['rows']} rows")
        rows = np.arange(row, row + file["rows"]) % buffer.buffer_size
        for key, array in arrays.items():
            array[rows] = stored[key]
        row += file["rows"]
    buffer.pos = replay["added"] % buffer.buffer_size
    buffer.full = replay["added"] >= buffer.buffer_size


def _replay_arrays(buffer: ReplayBuffer) -> dict[str, NDArray[Any]]:
    """Return the arrays of a replay buffer that have a row for each step."""
    arrays = {"actions": buffer.actions, "dones": buffer.dones, "timeouts": buffer.timeouts}
    if isinstance(buffer, GuidedReplayBuffer):
        arrays |= {"rewards": buffer.rewards.raw, "terms": buffer.rewards.terms}
    else:
        arrays["rewards"] = buffer.rewards
    for name in ("observations", "next_observations"):
        stored: Any = getattr(buffer, name, {})
        arrays |= (
            {f"{name}.{key}": array for key, array in stored.items()} if isinstance(stored, dict) else {name: stored}
        )
    return arrays


def _cut_episodes(model: BaseAlgorithm) -> None:
    """Mark the newest transitions as cut off, so that multi-step returns don't run on into the next episode."""
    if not isinstance(model, OffPolicyAlgorithm):
        return
    buffer = model.replay_buffer
    if isinstance(buffer, NStepReplayBuffer) and buffer.size():
        newest = buffer.pos - 1
        buffer.timeouts[newest] = np.maximum(buffer.timeouts[newest], 1 - buffer.dones[newest])
