"""Large batches in pieces: what is computed of all rows at once needs memory for all of them."""

from __future__ import annotations

__all__ = ["pieces"]


def pieces(count: int, size: int) -> list[slice]:
    """Return slices that divide so many rows into pieces of one size, the last of which may be smaller."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
