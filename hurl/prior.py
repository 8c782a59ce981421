"""Logged data that an off-policy algorithm learns from beside its own experience."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minari import MinariDataset

    from hurl.data import Episodes


class PriorDataError(ValueError):
    """Logged data that an algorithm can't learn from in the way it is asked to, and what to change."""


@dataclass(frozen=True)
class PriorData:
    """A dataset of which every batch of updates takes a share, the rest being the agent's own transitions.

    With `blend`, a logged transition is not reshaped by guidance but by what its own trajectory went on to pay, the
    more so the better that trajectory is among all:

        r̃ = r + (1 − λ_τ)·γ·G(s'),    γ̃ = λ_τ·γ,    λ_τ = 1 − blend·rank(τ)

    with G(s') the discounted return after s', h behind a time limit, and rank(τ) ∈ (0, 1] the place of its return, 1
    the best. Source: HUBL (Geng, Pacchiano, Kolobov, Cheng, ICLR 2024), with its `rank` labels; its λ is our 1 − λ. On
    the last rung of a ladder, the problem itself, nothing is blended, but where it is the only one.

    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param share: of every batch, between 0 and 1
    :param blend: how much of the best trajectory's own return counts, from 0 to 1; none means that logged transitions
        are reshaped as all others
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    """

    dataset: Episodes | MinariDataset | str
    share: float = 0.5
    blend: float | None = None
    root: str | Path | None = None

    def __post_init__(self) -> None:
        if self.dataset is None:
            raise TypeError("prior data needs a dataset: a Minari dataset or its id, or episodes, got None")
        for name, value in (("share", self.share), ("blend", 1.0 if self.blend is None else self.blend)):
            if not isinstance(value, Real) or isinstance(value, bool):
                raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0.0 < self.share < 1.0:
            raise ValueError(
                f"the share of prior data in a batch must lie between 0 and 1, got {self.share!r}: 0.5 is half of it, "
                "and for none leave prior out"
            )
        if self.blend is not None and not 0.0 < self.blend <= 1.0:
            raise ValueError(f"blend must be above 0 and at most 1, got {self.blend!r}; for none leave it out")


def check_blend(blend: float | None, shaping: str) -> None:
    """Refuse logged transitions that are reshaped by returns where the agent's own are shaped by a potential.

    The critic of the latter is Q − h, that of the former Q.
    """
    if blend is not None and shaping != "hurl":
        raise PriorDataError(f"blend={blend} can't be had with shaping={shaping!r}: leave blend out, or the shaping")
