"""The 16 games of Procgen, as EnvPool has them.

An observation is an image of 64×64 pixels with its three colours first, (3, 64, 64) of uint8; there are 15 actions.
Each episode is a new level. EnvPool reports the end of a level, won or lost, as terminated, and that of the game's own
clock (500 to 6,000 steps) as truncated, also where the level ends in that very step. The last observation is that of
the level which ends, not, as in the original package, of the next.
"""

import ctypes
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Literal, get_args

from hurl.names import install_extra

Difficulty = Literal["easy", "hard"]

PROCGEN_GAMES = (
    "bigfish",
    "bossfight",
    "caveflyer",
    "chaser",
    "climber",
    "coinrun",
    "dodgeball",
    "fruitbot",
    "heist",
    "jumper",
    "leaper",
    "maze",
    "miner",
    "ninja",
    "plunder",
    "starpilot",
)

_PROCGEN_ID = re.compile(rf"({'|'.join(PROCGEN_GAMES)})(easy|hard|extreme|memory|exploration)-v0", re.IGNORECASE)


def procgen_id(game: str, difficulty: Difficulty = "easy") -> str:
    """Return EnvPool's id of a game, such as `CoinrunEasy-v0`.

    :param game: one of `PROCGEN_GAMES`
    """
    if game not in PROCGEN_GAMES:
        raise ValueError(f"Procgen has no game {game!r}: take one of {', '.join(PROCGEN_GAMES)}.")
    if difficulty not in get_args(Difficulty):
        raise ValueError(f"difficulty must be one of {', '.join(get_args(Difficulty))}, not {difficulty!r}.")
    return f"{game.capitalize()}{difficulty.capitalize()}-v0"


def is_procgen(env_id: str) -> bool:
    """Whether an id is that of a game of Procgen."""
    return _PROCGEN_ID.fullmatch(env_id) is not None


def prepare_procgen(env_id: str, max_episode_steps: int | None = None) -> None:
    """Do what EnvPool needs before it makes a game of Procgen; other environments need nothing.

    :param max_episode_steps: the time limit that a user asks for, None for the task's own
    """
    if not is_procgen(env_id):
        return
    if max_episode_steps is not None:
        # EnvPool takes the number for a label: an episode that the game ends before it counts as terminated.
        raise ValueError(
            f"The time limit of {env_id} is the game's own: leave max_episode_steps={max_episode_steps!r} out."
        )
    _load_qt(env_id)


def _load_qt(env_id: str) -> None:
    """Let EnvPool's games find Qt 5, which they are linked to: the system's, or else that of the package PyQt5-Qt5."""
    procgen = importlib.import_module("envpool.procgen")
    try:
        procgen.ProcgenEnvSpec  # noqa: B018
    except ImportError:
        pass
    else:
        return
    package = importlib.util.find_spec("PyQt5")
    folders = [Path(place, "Qt5", "lib") for place in (package and package.submodule_search_locations) or ()]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise ImportError(f"{env_id} needs Qt 5's Core and Gui libraries, and there are none: {install_extra('rllib')}")
    try:
        # What is loaded under a library's name is taken for it by those that are loaded later.
        for library in ("libQt5Core.so.5", "libQt5Gui.so.5"):
            ctypes.CDLL(str(folder / library))
    except OSError as error:
        raise ImportError(
            f"{env_id} needs Qt 5, which can't be loaded ({error}): install the library that is missing, on Debian "
            "with apt-get install libgl1 libglib2.0-0"
        ) from error
    # EnvPool tried to load its games when it was imported, and remembers that it could not.
    importlib.reload(procgen)
