import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import hurl
from hurl import guidance as guidance_module
from hurl.guidance import Guidance, HeuristicError, reshape
from hurl.heuristics.simple import Engineered
from hurl.ladder import Ladder
from hurl.schedules import ConstantSchedule, LinearSchedule

FINITE = st.floats(-1e6, 1e6, width=32)


def guidance(heuristic=lambda s: s[:, 0], lambda_=0.5, gamma=0.9, **options):
    return Guidance(heuristic, ConstantSchedule(lambda_), gamma=gamma, **options)


def test_reshape_is_equation_2_by_hand():
    rewards, discount = reshape([1.0, 1.0], [10.0, 10.0], [False, True], gamma=0.9, lambda_=0.75)
    assert rewards == pytest.approx([1 + 0.25 * 0.9 * 10, 1.0])
    assert discount == 0.75 * 0.9


@given(
    arrays(np.float32, 7, elements=FINITE), arrays(np.float64, 7, elements=FINITE), arrays(bool, 7), st.floats(0, 0.999)
)
def test_lambda_one_changes_nothing(rewards, next_values, terminated, gamma):
    reshaped, discount = reshape(rewards, next_values, terminated, gamma=gamma, lambda_=1.0)
    assert reshaped.dtype == rewards.dtype
    np.testing.assert_array_equal(reshaped, rewards)
    assert discount == gamma


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(-50, 50))
def test_a_constant_added_to_h_moves_every_reward_alike_where_nothing_ends(lambda_, gamma, constant):
    next_values = np.array([1.0, -3.0, 20.0])
    first, _ = reshape(np.zeros(3), next_values, np.zeros(3), gamma=gamma, lambda_=lambda_)
    second, _ = reshape(np.zeros(3), next_values + constant, np.zeros(3), gamma=gamma, lambda_=lambda_)
    np.testing.assert_allclose(second - first, (1 - lambda_) * gamma * constant, atol=1e-9)


@pytest.mark.parametrize(
    ("shaping", "reward", "discount"),
    [
        ("hurl", 1 + 0.5 * 0.9 * 4, 0.45),
        ("pbrs", 1 + 0.9 * 4 - 3, 0.9),
        ("discounted-pbrs", 1 + 0.9 * 4 - 3, 0.45),
    ],
)
def test_shapings_by_hand(shaping, reward, discount):
    guide = guidance(shaping=shaping)
    terms = guide.terms(np.array([[3.0]]), np.array([[4.0]]), np.array([False]))
    assert guide.reshape(np.array([1.0], np.float32), terms) == pytest.approx([reward])
    assert guide.discount == pytest.approx(discount)


def test_discounted_pbrs_is_the_reshaped_mdp_up_to_potential_shaping():
    # r̄ = r̃ + γ̃·h(s') − h(s), section 4.2 of the paper
    observations, following, ends = np.array([[3.0], [2.0]]), np.array([[4.0], [7.0]]), np.array([False, True])
    reward = np.ones(2)
    ours, theirs = guidance(), guidance(shaping="discounted-pbrs")
    reshaped = ours.reshape(reward, ours.terms(observations, following, ends))
    shaped = theirs.reshape(reward, theirs.terms(observations, following, ends))
    np.testing.assert_allclose(shaped, reshaped + ours.discount * following[:, 0] * ~ends - observations[:, 0])


def test_pbrs_calls_the_heuristic_once_a_batch():
    calls = []
    guide = guidance(lambda s: calls.append(len(s)) or s[:, 0], shaping="pbrs")
    guide.terms(np.zeros((5, 2)), np.ones((5, 2)), np.zeros(5))
    assert calls == [10]


def test_iteration_n_is_the_nth_batch_of_steps():
    guide = Guidance(lambda s: s, LinearSchedule(0.0, iterations=5), gamma=0.9, steps_per_iteration=100)
    seen = []
    for steps in (0, 1, 99, 1, 99, 1, 299, 1):  # 0, 1, 100, 101, 200, 201, 500, 501 in all
        guide.advance(steps)
        seen.append((guide.iteration, guide.lambda_))
    assert [iteration for iteration, _ in seen] == [1, 1, 1, 2, 2, 3, 5, 6]
    assert [lambda_ for _, lambda_ in seen] == [0, 0, 0, 0.25, 0.25, 0.5, 1, 1]


def test_a_started_copy_counts_for_itself():
    first = guidance()
    first.advance(7)
    second = first.start()
    second.advance(10)
    assert (first.steps, second.steps) == (7, 17)


def test_statistics_follow_the_batches():
    guide = guidance()
    for arriving in ([[1.0], [2.0]], [[6.0]]):
        observe(guide, arriving)
    guide.terms(np.zeros((1, 1)), np.full((1, 1), 99.0), np.zeros(1))
    found = guide.statistics
    assert (found.mean, found.minimum, found.maximum) == (3.0, 1.0, 6.0)


def observe(guide, following, rewards=0.0, terminated=False, truncated=False):
    """Let the transitions of some environments arrive together."""
    following = np.array(following)
    flags = [np.broadcast_to(np.asarray(value), len(following)) for value in (rewards, terminated, truncated)]
    return guide.observe(np.zeros_like(following), following, *flags)


def test_what_arrives_is_counted_and_its_terms_returned():
    guide = guidance()
    np.testing.assert_allclose(observe(guide, [[1.0], [2.0]], terminated=[False, True]), [0.9, 0.0])
    assert guide.steps == 2


def test_statistics_are_those_of_the_present_iteration():
    guide = Guidance(lambda s: s[:, 0], LinearSchedule(0.0, iterations=5), gamma=0.9, steps_per_iteration=2)
    for value in (1.0, 2.0, 7.0):
        observe(guide, [[value]])
    assert (guide.iteration, guide.statistics.count, guide.statistics.mean) == (2, 1, 7.0)


def test_a_bandit_is_told_the_returns_of_the_episodes_that_end():
    guide = Guidance(lambda s: s[:, 0], Ladder(1.0), gamma=0.9, steps_per_iteration=6)
    observe(guide, [[1.0], [5.0]], rewards=[1.0, 10.0])
    observe(guide, [[3.0], [7.0]], rewards=[2.0, 20.0], truncated=[True, False])
    observe(guide, [[9.0], [9.0]], rewards=[4.0, 30.0], terminated=[False, True])
    assert guide.turns.figures()["return_1"] == (3.0 + 60.0) / 2


def test_episodes_of_environments_that_were_reset_are_forgotten():
    guide = Guidance(lambda s: s[:, 0], Ladder(1.0), gamma=0.9, steps_per_iteration=2)
    observe(guide, [[1.0]], rewards=[1.0])
    guide.abandon_episodes()
    observe(guide, [[3.0]], rewards=[2.0], terminated=True)
    assert guide.turns.figures()["return_1"] == 2.0


def test_a_guidance_goes_on_from_its_state():
    first = Guidance(lambda s: s[:, 0], LinearSchedule(0.0, iterations=5), gamma=0.9, steps_per_iteration=2)
    for _ in range(5):
        observe(first, [[4.0]], rewards=[1.0], terminated=True)
    second = Guidance(lambda s: s[:, 0], LinearSchedule(0.0, iterations=5), gamma=0.9, steps_per_iteration=2)
    second.restore(json.loads(json.dumps(first.state())))
    assert (second.steps, second.iteration, second.lambda_) == (5, 3, 0.5)


@pytest.mark.parametrize(
    ("heuristic", "message"),
    [
        (lambda s: np.zeros((len(s), 1)), r"shape \(3, 1\) for 3 observations: return one value each, shape \(3,\)"),
        (lambda s: 0.0, r"shape \(\) for 3 observations"),
        (lambda s: np.array(["a", "b", "c"], dtype=object), "type object for 3 observations"),
        (lambda s: np.array([0.0, np.nan, np.nan]), "NaN for 2 of 3 observations"),
        (lambda s: np.array([0.0, np.inf, 1.0]), "infinite values for 1 of 3 observations"),
        (lambda s: np.array([0.0, 1e300, 1.0]), "infinite values for 1 of 3 observations"),
        (lambda s: s[:, 17], r"failed for 3 observations of shape \(2,\): IndexError: index 17 is out of bounds"),
        (lambda s: np.array([0.0, -3e38, 1.0]), r"returned -3e\+38 for 1 of 3 observations: .* of at most 8.51e\+37"),
    ],
)
def test_bad_heuristics_are_refused(heuristic, message):
    with pytest.raises(HeuristicError, match=message):
        guidance(heuristic).evaluate(np.zeros((3, 2)))


@pytest.mark.parametrize("shaping", ["hurl", "pbrs"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_value_of_h_gives_finite_rewards(shaping, sign):
    guide = guidance(lambda s: s[:, 0], lambda_=0.0, gamma=1.0, shaping=shaping)
    largest = np.float32(guidance_module.LARGEST_VALUE)
    terms = guide.terms(np.array([[-sign * largest]]), np.array([[sign * largest]]), np.array([False]))
    assert np.isfinite(guide.reshape(np.float32([sign * largest]), terms)).all()


def double_in_place(observations):
    observations *= 2
    return observations[:, 0]


def double_in_torch(observations):
    return torch.from_numpy(observations).mul_(2)[:, 0]


def unlock_and_double(observations):
    observations.setflags(write=True)
    return double_in_place(observations)


@pytest.mark.parametrize("heuristic", [double_in_place, double_in_torch, unlock_and_double])
def test_a_heuristic_that_writes_into_observations_is_told_so_and_changes_nothing(heuristic):
    observations = np.arange(6.0).reshape(3, 2)
    message = rf"the heuristic tests.test_guidance:{heuristic.__name__} writes into the observations .*: work on a copy"
    with pytest.raises(HeuristicError, match=message):
        guidance(heuristic).evaluate(observations)
    np.testing.assert_array_equal(observations, np.arange(6.0).reshape(3, 2))


def test_a_heuristic_that_writes_into_a_dictionary_of_observations_is_told_so():
    observations = {"goal": np.ones((3, 2)), "place": np.ones((3, 1))}
    with pytest.raises(HeuristicError, match="writes into the observations"):
        guidance(lambda s: double_in_place(s["place"])).evaluate(observations)
    assert (observations["place"] == 1).all()
    guidance(lambda s: s.pop("place")[:, 0]).evaluate(observations)
    assert list(observations) == ["goal", "place"]


def test_a_heuristic_that_only_reads_may_use_torch_and_observations_that_are_not_numbers():
    observations = np.array([[1.0, np.nan], [np.inf, -0.0]])
    observations.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that it could not write into
        values = guidance(lambda s: torch.from_numpy(s)[:, 0].nan_to_num(posinf=2.0)).evaluate(observations)
    np.testing.assert_array_equal(values, [1.0, 2.0])


def raising(error):
    def heuristic(observations):
        raise error

    return heuristic


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit(), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
        (OSError("no such table"), "OSError: no such table"),
        (AssertionError("that shape"), "AssertionError: that shape"),
        (StopIteration(), "StopIteration"),
    ],
)
def test_whatever_a_heuristic_raises_names_it(error, message):
    named = r"the heuristic tests.test_guidance:raising.<locals>.heuristic failed for 3 observations of shape \(2,\): "
    with pytest.raises(HeuristicError, match=f"{named}{message}$") as caught:
        guidance(raising(error)).evaluate(np.zeros((3, 2)))
    assert caught.value.__cause__ is error


def fail(observations):
    raise LookupError("no such place")


def test_a_function_in_a_saved_heuristic_is_named_too():
    stored = Engineered("tests.test_guidance:fail")
    with pytest.raises(HeuristicError, match=r"'tests.test_guidance:fail'\) failed for .*: LookupError: no such place"):
        guidance(stored).evaluate(np.zeros((3, 2)))


def test_an_interruption_in_a_heuristic_stays_one():
    with pytest.raises(KeyboardInterrupt):
        guidance(raising(KeyboardInterrupt())).evaluate(np.zeros((3, 2)))


class Clock:
    """A clock that goes on only when it is told to, and a heuristic that takes some seconds by it."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(guidance_module, "perf_counter", lambda: self.now)

    def heuristic(self, observations):
        self.now += self.seconds
        return observations[:, 0]

    def iterate(self, iterations, seconds):
        """Let some iterations of two steps go by, each step with so many seconds for all but the heuristic."""
        guide = Guidance(self.heuristic, ConstantSchedule(0.5), gamma=0.9, steps_per_iteration=2)
        for _ in range(2 * iterations + 1):
            observe(guide, [[1.0]])
            self.now += seconds


def test_a_heuristic_that_takes_most_of_the_time_is_warned_of_once_with_its_share(monkeypatch):
    clock = Clock(monkeypatch, seconds=3.0)
    message = r"Clock.heuristic took 82% of the 11\.0 s of iteration 1: compute it for the whole batch .*`hurl fit`"
    with pytest.warns(UserWarning, match=message) as warned:
        clock.iterate(iterations=5, seconds=1.0)
    assert len(warned) == 1


@pytest.mark.parametrize(("heuristic", "others"), [(0.9, 2.0), (0.2, 0.01)])
def test_a_heuristic_that_takes_less_than_half_or_no_time_to_speak_of_is_not_warned_of(monkeypatch, heuristic, others):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Clock(monkeypatch, heuristic).iterate(iterations=5, seconds=others)


def test_what_a_heuristic_may_return_besides_floats():
    for heuristic in (lambda s: [1, 2, 3], lambda s: np.array([1, 2, 3]), lambda s: torch.tensor([1.0, 2.0, 3.0])):
        np.testing.assert_array_equal(guidance(heuristic).evaluate(np.zeros((3, 2))), np.float32([1, 2, 3]))
    with pytest.raises(HeuristicError, match="failed for 3 observations"):
        guidance(lambda s: torch.zeros(3, requires_grad=True)).evaluate(np.zeros((3, 2)))


def test_look_ahead_moves_lambda_and_not_the_count():
    guide = Guidance(lambda s: s, LinearSchedule(0.0, iterations=5), gamma=0.9, steps_per_iteration=100)
    guide.advance(40, ahead=160)
    assert (guide.steps, guide.iteration, guide.lambda_) == (40, 2, 0.25)


@pytest.mark.parametrize("lambda_", [0.5, 1.0])
def test_integer_rewards_are_not_cut_off(lambda_):
    guide = guidance(lambda_=lambda_)
    reshaped = guide.reshape(np.array([-1, -1]), np.float32([0.45, -0.45]))
    np.testing.assert_allclose(reshaped, [-1 + (1 - lambda_) * 0.45, -1 - (1 - lambda_) * 0.45])


def test_reshape_ignores_h_at_terminal_states_and_refuses_shapes_that_differ():
    rewards, _ = reshape([1.0], [np.nan], [True], gamma=0.9, lambda_=0.5)
    assert rewards == [1.0]
    with pytest.raises(ValueError, match=r"\(2,\), \(2, 1\) and \(2,\)"):
        reshape(np.zeros(2), np.zeros((2, 1)), np.zeros(2), gamma=0.9, lambda_=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.01}, r"gamma must lie in \[0, 1\], got 1.01"),
        ({"gamma": -0.5}, "got -0.5"),
        ({"steps_per_iteration": 0}, "steps_per_iteration must be a whole number from 1 to .*, got 0"),
        ({"shaping": "pbsr"}, "hurl, pbrs, discounted-pbrs, got 'pbsr'"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        guidance(**options)


def test_a_schedule_that_leaves_the_unit_interval_is_refused():
    with pytest.raises(ValueError, match=r"iteration 1 must lie in \[0, 1\], got 2"):
        Guidance(lambda s: s, lambda n: 2 * n, gamma=0.9)


@pytest.mark.parametrize("lambda_", [-0.1, 1.1, float("nan")])
def test_reshape_refuses_lambda_outside_the_unit_interval(lambda_):
    with pytest.raises(ValueError, match="lambda_"):
        reshape([0.0], [0.0], [False], gamma=0.9, lambda_=lambda_)


def test_import_loads_nothing_heavy():
    code = "import sys, hurl; print(*{'torch', 'jax', 'ray', 'gymnasium', 'stable_baselines3'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="gided"):
        hurl.gided  # noqa: B018


def test_a_saved_heuristic_is_loaded_first():
    with pytest.raises(TypeError, match=r"got 'heuristics/mine': load it with hurl\.load_heuristic"):
        hurl.Guidance("heuristics/mine", gamma=0.9)


@pytest.mark.parametrize("one", [np.float64, np.array, torch.tensor])
def test_a_schedule_may_return_an_array_with_one_number(one):
    assert Guidance(lambda batch: batch[:, 0], lambda iteration: one(0.5), gamma=0.9).lambda_ == 0.5


@pytest.mark.parametrize("gamma", ["0.9", None, [0.9], True])
def test_a_gamma_that_is_no_number_is_named(gamma):
    with pytest.raises(TypeError, match=r"gamma must be a number, such as 0\.99, got "):
        Guidance(lambda batch: batch[:, 0], gamma=gamma)


def test_a_kind_of_schedule_is_none():
    with pytest.raises(TypeError, match=r"such as ConstantSchedule\(0\.9\), or a Ladder, got <class"):
        Guidance(lambda batch: batch[:, 0], ConstantSchedule, gamma=0.9)
