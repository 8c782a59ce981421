"""Rolling policies out into a Minari dataset: the same number of transitions of each, resumed where it stopped."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete

from hurl import __version__
from hurl.data.card import dataset_card
from hurl.data.rollout import CollectionError, Policy, Rollout, roll_out
from hurl.data.storage import check_dataset_id, datasets_folder, find_dataset, reading
from hurl.files import MisplacedError, aside, lock_file, making, open_lock, read_regular, remove, write_whole

if TYPE_CHECKING:
    from minari import MinariDataset
    from stable_baselines3.common.vec_env import VecEnv


@dataclass(frozen=True)
class Progress:
    """How far a collection is.

    :param policy: the name of the policy that is rolled out
    :param number: which of the policies it is, from 1 on
    :param policies: how many policies there are
    :param transitions: how many transitions of this policy there are
    :param wanted: how many transitions of each policy there will be
    :param earlier: whether they were there before, from a collection that was stopped
    """

    policy: str
    number: int
    policies: int
    transitions: int
    wanted: int
    earlier: bool = False


@dataclass(frozen=True)
class PolicySummary:
    """What a dataset holds of one policy.

    :param return_mean: the mean return of its episodes, those that were cut left out where there are others
    """

    name: str
    episodes: int
    transitions: int
    return_mean: float


def collect(
    policies: Sequence[Policy],
    env: VecEnv,
    dataset_id: str,
    *,
    transitions: int,
    seed: int = 0,
    root: str | Path | None = None,
    environment: Mapping[str, Any] | None = None,
    env_spec: EnvSpec | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> MinariDataset:
    """Roll each policy out for a number of transitions; return the dataset, which appears whole or not at all.

    The transitions of a policy are those of its first episodes in the order in which they began, so that long
    episodes count as much as short ones; the episode that reaches the number is cut there. Each policy's part is
    kept aside as it is finished: the same call goes on where one before it was stopped, and gives the same data.

    :param env: the environments, side by side
    :param dataset_id: such as `hopper/behaviour-v0`
    :param transitions: how many of each policy
    :param seed: policy i is rolled out with a seed derived from it and i
    :param root: the folder of Minari datasets; None means the user's own
    :param environment: what tells the environments from others, kept with the data: their id, their options
    :param env_spec: with which Gymnasium can make the same environment; kept with the data
    :param report: called at the beginning and the end of each policy, and now and then between
    """
    from stable_baselines3.common.vec_env import VecMonitor

    _check_input(policies, env, transitions, seed)
    check_dataset_id(dataset_id)
    folder = datasets_folder(root) / dataset_id
    plan = _Plan(tuple(policies), transitions, env.num_envs, seed, dict(environment or {}))
    parts = aside(folder)
    if not (folder / "data").exists():
        with _taken(parts, dataset_id):
            if not (folder / "data").exists():
                env = env.venv if isinstance(env, VecMonitor) else env  # what it adds up is in the data
                for index in range(len(policies)):
                    _collect_part(plan, index, env, _part_file(parts, index), report)
                _write_dataset(plan, parts, dataset_id, env, env_spec).replace(folder)
    dataset = find_dataset(dataset_id, root)
    _check_plan(plan, dataset, folder)
    remove(parts)
    return dataset


@contextmanager
def _taken(parts: Path, dataset_id: str) -> Iterator[None]:
    """Take the folder of the parts for this process; one into which nothing was collected is removed again."""
    with making(parts), open_lock(parts / "lock") as lock:
        if not lock_file(lock):
            raise CollectionError(
                f"another process is collecting {dataset_id}: wait for it, or choose another dataset id"
            )
        try:
            yield
        finally:
            if [path.name for path in parts.iterdir()] == ["lock"]:
                (parts / "lock").unlink()


def summarize(dataset: MinariDataset) -> list[PolicySummary]:
    """Return what a collected dataset holds of each policy, in the order of the policies."""
    groups: dict[str, list[dict[str, Any]]] = {}
    with reading(dataset.storage.data_path):
        for metadata in dataset.storage.get_episode_metadata(dataset.episode_indices):
            groups.setdefault(str(metadata["policy"]), []).append(metadata)
        return [_summarize(name, episodes) for name, episodes in groups.items()]


def _summarize(name: str, episodes: Sequence[Mapping[str, Any]]) -> PolicySummary:
    returns = [episode["return"] for episode in episodes if not episode["cut"]]
    steps = sum(int(episode["total_steps"]) for episode in episodes)
    mean = float(np.mean(returns or [episode["return"] for episode in episodes]))
    return PolicySummary(name, len(episodes), steps, mean)


# What is asked for ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """All that determines the data."""

    policies: tuple[Policy, ...]
    transitions: int
    n_envs: int
    seed: int
    environment: dict[str, Any]

    def rollout_seed(self, index: int) -> int:
        """Derive the seed of a policy's rollout from the collection's; runs derive theirs from fewer numbers."""
        return int(np.random.SeedSequence([self.seed, index, 0, 1]).generate_state(1)[0] >> 1)

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        values = {"environment": self.environment, "transitions": self.transitions, "n_envs": self.n_envs}
        return values | {"seed": self.seed, "policies": [policy.identity for policy in self.policies]}

    def describe_part(self, index: int) -> str:
        """Return what determines the part of one policy."""
        values = self.describe() | {"policies": self.policies[index].identity, "index": index}
        return json.dumps(values, sort_keys=True)


def _check_input(policies: Sequence[Policy], env: VecEnv, transitions: int, seed: int) -> None:
    if transitions < 1:
        raise CollectionError(f"the number of transitions must be at least 1, got {transitions}")
    if seed < 0:
        raise CollectionError(f"the seed must be 0 or more, got {seed}")
    if not policies:
        raise CollectionError("there is no policy to roll out: name at least one")
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise CollectionError(f"the policy {name!r} is named twice: name it once, and ask for more transitions")
    for kind, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, Box | Discrete):
            raise CollectionError(
                f"an environment with {kind} of {space} can't be used, only of a Box or Discrete space: "
                "flatten them with a wrapper of Gymnasium"
            )


def _check_plan(plan: _Plan, dataset: MinariDataset, folder: Path) -> None:
    """Refuse a dataset that another plan made."""
    remedy = f"choose another dataset id, or remove {folder}"
    stored = dataset.storage.metadata.get("hurl")
    if stored is None:
        raise CollectionError(f"there is a dataset {dataset.id} of another origin: {remedy}")
    with reading(dataset.storage.data_path):
        before = dict(json.loads(stored))
    for key, value in json.loads(json.dumps(plan.describe())).items():
        if before.get(key) != value:
            found = "other policies, not these" if key == "policies" else f"{key} {before.get(key)!r}, not {value!r}"
            raise CollectionError(f"there is a dataset {dataset.id} with {found}: {remedy}")


# Parts ----------------------------------------------------------------------------------------------------------


def _part_file(parts: Path, index: int) -> Path:
    return parts / f"{index:06d}.npz"


def _collect_part(plan: _Plan, index: int, env: VecEnv, file: Path, report: Callable[[Progress], None]) -> None:
    """Roll a policy out into its file, unless that holds the very same already."""
    policy, settings = plan.policies[index], plan.describe_part(index)
    progress = Progress(policy.name, index + 1, len(plan.policies), 0, plan.transitions)
    earlier = _read_part(file, settings) is not None
    if not earlier:
        report(progress)
        rollout = roll_out(
            policy,
            env,
            plan.transitions,
            plan.rollout_seed(index),
            lambda taken: report(replace(progress, transitions=taken)),
        )
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, settings=np.array(settings), **vars(rollout))
        write_whole(file, content.getvalue())
    report(replace(progress, transitions=plan.transitions, earlier=earlier))


def _read_part(file: Path, settings: str) -> Rollout | None:
    """Return the episodes of a policy; None where there are none, or those of other settings."""
    if not file.exists():
        return None
    try:
        with np.load(io.BytesIO(read_regular(file)), allow_pickle=False) as stored:
            if str(stored["settings"]) != settings:
                return None
            return Rollout(**{name: stored[name] for name in Rollout.__dataclass_fields__})
    except MisplacedError:
        raise
    except Exception:  # whatever a damaged archive raises: the part is collected anew
        return None


# The dataset ---------------------------------------------------------------------------------------------------------


def _write_dataset(plan: _Plan, parts: Path, dataset_id: str, env: VecEnv, env_spec: EnvSpec | None) -> Path:
    """Put the parts together in a folder aside; return it."""
    import minari
    from minari.dataset.minari_storage import MinariStorage

    whole = parts.resolve() / "dataset"  # Minari can't add up the size of what has a relative path
    remove(whole)
    whole.mkdir()
    storage = MinariStorage.new(
        whole / "data",
        observation_space=env.observation_space,
        action_space=env.action_space,
        env_spec=env_spec,
        data_format="hdf5",
        jpeg_encoding=False,  # which would lose what images show
    )
    metadata: list[dict[str, Any]] = []
    with _in_memory(storage):
        storage.update_episodes(_episode_buffers(plan, parts, metadata))
        storage.update_episode_metadata(metadata)
    sources = [{"name": policy.name, "source": policy.source} for policy in plan.policies]
    where = f" in {plan.environment['id']}" if "id" in plan.environment else ""
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": minari.__version__,
            "author": {f"hurl {__version__}"},
            "algorithm_name": ", ".join(dict.fromkeys(policy.algorithm for policy in plan.policies)),
            "description": f"{plan.transitions:,} transitions of each of {len(plan.policies)} policies{where}",
            "hurl": json.dumps(plan.describe() | {"sources": sources}),
            "dataset_size": storage.get_size(),
        }
    )
    dataset = minari.MinariDataset(whole / "data")
    write_whole(whole / "README.md", dataset_card(dataset, summarize(dataset), plan.environment, plan.seed).encode())
    for file in (whole / "data").iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    return whole


@contextmanager
def _in_memory(storage: Any) -> Iterator[None]:
    """Have HDF5 write to memory, and then the file at once: a full disk under HDF5 ends the process (SIGSEGV)."""
    file, storage._file_path = storage._file_path, io.BytesIO()
    yield
    write_whole(file, storage._file_path.getbuffer())
    storage._file_path = file


def _episode_buffers(plan: _Plan, parts: Path, metadata: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield the episodes of all parts in Minari's form, and add what is to be noted of each to `metadata`."""
    from minari.data_collector import EpisodeBuffer

    for index, policy in enumerate(plan.policies):
        part = _read_part(_part_file(parts, index), plan.describe_part(index))
        assert part is not None
        noted = {"policy": policy.name, "source": policy.source, "seed": plan.rollout_seed(index)}
        ends = np.cumsum(part.lengths)
        for number, (begin, end) in enumerate(zip(ends - part.lengths, ends, strict=True)):
            is_last = np.arange(begin, end) == end - 1
            rewards = part.rewards[begin:end]
            metadata.append(noted | {"cut": bool(part.cut[number]), "return": float(rewards.sum())})
            yield EpisodeBuffer(
                observations=part.states[begin + number : end + number + 1],
                actions=part.actions[begin:end],
                rewards=rewards,
                terminations=is_last & part.terminated[number],
                truncations=is_last & ~part.terminated[number],
                infos={},
            )
