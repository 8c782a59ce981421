import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hurl import ConstantSchedule, ExponentialSchedule, LinearSchedule, TanhSchedule

RISING = [LinearSchedule, ExponentialSchedule, TanhSchedule]


def test_constant_is_constant():
    assert [ConstantSchedule(0.95)(n) for n in (1, 7, 10_000)] == [0.95] * 3


@pytest.mark.parametrize("schedule", [LinearSchedule, TanhSchedule])
def test_alpha_one_rises_from_lambda0_to_exactly_one_at_the_last_iteration(schedule):
    values = [schedule(0.5, alpha=1.0, iterations=200)(n) for n in range(1, 202)]
    assert values[0] == 0.5
    assert values[198] < 1.0
    assert values[199] == pytest.approx(1.0, abs=1e-12)
    assert values[200] == 1.0


def test_tanh_equals_the_papers_formula_with_arctanh():
    schedule = TanhSchedule(0.9, alpha=2.0, iterations=50)
    expected = 0.9 + 0.1 * math.tanh(16 / 99 * math.atanh(0.99)) / 0.99
    assert schedule(17) == pytest.approx(expected, rel=1e-14)


def test_tanh_omega_form_approaches_one():
    schedule = TanhSchedule(0.2, omega=0.1)
    assert schedule(1) == 0.2
    assert schedule(4) == pytest.approx(0.2 + 0.8 * math.tanh(0.3), rel=1e-14)
    assert schedule(100) < schedule(400) == pytest.approx(1.0)


def test_exponential_closes_the_same_share_of_the_gap_each_iteration():
    schedule = ExponentialSchedule(0.6, iterations=10)
    gaps = [1 - schedule(n) for n in range(1, 6)]
    assert gaps[0] == pytest.approx(0.4)
    assert [after / before for before, after in pairwise(gaps)] == pytest.approx([0.9] * 4)


@pytest.mark.parametrize("schedule", RISING)
def test_tiny_alpha_means_one_from_the_second_iteration_on(schedule):
    values = [schedule(0.98, alpha=1e-5, iterations=200)(n) for n in (1, 2, 3)]
    assert values == [0.98, 1.0, 1.0]


def test_huge_alpha_stays_at_lambda0():
    assert TanhSchedule(0.95, alpha=1e5, iterations=200)(200) == pytest.approx(0.95, abs=1e-5)


@given(st.sampled_from(RISING), st.floats(0, 1), st.floats(1e-6, 1e6), st.integers(1, 1000), st.integers(1, 2000))
def test_rising_schedules_rise_within_bounds(schedule, lambda0, alpha, iterations, n):
    curve = schedule(lambda0, alpha=alpha, iterations=iterations)
    assert curve(1) == lambda0
    assert lambda0 <= curve(n) <= curve(n + 1) <= 1.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ConstantSchedule(1.5), "1.5"),
        (lambda: ConstantSchedule(float("nan")), "nan"),
        (lambda: LinearSchedule(-0.1, iterations=5), "-0.1"),
        (lambda: ExponentialSchedule(0.5, iterations=0), "0"),
        (lambda: TanhSchedule(0.5, alpha=-1.0, iterations=5), "-1.0"),
        (lambda: TanhSchedule(0.5, omega=0.0), "0.0"),
        (lambda: TanhSchedule(0.5), "iterations=None and omega=None"),
        (lambda: TanhSchedule(0.5, iterations=3, omega=0.5), "iterations=3 and omega=0.5"),
        (lambda: LinearSchedule(0.5, iterations=5)(0), "0"),
    ],
)
def test_values_out_of_range_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize("value", ["0.5", None, True])
def test_what_is_no_number_is_named(value):
    with pytest.raises(TypeError, match=rf"lambda_ must be a number in \[0, 1\], got {value!r}"):
        ConstantSchedule(value)
