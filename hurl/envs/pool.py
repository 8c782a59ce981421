"""EnvPool's environments as a Stable-Baselines3 vector environment."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

Array = npt.NDArray[Any]


def single_precision(space: gym.Space[Any]) -> gym.Space[Any]:
    """The same space, with a Box of float64 turned into one of float32."""
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    return space


@contextmanager
def quiet() -> Iterator[None]:
    """Hide that EnvPool hands Gymnasium float64 bounds for float32 spaces: nothing that a user could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting to float32")
        yield


class EnvPoolVecEnv(VecEnv):
    """An EnvPool environment, in synchronous mode, as a Stable-Baselines3 VecEnv.

    Observations of float64 are declared and returned as float32, which halves a replay buffer. The environments' own
    `info` entries are not passed on: at a step that ends no episode every info is empty, and at an episode's end it
    holds the two entries that Stable-Baselines3 reads, `terminal_observation` and `TimeLimit.truncated`.

    :param env_id: an id that EnvPool lists, of a task with single arrays or numbers as observations and actions
    :param n_envs: how many environments step together
    :param seed: environment i is seeded with seed + i
    :param threads: EnvPool's worker threads
    :param max_episode_steps: the time limit; None keeps the task's own
    :param options: handed to `envpool.make`, which refuses what the task does not know
    """

    def __init__(
        self,
        env_id: str,
        n_envs: int,
        *,
        seed: int,
        threads: int = 1,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        # On first use: only this class needs EnvPool, which not every platform has.
        import envpool

        if options.pop("render_mode", None) is not None:
            # Where OpenGL is missing, EnvPool's renderer ends the whole process.
            raise ValueError(f"{env_id} cannot be rendered through EnvPool; Gymnasium's form of it can.")
        if max_episode_steps is None:
            with quiet():
                max_episode_steps = int(envpool.make_spec(env_id).config.max_episode_steps)
        self.env_id = env_id
        self.max_episode_steps = max_episode_steps
        # At its own time limit EnvPool reports every episode as truncated, also one that terminates in that very step.
        # Where Gymnasium has the limit in a wrapper, the task knows nothing of it: there the pool gets a limit that it
        # never reaches, and the episodes are cut here. Elsewhere the limit can be part of the task (MiniGrid pays by
        # it, Procgen ends by it), and EnvPool's word stands.
        original = gym.registry.get(env_id)
        self._cuts_episodes = original is not None and original.max_episode_steps is not None
        self._make_arguments = {
            "num_envs": n_envs,
            "batch_size": n_envs,
            "num_threads": threads,
            "max_episode_steps": max_episode_steps + 1 if self._cuts_episodes else max_episode_steps,
            **options,
        }
        self._pool = self._make_pool(seed, n_envs)
        observation_space, action_space = self._spaces
        for space in (observation_space, action_space):
            if isinstance(space, (spaces.Dict, spaces.Tuple)):
                raise ValueError(f"{env_id} has a {type(space).__name__} space, and only single arrays are handled.")
        super().__init__(n_envs, single_precision(observation_space), single_precision(action_space))

    def _make_pool(self, seed: int, n_envs: int) -> Any:
        import envpool

        # EnvPool takes 32-bit signed seeds, Stable-Baselines3 draws unsigned ones.
        seed %= np.iinfo(np.int32).max - n_envs
        try:
            with quiet():
                pool = envpool.make(self.env_id, env_type="gymnasium", seed=seed, **self._make_arguments)
                self._spaces = pool.observation_space, pool.action_space  # EnvPool makes them on first use
                return pool
        except TypeError as error:
            raise TypeError(f"EnvPool's {self.env_id} does not take these options: {error}.") from error

    def reset(self) -> Array:
        """Reset every environment; after `seed()`, start again from that seed."""
        first_seed = self._seeds[0]
        if first_seed is not None:
            # EnvPool seeds when it is made, and only then. Like Stable-Baselines3, it counts upwards from the first.
            self._pool = self._make_pool(first_seed, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        observations, _ = self._pool.reset()
        return self._cast(observations)

    def step_async(self, actions: Array) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every environment, and reset those whose episode ended."""
        pool_observations, rewards, terminated, truncated, pool_info = self._pool.step(self._actions)
        observations = self._cast(pool_observations)
        if self._cuts_episodes:
            truncated = pool_info["elapsed_step"] >= self.max_episode_steps
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            finished = np.flatnonzero(dones)
            last_observations = observations[finished]
            observations[finished], _ = self._pool.reset(finished.astype(np.int32))
            for index, last_observation in zip(finished, last_observations, strict=True):
                infos[index]["terminal_observation"] = last_observation
                infos[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        return observations, rewards, dones, infos

    def _cast(self, observations: Array) -> Array:
        return observations.astype(self.observation_space.dtype, copy=False)

    def close(self) -> None:
        """Let go of the pool: its threads end with the last reference to it."""
        self._pool = None

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The render mode, which is None; EnvPool's environments have no other attribute in Python."""
        if attr_name == "render_mode":
            return [None for _ in self._get_indices(indices)]
        raise AttributeError(
            f"{attr_name!r} cannot be read: EnvPool runs {self.env_id} in C++, without attributes in Python."
        )

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> NoReturn:
        """Not possible with EnvPool."""
        raise NotImplementedError(
            f"{attr_name!r} cannot be set: EnvPool runs {self.env_id} in C++, without attributes in Python."
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> NoReturn:
        """Not possible with EnvPool."""
        raise NotImplementedError(
            f"{method_name!r} cannot be called: EnvPool runs {self.env_id} in C++, without methods in Python."
        )

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """False for each environment: no Gymnasium wrapper goes around what runs in C++."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> list[None]:
        """None for each environment: EnvPool is not used for rendering."""
        return [None for _ in range(self.num_envs)]
