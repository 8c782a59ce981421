"""Schedules of the mixing coefficient λ: `schedule(n)` is λ_n for iteration n = 1, 2, …"""

from __future__ import annotations

import inspect
import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Protocol, Self

from hurl.names import Registry
from hurl.values import check_argument, number, whole

__all__ = ["KINDS", "ConstantSchedule", "ExponentialSchedule", "LinearSchedule", "Schedule", "TanhSchedule", "register"]

# The paper's tanh schedule is scaled to reach this share of its limit at n = αN, where it is cut off at 1.
TANH_LIMIT = 0.99


class Schedule(Protocol):
    """Anything that gives λ_n ∈ [0, 1] for an iteration n ≥ 1."""

    def __call__(self, iteration: int, /) -> float:
        """Return λ for this iteration, counted from 1."""
        ...


# A configuration names a kind of schedule, and beside it the arguments of its constructor, or of its class method
# `for_run` where it has one. An argument called `iterations` is the run's own number unless it is set.
KINDS: Registry[Any] = Registry("hurl.schedules")
register = KINDS.register


class _Configured:
    """A schedule of hurl's own: configurations have the same parameters for all, at their defaults where unused."""

    @classmethod
    def for_run(cls, *, lambda0: float, alpha: float = 1.0, omega: float | None = None, iterations: int) -> Self:
        """Return the schedule that a configuration describes."""
        known = inspect.signature(cls).parameters
        check_coefficient("lambda0", lambda0)
        if omega is not None and ("omega" not in known or alpha != 1.0):
            raise ValueError(f"omega={omega} is for kind: tanh without alpha")
        if alpha != 1.0 and "alpha" not in known:
            raise ValueError(f"alpha={alpha} has no meaning for kind: constant")
        rise = {"iterations": iterations, "alpha": alpha} if omega is None else {"omega": omega}
        return cls(lambda0, **{name: value for name, value in rise.items() if name in known})  # type: ignore[call-arg]


def parameter_names(kind: str) -> set[str]:
    """Return the keys that mean something beside the name of a kind in a configuration."""
    maker = KINDS[kind]
    names = set(inspect.signature(getattr(maker, "for_run", maker)).parameters)
    is_own = isinstance(maker, type) and issubclass(maker, _Configured)
    return names & {"lambda0", *inspect.signature(maker).parameters} if is_own else names


@register("constant")
@dataclass(frozen=True)
class ConstantSchedule(_Configured):
    """λ_n = λ for every n."""

    lambda_: float

    def __post_init__(self) -> None:
        check_coefficient("lambda_", self.lambda_)

    def __call__(self, iteration: int) -> float:
        """Return λ."""
        _check_iteration(iteration)
        return float(self.lambda_)


@dataclass(frozen=True)
class _Rising(_Configured):
    lambda0: float
    _: KW_ONLY
    iterations: int
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_rise(self.lambda0, self.alpha, self.iterations)


@register("linear")
@dataclass(frozen=True)
class LinearSchedule(_Rising):
    """λ_n = λ0 + (1 − λ0)·min(1, (n − 1)/(αN − 1)).

    :param lambda0: λ of the first iteration
    :param iterations: N, the iterations of the run
    :param alpha: how slowly λ rises: it reaches 1 after αN iterations
    """

    def __call__(self, iteration: int) -> float:
        """Return λ_n."""
        return _rise(self.lambda0, _progress(iteration, self.alpha, self.iterations))


@register("exponential")
@dataclass(frozen=True)
class ExponentialSchedule(_Rising):
    """λ_n = 1 − (1 − λ0)·(1 − 1/(αN))^(n − 1): each iteration closes the share 1/(αN) of the gap to 1.

    :param lambda0: λ of the first iteration
    :param iterations: N, the iterations of the run
    :param alpha: how slowly λ rises; where αN ≤ 1 it is 1 from the second iteration on
    """

    def __call__(self, iteration: int) -> float:
        """Return λ_n."""
        _check_iteration(iteration)
        rate = min(1.0, 1.0 / (self.alpha * self.iterations))
        return _rise(self.lambda0, 1.0 - (1.0 - rate) ** (iteration - 1))


@register("tanh")
@dataclass(frozen=True)
class TanhSchedule(_Configured):
    """The paper's schedule, λ_n = λ0 + (1 − λ0)·c_ω·tanh(ω(n − 1)), cut off at 1.

    It is given in one of two ways. With α and N, as in the paper's appendix,

        ω = arctanh(0.99) / (αN − 1)  and  c_ω = 1/0.99,  so that λ_N = 1 at α = 1;

    α ≫ 1 leaves λ near λ0 for the whole run, and where αN ≤ 1, λ is 1 from the second iteration on.
    With ω alone, as in the paper's section 5, c_ω = 1: λ_n approaches 1 as n → ∞.

    :param lambda0: λ of the first iteration
    :param iterations: N, the iterations of the run
    :param alpha: how slowly λ rises
    :param omega: the rate ω > 0, given instead of `iterations` and `alpha`
    """

    lambda0: float
    _: KW_ONLY
    iterations: int | None = None
    alpha: float = 1.0
    omega: float | None = None

    def __post_init__(self) -> None:
        if (self.iterations is None) == (self.omega is None):
            raise ValueError(
                "TanhSchedule takes either iterations (with alpha) or omega, "
                f"got iterations={self.iterations!r} and omega={self.omega!r}"
            )
        if self.omega is not None:
            check_argument("omega", self.omega, number(0, above=True))
        _check_rise(self.lambda0, self.alpha, 1 if self.iterations is None else self.iterations)

    def __call__(self, iteration: int) -> float:
        """Return λ_n."""
        if self.iterations is not None:
            progress = _progress(iteration, self.alpha, self.iterations)
            return _rise(self.lambda0, math.tanh(progress * math.atanh(TANH_LIMIT)) / TANH_LIMIT)
        assert self.omega is not None
        _check_iteration(iteration)
        return _rise(self.lambda0, math.tanh(self.omega * (iteration - 1)))


def check_coefficient(name: str, value: float) -> None:
    """Refuse a mixing coefficient that is no number, or outside [0, 1]."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number in [0, 1], got {value!r}")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")


def _check_iteration(iteration: int) -> None:
    if iteration < 1:
        raise ValueError(f"iterations are counted from 1, got {iteration!r}")


def _check_rise(lambda0: float, alpha: float, iterations: int) -> None:
    check_coefficient("lambda0", lambda0)
    check_argument("alpha", alpha, number(0, above=True))
    check_argument("iterations", iterations, whole(1))


def _progress(iteration: int, alpha: float, iterations: int) -> float:
    """(n − 1)/(αN − 1); where αN ≤ 1 the rise is over at n = 2."""
    _check_iteration(iteration)
    span = alpha * iterations - 1
    if span <= 0:
        return 0.0 if iteration == 1 else 1.0
    return (iteration - 1) / span


def _rise(lambda0: float, share: float) -> float:
    """λ0 + (1 − λ0)·share, cut off at 1."""
    return min(1.0, lambda0 + (1.0 - lambda0) * min(1.0, share))
