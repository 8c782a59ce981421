"""Heuristics that mislead: what they are the reverse of, and what they have in common with a good one."""

import gymnasium as gym
import numpy as np
import pytest

from hurl.data import discounted_returns
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.fitting import check_fit, fit_heuristic
from hurl.guidance import HeuristicError
from hurl.heuristics import MonteCarloHeuristic, RandomNetwork, Reversed, engineered
from tests.data.examples import random_episodes

SMALL = {"hidden": (8,), "epochs": 1, "batch_size": 4}
EPISODES = random_episodes()


def test_reversed_is_the_mirror_image_about_the_mean_over_the_data(in_fresh_process):
    heuristic = MonteCarloHeuristic.fit(EPISODES, gamma=0.9, seed=3, **SMALL)
    reverse = Reversed.fit(EPISODES, gamma=0.9, seed=3, **SMALL)
    values = heuristic(EPISODES.observations)
    np.testing.assert_allclose(reverse(EPISODES.observations), 2 * values.mean() - values, atol=1e-5)
    assert reverse(EPISODES.observations).mean() == pytest.approx(values.mean(), abs=1e-5)
    assert (reverse.gamma, reverse.dataset) == (0.9, heuristic.dataset)
    assert not {"r2_training", "r2_held_out"} & set(reverse.metrics), "which are of what is reversed"
    observations = EPISODES.observations
    np.testing.assert_array_equal(in_fresh_process(reverse, observations), reverse(observations))


def test_any_kind_can_be_reversed_with_its_parameters():
    function = "hurl.heuristics.engineered:zero"
    reverse = fit_heuristic("reversed", EPISODES, gamma=0.9, parameters={"of": "engineered", "function": function})
    assert reverse.mean == 0
    ensemble = {"of": "ensemble", "members": 2, "validation": 0.0, "beta": 0.5, "epochs": 1, "hidden": [8]}
    assert fit_heuristic("reversed", EPISODES, gamma=0.9, parameters=ensemble).parts[0].beta == 0.5


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"of": "monte-carl"}, "no kind of heuristic 'monte-carl'; did you mean 'monte-carlo'"),
        ({"epoch": 1}, "monte-carlo has no parameter 'epoch'; did you mean 'epochs'"),
        ({"of": "engineered"}, "engineered needs the parameter 'function'"),
        ({"of": "scaled"}, "of kind 'scaled' is not made from data"),
    ],
)
def test_what_can_not_be_reversed_is_refused_before_anything_is_fitted(parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        check_fit("reversed", parameters)


def test_an_unknown_kind_is_refused_in_python_too():
    with pytest.raises(HeuristicError, match="no kind 'montecarlo' to be fitted and reversed; did you mean"):
        Reversed.fit(EPISODES, gamma=0.9, of="montecarlo")


@pytest.mark.parametrize("space", [gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Discrete(5, start=2)])
def test_a_random_network_has_mean_and_deviation_of_the_returns(space, in_fresh_process):
    episodes = random_episodes(observation_space=space)
    heuristic = RandomNetwork.fit(episodes, gamma=0.9, seed=1)
    values, returns = heuristic(episodes.observations), discounted_returns(episodes, gamma=0.9)
    assert values.mean() == pytest.approx(returns.mean(), abs=1e-4)
    assert values.std() == pytest.approx(returns.std(), rel=1e-4)
    assert not np.allclose(values, RandomNetwork.fit(episodes, gamma=0.9, seed=2)(episodes.observations))
    np.testing.assert_array_equal(in_fresh_process(heuristic, episodes.observations), values)


def test_a_random_network_is_for_a_discount():
    with pytest.raises(ValueError, match=r"gamma must lie in .*, got 1\.5"):
        RandomNetwork.fit(random_episodes(), gamma=1.5)


def test_a_random_network_over_states_that_are_all_alike_is_their_mean_return():
    episodes = random_episodes()
    episodes.states[:] = 1.0
    heuristic = RandomNetwork.fit(episodes, gamma=0.9)
    np.testing.assert_allclose(
        heuristic(episodes.observations), discounted_returns(episodes, gamma=0.9).mean(), rtol=1e-3
    )


def test_the_reverse_of_sparse_reacher_praises_distance():
    near, far = np.zeros((2, 1, 11), np.float32)
    far[0, 8] = 0.4
    values = engineered.sparse_reacher_reversed(np.concatenate([near, far]))
    assert -43 < values[0] < values[1] <= 0
    assert values.dtype == np.float32


def test_mountain_car_rises_with_energy_from_the_valley_to_the_goal():
    valley, goal = [-np.pi / 6, 0.0], [0.5, 0.0]
    observations = np.array([valley, [-np.pi / 6, 0.03], [-1.0, 0.0], goal], np.float32)
    values = engineered.mountain_car(observations)
    worst = -(1 - 0.99**120) / 0.01
    assert values[0] == pytest.approx(worst, rel=1e-4)
    assert (values[0] < values[1:3]).all()
    assert (values[1:3] < values[3]).all()
    assert values[3] == pytest.approx(0, abs=1e-3)
    np.testing.assert_allclose(engineered.mountain_car_reversed(observations), worst - values, rtol=1e-5)
