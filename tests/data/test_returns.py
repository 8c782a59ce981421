import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hurl.data import DatasetError, discounted_returns
from hurl.data.returns import own_returns, usable_episodes
from tests.data.examples import random_episodes


def by_hand(episodes, gamma, last_values):
    """G_t = r_t + γ·G_{t+1}, one transition at a time."""
    returns = []
    for episode, (start, end) in enumerate(zip(episodes.starts, episodes.ends, strict=True)):
        value = 0.0 if episodes.terminated[episode] else last_values[episode]
        backwards = []
        for reward in episodes.rewards[start:end][::-1]:
            value = reward + gamma * value
            backwards.append(value)
        returns += backwards[::-1]
    return np.array(returns)


shapes = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=8)


@given(shapes, st.floats(0, 0.999), st.integers(0, 99))
def test_returns_are_those_of_a_loop(shape, gamma, seed):
    lengths, terminated = zip(*shape, strict=True)
    episodes = random_episodes(lengths, terminated, seed=seed)
    last_values = np.random.default_rng(seed).normal(size=len(lengths))
    np.testing.assert_allclose(
        discounted_returns(episodes, gamma=gamma), by_hand(episodes, gamma, np.zeros(len(lengths))), atol=1e-12
    )
    np.testing.assert_allclose(
        discounted_returns(episodes, gamma=gamma, last_values=last_values),
        by_hand(episodes, gamma, last_values),
        atol=1e-9,
    )


def test_bootstrapping_with_the_value_makes_a_cut_episode_whole():
    gamma = 0.9
    whole = random_episodes([9], [True])
    returns = discounted_returns(whole, gamma=gamma)
    cut = whole.__class__(
        whole.states[:6],
        whole.actions[:5],
        whole.rewards[:5],
        np.array([5]),
        np.array([False]),
        whole.observation_space,
        whole.action_space,
        "cut",
    )
    np.testing.assert_allclose(discounted_returns(cut, gamma=gamma, last_values=returns[[5]]), returns[:5])


def test_cut_returns_hold_the_start_of_an_endless_task_above_all_that_follows():
    """A reward of 1 for ever is worth 1/(1−γ) in every state; cut off after T steps it is worth less and less."""
    gamma, limit = 0.999, 1000
    endless = dataclasses.replace(random_episodes([limit] * 3, [False] * 3), rewards=np.ones(3 * limit))
    cut = discounted_returns(endless, gamma=gamma)
    earned = (1 - gamma**limit) / (1 - gamma)
    assert cut[0] == pytest.approx(earned)
    assert cut.mean() == pytest.approx((1 - earned * gamma / limit) / (1 - gamma))
    assert cut[0] / cut.mean() == pytest.approx(1.72, abs=0.01)
    whole = discounted_returns(endless, gamma=gamma, last_values=np.full(3, 1 / (1 - gamma)))
    np.testing.assert_allclose(whole, 1 / (1 - gamma))


def test_a_fit_begins_with_episodes_that_go_on_at_their_own_rate():
    """Rewards of 1, 2 and −3 a step for ever are worth that times 1/(1−γ) in every state."""
    gamma, limit = 0.999, 50
    rates = np.repeat([1.0, 2.0, -3.0], limit)
    endless = dataclasses.replace(random_episodes([limit] * 3, [False] * 3), rewards=rates)
    np.testing.assert_allclose(own_returns(endless, gamma=gamma, time_limit="bootstrap"), rates / (1 - gamma))
    np.testing.assert_allclose(
        own_returns(endless, gamma=gamma, time_limit="cut"), discounted_returns(endless, gamma=gamma)
    )


@given(shapes, st.floats(0, 0.999), st.integers(0, 99))
def test_what_a_fit_begins_with_behind_a_limit_is_the_mean_of_its_episode(shape, gamma, seed):
    lengths, terminated = zip(*shape, strict=True)
    episodes = random_episodes(lengths, terminated, seed=seed)
    begun = own_returns(episodes, gamma=gamma, time_limit="bootstrap")
    means = np.array([part.mean() for part in np.split(begun, episodes.ends[:-1])])
    np.testing.assert_allclose(begun, by_hand(episodes, gamma, means), rtol=1e-6, atol=1e-6)


def test_drop_keeps_what_ended_by_itself():
    assert list(usable_episodes(random_episodes(), 0.9, "drop").lengths) == [4, 3]


def test_drop_of_everything_is_refused():
    with pytest.raises(DatasetError, match=r"all 2 episodes .* ended at a time limit.*cut, bootstrap"):
        usable_episodes(random_episodes([2, 3], [False, False]), 0.9, "drop")
