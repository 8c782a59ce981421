import dataclasses
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest

from hurl.data import discounted_returns
from hurl.data.returns import own_returns
from hurl.guidance import HeuristicError
from hurl.heuristics import EnsembleLowerBound, MonteCarloHeuristic
from hurl.heuristics.monte_carlo import SCORED, r_squared, scores
from hurl.heuristics.network import Network
from tests.data.examples import random_episodes

SMALL = {"hidden": (16, 16), "epochs": 20, "batch_size": 32, "learning_rate": 1e-2}


def learnable(count=60, terminated=True, **options):
    """Episodes whose reward depends on the state, far from zero and from unit scale."""
    episodes = random_episodes([10] * count, [terminated] * count, **options)
    observations = episodes.observations
    values = observations if observations.ndim == 1 else 3 * np.tanh(observations[:, 0]) + observations[:, 1] ** 2
    return dataclasses.replace(episodes, rewards=1000 + 50 * values.astype(np.float64))


@pytest.mark.parametrize("space", [None, gym.spaces.Discrete(6, start=3)])
def test_it_learns_the_returns(space):
    options = {} if space is None else {"observation_space": space}
    episodes = learnable(**options)
    heuristic = MonteCarloHeuristic.fit(episodes, gamma=0.0, **SMALL)
    assert heuristic.metrics["r2_held_out"] > 0.95
    unseen = learnable(seed=1, **options)
    returns = discounted_returns(unseen, gamma=0.0)
    assert r_squared(returns, heuristic(unseen.observations)) > 0.95


def test_standardising_is_what_makes_targets_far_from_zero_learnable():
    plain = MonteCarloHeuristic.fit(learnable(), gamma=0.0, standardise=False, **SMALL)
    assert plain.metrics["r2_held_out"] < 0.5


def test_the_same_seed_gives_the_same_network():
    first, second, other = (
        MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, seed=seed, hidden=(4,), epochs=2, batch_size=4)
        for seed in (0, 0, 1)
    )
    assert first.digest == second.digest != other.digest


def test_bootstrapping_sees_past_the_time_limit():
    """All states alike, r = 1: the value is 1/(1 − γ), and a cut episode of 10 steps hides most of it."""
    episodes = random_episodes([10] * 40, [False] * 40)
    episodes = dataclasses.replace(
        episodes, states=np.ones_like(episodes.states), rewards=np.ones_like(episodes.rewards)
    )
    fits = {
        treatment: MonteCarloHeuristic.fit(
            episodes, gamma=0.9, time_limit=treatment, **(SMALL | {"epochs": 40, "batch_size": 64})
        )
        for treatment in ("cut", "bootstrap")
    }
    state = episodes.states[:1]
    mean_of_cut_returns = np.mean([(1 - 0.9**k) / 0.1 for k in range(1, 11)])
    assert fits["cut"](state)[0] == pytest.approx(mean_of_cut_returns, abs=0.2)
    assert fits["bootstrap"](state)[0] == pytest.approx(10, abs=0.3)


def test_drop_leaves_cut_episodes_out():
    episodes = learnable(40)
    mixed = dataclasses.replace(episodes, terminated=np.arange(40) % 2 == 0, rewards=episodes.rewards.copy())
    for start, end, terminated in zip(mixed.starts, mixed.ends, mixed.terminated, strict=True):
        mixed.rewards[start:end] = 1.0 if terminated else -1.0
    heuristic = MonteCarloHeuristic.fit(mixed, gamma=0.0, time_limit="drop", **SMALL)
    np.testing.assert_allclose(heuristic(mixed.observations), 1.0, atol=0.2)


def test_patience_keeps_the_best_weights():
    noise = random_episodes([10] * 20, [True] * 20)
    scores = []
    heuristic = MonteCarloHeuristic.fit(
        noise,
        gamma=0.9,
        patience=3,
        validation=0.3,
        report=lambda done, total, loss, score: scores.append(score),
        **(SMALL | {"epochs": 60}),
    )
    assert len(scores) < 60
    assert heuristic.metrics["r2_held_out"] == max(scores)
    assert scores[int(heuristic.metrics["epochs"]) - 1] == max(scores)


def test_r_squared_is_of_episodes_that_were_not_fitted():
    noise = random_episodes([5] * 10, [True] * 10)
    heuristic = MonteCarloHeuristic.fit(noise, gamma=0.0, **(SMALL | {"hidden": (64, 64), "epochs": 200}))
    assert heuristic.metrics["r2_training"] > 0.7
    assert heuristic.metrics["r2_held_out"] < 0.1


def test_r_squared_of_much_data_is_told_by_a_part_of_it():
    """The first half of the episodes is told exactly, the other not at all: R² is a half, whichever part is taken."""
    episodes = learnable(12_000)
    returns, seen = discounted_returns(episodes, gamma=0.0), []
    half = len(returns) // 2
    known = {state.tobytes(): value for state, value in zip(episodes.observations[:half], returns[:half], strict=True)}

    def heuristic(observations):
        seen.append(len(observations))
        return np.array([known.get(state.tobytes(), returns.mean()) for state in observations])

    found = scores(episodes, None, 0.0, "cut", heuristic)
    assert seen == [SCORED]
    assert found["r2_training"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("kind", [MonteCarloHeuristic, EnsembleLowerBound])
def test_r_squared_behind_time_limits_is_not_of_what_h_says_there(kind):
    """Episodes with a rate of reward each, of which their states tell nothing: no h knows their returns."""
    episodes = random_episodes([50] * 60, [False] * 60)
    rates = np.repeat(np.random.default_rng(0).normal(size=60), 50)
    untold = dataclasses.replace(episodes, rewards=rates)
    fitted = kind.fit(untold, gamma=0.999, time_limit="bootstrap", hidden=(32,), epochs=5)
    assert fitted.metrics["r2_held_out"] < 0.1


def test_returns_that_are_all_one_have_no_r_squared():
    data = random_episodes([5] * 10, [True] * 10)
    alike = dataclasses.replace(data, rewards=np.zeros_like(data.rewards))
    assert not [name for name in MonteCarloHeuristic.fit(alike, gamma=0.9, **SMALL).metrics if name.startswith("r2")]


def test_returns_that_differ_by_rounding_alone_have_no_r_squared_either():
    data = random_episodes([5, 7, 11] * 4, [False] * 12)
    alike = dataclasses.replace(data, rewards=np.full_like(data.rewards, 1 / 3))
    assert np.ptp(own_returns(alike, gamma=0.9, time_limit="bootstrap")) > 0
    fitted = MonteCarloHeuristic.fit(alike, gamma=0.9, time_limit="bootstrap", **SMALL)
    assert not [name for name in fitted.metrics if name.startswith("r2")]


def test_the_network_is_the_equation():
    generator = np.random.default_rng(0)
    sizes = (3, 5, 4, 2)
    layers = tuple(
        (generator.normal(size=(a, b)).astype(np.float32), generator.normal(size=b).astype(np.float32))
        for a, b in pairwise(sizes)
    )
    x = generator.normal(size=(7, 3)).astype(np.float32)
    for activation, function in (("tanh", np.tanh), ("relu", lambda z: np.maximum(z, 0))):
        expected = function(function(x @ layers[0][0] + layers[0][1]) @ layers[1][0] + layers[1][1])
        expected = expected @ layers[2][0] + layers[2][1]
        np.testing.assert_allclose(Network(layers, activation)(x), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), got 1.0"),
        ({"time_limit": "ignore"}, "time_limit must be one of cut, bootstrap, drop, got 'ignore'"),
        ({"epochs": 0}, "epochs must be a whole number from 1 to .*, got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number from 1 to .*, got 1.5"),
        ({"learning_rate": "fast"}, "learning_rate must be a positive finite number, got 'fast'"),
        ({"hidden": 8}, r"hidden must be a list, each a whole number from 1 to .*, got 8"),
        ({"activation": "gelu"}, "activation must be one of tanh, relu, got 'gelu'"),
        ({"validation": 1.5}, "held out must lie between 0 and 1, got 1.5"),
        ({"patience": 2, "validation": 0}, "set validation above 0"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MonteCarloHeuristic.fit(random_episodes(), **({"gamma": 0.9} | options))


@pytest.mark.parametrize("patience", [None, 2])
def test_divergence_is_told(patience):
    settings = SMALL | {"learning_rate": 1e30, "patience": patience}
    with pytest.raises(HeuristicError, match=r"fitting diverged in epoch \d.*lower the learning rate from 1e\+30"):
        MonteCarloHeuristic.fit(learnable(), gamma=0.9, **settings)


def test_observations_of_another_shape_are_refused():
    heuristic = MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, hidden=(4,), epochs=1)
    with pytest.raises(HeuristicError, match=r"observations of Box of shape \(3,\).*got observations of shape \(4,\)"):
        heuristic(np.zeros((2, 4)))


def test_states_outside_the_space_are_refused():
    episodes = random_episodes(observation_space=gym.spaces.Discrete(6))
    heuristic = MonteCarloHeuristic.fit(episodes, gamma=0.9, hidden=(4,), epochs=1)
    with pytest.raises(HeuristicError, match=r"states of Discrete\(6\), got 2 to 6"):
        heuristic(np.array([2, 6]))
    with pytest.raises(HeuristicError, match=r"for batches, got one observation of Discrete\(6\)"):
        heuristic(3)
