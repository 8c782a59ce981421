"""EnvPool's environments for RLlib's env runners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from hurl.envs.make import UnknownEnvironmentError
from hurl.envs.pool import quiet, single_precision
from hurl.envs.procgen import prepare_procgen

__all__ = ["EnvPoolVectorEnv", "on_envpool"]

Array = NDArray[Any]


def on_envpool(config: AlgorithmConfig, env_id: str, *, threads: int = 1, **options: Any) -> AlgorithmConfig:
    """Return the configuration with environments of EnvPool, `num_envs_per_env_runner` of them in each env runner.

        config = on_envpool(PPOConfig(), "Hopper-v4").env_runners(num_envs_per_env_runner=16)

    :param config: for one agent, on RLlib's new API stack; it is copied, not changed
    :param env_id: an id that EnvPool lists, of a task with single arrays or numbers as observations and actions
    :param threads: EnvPool's worker threads in each env runner
    :param options: handed to `envpool.make`, such as `max_episode_steps=200`
    :raises UnknownEnvironmentError: if EnvPool has no such environment; it names the nearest that exist
    """
    import envpool

    known = set(envpool.list_all_envs())
    if env_id not in known:
        raise UnknownEnvironmentError(env_id, "envpool", known)
    env_config = {"env_id": env_id, "num_threads": threads, **options}
    on_pool = config.copy(copy_frozen=False)
    on_pool.environment(EnvPoolVectorEnv, env_config=env_config)
    return on_pool.env_runners(gym_env_vectorize_mode="vector_entry_point")


class EnvPoolVectorEnv(VectorEnv[Array, Array, Array]):
    """An EnvPool environment, in synchronous mode, as a vector environment of Gymnasium.

    The step after an episode's end ignores the action, pays 0 and returns the first observation of the next episode,
    as RLlib expects. Observations of float64 are declared and returned as float32. The environments' own `info`
    entries are not passed on. Environments that step together, or have other seeds, share no random numbers: RLlib
    counts its env runners' seeds upwards, so that those of single environments must not be counted from them.

    :param config: `env_id`, `num_envs`, and arguments of `envpool.make`
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, config: Mapping[str, Any]) -> None:
        import envpool

        options = dict(config)
        self.env_id: str = options.pop("env_id")
        self.num_envs = int(options.pop("num_envs"))
        prepare_procgen(self.env_id, options.get("max_episode_steps"))
        try:
            with quiet():
                spec = envpool.make_spec(self.env_id, **options)
                observation_space, action_space = spec.gymnasium_observation_space, spec.gymnasium_action_space
        except TypeError as error:
            raise TypeError(f"EnvPool's {self.env_id} does not take these options: {error}.") from error
        for space in (observation_space, action_space):
            if isinstance(space, spaces.Dict | spaces.Tuple):
                raise ValueError(
                    f"{self.env_id} has a {type(space).__name__} space, and only single arrays are handled."
                )
        self.single_observation_space = single_precision(observation_space)
        self.single_action_space = single_precision(action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.max_episode_steps = int(spec.config.max_episode_steps)
        # At its time limit EnvPool reports every episode as truncated, also one that terminates in that very step.
        # Where Gymnasium has the limit in a wrapper, the pool gets a later one, and the episodes are cut here.
        original = gym.registry.get(self.env_id)
        self._cuts_episodes = original is not None and original.max_episode_steps is not None
        if self._cuts_episodes:
            options["max_episode_steps"] = self.max_episode_steps + 1
        self._options = options
        self._pool: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes everywhere; without a seed, go on with the random numbers there are."""
        super().reset(seed=seed)
        if self._pool is None or seed is not None:
            self._pool = self._make_pool(seed)
        observations, _ = self._pool.reset()
        return self._cast(observations), {}

    def _make_pool(self, seed: int | None) -> Any:
        """EnvPool seeds when it is made, and only then, with signed numbers of 32 bits."""
        import envpool

        seeds = np.random.SeedSequence(seed).generate_state(self.num_envs) >> 1
        arguments = {"num_envs": self.num_envs, "batch_size": self.num_envs, "seed": seeds.tolist()}
        with quiet():
            pool = envpool.make(self.env_id, env_type="gymnasium", **arguments, **self._options)
            pool.observation_space, pool.action_space  # noqa: B018  EnvPool makes them on first use
            return pool

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every environment, and reset those whose episode ended in the step before."""
        observations, rewards, terminated, truncated, info = self._pool.step(np.asarray(actions))
        if self._cuts_episodes:
            steps = info["elapsed_step"]
            truncated = steps == self.max_episode_steps
            # These ended at the limit, which the pool does not know: the step that it took is dropped.
            beyond = steps > self.max_episode_steps
            if beyond.any():
                observations[beyond], _ = self._pool.reset(np.flatnonzero(beyond).astype(np.int32))
                rewards[beyond] = 0
        return self._cast(observations), rewards, terminated, truncated, {}

    def _cast(self, observations: Array) -> Array:
        return observations.astype(self.single_observation_space.dtype, copy=False)

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the pool: its threads end with the last reference to it."""
        self._pool = None
