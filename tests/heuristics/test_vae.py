from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load, save

from hurl.data import discounted_returns
from hurl.guidance import HeuristicError
from hurl.heuristics import MonteCarloHeuristic, VAEFilteredHeuristic
from hurl.heuristics.monte_carlo import r_squared
from hurl.heuristics.storage import pack, unpack
from tests.data.examples import random_episodes

SMALL = {"hidden": (16,), "epochs": 2, "batch_size": 16, "latent": 2, "vae_epochs": 5}
EPISODES = random_episodes([10] * 40, [True] * 40)
SEEN, _ = EPISODES.split(0.1, 0)  # of which the autoencoder is


@pytest.fixture(scope="module")
def heuristic():
    return VAEFilteredHeuristic.fit(EPISODES, gamma=0.9, **SMALL)


@pytest.fixture
def far():
    return 50 + np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)


def test_one_in_a_hundred_of_the_data_is_unknown(heuristic):
    assert 0.985 <= heuristic.known(SEEN.observations).mean() <= 0.995


def test_the_percentile_is_the_share_that_is_known():
    fitted = VAEFilteredHeuristic.fit(EPISODES, gamma=0.9, percentile=60.0, **SMALL)
    assert fitted.known(SEEN.observations).mean() == pytest.approx(0.6, abs=0.005)


def test_known_states_have_the_monte_carlo_value_and_others_the_lowest_return(heuristic, far):
    settings = {name: SMALL[name] for name in ("hidden", "epochs", "batch_size")}
    naive = MonteCarloHeuristic.fit(EPISODES, gamma=0.9, **settings)
    observations = EPISODES.observations
    known = heuristic.known(observations)
    np.testing.assert_allclose(heuristic(observations)[known], naive(observations)[known], rtol=1e-5)
    lowest = discounted_returns(SEEN, gamma=0.9).min()
    assert not heuristic.known(far).any()
    np.testing.assert_allclose(heuristic(far), np.full(30, lowest), rtol=1e-6)
    np.testing.assert_allclose(heuristic(observations)[~known], lowest, rtol=1e-6)


def test_a_state_is_judged_alike_in_every_batch(heuristic):
    observations = EPISODES.observations
    one_by_one = np.concatenate([heuristic.known(observations[i : i + 1]) for i in range(len(observations))])
    np.testing.assert_array_equal(heuristic.known(observations), one_by_one)


def test_units_do_not_matter(heuristic):
    """The autoencoder sees standardised states: metres or millimetres, the same ones are unknown."""
    scale = np.array([1e-3, 1.0, 1e3], np.float32)
    in_other_units = random_episodes([10] * 40, [True] * 40)
    in_other_units.states[:] *= scale
    fitted = VAEFilteredHeuristic.fit(in_other_units, gamma=0.9, **SMALL)
    same = fitted.known(EPISODES.observations * scale) == heuristic.known(EPISODES.observations)
    assert same.mean() > 0.99


def test_states_of_a_discrete_space_that_the_data_lacks_are_unknown():
    episodes = random_episodes([10] * 40, [True] * 40, observation_space=gym.spaces.Discrete(6, start=3))
    wide = gym.spaces.Discrete(9, start=3)
    object.__setattr__(episodes, "observation_space", wide)
    fitted = VAEFilteredHeuristic.fit(episodes, gamma=0.9, **(SMALL | {"vae_epochs": 20}))
    np.testing.assert_array_equal(fitted.known(np.arange(3, 12)), np.arange(9) < 6)


def test_a_fresh_process_gives_bit_equal_values(heuristic, far, in_fresh_process):
    observations = np.concatenate([far, EPISODES.observations[:50]])
    np.testing.assert_array_equal(in_fresh_process(heuristic, observations), heuristic(observations))


def test_the_seed_decides(heuristic):
    again, other = (VAEFilteredHeuristic.fit(EPISODES, gamma=0.9, seed=seed, **SMALL) for seed in (0, 1))
    assert heuristic.digest == again.digest != other.digest


def test_one_progress_over_both_networks():
    rows = []
    VAEFilteredHeuristic.fit(
        EPISODES,
        gamma=0.9,
        report=lambda done, total, loss, score: rows.append((done, total, score is None)),
        **SMALL,
    )
    assert rows == [(done, 7, done > 2) for done in range(1, 8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"percentile": 0.0}, r"percentile must be a number above 0 up to 100, got 0\.0"),
        ({"percentile": 101.0}, r"percentile must be a number above 0 up to 100, got 101\.0"),
        ({"latent": 0}, "latent must be a whole number from 1 to .*, got 0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(HeuristicError, match=message):
        VAEFilteredHeuristic.fit(EPISODES, gamma=0.9, **(SMALL | arguments))


@pytest.mark.parametrize(
    ("name", "shape"), [("vae.mean", (3,)), ("vae.decoder.1.weight", (16, 3)), ("network.0.weight", (3, 16))]
)
def test_weights_of_another_shape_are_refused(heuristic, name, shape):
    description, weights = pack(heuristic)
    weights[name] = np.zeros((5, 5), np.float32)
    with pytest.raises(HeuristicError, match=rf"of shape \(5, 5\), config.json asks for \({shape[0]},"):
        unpack(description, load(save(weights)), "h")


def test_r_squared_is_of_the_filtered_heuristic():
    heuristic = VAEFilteredHeuristic.fit(EPISODES, gamma=0.9, percentile=60.0, **SMALL)
    _, held_out = EPISODES.split(0.1, 0)
    returns = discounted_returns(held_out, gamma=0.9)
    assert heuristic.metrics["r2_held_out"] == pytest.approx(r_squared(returns, heuristic(held_out.observations)))
    unfiltered = heuristic.network(held_out.observations)[:, 0]
    assert heuristic.metrics["r2_held_out"] != pytest.approx(r_squared(returns, unfiltered))


def test_the_filter_has_not_seen_what_is_held_out():
    train, held_out = EPISODES.split(0.1, 0)
    is_held_out = np.isin(EPISODES.states[:, 0], held_out.states[:, 0])
    states = np.where(is_held_out[:, None], np.float32(100), EPISODES.states)
    first, second = (
        VAEFilteredHeuristic.fit(episodes, gamma=0.9, **SMALL)
        for episodes in (EPISODES, replace(EPISODES, states=states))
    )
    assert (first.threshold, first.lowest) == (second.threshold, second.lowest)
    np.testing.assert_array_equal(first(train.observations), second(train.observations))
    assert first.metrics["r2_held_out"] != second.metrics["r2_held_out"]
