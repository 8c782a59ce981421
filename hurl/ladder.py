"""The ladder: every λ of a few is learnt, and a bandit over the episodes' real returns chooses which of them acts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from statistics import NormalDist, fmean, stdev
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.schedules import KINDS, check_coefficient
from hurl.values import check_argument, number, whole

__all__ = ["Bandit", "Ladder", "rungs_for"]

# What a ladder is unless it is told otherwise, in Python and in a configuration.
WINDOW, EXPLORATION = 8, 0.1
# Of γ = 0.999, λ = 0.94: what did best on Hopper lies about there.
HORIZON_EXPONENT = 0.4
# Blocks of every rung that it takes to decide which is the best, and how sure that must be.
BLOCKS_TO_DECIDE = 4
LEVEL = 0.95
# Blocks in which λ = 1 is the best only if this share of its progress is more than the others have made.
PATIENCE = 20
PROGRESS = 0.5
# Guidance that has kept less than this share of its greatest lead is in doubt again.
KEPT = 0.75
# Blocks after which about two thirds of what is above the present mean is forgotten.
MEMORY = 20
# A rung that is chosen counts to act for as long as in the mean of about so many of its newest times.
CHOICES_FOR_LENGTH = 20
# Once it is decided, the rungs that are not the best have one of so many updates among them.
OTHERS_EVERY = 8


def rungs_for(gamma: float) -> tuple[float, ...]:
    """Return two rungs: guidance over a horizon that is much shorter than the problem's own, and the problem itself.

        1/(1 − λγ) = H^0.4    with  H = 1/(1 − γ),    and λ = 1

    :param gamma: γ ∈ (0, 1), the discount of the original MDP
    """
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"gamma={gamma!r} gives no horizon to choose λ by: {_remedy([0.9, 1.0])}")
    return (1.0 - (1.0 - gamma) ** HORIZON_EXPONENT) / gamma, 1.0


@KINDS.register("ladder")
@dataclass(frozen=True, init=False)
class Ladder:
    """A few λ in the place of a schedule: λ₁ < … < λ_K = 1, each a rung.

    The reshaped problems of all rungs are learnt at once, and at the start of an episode (on-policy, of a turn of some)
    a bandit chooses the rung that acts, by what the environments have paid on each in the newest iterations. So a
    heuristic that misleads is left for λ = 1, the problem itself, and one that helps is kept.

    :param rungs: λ₁ < … < λ_K = 1; none means those that suit the discount, see `rungs_for`
    :param window: how many of its newest iterations a rung is judged by
    :param exploration: the share of steps on other rungs than the best, once that is decided; with 0 one that would
        overtake is never noticed
    """

    rungs: tuple[float, ...]
    window: int
    exploration: float

    def __init__(self, *rungs: float, window: int = WINDOW, exploration: float = EXPLORATION) -> None:
        for rung in rungs:
            if not isinstance(rung, Real):
                raise TypeError(f"the rungs of a ladder are numbers, got {rung!r}: write Ladder(0.9, 1.0)")
            check_coefficient("a rung of a ladder", rung)
        if any(after <= before for before, after in pairwise(rungs)):
            raise ValueError(f"the rungs of a ladder must rise, got {rungs}: {_remedy(sorted({*rungs, 1.0}))}")
        if rungs and rungs[-1] != 1.0:
            raise ValueError(
                f"a ladder's last rung must be 1, the problem itself, to fall back on: {_remedy([*rungs, 1.0])}"
            )
        check_argument("window", window, whole(BLOCKS_TO_DECIDE))
        check_argument("exploration", exploration, number(0, 1, below=True))
        for name, value in (("rungs", tuple(map(float, rungs))), ("window", window), ("exploration", exploration)):
            object.__setattr__(self, name, value)

    @classmethod
    def for_run(
        cls, *, rungs: list[float] | None = None, window: int = WINDOW, exploration: float = EXPLORATION
    ) -> Self:
        """Return the ladder that a configuration describes."""
        return cls(*(rungs or ()), window=window, exploration=exploration)

    def __str__(self) -> str:
        return f"Ladder({', '.join(f'{rung:.10g}' for rung in self.rungs)})"

    def for_gamma(self, gamma: float) -> Ladder:
        """Return the ladder with its rungs, those that suit the discount where none are named."""
        return self if self.rungs else Ladder(*rungs_for(gamma), window=self.window, exploration=self.exploration)


def _remedy(rungs: list[float]) -> str:
    return f"write Ladder{tuple(rungs)}, or in a configuration rungs: {rungs}"


class Bandit:
    """Which rung acts: all of them as long as it is open which is the best, and then that one, but for some steps.

    A rung is judged by blocks, the mean returns of its newest iterations: learners change from one iteration to the
    next, and all episodes of one come from about the same policy, so that they are one piece of evidence. It is decided
    when the mean of the best rung's blocks is above that of every other with a probability of 95 %, taken for normal.

    As long as it is open all rungs act in equal shares of the steps: a rung learns little from episodes that are not
    its own. Guidance pays after a while, and what pays at once is often not it: so in the first twenty blocks λ = 1 is
    decided for only where the others have made less than half of its progress.

    Every rung goes on acting now and then, and what was decided is open again: guidance when its newest blocks no
    longer bear it out, or it has lost a quarter of its lead; λ = 1 only when the mean of another rung's is ahead (what
    was left learns from the episodes of λ = 1 and comes near it, and acting as much again would cost them).

    :param ladder: its rungs, window and exploration
    """

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self.count = ladder, len(ladder.rungs)
        self.current: list[list[float]] = [[] for _ in ladder.rungs]
        self.blocks: list[deque[float]] = [deque(maxlen=ladder.window) for _ in ladder.rungs]
        self.closed, self.start, self.learnt = 0, math.nan, 0
        self.peaks, self.lengths = [-math.inf] * self.count, [math.nan] * self.count
        self.decided: int | None = 0 if self.count == 1 else None
        self.seed(None)

    def seed(self, seed: int | None) -> None:
        """Seed its draws; none means that they don't repeat."""
        self._generator = np.random.default_rng(seed)

    # What is known ---------------------------------------------------------------------------------------------------

    def add(self, rung: int, total: float) -> None:
        """Take in the return of an episode on a rung; one that is not finite says nothing of it."""
        if math.isfinite(total):
            self.current[rung].append(total)

    def lasted(self, rung: int, steps: int) -> None:
        """Take in for how many steps a rung has acted that was chosen."""
        known = self.lengths[rung]
        self.lengths[rung] = steps if math.isnan(known) else known + (steps - known) / CHOICES_FOR_LENGTH

    def close_block(self) -> None:
        """End a block, an iteration: what each rung has paid in it becomes one number; see whether they decide it."""
        returns = [total for rung in self.current for total in rung]
        if not returns:
            return
        if self.closed == 0:
            self.start = fmean(returns)
        for rung, blocks in zip(self.current, self.blocks, strict=True):
            if rung:
                blocks.append(fmean(rung))
                rung.clear()
        self.closed += 1
        self._remember_peaks()
        self.decided = self._decide()

    def _decide(self) -> int | None:
        """Return the rung that is surely the best; λ = 1, once decided for, stays as long as no other is ahead."""
        best = self.best
        stays = best == self.decided == self.count - 1
        return best if stays or (self._is_best(best) and not self._is_in_doubt(best)) else None

    def _remember_peaks(self) -> None:
        """Keep the highest mean of each rung's whole windows, which fades so that nothing is in doubt for ever."""
        for rung, blocks in enumerate(self.blocks):
            if len(blocks) == self.ladder.window:
                mean, peak = fmean(blocks), self.peaks[rung]
                self.peaks[rung] = mean if mean >= peak else peak - (peak - mean) / MEMORY

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean return of each rung's newest blocks, NaN where none has ended, shape (K,)."""
        return np.array([fmean(blocks) if blocks else np.nan for blocks in self.blocks])

    @property
    def best(self) -> int:
        """The rung with the highest mean, of equals the last; λ = 1 where one has no mean yet."""
        means = self.means
        return self.count - 1 if np.isnan(means).any() else int(np.flatnonzero(means == means.max())[-1])

    def _is_best(self, rung: int) -> bool:
        """Whether a rung is better than every other, by enough blocks of each."""
        if self.count > 1 and min(map(len, self.blocks)) < BLOCKS_TO_DECIDE:
            return False
        needed = PROGRESS if rung == self.count - 1 and self.closed < PATIENCE else 1.0
        return all(
            _probability_above(self.blocks[rung], blocks, self.start, needed) >= LEVEL
            for other, blocks in enumerate(self.blocks)
            if other != rung
        )

    def _is_in_doubt(self, rung: int) -> bool:
        """Whether guidance has lost much of its lead over the start and the others, and surely so."""
        if rung == self.count - 1:
            return False
        mean, error = _mean_and_error(self.blocks[rung])
        highest = mean + NormalDist().inv_cdf(LEVEL) * error
        lowest = min(self.start, float(self.means.min()))
        return highest - lowest < KEPT * (self.peaks[rung] - lowest)

    # What follows from it --------------------------------------------------------------------------------------------

    def choose(self) -> int:
        """Choose the rung that acts next, so that in the mean each has its share of the steps, however long it acts."""
        if self.count == 1:
            return 0
        lengths = np.array(self.lengths)
        lengths[np.isnan(lengths)] = np.nanmean(lengths) if np.isfinite(lengths).any() else 1.0
        chances = np.array(self.shares()) / lengths
        return int(self._generator.choice(self.count, p=chances / chances.sum()))

    def shares(self) -> list[float]:
        """Return the share of the steps that each rung is to act in: the same for all as long as it is open."""
        if self.decided is None or self.count == 1:
            return [1 / self.count] * self.count
        shares = [self.ladder.exploration / (self.count - 1)] * self.count
        shares[self.decided] = 1 - self.ladder.exploration
        return shares

    def most_behind(self, owed: NDArray[np.float64]) -> int:
        """Return the rung that is owed the most steps, of equals the one with the larger share, and then any."""
        draws, shares = self._generator.random(self.count), self.shares()
        return max(range(self.count), key=lambda rung: (owed[rung], shares[rung], draws[rung]))

    def learners(self) -> list[int]:
        """Return the rungs that take the next updates: all as long as it is open, then the best, others by turns."""
        if self.decided is None or self.count == 1:
            return list(range(self.count))
        self.learnt += 1
        turn, rest = divmod(self.learnt, OTHERS_EVERY)
        others = [rung for rung in range(self.count) if rung != self.decided]
        return [self.decided] if rest else [self.decided, others[turn % len(others)]]

    # What a checkpoint holds -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what it knows and where its draws are, as JSON holds it."""
        return {
            "rungs": list(self.ladder.rungs),
            "current": [list(returns) for returns in self.current],
            "blocks": [list(blocks) for blocks in self.blocks],
            "closed": self.closed,
            "learnt": self.learnt,
            "lengths": [None if math.isnan(length) else length for length in self.lengths],
            "peaks": [None if math.isinf(peak) else peak for peak in self.peaks],
            "start": None if math.isnan(self.start) else self.start,
            "decided": self.decided,
            "draws": self._generator.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from what `state` returned, and say so.

        What a ladder of other rungs, or of an earlier kind, knows is of no use, and left.
        """
        if tuple(state["rungs"]) != self.ladder.rungs or "lengths" not in state:
            return False
        self.current = [list(returns) for returns in state["current"]]
        self.blocks = [deque(blocks, maxlen=self.ladder.window) for blocks in state["blocks"]]
        self.closed, self.learnt, self.decided = state["closed"], state["learnt"], state["decided"]
        self.peaks = [-math.inf if peak is None else peak for peak in state["peaks"]]
        self.lengths = [math.nan if length is None else length for length in state["lengths"]]
        self.start = math.nan if state["start"] is None else state["start"]
        self._generator.bit_generator.state = state["draws"]
        return True


def _mean_and_error(blocks: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some blocks and its standard error, never quite 0, so that equals are no evidence."""
    mean = fmean(blocks)
    return mean, max(stdev(blocks) / math.sqrt(len(blocks)), 1e-9 * (1.0 + abs(mean)))


def _probability_above(first: Sequence[float], second: Sequence[float], start: float, share: float) -> float:
    """Return the probability that a share of the progress of one, from the start, is above the progress of the other.

    It is P(share·(X − start) > Y − start), the means X and Y normal. Where returns have fallen there is no progress
    to take a share of, and all of both is compared.
    """
    (mean, error), (other_mean, other_error) = _mean_and_error(first), _mean_and_error(second)
    share = share if mean > start else 1.0
    lead = share * (mean - start) - (other_mean - start)
    return NormalDist().cdf(lead / math.hypot(share * error, other_error))
