"""An agent that exists, of a run or in a zip file, as a heuristic for another run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from hurl.envs import make_env
from hurl.experiments.checkpoint import read_state, run_of
from hurl.experiments.config import RunConfig
from hurl.experiments.evaluate import config_of, find_checkpoint
from hurl.experiments.trainers.base import build_environment
from hurl.experiments.trainers.sb3 import build_policy, load_weights
from hurl.experiments.zips import is_guided, load_zip
from hurl.guidance import HeuristicError
from hurl.heuristics.base import StorableHeuristic
from hurl.heuristics.value_function import ValueFunctionHeuristic, check_estimates_original
from hurl.ladder import Ladder


def value_function_of(path: Path, cls: type[Any] = ValueFunctionHeuristic, *, trust: bool = False) -> StorableHeuristic:
    """Return the value function of a run's agent, see `ValueFunctionHeuristic.from_agent`.

    :param path: a checkpoint, or a run's folder, whose newest checkpoint it is
    :param cls: the heuristic's class, whose `from_agent` is called
    :param trust: whether code that the run names may be run, other than hurl's own
    """
    checkpoint = find_checkpoint(path)
    config = config_of(checkpoint, trust=trust)
    state = read_state(checkpoint)
    if state["iteration"] == 0:
        raise HeuristicError(f"the critic of {checkpoint} was never trained: name the run of an agent that learnt")
    _check_critic(config, state["iteration"])
    with closing(build_environment(config, 1, config.seed)) as env:
        with run_of(checkpoint).naming_config():
            policy = build_policy(config, env)
        policy.load(checkpoint)
        load_weights(policy.model, checkpoint)  # of a ladder those of λ = 1, not of the best rung
        heuristic: StorableHeuristic = cls.from_agent(policy.model)
        return heuristic


def _check_critic(config: RunConfig, iteration: int) -> None:
    """Refuse the critic of a run that does not learn the original problem; the last of a ladder's rungs does."""
    blend = None if config.prior is None else config.prior.blend
    if config.guidance is None:
        check_estimates_original(1.0, "hurl", blend)
        return
    schedule = config.guidance.schedule.build(config.iterations)
    if not isinstance(schedule, Ladder):
        check_estimates_original(schedule(iteration), config.guidance.shaping, blend)
    elif schedule.rungs == (1.0,):
        check_estimates_original(1.0, config.guidance.shaping, blend)


def value_function_of_zip(
    path: Path, algorithm: str, env_id: str, cls: type[Any] = ValueFunctionHeuristic
) -> StorableHeuristic:
    """Return the value function of an agent that `model.save` wrote, see `ValueFunctionHeuristic.from_agent`.

    What an agent has learnt through `VecNormalize` is not all in its file, which tells of that on-policy only, where it
    is refused: take it over in Python, with `from_agent`.

    :param algorithm: what `save` was called on, such as `sb3.PPO`: the file does not say
    :param env_id: the environment that it was trained in, or one with the same spaces
    """
    if is_guided(path):
        raise HeuristicError(
            f"{path} is of a guided agent, and does not say by which λ: load it in Python, and give the model to "
            "ValueFunctionHeuristic.from_agent"
        )
    with closing(make_env(env_id)) as env:
        heuristic: StorableHeuristic = cls.from_agent(load_zip(path, algorithm, env))
        return heuristic
