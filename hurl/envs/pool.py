"""EnvPool's environments as a Stable-Baselines3 vector environment."""

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from hurl.envs.procgen import is_procgen, prepare_procgen
from hurl.names import nearest_or_all, needs
from hurl.values import (
    FLAG,
    MOST_ENVIRONMENTS,
    MOST_THREADS,
    TEXT,
    Kind,
    check_value,
    list_of,
    number,
    show,
    whole,
)

Array = npt.NDArray[Any]

# What EnvPool is told here, or is not for one agent in synchronous mode; assets are found by ENVPOOL_ASSETS_PATH.
NOT_FOR_USERS = (
    "base_path",
    "batch_size",
    "env_seed",
    "gym_reset_return_info",
    "max_num_players",
    "num_envs",
    "num_threads",
    "seed",
)
LARGEST_INTEGER = 2**31 - 2  # the pool gets a time limit that is one later
# Makes a pool, and takes some steps.
TRIAL = """
import json, sys
import envpool, numpy
task, options = json.loads(sys.argv[1])
pool = envpool.make(task, env_type="gymnasium", num_envs=1, batch_size=1, num_threads=1, **options)
pool.reset()
for _ in range(10):
    pool.step(numpy.asarray([pool.action_space.sample()]))
"""
TRIAL_SECONDS = 60


def single_precision(space: gym.Space[Any]) -> gym.Space[Any]:
    """The same space, with a Box of float64 turned into one of float32."""
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    return space


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide that EnvPool hands Gymnasium float64 bounds for float32 spaces: nothing that a user could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting to float32")
        yield


def _check_options(env_id: str, options: Mapping[str, Any]) -> None:
    """Refuse what a task does not have, or not with such a value: EnvPool checks little, and ends the whole process."""
    defaults = _defaults(env_id)
    known = [name for name in defaults if name not in NOT_FOR_USERS]
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"EnvPool's {env_id} has no option {name!r}{nearest_or_all(name, known)}")
        check_value(f"the option {name} of EnvPool's {env_id}", value, _kind_like(defaults[name]))


def _defaults(env_id: str) -> dict[str, Any]:
    """Return the options that a task has."""
    import envpool

    with _quiet():
        spec = envpool.make_spec(env_id)
    return dict(zip(spec._config_keys, spec._config_values, strict=True))


def _try_out(env_id: str, options: Mapping[str, Any]) -> None:
    """Refuse options with which EnvPool would end this process: it ends another one first, or does not go on.

    Numbers of things and names can do so, each task in ways of its own; what is on or off and what is measured can't.
    """
    defaults = _defaults(env_id)
    harmless = {"max_episode_steps", "thread_affinity_offset"}
    if all(name in harmless or isinstance(defaults[name], bool | float) for name in options):
        return
    arguments = json.dumps([env_id, dict(options)])
    if arguments in _TRIED:
        return
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", TRIAL, arguments], check=True, capture_output=True, timeout=TRIAL_SECONDS
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise ValueError(
            f"EnvPool's {env_id} does not run with the options {show(dict(options))}: {lines[-1] if lines else error}"
        ) from None
    _TRIED.add(arguments)


def _kind_like(default: Any) -> Kind:
    """Return what an option may be, by its default: a number of something that is there once is there once at least."""
    if isinstance(default, bool):
        return FLAG
    if isinstance(default, int):
        return whole(min(default, 1), LARGEST_INTEGER)
    if isinstance(default, float):
        return number()
    if isinstance(default, str):
        return TEXT
    return list_of(whole(0, LARGEST_INTEGER), len(default))


_TRIED: set[str] = set()  # tasks and options that ran, as JSON


class Pool:
    """Environments of EnvPool that step together, in synchronous mode, cut at their time limit.

    Observations of float64 are declared and returned as float32. The environments' own `info` is not passed on.

    :param env_id: an id that EnvPool lists, of a task with single arrays or numbers as observations and actions
    :param n_envs: how many environments step together
    :param max_episode_steps: the time limit; None keeps the task's own
    :param threads: EnvPool's worker threads; more than environments would have nothing to do, and are not started
    :param options: handed to `envpool.make`; one that the task does not have, or not with such a value, is refused
    """

    def __init__(
        self, env_id: str, n_envs: int, *, threads: int = 1, max_episode_steps: int | None = None, **options: Any
    ) -> None:
        # On first use: only this class needs EnvPool, which not every platform has.
        with needs(env_id, "fast"):
            import envpool

        check_value("n_envs", n_envs, whole(1, MOST_ENVIRONMENTS))
        check_value("threads", threads, whole(1, MOST_THREADS))
        prepare_procgen(env_id, max_episode_steps)
        if max_episode_steps is not None:
            options["max_episode_steps"] = max_episode_steps
        _check_options(env_id, options)
        if not is_procgen(env_id):  # whose games raise errors
            _try_out(env_id, options)
        try:
            with _quiet():
                spec = envpool.make_spec(env_id, **options)
                own_spaces = spec.gymnasium_observation_space, spec.gymnasium_action_space
        except Exception as error:  # of EnvPool's task, whose options depend on each other
            raise ValueError(f"EnvPool's {env_id} can't have the options {show(options)}: {error}") from error
        for space in own_spaces:
            if isinstance(space, spaces.Dict | spaces.Tuple):
                raise ValueError(f"{env_id} has a {type(space).__name__} space, and only single arrays are handled.")
        self.observation_space, self.action_space = map(single_precision, own_spaces)
        self.max_episode_steps = int(spec.config.max_episode_steps)
        # At its own time limit EnvPool reports every episode as truncated, also one that terminates in that very step.
        # Where Gymnasium has the limit in a wrapper, the task knows nothing of it: there the pool gets a later limit,
        # and the episodes are cut here. Elsewhere the limit can be part of the task (MiniGrid pays by it, Procgen ends
        # by it), and EnvPool's word stands.
        original = gym.registry.get(env_id)
        self._cuts_episodes = original is not None and original.max_episode_steps is not None
        if self._cuts_episodes:
            options["max_episode_steps"] = self.max_episode_steps + 1
        own = {"task_id": env_id, "num_envs": n_envs, "batch_size": n_envs, "num_threads": min(threads, n_envs)}
        self._arguments = own | options

    def seed(self, seed: int | list[int]) -> None:
        """Make the environments anew: EnvPool seeds when it is made, and only then, with signed numbers of 32 bits.

        :param seed: of each environment, or of the first, from which the others are counted upwards
        """
        import envpool

        try:
            with _quiet():
                self._pool = envpool.make(env_type="gymnasium", seed=seed, **self._arguments)
                self._pool.observation_space, self._pool.action_space  # noqa: B018  EnvPool makes them on first use
        except Exception as error:  # of EnvPool's task
            raise ValueError(f"EnvPool can't make {show(self._arguments)}: {error}") from error

    def reset(self, *environments: Array) -> Array:
        """Begin new episodes in all environments, or in those with some indices; return their observations."""
        observations, _ = self._pool.reset(*(indices.astype(np.int32) for indices in environments))
        return self._cast(observations)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        """Return observations, rewards, terminated and truncated.

        Where an episode ended in the step before and nobody began the next one, that is what the step does: it ignores
        the action and pays 0.
        """
        observations, rewards, terminated, truncated, info = self._pool.step(np.asarray(actions))
        if self._cuts_episodes:
            truncated = info["elapsed_step"] == self.max_episode_steps
            # These were cut, which the pool does not know: the step that it took is dropped.
            beyond = np.flatnonzero(info["elapsed_step"] > self.max_episode_steps)
            if beyond.size:
                observations[beyond], rewards[beyond] = self.reset(beyond), 0
        return self._cast(observations), rewards, terminated, truncated

    def _cast(self, observations: Array) -> Array:
        return observations.astype(self.observation_space.dtype, copy=False)


class EnvPoolVecEnv(VecEnv):
    """An EnvPool environment, in synchronous mode, as a Stable-Baselines3 VecEnv.

    Single precision halves a replay buffer, see `Pool`. At a step that ends no episode every info is empty, and at an
    episode's end it holds the two entries that Stable-Baselines3 reads, `terminal_observation` and
    `TimeLimit.truncated`.

    :param env_id: an id that EnvPool lists, of a task with single arrays or numbers as observations and actions
    :param n_envs: how many environments step together
    :param seed: environment i is seeded with seed + i
    :param threads: EnvPool's worker threads
    :param max_episode_steps: the time limit; None keeps the task's own
    :param options: handed to `envpool.make`; one that the task does not have, or not with such a value, is refused
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
        if options.pop("render_mode", None) is not None:
            # Where OpenGL is missing, EnvPool's renderer ends the whole process.
            raise ValueError(f"{env_id} cannot be rendered through EnvPool; Gymnasium's form of it can.")
        self.env_id = env_id
        pool = Pool(env_id, n_envs, max_episode_steps=max_episode_steps, threads=threads, **options)
        self._pool: Any = pool
        self.max_episode_steps = pool.max_episode_steps
        super().__init__(n_envs, pool.observation_space, pool.action_space)
        self._seed_pool(seed)

    def _seed_pool(self, seed: int) -> None:
        # EnvPool takes 32-bit signed seeds, Stable-Baselines3 draws unsigned ones.
        self._pool.seed(seed % (np.iinfo(np.int32).max - self.num_envs))

    def reset(self) -> Array:
        """Reset every environment; after `seed()`, start again from that seed."""
        first_seed = self._seeds[0]
        if first_seed is not None:  # like Stable-Baselines3, EnvPool counts upwards from the first
            self._seed_pool(first_seed)
        self._reset_seeds()
        self._reset_options()
        observations: Array = self._pool.reset()
        return observations

    def step_async(self, actions: Array) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every environment, and reset those whose episode ended."""
        observations, rewards, terminated, truncated = self._pool.step(self._actions)
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            finished = np.flatnonzero(dones)
            last_observations = observations[finished]
            observations[finished] = self._pool.reset(finished)
            for index, last_observation in zip(finished, last_observations, strict=True):
                infos[index]["terminal_observation"] = last_observation
                infos[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        return observations, rewards, dones, infos

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
