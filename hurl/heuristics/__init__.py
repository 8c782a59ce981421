"""What h can be: functions written by hand, and heuristics made from data or from an agent; all can be stored."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hurl.heuristics.engineered import sparse_reacher as sparse_reacher

if TYPE_CHECKING:
    from hurl.heuristics.adversarial import RandomNetwork as RandomNetwork
    from hurl.heuristics.adversarial import Reversed as Reversed
    from hurl.heuristics.base import StorableHeuristic as StorableHeuristic
    from hurl.heuristics.base import register as register
    from hurl.heuristics.combine import max_of as max_of
    from hurl.heuristics.combine import scaled as scaled
    from hurl.heuristics.combine import shifted as shifted
    from hurl.heuristics.ensemble import EnsembleLowerBound as EnsembleLowerBound
    from hurl.heuristics.image import ImageMonteCarloHeuristic as ImageMonteCarloHeuristic
    from hurl.heuristics.monte_carlo import MonteCarloHeuristic as MonteCarloHeuristic
    from hurl.heuristics.offline import OfflineRLHeuristic as OfflineRLHeuristic
    from hurl.heuristics.simple import Engineered as Engineered
    from hurl.heuristics.simple import Zero as Zero
    from hurl.heuristics.storage import load_heuristic as load_heuristic
    from hurl.heuristics.vae import VAEFilteredHeuristic as VAEFilteredHeuristic
    from hurl.heuristics.value_function import ValueFunctionHeuristic as ValueFunctionHeuristic

__all__ = [
    "Engineered",
    "EnsembleLowerBound",
    "ImageMonteCarloHeuristic",
    "MonteCarloHeuristic",
    "OfflineRLHeuristic",
    "RandomNetwork",
    "Reversed",
    "StorableHeuristic",
    "VAEFilteredHeuristic",
    "ValueFunctionHeuristic",
    "Zero",
    "load_heuristic",
    "max_of",
    "register",
    "scaled",
    "shifted",
    "sparse_reacher",
]


def __getattr__(name: str) -> Any:
    """Return what one of the modules offers: functions written by hand need NumPy alone, the rest is loaded here."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    if not name.startswith("_") and name not in names:
        for module in (import_module(f"hurl.heuristics.{module_name}") for module_name in names):
            if name in getattr(module, "__all__", ()):
                return getattr(module, name)
    raise AttributeError(f"module 'hurl.heuristics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
