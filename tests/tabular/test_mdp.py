import gymnasium as gym
import numpy as np
import pytest
from scipy import sparse

from hurl.tabular.mdp import FiniteMDP, empirical_mdp, mdp_from_gymnasium
from hurl.tabular.solve import optimal

STATES, ACTIONS = 3, 2
NAN = float("nan")


def parts(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    return transitions, rng.normal(size=(STATES, ACTIONS)), rng.dirichlet(np.ones(STATES))


def by_action(transitions: np.ndarray) -> list[sparse.csr_array]:
    return [sparse.csr_array(transitions[:, action]) for action in range(transitions.shape[1])]


@pytest.mark.parametrize("kind", [np.asarray, by_action])
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (0.9, r"transitions must sum to 1, got 1\.\d+ in state 1 action 0"),
        (-0.25, r"transitions must hold probabilities, got -0\.25"),
        (NAN, "transitions must hold probabilities, got nan"),
        (np.inf, "transitions must sum to 1, got inf in state 1 action 0"),
    ],
)
def test_transitions_that_are_no_probabilities_are_refused(kind, entry, message):
    transitions, rewards, initial = parts()
    transitions[1, 0, 2] = entry
    with pytest.raises(ValueError, match=message):
        FiniteMDP(kind(transitions), rewards, 0.9, initial)


@pytest.mark.parametrize("kind", [np.asarray, by_action])
def test_a_row_of_zeros_is_refused(kind):
    transitions, rewards, initial = parts()
    transitions[2, 1] = 0.0
    with pytest.raises(ValueError, match=r"transitions must sum to 1, got 0\.0 in state 2 action 1"):
        FiniteMDP(kind(transitions), rewards, 0.9, initial)


@pytest.mark.parametrize("gamma", [1.0, -0.1, 1.5, NAN, np.inf])
def test_gamma_outside_its_range_is_refused(gamma):
    transitions, rewards, initial = parts()
    with pytest.raises(ValueError, match=rf"gamma must lie in \[0, 1\), got {gamma!r}"):
        FiniteMDP(transitions, rewards, gamma, initial)


@pytest.mark.parametrize("kind", [np.asarray, by_action])
def test_wrong_shapes_are_refused(kind):
    transitions, rewards, initial = parts()
    with pytest.raises(ValueError, match=r"rewards must have shape \(S, A\).*got \(3,\)"):
        FiniteMDP(kind(transitions), rewards[:, 0], 0.9, initial)
    with pytest.raises(ValueError, match=r"rewards must have shape \(S, A\).*got \(0, 2\)"):
        FiniteMDP(kind(transitions), rewards[:0], 0.9, initial)
    with pytest.raises(ValueError, match=r"transitions must .*to fit the rewards, got \(3"):
        FiniteMDP(kind(transitions), rewards[:, :1], 0.9, initial)
    with pytest.raises(ValueError, match=r"transitions must .*to fit the rewards, got \(2"):
        FiniteMDP(kind(transitions[:2]), rewards, 0.9, initial)
    with pytest.raises(ValueError, match=r"initial must have shape \(3,\), got \(2,\)"):
        FiniteMDP(kind(transitions), rewards, 0.9, initial[:2])


@pytest.mark.parametrize("reward", [NAN, np.inf, -np.inf])
def test_rewards_that_are_not_finite_are_refused(reward):
    transitions, rewards, initial = parts()
    rewards[1, 1] = reward
    with pytest.raises(ValueError, match=f"rewards must be finite, got {reward}"):
        FiniteMDP(transitions, rewards, 0.9, initial)


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ([0.5, 0.4, 0.0], r"initial must sum to 1, got 0\.9"),
        ([1.5, -0.5, 0.0], r"initial must hold probabilities, got -0\.5"),
        ([0.5, 0.5, NAN], "initial must hold probabilities, got nan"),
    ],
)
def test_an_initial_distribution_that_is_none_is_refused(initial, message):
    transitions, rewards, _ = parts()
    with pytest.raises(ValueError, match=message):
        FiniteMDP(transitions, rewards, 0.9, initial)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1, 2], r"actions must lie in 0…1, got 0…2"),
        ([0, -1, 1], r"actions must lie in 0…1, got -1…1"),
        ([0, 1], r"a policy has shape \(3,\).*got \(2,\)"),
        ([0.0, 1.0, 1.0], r"a policy has shape \(3,\).*got \(3,\) of float64"),
        ([[0.5, 0.4]] * 3, r"policy must sum to 1, got 0\.9 in state 0"),
        ([[1.5, -0.5]] * 3, r"policy must hold probabilities, got -0\.5"),
        ([[NAN, 0.5]] * 3, "policy must hold probabilities, got nan"),
    ],
)
def test_what_is_no_policy_is_refused(policy, message):
    transitions, rewards, initial = parts()
    with pytest.raises(ValueError, match=message):
        FiniteMDP(transitions, rewards, 0.9, initial).under(np.array(policy))


def test_dense_and_sparse_are_the_same_mdp():
    transitions, rewards, initial = parts()
    dense = FiniteMDP(transitions, rewards, 0.9, initial)
    thin = FiniteMDP(by_action(transitions), rewards, 0.9, initial)
    assert thin.is_sparse
    assert not dense.is_sparse
    values = np.array([1.0, -2.0, 5.0])
    assert np.allclose(dense.expect(values), np.einsum("sat,t->sa", transitions, values), rtol=1e-14)
    assert np.allclose(thin.expect(values), dense.expect(values), rtol=1e-14)
    for policy in (np.array([1, 0, 1]), np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])):
        chain, chain_rewards = thin.under(policy)
        expected, expected_rewards = dense.under(policy)
        assert np.allclose(chain.toarray(), expected, rtol=1e-14)
        assert np.allclose(chain_rewards, expected_rewards, rtol=1e-14)
    assert np.allclose(dense.under(np.array([1, 0, 1]))[0], transitions[[0, 1, 2], [1, 0, 1]])
    assert repr(thin) == "FiniteMDP(3 states, 2 actions, gamma=0.9, sparse)"


def value_iteration(model: dict, gamma: float) -> np.ndarray:
    """V* from Gymnasium's own model, state by state."""
    values = np.zeros(len(model))
    while True:
        updated = np.zeros(len(model))
        for state, actions in model.items():
            backups = [
                sum(p * (reward + gamma * (not done) * values[following]) for p, following, reward, done in outcomes)
                for outcomes in actions.values()
            ]
            updated[state] = max(backups)
        if np.abs(updated - values).max() < 1e-12:
            return updated
        values = updated


@pytest.mark.parametrize(
    ("env_id", "options", "gamma"),
    [
        ("FrozenLake-v1", {"is_slippery": True}, 0.95),
        ("FrozenLake-v1", {"is_slippery": False}, 0.95),
        ("CliffWalking-v1", {}, 0.95),
        ("Taxi-v3", {}, 0.9),
    ],
)
def test_toy_text_environments(env_id, options, gamma):
    mdp = mdp_from_gymnasium(env_id, gamma, **options)
    env = gym.make(env_id, **options).unwrapped
    solution = optimal(mdp)
    assert np.allclose(solution.values[:-1], value_iteration(env.P, gamma), rtol=0, atol=1e-9)
    assert solution.values[-1] == 0.0
    assert np.allclose(mdp.initial[:-1], env.initial_state_distrib)
    assert solution.error_bound < 1e-9


def test_the_value_of_a_frozen_lake_by_hand():
    mdp = mdp_from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False)
    assert optimal(mdp).values[0] == pytest.approx(0.9**5, rel=1e-12)  # six steps, the last pays


def test_an_environment_without_a_model_is_refused():
    with pytest.raises(ValueError, match=r"'CartPole-v1' does not tell its transitions"):
        mdp_from_gymnasium("CartPole-v1", 0.9)


def empirical(states, actions, rewards, following, terminated, **options) -> FiniteMDP:
    settings = {"n_states": STATES, "n_actions": ACTIONS, "gamma": 0.9, "initial": np.ones(STATES) / STATES}
    return empirical_mdp(states, actions, rewards, following, terminated, **(settings | options))


def test_an_empirical_mdp_by_hand():
    mdp = empirical([0, 0, 0, 1], [1, 1, 1, 0], [1.0, 2.0, 6.0, 5.0], [1, 1, 0, -1], [False, False, False, True])
    dense = np.stack([matrix.toarray() for matrix in mdp.transitions], axis=1)
    expected = np.zeros((4, 2, 4))
    expected[:, :, 3] = 1.0  # pairs without data, the terminal transition, and the absorbing state itself
    expected[0, 1] = [1 / 3, 2 / 3, 0, 0]
    assert np.allclose(dense, expected, rtol=1e-15)
    assert np.allclose(mdp.rewards, [[0, 3], [5, 0], [0, 0], [0, 0]])
    assert np.allclose(mdp.initial, [1 / 3, 1 / 3, 1 / 3, 0])


def test_no_data_is_an_mdp_that_ends_at_once():
    mdp = empirical([], [], [], [], [])
    assert np.array_equal(optimal(mdp).values, np.zeros(4))


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        ((3, 0, 0.0, 0, False), r"states must lie in 0…2, got 3"),
        ((-1, 0, 0.0, 0, False), r"states must lie in 0…2, got -1"),
        ((0, 2, 0.0, 0, False), r"actions must lie in 0…1, got 2"),
        ((0, 0, 0.0, 4, False), r"next_states must lie in 0…2, got 4"),
        ((0, 0, 0.0, -1, False), r"next_states must lie in 0…2, got -1"),
        ((0, 0, NAN, 0, False), "rewards must be finite, got nan"),
    ],
)
def test_data_that_cannot_be_is_refused(transition, message):
    with pytest.raises(ValueError, match=message):
        empirical(*([part] for part in transition))


def test_an_empirical_mdp_converges_to_the_mdp():
    transitions, rewards, initial = parts(1)
    mdp = FiniteMDP(transitions, rewards, 0.9, initial)
    rng = np.random.default_rng(0)
    errors = []
    for n in (100, 10_000, 1_000_000):
        states, actions = rng.integers(STATES, size=n), rng.integers(ACTIONS, size=n)
        following = (rng.random(n)[:, None] > transitions[states, actions].cumsum(axis=1)).sum(axis=1)
        noisy = rewards[states, actions] + rng.normal(size=n)
        estimate = empirical(states, actions, noisy, following.clip(max=STATES - 1), np.zeros(n, bool))
        errors.append(np.abs(optimal(estimate).values[:-1] - optimal(mdp).values).max())
    assert errors[2] < 0.05
    assert errors[2] < errors[1] < errors[0]


def test_a_frozen_mdp_does_not_follow_the_arrays_it_was_made_of():
    transitions, rewards = np.eye(2)[:, None], np.zeros((2, 1))
    mdp = FiniteMDP(transitions, rewards, 0.9, [1.0, 0.0])
    rewards[0] = np.nan
    transitions[0, 0, 0] = -7
    assert mdp.rewards[0, 0] == 0
    assert mdp.transitions[0, 0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        mdp.rewards[0, 0] = 1


def test_sparse_transitions_are_one_matrix_an_action():
    for transitions in (sparse.eye_array(2), [sparse.eye_array(2), np.eye(2)]):
        with pytest.raises(ValueError, match="one sparse matrix for each action"):
            FiniteMDP(transitions, np.zeros((2, 2)), 0.9, [1.0, 0.0])


def test_a_next_state_beyond_the_last_is_not_taken_for_the_end():
    with pytest.raises(ValueError, match="next_states must lie in 0…1, got 2"):
        empirical_mdp([0, 1], [0, 0], [1, 1], [2, 0], [0, 0], n_states=2, n_actions=1, gamma=0.9, initial=[1, 0])
