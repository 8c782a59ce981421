"""Q-learning by Algorithm 1: what it computes, step by step, and how many samples it needs at which λ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hurl
from hurl.schedules import ConstantSchedule, LinearSchedule, Schedule
from hurl.tabular.learning import q_learning, reference_heuristics, sample_complexity
from hurl.tabular.mdp import FiniteMDP, mdp_from_gymnasium
from hurl.tabular.reshaping import reshaped
from hurl.tabular.simulate import sample_batch
from hurl.tabular.solve import bellman, evaluate, expectation, optimal, uniform_policy

SETTINGS: dict[str, Any] = {"evaluation_interval": 100, "horizon": 400, "exploration": 0.3}


def chain(states: int, *, slip: float = 0.0, gamma: float = 0.95) -> FiniteMDP:
    """Left or right from state 0; the last step to the right pays 1 and ends the episode."""
    transitions, rewards = np.zeros((states + 1, 2, states + 1)), np.zeros((states + 1, 2))
    for state in range(states):
        ends = (max(state - 1, 0), state + 1)
        for action in range(2):
            transitions[state, action, ends[action]] += 1.0 - slip
            transitions[state, action, ends[1 - action]] += slip
    rewards[states - 1] = [slip, 1.0 - slip]
    transitions[states, :, states] = 1.0
    return FiniteMDP(transitions, rewards, gamma, np.eye(states + 1)[0])


def random_heuristic(mdp: FiniteMDP, seed: int = 7) -> Any:
    return np.random.default_rng(seed).normal(size=mdp.n_states)


def plain_q_learning(
    mdp: FiniteMDP, target: Any, discount: Any, steps: int, horizon: int, exploration: float, rng: Any
) -> NDArray[np.float64]:
    """Q-learning one step at a time; `target(t, s, a, s', Q)` is what a step learns from."""
    q, visits = np.zeros((mdp.n_states, mdp.n_actions)), np.zeros((mdp.n_states, mdp.n_actions))
    assert isinstance(mdp.transitions, np.ndarray)
    terminal = mdp.n_states - 1
    start = int(np.argmax(mdp.initial))
    rng.random(1)
    state, age = start, 0
    for t in range(steps):
        noise = rng.random((mdp.n_actions, 1)).ravel()
        if exploration < 1.0 and not rng.random(1)[0] < exploration:
            noise = np.where(q[state] == q[state].max(), noise, -1.0)
        action = int(np.argmax(noise))
        cumulative = np.cumsum(mdp.transitions[state, action])
        following = int(np.searchsorted(cumulative, rng.random(1)[0], side="right"))
        learned = target(t, state, action, following, q)
        visits[state, action] += 1
        step_size = 1.0 / (1.0 + (1.0 - discount(t)) * (visits[state, action] - 1))
        q[state, action] += step_size * (learned - q[state, action])
        age += 1
        state = following
        if following == terminal or age == horizon:
            rng.random(1)
            state, age = start, 0
    return q


@pytest.mark.parametrize("exploration", [0.3, 1.0])
def test_at_lambda_1_it_is_plain_q_learning_whatever_the_heuristic(exploration: float) -> None:
    mdp = mdp_from_gymnasium("FrozenLake-v1", 0.9)

    def target(_: int, state: int, action: int, following: int, q: Any) -> float:
        end = following == mdp.n_states - 1
        return float(mdp.rewards[state, action] + (0.0 if end else mdp.gamma * q[following].max()))

    expected = plain_q_learning(mdp, target, lambda _: mdp.gamma, 3000, 30, exploration, np.random.default_rng(3))
    assert np.count_nonzero(expected) > 5
    for h in (np.zeros(mdp.n_states), 100.0 * random_heuristic(mdp)):
        result = q_learning(
            mdp,
            h,
            ConstantSchedule(1.0),
            steps=3000,
            steps_per_iteration=500,
            horizon=30,
            rng=np.random.default_rng(3),
            exploration=exploration,
        )
        np.testing.assert_array_equal(result.q[0], expected)


@pytest.mark.parametrize("schedule", [ConstantSchedule(0.0), ConstantSchedule(0.4), LinearSchedule(0.2, iterations=6)])
def test_it_learns_from_what_hurl_reshape_returns(schedule: Schedule) -> None:
    mdp = mdp_from_gymnasium("FrozenLake-v1", 0.9)
    h = random_heuristic(mdp)  # of the terminal state too, where it must not count

    def target(t: int, state: int, action: int, following: int, q: Any) -> float:
        end = following == mdp.n_states - 1
        rewards, discount = hurl.reshape(
            [mdp.rewards[state, action]], [h[following]], [end], gamma=mdp.gamma, lambda_=schedule(t // 500 + 1)
        )
        return float(rewards[0] + (0.0 if end else discount * q[following].max()))

    def discount(t: int) -> float:
        return schedule(t // 500 + 1) * mdp.gamma

    expected = plain_q_learning(mdp, target, discount, 3000, 30, 0.3, np.random.default_rng(4))
    result = q_learning(
        mdp,
        h,
        schedule,
        steps=3000,
        steps_per_iteration=500,
        horizon=30,
        rng=np.random.default_rng(4),
        exploration=0.3,
    )
    np.testing.assert_allclose(result.q[0], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(result.lambdas, [schedule(n) for n in range(1, 7)])


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
def test_it_approaches_the_optimal_values_of_the_reshaped_mdp(lambda_: float) -> None:
    mdp = chain(5, slip=0.2, gamma=0.8)
    h = np.append(random_heuristic(mdp)[:-1], 0.0)
    result = q_learning(
        mdp,
        h,
        ConstantSchedule(lambda_),
        steps=20_000,
        steps_per_iteration=20_000,
        horizon=20,
        rng=np.random.default_rng(0),
        runs=30,
    )
    guided = reshaped(mdp, h, lambda_)
    expected = bellman(guided, optimal(guided).values)
    np.testing.assert_allclose(result.q.mean(axis=0), expected, atol=0.02)


def test_it_reports_the_value_of_the_greedy_policy_in_the_original_mdp() -> None:
    mdp = chain(6, slip=0.1)
    options: dict[str, Any] = {"steps_per_iteration": 250, "horizon": 100, "runs": 3}
    result = q_learning(
        mdp, np.zeros(mdp.n_states), ConstantSchedule(1.0), steps=900, rng=np.random.default_rng(0), **options
    )
    np.testing.assert_array_equal(result.steps, [250, 500, 750, 900])
    assert result.values.shape == (4, 3)
    assert result.q.shape == (3, 7, 2)
    expected = [expectation(mdp, evaluate(mdp, np.argmax(q, axis=1))) for q in result.q]
    np.testing.assert_allclose(result.values[-1], expected)
    assert len(set(expected)) > 1
    assert repr(result).startswith("LearningResult(900 steps of 3 runs, median value ")


def test_episodes_start_from_the_initial_distribution() -> None:
    # Every state pays 1 and ends the episode at once; only 1 and 2 are starts.
    mdp = FiniteMDP(np.eye(4)[np.full((4, 1), 3)], [[1.0], [1.0], [1.0], [0.0]], 0.9, [0.0, 0.5, 0.5, 0.0])
    result = q_learning(
        mdp,
        np.zeros(4),
        ConstantSchedule(1.0),
        steps=60,
        steps_per_iteration=60,
        horizon=9,
        rng=np.random.default_rng(0),
        runs=5,
    )
    np.testing.assert_array_equal(result.q[:, :, 0], np.tile([0.0, 1.0, 1.0, 0.0], (5, 1)))


def test_the_same_generator_gives_the_same_result() -> None:
    mdp = chain(10)
    one, same, other = (
        q_learning(
            mdp,
            optimal(mdp).values,
            ConstantSchedule(0.5),
            steps=500,
            steps_per_iteration=100,
            horizon=100,
            rng=np.random.default_rng(seed),
            runs=4,
        )
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.q, same.q)
    np.testing.assert_array_equal(one.values, same.values)
    assert (one.q != other.q).any()
    assert (one.q[0] != one.q[1]).any()


def test_with_the_optimal_heuristic_a_small_lambda_needs_fewer_samples_on_a_long_chain() -> None:
    mdp = chain(30, gamma=0.97)
    table = sample_complexity(
        mdp,
        {"optimal": optimal(mdp).values},
        [0.0, 0.5, 1.0],
        epsilon=0.01,
        budget=30_000,
        rng=np.random.default_rng(0),
        **{**SETTINGS, "horizon": 1000},
    )
    none, half, full = table.median()[0]
    assert np.isfinite(table.steps).all()
    assert none < full / 10
    assert half < full / 3


def test_with_an_adversarial_heuristic_only_a_large_lambda_gets_there() -> None:
    mdp = chain(8)
    table = sample_complexity(
        mdp,
        {"adversarial": -optimal(mdp).values},
        [0.0, 0.3, 1.0],
        epsilon=0.05,
        budget=20_000,
        rng=np.random.default_rng(0),
        **SETTINGS,
    )
    assert np.isinf(table.steps[0, :2]).all()
    assert np.isfinite(table.steps[0, 2]).all()


def test_a_longer_chain_takes_longer() -> None:
    options = {"epsilon": 0.01, "budget": 20_000, "rng": np.random.default_rng(0), **SETTINGS}
    short, long = (
        np.median(sample_complexity(mdp, {"zero": np.zeros(mdp.n_states)}, [1.0], **options).steps)
        for mdp in (chain(6), chain(18))
    )
    assert 3 * short < long < np.inf


def test_samples_are_counted_to_the_first_evaluation_of_those_that_hold() -> None:
    mdp = chain(6, slip=0.3)
    h, hold, epsilon = random_heuristic(mdp), 3, 0.02
    options: dict[str, Any] = {"horizon": 50, "exploration": 0.5, "runs": 40}
    limits: dict[str, Any] = {"epsilon": epsilon, "budget": 1500, "evaluation_interval": 50, "hold": hold}
    steps = sample_complexity(mdp, {"h": h}, [0.9], rng=np.random.default_rng(2), **limits, **options).steps[0, 0]
    run = q_learning(
        mdp, h, ConstantSchedule(0.9), steps=1500, steps_per_iteration=50, rng=np.random.default_rng(2), **options
    )
    good = run.values >= expectation(mdp, optimal(mdp).values) - epsilon
    expected = []
    for history in good.T:
        held = [index for index in range(len(history) - hold + 1) if history[index : index + hold].all()]
        expected.append(run.steps[held[0]] if held else np.inf)
    np.testing.assert_array_equal(steps, expected)
    assert 0 < np.isinf(steps).sum() < 40
    # Some runs are good for a moment before they stay so: without `hold` they would have counted too early.
    assert (steps > [run.steps[np.argmax(history)] for history in good.T]).any()


def test_a_table_has_a_cell_for_every_heuristic_and_lambda() -> None:
    mdp = chain(5)
    heuristics = {"optimal": optimal(mdp).values, "adversarial": -optimal(mdp).values}
    table = sample_complexity(
        mdp, heuristics, [0.0, 1.0], epsilon=0.01, budget=3000, runs=7, rng=np.random.default_rng(0), **SETTINGS
    )
    assert table.steps.shape == (2, 2, 7)
    assert np.isinf(table.steps[1, 0]).all()
    assert np.isfinite(table.steps[[0, 0, 1], [0, 1, 1]]).all()
    head, *rows = repr(table).splitlines()
    assert head.split() == ["λ=0", "λ=1"]
    assert [row.split()[0] for row in rows] == ["optimal", "adversarial"]
    assert [float(steps) for steps in rows[0].split()[1:]] == table.median()[0].tolist()
    assert rows[1].split()[1] == "inf"


def test_the_reference_heuristics_go_from_best_to_worst() -> None:
    mdp = chain(6, slip=0.1, gamma=0.8)
    batch = sample_batch(mdp, uniform_policy(mdp), 20_000, np.random.default_rng(0), horizon=100)
    found = reference_heuristics(mdp, batch, bonus_scale=0.1)
    assert list(found) == ["optimal", "random", "pessimistic", "zero", "adversarial"]
    best = optimal(mdp).values
    np.testing.assert_array_equal(found["optimal"], best)
    np.testing.assert_array_equal(found["random"], evaluate(mdp, uniform_policy(mdp)))
    np.testing.assert_array_equal(found["adversarial"], -best)
    assert (found["pessimistic"] <= best).all()
    assert found["pessimistic"][5] > 0.5 * best[5]
    assert all(h[-1] == 0.0 for h in found.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        ({"lambdas": [0.5, 1.5]}, r"lambdas must lie in \[0, 1\], got 1.5"),
        ({"lambdas": []}, "number of lambdas must be a whole number from 1 to .*, got 0"),
        ({"heuristics": {}}, "number of heuristics must be a whole number from 1 to .*, got 0"),
        ({"heuristics": {"h": np.zeros(2)}}, r"4 states, got shape \(2,\)"),
        ({"runs": 0}, "runs must be a whole number from 1 to .*, got 0"),
        ({"hold": 0}, "hold must be a whole number from 1 to .*, got 0"),
        ({"budget": 0}, "steps must be a whole number from 1 to .*, got 0"),
        ({"evaluation_interval": 0}, "steps between evaluations must be a whole number from 1 to .*, got 0"),
        ({"horizon": 0}, "horizon must be a whole number from 1 to .*, got 0"),
        ({"exploration": 1.1}, r"exploration must be a number from 0 to 1, got 1.1"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "heuristics": {"h": np.zeros(4)},
        "lambdas": [0.5],
        "epsilon": 0.1,
        "budget": 10,
        "rng": np.random.default_rng(0),
        **SETTINGS,
    }
    sample_complexity(chain(3), **right)
    with pytest.raises(ValueError, match=message):
        sample_complexity(chain(3), **{**right, **options})
