"""The reshaped MDP: equation (2) of the paper as a function, and `Guidance`, which applies it to an agent's data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from os import PathLike
from time import perf_counter
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hurl.discounting import check_gamma
from hurl.ladder import Bandit, Ladder
from hurl.names import describe_exception
from hurl.schedules import ConstantSchedule, Schedule, check_coefficient
from hurl.turns import Turns
from hurl.values import check_argument, whole

__all__ = [
    "Guidance",
    "Heuristic",
    "HeuristicError",
    "HeuristicStatistics",
    "Observations",
    "Shaping",
    "reshape",
]

Observations = NDArray[Any] | Mapping[str, NDArray[Any]]
Heuristic = Callable[[Any], ArrayLike]
Shaping = Literal["hurl", "pbrs", "discounted-pbrs"]
Floats = NDArray[np.floating[Any]]

# The largest |h|: γ·h(s') − h(s), added to a reward, stays within the range of 32-bit floats.
LARGEST_VALUE = float(np.finfo(np.float32).max) / 4
# A heuristic that takes more than this share of an iteration is warned of, where the iteration is no shorter than this.
LARGEST_SHARE, NOTABLE_SECONDS = 0.5, 1.0
# How much of a batch is compared at a time with what it was before the heuristic saw it.
BYTES_COMPARED = 2**18
# The names of heuristics that were warned of: once is enough, also where RLlib's algorithms are built anew.
_warned_of: set[str] = set()


def reshape(
    rewards: ArrayLike, next_values: ArrayLike, terminated: ArrayLike, *, gamma: float, lambda_: float
) -> tuple[Floats, float]:
    """Reshape rewards and discount with a heuristic: the MDP that a guided algorithm learns on.

        r̃ = r + (1 − λ)·γ·h(s')        γ̃ = λ·γ        with h(s') = 0 where s' is terminal

    Source: equation (2), `eq:reshaped MDP`.

    :param rewards: r, shape (n,)
    :param next_values: h(s'), shape (n,)
    :param terminated: whether s' is terminal, shape (n,); a time limit is not a terminal state
    :param gamma: γ ∈ [0, 1], the discount of the original MDP
    :param lambda_: λ ∈ [0, 1]; 1 leaves the MDP as it is
    :return: r̃, shape (n,), in the floating type of `rewards`, and γ̃
    """
    check_gamma(gamma, may_be_one=True)
    check_coefficient("lambda_", lambda_)
    rewards = _floating(rewards)
    if not np.shape(rewards) == np.shape(next_values) == np.shape(terminated):
        raise ValueError(
            f"rewards, next_values and terminated must have one shape, got {np.shape(rewards)}, "
            f"{np.shape(next_values)} and {np.shape(terminated)}"
        )
    term = potential_term("hurl", np.zeros(()), next_values, terminated, gamma=gamma)
    return (rewards + (1.0 - lambda_) * term).astype(rewards.dtype), lambda_ * gamma


def potential_term(
    shaping: Shaping, values: ArrayLike, next_values: ArrayLike, terminated: ArrayLike, *, gamma: float
) -> Floats:
    """Return the part of a reshaped reward that does not change with λ, so that it can be stored with its transition.

        hurl:                     γ·h(s')               r̃ = r + (1 − λ)·term    γ̃ = λγ
        pbrs, discounted-pbrs:    γ·h(s') − h(s)        r̄ = r + term            γ or λγ

    with h(s') = 0 where s' is terminal. Sources: `eq:reshaped MDP`; section 2.2 for M̄ and M̄_λ.

    :param values: h(s), shape (n,); not read by `hurl`
    :param next_values: h(s'), shape (n,)
    :param terminated: whether s' is terminal, shape (n,)
    """
    term: Floats = gamma * np.where(terminated, np.float32(0), _floating(next_values))
    return term if shaping == "hurl" else term - np.asarray(values)


def check_shaping(schedule: Schedule | Ladder, shaping: Shaping) -> None:
    """Refuse a ladder for rewards that are the same on all rungs."""
    if isinstance(schedule, Ladder) and shaping != "hurl":
        raise ValueError(
            f"a ladder is for shaping='hurl', whose rewards differ from rung to rung, not for {shaping!r}: "
            "give it a schedule"
        )


class HeuristicError(ValueError):
    """A heuristic that did not return one finite number for each observation."""


def check_same_gamma(heuristic: Heuristic, gamma: float) -> None:
    """Refuse a heuristic whose values are for another discount, where it says for which."""
    own = getattr(heuristic, "gamma", None)
    if isinstance(own, int | float) and own != gamma:
        raise HeuristicError(
            f"{_name(heuristic)} is for gamma={own}, but here gamma={gamma}: fit one with gamma={gamma}, "
            f"or run with gamma={own}"
        )


@dataclass
class HeuristicStatistics:
    """Running mean, minimum and maximum of h over the observations that arrived."""

    count: int = 0
    total: float = 0.0
    minimum: float = np.inf
    maximum: float = -np.inf

    @property
    def mean(self) -> float:
        """The mean; NaN where nothing arrived."""
        return self.total / self.count if self.count else float("nan")

    @classmethod
    def of_all(cls, parts: Sequence[HeuristicStatistics]) -> HeuristicStatistics:
        """Return the statistics of several parts together."""
        counts, totals, minima, maxima = zip(*(astuple(part) for part in parts), strict=True)
        return cls(sum(counts), sum(totals), min(minima), max(maxima))

    def since(self, earlier: HeuristicStatistics) -> HeuristicStatistics:
        """Return those of what came after earlier ones of the same values; limits are those of all."""
        return HeuristicStatistics(self.count - earlier.count, self.total - earlier.total, self.minimum, self.maximum)

    def add(self, values: NDArray[np.float32]) -> None:
        """Take a batch of values in."""
        self.count += values.size
        self.total += float(np.add.reduce(values, dtype=np.float64))
        self.minimum = min(self.minimum, float(np.minimum.reduce(values)))
        self.maximum = max(self.maximum, float(np.maximum.reduce(values)))


class Guidance:
    """A heuristic with a schedule or a ladder of λ: all that turns a base algorithm into a heuristic-guided one.

    It is the only clock of λ. It counts the environment steps that it is told of: λ is the schedule's value for

        n = ⌈steps / steps_per_iteration⌉

    so that, as in Algorithm 1, the n-th batch of `steps_per_iteration` steps is trained on with λ_n. With a ladder, λ
    is that of the rung that is at work, `on`, and else that of the best one.

    :param heuristic: h, a function of a batch of raw observations `(n, *shape) -> (n,)`; dictionary observations
        arrive as a dictionary of such batches
    :param schedule: `schedule(n)` is λ for iteration n = 1, 2, …; or a `Ladder`, whose rungs are all learnt and tried;
        none means `Ladder()`, the rungs that suit γ
    :param gamma: γ ∈ [0, 1], the discount of the original MDP
    :param steps_per_iteration: environment steps in an iteration of the schedule, over all environments
    :param shaping: `"hurl"`: r + (1−λ)γh(s') with discount λγ (the method);
        `"pbrs"`: r + γh(s') − h(s) with discount γ (potential-based shaping, the baseline);
        `"discounted-pbrs"`: the PBRS reward with discount λγ (M̄_λ of the paper's section 2.2)
    """

    def __init__(
        self,
        heuristic: Heuristic,
        schedule: Schedule | Ladder | None = None,
        *,
        gamma: float,
        steps_per_iteration: int = 10_000,
        shaping: Shaping = "hurl",
    ) -> None:
        if not callable(heuristic):
            hint = ": load it with hurl.load_heuristic" if isinstance(heuristic, str | PathLike) else ""
            raise TypeError(f"the heuristic must be a function of a batch of observations, got {heuristic!r}{hint}")
        check_gamma(gamma, may_be_one=True)
        schedule = Ladder() if schedule is None else schedule
        if isinstance(schedule, type) or not (callable(schedule) or isinstance(schedule, Ladder)):
            raise TypeError(
                "the schedule must be a function of the iteration, such as ConstantSchedule(0.9), or a Ladder, "
                f"got {schedule!r}"
            )
        check_argument("steps_per_iteration", steps_per_iteration, whole(1))
        if shaping not in get_args(Shaping):
            raise ValueError(f"shaping must be one of {', '.join(get_args(Shaping))}, got {shaping!r}")
        check_shaping(schedule, shaping)
        self.heuristic = heuristic
        self.gamma = gamma
        self.schedule = schedule.for_gamma(gamma) if isinstance(schedule, Ladder) else schedule
        self.steps_per_iteration = steps_per_iteration
        self.shaping = shaping
        self.steps = self.iteration = self._target = 0
        self._at_work: int | None = None
        self._heuristic_seconds, self._began = 0.0, perf_counter()
        self.turns = Turns(Bandit(self.schedule), steps_per_iteration) if isinstance(self.schedule, Ladder) else None
        self.advance(0)

    def __repr__(self) -> str:
        return (
            f"Guidance({_name(self.heuristic)}, {self.schedule}, gamma={self.gamma}, "
            f"steps_per_iteration={self.steps_per_iteration}, shaping={self.shaping!r}, steps={self.steps})"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what was pickled; in earlier versions rungs had no room of their own."""
        bandit = state.pop("bandit", None)
        vars(self).update(state)
        if "turns" not in state:
            self.turns = None if bandit is None else Turns(bandit, self.steps_per_iteration)

    @property
    def gamma(self) -> float:
        """γ, the discount of the original MDP; rungs that were chosen for one stay when another is set."""
        return self._gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        check_gamma(gamma, may_be_one=True)
        check_same_gamma(self.heuristic, gamma)
        self._gamma = gamma

    def start(self, seed: int | None = None) -> Guidance:
        """Return a guidance with the same parts and a count of its own, at the same step.

        :param seed: of the draws of a ladder's rungs, where nothing has been counted yet
        """
        copy = Guidance(
            self.heuristic,
            self.schedule,
            gamma=self.gamma,
            steps_per_iteration=self.steps_per_iteration,
            shaping=self.shaping,
        )
        copy.restore(self.state())
        if copy.bandit is not None and self.steps == 0:
            copy.bandit.seed(seed)
        return copy

    @property
    def lambda_(self) -> float:
        """λ, the mixing coefficient in force."""
        if self.bandit is None:
            return self._lambda
        return self.rungs[self.bandit.best if self._at_work is None else self._at_work]

    @property
    def changes_nothing(self) -> bool:
        """Whether the reshaped MDP is the MDP itself, whatever h is: λ = 1 throughout."""
        return self.shaping == "hurl" and (self.schedule == ConstantSchedule(1.0) or self.rungs == (1.0,))

    # The clock -------------------------------------------------------------------------------------------------------

    def advance(self, steps: int, *, ahead: int = 0) -> None:
        """Count environment steps, and move λ to their iteration.

        :param ahead: steps that are still to come and are trained on together with these, such as those of a rollout:
            λ is that of the iteration which they complete
        """
        self.steps += steps
        self._target = max(self._target, self.steps + ahead)
        iteration = max(1, -(-self._target // self.steps_per_iteration))
        if iteration != self.iteration:
            if not isinstance(self.schedule, Ladder):
                value = self.schedule(iteration)
                self._lambda = float(value) if hasattr(value, "__float__") else value  # an array of no dimension, too
                check_coefficient(f"the schedule's value for iteration {iteration}", self._lambda)
            self._time_heuristic()
            self.iteration = iteration
            self.statistics = HeuristicStatistics()
            if self.turns is not None:
                self.turns.begin_iteration()

    def _time_heuristic(self) -> None:
        """Warn, once, of a heuristic that took most of the iteration that ends; time the next."""
        seconds, now, name = self._heuristic_seconds, perf_counter(), _name(self.heuristic)
        duration = now - self._began
        self._heuristic_seconds, self._began = 0.0, now
        if duration >= NOTABLE_SECONDS and seconds > LARGEST_SHARE * duration and name not in _warned_of:
            _warned_of.add(name)
            warnings.warn(
                f"the heuristic {name} took {seconds / duration:.0%} of the {duration:.1f} s of "
                f"iteration {self.iteration}: compute it for the whole batch at once, or take a small network, such as "
                "`hurl fit` makes from data",
                stacklevel=2,
            )

    def begin(self, iteration: int) -> None:
        """Move to the beginning of an iteration, for who counts iterations and not steps."""
        self.steps = self._target = (iteration - 1) * self.steps_per_iteration
        self.advance(0, ahead=1)

    def state(self) -> dict[str, Any]:
        """Return how far it is, as JSON holds it; episodes that are going on count as abandoned."""
        return {"steps": self.steps} | ({} if self.turns is None else self.turns.state())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.steps = self._target = self.iteration = 0
        if self.turns is not None and "bandit" in state:
            self.turns.restore(state)
        self.advance(int(state["steps"]))

    def observe(
        self,
        observations: Observations,
        next_observations: Observations,
        rewards: NDArray[Any],
        terminated: NDArray[Any],
        truncated: NDArray[Any],
    ) -> NDArray[np.float32]:
        """Take in the transitions that arrive together, one of each environment, calling the heuristic once.

        They are counted, and h(s') goes into `statistics`, which are those of the present iteration. Where there is a
        ladder, an episode that ends tells the bandit what its rung is worth.

        :param rewards: as the environments paid them, shape (n,)
        :param terminated: whether s' is terminal, shape (n,)
        :param truncated: whether the episode ends there for another reason, shape (n,)
        :return: their `terms`, shape (n,)
        """
        terminated = np.asarray(terminated, bool)
        values, next_values = self._values(observations, next_observations)
        iterations = self.steps // self.steps_per_iteration
        self.advance(len(next_values))
        self.statistics.add(next_values)
        if self.turns is not None:
            self.turns.observe(np.asarray(rewards), terminated | np.asarray(truncated, bool))
            if self.steps // self.steps_per_iteration > iterations:
                self.turns.end_iteration()
        return self._terms(values, next_values, terminated)

    def abandon_episodes(self, *, in_turn: bool = False) -> None:
        """Forget the episodes that are going on: their environments were reset, perhaps in a rung's turn."""
        if self.turns is not None:
            self.turns.abandon(in_turn=in_turn)

    # The ladder ------------------------------------------------------------------------------------------------------

    @property
    def rungs(self) -> tuple[float, ...]:
        """The λ of a ladder; none where there is a schedule."""
        return self.schedule.rungs if isinstance(self.schedule, Ladder) else ()

    @property
    def bandit(self) -> Bandit | None:
        """What chooses among a ladder's rungs; none where there is a schedule."""
        return None if self.turns is None else self.turns.bandit

    @property
    def has_fallback(self) -> bool:
        """Whether λ = 1 is a rung beside others: there the problem itself is learnt, whatever the others learn from."""
        return len(self.rungs) > 1

    @property
    def best_rung(self) -> int | None:
        """The number of the rung with the best returns; none where there is a schedule."""
        return None if self.bandit is None else self.bandit.best

    @contextmanager
    def on(self, rung: int) -> Iterator[None]:
        """Let λ be that of a rung, by its number, for a while; of a schedule, which has one λ, nothing changes."""
        before, self._at_work = self._at_work, rung
        try:
            yield
        finally:
            self._at_work = before

    # The reshaped MDP ------------------------------------------------------------------------------------------------

    @property
    def discount(self) -> float:
        """γ̃, the discount that the base algorithm uses now."""
        return self.gamma if self.shaping == "pbrs" else self.lambda_ * self.gamma

    def evaluate(self, observations: Observations) -> NDArray[np.float32]:
        """Return h for a batch of observations, checked: one finite value each, shape (n,)."""
        count = len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)
        values = self._call(observations, count)
        if values.shape != (count,):
            raise HeuristicError(
                f"the heuristic {_name(self.heuristic)} returned shape {values.shape} for {count} observations: "
                f"return one value each, shape ({count},)"
            )
        if values.dtype.kind not in "fiub":
            raise HeuristicError(
                f"the heuristic {_name(self.heuristic)} returned values of type {values.dtype} for {count} "
                "observations: return numbers"
            )
        if values.dtype != np.float32:
            with np.errstate(over="ignore"):
                values = values.astype(np.float32)
        wide = values.astype(np.float64)
        if not wide.dot(wide) <= LARGEST_VALUE**2:  # one reduction: this is a hot path
            self._check_range(values)
        return values

    def _call(self, observations: Observations, count: int) -> NDArray[Any]:
        """Return what the heuristic does, which gets copies: what the agent learns from stays as it is.

        A view that is read-only would not do: torch writes into it, and what numba and Cython compile may refuse it.
        """
        arrays = observations if isinstance(observations, Mapping) else {"": observations}
        copies = {key: np.array(array) for key, array in arrays.items()}
        given = dict(copies) if arrays is observations else copies[""]
        began = perf_counter()
        try:
            values = np.asarray(self.heuristic(given))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too, which would end a run as if it were done
            shape = "" if arrays is observations else f" of shape {np.shape(arrays[''])[1:]}"
            reason = error if isinstance(error, HeuristicError) else describe_exception(error)
            raise HeuristicError(
                f"the heuristic {_name(self.heuristic)} failed for {count} observations{shape}: {reason}"
            ) from error
        self._heuristic_seconds += perf_counter() - began
        for key, copy in copies.items():
            if _differ(copy, np.asarray(arrays[key])):
                raise HeuristicError(
                    f"the heuristic {_name(self.heuristic)} writes into the observations that it is given, which "
                    "others have to see as they are: work on a copy"
                )
        return values

    def _check_range(self, values: NDArray[np.float32]) -> None:
        is_outside = ~(np.abs(values) <= LARGEST_VALUE)
        if not is_outside.any():
            return
        worst = values[is_outside][0]
        kind = "NaN" if np.isnan(worst) else "infinite values" if np.isinf(worst) else f"{worst:.3g}"
        limit = f" of at most {LARGEST_VALUE:.3g}, for rewards are 32-bit floats" if np.isfinite(worst) else ""
        raise HeuristicError(
            f"the heuristic {_name(self.heuristic)} returned {kind} for {is_outside.sum()} of {len(values)} "
            f"observations: return finite values{limit}"
        )

    def terms(
        self,
        observations: Observations,
        next_observations: Observations,
        terminated: NDArray[Any],
        *,
        arriving: bool = False,
    ) -> NDArray[np.float32]:
        """Return the λ-free part of the reshaped rewards of n transitions, calling the heuristic once. Shape (n,).

        :param arriving: whether they are new, so that h(s') goes into `statistics`; who counts them tells `advance`
        """
        values, next_values = self._values(observations, next_observations)
        if arriving:
            self.statistics.add(next_values)
        return self._terms(values, next_values, terminated)

    def _values(
        self, observations: Observations, next_observations: Observations
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return h(s), where the shaping needs it, and h(s')."""
        if self.shaping == "hurl":
            return np.zeros((), np.float32), self.evaluate(next_observations)
        values, next_values = np.split(self.evaluate(_concatenate(observations, next_observations)), 2)
        return values, next_values

    def _terms(self, values: Floats, next_values: Floats, terminated: NDArray[Any]) -> NDArray[np.float32]:
        return potential_term(self.shaping, values, next_values, terminated, gamma=self.gamma).astype(
            np.float32, copy=False
        )

    def reshape(self, rewards: NDArray[Any], terms: NDArray[np.float32]) -> NDArray[Any]:
        """Return the reshaped rewards at the present λ, given the transitions' `terms`; integers become floats."""
        weight = 1.0 - self.lambda_ if self.shaping == "hurl" else 1.0
        if weight == 0.0:
            return rewards
        floating = rewards.dtype if rewards.dtype.kind == "f" else np.float32
        reshaped: NDArray[Any] = (rewards + weight * terms).astype(floating, copy=False)
        return reshaped


def _differ(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Whether two arrays differ in a bit, compared piece by piece: batches of images are large."""
    rows = max(1, BYTES_COMPARED * len(second) // max(1, second.nbytes))
    for start in range(0, len(second), rows):
        if first[start : start + rows].tobytes() != second[start : start + rows].tobytes():
            return True
    return False


def _concatenate(first: Observations, second: Observations) -> Observations:
    if isinstance(first, Mapping):
        return {key: np.concatenate([first[key], second[key]]) for key in first}
    return np.concatenate([first, second])


def _floating(values: ArrayLike) -> Floats:
    array = np.asarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _name(heuristic: Heuristic) -> str:
    """Return a function's name as users write it, `module:function`, and of anything else what it shows of itself."""
    name, module = getattr(heuristic, "__qualname__", None), getattr(heuristic, "__module__", None)
    if name is None:
        return repr(heuristic)
    return name if module in (None, "__main__") else f"{module}:{name}"
