from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from hurl.tabular import solve
from hurl.tabular.mdp import FiniteMDP, mdp_from_gymnasium
from hurl.tabular.solve import (
    action_values,
    average_distribution,
    bellman,
    evaluate,
    expectation,
    greedy,
    optimal,
    uniform_policy,
)
from tests.tabular.strategies import thorough

GAMMAS = [0.0, 0.5, 0.9, 0.99, 0.999]


def random_mdp(seed: int, states: int, actions: int, gamma: float, kind: str) -> FiniteMDP:
    """Draw an MDP: `dense`, `sparse` with few successors, `deterministic`, `periodic`, or with `absorbing` states."""
    rng = np.random.default_rng(seed)
    if kind == "dense":
        transitions = rng.dirichlet(np.ones(states), (states, actions))
    else:
        successors = {"periodic": (np.arange(states)[:, None] + 1 + np.arange(actions)) % states}.get(
            kind, rng.integers(states, size=(states, actions))
        )
        transitions = np.eye(states)[successors]
        if kind in ("sparse", "absorbing"):
            weight = rng.random((states, actions, 1))
            transitions = (
                weight * transitions + (1 - weight) * np.eye(states)[rng.integers(states, size=(states, actions))]
            )
        if kind == "absorbing":
            transitions[: (states + 1) // 2] = np.eye(states)[: (states + 1) // 2, None]
    # Small integers make ties.
    rewards = rng.integers(-2, 3, (states, actions)) if seed % 2 else rng.normal(0.0, 10.0, (states, actions))
    initial = rng.dirichlet(np.ones(states))
    if kind == "sparse":
        return FiniteMDP([sparse.csr_array(transitions[:, a]) for a in range(actions)], rewards, gamma, initial)
    return FiniteMDP(transitions, rewards, gamma, initial)


def mdps(states: int = 12, actions: int = 4) -> st.SearchStrategy[FiniteMDP]:
    kinds = st.sampled_from(["dense", "sparse", "deterministic", "periodic", "absorbing"])
    return st.builds(
        random_mdp,
        st.integers(0, 10**6),
        st.integers(2, states),
        st.integers(1, actions),
        st.sampled_from(GAMMAS),
        kinds,
    )


def random_policy(mdp: FiniteMDP, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.n_actions), mdp.n_states)


def dense(mdp: FiniteMDP) -> np.ndarray:
    return np.asarray(mdp.matrix.toarray() if mdp.is_sparse else mdp.matrix).reshape(mdp.n_states, mdp.n_actions, -1)


def as_sparse(mdp: FiniteMDP) -> FiniteMDP:
    matrices = [sparse.csr_array(dense(mdp)[:, action]) for action in range(mdp.n_actions)]
    return FiniteMDP(matrices, mdp.rewards, mdp.gamma, mdp.initial)


def best_of_all_policies(mdp: FiniteMDP) -> np.ndarray:
    """V*: the highest value in each state over every deterministic policy."""
    states = np.arange(mdp.n_states)
    best = np.full(mdp.n_states, -np.inf)
    for actions in product(range(mdp.n_actions), repeat=mdp.n_states):
        chain = dense(mdp)[states, actions]
        values = np.linalg.solve(np.eye(mdp.n_states) - mdp.gamma * chain, mdp.rewards[states, actions])
        best = np.maximum(best, values)
    return best


def residual(mdp: FiniteMDP, policy: np.ndarray, values: np.ndarray) -> float:
    transitions, rewards = mdp.under(policy)
    left = rewards + mdp.gamma * (transitions @ values) - values
    return float(np.abs(left).max() / max(np.abs(rewards).max(), np.abs(values).max()))


@thorough
@given(mdps(), st.integers(0, 1000))
def test_values_are_the_discounted_sum_of_rewards(mdp, seed):
    policy = random_policy(mdp, seed)
    transitions = np.einsum("sa,sat->st", policy, dense(mdp))
    rewards = (policy * mdp.rewards).sum(axis=1)
    # Σ_{t<2ᵏ} (γP)ᵗ r, doubled until γ^(2ᵏ) is nothing.
    values, power = rewards, mdp.gamma * transitions
    for _ in range(17):
        values, power = values + power @ values, power @ power
    assert np.allclose(evaluate(mdp, policy), values, rtol=1e-9, atol=1e-9 * np.abs(values).max())
    expected = mdp.rewards + mdp.gamma * np.einsum("sat,t->sa", dense(mdp), values)
    assert np.allclose(action_values(mdp, policy), expected, rtol=1e-9, atol=1e-9 * np.abs(values).max())


@thorough
@given(mdps(), st.integers(0, 1000), st.sampled_from([None, 0.0, 0.3, 0.95]))
def test_the_average_distribution_is_the_discounted_sum_of_those_in_time(mdp, seed, discount):
    policy = random_policy(mdp, seed)
    gamma = mdp.gamma if discount is None else discount
    mdp = FiniteMDP(mdp.transitions, mdp.rewards, gamma, mdp.initial)
    power = gamma * np.einsum("sa,sat->ts", policy, dense(mdp))
    expected = (1 - gamma) * mdp.initial
    for _ in range(17):
        expected, power = expected + power @ expected, power @ power
    distribution = average_distribution(mdp, policy)
    assert np.allclose(distribution, expected, rtol=1e-9, atol=1e-12)
    assert distribution.min() >= 0
    assert distribution.sum() == pytest.approx(1.0, rel=1e-9)
    if gamma < 0.999:  # V^π(d0) = E_{d^π}[r]/(1 − γ)
        rewards = (policy * mdp.rewards).sum(axis=1)
        value = expectation(mdp, evaluate(mdp, policy))
        scale = np.abs(rewards).max() / (1 - gamma)
        assert value == pytest.approx(expectation(mdp, rewards, distribution) / (1 - gamma), rel=1e-9, abs=1e-9 * scale)


@thorough
@given(mdps(), st.integers(0, 1000))
def test_dense_and_sparse_have_the_same_solutions(mdp, seed):
    policy, other = random_policy(mdp, seed), as_sparse(mdp)
    actions = greedy(mdp, np.zeros(mdp.n_states))
    scale = max(np.abs(mdp.rewards).max(), 1e-300) / (1 - mdp.gamma)
    for either in (policy, actions):
        assert np.allclose(evaluate(mdp, either), evaluate(other, either), rtol=0, atol=1e-10 * scale)
        assert np.allclose(average_distribution(mdp, either), average_distribution(other, either), rtol=0, atol=1e-10)
    assert np.allclose(optimal(mdp).values, optimal(other).values, rtol=0, atol=1e-10 * scale)


@thorough
@given(mdps(states=5, actions=3))
@pytest.mark.parametrize("method", ["policy iteration", "modified policy iteration"])
def test_optimal_values_are_the_best_of_all_policies(method, mdp):
    """Each value within the error bound, and within the tolerance or what rounding allows."""
    if method == "policy iteration":
        solution = solve._policy_iteration(mdp)
    else:
        solution = solve._modified_policy_iteration(mdp, 1e-10)
    best = best_of_all_policies(mdp)
    exactness = 1e-14 * np.abs(best).max() / (1 - mdp.gamma)  # of the brute force itself
    assert np.abs(solution.values - best).max() <= solution.error_bound + exactness
    assert solution.error_bound <= max(1e-10, 2 * exactness)
    assert np.abs(evaluate(mdp, solution.policy) - best).max() <= 2 * solution.error_bound + exactness


@thorough
@given(mdps(states=8), st.sampled_from([1e-6, 1e-3, 0.1, 10.0]))
def test_the_error_bound_holds_at_any_tolerance(mdp, tolerance):
    exact = solve._policy_iteration(mdp)
    solution = solve._modified_policy_iteration(mdp, tolerance)
    assert solution.error_bound <= tolerance
    assert np.abs(solution.values - exact.values).max() <= solution.error_bound + exact.error_bound


@thorough
@given(mdps(), st.integers(0, 1000))
def test_the_bellman_operator(mdp, seed):
    """A contraction by γ that moves constants by γ, of which V* is the fixed point."""
    first, second = np.random.default_rng(seed).normal(size=(2, mdp.n_states))
    gap = np.abs(bellman(mdp, first) - bellman(mdp, second)).max()
    assert gap <= mdp.gamma * np.abs(first - second).max() * (1 + 1e-12)
    assert np.allclose(bellman(mdp, first + 3.0), bellman(mdp, first) + 3.0 * mdp.gamma, rtol=1e-12, atol=1e-11)
    assert np.array_equal(bellman(mdp, np.zeros(mdp.n_states)), mdp.rewards)
    solution = optimal(mdp)
    backups = bellman(mdp, solution.values)
    assert np.abs(backups.max(axis=1) - solution.values).max() <= 2 * solution.error_bound
    assert np.array_equal(greedy(mdp, solution.values), backups.argmax(axis=1))


def test_bellman_leaves_the_rewards_alone():
    mdp = random_mdp(0, 5, 2, 0.9, "dense")
    before, values = mdp.rewards.copy(), np.ones(5)
    bellman(mdp, values)
    solve._modified_policy_iteration(mdp, 1e-10)
    assert np.array_equal(mdp.rewards, before)
    assert np.array_equal(values, np.ones(5))


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("env_id", ["Taxi-v3", "CliffWalking-v1", "FrozenLake-v1"])
def test_both_methods_agree_on_gymnasium(env_id, gamma):
    mdp = mdp_from_gymnasium(env_id, gamma)
    exact, solution = solve._policy_iteration(mdp), solve._modified_policy_iteration(mdp, 1e-10)
    assert solution.error_bound <= 1e-10
    assert np.abs(exact.values - solution.values).max() <= solution.error_bound + exact.error_bound


def test_a_tie_ends():
    """Every action is as good as every other, but for rounding."""
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(30), (30, 4))
    values = rng.normal(size=30)
    rewards = values[:, None] - 0.999 * transitions @ values
    mdp = FiniteMDP(transitions, rewards, 0.999, np.full(30, 1 / 30))
    for solution in (solve._policy_iteration(mdp), solve._modified_policy_iteration(mdp, 1e-10)):
        assert np.abs(solution.values - values).max() <= solution.error_bound <= 1e-9
        assert solution.sweeps < 100


def random_graph(states: int, gamma: float, successors: int = 8, actions: int = 4) -> FiniteMDP:
    rng = np.random.default_rng(0)
    starts = np.arange(states + 1) * successors
    matrices = [
        sparse.csr_array(
            (
                rng.dirichlet(np.ones(successors), states).ravel(),
                rng.integers(states, size=states * successors),
                starts,
            ),
            shape=(states, states),
        )
        for _ in range(actions)
    ]
    return FiniteMDP(matrices, rng.random((states, actions)), gamma, np.full(states, 1 / states))


def grid(side: int, slip: float, gamma: float) -> FiniteMDP:
    """A square with the goal in a corner; each step costs 1."""
    size = side * side
    row, column = np.divmod(np.arange(size), side)
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    cells = [np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1) for down, right in moves]
    for following in cells:
        following[-1] = size - 1
    steps = [sparse.csr_array((np.ones(size), (np.arange(size), following)), shape=(size, size)) for following in cells]
    matrices = [
        (1 - slip) * steps[action] + slip / 2 * (steps[action - 1] + steps[(action + 1) % 4]) for action in range(4)
    ]
    rewards = np.full((size, 4), -1.0)
    rewards[-1] = 0.0
    return FiniteMDP(matrices if slip else steps, rewards, gamma, np.full(size, 1 / size))


@pytest.mark.parametrize(
    "mdp",
    [random_graph(3_000, 0.999), grid(60, 0.0, 0.999), grid(60, 0.2, 0.999), grid(60, 0.2, 0.99)],
    ids=["random graph", "deterministic grid", "slippery grid", "slippery grid, γ = 0.99"],
)
def test_large_sparse_systems_are_solved_to_rounding(mdp):
    for policy in (greedy(mdp, np.zeros(mdp.n_states)), uniform_policy(mdp)):
        assert residual(mdp, policy, evaluate(mdp, policy)) < 1e-12
        distribution = average_distribution(mdp, policy)
        assert distribution.sum() == pytest.approx(1.0, rel=1e-9)
        assert distribution.min() >= 0


def test_random_graphs_are_never_factorised(monkeypatch):
    """Their factors would be dense."""
    monkeypatch.delattr(solve, "spsolve")
    for successors in (2, 8, 100):
        mdp = random_graph(3_000, 0.999, successors)
        assert residual(mdp, uniform_policy(mdp), evaluate(mdp, uniform_policy(mdp))) < 1e-12


def test_a_large_deterministic_grid():
    mdp = grid(60, 0.0, 0.999)
    solution = optimal(mdp)
    row, column = np.divmod(np.arange(3600), 60)
    steps = 2 * 59 - row - column
    assert np.abs(solution.values + (1 - 0.999**steps) / (1 - 0.999)).max() <= solution.error_bound <= 1e-9


def test_a_hundred_thousand_states():
    mdp = random_graph(100_000, 0.99)
    solution = optimal(mdp, 1e-8)
    assert solution.error_bound <= 1e-8
    values = evaluate(mdp, solution.policy)
    assert residual(mdp, solution.policy, values) < 1e-12
    assert np.abs(values - solution.values).max() <= 2e-8
    assert np.abs(bellman(mdp, values).max(axis=1) - values).max() <= 1e-10
