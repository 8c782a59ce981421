"""One function for every environment: EnvPool's when there is one, Gymnasium's otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from hurl.envs.pool import EnvPoolVecEnv, single_precision
from hurl.envs.sparse_reacher import HORIZON, SPARSE_REACHER_ID, SparseReacherVecEnv
from hurl.names import UnknownEnvironmentError, describe_exception, needs
from hurl.own_code import find_maker, find_module
from hurl.values import MOST_ENVIRONMENTS, NOTHING, TEXT, Backend, check_value, show, whole

Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]


# The class that Gymnasium makes of each id, which it imports then, and the time limit.
OWN_ENVIRONMENTS = {
    SPARSE_REACHER_ID: ("hurl.envs.sparse_reacher:SparseReacherEnv", HORIZON),
    "hurl/PointMaze-v0": ("hurl.envs.point_maze:PointMazeEnv", 300),
}


def register_environments() -> None:
    """Make hurl's own environments known to Gymnasium; a second call changes nothing."""
    for env_id, (entry_point, horizon) in OWN_ENVIRONMENTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, max_episode_steps=horizon)


def make_env(
    env_id: str,
    n_envs: int = 1,
    seed: int = 0,
    *,
    backend: Backend = "auto",
    threads: int = 1,
    max_episode_steps: int | None = None,
    wrappers: Sequence[Wrapper] = (),
    **options: Any,
) -> VecEnv:
    """Make `n_envs` environments that step together, seeded, with episode statistics in `infos[i]["episode"]`.

    Observations of float64 come as float32, from both backends. On the MuJoCo tasks the two agree up to rounding,
    except that EnvPool's Humanoid-v4 and HumanoidStandup-v4 leave the contact forces, the last 84 numbers of an
    observation, at zero, where Gymnasium fills them in; with the option `post_constraint=True` EnvPool does too.

    :param env_id: such as `Hopper-v4`, or `module:id` to import first the module that registers the id with Gymnasium
    :param n_envs: how many environments
    :param seed: environment i is seeded with seed + i
    :param backend: `auto` takes EnvPool where it has the id and nothing is rendered, and Gymnasium otherwise
    :param threads: EnvPool's worker threads; Gymnasium's environments step one after the other
    :param max_episode_steps: the time limit; None keeps the task's own
    :param wrappers: called with each environment of Gymnasium's in turn, the first with what `gymnasium.make` makes
    :param options: handed to `envpool.make` or `gymnasium.make`, such as `render_mode="rgb_array"`
    :raises UnknownEnvironmentError: if the backend has no such environment; it names the nearest that exist
    """
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}, not {backend!r}.")
    check_value("n_envs", n_envs, whole(1, MOST_ENVIRONMENTS))
    check_value("max_episode_steps", max_episode_steps, whole(1) | NOTHING)
    check_value("render_mode", options.get("render_mode"), TEXT | NOTHING)

    if wrappers and backend == "envpool":
        raise ValueError("EnvPool's environments can't be wrapped one by one: choose the backend 'gymnasium'.")
    backend = "gymnasium" if wrappers else backend
    module, _, env_id = env_id.rpartition(":")
    if module:
        find_module(f"{module}:{env_id}")
    in_gymnasium = set(gym.registry) if backend != "envpool" else set()
    in_envpool = _envpool_ids(required=backend == "envpool") if backend != "gymnasium" else set()
    if env_id in in_gymnasium and options.get("render_mode") is not None:
        in_envpool = set()

    environments: VecEnv
    if env_id in in_envpool:
        pool_options = {"seed": seed, "threads": threads, "max_episode_steps": max_episode_steps, **options}
        if env_id == SPARSE_REACHER_ID:
            environments = SparseReacherVecEnv(n_envs, **pool_options)
        else:
            environments = EnvPoolVecEnv(env_id, n_envs, **pool_options)
    elif env_id in in_gymnasium:
        environments = DummyVecEnv([lambda: _gymnasium_env(env_id, max_episode_steps, wrappers, options)] * n_envs)
        environments.seed(seed)
    else:
        raise UnknownEnvironmentError(env_id, backend, in_gymnasium | in_envpool, module or None)
    environments.action_space.seed(seed)
    return VecMonitor(environments)


def _envpool_ids(*, required: bool) -> set[str]:
    try:
        with needs("The backend 'envpool'", "fast"):
            import envpool
    except ImportError:
        if required:
            raise
        return set()
    return {*envpool.list_all_envs(), SPARSE_REACHER_ID}


def _gymnasium_env(
    env_id: str, max_episode_steps: int | None, wrappers: Sequence[Wrapper], options: dict[str, Any]
) -> gym.Env[Any, Any]:
    try:
        env: gym.Env[Any, Any] = gym.make(env_id, max_episode_steps=max_episode_steps, **options)
    except TypeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Gymnasium's {env_id} can't have the options {show(options)}: {reason}") from error
    for wrap in wrappers:
        env = wrap(env)
    space = single_precision(env.observation_space)
    if space is not env.observation_space:
        env = TransformObservation(env, lambda observation: observation.astype(np.float32), space)
    return env


def find_wrapper(name: str, arguments: Mapping[str, Any]) -> Wrapper:
    """Return the wrapper that `module:name` names: a class derived from `gymnasium.Wrapper`, or a function.

    :param arguments: that it takes after the environment
    """
    make = find_maker(name, gym.Wrapper)

    def wrap(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        try:
            wrapped: gym.Env[Any, Any] = make(env, **arguments)
        except Exception as error:  # wrappers raise what they like
            reason = " ".join(describe_exception(error).split())
            raise ValueError(
                f"the wrapper {name!r} can't be put around the environment with {show(dict(arguments))}: {reason}"
            ) from error
        if not isinstance(wrapped, gym.Env):
            raise ValueError(f"the wrapper {name!r} returned {show(wrapped)}: let it return an environment")
        return wrapped

    return wrap
