import gymnasium as gym
import numpy as np
import pytest

import hurl
from hurl.guidance import HeuristicError
from hurl.heuristics import (
    Engineered,
    MonteCarloHeuristic,
    Zero,
    load_heuristic,
    max_of,
    scaled,
    shifted,
    sparse_reacher,
)
from tests.data.examples import random_episodes

SMALL = {"hidden": (8,), "epochs": 1, "batch_size": 4}
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


def first_coordinate(observations):
    return observations[:, 0]


def column(observations):
    return observations[:, :1]


@pytest.fixture(scope="module")
def learned():
    return MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, **SMALL)


def test_what_they_are():
    combined = max_of(first_coordinate, lambda observations: observations[:, 1], Zero())
    np.testing.assert_array_equal(combined(OBSERVATIONS), np.maximum(OBSERVATIONS[:, :2].max(axis=1), 0))
    np.testing.assert_array_equal(scaled(first_coordinate, 0.5)(OBSERVATIONS), OBSERVATIONS[:, 0] / 2)
    np.testing.assert_array_equal(shifted(first_coordinate, -3)(OBSERVATIONS), OBSERVATIONS[:, 0] - 3)
    assert combined(OBSERVATIONS).dtype == np.float32


def test_nested_parts_come_back_in_a_fresh_process(learned, in_fresh_process):
    engineered = Engineered("tests.heuristics.test_combine:first_coordinate")
    heuristic = max_of(shifted(scaled(learned, 2.0), 1.0), engineered, scaled(first_coordinate, -1.0))
    expected = np.maximum(2 * learned(OBSERVATIONS) + 1, np.abs(OBSERVATIONS[:, 0]))
    np.testing.assert_allclose(heuristic(OBSERVATIONS), expected, rtol=1e-6)
    np.testing.assert_array_equal(in_fresh_process(heuristic, OBSERVATIONS), heuristic(OBSERVATIONS))


def test_discount_and_space_are_those_of_the_parts(learned, tmp_path):
    heuristic = shifted(max_of(learned, first_coordinate), 1.0)
    assert (heuristic.gamma, heuristic.observation_space) == (0.9, learned.observation_space)
    heuristic.save(tmp_path / "h")
    with pytest.raises(HeuristicError, match=r"for gamma=0\.9, but here gamma=0\.5"):
        load_heuristic(tmp_path / "h", gamma=0.5, trust=True)
    assert load_heuristic(tmp_path / "h", trust=True).digest == heuristic.digest


def test_time_limits_are_treated_as_the_parts_do(learned, tmp_path):
    going_on = MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, time_limit="bootstrap", **SMALL)
    assert shifted(scaled(going_on, 2.0), 1.0).time_limit == "bootstrap"
    assert max_of(learned, first_coordinate).time_limit == "cut"
    assert max_of(learned, going_on).time_limit is None
    heuristic = scaled(going_on, 1.0)
    heuristic.save(tmp_path / "h")
    assert load_heuristic(tmp_path / "h").time_limit == "bootstrap"
    max_of(going_on, first_coordinate).save(tmp_path / "max")
    assert load_heuristic(tmp_path / "max", trust=True).time_limit == "bootstrap"
    judged = [hurl.diagnose(h, random_episodes(), gamma=0.9) for h in (going_on, heuristic)]
    assert [result.time_limit for result in judged] == ["bootstrap"] * 2
    assert judged[0].fit == judged[1].fit


def test_parts_must_agree(learned):
    with pytest.raises(HeuristicError, match=r"one gamma, got 0\.5 and 0\.9"):
        max_of(learned, Zero(gamma=0.5))
    other = Zero.fit(random_episodes(observation_space=gym.spaces.Discrete(4)))
    with pytest.raises(HeuristicError, match=r"one observation_space, got Box of shape \(3,\).* and Discrete\(4\)"):
        max_of(learned, other)


def local(observations):
    raise AssertionError


local.__qualname__ = "elsewhere"


@pytest.mark.parametrize("function", [lambda observations: observations[:, 0], local])
def test_a_function_without_a_name_to_import_it_by_is_not_stored(function, tmp_path):
    heuristic = scaled(function, 2.0)
    with pytest.raises(HeuristicError, match=r"can't be stored, it can't be imported by a name: define it with `def`"):
        heuristic.save(tmp_path / "h")
    assert not (tmp_path / "h").exists()


def test_a_function_is_stored_by_its_name(tmp_path):
    scaled(sparse_reacher, 2.0).save(tmp_path / "h")
    part = load_heuristic(tmp_path / "h").parts[0]
    assert isinstance(part, Engineered)
    assert part.function is sparse_reacher


def test_bad_input():
    with pytest.raises(HeuristicError, match="give at least one"):
        max_of()
    with pytest.raises(HeuristicError, match=r"function of a batch of observations, got 3\.0"):
        max_of(first_coordinate, 3.0)
    with pytest.raises(HeuristicError, match="factor must be finite, got inf"):
        scaled(first_coordinate, float("inf"))
    with pytest.raises(HeuristicError, match="offset must be finite, got nan"):
        shifted(first_coordinate, float("nan"))
    with pytest.raises(HeuristicError, match=r"returned shape \(20, 1\)"):
        max_of(first_coordinate, column)(OBSERVATIONS)


def test_an_error_in_a_part_says_which_part(learned, tmp_path):
    heuristic = max_of(learned, first_coordinate)
    heuristic.save(tmp_path / "h")
    config = tmp_path / "h" / "config.json"
    config.write_text(config.read_text().replace("first_coordinate", "second_coordinate"))
    with pytest.raises(HeuristicError, match=r"part 1: the engineered heuristic .*'second_coordinate'"):
        load_heuristic(tmp_path / "h", trust=True)


def test_the_digest_is_of_the_values_alone(learned):
    again = MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, **SMALL)
    assert again.metrics["seconds"] != learned.metrics["seconds"]
    assert scaled(again, 2.0).digest == scaled(learned, 2.0).digest != scaled(learned, 3.0).digest
    assert max_of(learned, Zero()).digest != max_of(Zero(), learned).digest
