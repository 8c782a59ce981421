"""A diagnosis agrees with what `hurl.tabular` computes exactly, and says of known heuristics what is known of them."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import spearmanr

import hurl
from hurl.data import DatasetError, Episodes, discounted_returns
from hurl.diagnosis.quantities import (
    BiasTerms,
    Fit,
    bellman_residuals,
    best_backup_residuals,
    best_episodes,
    best_line,
    bias_terms,
    held_out_r2,
    lead_of_best,
    measure_departure,
    mixed_states,
    offset_error,
    share_from_heuristic,
    share_interval,
    uncovered_share,
)
from hurl.diagnosis.verdict import suggest_lambda
from hurl.guidance import HeuristicError
from hurl.heuristics import EnsembleLowerBound, Zero
from hurl.heuristics.base import ObservationSpace
from hurl.tabular import (
    FiniteMDP,
    bellman,
    bias_bound,
    chain_mdp,
    evaluate,
    improvability_gap,
    is_improvable,
    linf_error,
    mdp_from_gymnasium,
    optimal,
    reshaped,
    sample_batch,
    uniform_policy,
)
from tests.data.examples import VECTORS, random_episodes

GAMMA = 0.9
LAMBDAS = (0.5, 0.9, 0.95, 0.98, 0.99)


def table(h):
    """The heuristic of a finite MDP as a function of a batch of states."""
    return lambda states: h[states]


def forward_mdp(rng, n_states=8, n_actions=3):
    """A deterministic MDP in which every action leads on to a later state; the last is terminal."""
    transitions, rewards = np.zeros((n_states, n_actions, n_states)), np.zeros((n_states, n_actions))
    for state in range(n_states - 1):
        rewards[state] = rng.normal(size=n_actions)
        for action in range(n_actions):
            transitions[state, action, rng.integers(state + 1, n_states)] = 1.0
    transitions[-1, :, -1] = 1.0
    return FiniteMDP(transitions, rewards, GAMMA, np.eye(n_states)[0])


def wandering_mdp(rng, n_states=6, n_actions=2):
    """A deterministic MDP that never ends, from one state."""
    transitions = np.eye(n_states)[rng.integers(n_states, size=(n_states, n_actions))]
    return FiniteMDP(transitions, rng.normal(size=(n_states, n_actions)), GAMMA, np.eye(n_states)[0])


def roll_out(mdp, policy, state, steps, first_action=None):
    """States, actions and rewards of a deterministic MDP until its last state, if that absorbs, or for some steps."""
    states, actions, rewards = [state], [], []
    ends = np.all(mdp.transitions[-1, :, -1] == 1.0)
    while len(actions) < steps and not (ends and states[-1] == mdp.n_states - 1):
        action = policy[state] if first_action is None or actions else first_action
        actions.append(action)
        rewards.append(mdp.rewards[state, action])
        state = int(np.argmax(mdp.transitions[state, action]))
        states.append(state)
    return states, actions, rewards


def episodes_of(mdp, pieces, terminated):
    states, actions, rewards = ([np.array(piece[index]) for piece in pieces] for index in range(3))
    return Episodes(
        np.concatenate(states), np.concatenate(actions), np.concatenate(rewards),
        np.array([len(piece) for piece in actions]), np.full(len(pieces), terminated),
        gym.spaces.Discrete(mdp.n_states), gym.spaces.Discrete(mdp.n_actions), "test/finite-v0",
    )  # fmt: skip


def episodes_of_batch(batch):
    last = np.flatnonzero(batch.ends)
    bounds = np.split(np.arange(len(batch)), last + 1)[:-1]
    states = np.concatenate([np.append(batch.states[rows], batch.next_states[rows[-1]]) for rows in bounds])
    return Episodes(
        states, batch.actions, batch.rewards, np.diff(last, prepend=-1), batch.terminated[last],
        gym.spaces.Discrete(batch.n_states), gym.spaces.Discrete(batch.n_actions), "test/batch-v0",
    )  # fmt: skip


def optimal_episodes(mdp):
    """One episode of the optimal policy from each state but the terminal one: G = V* throughout."""
    best = optimal(mdp).policy
    return episodes_of(mdp, [roll_out(mdp, best, state, 99) for state in range(mdp.n_states - 1)], True)


# --- Agreement with the exact quantities -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_error_and_ranking_are_exact_for_data_of_the_optimal_policy(seed):
    rng = np.random.default_rng(seed)
    mdp = forward_mdp(rng)
    h, values, episodes = rng.normal(size=8), optimal(mdp).values, optimal_episodes(mdp)
    fit = hurl.diagnose(table(h), episodes, GAMMA).fit
    assert fit.largest_error == pytest.approx(linf_error(h[:-1], values[:-1]), abs=1e-6)
    visited = episodes.observations
    errors = (values - h)[visited]
    assert fit.rank_correlation == pytest.approx(spearmanr(h[visited], values[visited]).statistic, abs=1e-6)
    assert fit.offset == pytest.approx(np.median(errors), abs=1e-6)
    assert fit.mean_error == pytest.approx(np.abs(errors - np.median(errors)).mean(), abs=1e-6)
    assert fit.r2 == pytest.approx(1 - np.mean(errors**2) / values[visited].var(), abs=1e-5)
    assert fit.r2_offset == pytest.approx(1 - errors.var() / values[visited].var(), abs=1e-5)


@pytest.mark.parametrize("kind", ["random", "policy"])
@pytest.mark.parametrize("seed", range(5))
def test_improvability_is_exact_where_every_action_was_tried(seed, kind):
    rng = np.random.default_rng(seed)
    mdp = forward_mdp(rng)
    h = rng.normal(size=8) if kind == "random" else evaluate(mdp, uniform_policy(mdp))
    h[-1] = 0.0
    policy = rng.integers(3, size=8)
    pairs = [(state, action) for state in range(7) for action in range(3)]
    episodes = episodes_of(mdp, [roll_out(mdp, policy, state, 99, action) for state, action in pairs], True)
    exact = (bellman(mdp, h).max(axis=1) - h)[:-1]
    given = np.append(h[:-1], 1e3)  # what h says of terminal states does not count
    result = hurl.diagnose(table(given), episodes, GAMMA).improvability
    assert result.lowest == pytest.approx(exact.min(), abs=1e-5)
    assert min(result.lowest, 0.0) == pytest.approx(improvability_gap(mdp, h), abs=1e-5)  # the terminal state's is 0
    assert (result.share == 1.0) == is_improvable(mdp, h, 1e-6)
    assert result.share == pytest.approx((exact >= -1e-6)[episodes.observations].mean())


def test_improvability_converges_where_transitions_are_random():
    mdp = mdp_from_gymnasium("FrozenLake-v1", gamma=GAMMA)  # on slippery ice
    rng = np.random.default_rng(0)
    h = rng.normal(size=mdp.n_states)
    exact = bellman(mdp, np.append(h[:-1], 0.0)).max(axis=1) - h  # the last state is the terminal one
    errors = []
    for size in (300, 3_000, 100_000):
        episodes = episodes_of_batch(sample_batch(mdp, uniform_policy(mdp), size, rng, horizon=100))
        found = best_backup_residuals(episodes, bellman_residuals(episodes, h[episodes.states], GAMMA))
        errors.append(np.abs(found - exact[episodes.observations]).mean())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.02


def test_error_converges_to_that_of_the_policy_behind_the_data():
    mdp = mdp_from_gymnasium("FrozenLake-v1", gamma=GAMMA)
    rng = np.random.default_rng(0)
    h, policy = rng.normal(size=mdp.n_states), uniform_policy(mdp)
    episodes = episodes_of_batch(sample_batch(mdp, policy, 100_000, rng, horizon=1_000))
    seen = np.unique(episodes.observations)
    exact = linf_error(h[seen], evaluate(mdp, policy)[seen])
    assert hurl.diagnose(table(h), episodes, GAMMA).fit.largest_error == pytest.approx(exact, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_terms_of_the_bias_bound_are_exact_for_data_of_the_policies_they_are_about(seed):
    rng = np.random.default_rng(seed)
    mdp = wandering_mdp(rng)
    h, best = rng.normal(size=6), optimal(mdp).policy
    found = hurl.diagnose(table(h), episodes_of(mdp, [roll_out(mdp, best, 0, 300)], False), GAMMA).bias
    assert [terms.lambda_ for terms in found] == list(LAMBDAS)
    for terms in found:
        exact = bias_bound(mdp, h, terms.lambda_, best)
        assert terms.underestimation == pytest.approx(exact.underestimation, abs=1e-5)
        assert terms.overestimation >= exact.overestimation - 1e-5
    for index, lambda_ in enumerate(LAMBDAS):
        guided = optimal(reshaped(mdp, h, lambda_)).policy
        data = episodes_of(mdp, [roll_out(mdp, guided, 0, 300)], False)
        terms = hurl.diagnose(table(h), data, GAMMA).bias[index]
        assert terms.overestimation == pytest.approx(bias_bound(mdp, h, lambda_, guided).overestimation, abs=1e-5)


def test_terms_of_several_policies_are_those_of_the_best_and_of_the_mean():
    mdp = chain_mdp()
    h, right, left = evaluate(mdp, uniform_policy(mdp)), np.ones(10, int), np.zeros(10, int)
    data = episodes_of(mdp, [roll_out(mdp, policy, 2, 99) for policy in (left, right, left, left)], False)
    result = hurl.diagnose(table(h), data, GAMMA)
    for terms in result.bias:
        change = {
            name: (evaluate(mdp, policy) - evaluate(reshaped(mdp, h, terms.lambda_), policy))[2]
            for name, policy in (("left", left), ("right", right))
        }
        assert terms.underestimation == pytest.approx(change["right"], abs=1e-6)
        assert terms.overestimation == pytest.approx(-(change["right"] + 3 * change["left"]) / 4, abs=1e-6)


def test_reshaping_with_lambda_1_costs_nothing_also_where_time_limits_end_episodes():
    data = random_episodes([20] * 6, [False, True] * 3)
    for values in (np.full(len(data.states), 10.0), np.random.default_rng(0).normal(size=len(data.states))):
        best = np.array([0, 3])
        (terms,) = bias_terms(data, values, best, gamma=GAMMA, lambdas=[1.0])
        assert (terms.underestimation, terms.overestimation) == (0.0, 0.0)
        (near,) = bias_terms(data, values, best, gamma=GAMMA, lambdas=[1.0 - 1e-9])
        assert (near.underestimation, near.overestimation) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_time_limit_takes_nothing_of_the_lead_that_it_did_not_give(endless):
    true_value = hurl.diagnose(lambda states: np.full(len(states), 10.0), endless, GAMMA)
    assert true_value.best_return == pytest.approx(10 * (1 - 0.9**60))
    assert true_value.lead == pytest.approx((10 - 10 * (1 - 0.9**10)) / 2)  # ten steps are worth 10·(1 − γ¹⁰)
    for terms in true_value.bias:
        assert terms.underestimation == pytest.approx(0.0, abs=1e-9), "h is the value of what never ends"
        assert 0.0 < terms.total < true_value.lead, "ending episodes look better than they are by what h promises"
    bootstrap = hurl.diagnose(lambda states: np.full(len(states), 10.0), endless, GAMMA, time_limit="bootstrap")
    assert bootstrap.bias == true_value.bias
    assert bootstrap.lead == true_value.lead


def test_the_lead_is_that_of_returns_that_go_on_with_h():
    data, h = random_episodes([20, 5, 8, 3], [False, True, False, True]), np.random.default_rng(1).normal(size=40)
    ends = h[data.ends + np.arange(4)]
    returns = discounted_returns(data, gamma=GAMMA, last_values=ends)
    best = best_episodes(data, returns)
    starts = returns[data.starts]
    assert lead_of_best(data, h, best, gamma=GAMMA) == pytest.approx(starts.max() - starts.mean())


# --- Parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 1.0])
def test_offset_error_is_the_least_quantile_over_all_constants(share):
    errors = np.random.default_rng(1).exponential(size=50)
    constants = np.linspace(errors.min(), errors.max(), 20_001)
    distances = np.sort(np.abs(errors[None] - constants[:, None]), axis=1)
    least = distances[:, int(np.ceil(share * 50)) - 1].min()
    assert offset_error(errors, share) == pytest.approx(least, abs=1e-3)


def test_interval_of_a_share_covers_it_though_transitions_of_an_episode_are_alike():
    rng = np.random.default_rng(0)
    covered, naive = 0, 0
    for _ in range(300):
        lengths = rng.integers(1, 60, size=40)
        episodes = random_episodes(lengths, np.ones(40, bool))
        holds = rng.random(lengths.sum()) < np.repeat(rng.beta(1.4, 0.6, size=40), lengths)  # 0.7 on average
        low, high = share_interval(holds, episodes)
        covered += low <= 0.7 <= high
        naive += abs(holds.mean() - 0.7) <= 1.96 * np.sqrt(0.21 / lengths.sum())
    assert 0.91 <= covered / 300 <= 0.98
    assert naive / 300 < 0.6


def test_interval_of_a_share_of_all_is_as_wide_as_the_episodes_are_few():
    many, few = (random_episodes([100] * count, [True] * count) for count in (50, 5))
    (low_many, high), (low_few, _) = (share_interval(np.ones(data.transitions, bool), data) for data in (many, few))
    assert high == pytest.approx(1.0)
    assert 0.9 < low_many < 1.0
    assert low_few < 0.6


def episodes_through(states):
    """Episodes through given states, shape (episodes, length + 1, features)."""
    count, length = len(states), states.shape[1] - 1
    data = random_episodes([length] * count, [True] * count)
    return Episodes(
        states.reshape(-1, states.shape[2]), data.actions, data.rewards, data.lengths, data.terminated,
        data.observation_space, data.action_space, data.name,
    )  # fmt: skip


def walks(count, spread, seed=0):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(count, 51, 3)) * 0.05
    steps[:, 0] = rng.normal(size=(count, 3)) * spread
    return np.cumsum(steps, axis=1)


def curves(count, length):
    """Smooth curves, the same ones whatever the number of points on each."""
    offset, bend, slope = np.random.default_rng(5).normal(size=(3, count, 1, 3))
    time = np.linspace(0, 1, length + 1)[None, :, None]
    return offset + bend * np.sin(3 * time) + slope * time


def test_uncovered_states():
    assert uncovered_share(episodes_through(walks(400, 0.1))) < 0.05
    assert uncovered_share(episodes_through(walks(1, 1.0))) is None


@pytest.mark.parametrize("seed", range(5))
def test_episodes_that_never_meet_cover_nothing(seed):
    corners = 100.0 * np.eye(6)[:, None, :]  # all at the same distance from each other
    steps = np.random.default_rng(seed).normal(size=(6, 51, 6))
    assert uncovered_share(episodes_through(corners + steps), seed) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_a_region_that_one_episode_visits_is_uncovered(seed):
    states = np.random.default_rng(seed).normal(size=(20, 51, 3))
    assert uncovered_share(episodes_through(states), seed) < 0.03
    states[7] += 20.0
    assert uncovered_share(episodes_through(states), seed) == pytest.approx(1 / 20)
    states[3] += 20.0
    assert uncovered_share(episodes_through(states), seed) < 0.01, "another episode has been there"


@pytest.mark.parametrize("count", [8, 200])
def test_coverage_does_not_change_with_the_time_step(count):
    coarse, fine = (uncovered_share(episodes_through(curves(count, length))) for length in (10, 200))
    assert fine == pytest.approx(coarse, abs=0.05)
    assert (coarse > 0.3) == (count == 8), "few curves leave much uncovered"


def test_uncovered_states_of_images_and_of_discrete_spaces():
    space, rng = gym.spaces.Box(0, 255, (9, 9, 3), np.uint8), np.random.default_rng(0)
    scenes = rng.integers(0, 256, size=(4, 9, 9, 3)).astype(np.uint8)
    data = random_episodes([40] * 20, [True] * 20, observation_space=space)

    def showing(images):
        return Episodes(
            images, data.actions, data.rewards, data.lengths, data.terminated, space, data.action_space, data.name
        )

    assert uncovered_share(showing(scenes[rng.integers(4, size=20 * 41)])) == 0.0
    noise = rng.integers(0, 256, size=(20 * 41, 9, 9, 3)).astype(np.uint8)
    assert uncovered_share(showing(noise)) > 0.9, "no two images of noise are alike"
    ten = gym.spaces.Discrete(10, start=3)
    data = random_episodes([5], [True], observation_space=ten)
    assert uncovered_share(data) == pytest.approx(1 - len(set(data.states.tolist())) / 10)


def test_share_from_heuristic_is_what_a_constant_adds_to_reshaped_values():
    mdp = wandering_mdp(np.random.default_rng(0))
    policy = uniform_policy(mdp)
    raised, plain = (evaluate(reshaped(mdp, np.full(6, height), 0.7), policy) for height in (1.0, 0.0))
    np.testing.assert_allclose(raised - plain, share_from_heuristic(0.7, GAMMA))


def fit_with(r2, rank=0.9):
    return Fit(rank, r2, r2, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_suggestion_follows_the_fit_and_refuses_what_takes_the_lead():
    free = [BiasTerms(lambda_, 0.0, 0.0) for lambda_ in LAMBDAS]
    chosen = [suggest_lambda(fit_with(r2), free, 1.0, 0.99) for r2 in (1.0, 0.9, 0.8, 0.6, 0.1, -4.0)]
    assert chosen == [0.5, 0.9, 0.95, 0.98, 0.99, 1.0]
    assert suggest_lambda(fit_with(0.9, rank=0.1), free, 1.0, 0.99) == 1.0
    assert suggest_lambda(fit_with(None), free, 1.0, 0.99) == 1.0
    taking = [BiasTerms(lambda_, 0.5 if lambda_ < 0.97 else 0.2, 0.5) for lambda_ in LAMBDAS]
    assert suggest_lambda(fit_with(1.0), taking, 1.0, 0.99) == 0.98
    assert suggest_lambda(fit_with(1.0), taking, 0.0, 0.99) == 0.5, "without a lead there is none to lose"


# --- Heuristics of which it is known what they are worth -------------------------------------------------------------


@pytest.fixture
def problem():
    """A deterministic MDP, its optimal values, and data of its optimal policy from everywhere, five times over."""
    mdp = forward_mdp(np.random.default_rng(3), n_states=20)
    data = optimal_episodes(mdp)
    return mdp, optimal(mdp).values, data.select(np.tile(np.arange(len(data)), 5))


def test_the_optimal_value_is_found_to_be_perfect(problem):
    _, values, data = problem
    result = hurl.diagnose(table(values), data, GAMMA)
    assert result.fit.rank_correlation == pytest.approx(1.0)
    assert result.fit.r2 == pytest.approx(1.0)
    assert result.fit.largest_error < 1e-5
    assert result.improvability.share == 1.0
    assert result.lambda0 == min(LAMBDAS)
    assert result.verdict[0].startswith("h ranks states well (ρ = 1.00")
    assert "it is improvable" in result.verdict[1]


def test_zero_is_found_to_say_nothing(problem):
    result = hurl.diagnose(lambda states: np.zeros(len(states)), problem[2], GAMMA)
    assert result.fit.rank_correlation == 0.0
    assert result.fit.r2_offset == pytest.approx(0.0)
    assert result.fit.mean_error == result.fit.mean_error_of_constant
    assert result.verdict[0] == "h is constant: it shortens the horizon and says nothing about states."
    assert result.lambda0 == 1.0


def test_the_reverse_of_the_optimal_value_is_warned_of(problem):
    _, values, data = problem
    result = hurl.diagnose(table(-values), data, GAMMA)
    assert result.fit.rank_correlation == pytest.approx(-1.0)
    assert "in reverse" in result.verdict[0]
    assert result.lambda0 == 1.0


def test_a_constant_changes_neither_ranking_nor_error_nor_bias():
    rng = np.random.default_rng(5)
    mdp = wandering_mdp(rng)
    h = optimal(mdp).values + 0.3 * rng.normal(size=6)
    data = episodes_of(mdp, [roll_out(mdp, rng.integers(2, size=6), 0, 300) for _ in range(10)], False)
    plain, raised = (hurl.diagnose(table(h + constant), data, GAMMA) for constant in (0.0, 7.0))
    assert raised.fit.offset == pytest.approx(plain.fit.offset - 7.0, abs=1e-5)
    for name in ("rank_correlation", "r2_offset", "mean_error", "within_50", "within_90", "within_99", "largest_error"):
        assert getattr(raised.fit, name) == pytest.approx(getattr(plain.fit, name), abs=1e-5)
    assert raised.fit.r2 != pytest.approx(plain.fit.r2, abs=0.1)
    for before, after in zip(plain.bias, raised.bias, strict=True):
        assert after.total == pytest.approx(before.total, abs=1e-4)
        assert after.underestimation != pytest.approx(before.underestimation, abs=0.1)
    assert raised.lambda0 == plain.lambda0


@pytest.mark.parametrize(("constant", "words"), [(50.0, "above the returns"), (-50.0, "below the returns")])
def test_a_constant_is_warned_of_where_episodes_end(problem, constant, words):
    _, values, data = problem
    assert words in " ".join(hurl.diagnose(table(values + constant), data, GAMMA).verdict)
    assert words not in " ".join(hurl.diagnose(table(values), data, GAMMA).verdict)


@pytest.mark.parametrize(
    ("factor", "constant", "sentence"),
    [
        (1 / 40, 0.0, "h is 40 times too small for the returns, so that it hardly guides: multiply it by 40: hurl."),
        (25.0, 0.0, "h is 25 times too large for the returns, so that it drowns the rewards: multiply it by 0.04: "),
        (1 / 40, 1.0, "multiply it by 40 and add -40: shifted(scaled(h, 40), -40) of hurl.heuristics (R² on "),
    ],
)
def test_an_h_of_the_wrong_scale_is_told_its_scale(problem, factor, constant, sentence):
    _, values, data = problem
    right = hurl.diagnose(table(values), data, GAMMA)
    result = hurl.diagnose(table(factor * values + constant), data, GAMMA)
    assert sentence in " ".join(result.verdict)
    assert result.rescaling.scale == pytest.approx(1 / factor, rel=1e-3)
    assert result.rescaling.offset == pytest.approx(-constant / factor, abs=1e-3)
    assert result.rescaling.r2_rescaled == pytest.approx(1.0, abs=1e-4)
    assert result.rescaling.r2 < 0.9
    assert result.rescaling.lambda0 == right.lambda0 == 0.5
    assert f"Suggested λ0: {result.lambda0:g}" in result.verdict[-1]
    assert result.verdict[-1].endswith("and 0.5 once h is rescaled.")
    assert "the end of an episode counts as 0" not in " ".join(result.verdict)
    assert json.loads(result.to_json())["rescaling"] == dataclasses.asdict(result.rescaling)
    assert ("best line a·h + b: a, b", f"{result.rescaling.scale:.4g}, {result.rescaling.offset:.4g}") in result.rows()


@pytest.mark.parametrize(
    ("factor", "advice"),
    [
        (1.0, "Use h without a schedule"),
        (-1.0, "Don't use h:"),
        (0.0, "Don't expect a gain"),
        (1 / 40, "Use h once it is rescaled"),
    ],
)
def test_the_advice_is_what_is_known_of_h(problem, factor, advice):
    _, values, data = problem
    assert hurl.diagnose(table(factor * values), data, GAMMA).advice.startswith(advice)


def test_no_advice_is_drawn_from_data_that_tells_little():
    alike = hurl.diagnose(lambda states: states[:, 0], random_episodes([30] * 2, [True] * 2, seed=1), GAMMA)
    assert alike.doubts
    assert alike.advice.startswith("This data can't tell whether h helps")


def test_an_h_whose_suggested_lambda_is_1_is_none_for_a_constant_one(problem):
    _, values, data = problem
    result = dataclasses.replace(hurl.diagnose(table(values), data, GAMMA), lambda0=1.0)
    assert result.advice.startswith("Don't use h at a constant λ")


def test_no_scale_is_told_to_an_h_that_has_the_right_one_or_none(problem):
    _, values, data = problem
    noise = np.random.default_rng(0).normal(size=len(values))
    for h in (values, 1.2 * values, noise, np.zeros(len(values)), -values):
        result = hurl.diagnose(table(h), data, GAMMA)
        assert "times too" not in " ".join(result.verdict)
        assert "rescaled" not in result.verdict[-1]
    assert hurl.diagnose(table(np.zeros(len(values))), data, GAMMA).rescaling is None


def test_a_line_is_judged_by_episodes_that_it_was_not_chosen_on():
    rng = np.random.default_rng(0)
    h, half = rng.normal(size=40), np.repeat([0, 1], 20)
    assert best_line(h, 3 * h - 2) == pytest.approx((3.0, -2.0))
    assert held_out_r2(h, 3 * h - 2, half) == pytest.approx((1 - 4 * h.var() / (9 * h.var()), 1.0), abs=0.1)
    assert held_out_r2(h, np.where(half, h, -h), half)[1] < 0.0, "what is learnt on one half misleads on the other"
    assert held_out_r2(np.where(half, h, 1.0), h, half) is None
    assert held_out_r2(h, np.ones(40), half) is None
    assert held_out_r2(h, h, np.zeros(40, int)) is None


def test_episodes_that_earn_nearly_the_same_tell_little(endless):
    lucky = dataclasses.replace(endless.select(range(5)), rewards=np.repeat([1.0, 1.01, 1.0, 0.99, 1.0], 60))
    alike = hurl.diagnose(lambda states: -states[:, 0], lucky.select(np.tile(np.arange(5), 3)), GAMMA)
    assert alike.fit.r2 is not None
    assert alike.doubts == alike.verdict[:2]
    assert "All episodes earn nearly the same (9.982 ± 0.063), so that the data can hardly tell" in alike.verdict[0]
    assert json.loads(alike.to_json())["doubts"] == list(alike.doubts)
    told_apart = hurl.diagnose(lambda states: -states[:, 0], endless, GAMMA, time_limit="bootstrap")
    assert told_apart.doubts == ()


def test_time_limits_that_end_all_episodes_are_told(endless):
    def doubts(data, gamma):
        return " ".join(hurl.diagnose(lambda states: -states[:, 0], data, gamma).doubts)

    sentence, cut = "All episodes end at a time limit, after which nothing counts here", endless.select(range(5))
    assert sentence in doubts(cut, GAMMA)
    assert sentence not in doubts(cut, 0.2), "nothing of note is cut off"
    assert sentence not in doubts(endless, GAMMA), "others end by themselves"


def test_what_is_left_of_the_lead_is_said_in_numbers_and_words(problem):
    _, values, data = problem
    clear = " ".join(hurl.diagnose(table(values), data, GAMMA).verdict)
    assert "(100 %) is left in what an agent is rewarded with at λ = 0.5, rewards and h together" in clear
    noisy = values + 0.9 * values.std() * np.random.default_rng(1).normal(size=len(values))
    result = hurl.diagnose(table(noisy), data, GAMMA)
    (terms,) = (terms for terms in result.bias if terms.lambda_ == result.lambda0)
    share = f"({100 * (1 - terms.total / result.lead):.0f} %) is left"
    assert share in " ".join(result.verdict)


def test_equal_returns_tell_nothing():
    data = random_episodes([1, 1, 1], [True] * 3)
    same = Episodes(
        data.states, data.actions, np.ones(3), data.lengths, data.terminated, data.observation_space,
        data.action_space, data.name,
    )  # fmt: skip
    result = hurl.diagnose(lambda states: states[:, 0], same, GAMMA)
    assert result.fit.r2 is None
    assert "collect other data" in result.verdict[0]
    assert "With 3 episodes" in " ".join(result.verdict)
    assert result.lambda0 == 1.0


def test_what_h_calls_unknown_is_counted():
    class Filtered:
        def __call__(self, observations):
            return observations[:, 0]

        def known(self, observations):
            return observations[:, 1] < 0

    data = random_episodes([50] * 10, [True] * 10)
    result = hurl.diagnose(Filtered(), data, GAMMA)
    assert result.heuristic == "Filtered"
    assert result.unknown == pytest.approx((data.states[:, 1] >= 0).mean())
    assert "unknown to h" in " ".join(result.verdict)


def test_judging_with_the_data_that_h_was_fitted_to_is_warned_of():
    data = random_episodes([30] * 12, [True] * 12)
    h = hurl.MonteCarloHeuristic.fit(data, gamma=GAMMA, epochs=1, hidden=(4,))
    own, other = hurl.diagnose(h, data, GAMMA), hurl.diagnose(h, random_episodes([30] * 12, [True] * 12, seed=1), GAMMA)
    assert own.fitted_to_data
    assert hurl.diagnose(hurl.heuristics.scaled(h, 2.0), data, GAMMA).fitted_to_data
    assert "fitted to this very data" in " ".join(own.verdict)
    assert not other.fitted_to_data
    assert "fitted to this very data" not in " ".join(other.verdict)


def test_promises_above_every_return_are_counted():
    data = random_episodes([30] * 12, [True] * 12)
    highest = discounted_returns(data, gamma=GAMMA).max()
    result = hurl.diagnose(lambda states: np.where(states[:, 0] > 0, highest + 1, highest), data, GAMMA)
    assert result.above_returns == pytest.approx((data.states[:, 0] > 0).mean())
    assert "above every return of the data in 42 %" in " ".join(result.verdict)
    modest = hurl.diagnose(lambda states: np.where(states[:, 0] > 0, highest, 0), data, GAMMA)
    assert modest.above_returns == 0.0
    assert "above every return" not in " ".join(modest.verdict)


# --- Beyond the data -------------------------------------------------------------------------------------------------


class Doubtful:
    """Members that disagree by how far the second number is from the first, which in `along` are the same."""

    def __call__(self, observations):
        return observations[:, 0]

    def deviation(self, observations):
        return 0.1 + np.abs(observations[:, 0] - observations[:, 1])


def along(count, seed=0):
    """Episodes through states whose three numbers are the same."""
    walk = np.random.default_rng(seed).normal(size=(count, 31, 1)).repeat(3, axis=2)
    return episodes_through(walk.astype(np.float32))


def test_mixed_states_have_the_numbers_of_the_data_and_nothing_else_of_it():
    states = along(40).states
    mixed = mixed_states(states, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(mixed, axis=0), np.sort(states, axis=0))
    assert (np.ptp(mixed, axis=1) > 0).mean() > 0.99


def test_members_that_disagree_away_from_the_data_are_told_from_others():
    result = hurl.diagnose(Doubtful(), along(20), GAMMA)
    *near, mixed = dataclasses.astuple(result.disagreement)
    assert near == pytest.approx([0.1] * 3)
    assert mixed > 1.0
    assert "the bound is lower where an agent leaves the data" in " ".join(result.verdict)
    noise = hurl.diagnose(Doubtful(), random_episodes([30] * 20, [True] * 20), GAMMA)
    assert noise.disagreement.mixed == pytest.approx(noise.disagreement.data, rel=0.1)
    assert "may be no lower where an agent leaves the data" in " ".join(noise.verdict)
    assert hurl.diagnose(lambda s: s[:, 0], along(20), GAMMA).disagreement is None


def test_single_numbers_can_not_be_mixed():
    states = gym.spaces.Discrete(6)

    class Doubted:
        def __call__(self, observations):
            return observations / 2

        def deviation(self, observations):
            return np.ones(len(observations))

    result = hurl.diagnose(Doubted(), random_episodes([30] * 12, [True] * 12, observation_space=states), GAMMA)
    assert (result.disagreement.data, result.disagreement.mixed) == (1.0, None)
    assert "members" not in " ".join(result.verdict)


def test_an_agent_like_those_of_the_data_stays_within_it_and_one_elsewhere_does_not():
    data, agent = episodes_through(walks(400, 0.5)), walks(100, 0.5, seed=1)
    distance, outside = measure_departure(data, episodes_through(agent))
    assert distance == pytest.approx(1.0, abs=0.2)
    assert outside < 0.05
    distance, outside = measure_departure(data, episodes_through(agent + 30.0))
    assert distance > 50
    assert outside == 1.0
    agent[:50] += 30.0
    assert measure_departure(data, episodes_through(agent))[1] == pytest.approx(0.5, abs=0.05)


def test_the_unit_of_distances_is_that_of_the_data():
    data, agent = walks(200, 1.0), walks(50, 2.0, seed=1)
    scales = np.array([1e-3, 1.0, 1e4])
    plain, scaled = (
        measure_departure(episodes_through(data * scale), episodes_through(agent * scale)) for scale in (1.0, scales)
    )
    assert scaled == pytest.approx(plain)


def test_where_a_distance_can_not_be_measured():
    assert measure_departure(episodes_through(walks(1, 1.0)), episodes_through(walks(3, 1.0))) == (None, None)
    still = episodes_through(np.ones((4, 11, 3)))
    assert measure_departure(still, still) == (None, 0.0)
    assert measure_departure(still, episodes_through(np.full((2, 11, 3), 2.0))) == (None, 1.0)
    few, many = (
        random_episodes([50] * 20, [True] * 20, observation_space=gym.spaces.Discrete(n, start=3)) for n in (5, 10)
    )
    assert measure_departure(few, many) == (None, pytest.approx((many.states >= 8).mean()))


def test_what_h_promises_an_agent_is_held_against_what_it_gets():
    """h is the return of one-step episodes on the data; the agent goes where h is high, and gets nothing."""
    rng = np.random.default_rng(0)

    def one_step(states, rewards):
        return dataclasses.replace(
            random_episodes([1] * len(rewards), [True] * len(rewards)),
            states=np.repeat(states, 2, axis=0).astype(np.float32), rewards=rewards, name="test/agent-v0",
        )  # fmt: skip

    states = rng.normal(size=(200, 3))
    data = one_step(states, states[:, 0] + 0.1 * rng.normal(size=200))
    astray = hurl.diagnose(lambda s: s[:, 0], data, GAMMA, agent=one_step(states + 9.0, np.zeros(200)))
    assert astray.departure.agent == "test/agent-v0"
    assert astray.departure.promised == pytest.approx(states[:, 0].mean() + 9.0, abs=1e-5)
    assert astray.departure.received == 0.0
    assert astray.departure.outside == astray.departure.above_returns == 1.0
    verdict = " ".join(astray.verdict)
    assert "100 % of the agent's states lie outside the data (the median state is" in verdict
    assert astray.doubts[0].startswith("The data is of other policies than the agent, which goes where they did not")
    assert "on average, and it gets 0: it may be drawn to promises that are not kept" in verdict
    same = hurl.diagnose(lambda s: s[:, 0], data, GAMMA, agent=data)
    assert "The agent stays within the data: 0 % of its states lie outside." in same.verdict
    assert "it is not led on" in " ".join(same.verdict)


def test_the_fitted_ensemble_doubts_what_an_agent_finds_beyond_the_data():
    data, agent = random_episodes([30] * 20, [True] * 20), random_episodes([30] * 20, [True] * 20, seed=1)
    far = dataclasses.replace(agent, states=20 * agent.states)
    h = EnsembleLowerBound.fit(data, gamma=GAMMA, hidden=(16,), epochs=10, batch_size=32)
    near, away = (hurl.diagnose(h, data, GAMMA, agent=episodes) for episodes in (agent, far))
    assert near.departure.outside < 0.1 < 0.9 < away.departure.outside
    assert away.departure.promised < near.departure.promised
    assert away.disagreement == near.disagreement


@pytest.mark.parametrize(
    ("space", "gamma", "message"),
    [
        (VECTORS, 0.5, r"is for gamma=0\.9, but here gamma=0\.5"),
        (gym.spaces.Box(-1, 1, (2,)), GAMMA, r"is for observations of Box of shape \(3,\).*here they are of .*\(2,\)"),
        (gym.spaces.Discrete(4), GAMMA, r"is for observations of Box of shape \(3,\).*here they are of Discrete\(4\)"),
    ],
)
def test_a_heuristic_for_another_problem_is_refused(space, gamma, message):
    h = Zero(gamma=GAMMA, observation_space=ObservationSpace.of(VECTORS))  # which could be evaluated for anything
    with pytest.raises(HeuristicError, match=message):
        hurl.diagnose(h, random_episodes(observation_space=space), gamma)
    assert hurl.diagnose(h, random_episodes(), GAMMA).is_constant


# --- Time limits -----------------------------------------------------------------------------------------------------


@pytest.fixture
def endless():
    """A task that pays 1 for ever, cut after 60 steps, and episodes of it that end after 10."""
    count, lengths = 5, np.array([60] * 5 + [10] * 5)
    data = random_episodes(lengths, [False] * count + [True] * count)
    states = np.concatenate([np.linspace(0, 1, length + 1) for length in lengths])[:, None].repeat(3, axis=1)
    return Episodes(
        states, data.actions, np.ones(lengths.sum()), lengths, data.terminated, data.observation_space,
        data.action_space, data.name,
    )  # fmt: skip


def test_states_whose_return_is_mostly_cut_off_are_left_out(endless):
    result = hurl.diagnose(lambda states: np.full(len(states), 10.0), endless, GAMMA)
    assert result.mostly_cut == 5 * 6  # 0.9^6 > 1/2 > 0.9^7
    assert result.used == endless.transitions - 30
    assert result.time_limit == "cut"
    endless_only = endless.select(range(5))
    true_value = hurl.diagnose(lambda states: np.full(len(states), 10.0), endless_only, GAMMA)
    assert true_value.fit.largest_error == pytest.approx(10 * (0.9**7 - 0.9**60) / 2)


def test_bootstrap_goes_on_with_h(endless):
    result = hurl.diagnose(lambda s: np.full(len(s), 10.0), endless.select(range(5)), GAMMA, time_limit="bootstrap")
    assert result.fit.largest_error < 1e-6
    assert result.fit.offset == pytest.approx(0.0, abs=1e-6)


def test_returns_are_judged_as_those_that_h_was_fitted_to(endless):
    small = {"hidden": (8,), "epochs": 1, "members": 2}
    for time_limit in ("cut", "bootstrap"):
        h = EnsembleLowerBound.fit(endless, gamma=GAMMA, time_limit=time_limit, **small)
        assert hurl.diagnose(h, endless, GAMMA).time_limit == time_limit
    assert hurl.diagnose(h, endless, GAMMA, time_limit="cut").time_limit == "cut"


def test_drop_leaves_episodes_out_and_refuses_when_none_remains(endless):
    result = hurl.diagnose(lambda states: states[:, 0], endless, GAMMA, time_limit="drop")
    assert (result.episodes, result.transitions, result.mostly_cut) == (5, 50, 0)
    with pytest.raises(DatasetError, match="time_limit='drop' leaves none"):
        hurl.diagnose(lambda states: states[:, 0], endless.select(range(5)), GAMMA, time_limit="drop")


def test_returns_that_are_nearly_all_cut_off_are_used_and_warned_of(endless):
    result = hurl.diagnose(lambda states: -states[:, 0], endless.select(range(5)), 0.999)
    assert result.used == result.transitions == result.mostly_cut
    assert "cut off most of the return of 100 % of the states" in " ".join(result.verdict)


# --- The result ------------------------------------------------------------------------------------------------------


def test_json_holds_every_number_and_the_verdict(problem):
    _, values, data = problem
    result = hurl.diagnose(table(values), data, GAMMA)
    read = json.loads(result.to_json())
    assert read["fit"]["largest_error"] == result.fit.largest_error
    assert read["improvability"]["interval"] == list(result.improvability.interval)
    assert [terms["lambda"] for terms in read["bias"]] == list(LAMBDAS)
    assert read["verdict"] == list(result.verdict)
    assert read["advice"] == result.advice
    assert read["lambda0"] == result.lambda0
    assert "evidence" not in read
    assert read["disagreement"] is read["departure"] is None
    followed = hurl.diagnose(Doubtful(), along(20), GAMMA, agent=along(5, seed=1))
    read = json.loads(followed.to_json())
    assert read["disagreement"] == dataclasses.asdict(followed.disagreement)
    assert read["departure"] == dataclasses.asdict(followed.departure)


def test_text_shows_numbers_and_verdict(problem):
    _, values, data = problem
    text = str(hurl.diagnose(table(values), data, GAMMA))
    assert "test/finite-v0" in text
    assert "rank correlation of h and return             1.000" in text
    assert text.endswith("Suggested λ0: 0.5.")


@pytest.mark.parametrize("h", [lambda s: s[:, 0], lambda s: np.zeros(len(s))], ids=["varying", "constant"])
@pytest.mark.parametrize("lengths", [(4, 1, 7, 3), (2_000, 1_900, 1, 2)], ids=["few", "many"])
def test_picture_is_written_whole(tmp_path, h, lengths):
    hurl.diagnose(h, random_episodes(lengths), GAMMA, agent=random_episodes(seed=1)).plot(tmp_path / "new/h.png")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["h.png"]
    assert (tmp_path / "new/h.png").read_bytes().startswith(b"\x89PNG")


def test_progress_counts_all_states(monkeypatch):
    monkeypatch.setattr("hurl.diagnosis.diagnosis.CHUNK", 8)
    seen, sizes, data = [], [], random_episodes()

    def h(states):
        sizes.append(len(states))
        return states[:, 0]

    whole = hurl.diagnose(h, data, GAMMA, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(8, 19), (16, 19), (19, 19)]
    assert sizes == [8, 8, 3]
    np.testing.assert_array_equal(whole.evidence.values, data.states[:, 0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"h": lambda s: s}, HeuristicError, r"returned shape \(19, 3\) for 19 observations"),
        ({"h": lambda s: np.full(len(s), np.nan)}, HeuristicError, "returned NaN for 19 of 19"),
        ({"gamma": 1.0}, ValueError, r"gamma must lie in \[0, 1\), got 1.0"),
        ({"time_limit": "ignore"}, ValueError, "time_limit must be one of cut, bootstrap, drop, got 'ignore'"),
        (
            {"agent": random_episodes(observation_space=gym.spaces.Discrete(4))},
            DatasetError,
            r"the agent's dataset .* has observations of Discrete\(4\), but .* of Box of shape \(3,\)",
        ),
        ({"h": 3.0}, TypeError, "must be a function of a batch of observations, got 3.0"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    given = {"h": lambda s: s[:, 0], "gamma": GAMMA, "dataset": random_episodes()} | arguments
    with pytest.raises(error, match=message):
        hurl.diagnose(**given)


@pytest.mark.parametrize("seed", range(4))
def test_noise_over_a_discrete_space_is_no_fit_on_what_was_held_out(seed):
    rng, count = np.random.default_rng(seed), 400
    states = np.column_stack([np.arange(count) % 2, np.zeros(count, int)])
    data = Episodes(
        states=states.ravel(),
        actions=np.zeros(count, int),
        rewards=rng.normal(size=count),
        lengths=np.ones(count, int),
        terminated=np.ones(count, bool),
        observation_space=gym.spaces.Discrete(2),
        action_space=gym.spaces.Discrete(2),
        name="test/noise-v0",
    )
    rescaling = hurl.diagnose(lambda states: 10.0 * states, data, GAMMA).rescaling
    assert rescaling.r2_rescaled < 0.9, "two means of noise, each other's in no half"
    values = dataclasses.replace(data, rewards=np.where(states[:, 0] == 1, 3.0, 1.0) + 0.1 * data.rewards)
    assert hurl.diagnose(lambda states: 10.0 * states, values, GAMMA).rescaling.r2_rescaled > 0.99


@pytest.mark.parametrize("limits", [("drop", "cut"), ("cut", "drop")])
def test_data_that_h_was_fitted_to_is_known_whatever_time_limits_count(limits):
    data = random_episodes([30] * 12, [True, False] * 6)
    fitted, judged = limits
    h = hurl.MonteCarloHeuristic.fit(data, gamma=GAMMA, epochs=1, hidden=(4,), time_limit=fitted)
    assert hurl.diagnose(h, data, GAMMA, time_limit=judged).fitted_to_data
