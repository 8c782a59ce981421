"""Heuristic-guided reinforcement learning for the algorithms people already use."""

from __future__ import annotations

import sys

# `python -m hurl` puts the working folder before everything, where a numpy.py would be taken for NumPy.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == "hurl" and not sys.flags.safe_path:
    del sys.path[0]

# isort: split
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hurl.guidance import Guidance, HeuristicError, reshape
from hurl.ladder import Ladder
from hurl.names import needs
from hurl.notices import silence_notices
from hurl.own_code import IN_USE, take_folders
from hurl.prior import PriorData
from hurl.schedules import ConstantSchedule, ExponentialSchedule, LinearSchedule, TanhSchedule

if TYPE_CHECKING:
    from hurl.diagnosis import diagnose as diagnose
    from hurl.envs import make_env as make_env
    from hurl.experiments.evaluate import load_policy as load_policy
    from hurl.heuristics import MonteCarloHeuristic as MonteCarloHeuristic
    from hurl.heuristics import load_heuristic as load_heuristic
    from hurl.sb3 import guided as guided

__all__ = [
    "ConstantSchedule",
    "ExponentialSchedule",
    "Guidance",
    "HeuristicError",
    "Ladder",
    "LinearSchedule",
    "MonteCarloHeuristic",
    "PriorData",
    "TanhSchedule",
    "diagnose",
    "guided",
    "load_heuristic",
    "load_policy",
    "make_env",
    "reshape",
]

__version__ = "0.1.0"

if os.environ.get(IN_USE):  # a worker of Ray's, say, which is sent what the user's own modules define
    take_folders()

silence_notices()

# Rooms that load torch, JAX or EnvPool are entered on first use, so that `import hurl` stays quick.
_LAZY = {
    "MonteCarloHeuristic": "hurl.heuristics",
    "diagnose": "hurl.diagnosis",
    "guided": "hurl.sb3",
    "load_heuristic": "hurl.heuristics",
    "load_policy": "hurl.experiments.evaluate",
    "make_env": "hurl.envs",
}
_ROOMS = ("data", "diagnosis", "envs", "experiments", "heuristics", "rllib", "sb3", "tabular")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with needs(f"hurl.{name}", "experiments"):
            return getattr(import_module(_LAZY[name]), name)
    if name in _ROOMS:
        return import_module(f"hurl.{name}")
    raise AttributeError(f"module 'hurl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
