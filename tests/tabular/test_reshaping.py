import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hurl.tabular.mdp import FiniteMDP
from hurl.tabular.reshaping import discounted_pbrs, pbrs, reshaped
from hurl.tabular.solve import action_values, bellman, evaluate, optimal
from tests.tabular.strategies import thorough
from tests.tabular.test_solve import mdps, random_policy

LAMBDAS = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])


def heuristic(mdp: FiniteMDP, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 5.0, mdp.n_states)


@pytest.fixture
def two_states() -> FiniteMDP:
    """From 0, action 0 stays and pays 1; action 1 goes to 1 or stays, evenly, for nothing. 1 absorbs and pays 2."""
    transitions = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]
    return FiniteMDP(transitions, [[1.0, 0.0], [2.0, 2.0]], 0.8, [1.0, 0.0])


def test_reshaped_by_hand(two_states):
    mdp = reshaped(two_states, np.array([10.0, 20.0]), 0.25)
    # (1 − λ)·γ = 0.6
    assert np.allclose(mdp.rewards, [[1 + 6, 0.6 * 15], [2 + 12, 2 + 12]], rtol=1e-14)
    assert mdp.gamma == pytest.approx(0.2)
    assert mdp.transitions is two_states.transitions
    assert mdp.initial is two_states.initial


def test_pbrs_by_hand(two_states):
    h = np.array([10.0, 20.0])
    expected = [[1 + 8 - 10, 0.8 * 15 - 10], [2 + 16 - 20, 2 + 16 - 20]]
    assert np.allclose(pbrs(two_states, h).rewards, expected, rtol=1e-14)
    assert pbrs(two_states, h).gamma == 0.8
    assert np.allclose(discounted_pbrs(two_states, h, 0.25).rewards, expected, rtol=1e-14)
    assert discounted_pbrs(two_states, h, 0.25).gamma == pytest.approx(0.2)


@thorough
@given(mdps(), st.integers(0, 1000))
def test_lambda_at_its_ends(mdp, seed):
    """λ = 1 is M; λ = 0 is one step ahead of h; h = 0 only shortens the horizon."""
    h = heuristic(mdp, seed)
    whole = reshaped(mdp, h, 1.0)
    assert np.array_equal(whole.rewards, mdp.rewards)
    assert whole.gamma == mdp.gamma
    bandit = reshaped(mdp, h, 0.0)
    assert bandit.gamma == 0.0
    assert np.allclose(bandit.rewards, bellman(mdp, h), rtol=1e-12, atol=1e-12)
    assert np.array_equal(reshaped(mdp, np.zeros(mdp.n_states), 0.5).rewards, mdp.rewards)


@thorough
@given(mdps(), st.integers(0, 1000), LAMBDAS)
def test_the_value_function_as_a_heuristic_keeps_the_values(mdp, seed, lambda_):
    """V^π solves the reshaped MDP of h = V^π too, for any λ."""
    policy = random_policy(mdp, seed)
    values = evaluate(mdp, policy)
    atol = 1e-9 * np.abs(values).max()
    assert np.allclose(evaluate(reshaped(mdp, values, lambda_), policy), values, rtol=1e-9, atol=atol)


@thorough
@given(mdps(), st.integers(0, 1000))
def test_pbrs_moves_every_value_by_h_and_keeps_the_optimal_policy(mdp, seed):
    h, policy = heuristic(mdp, seed), random_policy(mdp, seed)
    shaped = pbrs(mdp, h)
    values = action_values(mdp, policy)
    atol = 1e-9 * (np.abs(values).max() + np.abs(h).max() / (1 - mdp.gamma))
    assert np.allclose(action_values(shaped, policy), values - h[:, None], rtol=1e-9, atol=atol)
    best = optimal(mdp)
    assert np.allclose(optimal(shaped).values, best.values - h, rtol=1e-9, atol=atol)
    assert np.allclose(evaluate(mdp, optimal(shaped).policy), best.values, rtol=1e-9, atol=atol)


@thorough
@given(mdps(), st.integers(0, 1000), LAMBDAS)
def test_discounted_pbrs_is_a_pbrs_of_the_reshaped_mdp(mdp, seed, lambda_):
    """r̄ = r̃ + γ̃·E[h(s')] − h(s), so that the values differ by h and the policies do not."""
    h, policy = heuristic(mdp, seed), random_policy(mdp, seed)
    shaped, other = discounted_pbrs(mdp, h, lambda_), reshaped(mdp, h, lambda_)
    assert shaped.gamma == other.gamma == lambda_ * mdp.gamma
    expected = other.rewards + other.gamma * mdp.expect(h) - h[:, None]
    assert np.allclose(shaped.rewards, expected, rtol=1e-9, atol=1e-12)
    values = evaluate(other, policy)
    atol = 1e-9 * (np.abs(values).max() + np.abs(h).max() / (1 - mdp.gamma))
    assert np.allclose(evaluate(shaped, policy), values - h, rtol=1e-9, atol=atol)


@pytest.mark.parametrize("lambda_", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("make", [reshaped, discounted_pbrs])
def test_a_lambda_outside_its_range_is_refused(two_states, make, lambda_):
    with pytest.raises(ValueError, match=r"lambda_ must lie in \[0, 1\]"):
        make(two_states, np.zeros(2), lambda_)


def test_a_heuristic_that_does_not_fit_is_refused(two_states):
    with pytest.raises(ValueError, match=r"one value for each of 2 states, got shape \(3,\)"):
        pbrs(two_states, np.zeros(3))
    with pytest.raises(ValueError, match=r"a heuristic must be finite, got nan in state 1"):
        reshaped(two_states, np.array([0.0, np.nan]), 0.5)
