"""Rolling one policy out: whole episodes, without favour for the short ones, and a set number of transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

Act = Callable[[NDArray[Any]], Any]

REPORT_STEPS = 50


class CollectionError(ValueError):
    """A collection that can't be made, with what to change."""


@dataclass(frozen=True)
class Policy:
    """A policy that is to be rolled out.

    :param name: its id in the dataset
    :param start: makes it ready, its random choices seeded, and returns how it acts: a batch of observations to a
        batch of actions
    :param source: where it comes from, such as the folder of a run
    :param algorithm: what made it, such as `sbx.SAC`
    :param identity: tells it from any policy that acts differently, such as a hash of its weights
    """

    name: str
    start: Callable[[int], Act]
    source: str
    algorithm: str
    identity: str


@dataclass(frozen=True)
class Rollout:
    """The episodes of one policy, end to end, as in `hurl.data.Episodes`.

    :param cut: whether an episode was cut because there were enough transitions, shape (E,)
    """

    states: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    cut: NDArray[np.bool_]


@dataclass
class _Episode:
    """An episode while it is rolled out: in environment `slot`, from step `begin` up to `end`, open while None."""

    slot: int
    begin: int
    end: int | None = None
    terminated: bool = False
    last_state: NDArray[Any] | None = None

    def close(self, now: int, info: Mapping[str, Any]) -> None:
        """Note how it ended."""
        self.end, self.terminated = now, not info["TimeLimit.truncated"]
        self.last_state = np.asarray(info["terminal_observation"])

    def length(self, now: int) -> int:
        """Return how many steps it has."""
        return (now if self.end is None else self.end) - self.begin


def roll_out(
    policy: Policy, env: VecEnv, transitions: int, seed: int, report: Callable[[int], None] = lambda taken: None
) -> Rollout:
    """Roll a policy out until the episodes that began first have enough transitions.

    The episodes that count are the first by when they began, whatever their length, and not the first to end, among
    which short ones would be too many; so the last of them are waited for.

    :param seed: of the policy's choices, and of the environments
    :param report: called now and then with how many transitions there are
    """
    act = policy.start(seed)
    env.seed(seed)
    observations: Any = env.reset()
    steps: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    running = [_Episode(slot, 0) for slot in range(env.num_envs)]
    episodes = list(running)
    while len(steps) * env.num_envs < transitions or not _suffice(episodes, transitions, len(steps)):
        before = np.array(observations)  # a copy: what a policy is given, it may write into
        actions = _check_actions(act(observations), policy, env.action_space, env.num_envs)
        observations, rewards, dones, infos = env.step(actions)
        steps.append((before, actions, rewards))
        for slot in np.flatnonzero(dones).tolist():
            running[slot].close(len(steps), infos[slot])
            running[slot] = _Episode(slot, len(steps))
            episodes.append(running[slot])
        if len(steps) % REPORT_STEPS == 0 and len(steps) * env.num_envs < transitions:
            report(len(steps) * env.num_envs)
    return _cut_out(steps, observations, episodes, transitions)


def _suffice(episodes: list[_Episode], transitions: int, now: int) -> bool:
    """Whether it is settled which transitions count: enough came before any episode that is still open could grow."""
    total = 0
    for episode in episodes:
        total += episode.length(now)
        if total >= transitions:
            return True
        if episode.end is None:
            return False
    return False


def _cut_out(
    steps: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]],
    last_observations: NDArray[Any],
    episodes: list[_Episode],
    transitions: int,
) -> Rollout:
    """Take the episodes that began first, up to the number of transitions, out of what happened at each step."""
    observations, actions, rewards = zip(*steps, strict=True)
    states_of = np.stack([*observations, last_observations])
    actions_of, rewards_of = np.stack(actions), np.stack(rewards)
    states: list[Any] = []
    spans, lengths, wholes = [], [], []
    missing = transitions
    for episode in episodes:
        length = min(episode.length(len(steps)), missing)
        end, slot = episode.begin + length, episode.slot
        # after the end, the environments show the first state of the next episode
        last = episode.last_state if episode.end == end else states_of[end, slot]
        states += [states_of[episode.begin : end, slot], [last]]
        spans.append((slice(episode.begin, end), slot))
        lengths.append(length)
        wholes.append(episode.end == end)
        missing -= length
        if not missing:
            break
    terminated = [episode.terminated for episode in episodes[: len(lengths)]]
    return Rollout(
        np.concatenate(states),
        np.concatenate([actions_of[span] for span in spans]),
        np.concatenate([rewards_of[span] for span in spans], dtype=np.float64),
        np.array(lengths, np.int64),
        np.array(wholes) & terminated,
        ~np.array(wholes),
    )


def _check_actions(returned: Any, policy: Policy, space: gym.Space[Any], count: int) -> NDArray[Any]:
    """Return the actions as the environments take them; refuse what no environment could make sense of."""
    actions: NDArray[Any] = np.asarray(returned)
    expected = (count, *(space.shape or ()))
    if actions.shape != expected:
        raise CollectionError(
            f"the policy {policy.name!r} returned actions of shape {actions.shape} for {count} observations: "
            f"the environment takes {expected}"
        )
    if isinstance(space, Discrete):
        first, last = int(space.start), int(space.start) + int(space.n) - 1
        if actions.dtype.kind not in "iu" or actions.min() < first or actions.max() > last:
            raise CollectionError(
                f"the policy {policy.name!r} returned the actions {actions.tolist()}: the environment takes whole "
                f"numbers from {first} to {last}"
            )
    elif actions.dtype.kind not in "fiu" or not np.isfinite(actions).all():
        raise CollectionError(
            f"the policy {policy.name!r} returned the actions {actions.tolist()}: the environment takes finite numbers"
        )
    return actions.astype(space.dtype)
