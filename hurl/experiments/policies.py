"""From what a user names to policies that can be rolled out: runs, checkpoints, zip files, functions, chance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from hurl.data.collect import Progress, collect
from hurl.data.rollout import Act, CollectionError, Policy
from hurl.envs import EnvPoolVecEnv
from hurl.experiments.checkpoint import checkpoint_paths, is_checkpoint, read_state_file, run_of
from hurl.experiments.config import EnvironmentConfig, load_environment
from hurl.experiments.evaluate import config_of
from hurl.experiments.folder import RunFolder
from hurl.experiments.trainers.base import CheckpointPolicy, make_environment
from hurl.experiments.trainers.sb3 import SB3Policy
from hurl.experiments.zips import load_zip
from hurl.files import read_regular
from hurl.own_code import describe_code, find_function

if TYPE_CHECKING:
    from minari import MinariDataset

RANDOM = "random"


def collect_policies(
    sources: Sequence[str],
    dataset_id: str,
    *,
    transitions: int,
    n_envs: int = 10,
    env_id: str | None = None,
    settings: Sequence[str] = (),
    every: int = 1,
    count: int | None = None,
    algorithm: str | None = None,
    deterministic: bool = False,
    seed: int = 0,
    root: str | Path | None = None,
    threads: int = 1,
    trust: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> MinariDataset:
    """Roll the policies of some sources out into a Minari dataset; see `find_policies` and `hurl.data.collect`.

    :param n_envs: environments that step together
    :param env_id: the environment; None means that of the runs
    :param settings: `key=value` each, of the environment that is named, see `EnvironmentConfig`
    :param threads: EnvPool's worker threads, which change nothing in the data
    :param trust: whether code that runs name may be run, other than hurl's own
    """
    environment = find_environment(sources, env_id, settings, trust=trust)
    env = make_environment(environment, n_envs, seed, threads=threads)
    try:
        return collect(
            find_policies(
                sources,
                env,
                environment,
                every=every,
                count=count,
                algorithm=algorithm,
                deterministic=deterministic,
                trust=trust,
            ),
            env,
            dataset_id,
            transitions=transitions,
            seed=seed,
            root=root,
            environment=environment.model_dump(exclude={"n_envs"}),
            env_spec=_env_spec(environment, env),
            report=report,
        )
    finally:
        env.close()


def find_environment(
    sources: Sequence[str], env_id: str | None = None, settings: Sequence[str] = (), *, trust: bool = False
) -> EnvironmentConfig:
    """Return the environment that policies are to be rolled out in: the one named, or else that of their runs.

    :param trust: whether code that runs name may be run, other than hurl's own
    """
    if not sources:
        raise CollectionError("no policy is named: name a run's folder, a .zip file, `random` or module:function")
    if env_id is not None:
        return load_environment(env_id, settings)
    if settings:
        raise CollectionError(f"{settings[0]!r} is set of an environment that is not named: name it with --env")
    found: dict[str, EnvironmentConfig] = {}
    for source in sources:
        run = RunFolder(Path(source))
        if run.exists or is_checkpoint(run.path):
            of_run = partial(config_of, run.path) if is_checkpoint(run.path) else run.read_config
            config = of_run(trust=trust)
            found[source] = config.environment.alone
    if not found:
        _check_exists(sources[0])
        raise CollectionError(f"{sources[0]!r} does not say which environment it is for: name one with --env")
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            raise CollectionError(
                f"{first} is of {found[first].name} and {other} of {found[other].name}: "
                "collect one dataset of each, or name an environment with --env"
            )
    return found[first]


def find_policies(
    sources: Sequence[str],
    env: VecEnv,
    environment: EnvironmentConfig,
    *,
    every: int = 1,
    count: int | None = None,
    algorithm: str | None = None,
    deterministic: bool = False,
    trust: bool = False,
) -> list[Policy]:
    """Return the policies that sources name.

    :param sources: each a run's folder (all its checkpoints), a checkpoint, a zip file of Stable-Baselines3 or SBX,
        `random`, or `module:function` with a function of observations that returns actions
    :param env: where they are to act; models are built on it
    :param environment: what `env` was made from
    :param every: of a run, every so many-th checkpoint only
    :param count: of those of a run, so many, evenly spaced up to the last; None means all
    :param algorithm: of the zip files, such as `sb3.PPO`
    :param deterministic: whether models act without chance
    :param trust: whether code that runs name may be run, other than hurl's own
    """
    if every < 1:
        raise CollectionError(f"every {every}-th checkpoint makes no sense: give a number from 1 on")
    policies: list[Policy] = []
    for source in sources:
        path = Path(source)
        if source == RANDOM:
            policies.append(_random_policy(env))
        elif is_checkpoint(path):
            policies += _checkpoint_policies([path], env, environment, deterministic, trust)
        elif RunFolder(path).exists:
            checkpoints = checkpoint_paths(RunFolder(path))[every - 1 :: every]
            if not checkpoints:
                raise CollectionError(f"{path} has no {every}-th checkpoint yet: let the run go on")
            chosen = _evenly(checkpoints, count, path)
            policies += _checkpoint_policies(chosen, env, environment, deterministic, trust)
        elif path.suffix == ".zip":
            policies.append(_zip_policy(path, algorithm, env, deterministic))
        elif ":" in source:
            policies.append(_function_policy(source))
        else:
            _check_exists(source)
    return policies


def _check_exists(source: str) -> None:
    """Refuse what names no policy."""
    if source != RANDOM and ":" not in source and Path(source).suffix != ".zip":
        within = sorted(path for pattern in ("seed-*", "*/seed-*") for path in Path(source).glob(pattern))
        hint = f"; of the runs in it, {within[0]}" if within else ""
        raise CollectionError(
            f"{source!r} is no policy: name a run's folder, one of its checkpoints, a .zip file, "
            f"`{RANDOM}`, or a function as module:function{hint}"
        )


def _env_spec(environment: EnvironmentConfig, env: VecEnv) -> EnvSpec | None:
    """Return with what Gymnasium can make the environment; None where it has no such, or none with these options.

    Wrappers are code, which a dataset does not name.
    """
    if environment.wrappers:
        return None
    options = dict(environment.options)
    spec = gym.registry.get(environment.id.rpartition(":")[2])
    if spec is None:
        return None
    spec = deepcopy(spec)
    spec.max_episode_steps = options.pop("max_episode_steps", spec.max_episode_steps)
    if options and isinstance(env.unwrapped, EnvPoolVecEnv):
        return None  # options of EnvPool's own
    spec.kwargs |= options
    try:
        spec.to_json()
    except (TypeError, ValueError):
        return None  # made by a class or a function, which a dataset can't hold
    return spec


# The kinds of policies -----------------------------------------------------------------------------------------------


def _random_policy(env: VecEnv) -> Policy:
    def start(seed: int) -> Act:
        actions = batch_space(env.action_space, env.num_envs)
        actions.seed(seed)
        return lambda observations: actions.sample()

    return Policy(RANDOM, start, RANDOM, RANDOM, RANDOM)


def _function_policy(name: str) -> Policy:
    function = find_function(name)

    def start(seed: int) -> Act:
        set_random_seed(seed)  # for functions that draw from NumPy's, Python's or torch's global generator
        return function

    return Policy(name, start, name, "function", " ".join(describe_code(name)))


def _zip_policy(path: Path, algorithm: str | None, env: VecEnv, deterministic: bool) -> Policy:
    if not path.is_file():
        raise CollectionError(f"there is no file {path}")
    if algorithm is None:
        raise CollectionError(f"{path} does not say which algorithm it is of: name it, such as --algorithm sb3.PPO")
    model = SB3Policy(load_zip(path, algorithm, env))
    return _model_policy(model, str(path), str(path), algorithm, read_regular(path, follow_links=True), deterministic)


def _evenly(checkpoints: Sequence[Path], count: int | None, run: Path) -> Sequence[Path]:
    """Return so many of a run's checkpoints, evenly spaced up to the last; None means all."""
    if count is None:
        return checkpoints
    if not 1 <= count <= len(checkpoints):
        raise CollectionError(f"{count} policies can't be chosen from {len(checkpoints)} checkpoints of {run}")
    return [checkpoints[(number + 1) * len(checkpoints) // count - 1] for number in range(count)]


def _checkpoint_policies(
    checkpoints: Sequence[Path], env: VecEnv, environment: EnvironmentConfig, deterministic: bool, trust: bool
) -> list[Policy]:
    """Return the policies of checkpoints of one run; they share a model, into which each loads its weights."""
    config = config_of(checkpoints[0], trust=trust)
    run = run_of(checkpoints[0])
    if config.environment.alone != environment.alone:
        _check_spaces(run.path, config.environment, env, environment)
    with run.naming_config():
        policy = config.algorithm.library.trainers.build_policy(config, env)
    name = config.algorithm.name
    found = []
    for path in checkpoints:
        content = read_state_file(path)  # which holds the hash of the weights
        load = partial(policy.load, path)
        own = f"{run.path}/{path.resolve().name}"
        found.append(_model_policy(policy, own, str(run.path), name, content, deterministic, load))
    return found


def _check_spaces(run: Path, trained: EnvironmentConfig, env: VecEnv, environment: EnvironmentConfig) -> None:
    """Refuse a run whose observations or actions are not those of the environments."""
    with closing(make_environment(trained, 1, 0)) as own:
        for kind in ("observation", "action"):
            theirs, ours = getattr(own, f"{kind}_space"), getattr(env, f"{kind}_space")
            if theirs != ours:
                raise CollectionError(
                    f"{run} was trained in {trained.name} with {kind}s {theirs}, and {environment.name} "
                    f"has {ours}: name an environment with the same spaces, or leave --env out"
                )


def _model_policy(
    model: CheckpointPolicy,
    name: str,
    source: str,
    algorithm: str,
    content: bytes,
    deterministic: bool,
    load: Callable[[], None] = lambda: None,
) -> Policy:
    """Return the policy of a model, which acts with the weights that it has when it is started.

    :param content: what tells it from others
    :param load: called before that, to take the weights
    """
    if model.has_memory:
        raise CollectionError(
            f"{algorithm} remembers earlier steps, which a policy that is collected from can't: name one without memory"
        )

    def start(seed: int) -> Act:
        load()
        model.seed(seed)
        return lambda observations: model.predict(observations, deterministic=deterministic)[0]

    identity = f"{hashlib.sha256(content).hexdigest()}{' deterministic' if deterministic else ''}"
    return Policy(name, start, source, algorithm, identity)
