"""The ladder: every λ of a few is learnt, and a bandit over the episodes' real returns chooses which of them acts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.schedules import KINDS, check_coefficient

__all__ = ["Bandit", "Ladder", "rungs_for"]

# Episodes that a rung must have ended before it is compared with others.
EPISODES_TO_COMPARE = 4


def rungs_for(gamma: float) -> tuple[float, ...]:
    """Return two rungs: guidance over the geometric mean of one step and the whole horizon, and the problem itself.

        1/(1 − λγ) = √H    with  H = 1/(1 − γ),    and λ = 1

    :param gamma: γ ∈ [0, 1), the discount of the original MDP
    """
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"gamma={gamma!r} has no finite horizon to choose the rungs by: name them, Ladder(0.9, 1.0)")
    return (1.0 - np.sqrt(1.0 - gamma).item()) / gamma, 1.0


@KINDS.register("ladder")
@dataclass(frozen=True, init=False)
class Ladder:
    """A few λ in the place of a schedule: λ₁ < … < λ_K = 1, each a rung.

    The reshaped problems of all rungs are learnt at once, and at the start of an episode a bandit chooses the rung that
    acts by the returns, as the environments pay them, of the newest episodes on each. So a heuristic that misleads is
    left for λ = 1, the problem itself, and one that helps is kept.

    :param rungs: λ₁ < … < λ_K = 1; none means those that suit the discount, see `rungs_for`
    :param window: how many of its newest episodes a rung is judged by
    :param exploration: the share of episodes whose rung is drawn at random, so that none is judged by old ones alone
    """

    rungs: tuple[float, ...]
    window: int
    exploration: float

    def __init__(self, *rungs: float, window: int = 16, exploration: float = 0.05) -> None:
        for rung in rungs:
            check_coefficient("a rung of a ladder", rung)
        if any(after <= before for before, after in pairwise(rungs)):
            raise ValueError(f"the rungs of a ladder must rise, got {rungs}: write Ladder{tuple(sorted(set(rungs)))}")
        if rungs and rungs[-1] != 1.0:
            raise ValueError(
                f"a ladder's last rung must be 1, the problem itself, to fall back on: write Ladder{(*rungs, 1.0)}"
            )
        if window < EPISODES_TO_COMPARE:
            raise ValueError(f"window must be at least {EPISODES_TO_COMPARE} episodes, got {window!r}")
        check_coefficient("exploration", exploration)
        for name, value in (("rungs", tuple(map(float, rungs))), ("window", window), ("exploration", exploration)):
            object.__setattr__(self, name, value)

    @classmethod
    def for_run(cls, *, rungs: list[float] | None = None, window: int = 16, exploration: float = 0.05) -> Self:
        """Return the ladder that a configuration describes."""
        return cls(*(rungs or ()), window=window, exploration=exploration)

    def __str__(self) -> str:
        return f"Ladder({', '.join(f'{rung:g}' for rung in self.rungs)})"

    def for_gamma(self, gamma: float) -> Ladder:
        """Return the ladder with its rungs, those that suit the discount where none are named."""
        return self if self.rungs else Ladder(*rungs_for(gamma), window=self.window, exploration=self.exploration)


class Bandit:
    """Which rung acts: Thompson sampling on the mean return of the newest episodes of each.

        k ~ argmax_k N(mean_k, std_k² / n_k)

    A rung with fewer than four episodes comes first, and now and then one is drawn at random: learners get
    better, so what a rung was worth some time ago does not say what it is worth now.

    :param ladder: its rungs, window and exploration
    """

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self.count = ladder, len(ladder.rungs)
        self.returns: list[deque[float]] = [deque(maxlen=ladder.window) for _ in ladder.rungs]
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed its draws."""
        self._generator = np.random.default_rng(seed)

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean return of each rung's newest episodes, NaN where none has ended, shape (K,)."""
        return np.array([np.mean(returns) if returns else np.nan for returns in self.returns])

    @property
    def best(self) -> int:
        """The rung with the highest mean return among those that can be compared; the last where none can."""
        comparable = [len(returns) >= EPISODES_TO_COMPARE for returns in self.returns]
        means = np.where(comparable, self.means, -np.inf)
        return self.count - 1 - int(np.argmax(means[::-1]))

    def add(self, rung: int, total: float) -> None:
        """Take in the return of an episode on a rung."""
        self.returns[rung].append(total)

    def choose(self, acting: Sequence[int] | NDArray[np.intp] = ()) -> int:
        """Choose the rung of an episode that begins.

        :param acting: the rungs of the episodes that are going on
        """
        if self.count == 1:
            return 0
        ended = np.array([len(returns) for returns in self.returns])
        if (ended < EPISODES_TO_COMPARE).any():
            expected = ended + np.bincount(np.asarray(acting, np.intp), minlength=self.count)
            return self.count - 1 - int(np.argmin(expected[::-1]))
        if self._generator.random() < self.ladder.exploration:
            return int(self._generator.integers(self.count))
        return int(np.argmax([self._draw(returns) for returns in self.returns]))

    def _draw(self, returns: Sequence[float]) -> float:
        """Draw what a rung may be worth; rungs that always pay the same are drawn in any order."""
        mean, spread = np.mean(returns), np.std(returns, ddof=1) / np.sqrt(len(returns))
        return float(self._generator.normal(mean, max(spread, 1e-9 * (1.0 + abs(mean)))))

    def state(self) -> dict[str, Any]:
        """Return what it knows and where its draws are, as JSON holds it."""
        return {"returns": [list(returns) for returns in self.returns], "draws": self._generator.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.returns = [deque(returns, maxlen=self.ladder.window) for returns in state["returns"]]
        self._generator.bit_generator.state = state["draws"]
