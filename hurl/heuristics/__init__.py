"""What h can be: functions written by hand."""

from hurl.heuristics.engineered import sparse_reacher

__all__ = ["sparse_reacher"]
