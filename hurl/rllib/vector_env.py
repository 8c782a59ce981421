"""EnvPool's environments for RLlib's env runners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from hurl.envs.pool import Pool
from hurl.names import UnknownEnvironmentError

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
    env_config = {"env_id": env_id, "threads": threads, **options}
    on_pool = config.copy(copy_frozen=False)
    on_pool.environment(EnvPoolVectorEnv, env_config=env_config)
    return on_pool.env_runners(gym_env_vectorize_mode="vector_entry_point")


class EnvPoolVectorEnv(VectorEnv[Array, Array, Array]):
    """An EnvPool environment, in synchronous mode, as a vector environment of Gymnasium.

    The step after an episode's end ignores the action, pays 0 and returns the first observation of the next episode,
    as RLlib expects; see `Pool` for the rest. Environments that step together, or have other seeds, share no random
    numbers: RLlib counts its env runners' seeds upwards, so that those of single environments must not be counted from
    them.

    :param config: `env_id`, `num_envs`, `threads`, and arguments of `envpool.make`
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, config: Mapping[str, Any]) -> None:
        options = dict(config)
        self.num_envs = int(options.pop("num_envs"))
        self._pool: Any = Pool(n_envs=self.num_envs, **options)
        self._is_seeded = False
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes everywhere; without a seed, go on with the random numbers there are."""
        super().reset(seed=seed)
        if not self._is_seeded or seed is not None:
            self._pool.seed((np.random.SeedSequence(seed).generate_state(self.num_envs) >> 1).tolist())
            self._is_seeded = True
        return self._pool.reset(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every environment, and reset those whose episode ended in the step before."""
        return *self._pool.step(actions), {}

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the pool: its threads end with the last reference to it."""
        self._pool = None
