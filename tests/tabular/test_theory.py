"""Every result of the paper holds on random finite MDPs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from hurl.tabular.chain import chain_mdp
from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.reshaping import discounted_pbrs, reshaped
from hurl.tabular.solve import action_values, average_distribution, bellman, evaluate, expectation, optimal
from hurl.tabular.theory import (
    Identity,
    bellman_backup_difference,
    bellman_pessimism,
    bias_bound,
    bias_shift,
    decompose,
    future_sum,
    general_performance_difference,
    has_value_bounds,
    improvability_gap,
    improvement_margin,
    is_bellman_pessimistic,
    is_improvable,
    linear_reward_weights,
    linf_bias_bound,
    linf_error,
    online_value_difference,
    performance_difference,
    regret_as_action_gaps,
    shaping_equivalence,
    value_bounds,
    value_change,
    value_difference,
    value_shift,
    weighted_performance_difference,
)
from tests.tabular.strategies import (
    POLICIES,
    Problem,
    coefficients,
    make_heuristic,
    make_policy,
    mdps,
    problems,
    seeds,
    thorough,
)

RELATIVE = 1e-9
shifts = st.one_of(st.floats(-100.0, 100.0), st.sampled_from([-1000.0, 1.0, 1000.0]))


def natural_scale(mdp: FiniteMDP, *functions: ArrayLike) -> float:
    """max(1, ‖r‖∞/(1−γ), ‖x‖∞ of each function of states in the statement): the size of the values that it is about.

    V^π is at most ‖r‖∞/(1−γ), and Ṽ^π at most the larger of that and ‖h‖∞. A statement subtracts such values, and the
    result may be 0 or tiny although they are large: 1e-9 can only be relative to them. Sums over time, which are
    larger by 1/(1−γ), are not allowed more: rounding stayed below 1e-12 of this scale in 1,500 examples of each.
    """
    sizes = [float(np.abs(function).max()) for function in functions]
    return max(1.0, float(np.abs(mdp.rewards).max()) / (1.0 - mdp.gamma), *sizes)


def assert_equal(left: ArrayLike, right: ArrayLike, scale: float) -> None:
    """|left − right| ≤ 1e-9·scale, with the `natural_scale` of the statement."""
    assert np.shape(left) == np.shape(right)
    np.testing.assert_allclose(left, right, rtol=0.0, atol=RELATIVE * scale)


def assert_at_most(low: ArrayLike, high: ArrayLike, scale: float) -> None:
    """low ≤ high + 1e-9·scale, everywhere."""
    excess = np.max(np.asarray(low) - np.asarray(high))
    assert excess <= RELATIVE * scale, f"violated by {excess}, at the scale {scale}"


def assert_holds(identity: Identity, scale: float) -> None:
    assert_equal(identity.left, identity.right, scale)


def on_policy(policy: NDArray[Any], table: Floats) -> Floats:
    """x(s, π), with a one-hot matrix for actions: another way than the library's."""
    return ((np.eye(table.shape[1])[policy] if policy.ndim == 1 else policy) * table).sum(axis=1)


def trajectory_sum(mdp: FiniteMDP, policy: NDArray[Any], g: Floats, eta: float) -> Floats:
    """Σ_{t≥1} η^{t−1}·P_π^t g, shape (S,), with the terms added up by repeated squaring: no linear system."""
    transitions = np.asarray(mdp.under(policy)[0] @ np.eye(mdp.n_states))
    total, step = np.asarray(transitions @ g), eta * transitions
    for _ in range(17):  # 2^17 terms: 0.999^131072 is far below rounding
        total, step = total + step @ total, step @ step
    return total


# --- The performance decomposition -----------------------------------------------------------------------------------


@thorough
@given(problems())
def test_suboptimality_is_regret_plus_bias(problem: Problem) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    parts = decompose(mdp, h, lambda_, policy)
    scale = natural_scale(mdp, h)
    assert_equal(parts.regret + parts.bias, parts.suboptimality, scale)
    assert_at_most(0.0, parts.suboptimality, scale)
    assert_at_most(0.0, parts.regret, scale)


@thorough
@given(problems())
def test_regret_and_bias_are_what_they_are_defined_as(problem: Problem) -> None:
    # Their sum alone would not notice a term that moves from one to the other.
    mdp, h, lambda_, policy, guided = problem.mdp, problem.h, problem.lambda_, problem.policy, problem.guided
    parts = decompose(mdp, h, lambda_, policy)
    best, chain = optimal(guided).values, mdp.under(policy)[0] @ np.eye(mdp.n_states)
    loss = best - evaluate(guided, policy)
    visits = np.linalg.solve((np.eye(mdp.n_states) - mdp.gamma * chain).T, mdp.initial)  # d^π/(1−γ)
    scale = natural_scale(mdp, h)
    assert_equal(parts.regret, lambda_ * mdp.initial @ loss + (1.0 - lambda_) * visits @ loss, scale)
    promised = mdp.gamma * (1.0 - lambda_) * visits @ (chain @ (h - best))
    assert_equal(parts.bias, mdp.initial @ (optimal(mdp).values - best) + promised, scale)


@thorough
@given(problems(policies=("guided",)))
def test_the_best_policy_of_the_reshaped_mdp_has_no_regret(problem: Problem) -> None:
    parts = decompose(problem.mdp, problem.h, problem.lambda_, problem.policy)
    assert_equal(parts.regret, 0.0, natural_scale(problem.mdp, problem.h))


@thorough
@given(problems(heuristics=("optimal", "shifted")))
def test_the_optimal_value_has_no_bias_whatever_constant_is_added(problem: Problem) -> None:
    parts = decompose(problem.mdp, problem.h, problem.lambda_, problem.policy)
    assert_equal(parts.bias, 0.0, natural_scale(problem.mdp, problem.h))


@thorough
@given(problems())
def test_without_guidance_the_regret_is_the_suboptimality(problem: Problem) -> None:
    parts = decompose(problem.mdp, problem.h, 1.0, problem.policy)
    scale = natural_scale(problem.mdp, problem.h)
    assert_equal(parts.regret, parts.suboptimality, scale)
    assert_equal(parts.bias, 0.0, scale)


@thorough
@given(problems())
def test_with_full_guidance_the_regret_is_that_of_a_contextual_bandit(problem: Problem) -> None:
    mdp, h, policy = problem.mdp, problem.h, problem.policy
    rewards = bellman(mdp, h)  # r̃ at λ = 0
    regrets = rewards.max(axis=1) - on_policy(policy, rewards)
    expected = expectation(mdp, regrets, average_distribution(mdp, policy)) / (1.0 - mdp.gamma)
    assert_equal(decompose(mdp, h, 0.0, policy).regret, expected, natural_scale(mdp, h))


@thorough
@given(problems(), shifts)
def test_a_constant_changes_neither_regret_nor_bias(problem: Problem, b: float) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    scale = natural_scale(mdp, h, b)
    biases = bias_shift(mdp, h, lambda_, policy, b)
    assert_holds(biases, scale)
    before, after = decompose(mdp, h, lambda_, policy), decompose(mdp, h + b, lambda_, policy)
    assert_equal(before.regret, after.regret, scale)
    assert (biases.left, biases.right) == (before.bias, after.bias)


@thorough
@given(problems(), shifts)
def test_a_constant_moves_all_reshaped_values_alike(problem: Problem, b: float) -> None:
    shift = value_shift(problem.mdp, problem.h, problem.lambda_, problem.policy, b)
    assert np.shape(shift.left) == (problem.mdp.n_states,)
    assert_holds(shift, natural_scale(problem.mdp, problem.h, b))


@thorough
@given(problems(policies=("guided",)), shifts)
def test_a_constant_changes_no_optimal_policy(problem: Problem, b: float) -> None:
    # Ties may be broken otherwise, so the policies are compared by what they are worth in the other reshaped MDP.
    shifted = reshaped(problem.mdp, problem.h + b, problem.lambda_)
    assert_equal(evaluate(shifted, problem.policy), optimal(shifted).values, natural_scale(problem.mdp, problem.h, b))


# --- Regret, and what reshaping preserves ----------------------------------------------------------------------------


@thorough
@given(problems())
def test_regret_is_the_action_gaps_along_the_trajectories(problem: Problem) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    gaps = regret_as_action_gaps(mdp, h, lambda_, policy)
    assert_equal(gaps, decompose(mdp, h, lambda_, policy).regret, natural_scale(mdp, h))


@thorough
@given(problems())
def test_reshaped_values_keep_to_their_bounds(problem: Problem) -> None:
    bounds = value_bounds(problem.mdp, problem.h, problem.lambda_)
    scale = natural_scale(problem.mdp, problem.h)
    assert_at_most(bounds.lower, evaluate(problem.guided, problem.policy), scale)
    assert_at_most(optimal(problem.guided).values, bounds.upper, scale)


@thorough
@given(problems(signed=False, heuristics=("within-bounds", "zero", "optimal", "policy")))
def test_reshaping_preserves_the_bounds_of_the_values(problem: Problem) -> None:
    mdp = problem.mdp
    h = np.clip(problem.h, 0.0, 1.0 / (1.0 - mdp.gamma))  # V* may exceed the bound by rounding
    assert has_value_bounds(mdp, h)
    bounds, scale = value_bounds(mdp, h, problem.lambda_), natural_scale(mdp)
    assert_at_most(0.0, bounds.lower, scale)
    assert_at_most(bounds.upper, 1.0 / (1.0 - mdp.gamma), scale)
    values = evaluate(reshaped(mdp, h, problem.lambda_), problem.policy)
    assert_at_most(0.0, values, scale)
    assert_at_most(values, 1.0 / (1.0 - mdp.gamma), scale)


@thorough
@given(mdps(signed=False), coefficients(), st.sampled_from([0.0, 1.0]))
def test_the_bounds_are_reached_by_constant_rewards_and_heuristics(mdp: FiniteMDP, lambda_: float, end: float) -> None:
    mdp = FiniteMDP(mdp.transitions, np.full_like(mdp.rewards, end), mdp.gamma, mdp.initial)
    h = np.full(mdp.n_states, end / (1.0 - mdp.gamma))
    assert has_value_bounds(mdp, h)
    bounds, scale = value_bounds(mdp, h, lambda_), natural_scale(mdp)
    assert_equal([bounds.lower, bounds.upper], [end / (1.0 - mdp.gamma)] * 2, scale)
    assert_equal(optimal(reshaped(mdp, h, lambda_)).values, h, scale)


@pytest.mark.parametrize("excess", [-0.01, 0.01])
def test_bounds_are_only_claimed_under_the_assumptions(excess: float) -> None:
    mdp = two_states(0.0)
    ends = np.array([0.0, 10.0])
    assert has_value_bounds(mdp, ends)
    assert not has_value_bounds(mdp, ends + excess)
    assert not has_value_bounds(two_states(excess if excess < 0 else 1.0 + excess), ends)


@thorough
@given(
    st.integers(2, 12),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 0.9, 0.999]),
    coefficients(),
    seeds(),
)
def test_reshaping_preserves_linearity(
    states: int, actions: int, dimension: int, gamma: float, lambda_: float, rng: np.random.Generator
) -> None:
    features, weights, measures, mdp = linear_mdp(states, actions, dimension, gamma, rng)
    h = make_heuristic(mdp, "random", rng)
    reshaped_weights = linear_reward_weights(mdp, h, lambda_, weights, measures)
    assert reshaped_weights.shape == weights.shape
    assert_equal(features @ reshaped_weights, reshaped(mdp, h, lambda_).rewards, natural_scale(mdp, h))


@thorough
@given(problems())
def test_discounted_shaping_is_reshaping_and_then_shaping(problem: Problem) -> None:
    mdp, h, lambda_ = problem.mdp, problem.h, problem.lambda_
    scale = natural_scale(mdp, h)
    assert_holds(shaping_equivalence(mdp, h, lambda_), scale)
    shaped = discounted_pbrs(mdp, h, lambda_)
    assert_equal(shaping_equivalence(mdp, h, lambda_).left, shaped.rewards, scale)
    assert shaped.gamma == problem.guided.gamma
    assert_equal(evaluate(shaped, problem.policy), evaluate(problem.guided, problem.policy) - h, scale)
    assert_equal(evaluate(shaped, optimal(problem.guided).policy), optimal(shaped).values, scale)


def test_discounted_shaping_preserves_no_bounds() -> None:
    mdp, h = two_states(0.0), np.array([10.0, 0.0])  # h within [0, 1/(1−γ)]: the assumption of the proposition
    assert has_value_bounds(mdp, h)
    np.testing.assert_allclose(optimal(reshaped(mdp, h, 0.5)).values, [0.0, 0.0])
    np.testing.assert_allclose(optimal(discounted_pbrs(mdp, h, 0.5)).values, [-10.0, 0.0])


def test_discounted_shaping_preserves_no_linearity() -> None:
    rng = np.random.default_rng(0)
    features, _, _, mdp = linear_mdp(states=6, actions=3, dimension=2, gamma=0.9, rng=rng)
    h = make_heuristic(mdp, "random", rng)

    def distance_from_linear(rewards: Floats) -> float:
        design = features.reshape(-1, 2)
        fitted = design @ np.linalg.lstsq(design, rewards.ravel())[0]
        return float(np.abs(fitted - rewards.ravel()).max())

    assert distance_from_linear(reshaped(mdp, h, 0.5).rewards) < 1e-9
    assert distance_from_linear(discounted_pbrs(mdp, h, 0.5).rewards) > 1.0


# --- Bias and the quality of heuristics ------------------------------------------------------------------------------


@thorough
@given(problems(), st.floats(-1.0, 1.0))
def test_the_error_is_the_least_over_constants(problem: Problem, offset: float) -> None:
    best = optimal(problem.mdp).values
    error, errors = linf_error(problem.h, best), problem.h - best
    centred = errors - (errors.max() + errors.min()) / 2.0
    scale = natural_scale(problem.mdp, problem.h)
    assert_equal(error, np.abs(centred).max(), scale)
    assert_at_most(error, np.abs(centred + offset * scale).max(), scale)


@thorough
@given(problems())
def test_the_bias_is_bounded_by_the_largest_error(problem: Problem) -> None:
    mdp, h, lambda_ = problem.mdp, problem.h, problem.lambda_
    bias, bound = decompose(mdp, h, lambda_, problem.policy).bias, linf_bias_bound(mdp, h, lambda_)
    scale = natural_scale(mdp, h)
    assert_at_most(bias, bound, scale)
    error = linf_error(h, optimal(mdp).values)
    smaller = 2.0 * (1.0 - lambda_) * mdp.gamma / (1.0 - mdp.gamma) * error
    assert_at_most(bias, smaller, scale)
    assert_at_most(smaller, bound, scale)
    # The factor itself, as (1 + (1−λ)γ/(1−γ))²: a bound that is only too large would go unnoticed.
    assert_equal(bound, (1.0 + (1.0 - lambda_) * mdp.gamma / (1.0 - mdp.gamma)) ** 2 * error, max(scale, bound))


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_the_smaller_bound_on_the_bias_is_reached(gamma: float, lambda_: float) -> None:
    # Staying in state 0 costs as much as h, wrong by ε = 1, says that state 1 is worse: M̃ cannot tell them apart.
    cost = 2.0 * (1.0 - lambda_) * gamma
    mdp = FiniteMDP([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[-cost, 0], [0, 0]], gamma, [1.0, 0.0])
    h = np.array([1.0, -1.0])
    np.testing.assert_allclose(linf_error(h, optimal(mdp).values), 1.0)
    parts = decompose(mdp, h, lambda_, np.array([0, 0]))
    np.testing.assert_allclose([parts.regret, parts.bias], [0.0, cost / (1.0 - gamma)], atol=1e-12)
    assert parts.bias <= linf_bias_bound(mdp, h, lambda_)


@thorough
@given(problems(), st.one_of(st.sampled_from([0.0, 0.999]), st.floats(0.0, 0.999)))
def test_the_future_sum_is_the_sum_along_trajectories(problem: Problem, eta: float) -> None:
    total = future_sum(problem.mdp, problem.policy, problem.values, eta)
    expected = problem.mdp.initial @ trajectory_sum(problem.mdp, problem.policy, problem.values, eta)
    assert_equal(total, expected, float(np.abs(problem.values).max()) / (1.0 - eta) + 1.0)


@pytest.mark.parametrize("eta", [-0.1, 1.0, float("nan")])
def test_the_future_sum_refuses_discounts_without_a_sum(eta: float) -> None:
    with pytest.raises(ValueError, match=r"eta must lie in \[0, 1\)"):
        future_sum(two_states(0.0), np.zeros(2, int), np.ones(2), eta)


@thorough
@given(problems(), shifts)
def test_the_bias_is_bounded_by_errors_along_trajectories(problem: Problem, b: float) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    bias, bound = decompose(mdp, h, lambda_, policy).bias, bias_bound(mdp, h, lambda_, policy)
    scale = natural_scale(mdp, h, b)
    assert_at_most(bias, bound.total, scale)
    assert bound.total == bound.underestimation + bound.overestimation
    moved = bias_bound(mdp, h + b, lambda_, policy)
    assert_equal(moved.total, bound.total, scale)
    step = (1.0 - lambda_) * mdp.gamma / (1.0 - lambda_ * mdp.gamma) * b
    assert_equal(moved.overestimation - bound.overestimation, step, scale)


@thorough
@given(problems())
def test_each_term_of_the_bias_bound_is_one_of_the_bias(problem: Problem) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    bound, best, guided = bias_bound(mdp, h, lambda_, policy), optimal(mdp), problem.guided
    scale = natural_scale(mdp, h)
    # V*(d0) − Ṽ^π*(d0) by lm:value difference, in place of the bias's V*(d0) − Ṽ*(d0).
    assert_equal(bound.underestimation, mdp.initial @ (best.values - evaluate(guided, best.policy)), scale)
    lost = mdp.initial @ (best.values - optimal(guided).values)
    assert_equal(bound.overestimation, decompose(mdp, h, lambda_, policy).bias - lost, scale)


@thorough
@given(problems())
def test_the_reshaped_optimum_is_above_a_heuristic_as_far_as_it_is_improvable(problem: Problem) -> None:
    mdp, h, lambda_ = problem.mdp, problem.h, problem.lambda_
    gap, margin, scale = improvability_gap(mdp, h), improvement_margin(mdp, h, lambda_), natural_scale(mdp, h)
    assert margin.shape == (mdp.n_states,)
    assert_at_most(gap / (1.0 - lambda_ * mdp.gamma), margin, scale)
    backups = np.array(
        [[mdp.rewards[s, a] + mdp.gamma * row @ h for a, row in enumerate(rows)] for s, rows in enumerate(dense(mdp))]
    )
    assert_equal(gap, (backups.max(axis=1) - h).min(), scale)
    assert_equal(margin, optimal(problem.guided).values - h, scale)
    if is_improvable(mdp, h, tolerance=0.0):
        assert_at_most(0.0, margin, scale)


@thorough
@given(problems(), st.sampled_from([0.0, 0.3, 3.0]))
def test_improvable_heuristics_have_one_term_of_bias(problem: Problem, pessimism: float) -> None:
    # An improvable heuristic for any problem: the value of the policy when every step costs a little more.
    mdp, lambda_ = problem.mdp, problem.lambda_
    poorer = FiniteMDP(mdp.transitions, mdp.rewards - pessimism, mdp.gamma, mdp.initial)
    h = evaluate(poorer, problem.policy)
    scale = natural_scale(mdp, h)
    assert is_improvable(mdp, h)
    assert_at_most(h, optimal(reshaped(mdp, h, lambda_)).values, scale)
    bound = bias_bound(mdp, h, lambda_, problem.policy)
    assert_at_most(bound.overestimation, 0.0, scale)
    assert_at_most(decompose(mdp, h, lambda_, problem.policy).bias, bound.underestimation, scale)


@thorough
@given(problems(heuristics=("policy", "optimal")))
def test_the_value_of_any_policy_is_improvable(problem: Problem) -> None:
    assert is_improvable(problem.mdp, problem.h)
    assert_at_most(0.0, improvement_margin(problem.mdp, problem.h, problem.lambda_), natural_scale(problem.mdp))


@thorough
@given(mdps(signed=False), coefficients())
def test_zero_is_improvable_where_rewards_are_not_negative(mdp: FiniteMDP, lambda_: float) -> None:
    zero = np.zeros(mdp.n_states)
    assert is_improvable(mdp, zero, tolerance=0.0)
    assert_at_most(0.0, improvement_margin(mdp, zero, lambda_), natural_scale(mdp))


@thorough
@given(mdps(), st.floats(0.01, 100.0))
def test_a_heuristic_above_the_optimum_is_not_improvable(mdp: FiniteMDP, excess: float) -> None:
    # max_a B(V* + b) − (V* + b) = −(1−γ)·b in every state.
    h = optimal(mdp).values + excess
    assert_equal(improvability_gap(mdp, h), -(1.0 - mdp.gamma) * excess, natural_scale(mdp, h))
    assert not is_improvable(mdp, h)
    assert is_improvable(mdp, h, tolerance=1.001 * excess)


# --- Pessimism -------------------------------------------------------------------------------------------------------


@thorough
@given(mdps(), st.sampled_from([p for p in POLICIES if p != "guided"]), st.sampled_from([0.0, 0.1, 10.0]), seeds())
def test_bellman_consistent_pessimism_is_improvable(
    mdp: FiniteMDP, kind: str, most: float, rng: np.random.Generator
) -> None:
    # Every such Q is that of π' in an MDP that pays r − b with some b ≥ 0: b is what (B h) − Q is.
    policy, penalty = make_policy(mdp, kind, rng), most * rng.random(mdp.rewards.shape)
    q = action_values(FiniteMDP(mdp.transitions, mdp.rewards - penalty, mdp.gamma, mdp.initial), policy)
    h = on_policy(policy, q)
    scale = natural_scale(mdp, q)
    assert is_bellman_pessimistic(mdp, q, policy)
    assert is_improvable(mdp, h)
    assert_at_most(h, evaluate(mdp, policy), scale)
    found = bellman_pessimism(mdp, q, policy)
    assert_equal(found.consistency, penalty.min(), scale)
    assert_equal(found.underestimation, (evaluate(mdp, policy) - h).min(), scale)
    assert_equal(found.improvability, improvability_gap(mdp, h), scale)


@thorough
@given(mdps(), st.sampled_from([p for p in POLICIES if p != "guided"]), seeds())
def test_pessimism_bounds_hold_for_every_q(mdp: FiniteMDP, kind: str, rng: np.random.Generator) -> None:
    policy, q = make_policy(mdp, kind, rng), 5.0 * rng.normal(size=mdp.rewards.shape)
    found = bellman_pessimism(mdp, q, policy)
    scale = natural_scale(mdp, q)
    assert_equal(found.consistency, (bellman(mdp, on_policy(policy, q)) - q).min(), scale)
    assert_at_most(found.consistency, found.improvability, scale)
    assert_at_most(found.consistency / (1.0 - mdp.gamma), found.underestimation, scale)
    assert is_bellman_pessimistic(mdp, q, policy, tolerance=0.0) == (found.consistency >= 0.0)


@thorough
@given(mdps(), st.floats(0.01, 10.0), seeds())
def test_one_optimistic_action_is_not_pessimistic(mdp: FiniteMDP, excess: float, rng: np.random.Generator) -> None:
    policy = make_policy(mdp, "stochastic", rng)
    q = action_values(mdp, policy)
    pair = tuple(rng.integers(q.shape))
    q[pair] += excess
    still = on_policy(policy, q)[pair[0]] - evaluate(mdp, policy)[pair[0]]  # what it adds to h(s)
    stays = dense(mdp)[pair][pair[0]]
    expected = -excess + mdp.gamma * stays * still
    assert_at_most(bellman_pessimism(mdp, q, policy).consistency, expected, natural_scale(mdp, q))
    assert is_bellman_pessimistic(mdp, q, policy) == (expected >= -1e-9 * max(1.0, np.abs(q).max()))


# --- The appendix's lemmas -------------------------------------------------------------------------------------------


@thorough
@given(problems())
def test_general_performance_difference(problem: Problem) -> None:
    mdp, h, values = problem.mdp, problem.h, problem.values
    identity = general_performance_difference(mdp, h, problem.lambda_, problem.policy, values)
    assert_holds(identity, natural_scale(mdp, h, values))
    assert_equal(identity.left, loss_of(problem, values), natural_scale(mdp, values))


@thorough
@given(problems())
def test_performance_difference(problem: Problem) -> None:
    identity = performance_difference(problem.mdp, problem.policy, problem.values)
    assert_holds(identity, natural_scale(problem.mdp, problem.values))
    assert_equal(identity.left, loss_of(problem, problem.values), natural_scale(problem.mdp, problem.values))


@thorough
@given(problems())
def test_weighted_performance_difference(problem: Problem) -> None:
    mdp, h = problem.mdp, problem.h
    identity = weighted_performance_difference(mdp, h, problem.lambda_, problem.policy)
    assert_holds(identity, natural_scale(mdp, h))
    assert_equal(identity.left, loss_of(problem, h), natural_scale(mdp, h))


@thorough
@given(problems())
def test_bellman_backup_difference(problem: Problem) -> None:
    mdp, h = problem.mdp, problem.h
    identity = bellman_backup_difference(mdp, h, problem.lambda_, problem.values)
    assert np.shape(identity.left) == mdp.rewards.shape
    assert_holds(identity, natural_scale(mdp, h, problem.values))


@thorough
@given(problems())
def test_value_difference(problem: Problem) -> None:
    mdp, h = problem.mdp, problem.h
    identity = value_difference(mdp, h, problem.lambda_, problem.policy)
    assert np.shape(identity.left) == (mdp.n_states,)
    scale = natural_scale(mdp, h)
    assert_holds(identity, scale)
    assert_equal(identity.left, evaluate(mdp, problem.policy) - evaluate(problem.guided, problem.policy), scale)


@thorough
@given(problems())
def test_value_change(problem: Problem) -> None:
    mdp, h, lambda_ = problem.mdp, problem.h, problem.lambda_
    bounds, scale = value_change(mdp, h, lambda_, problem.policy), natural_scale(mdp, h)
    change, errors = h - evaluate(problem.guided, problem.policy), h - evaluate(mdp, problem.policy)
    assert_at_most(bounds.lower, change, scale)
    assert_at_most(change, bounds.upper, scale)
    # No looser than stated: the sides differ by (1 + share)·span(h − V^π), and add up to (1 − share)·(min + max).
    share = (1.0 - lambda_) * mdp.gamma / (1.0 - lambda_ * mdp.gamma)
    assert_equal(bounds.upper - bounds.lower, (1.0 + share) * np.ptp(errors), scale)
    assert_equal(bounds.upper + bounds.lower, (1.0 - share) * (errors.min() + errors.max()), scale)


@thorough
@given(problems())
def test_online_value_difference(problem: Problem) -> None:
    mdp, h, lambda_, values = problem.mdp, problem.h, problem.lambda_, problem.values
    identity = online_value_difference(mdp, h, lambda_, problem.policy, values)
    scale = natural_scale(mdp, h, values)
    assert_holds(identity, scale)
    if lambda_ == 1.0:
        assert_equal(identity.right, loss_of(problem, values), scale)


@thorough
@given(problems())
def test_the_lemmas_are_cases_of_the_general_one(problem: Problem) -> None:
    mdp, h, lambda_, policy = problem.mdp, problem.h, problem.lambda_, problem.policy
    scale = natural_scale(mdp, h)
    general = general_performance_difference(mdp, h, lambda_, policy, h)
    assert_equal(general.right, weighted_performance_difference(mdp, h, lambda_, policy).right, scale)
    at_zero = weighted_performance_difference(mdp, h, 0.0, policy)
    assert_equal(at_zero.right, performance_difference(mdp, policy, h).right, scale)


# --- The MDPs themselves ---------------------------------------------------------------------------------------------


def test_strategies_reach_the_degenerate_cases() -> None:
    seen: dict[str, int] = {}

    @thorough
    @given(problems())
    def look(problem: Problem) -> None:
        mdp, probabilities = problem.mdp, dense(problem.mdp)
        loops = np.einsum("sas->sa", probabilities)
        facts = {
            "sparse": mdp.is_sparse,
            "dense": not mdp.is_sparse,
            "absorbing": (loops == 1.0).all(axis=1).any(),
            "deterministic": (probabilities.max(axis=2) == 1.0).all(),
            "full support": (probabilities > 0.0).all(),
            "gamma is 0": mdp.gamma == 0.0,
            "gamma is 0.999": mdp.gamma == 0.999,
            "lambda is 0": problem.lambda_ == 0.0,
            "lambda is 1": problem.lambda_ == 1.0,
            "lambda between": 0.0 < problem.lambda_ < 1.0,
            "one action": mdp.n_actions == 1,
            "negative rewards": mdp.rewards.min() < 0.0,
            "rewards in [0, 1]": mdp.rewards.min() >= 0.0 and mdp.rewards.max() <= 1.0,
            "actions": problem.policy.ndim == 1,
            "probabilities": problem.policy.ndim == 2,
            "h = 0": not problem.h.any(),
            "h = V*": bool((problem.h == optimal(mdp).values).all()),
            "one initial state": mdp.initial.max() == 1.0,
        }
        for fact, holds in facts.items():
            seen[fact] = seen.get(fact, 0) + bool(holds)

    look()
    rare = {fact: count for fact, count in seen.items() if count < 5}
    assert not rare, f"too rare among 200 examples: {rare}"


def loss_of(problem: Problem, values: Floats) -> float:
    """V(d0) − V^π(d0), with V^π as the sum along trajectories rather than by a linear system."""
    rewards = on_policy(problem.policy, problem.mdp.rewards)
    following = trajectory_sum(problem.mdp, problem.policy, rewards, problem.mdp.gamma)
    return float(problem.mdp.initial @ (values - rewards - problem.mdp.gamma * following))


def dense(mdp: FiniteMDP) -> Floats:
    """P as one array, shape (S, A, S), whatever the MDP holds it in."""
    if isinstance(mdp.transitions, tuple):
        return np.stack([matrix.toarray() for matrix in mdp.transitions], axis=1)
    return mdp.transitions


def two_states(reward: float) -> FiniteMDP:
    """One action: from state 0 to state 1, which absorbs; γ = 0.9. The reward is that of the first step."""
    return FiniteMDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[reward], [0.0]], 0.9, [1.0, 0.0])


def linear_mdp(
    states: int, actions: int, dimension: int, gamma: float, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, FiniteMDP]:
    """φ (S, A, d), θ (d,), μ (d, S) and their MDP: the features mix d distributions over states."""
    features = rng.dirichlet(np.ones(dimension), size=(states, actions))
    weights, measures = rng.random(dimension), rng.dirichlet(np.ones(states), size=dimension)
    initial = rng.dirichlet(np.ones(states))
    return features, weights, measures, FiniteMDP(features @ measures, features @ weights, gamma, initial)


@pytest.mark.parametrize("function", [value_bounds, linf_bias_bound])
def test_coefficients_and_heuristics_out_of_place_are_refused(function):
    mdp = chain_mdp()
    with pytest.raises(ValueError, match="lambda_ must lie in"):
        function(mdp, np.zeros(10), 2.0)
    with pytest.raises(ValueError, match=r"10 states, got shape \(10, 1\)"):
        function(mdp, np.zeros((10, 1)), 0.5)


def test_values_and_q_of_another_shape_are_refused():
    mdp = chain_mdp()
    policy = np.full((10, 2), 0.5)
    with pytest.raises(ValueError, match="lambda_ must lie in"):
        value_change(mdp, np.zeros(10), -1.0, policy)
    with pytest.raises(ValueError, match=r"V has one value for each of 10 states, got shape \(9,\)"):
        performance_difference(mdp, policy, np.zeros(9))
    with pytest.raises(ValueError, match=r"Q has shape \(10, 2\), got \(10, 1\)"):
        bellman_pessimism(mdp, np.zeros((10, 1)), policy)
