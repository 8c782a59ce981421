"""What h can be: functions written by hand, and heuristics made from data or from an agent; all can be stored."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hurl.heuristics.engineered import sparse_reacher

if TYPE_CHECKING:
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
    "VAEFilteredHeuristic",
    "ValueFunctionHeuristic",
    "Zero",
    "load_heuristic",
    "max_of",
    "scaled",
    "shifted",
    "sparse_reacher",
]

# Functions written by hand need NumPy alone; the rest is loaded on first use.
_LAZY = {
    "Engineered": "simple",
    "EnsembleLowerBound": "ensemble",
    "ImageMonteCarloHeuristic": "image",
    "MonteCarloHeuristic": "monte_carlo",
    "OfflineRLHeuristic": "offline",
    "VAEFilteredHeuristic": "vae",
    "ValueFunctionHeuristic": "value_function",
    "Zero": "simple",
    "load_heuristic": "storage",
    "max_of": "combine",
    "scaled": "combine",
    "shifted": "combine",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"hurl.heuristics.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'hurl.heuristics' has no attribute {name!r}")
