"""What h can be: functions written by hand, and heuristics made from data or from an agent; all can be stored."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hurl.heuristics.engineered import sparse_reacher

if TYPE_CHECKING:
    from hurl.heuristics.monte_carlo import MonteCarloHeuristic as MonteCarloHeuristic
    from hurl.heuristics.simple import Engineered as Engineered
    from hurl.heuristics.simple import Zero as Zero
    from hurl.heuristics.storage import load_heuristic as load_heuristic

__all__ = ["Engineered", "MonteCarloHeuristic", "Zero", "load_heuristic", "sparse_reacher"]

# Functions written by hand need NumPy alone; the rest is loaded on first use.
_LAZY = {
    "Engineered": "simple",
    "MonteCarloHeuristic": "monte_carlo",
    "Zero": "simple",
    "load_heuristic": "storage",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"hurl.heuristics.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'hurl.heuristics' has no attribute {name!r}")
