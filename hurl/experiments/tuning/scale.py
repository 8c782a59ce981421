"""How much is tried: so many trials of so many iterations, as many as a budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hurl.experiments.metrics import Row
from hurl.experiments.tuning.grid import TuningError

# Pruning compares with the median of finished trials, which a few must make first.
STARTUP_TRIALS = 5
WARM_UP_SHARE = 1 / 4
# What a trial that may be pruned is expected to take: one half go to the end, the other half stop after the warm-up.
PRUNED_SHARE = (1 + WARM_UP_SHARE) / 2
SHORTEST_SHARE = 1 / 4
FEWEST_TRIALS = 2 * STARTUP_TRIALS


@dataclass(frozen=True)
class Timing:
    """What a trial takes, measured by a short run.

    :param startup: seconds before its first iteration
    :param iteration: seconds of an iteration
    """

    startup: float
    iteration: float

    @classmethod
    def of_runs(cls, runs: Sequence[Sequence[Row]], seconds: float) -> Timing:
        """Return what the rows of short runs say, which took so long side by side.

        The last iteration is what all that follow take; the first compiles, which counts as before.
        """
        last = [rows[-1] for rows in runs]
        iteration = float(np.mean([row.seconds for row in last]))
        return cls(max(seconds - last[0].iteration * iteration, 0.0), iteration)


@dataclass(frozen=True)
class Scale:
    """How much is tried: so many trials of so many iterations, hopeless ones pruned or not."""

    trials: int
    iterations: int
    pruning: bool

    @property
    def pruning_starts(self) -> int:
        """The first iteration after which a trial may be pruned."""
        return max(1, int(WARM_UP_SHARE * self.iterations))

    def seconds(self, timing: Timing, *, at_most: bool = False) -> float:
        """Return what all trials take, one after the other.

        :param at_most: whether no trial is pruned; otherwise one half of those that may be are
        """
        whole = self.trials if at_most or not self.pruning else min(self.trials, STARTUP_TRIALS)
        share = whole + PRUNED_SHARE * (self.trials - whole)
        return self.trials * timing.startup + share * self.iterations * timing.iteration


def plan_scale(trials: int, iterations: int, timing: Timing, jobs: int, budget: float | None) -> Scale:
    """Fit trials and iterations into a budget.

    Where all fits as it is, nothing is changed. Otherwise hopeless trials are pruned, and that is counted on; if that
    is not enough, runs are shorter, down to a quarter; if that is not enough, there are fewer trials.

    :param budget: in hours, with `jobs` trials at a time; None means no limit
    """
    whole = Scale(trials, iterations, pruning=False)
    available = np.inf if budget is None else 3600 * budget * jobs
    if whole.seconds(timing) <= available:
        return whole
    shortest = max(1, int(np.ceil(SHORTEST_SHARE * iterations)))
    scales = [Scale(trials, length, pruning=True) for length in range(iterations, shortest - 1, -1)]
    scales += [Scale(fewer, shortest, pruning=True) for fewer in range(trials - 1, FEWEST_TRIALS - 1, -1)]
    for scale in scales:
        if scale.seconds(timing) <= available:
            return scale
    least = scales[-1]
    hours = least.seconds(timing) / jobs / 3600
    raise TuningError(
        f"a budget of {budget:g} hours is too little: {least.trials} trials of {least.iterations} iterations, the "
        f"fewest that say something, take {hours:.2g} hours with {jobs} at a time; raise --budget or --jobs"
    )
