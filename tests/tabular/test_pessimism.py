"""Heuristics from a batch: the pessimistic ones keep Q ≤ B h, the naive one does not, and all approach V* with data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hurl.tabular.mdp import FiniteMDP, mdp_from_gymnasium
from hurl.tabular.pessimism import (
    Batch,
    BatchHeuristic,
    absorbing_values,
    monte_carlo_values,
    naive_values,
    pessimistic_values,
)
from hurl.tabular.simulate import Simulator, sample_batch
from hurl.tabular.solve import average_distribution, bellman, evaluate, optimal, uniform_policy
from hurl.tabular.theory import bellman_pessimism, is_bellman_pessimistic, is_improvable
from tests.tabular.strategies import mdps, seeds, thorough

DELTA = 0.1


def random_mdp(seed: int, states: int = 6, actions: int = 2, gamma: float = 0.8) -> FiniteMDP:
    """Full support, rewards in [0, 1], every state a start."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(states), size=(states, actions))
    return FiniteMDP(transitions, rng.random((states, actions)), gamma, np.full(states, 1.0 / states))


def random_chain(seed: int, states: int = 8, gamma: float = 0.9) -> FiniteMDP:
    """States in a row, left and right with random slips, random costs and a terminal state at the end."""
    rng = np.random.default_rng(seed)
    transitions, rewards = np.zeros((states, 2, states)), -rng.random((states, 2))
    for state in range(states - 1):
        slip = 0.4 * rng.random()
        for action, (there, back) in enumerate([(max(state - 1, 0), state + 1), (state + 1, max(state - 1, 0))]):
            transitions[state, action, there] += 1.0 - slip
            transitions[state, action, back] += slip
    transitions[-1, :, -1], rewards[-1] = 1.0, 0.0
    return FiniteMDP(transitions, rewards, gamma, np.full(states, 1.0 / states))


def violation(mdp: FiniteMDP, found: BatchHeuristic) -> float:
    """The largest Q(s, a) − (B h)(s, a) in the true MDP."""
    return -bellman_pessimism(mdp, found.q, found.policy).consistency


def frozen_lake() -> FiniteMDP:
    return mdp_from_gymnasium("FrozenLake-v1", 0.9)


def uniform_batch(mdp: FiniteMDP, size: int, seed: int) -> Batch:
    return sample_batch(mdp, uniform_policy(mdp), size, np.random.default_rng(seed), horizon=50)


def reward_range(mdp: FiniteMDP) -> tuple[float, float]:
    return float(mdp.rewards.min()), float(mdp.rewards.max())


def careful(mdp: FiniteMDP, batch: Batch) -> BatchHeuristic:
    """Plan with the scale for which the docstring promises Q ≤ B h with probability 1 − δ."""
    scale = math.sqrt(1.0 + mdp.n_states * math.log(2.0) / math.log(mdp.rewards.size * len(batch) / DELTA))
    return pessimistic_values(
        batch, gamma=mdp.gamma, reward_range=reward_range(mdp), failure_probability=DELTA, bonus_scale=scale
    )


def plain_pessimistic_q(mdp: FiniteMDP, batch: Batch, scale: float) -> Any:
    """The docstring's equation, one pair at a time, iterated from the lowest value."""
    low, high = (reward / (1.0 - mdp.gamma) for reward in reward_range(mdp))
    q = np.full(mdp.rewards.shape, low)
    ended = set(batch.next_states[batch.terminated])
    q[list(ended)] = 0.0
    samples: dict[tuple[int, int], list[int]] = {}
    for t, pair in enumerate(zip(batch.states, batch.actions, strict=True)):
        samples.setdefault(pair, []).append(t)
    for _ in range(400):
        h = q.max(axis=1)
        for pair, times in samples.items():
            backup = np.mean(batch.rewards[times] + mdp.gamma * h[batch.next_states[times]])
            logarithm = np.log(q.size * len(batch) / DELTA)
            q[pair] = max(low, backup - scale * (high - low) * np.sqrt(logarithm / (2 * len(times))))
    return q


@pytest.mark.parametrize("scale", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("make", [random_mdp, random_chain])
def test_pessimistic_values_solve_their_equation(make: Any, scale: float) -> None:
    mdp = make(3)
    batch = uniform_batch(mdp, 150, 3)
    found = pessimistic_values(
        batch, gamma=mdp.gamma, reward_range=reward_range(mdp), failure_probability=DELTA, bonus_scale=scale
    )
    expected = plain_pessimistic_q(mdp, batch, scale)
    np.testing.assert_allclose(found.q, expected, atol=1e-9)
    np.testing.assert_allclose(found.h, expected.max(axis=1), atol=1e-9)
    np.testing.assert_array_equal(found.q[np.arange(mdp.n_states), found.policy], found.h)


@thorough
@given(mdps(), seeds(), st.integers(1, 2000))
def test_with_the_careful_bonus_q_is_below_b_h(mdp: FiniteMDP, rng: np.random.Generator, size: int) -> None:
    assume(not Simulator(mdp).terminal[mdp.initial > 0].all())
    found = careful(mdp, sample_batch(mdp, uniform_policy(mdp), size, rng, horizon=20))
    scale = max(1.0, float(np.abs(found.q).max()))
    assert violation(mdp, found) <= 1e-9 * scale
    assert is_improvable(mdp, found.h, tolerance=1e-7)
    assert (found.h <= evaluate(mdp, found.policy) + 1e-7 * scale).all()


@pytest.mark.parametrize("make", [random_mdp, random_chain, lambda _: frozen_lake()])
@pytest.mark.parametrize("seed", range(10))
def test_a_moderate_bonus_is_pessimistic_and_says_something(make: Any, seed: int) -> None:
    mdp = make(seed)
    lowest = mdp.rewards.min() / (1.0 - mdp.gamma)
    found = pessimistic_values(
        uniform_batch(mdp, 100_000, seed), gamma=mdp.gamma, reward_range=reward_range(mdp), bonus_scale=0.15
    )
    assert is_bellman_pessimistic(mdp, found.q, found.policy)
    best = optimal(mdp).values
    assert (found.h <= best + 1e-9).all()
    assert found.h.max() > lowest + 0.3 * (best.max() - lowest)


@thorough
@given(mdps(), seeds(), st.integers(1, 300))
def test_support_alone_is_pessimistic_where_the_mdp_is_deterministic(
    mdp: FiniteMDP, rng: np.random.Generator, size: int
) -> None:
    following = rng.integers(mdp.n_states, size=mdp.rewards.shape)
    mdp = FiniteMDP(np.eye(mdp.n_states)[following], mdp.rewards, mdp.gamma, mdp.initial)
    assume(not Simulator(mdp).terminal[mdp.initial > 0].all())
    batch = sample_batch(mdp, uniform_policy(mdp), size, rng, horizon=20)
    found = absorbing_values(batch, gamma=mdp.gamma, reward_range=reward_range(mdp), minimum_count=1)
    assert is_bellman_pessimistic(mdp, found.q, found.policy)
    known = (batch.counts >= 1) & ~Simulator(mdp).terminal[:, None]
    np.testing.assert_allclose(found.q[known], bellman(mdp, found.h)[known], rtol=1e-8, atol=1e-8)


def test_absorbing_values_give_the_lowest_value_to_pairs_without_support() -> None:
    mdp = random_mdp(0)
    batch = uniform_batch(mdp, 300, 0)
    median = int(np.median(batch.counts))
    found = absorbing_values(batch, gamma=mdp.gamma, reward_range=(-0.5, 1.0), minimum_count=median)
    rare = batch.counts < median
    assert rare.any()
    np.testing.assert_allclose(found.q[rare], -0.5 / (1.0 - mdp.gamma))
    supported = absorbing_values(batch, gamma=mdp.gamma, reward_range=(-0.5, 1.0), minimum_count=1)
    assert (found.h <= supported.h + 1e-9).all()
    assert (found.h < supported.h - 1e-3).any()


def test_more_support_leaves_smaller_violations() -> None:
    mdp = random_mdp(1)
    violations = []
    for minimum, size in ((5, 150), (500, 15_000), (50_000, 1_500_000)):
        found = [
            absorbing_values(
                uniform_batch(mdp, size, seed), gamma=mdp.gamma, reward_range=(0, 1), minimum_count=minimum
            )
            for seed in range(3)
        ]
        violations.append(np.median([violation(mdp, one) for one in found]))
    assert violations[0] > 4 * violations[1] > 16 * violations[2] > 0


@pytest.mark.parametrize(("make", "size"), [(random_mdp, 100), (random_chain, 100), (lambda _: frozen_lake(), 2000)])
def test_the_naive_values_overestimate(make: Any, size: int) -> None:
    violations, above = [], []
    for seed in range(10):
        mdp = make(seed)
        found = naive_values(uniform_batch(mdp, size, seed), gamma=mdp.gamma)
        violations.append(violation(mdp, found))
        above.append((found.h - optimal(mdp).values).max())
    assert min(violations) > 1e-6
    assert np.median(violations) > 0.05
    assert np.median(above) > 0.05


def test_unseen_pairs_are_worth_nothing_to_the_naive_one_and_the_least_to_the_others() -> None:
    mdp = mdp_from_gymnasium("CliffWalking-v1", 0.9)
    batch = uniform_batch(mdp, 500, 0)
    unseen = (batch.counts == 0) & ~Simulator(mdp).terminal[:, None]
    assert unseen.any()
    naive = naive_values(batch, gamma=mdp.gamma)
    assert (naive.q[unseen] == 0.0).all()
    assert not is_bellman_pessimistic(mdp, naive.q, naive.policy)
    for found in (
        pessimistic_values(batch, gamma=mdp.gamma, reward_range=(-100, 0), bonus_scale=0.01),
        absorbing_values(batch, gamma=mdp.gamma, reward_range=(-100, 0), minimum_count=1),
    ):
        np.testing.assert_allclose(found.q[unseen], -1000.0)
        assert is_bellman_pessimistic(mdp, found.q, found.policy)
        # The end is seen to be the end: nothing is lost there.
        assert not batch.terminated.any() or (found.q[-1] == 0.0).all()


def test_a_terminal_state_of_the_batch_is_worth_nothing() -> None:
    batch = Batch([0, 1], [0, 0], [-1.0, -1.0], [1, 2], [False, True], [False, False], n_states=4, n_actions=1)  # type: ignore[arg-type]
    found = absorbing_values(batch, gamma=0.5, reward_range=(-1, 0), minimum_count=1)
    np.testing.assert_allclose(found.h, [-1.5, -1.0, 0.0, -2.0])
    np.testing.assert_allclose(monte_carlo_values(batch, gamma=0.5), [-1.5, -1.0, 0.0, 0.0])


@pytest.mark.parametrize("make", [random_mdp, random_chain])
def test_all_approach_the_truth_with_data(make: Any) -> None:
    mdp = make(5)
    best = optimal(mdp).values
    scale = np.abs(best).max()
    errors = []
    for size in (2_000, 32_000, 512_000):
        batch = uniform_batch(mdp, size, 5)
        common = {"gamma": mdp.gamma, "reward_range": reward_range(mdp)}
        found = (
            pessimistic_values(batch, **common, bonus_scale=0.1).h,  # type: ignore[arg-type]
            absorbing_values(batch, **common, minimum_count=10).h,  # type: ignore[arg-type]
            naive_values(batch, gamma=mdp.gamma).h,
        )
        errors.append([np.abs(h - best).max() / scale for h in found])
    start, _, end = np.array(errors)
    # 256 times the data is a 16th of the error, by the square root; a 4th leaves room for luck.
    assert (end[[0, 2]] < start[[0, 2]] / 4).all()
    assert end[0] < 0.1
    assert end[1] < 0.01
    assert end[2] < 0.01


@pytest.mark.parametrize("make", [random_mdp, random_chain])
def test_monte_carlo_approaches_the_value_of_the_behaviour_but_for_what_is_cut_off(make: Any) -> None:
    mdp = make(5)
    behaved = evaluate(mdp, uniform_policy(mdp))
    errors = []
    for size, horizon in ((2_000, 1_000), (200_000, 1_000), (200_000, 5)):
        batch = sample_batch(mdp, uniform_policy(mdp), size, np.random.default_rng(0), horizon=horizon)
        errors.append(np.abs(monte_carlo_values(batch, gamma=mdp.gamma) - behaved).max() / np.abs(behaved).max())
    assert errors[1] < 0.02 < errors[0]
    assert errors[2] > 0.2


def test_monte_carlo_is_the_mean_return_of_visits() -> None:
    batch = Batch(
        np.array([0, 1, 0, 0]),
        np.array([0, 0, 0, 0]),
        np.array([1.0, 2.0, 4.0, 8.0]),
        np.array([1, 0, 0, 1]),
        np.array([False, False, False, False]),
        np.array([False, True, False, False]),
        n_states=3,
        n_actions=1,
    )
    # Returns: 1 + 0.5·2 = 2, 2, 4 + 0.5·8 = 8, 8.
    np.testing.assert_allclose(monte_carlo_values(batch, gamma=0.5), [6.0, 2.0, 0.0])


def test_monte_carlo_refuses_transitions_out_of_order() -> None:
    batch = Batch(*np.array([[0, 2], [0, 0], [0, 0], [1, 2], [0, 0], [0, 0]]), n_states=3, n_actions=1)
    with pytest.raises(ValueError, match="transition 0 neither ends its episode"):
        monte_carlo_values(batch, gamma=0.5)


@thorough
@given(mdps(), seeds(), st.integers(1, 300), st.integers(1, 15))
def test_a_sampled_batch_is_made_of_episodes(mdp: FiniteMDP, rng: np.random.Generator, size: int, horizon: int) -> None:
    terminal = Simulator(mdp).terminal
    assume(not terminal[mdp.initial > 0].all())
    batch = sample_batch(mdp, uniform_policy(mdp), size, rng, horizon=horizon)
    assert len(batch) == size
    starts = np.concatenate([[True], batch.ends[:-1]])
    lengths = np.diff(np.append(np.flatnonzero(starts), size))
    assert lengths.max() <= horizon
    assert (mdp.initial[batch.states[starts]] > 0).all()
    assert (batch.states[1:] == batch.next_states[:-1])[~starts[1:]].all()
    np.testing.assert_array_equal(batch.terminated, terminal[batch.next_states])
    assert not (batch.terminated & batch.truncated).any()
    # An episode that did not terminate was cut off at the horizon, or by the end of the batch.
    cut_off = np.flatnonzero(batch.truncated)
    assert (lengths[np.searchsorted(np.flatnonzero(batch.ends), cut_off)][cut_off < size - 1] == horizon).all()
    possible = _probabilities(mdp)
    assert (possible[batch.states, batch.actions, batch.next_states] > 0).all()
    np.testing.assert_array_equal(batch.rewards, mdp.rewards[batch.states, batch.actions])


def _probabilities(mdp: FiniteMDP) -> Any:
    matrix = mdp.matrix.toarray() if mdp.is_sparse else mdp.matrix
    return matrix.reshape(mdp.n_states, mdp.n_actions, mdp.n_states)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_sampled_batch_follows_policy_and_transitions(deterministic: bool) -> None:
    mdp = random_mdp(2, states=4, actions=3)
    policy = np.array([2, 0, 1, 2]) if deterministic else np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    batch = sample_batch(mdp, policy, 400_000, np.random.default_rng(1), horizon=200)
    counts = batch.counts
    probabilities = np.eye(3)[policy] if deterministic else policy
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), probabilities, atol=0.01)
    moves = np.zeros((4, 3, 4))
    np.add.at(moves, (batch.states, batch.actions, batch.next_states), 1)
    tried = counts > 5000
    np.testing.assert_allclose((moves[tried].T / counts[tried]).T, _probabilities(mdp)[tried], atol=0.03)
    # Long episodes: the states are visited as in the undiscounted average.
    visits = average_distribution(FiniteMDP(mdp.transitions, mdp.rewards, 0.995, mdp.initial), policy)
    np.testing.assert_allclose(np.bincount(batch.states) / len(batch), visits, atol=0.01)


def test_the_simulator_draws_only_what_is_possible_at_the_ends_of_the_unit_interval() -> None:
    short = 1.0 - 5e-10  # as near to 1 as an MDP asks for
    transitions = [[[0.0, short, 0.0]], [[0.5, 0.0, 0.5]], [[1.0, 0.0, 0.0]]]
    mdp = FiniteMDP(transitions, np.ones((3, 1)), 0.9, [0.0, short, 0.0])
    simulator = Simulator(mdp)
    states, actions, below_one = np.array([0, 1, 2]), np.zeros(3, int), np.nextafter(1.0, 0.0)
    np.testing.assert_array_equal(simulator.step(states, actions, np.zeros(3)), [1, 0, 0])
    np.testing.assert_array_equal(simulator.step(states, actions, np.full(3, below_one)), [1, 2, 0])
    np.testing.assert_array_equal(simulator.start(np.array([0.0, below_one])), [1, 1])


def test_an_absorbing_state_that_pays_is_not_terminal() -> None:
    stay = np.eye(2)[:, None, :]
    mdp = FiniteMDP(stay, [[1.0], [0.0]], 0.9, [0.5, 0.5])
    np.testing.assert_array_equal(Simulator(mdp).terminal, [False, True])
    batch = sample_batch(mdp, np.array([0, 0]), 7, np.random.default_rng(0), horizon=5)
    assert (batch.states == 0).all()
    np.testing.assert_array_equal(np.flatnonzero(batch.truncated), [4, 6])


def test_the_same_generator_gives_the_same_batch() -> None:
    one, same, other = (uniform_batch(frozen_lake(), 500, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.next_states, same.next_states)
    assert (one.next_states != other.next_states).any()


def test_they_read_well() -> None:
    batch = Batch(*np.array([[0, 1], [0, 0], [0, 0], [1, 2], [0, 1], [0, 0]]), n_states=3, n_actions=2)
    assert repr(batch) == "Batch(2 transitions, 1 episodes, 2 of 6 pairs of 3 states and 2 actions)"
    assert repr(naive_values(batch, gamma=0.5)) == "BatchHeuristic(3 states, h from 0 to 0)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": [0.5, 1.0]}, "states must be integers, got float64"),
        ({"states": [0, 3]}, r"states must lie in 0…2, got 3"),
        ({"actions": [0, -1]}, r"actions must lie in 0…1, got -1"),
        ({"rewards": [0.0, np.nan]}, "rewards must be finite, got nan"),
        ({"terminated": [False]}, r"one length, at least 1: states \(2,\), terminated \(1,\)"),
        ({"terminated": [True, False]}, "state 1 is terminal in one transition and acted in in another"),
    ],
)
def test_a_batch_refuses_what_is_wrong(change: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {
        "states": [0, 1],
        "actions": [0, 0],
        "rewards": [0.0, 0.0],
        "next_states": [1, 2],
        "terminated": [False, True],
        "truncated": [False, False],
    }
    Batch(**columns, n_states=3, n_actions=2)
    with pytest.raises(ValueError, match=message):
        Batch(**{**columns, **change}, n_states=3, n_actions=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), got 1.0"),
        ({"reward_range": (1.0, 0.0)}, r"the smaller first, got \(1.0, 0.0\)"),
        ({"reward_range": (0.0, 0.5)}, r"outside reward_range \(0.0, 0.5\)"),
        ({"reward_range": (0.01, 1.0)}, "rewards from 0.0 to 1.0, outside"),
        ({"failure_probability": 0.0}, r"failure_probability must be a number above 0 to below 1, got 0.0"),
        ({"bonus_scale": -1.0}, "bonus_scale must be a finite number that is not negative, got -1.0"),
    ],
)
def test_planning_refuses_what_is_wrong(options: dict[str, Any], message: str) -> None:
    batch = Batch(*np.array([[0, 1], [0, 0], [1, 1], [1, 2], [0, 1], [0, 0]]), n_states=3, n_actions=2)
    with pytest.raises(ValueError, match=message):
        pessimistic_values(batch, **{"gamma": 0.9, "reward_range": (0.0, 1.0), **options})


def test_the_others_refuse_what_is_wrong() -> None:
    mdp = frozen_lake()
    batch = uniform_batch(mdp, 10, 0)
    with pytest.raises(ValueError, match=r"minimum_count must be a whole number from 1 to .*, got 0"):
        absorbing_values(batch, gamma=0.9, reward_range=(0, 1), minimum_count=0)
    with pytest.raises(ValueError, match=r"horizon must be a whole number from 1 to .*, got 0"):
        sample_batch(mdp, uniform_policy(mdp), 10, np.random.default_rng(0), horizon=0)
    with pytest.raises(ValueError, match=r"Q has shape \(6, 2\), got \(17, 4\)"):
        violation(random_mdp(0), naive_values(batch, gamma=0.9))
    over = FiniteMDP(mdp.transitions, mdp.rewards, 0.9, np.eye(17)[16])
    with pytest.raises(ValueError, match="every initial state is terminal"):
        sample_batch(over, uniform_policy(over), 10, np.random.default_rng(0), horizon=5)
