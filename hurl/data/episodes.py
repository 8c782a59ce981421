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
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from hurl.names import needs

if TYPE_CHECKING:
    from minari import MinariDataset


class DatasetError(ValueError):
    """A dataset that nothing can be learnt from, with what to do about it."""


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
    def next_observations(self) -> NDArray[Any]:
        """The state s' after each transition, shape (N, *observation)."""
        return self.states[self.positions + 1]

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

    def select(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> Episodes:
        """Return some of the episodes, in the order given."""
        indices = np.asarray(indices, np.int64)
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


def load_episodes(dataset: Episodes | MinariDataset | str, root: Path | None = None) -> Episodes:
    """Read a dataset; what can't be learnt from is refused.

    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    """
    if isinstance(dataset, Episodes):
        return dataset
    if isinstance(dataset, str):
        dataset = find_dataset(dataset, root)
    episodes = [
        episode for episode in dataset if len(episode) and (episode.terminations[-1] or episode.truncations[-1])
    ]
    if not episodes:
        raise DatasetError(
            f"dataset {dataset.id} has no complete episode among its {len(dataset)}: collect episodes until they end"
        )
    if not isinstance(episodes[0].observations, np.ndarray) or not isinstance(episodes[0].actions, np.ndarray):
        raise DatasetError(
            f"dataset {dataset.id} has observations of {dataset.observation_space} and actions of "
            f"{dataset.action_space}: only plain arrays can be used; collect with Gymnasium's FlattenObservation"
        )
    return Episodes(
        np.concatenate([episode.observations for episode in episodes]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes], dtype=np.float64),
        np.array([len(episode) for episode in episodes], np.int64),
        np.array([episode.terminations[-1] for episode in episodes], bool),
        dataset.observation_space,
        dataset.action_space,
        dataset.id,
    )


def find_dataset(dataset_id: str, root: Path | None = None) -> MinariDataset:
    """Open a Minari dataset that is on this machine."""
    with needs("reading a dataset", "experiments"):
        from minari import MinariDataset

    check_dataset_id(dataset_id)
    folder = datasets_folder(root)
    data = folder / dataset_id / "data"
    if not data.is_dir():
        known = sorted(str(path.parent.parent.relative_to(folder)) for path in folder.rglob("data/metadata.json"))
        known = [name for name in known if "/." not in f"/{name}"]  # parts of collections that were stopped
        hint = f"there are {', '.join(known)}" if known else "it holds no dataset"
        raise DatasetError(
            f"there is no dataset {dataset_id!r} in {folder} ({hint}): make it with `hurl collect`, download it with "
            "`minari download`, or name the folder that it is in (--root, or the key root)"
        )
    try:
        return MinariDataset(data)
    except (OSError, KeyError, ValueError, AssertionError) as error:
        raise DatasetError(f"{data} can't be read as a Minari dataset ({error}): collect it anew") from error


def datasets_folder(root: Path | None) -> Path:
    """Return the folder of Minari datasets, the user's own where none is named."""
    with needs("reading a dataset", "experiments"):
        from minari.storage import get_dataset_path

    return Path(get_dataset_path()) if root is None else root


def check_dataset_id(dataset_id: str) -> None:
    """Refuse an id that Minari would not take."""
    with needs("reading a dataset", "experiments"):
        from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # a TypeError where the version is missing
        raise DatasetError(
            f"the dataset id {dataset_id!r} is not of the form namespace/name-v0, with letters, digits, - and _, "
            "two or more in the namespace"
        ) from None
