"""The ladder: every λ of a few is learnt, and a bandit over the episodes' real returns chooses which of them acts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, stdev
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.schedules import KINDS, check_coefficient

__all__ = ["Bandit", "Ladder", "rungs_for"]

# Of γ = 0.999, λ = 0.94: what did best on Hopper lies about there.
HORIZON_EXPONENT = 0.4
# Blocks that every rung needs before they are compared at all, and before the best is taken for it.
BLOCKS_TO_COMPARE = 2
BLOCKS_TO_DECIDE = 6
LEVEL = 0.95
# The share of the updates' batches that goes to the rungs that are not the best, once that is decided.
OTHERS = 1 / 8


def rungs_for(gamma: float) -> tuple[float, ...]:
    """Return two rungs: guidance over a horizon that is much shorter than the problem's own, and the problem itself.

        1/(1 − λγ) = H^0.4    with  H = 1/(1 − γ),    and λ = 1

    :param gamma: γ ∈ (0, 1), the discount of the original MDP
    """
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"gamma={gamma!r} has no finite horizon to choose the rungs by: name them, Ladder(0.9, 1.0)")
    return (1.0 - (1.0 - gamma) ** HORIZON_EXPONENT) / gamma, 1.0


@KINDS.register("ladder")
@dataclass(frozen=True, init=False)
class Ladder:
    """A few λ in the place of a schedule: λ₁ < … < λ_K = 1, each a rung.

    The reshaped problems of all rungs are learnt at once, and at the start of an episode a bandit chooses the rung that
    acts by what the environments have paid on each in the newest iterations. So a heuristic that misleads is
    left for λ = 1, the problem itself, and one that helps is kept.

    :param rungs: λ₁ < … < λ_K = 1; none means those that suit the discount, see `rungs_for`
    :param window: how many of its newest iterations a rung is judged by
    :param exploration: the share of episodes whose rung is drawn at random, so that none is judged by old ones alone
    """

    rungs: tuple[float, ...]
    window: int
    exploration: float

    def __init__(self, *rungs: float, window: int = 8, exploration: float = 0.1) -> None:
        for rung in rungs:
            check_coefficient("a rung of a ladder", rung)
        if any(after <= before for before, after in pairwise(rungs)):
            raise ValueError(f"the rungs of a ladder must rise, got {rungs}: write Ladder{tuple(sorted(set(rungs)))}")
        if rungs and rungs[-1] != 1.0:
            raise ValueError(
                f"a ladder's last rung must be 1, the problem itself, to fall back on: write Ladder{(*rungs, 1.0)}"
            )
        if window < BLOCKS_TO_DECIDE:
            raise ValueError(f"window must be at least {BLOCKS_TO_DECIDE} iterations, got {window!r}")
        check_coefficient("exploration", exploration)
        for name, value in (("rungs", tuple(map(float, rungs))), ("window", window), ("exploration", exploration)):
            object.__setattr__(self, name, value)

    @classmethod
    def for_run(cls, *, rungs: list[float] | None = None, window: int = 8, exploration: float = 0.1) -> Self:
        """Return the ladder that a configuration describes."""
        return cls(*(rungs or ()), window=window, exploration=exploration)

    def __str__(self) -> str:
        return f"Ladder({', '.join(f'{rung:g}' for rung in self.rungs)})"

    def for_gamma(self, gamma: float) -> Ladder:
        """Return the ladder with its rungs, those that suit the discount where none are named."""
        return self if self.rungs else Ladder(*rungs_for(gamma), window=self.window, exploration=self.exploration)


class Bandit:
    """Which rung acts: Thompson sampling on what each was worth in its newest blocks.

        k ~ argmax_k N(mean_k, std_k² / n_k)        over the means of its returns in n_k blocks

    A block is what lies between two calls of `close_block`, an iteration. Learners change from one iteration to the
    next, and all episodes of one come from about the same policy: so blocks are what a rung is judged by, not episodes.
    Now and then a rung is drawn at random, for what it was worth some time ago does not say what it is worth now.

    :param ladder: its rungs, window and exploration
    """

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self.count = ladder, len(ladder.rungs)
        self.episodes = [0] * self.count
        self.current: list[list[float]] = [[] for _ in ladder.rungs]
        self.blocks: list[deque[float]] = [deque(maxlen=ladder.window) for _ in ladder.rungs]
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed its draws."""
        self._generator = np.random.default_rng(seed)

    # What is known ---------------------------------------------------------------------------------------------------

    def add(self, rung: int, total: float) -> None:
        """Take in the return of an episode on a rung."""
        self.current[rung].append(total)
        self.episodes[rung] += 1

    def close_block(self) -> None:
        """End a block: what each rung has paid in it becomes one number."""
        for returns, blocks in zip(self.current, self.blocks, strict=True):
            if returns:
                blocks.append(fmean(returns))
                returns.clear()

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean return of each rung's newest blocks, NaN where none has ended, shape (K,)."""
        return np.array([fmean(blocks) if blocks else np.nan for blocks in self.blocks])

    @property
    def best(self) -> int:
        """The rung with the highest mean; the last, λ = 1, where they can't be compared yet."""
        if self._is_new:
            return self.count - 1
        return self.count - 1 - int(np.argmax(self.means[::-1]))

    @property
    def is_decided(self) -> bool:
        """Whether the best rung is better than every other with a probability of 95 %, by enough blocks of each."""
        if self.count == 1:
            return True
        if min(map(len, self.blocks)) < BLOCKS_TO_DECIDE:
            return False
        best = self.best
        return all(
            _probability_above(self.blocks[best], blocks) >= LEVEL
            for rung, blocks in enumerate(self.blocks)
            if rung != best
        )

    @property
    def shares(self) -> list[float]:
        """The share of a batch that each rung learns from.

        All of it each as long as it is open which is the best; after that the best and the others share one.
        """
        if not self.is_decided or self.count == 1:
            return [1.0] * self.count
        others = OTHERS / (self.count - 1)
        return [1.0 - OTHERS if rung == self.best else others for rung in range(self.count)]

    @property
    def _is_new(self) -> bool:
        return min(map(len, self.blocks)) < BLOCKS_TO_COMPARE

    # Choosing --------------------------------------------------------------------------------------------------------

    def choose(self, acting: Sequence[int] | NDArray[np.intp] = ()) -> int:
        """Choose the rung of an episode that begins: as long as they can't be compared, all as often.

        :param acting: the rungs of the episodes that are going on
        """
        if self.count == 1:
            return 0
        if self._is_new:
            begun = np.add(self.episodes, np.bincount(np.asarray(acting, np.intp), minlength=self.count))
            return self.count - 1 - int(np.argmin(begun[::-1]))
        if self._generator.random() < self.ladder.exploration:
            return int(self._generator.integers(self.count))
        return int(np.argmax([self._generator.normal(*_mean_and_error(blocks)) for blocks in self.blocks]))

    def state(self) -> dict[str, Any]:
        """Return what it knows and where its draws are, as JSON holds it."""
        return {
            "episodes": list(self.episodes),
            "current": [list(returns) for returns in self.current],
            "blocks": [list(blocks) for blocks in self.blocks],
            "draws": self._generator.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.episodes = list(state["episodes"])
        self.current = [list(returns) for returns in state["current"]]
        self.blocks = [deque(blocks, maxlen=self.ladder.window) for blocks in state["blocks"]]
        self._generator.bit_generator.state = state["draws"]


def _mean_and_error(blocks: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some blocks and its standard error, never quite 0, so that equals are drawn by chance."""
    mean = fmean(blocks)
    return mean, max(stdev(blocks) / math.sqrt(len(blocks)), 1e-9 * (1.0 + abs(mean)))


def _probability_above(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability that the mean of one is above that of the other, both normal."""
    (mean, error), (other_mean, other_error) = _mean_and_error(first), _mean_and_error(second)
    return NormalDist().cdf((mean - other_mean) / math.hypot(error, other_error))
