"""Episodes of a dataset as flat arrays, checked when they are read: what every heuristic is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from hurl.data.storage import DatasetError, find_dataset, read_episodes, reading

if TYPE_CHECKING:
    from minari import MinariDataset


PLAIN = (Box, Discrete, MultiBinary, MultiDiscrete)  # spaces whose values are arrays


@dataclass(frozen=True, eq=False)
class Episodes:
    """E whole episodes, N transitions in all, end to end in flat arrays.

    :param states: s_0 … s_T of each episode, the state after the last action included, shape (N + E, *observation)
    :param actions: a_0 … a_{T−1} of each episode, shape (N, *action)
    :param rewards: r_0 … r_{T−1} of each episode, shape (N,)
    :param lengths: T of each episode, shape (E,)
    :param terminated: whether an episode ended in a terminal state and not at a time limit, shape (E,)
    :param observation_space: of the environment the data is from
    :param action_space: of the environment the data is from
    :param name: the dataset's id
    """

    states: NDArray[Any] = field(repr=False)
    actions: NDArray[Any] = field(repr=False)
    rewards: NDArray[np.float64] = field(repr=False)
    lengths: NDArray[np.int64] = field(repr=False)
    terminated: NDArray[np.bool_] = field(repr=False)
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.observation_space, Box | Discrete):
            raise DatasetError(
                f"dataset {self.name}: observations of {self.observation_space} can't be used, only of a Box or "
                "Discrete space; collect the data with Gymnasium's FlattenObservation"
            )
        counts = len(self.states), len(self.actions), int(self.lengths.sum())
        transitions = len(self.rewards)
        if counts != (transitions + len(self.lengths), transitions, transitions):
            raise DatasetError(
                f"dataset {self.name} has {transitions} rewards in {len(self.lengths)} episodes, so that there should "
                f"be as many actions and steps and {transitions + len(self.lengths)} states: got {counts[1]}, "
                f"{counts[2]} and {counts[0]}"
            )
        if len(self.terminated) != len(self.lengths):
            raise DatasetError(
                f"dataset {self.name} has {len(self.lengths)} episodes, but says of {len(self.terminated)} whether "
                "they ended in a terminal state"
            )
        if len(self.lengths) and self.lengths.min() < 1:
            raise DatasetError(
                f"dataset {self.name} has an episode of {self.lengths.min()} steps: leave out those without any"
            )
        if not len(self.lengths):
            raise DatasetError(f"dataset {self.name} has no complete episode: collect episodes until they end")
        for name, array in (("rewards", self.rewards), ("observations", self.states), ("actions", self.actions)):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                count = np.count_nonzero(~np.isfinite(array))
                raise DatasetError(
                    f"dataset {self.name} has {count} {name} that are NaN or infinite: leave their episodes out"
                )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def transitions(self) -> int:
        """N, how many transitions there are."""
        return len(self.rewards)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The index after each episode's last transition, shape (E,)."""
        return np.cumsum(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The index of each episode's first transition, shape (E,)."""
        return self.ends - self.lengths

    @cached_property
    def episode_of(self) -> NDArray[np.int64]:
        """The episode that each transition is in, shape (N,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def observations(self) -> NDArray[Any]:
        """The state s of each transition, shape (N, *observation)."""
        return self.states[self.positions]

    @property
    def last_states(self) -> NDArray[Any]:
        """The state after each episode's last action, shape (E, *observation)."""
        states: NDArray[Any] = self.states[self.ends + np.arange(len(self))]
        return states

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Where s of each transition is in `states`, shape (N,); s' comes after it."""
        return np.arange(self.transitions) + self.episode_of

    @cached_property
    def terminal(self) -> NDArray[np.bool_]:
        """Whether s' of each transition is a terminal state, shape (N,)."""
        terminal = np.zeros(self.transitions, bool)
        terminal[self.ends[self.terminated] - 1] = True
        return terminal

    @cached_property
    def digest(self) -> str:
        """A hash of all that is in the data."""
        digest = hashlib.sha256()
        for array in (self.states, self.actions, self.rewards, self.lengths, self.terminated):
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def select(self, indices: Sequence[int] | NDArray[np.integer[Any] | np.bool_]) -> Episodes:
        """Return some of the episodes, in the order given.

        :param indices: their numbers, negative ones counted from the end, or for each episode whether it is one of them
        """
        indices = np.arange(len(self))[list(indices)]
        states = [self.states[self.starts[i] + i : self.ends[i] + i + 1] for i in indices]
        transitions = [slice(self.starts[i], self.ends[i]) for i in indices]
        return replace(
            self,
            states=np.concatenate(states) if states else self.states[:0],
            actions=np.concatenate([self.actions[rows] for rows in transitions]) if states else self.actions[:0],
            rewards=np.concatenate([self.rewards[rows] for rows in transitions]) if states else self.rewards[:0],
            lengths=self.lengths[indices],
            terminated=self.terminated[indices],
        )

    def split(self, fraction: float, seed: int) -> tuple[Episodes, Episodes]:
        """Return two parts that share no episode, the second with a fraction of the episodes, at least one each."""
        if not 0.0 < fraction < 1.0:
            raise ValueError(f"the fraction of episodes held out must lie between 0 and 1, got {fraction!r}")
        if len(self) < 2:
            raise DatasetError(
                f"dataset {self.name} has one complete episode, of which none can be held out: collect more, "
                "or hold nothing out (validation=0)"
            )
        order = np.random.default_rng(seed).permutation(len(self))
        count = min(max(1, round(fraction * len(self))), len(self) - 1)
        return self.select(np.sort(order[count:])), self.select(np.sort(order[:count]))


def load_episodes(dataset: Episodes | MinariDataset | str, root: str | Path | None = None) -> Episodes:
    """Read a dataset; what can't be learnt from is refused.

    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    """
    if isinstance(dataset, Episodes):
        return dataset
    if isinstance(dataset, str):
        dataset = find_dataset(dataset, root)
    if not hasattr(dataset, "storage"):
        raise TypeError(f"data is a Minari dataset, its id, such as hopper/behaviour-v0, or episodes, got {dataset!r}")
    with reading(dataset.storage.data_path):
        _check_plain(dataset)
    episodes = [
        episode
        for episode in read_episodes(dataset)
        if len(episode) and (episode.terminations[-1] or episode.truncations[-1])
    ]
    if not episodes:
        raise DatasetError(
            f"dataset {dataset.id} has no complete episode among its {len(dataset)}: collect episodes until they end"
        )
    with reading(dataset.storage.data_path):
        states = np.concatenate([episode.observations for episode in episodes])
        actions = np.concatenate([episode.actions for episode in episodes])
        _check_space(dataset.id, "observations", states, dataset.observation_space)
        _check_space(dataset.id, "actions", actions, dataset.action_space)
        return Episodes(
            states,
            actions,
            np.concatenate([episode.rewards for episode in episodes], dtype=np.float64),
            np.array([len(episode) for episode in episodes], np.int64),
            np.array([episode.terminations[-1] for episode in episodes], bool),
            dataset.observation_space,
            dataset.action_space,
            dataset.id,
        )


def _check_plain(dataset: MinariDataset) -> None:
    """Refuse spaces of anything but plain arrays before they are read: Minari opens what is in others unlooked at."""
    if not all(isinstance(space, PLAIN) for space in (dataset.observation_space, dataset.action_space)):
        raise DatasetError(
            f"dataset {dataset.id} has observations of {dataset.observation_space} and actions of "
            f"{dataset.action_space}: only plain arrays can be used; collect with Gymnasium's FlattenObservation"
        )


def _check_space(dataset_id: str, name: str, array: NDArray[Any], space: gym.Space[Any]) -> None:
    """Refuse an array that is not of a space: of another shape or type, or beyond the last of a Discrete one."""
    if array.shape[1:] != space.shape or not np.can_cast(array.dtype, space.dtype or array.dtype, "same_kind"):
        raise DatasetError(
            f"dataset {dataset_id} has {name} of {array.dtype}, shape {array.shape[1:]}, that are not of its space "
            f"{space}: collect it anew"
        )
    if isinstance(space, Discrete) and not ((array >= space.start) & (array - int(space.start) < space.n)).all():
        raise DatasetError(f"dataset {dataset_id} has {name} that are not of its space {space}: collect it anew")
