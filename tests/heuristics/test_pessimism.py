"""Heuristics fitted to data of finite MDPs, against what `hurl.tabular` computes exactly."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest

from hurl.data import Episodes
from hurl.heuristics import EnsembleLowerBound, MonteCarloHeuristic, OfflineRLHeuristic, VAEFilteredHeuristic
from hurl.tabular import chain_mdp, evaluate, mdp_from_gymnasium, optimal, uniform_policy

GAMMA = 0.9
HORIZON = 100  # γ^100 < 3e-5: what the time limit cuts off is nothing


@dataclass(frozen=True)
class Problem:
    """An MDP with a behaviour policy, half optimal, half random, that starts anywhere alive."""

    mdp: object
    alive: np.ndarray

    @property
    def optimal_values(self):
        return optimal(self.mdp).values

    @property
    def behaviour(self):
        greedy = np.eye(self.mdp.n_actions)[optimal(self.mdp).policy]
        return (greedy + uniform_policy(self.mdp)) / 2

    @property
    def behaviour_values(self):
        return evaluate(self.mdp, self.behaviour)

    def episodes(self, count, seed=0, start=None):
        """Roll episodes out side by side, until they are no longer alive."""
        generator = np.random.default_rng(seed)
        start = np.flatnonzero(self.alive) if start is None else start
        states = [generator.choice(start, count)]
        actions, rewards = [], []
        for _ in range(HORIZON):
            now = states[-1]
            taken = _draw(self.behaviour[now], generator)
            actions.append(taken)
            rewards.append(self.mdp.rewards[now, taken])
            states.append(_draw(self.mdp.transitions[now, taken], generator))
        states, actions, rewards = (np.array(rows).T for rows in (states, actions, rewards))
        ended = ~self.alive[states]
        terminated = ended.any(axis=1)
        lengths = np.where(terminated, ended.argmax(axis=1), HORIZON)
        before = np.arange(HORIZON) < lengths[:, None]
        return Episodes(
            states[np.arange(HORIZON + 1) <= lengths[:, None]],
            actions[before],
            rewards[before],
            lengths,
            terminated,
            gym.spaces.Discrete(self.mdp.n_states),
            gym.spaces.Discrete(self.mdp.n_actions),
            "test/tabular-v0",
        )


def _draw(probabilities, generator):
    return (generator.random((len(probabilities), 1)) > np.cumsum(probabilities, axis=1)).sum(axis=1)


def lake(slippery):
    mdp = mdp_from_gymnasium("FrozenLake-v1", GAMMA, is_slippery=slippery)
    dead = [5, 7, 11, 12, 15, 16]  # holes, goal, and the absorbing state
    return Problem(mdp, ~np.isin(np.arange(mdp.n_states), dead))


def chain():
    mdp = chain_mdp()
    return Problem(mdp, ~np.isin(np.arange(mdp.n_states), [0, 9]))


PROBLEMS = {"slippery lake": lake(True), "frozen lake": lake(False), "chain": chain()}
TABLE = {"hidden": (32,), "epochs": 15, "batch_size": 128, "learning_rate": 3e-3, "validation": 0.0}


@pytest.mark.parametrize("name", PROBLEMS)
def test_monte_carlo_approaches_the_value_of_the_behaviour(name):
    problem = PROBLEMS[name]
    scarce, plenty = (
        largest_error(MonteCarloHeuristic.fit(problem.episodes(count), gamma=GAMMA, **TABLE), problem, "behaviour")
        for count in (20, 2000)
    )
    assert plenty < 0.05
    assert plenty < scarce / 2


def test_the_ensembles_mean_approaches_the_value_of_the_behaviour_and_its_members_come_to_agree():
    problem = PROBLEMS["slippery lake"]
    scarce, plenty = (
        EnsembleLowerBound.fit(problem.episodes(count), gamma=GAMMA, members=3, beta=1.0, **TABLE)
        for count in (20, 2000)
    )
    assert largest_error(plenty.mean, problem, "behaviour") < 0.05
    assert largest_error(plenty.mean, problem, "behaviour") < largest_error(scarce.mean, problem, "behaviour") / 2
    assert largest_error(plenty, problem, "behaviour") < 0.1
    states = np.flatnonzero(problem.alive)
    assert (plenty.mean(states) - plenty(states)).mean() < (scarce.mean(states) - scarce(states)).mean() / 2


def test_a_filter_lets_all_through_where_data_is_plenty():
    problem = PROBLEMS["slippery lake"]
    heuristic = VAEFilteredHeuristic.fit(problem.episodes(2000), gamma=GAMMA, latent=8, vae_epochs=5, **TABLE)
    np.testing.assert_array_equal(heuristic.known(np.arange(problem.mdp.n_states)), problem.alive)
    assert largest_error(heuristic, problem, "behaviour") < 0.05


@pytest.mark.parametrize(
    ("name", "count", "bound"), [("slippery lake", 20, 0.12), ("frozen lake", 2, 0.05), ("chain", 1, 0.05)]
)
def test_offline_rl_approaches_the_optimal_value(name, count, bound):
    """Discrete CQL with hardly any conservatism is Q-learning: it finds V*, though half of the acting is random."""
    problem = PROBLEMS[name]
    settings = {"hidden": (32,), "batch_size": 256, "learning_rate": 2e-3, "alpha": 1e-3, "validation": 0.0}
    scarce, plenty = (
        largest_error(
            OfflineRLHeuristic.fit(problem.episodes(size), gamma=GAMMA, algorithm="cql", steps=steps, **settings),
            problem,
            "optimal",
        )
        for size, steps in ((count, 500), (2000, 1200))
    )
    assert plenty < bound
    assert plenty < scarce / 2


@pytest.mark.parametrize("name", ["slippery lake", "frozen lake"])
def test_pessimistic_heuristics_stay_below_the_optimal_value_where_the_naive_one_does_not(name):
    """Few episodes from beside the goal: much of the lake is not in the data, and some returns were lucky.

    The naive network takes the high returns that it saw for those of states that it did not see.
    """
    problem = PROBLEMS[name]
    episodes = problem.episodes(25, start=[14], seed=1)
    scarce = TABLE | {"epochs": 20, "batch_size": 64}
    naive = MonteCarloHeuristic.fit(episodes, gamma=GAMMA, **scarce)
    ensemble = EnsembleLowerBound.fit(episodes, gamma=GAMMA, beta=3.0, **scarce)
    filtered = VAEFilteredHeuristic.fit(episodes, gamma=GAMMA, latent=8, vae_epochs=100, **scarce)
    unseen = problem.alive & ~np.isin(np.arange(problem.mdp.n_states), episodes.observations)
    assert unseen.sum() >= 3
    assert overestimate(naive, problem, problem.alive).max() > 0.12
    assert overestimate(naive, problem, unseen).max() > 0.12
    assert overestimate(ensemble, problem, problem.alive).max() < 0.08
    assert overestimate(filtered, problem, unseen).max() < 0.02


def largest_error(heuristic, problem, policy):
    values = problem.behaviour_values if policy == "behaviour" else problem.optimal_values
    states = np.flatnonzero(problem.alive)
    return float(np.abs(heuristic(states) - values[states]).max())


def overestimate(heuristic, problem, mask):
    states = np.flatnonzero(mask)
    return heuristic(states) - problem.optimal_values[states]
