"""A run made longer: it ends as one that was as long from the start, or is refused."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hurl.experiments.checkpoint import checkpoint_paths
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError
from hurl.experiments.folder import RunFolder
from hurl.files import remove, write_whole
from hurl.ladder import Ladder

HAVING_REPLAY = {"buffer_size", "replay_buffer_config"}  # what parameters tell of a replay buffer


def is_longer(stored: RunConfig, wanted: RunConfig) -> bool:
    """Whether a configuration is that of a stored run but for more iterations."""
    return 0 < stored.iterations < wanted.iterations and stored == wanted.model_copy(
        update={"iterations": stored.iterations}
    )


def checkpoints_of(folder: RunFolder, wanted: RunConfig) -> list[Path]:
    """Return the checkpoints of a run, oldest first; where it is made longer, those that the longer run would have.

    A run's last checkpoint may come before the next is due: the iterations since the one before it are computed again.
    """
    found = checkpoint_paths(folder)
    if not is_longer(folder.parse_config(), wanted):
        return found
    return [path for path in found if int(path.name) % wanted.checkpoint_every == 0]


def extend(folder: RunFolder, wanted: RunConfig) -> None:
    """Make a folder that of a longer run, where that is wanted.

    The configuration comes last, so that a run which is stopped before is made longer by the next start.
    """
    if is_longer(folder.parse_config(), wanted):
        kept = checkpoints_of(folder, wanted)
        for checkpoint in checkpoint_paths(folder):
            if checkpoint not in kept:
                remove(checkpoint)
        write_whole(folder.config_file, wanted.to_yaml().encode())


def check_extension(folder: RunFolder, stored: RunConfig, wanted: RunConfig) -> None:
    """Refuse to make a run longer where all it did depends on its length."""
    _check_schedule(folder, stored, wanted)
    if "exploration_fraction" in _parameters_of(wanted):
        raise RunFolderError(
            f"{folder.path} can't be made longer, for {wanted.algorithm.name} explores less and less over all "
            f"{stored.iterations} iterations: choose another --out for a run of {wanted.iterations}"
        )
    _check_replay(folder, stored)


def _check_schedule(folder: RunFolder, stored: RunConfig, wanted: RunConfig) -> None:
    if stored.guidance is None or wanted.guidance is None:
        return
    before, after = (run.guidance.schedule.build(run.iterations) for run in (stored, wanted) if run.guidance)
    if isinstance(before, Ladder) or isinstance(after, Ladder):
        return
    if any(before(iteration) != after(iteration) for iteration in range(1, stored.iterations + 1)):
        raise RunFolderError(
            f"{folder.path} can't be made longer, for its λ has risen over {stored.iterations} iterations and would "
            f"over {wanted.iterations}: choose another --out, and guidance.schedule.iterations where λ is to rise "
            "over so many, however long the run is"
        )


def _check_replay(folder: RunFolder, stored: RunConfig) -> None:
    """Refuse a finished run whose replay buffer is gone."""
    last = folder.checkpoints / f"{stored.iterations:06d}"
    if last.is_dir() and not folder.replay_files() and HAVING_REPLAY.intersection(_parameters_of(stored)):
        raise RunFolderError(
            f"{folder.path} can't be made longer, for its replay buffer was removed when it was finished: choose "
            "another --out, and keep_replay: true where a run may have to go on"
        )


def _parameters_of(config: RunConfig) -> Collection[str]:
    """Return the parameters that a run's algorithm has, given or not."""
    return config.algorithm.library.trainers.known_parameters(config.algorithm.name)
