"""Learning on every rung of a ladder at once: what it computes, what it needs, and what its bandit loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hurl.ladder import Ladder
from hurl.schedules import ConstantSchedule
from hurl.tabular.chain import corridor_mdp
from hurl.tabular.ladder import LadderLearner, choice_regret, ladder_q_learning, ladder_sample_complexity
from hurl.tabular.learning import q_learning, sample_complexity
from hurl.tabular.mdp import FiniteMDP, mdp_from_gymnasium
from hurl.tabular.reshaping import reshaped
from hurl.tabular.solve import bellman, evaluate, expectation, optimal

LIMITS: dict[str, Any] = {"epsilon": 0.05, "budget": 16_000, "evaluation_interval": 200, "horizon": 300}
LIMITS |= {"exploration": 0.2, "runs": 10}


def random_mdp(seed: int = 0) -> FiniteMDP:
    """Six states that pay, three actions, no end."""
    rng = np.random.default_rng(seed)
    return FiniteMDP(rng.dirichlet(np.ones(6), size=(6, 3)), rng.random((6, 3)), 0.8, np.eye(6)[0])


def samples(mdp: FiniteMDP, h: Any, ladder: Ladder) -> tuple[Any, float]:
    """The median steps to ε-optimality of each rung alone, and of the ladder."""
    fixed = sample_complexity(mdp, {"h": h}, ladder.rungs, rng=np.random.default_rng(0), **LIMITS)
    steps = ladder_sample_complexity(mdp, {"h": h}, ladder, rng=np.random.default_rng(0), **LIMITS)
    return fixed.median()[0], float(np.median(steps))


def regret(ladder: Ladder, means: Any, episodes: int = 500, repeats: int = 10) -> Any:
    """The mean of the bandit's regret over repeats, with returns of deviation 1."""
    rng = np.random.default_rng(0)
    runs = [choice_regret(ladder, means, 1.0, episodes=episodes, rng=rng) for _ in range(repeats)]
    return np.mean(runs, axis=0)


@pytest.mark.parametrize("exploration", [0.3, 1.0])
def test_a_ladder_of_the_problem_alone_is_plain_q_learning_exactly(exploration: float) -> None:
    mdp = mdp_from_gymnasium("FrozenLake-v1", 0.9)
    h = np.random.default_rng(7).normal(size=mdp.n_states)
    options: dict[str, Any] = {"steps": 3000, "steps_per_iteration": 500, "horizon": 30, "runs": 3}
    options["exploration"] = exploration
    plain = q_learning(mdp, h, ConstantSchedule(1.0), rng=np.random.default_rng(3), **options)
    ladder = ladder_q_learning(mdp, h, Ladder(1.0), rng=np.random.default_rng(3), **options)
    assert np.count_nonzero(plain.q) > 5
    np.testing.assert_array_equal(ladder.q[:, 0], plain.q)
    np.testing.assert_array_equal(ladder.values[:, :, 0], plain.values)


def test_every_rung_approaches_the_optimal_values_of_its_reshaped_mdp_from_the_same_transitions() -> None:
    mdp, ladder = random_mdp(), Ladder(0.0, 0.5, 1.0)
    h = np.random.default_rng(1).normal(size=mdp.n_states)
    result = ladder_q_learning(
        mdp,
        h,
        ladder,
        steps=8_000,
        steps_per_iteration=8_000,
        horizon=20,
        exploration=0.5,
        rng=np.random.default_rng(0),
        runs=20,
    )
    assert result.q.shape == (20, 3, 6, 3)
    for number, rung in enumerate(ladder.rungs):
        guided = reshaped(mdp, h, rung)
        expected = bellman(guided, optimal(guided).values)
        np.testing.assert_allclose(result.q[:, number].mean(axis=0), expected, atol=0.05)


def test_the_last_rung_finds_the_optimum_whatever_the_heuristic_is() -> None:
    mdp = corridor_mdp(6, slip=0.0, gamma=0.95)
    best = optimal(mdp).values
    noise = 10.0 * np.random.default_rng(2).normal(size=mdp.n_states)
    for h in (-best, noise):
        result = ladder_q_learning(
            mdp,
            h,
            Ladder(0.3, 1.0),
            steps=4_000,
            steps_per_iteration=4_000,
            horizon=100,
            exploration=0.3,
            rng=np.random.default_rng(0),
            runs=5,
        )
        np.testing.assert_allclose(result.values[-1, :, 1], expectation(mdp, best))
        # Where the other rung is misled for good, the bandit holds the last one best.
        chosen = np.take_along_axis(result.values[-1], result.best[-1][:, None], axis=1)
        np.testing.assert_allclose(chosen, expectation(mdp, best))


def test_a_reversed_heuristic_costs_a_few_times_the_samples_of_the_problem_itself() -> None:
    mdp = corridor_mdp(12, slip=0.1, gamma=0.98)
    (guided, plain), ladder = samples(mdp, -optimal(mdp).values, Ladder(0.7, 1.0))
    assert guided == np.inf
    assert ladder <= 4.0 * plain


def test_with_a_good_heuristic_a_ladder_is_nearer_to_the_best_rung_than_to_the_worst() -> None:
    mdp = corridor_mdp(20, slip=0.1, gamma=0.98)
    fixed, ladder = samples(mdp, optimal(mdp).values, Ladder(0.0, 0.7, 1.0))
    best, worst = fixed.min(), fixed.max()
    assert worst > 5 * best
    assert ladder / best < worst / ladder


def test_the_rungs_that_suit_the_discount_stand_in_where_none_are_named() -> None:
    mdp = random_mdp()
    h = optimal(mdp).values
    options: dict[str, Any] = {"steps": 500, "steps_per_iteration": 100, "horizon": 20, "exploration": 0.3, "runs": 2}
    unnamed = ladder_q_learning(mdp, h, Ladder(), rng=np.random.default_rng(0), **options)
    named = ladder_q_learning(mdp, h, Ladder().for_gamma(0.8), rng=np.random.default_rng(0), **options)
    np.testing.assert_array_equal(unnamed.q, named.q)


def test_the_result_tells_the_value_of_every_rung_and_how_often_each_acted() -> None:
    mdp = random_mdp()
    result = ladder_q_learning(
        mdp,
        np.zeros(6),
        Ladder(0.5, 1.0),
        steps=900,
        steps_per_iteration=400,
        horizon=20,
        exploration=0.3,
        rng=np.random.default_rng(0),
        runs=3,
    )
    np.testing.assert_array_equal(result.steps, [400, 800, 900])
    assert result.values.shape == (3, 3, 2)
    np.testing.assert_array_equal(result.episodes.sum(axis=1), 900 // 20)
    assert (result.episodes >= 4).all()
    expected = [[expectation(mdp, evaluate(mdp, np.argmax(q, axis=1))) for q in rungs] for rungs in result.q]
    np.testing.assert_allclose(result.values[-1], expected)
    assert repr(result).startswith("LadderResult(900 steps of 3 runs on 2 rungs, median value ")


@pytest.mark.parametrize(("episodes_per_block", "closed", "left"), [(10, 2, 5), (4, 6, 1)])
def test_the_bandit_is_told_discounted_returns_of_the_problem_itself_in_blocks_of_so_many_episodes(
    episodes_per_block: int, closed: int, left: int
) -> None:
    # Both rungs pass the same states, two of which pay 1; h is huge and must not count.
    mdp = FiniteMDP(np.eye(3)[[[1], [2], [2]]], [[1.0], [1.0], [0.0]], 0.5, [1.0, 0.0, 0.0])
    learner = LadderLearner(
        mdp,
        np.full((1, 3), 1e6),
        Ladder(0.0, 1.0),
        horizon=10,
        exploration=1.0,
        rng=np.random.default_rng(0),
        episodes_per_block=episodes_per_block,
    )
    list(learner.learn(lambda _: learner.rungs, 50, 50))
    (bandit,) = learner.bandits
    assert bandit.closed == closed
    assert [total for returns in bandit.current for total in returns] == [1.5] * left
    assert {mean for blocks in bandit.blocks for mean in blocks} == {1.5}


@pytest.mark.parametrize("exploration", [0.0, 0.1])
@pytest.mark.parametrize(("means", "open_phase"), [([0.0, 2.0], 60), ([2.0, 0.0], 60)])
def test_a_clear_gap_costs_some_blocks_and_from_then_on_the_share_of_exploration(
    means: list[float], open_phase: int, exploration: float
) -> None:
    lost = regret(Ladder(0.9, 1.0, exploration=exploration), means) / 2.0
    assert lost[199] < open_phase  # episodes, half of them while it is open
    assert lost[-1] - lost[199] == pytest.approx(exploration * 300, abs=6)


def test_a_gap_far_below_the_noise_stays_open_and_loses_about_half_of_it() -> None:
    lost = regret(Ladder(0.9, 1.0), [0.0, 0.05], repeats=40) / 0.05
    assert 0.4 * 500 < lost[-1] < 0.55 * 500


def test_a_rung_that_overtakes_is_noticed_by_exploration_alone() -> None:
    means = np.where(np.arange(800)[:, None] < 200, [0.0, -3.0], [0.0, 3.0])
    exploring = regret(Ladder(0.9, 1.0, exploration=0.1), means, 800) / 3.0
    assert exploring[499] - exploring[199] < 150
    assert exploring[-1] - exploring[499] == pytest.approx(0.1 * 300, abs=6)
    blind = regret(Ladder(0.9, 1.0, exploration=0.0), means, 800) / 3.0
    assert blind[-1] - blind[199] > 0.9 * 600


def test_a_best_rung_that_falls_behind_is_left_within_a_few_blocks_even_without_exploration() -> None:
    means = np.where(np.arange(500)[:, None] < 200, [0.0, 3.0], [0.0, -3.0])
    lost = regret(Ladder(0.9, 1.0, exploration=0.0), means) / 3.0
    assert lost[-1] - lost[199] < 60


def test_it_repeats_exactly() -> None:
    mdp = corridor_mdp(8, slip=0.1, gamma=0.95)
    options: dict[str, Any] = LIMITS | {"budget": 3000}
    one, same, other = (
        ladder_sample_complexity(
            mdp, {"h": -optimal(mdp).values}, Ladder(0.5, 1.0), rng=np.random.default_rng(seed), **options
        )
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        ({"heuristics": {}}, "number of heuristics must be a whole number from 1 to .*, got 0"),
        ({"heuristics": {"h": np.zeros(3)}}, "one value for each of 9 states"),
        ({"runs": 0}, "runs must be a whole number from 1 to .*, got 0"),
        ({"hold": 0}, "hold must be a whole number from 1 to .*, got 0"),
        ({"exploration": 1.5}, r"exploration must be a number from 0 to 1, got 1.5"),
        ({"episodes_per_block": 0}, "episodes_per_block must be a whole number from 1 to .*, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    mdp = corridor_mdp(8, slip=0.1, gamma=0.95)
    arguments: dict[str, Any] = {"heuristics": {"h": np.zeros(9)}, "ladder": Ladder(0.5, 1.0)}
    arguments |= {"rng": np.random.default_rng(0)} | LIMITS
    with pytest.raises(ValueError, match=message):
        ladder_sample_complexity(mdp, **arguments | options)


def test_means_of_another_number_of_rungs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Ladder\(0.9, 1\) has 2 rungs .* got shape \(3,\)"):
        choice_regret(Ladder(0.9, 1.0), [0.0, 1.0, 2.0], 1.0, episodes=10, rng=np.random.default_rng(0))


def test_regret_with_blocks_of_no_episodes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"episodes_per_block must be a whole number from 1 to .*, got 0"):
        choice_regret(
            Ladder(0.9, 1.0), [0.0, 1.0], 1.0, episodes=10, rng=np.random.default_rng(0), episodes_per_block=0
        )
