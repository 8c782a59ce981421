"""Minari datasets on this machine, read with distrust: files may be damaged, and may be a stranger's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hurl.files import MisplacedError, check_file, read_regular
from hurl.names import needs

if TYPE_CHECKING:
    from minari import MinariDataset

METADATA = "metadata.json"
# No compression makes data smaller than this share: where an array claims to be larger, its shape is damaged.
COMPRESSION = 10_000


class DatasetError(ValueError):
    """A dataset that nothing can be learnt from, with what to do about it."""


@dataclass(frozen=True)
class StoredEpisode:
    """The arrays of an episode of T steps, T + 1 observations."""

    observations: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[Any]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into a sentence that names it.

    Damage reaches every corner of Minari, h5py and NumPy, from a KeyError to a MemoryError, so that all are caught.
    """
    try:
        yield
    except (DatasetError, MisplacedError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(
            f"{path} can't be read as a Minari dataset ({reason}): collect or download it anew"
        ) from error


# Finding -------------------------------------------------------------------------------------------------------------


def find_dataset(dataset_id: str, root: str | Path | None = None) -> MinariDataset:
    """Open a Minari dataset that is on this machine; nothing of what its environment is made with is run."""
    with needs("reading a dataset", "experiments"):
        from minari import MinariDataset

    check_dataset_id(dataset_id)
    folder = datasets_folder(root)
    data = folder / dataset_id / "data"
    if not data.is_dir():
        known = sorted(str(path.parent.parent.relative_to(folder)) for path in folder.rglob(f"data/{METADATA}"))
        known = [name for name in known if "/." not in f"/{name}"]  # parts of collections that were stopped
        hint = f"there are {', '.join(known)}" if known else "it holds no dataset"
        raise DatasetError(
            f"there is no dataset {dataset_id!r} in {folder} ({hint}): make it with `hurl collect`, download it with "
            "`minari download`, or name the folder that it is in (--root, or the key root)"
        )
    with reading(data):
        for name in (METADATA, "main_data.hdf5"):
            check_file(data / name, follow_links=True)  # which would be waited for where it is a pipe
        _check_metadata(data)
        return MinariDataset(data)


def datasets_folder(root: str | Path | None) -> Path:
    """Return the folder of Minari datasets, the user's own where none is named."""
    with needs("reading a dataset", "experiments"):
        from minari.storage import get_dataset_path

    return Path(get_dataset_path() if root is None else root)


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


def _check_metadata(data: Path) -> None:
    """Refuse metadata from which Minari would run code, or ask for memory without bounds."""
    file = data / METADATA
    if not file.is_file():
        raise ValueError(f"there is no file {METADATA}")
    metadata = json.loads(read_regular(file, follow_links=True).decode("utf-8"))
    for key in ("observation_space", "action_space"):
        # Where one is missing, Minari makes the environment that the metadata name, with any function of any module.
        if not isinstance(metadata[key], str):
            raise TypeError(f"its {key} is {metadata[key]!r}")
    count = metadata["total_episodes"]
    bytes_of_all = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    if type(count) is not int or not 0 <= count <= bytes_of_all:
        raise ValueError(f"its total_episodes is {count!r}")


# Reading -------------------------------------------------------------------------------------------------------------


def read_episodes(dataset: MinariDataset) -> list[StoredEpisode]:
    """Read all episodes of a dataset whose spaces are of plain arrays, and refuse those that don't belong together."""
    from minari.dataset._storages.hdf5_storage import HDF5Storage

    storage = dataset.storage
    with reading(storage.data_path):
        read = _read_hdf5 if isinstance(storage, HDF5Storage) else iter
        episodes = [
            StoredEpisode(
                episode.observations, episode.actions, episode.rewards, episode.terminations, episode.truncations
            )
            for episode in read(dataset)
        ]
        for episode in episodes:
            _check_ends(episode)
        steps = sum(map(len, episodes))
        if len(dataset) == storage.total_episodes and steps != storage.total_steps:
            raise ValueError(f"it has {steps} steps, and {storage.total_steps} by its metadata")
    return episodes


def _read_hdf5(dataset: MinariDataset) -> Iterator[StoredEpisode]:
    """Yield the episodes of an HDF5 file; each array is looked at before memory is taken for it."""
    import h5py

    file = dataset.storage.data_path / "main_data.hdf5"
    if not file.is_file():
        raise ValueError(f"there is no file {file.name}")
    decode = dataset.storage._decode_space
    with h5py.File(file, "r") as root:
        for index in dataset.episode_indices:
            group = _open(root, f"episode_{index}")
            rewards = _open(group, "rewards")
            steps = rewards.shape[0]
            observations, actions = _open(group, "observations", steps + 1), _open(group, "actions", steps)
            yield StoredEpisode(
                decode(observations, dataset.observation_space),
                decode(actions, dataset.action_space),
                rewards[()],
                _open(group, "terminations", steps)[()],
                _open(group, "truncations", steps)[()],
            )


def _open(group: Any, name: str, length: int | None = None) -> Any:
    """Return a member of a group, unless it is kept elsewhere, is of another length, or claims more than is stored."""
    import h5py

    path = f"{group.name}/{name}"
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{path} is a link to elsewhere")
    member = group[name]
    if isinstance(member, h5py.Dataset):
        if member.external or member.is_virtual:
            raise ValueError(f"{path} is kept in another file")
        if length is not None and member.shape[0] != length:
            raise ValueError(f"{path} has {member.shape[0]} entries in place of {length}")
        if member.nbytes > COMPRESSION * member.id.get_storage_size():
            raise ValueError(f"{path} has the shape {member.shape}, of which little is there")
    return member


def _check_ends(episode: StoredEpisode) -> None:
    """Refuse rewards and ends that are none."""
    if episode.rewards.ndim != 1 or episode.rewards.dtype.kind not in "fiu":
        raise ValueError(f"there are rewards of {episode.rewards.dtype}, shape {episode.rewards.shape}")
    for name in ("terminations", "truncations"):
        array = getattr(episode, name)
        if array.shape != episode.rewards.shape or array.dtype != np.bool_:
            raise ValueError(f"there are {name} of {array.dtype}, shape {array.shape}, for {len(episode)} rewards")
