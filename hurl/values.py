"""What a value may be: the test, and the words for it where a value is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

__all__ = [
    "FLAG",
    "MAPPING",
    "MOST_ENVIRONMENTS",
    "MOST_THREADS",
    "NOTHING",
    "TEXT",
    "Backend",
    "Kind",
    "Kinds",
    "check_argument",
    "check_value",
    "check_values",
    "list_of",
    "number",
    "show",
    "text_like",
    "whole",
    "word",
]

LARGEST = 10**9  # of counts and sizes: more is a slip, and ends in an allocation that no machine has memory for
LONGEST = 200  # characters of a value that a sentence shows
# More of either only costs memory, and ends the process where there is none left.
MOST_ENVIRONMENTS = 10_000
MOST_THREADS = 1_024
# What steps environments; auto is EnvPool where it has the id and is installed, or else Gymnasium.
Backend = Literal["auto", "envpool", "gymnasium"]


@dataclass(frozen=True)
class Kind:
    """What a value may be; `one | other` is a value of either.

    :param words: that go on after "must be"
    :param accepts: whether a value is of the kind
    """

    words: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(f"{self.words} or {other.words}", lambda value: self.accepts(value) or other.accepts(value))


# By name; where a name has names in turn, its value holds keys and values.
Kinds = Mapping[str, "Kind | Kinds"]

FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TEXT = Kind("a text", lambda value: isinstance(value, str))
NOTHING = Kind("null", lambda value: value is None)
MAPPING = Kind("keys and values", lambda value: isinstance(value, Mapping))


def whole(least: int, most: int = LARGEST) -> Kind:
    """Return the kind of integers within some limits."""
    return Kind(
        f"a whole number from {least:,} to {most:,}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def number(least: float = -inf, most: float = inf, *, above: bool = False, below: bool = False) -> Kind:
    """Return the kind of finite numbers within some limits.

    :param above: whether the lower limit itself is excluded
    :param below: whether the upper limit itself is excluded
    """
    words = {
        (-inf, inf): "a finite number",
        (0, inf): "a positive finite number" if above else "a finite number that is not negative",
    }.get((least, most), f"a number {'above' if above else 'from'} {least:g} {_up_to(above, below)} {most:g}")

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return False
        return least <= value <= most and not (above and value == least) and not (below and value == most)

    return Kind(words, accepts)


def _up_to(above: bool, below: bool) -> str:
    return "to below" if below else "up to" if above else "to"


def word(*choices: str) -> Kind:
    """Return the kind of some texts."""
    return Kind(" or ".join(map(repr, choices)), lambda value: value in choices)


def text_like(pattern: str, words: str) -> Kind:
    """Return the kind of texts that a regular expression fits."""
    return Kind(words, lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None)


def list_of(kind: Kind, length: int | None = None) -> Kind:
    """Return the kind of lists whose every item is of a kind.

    :param length: how many items; None means any number
    """
    many = "a list" if length is None else f"a list of {length}"
    return Kind(
        f"{many}, each {kind.words}",
        lambda value: (
            isinstance(value, list | tuple) and length in (None, len(value)) and all(map(kind.accepts, value))
        ),
    )


def check_value(name: str, value: Any, kind: Kind) -> None:
    """Refuse a value that is not of a kind."""
    if not kind.accepts(value):
        raise ValueError(f"{name} must be {kind.words}, got {show(value)}")


def check_argument(name: str, value: Any, kind: Kind, error: type[ValueError] = ValueError) -> None:
    """Refuse an argument that is not of a kind; NumPy's numbers count as Python's, which alone are in files.

    :param error: what is raised
    """
    if not kind.accepts(value.item() if isinstance(value, np.generic) else value):
        raise error(f"{name} must be {kind.words}, got {show(value)}")


def check_values(values: Mapping[str, Any], kinds: Kinds, prefix: str = "") -> None:
    """Refuse values that are not of their kinds; names that have none may be anything.

    :param prefix: of the names in an error
    """
    for name, value in values.items():
        kind = kinds.get(name)
        if isinstance(kind, Mapping):
            check_value(prefix + name, value, MAPPING)
            check_values(value, kind, f"{prefix}{name}.")
        elif kind is not None:
            check_value(prefix + name, value, kind)


def show(value: Any) -> str:
    """Return a value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
