import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load, save

from hurl.guidance import HeuristicError
from hurl.heuristics import EnsembleLowerBound
from hurl.heuristics.network import as_inputs
from hurl.heuristics.storage import pack, unpack
from tests.data.examples import random_episodes

SMALL = {"hidden": (8,), "epochs": 2, "batch_size": 4, "members": 3}
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def heuristic():
    return EnsembleLowerBound.fit(random_episodes(), gamma=0.9, beta=1.5, **SMALL)


def test_mean_minus_beta_deviations(heuristic):
    values = np.array([network(OBSERVATIONS)[:, 0] for network in heuristic.networks])
    assert len(values) == 3
    np.testing.assert_allclose(heuristic.mean(OBSERVATIONS), values.mean(axis=0), rtol=1e-5)
    expected = values.mean(axis=0) - 1.5 * values.std(axis=0)
    np.testing.assert_allclose(heuristic(OBSERVATIONS), expected, rtol=1e-5)
    assert (values.std(axis=0) > 0).all()


def test_over_a_discrete_space():
    space = gym.spaces.Discrete(6, start=2)
    fitted = EnsembleLowerBound.fit(random_episodes(observation_space=space), gamma=0.9, beta=0.0, **SMALL)
    states = np.arange(2, 8)
    inputs = as_inputs(states, fitted.observation_space)
    expected = np.mean([network(inputs)[:, 0] for network in fitted.networks], axis=0)
    np.testing.assert_allclose(fitted(states), expected, rtol=1e-5)


def test_a_large_batch_is_evaluated_like_a_small_one(heuristic):
    many = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    apart = np.concatenate([heuristic(many[start : start + 10]) for start in range(0, 5000, 10)])
    np.testing.assert_allclose(heuristic(many), apart, rtol=1e-4, atol=1e-6)


def test_a_fresh_process_gives_bit_equal_values(heuristic, in_fresh_process):
    np.testing.assert_array_equal(in_fresh_process(heuristic, OBSERVATIONS), heuristic(OBSERVATIONS))


def test_the_seed_decides():
    settings = SMALL | {"epochs": 1, "members": 2, "validation": 0.0}
    first, second, other = (
        EnsembleLowerBound.fit(random_episodes(), gamma=0.9, seed=seed, **settings) for seed in (0, 0, 1)
    )
    assert first.digest == second.digest != other.digest


def test_members_see_different_episodes():
    """Two kinds of episodes from one state: bootstrapped means of the return differ, though weights could not."""
    episodes = random_episodes([1] * 6, [True] * 6)
    episodes = dataclasses.replace(
        episodes, states=np.ones_like(episodes.states), rewards=np.array([0.0, 0.0, 0.0, 60.0, 60.0, 60.0])
    )
    heuristic = EnsembleLowerBound.fit(
        episodes, gamma=0.9, validation=0.0, hidden=(4,), epochs=300, batch_size=6, learning_rate=1e-2
    )
    values = [float(network(np.ones((1, 3), np.float32))[0, 0]) for network in heuristic.networks]
    # a bootstrapped mean of six is a multiple of 10
    np.testing.assert_allclose(values, np.round(values, -1), atol=0.5)
    assert len(set(np.round(values, -1))) > 1


def test_one_progress_over_all_networks():
    rows = []
    EnsembleLowerBound.fit(
        random_episodes(), gamma=0.9, report=lambda done, total, loss, score: rows.append((done, total)), **SMALL
    )
    assert rows == [(done, 6) for done in range(1, 7)]


def test_metrics_are_of_the_mean(heuristic):
    assert set(heuristic.metrics) == {"r2_training", "r2_held_out", "seconds"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"members": 1}, "at least 2 members to disagree, got 1"), ({"beta": -1.0}, r"beta must be 0 or more.*got -1\.0")],
)
def test_bad_input(arguments, message):
    with pytest.raises(HeuristicError, match=message):
        EnsembleLowerBound.fit(random_episodes(), gamma=0.9, **(SMALL | arguments))


def test_weights_of_another_shape_are_refused(heuristic):
    description, weights = pack(heuristic)
    weights["1.0.bias"] = np.zeros(9, np.float32)
    with pytest.raises(HeuristicError, match=r"h: weights.safetensors has '1.0.bias' of shape \(9,\).*asks for \(8,\)"):
        unpack(description, load(save(weights)), "h")
