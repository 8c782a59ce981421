import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load, save

from hurl.data import discounted_returns
from hurl.guidance import HeuristicError
from hurl.heuristics import EnsembleLowerBound
from hurl.heuristics.ensemble import choose_beta
from hurl.heuristics.network import as_inputs
from hurl.heuristics.storage import pack, unpack
from tests.data.examples import random_episodes

SMALL = {"hidden": (8,), "epochs": 2, "batch_size": 4, "members": 3}
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def heuristic():
    return EnsembleLowerBound.fit(random_episodes(), gamma=0.9, beta=1.5, **SMALL)


def values_by_hand(heuristic, inputs):
    pairs = zip(heuristic.networks, heuristic.priors, strict=True)
    return np.array([network(inputs)[:, 0] + prior(inputs)[:, 0] for network, prior in pairs])


def test_mean_minus_beta_deviations(heuristic):
    values = values_by_hand(heuristic, OBSERVATIONS)
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
    expected = values_by_hand(fitted, inputs).mean(axis=0)
    np.testing.assert_allclose(fitted(states), expected, rtol=1e-5)


def test_a_large_batch_is_evaluated_like_a_small_one(heuristic):
    many = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    apart = np.concatenate([heuristic(many[start : start + 10]) for start in range(0, 5000, 10)])
    np.testing.assert_allclose(heuristic(many), apart, rtol=1e-4, atol=1e-6)


def test_a_fresh_process_gives_bit_equal_values(heuristic, in_fresh_process):
    np.testing.assert_array_equal(in_fresh_process(heuristic, OBSERVATIONS), heuristic(OBSERVATIONS))


@pytest.mark.parametrize(("count", "limit"), [(10, 1000), (200, 50)])
def test_it_sees_past_time_limits_however_few_and_short_the_episodes(count, limit):
    """Episodes with a rate of reward each, which their states tell: V(s) = rate/(1 − γ), whatever the time limit."""
    gamma, generator = 0.999, np.random.default_rng(1)
    rates = np.repeat(generator.uniform(0.5, 1.5, count), limit)
    endless = random_episodes([limit] * count, [False] * count, seed=1)
    states = endless.states.copy()
    states[:, 0] = np.repeat(rates[::limit], limit + 1)  # a state more than there are steps
    endless = dataclasses.replace(endless, states=states, rewards=rates)
    fitted = EnsembleLowerBound.fit(endless, gamma=gamma, seed=1, hidden=(32,))
    errors = fitted.mean(endless.observations) - rates / (1 - gamma)
    assert abs(errors.mean()) < 50  # of values of about 1,000, spread by 290
    assert errors.std() < 150


def test_held_out_episodes_that_paid_nothing_still_tell_networks_apart():
    """Of a sparse task with few successes, those that are held out may all be failures."""
    episodes = random_episodes([20] * 10, [True] * 10)
    _, held_out = episodes.split(0.1, 0)
    failed = np.isin(episodes.observations[:, 0], held_out.observations[:, 0])
    paid = dataclasses.replace(episodes, rewards=np.where(failed, 0.0, 10.0 * (episodes.observations[:, 0] > 0.5)))
    scores = []
    EnsembleLowerBound.fit(
        paid, gamma=0.9, report=lambda done, total, loss, score: scores.append(score), **SMALL | {"epochs": 3}
    )
    assert len(set(scores)) == 3


def test_the_seed_decides():
    settings = SMALL | {"epochs": 1, "members": 2, "validation": 0.0, "beta": 1.0}
    first, second, other = (
        EnsembleLowerBound.fit(random_episodes(), gamma=0.9, seed=seed, **settings) for seed in (0, 0, 1)
    )
    assert first.digest == second.digest != other.digest


def test_each_member_sees_one_half_of_the_episodes():
    """Two kinds of episodes from one state: means of the return of halves differ, though weights could not."""
    episodes = random_episodes([1] * 6, [True] * 6)
    episodes = dataclasses.replace(
        episodes, states=np.ones_like(episodes.states), rewards=np.array([0.0, 0.0, 0.0, 60.0, 60.0, 60.0])
    )
    heuristic = EnsembleLowerBound.fit(
        episodes, gamma=0.9, beta=1, validation=0.0, hidden=(4,), epochs=400, batch_size=3, learning_rate=1e-2
    )
    values = heuristic.values(np.ones((1, 3), np.float32))[:, 0]
    # the mean of three of six is a multiple of 20
    np.testing.assert_allclose(values, 20 * np.round(values / 20), atol=0.5)
    assert len(set(np.round(values / 20))) > 1


def test_the_deviation_grows_away_from_the_data():
    lengths = [20] * 30
    heuristic = EnsembleLowerBound.fit(
        random_episodes(lengths, [True] * 30), gamma=0.9, hidden=(32,), epochs=30, batch_size=64
    )
    directions = OBSERVATIONS / np.linalg.norm(OBSERVATIONS, axis=1, keepdims=True)
    deviations = [heuristic.deviation(distance * directions).mean() for distance in (0, 4, 16, 64)]
    assert (np.diff(deviations) > 0).all()
    assert deviations[-1] > 10 * deviations[0], "it is not bounded"
    agreeing = EnsembleLowerBound.fit(
        random_episodes(lengths, [True] * 30), gamma=0.9, hidden=(32,), epochs=30, batch_size=64, prior=0.0
    )
    assert agreeing.priors == ()
    assert agreeing.deviation(64 * directions).mean() < deviations[-1] / 2, "which networks with tanh alone are"


class Fixed(EnsembleLowerBound):
    """Two members, m ± 1 at every state, with m the first number of the state."""

    def __init__(self):
        self.time_limit = "cut"

    def values(self, observations):
        return np.stack([observations[:, 0] - 1, observations[:, 0] + 1])


def test_beta_is_what_the_most_promising_states_need():
    """Ten states from 0 to 9, one step each: m promises 3 too much from 5 on."""
    states = np.repeat(np.arange(10.0), 2)[:, None].astype(np.float32)
    promised = states[::2, 0]
    episodes = dataclasses.replace(
        random_episodes([1] * 10, [True] * 10, observation_space=gym.spaces.Box(-10, 10, (1,), np.float32)),
        states=states,
        rewards=np.where(promised >= 5, promised - 3, promised).astype(float),
    )
    assert choose_beta(Fixed(), episodes, gamma=0.9) == pytest.approx(3.0)
    honest = dataclasses.replace(episodes, rewards=promised.astype(float))
    assert choose_beta(Fixed(), honest, gamma=0.9) == 1.0, "a deviation is the least"
    hopeless = dataclasses.replace(episodes, rewards=promised.astype(float) - 1000)
    assert choose_beta(Fixed(), hopeless, gamma=0.9) == 10.0, "ten are the most"


def test_beta_is_what_the_first_states_of_episodes_need():
    """All states promise 5; four steps pay it, the first of each episode 2 less, as none of the tenths does alone."""
    count, length = 20, 10
    pays = np.tile([3.0, *[5.0 + 2 / 9] * 9], count)
    episodes = dataclasses.replace(
        random_episodes([length] * count, [True] * count, observation_space=gym.spaces.Box(-10, 10, (1,), np.float32)),
        states=np.full((count * (length + 1), 1), 5, np.float32),
        rewards=pays,
    )
    assert choose_beta(Fixed(), episodes, gamma=0.0) == pytest.approx(2.0)


def test_priors_have_the_deviation_of_the_returns():
    episodes = random_episodes([20] * 30, [False] * 30)
    fitted = EnsembleLowerBound.fit(episodes, gamma=0.99, prior=2.0, validation=0.0, beta=1.0, **SMALL)
    for prior in fitted.priors:
        returns = discounted_returns(episodes, gamma=0.99)
        assert prior(episodes.observations).std() == pytest.approx(2 * returns.std(), rel=1e-3)


def test_fitting_stops_when_held_out_episodes_are_predicted_no_better():
    rows = []
    heuristic = EnsembleLowerBound.fit(
        random_episodes([5] * 20, [True] * 20),
        gamma=0.9,
        report=lambda *row: rows.append(row),
        **(SMALL | {"epochs": 100, "learning_rate": 1e-2}),
    )
    scores = [score for *_, score in rows]
    assert len(rows) < 100
    assert heuristic.metrics["epochs"] == int(np.argmax(scores)) + 1 == len(rows) - 3
    assert heuristic.metrics["r2_held_out"] == pytest.approx(max(scores), abs=1e-6)


def test_metrics_are_of_the_mean(heuristic):
    assert set(heuristic.metrics) == {"epochs", "loss", "r2_training", "r2_held_out", "beta", "seconds"}
    assert heuristic.metrics["beta"] == heuristic.beta == 1.5


def test_an_ensemble_of_an_earlier_version_has_no_priors(heuristic):
    bare = EnsembleLowerBound(heuristic.networks, 1.5, "cut", **heuristic.origin())
    description, weights = pack(bare)
    del description["settings"]["priors"]
    loaded = unpack(description, weights, "h")
    np.testing.assert_array_equal(loaded(OBSERVATIONS), bare(OBSERVATIONS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": 1}, "members must be a whole number from 2 to .*, got 1"),
        ({"beta": -1.0}, r"beta must be a finite number that is not negative, got -1\.0"),
        ({"prior": -1.0}, r"prior must be a finite number that is not negative, got -1\.0"),
        ({"validation": 0.0}, r"without held-out episodes \(validation=0\) beta can't be chosen"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(HeuristicError, match=message):
        EnsembleLowerBound.fit(random_episodes(), gamma=0.9, **(SMALL | arguments))


@pytest.mark.parametrize(
    ("count", "arguments", "message"),
    [
        (1, {}, "has 1 episode, too few to hold any out and fit networks to halves of the rest"),
        (2, {}, "has 2 episodes, too few to hold any out and fit networks to halves of the rest"),
        (3, {"validation": 0.9}, "has 3 episodes, too few to hold any out"),
        (1, {"validation": 0.0, "beta": 1.0}, "has 1 episode, too few to fit networks to halves"),
    ],
)
def test_too_few_episodes(count, arguments, message):
    with pytest.raises(HeuristicError, match=message):
        EnsembleLowerBound.fit(random_episodes([5] * count, [True] * count), gamma=0.9, **(SMALL | arguments))


def test_three_episodes_are_enough():
    assert EnsembleLowerBound.fit(random_episodes([5] * 3, [True] * 3), gamma=0.9, **SMALL).beta >= 1.0


def test_weights_of_another_shape_are_refused(heuristic):
    description, weights = pack(heuristic)
    weights["1.0.bias"] = np.zeros(9, np.float32)
    with pytest.raises(HeuristicError, match=r"h: weights.safetensors has '1.0.bias' of shape \(9,\).*asks for \(8,\)"):
        unpack(description, load(save(weights)), "h")
