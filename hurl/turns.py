"""Which rung of a ladder acts where and for how long, and what its episodes tell the bandit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hurl.ladder import BLOCKS_TO_DECIDE, PATIENCE, Bandit

__all__ = ["FEWER_RESETS", "LARGEST_CUT_OFF", "Turns"]

# From this share of the steps on, episodes that resets cut off make returns those of short episodes.
LARGEST_CUT_OFF = 0.1
FEWER_RESETS = "raise checkpoint_every or steps_per_iteration of a run, or call `learn` less often"


class Turns:
    """Who acts, and for how long: the bandit chooses a rung when a turn begins, and is told what its episodes pay.

    - Off-policy each environment has turns of its own, an episode each, see `acting`.
    - On-policy a turn is of all environments, see `take`: it lasts until each has begun and ended an episode in it, and
      that one is what the bandit is told of. Of all episodes that end in a turn too many would be short. Turns are few,
      so that they are not drawn: the next is that of the rung which is owed the most steps. Where an episode never ends
      a turn does, after as many iterations as a decision may take.

    :param bandit: which chooses
    :param steps_per_iteration: environment steps in an iteration, of all environments
    """

    def __init__(self, bandit: Bandit, steps_per_iteration: int) -> None:
        self.bandit, self.steps_per_iteration = bandit, steps_per_iteration
        self.steps = self.cut_off = 0  # in which rungs have acted; of them those in episodes that were abandoned
        self.rung_steps = np.zeros(bandit.count, np.int64)  # of the present iteration
        self._owed = np.zeros(bandit.count)  # steps that each rung is behind its share, where there are turns of all
        self._has_warned = self._has_warned_of_length = False
        self._begin()

    def _begin(self) -> None:
        """Let episodes begin in all environments, however many there are."""
        self._totals, self._lengths = np.zeros(0), np.zeros(0, np.int64)  # of the episodes that are going on
        self._acting = np.zeros(0, np.intp)
        self._counts = np.zeros(0, bool)  # whether an episode is of the rung that acts, from its beginning
        self._is_of_rungs = True  # whether rungs have acted in the newest step
        self._turn: int | None = None
        self._turn_steps = 0
        self._is_awaited = np.zeros(0, bool)  # where an episode has yet to begin and end in the turn

    # Who acts --------------------------------------------------------------------------------------------------------

    def acting(self, count: int) -> NDArray[np.intp]:
        """Return the number of the rung that acts in each of so many environments, shape (count,).

        It is chosen when an episode begins, for the whole of it.
        """
        if len(self._acting) != count:  # episodes begin in all of them
            self._acting = np.array([self.bandit.choose() for _ in range(count)], np.intp)
            self._counts = np.ones(count, bool)
        return self._acting

    def act_without_rungs(self, count: int) -> None:
        """Say that in so many environments no rung has acted in the newest step: returns of these episodes say nothing.

        So it is as long as an algorithm draws its actions at random, before it learns.
        """
        self._counts = np.zeros(len(self.acting(count)), bool)
        self._is_of_rungs = False

    def take(self, count: int) -> int:
        """Return the number of the rung that acts in all of so many environments, for who learns from the newest alone.

        It stays the same until the bandit has been told of an episode of each.
        """
        if self._is_held_up:
            self._warn()
        if self._turn is None or self._is_held_up or not self._is_awaited.any():
            is_first, self._owed = self._turn is None, self._owed_now()
            self._turn, self._turn_steps = self.bandit.most_behind(self._owed), 0
            self._acting = np.full(count, self._turn)
            self._counts, self._is_awaited = np.full(count, is_first), np.ones(count, bool)
        return self._turn

    @property
    def _is_held_up(self) -> bool:
        """Whether a turn has lasted for long and still waits for an episode to end."""
        return self._turn_steps >= PATIENCE * self.steps_per_iteration and bool(self._is_awaited.any())

    def _owed_now(self) -> NDArray[np.float64]:
        """Return the steps that each rung is behind its share, those of the present turn counted."""
        if self._turn is None:
            return self._owed
        owed: NDArray[np.float64] = self._owed + self._turn_steps * np.array(self.bandit.shares())
        owed[self._turn] -= self._turn_steps
        return owed

    # What it pays ----------------------------------------------------------------------------------------------------

    def observe(self, rewards: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """Take in a step of all environments: what it paid, and which episodes it ended; shape (n,) each."""
        acting = self.acting(len(ended))
        if len(self._totals) != len(ended):  # other environments than before
            self._totals, self._lengths = np.zeros(len(ended)), np.zeros(len(ended), np.int64)
        self._totals += rewards
        self._turn_steps += len(ended)
        if self._is_of_rungs:
            self._lengths += 1
            self.steps += len(ended)
            self.rung_steps += np.bincount(acting, minlength=self.bandit.count)
        self._is_of_rungs = True
        for index in np.flatnonzero(ended):
            self._end_episode(int(index))
        self._totals[ended], self._lengths[ended] = 0.0, 0

    def _end_episode(self, index: int) -> None:
        """Tell the bandit of the episode that has ended in an environment, and say which rung begins the next."""
        rung, counts = int(self._acting[index]), bool(self._counts[index])
        self._counts[index] = True
        if self._turn is None:
            if counts:
                self.bandit.add(rung, float(self._totals[index]))
                self.bandit.lasted(rung, int(self._lengths[index]))
            self._acting[index] = self.bandit.choose()
        elif counts and self._is_awaited[index]:
            self.bandit.add(rung, float(self._totals[index]))
            self._is_awaited[index] = False

    def begin_iteration(self) -> None:
        """Count the steps of each rung anew."""
        self.rung_steps = np.zeros(self.bandit.count, np.int64)

    def end_iteration(self) -> None:
        """Let what the iteration has told decide, if it does."""
        self.bandit.close_block()
        self._warn()

    def abandon(self, *, in_turn: bool = False) -> None:
        """Forget the episodes that are going on: their environments were reset.

        :param in_turn: whether the rung that acts in all of them goes on, as in the middle of a rollout
        """
        self.cut_off += self._going_on
        self._warn()
        if in_turn and self._turn is not None:
            self._totals[:], self._lengths[:], self._counts[:] = 0.0, 0, True
            return
        self._owed = self._owed_now()
        self._begin()

    def miss(self) -> None:
        """Say that the environments were stepped without it: what their episodes pay is not known."""
        self._counts[:] = False

    @property
    def _going_on(self) -> int:
        """The steps so far of the episodes that are going on."""
        return int(self._lengths.sum())

    def figures(self) -> dict[str, float]:
        """Return each rung's newest returns and its share of this iteration's steps, and if it is decided, by name."""
        shares = self.rung_steps / max(1, self.rung_steps.sum())
        figures = {"return": self.bandit.means.tolist(), "share": shares.tolist()}
        return {"decided": float(self.bandit.decided is not None)} | {
            f"{name}_{rung:.10g}": value
            for name, values in figures.items()
            for rung, value in zip(self.bandit.ladder.rungs, values, strict=True)
            if not np.isnan(value)
        }

    # What is warned of -----------------------------------------------------------------------------------------------

    def check_length(self, steps: int) -> None:
        """Warn, once, where so many steps more are too few for the bandit to decide in."""
        total = self.steps + steps
        is_short = self.bandit.count > 1 and total < BLOCKS_TO_DECIDE * self.steps_per_iteration
        if is_short and not self._has_warned_of_length:
            self._has_warned_of_length = True
            warnings.warn(
                f"{total:,} steps are fewer than {BLOCKS_TO_DECIDE} iterations of {self.steps_per_iteration:,}, "
                "by which a ladder judges its rungs at the least: lower steps_per_iteration, or learn for longer",
                stacklevel=5,
            )

    def _warn(self) -> None:
        """Warn, once, where rungs can't be judged by episodes, or only by those short enough to end."""
        if self.bandit.count > 1 and not self._has_warned and (trouble := self._trouble()):
            self._has_warned = True
            warnings.warn(trouble, stacklevel=4)

    def _trouble(self) -> str | None:
        """Say what keeps rungs from being judged, after as many iterations as a decision may take."""
        if self.steps < PATIENCE * self.steps_per_iteration:
            return None
        share, limit = self.cut_off / self.steps, "give the environment a time limit, or the guidance a schedule, or"
        if share > LARGEST_CUT_OFF:
            return (
                f"{share:.0%} of the steps so far were in episodes that resets cut off, and a ladder judges its rungs "
                f"by whole episodes: {FEWER_RESETS}"
            )
        if self.bandit.closed == 0:
            return (
                f"no episode with a finite return has ended in {self.steps:,} steps, and a ladder judges its rungs by "
                f"episodes: {limit} {FEWER_RESETS}"
            )
        if self._is_held_up:
            return (
                f"{self._is_awaited.sum()} of {len(self._is_awaited)} environments have ended no episode in "
                f"{self._turn_steps:,} steps, and a ladder judges a rung by one of each: {limit} raise "
                "steps_per_iteration"
            )
        return None

    # What a checkpoint holds -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what is known, as JSON holds it; episodes that are going on count as abandoned."""
        return {
            "watched": self.steps,
            "cut_off": self.cut_off + self._going_on,
            "owed": self._owed_now().tolist(),
            "bandit": self.bandit.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; what a ladder of other rungs knows is of no use."""
        self._begin()
        if self.bandit.restore(state["bandit"]):
            self.steps = int(state.get("watched", state.get("steps", 0)))  # in earlier checkpoints those of the model
            self.cut_off = int(state.get("cut_off", 0))
            self._owed = np.array(state.get("owed", self._owed))
