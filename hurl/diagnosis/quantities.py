"""What a diagnosis measures, each quantity as a function of arrays.

The data are E episodes of N transitions, s the state of a transition and s' the one after it, G the discounted return
that followed, δ = r + γ·h(s') − h(s) the Bellman residual. Nobody knows V*: G, the value of whoever gathered the data,
stands in for it. The labels are those of the paper's LaTeX source; `hurl.tabular.theory` has the exact counterparts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

from hurl.data import Episodes
from hurl.data.returns import bootstrap_weights
from hurl.discounting import reverse_discounted_sum

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

BEST_SHARE = 0.1
# Heuristics are evaluated in 32-bit floats: residuals this far below 0, relative to the values, are rounding.
ROUNDING = 1e-6
OWN_STATES = 0.99  # the share of the data's own states that count as of the data
NORMAL_QUANTILE = 1.959964  # of a confidence of 95 %
# Coverage is measured on samples: so many states are asked for their neighbours among so many, not millions.
SAMPLES = 10_000
QUERIES = 2_000
FOLDS = 10  # parts of the episodes, each of which is asked for among the others
NEAR = 0.5  # how far a neighbour may be, as a share of the spread of all
FEATURES = 32  # numbers of a state that distances are of; longer ones are projected
PIECE = 1_000  # states whose numbers are computed at once


@dataclass(frozen=True)
class Fit:
    """How well h agrees with the returns, over the states that were used.

    :param rank_correlation: Spearman's ρ of h and G; 0 where either is constant
    :param r2: 1 − Σ(G − h)²/Σ(G − mean G)²; None where G is constant
    :param r2_offset: the same with the best constant added to h, 1 − Var(G − h)/Var(G): what counts for guidance
    :param offset: the median of G − h, the constant that makes h fit best in the mean
    :param mean_error: min_b of the mean |G − h − b|
    :param mean_error_of_constant: min_b of the mean |G − b|: what a heuristic that knows nothing has
    :param within_50: min_b of the median of |G − h − b|
    :param within_90: the same for the 90 % quantile
    :param within_99: the same for the 99 % quantile
    :param largest_error: ε = min_b ‖G − h − b‖∞, that of the ℓ∞ bias bound
    """

    rank_correlation: float
    r2: float | None
    r2_offset: float | None
    offset: float
    mean_error: float
    mean_error_of_constant: float
    within_50: float
    within_90: float
    within_99: float
    largest_error: float


@dataclass(frozen=True)
class Rescaling:
    """The line a·h + b that fits the returns best, and what it is worth.

    :param scale: a, by least squares over all states that were used
    :param offset: b
    :param r2: R² of h plus the best constant, on episodes that the constant was not chosen on
    :param r2_rescaled: R² of a·h + b, on episodes that a and b were not chosen on
    :param lambda0: the λ to begin with that would be suggested for a·h + b
    """

    scale: float
    offset: float
    r2: float
    r2_rescaled: float
    lambda0: float


@dataclass(frozen=True)
class Improvability:
    """How often h(s) ≤ r + γ·h(s') holds in the data, and how the residuals δ are distributed.

    :param share: the share of the transitions for which it holds
    :param interval: a 95 % confidence interval of the share
    :param mean: of δ; below 0, h promises more than comes
    :param deviation: the standard deviation of δ
    :param lowest: the smallest δ; 0 or more means that h is improvable as far as the data goes
    :param lower_quartile: of δ
    :param median: of δ
    :param upper_quartile: of δ
    :param highest: the largest δ
    """

    share: float
    interval: tuple[float, float]
    mean: float
    deviation: float
    lowest: float
    lower_quartile: float
    median: float
    upper_quartile: float
    highest: float


@dataclass(frozen=True)
class BiasTerms:
    """The two terms of the bias bound at one λ, as far as the data shows them.

    :param lambda_: λ
    :param underestimation: what the best episodes lose by the reshaping
    :param overestimation: what all episodes gain by it, on average
    """

    lambda_: float
    underestimation: float
    overestimation: float

    @property
    def total(self) -> float:
        """By how much the lead of the best episodes over all of them shrinks; no constant added to h changes it."""
        return self.underestimation + self.overestimation


@dataclass(frozen=True)
class Disagreement:
    """The mean deviation of an ensemble's members, near the data and away from it.

    :param data: over the states of the data
    :param starts: over the first states of episodes
    :param best: over the states of the best episodes
    :param mixed: over states that the data does not hold, see `mixed_states`; None where it can't be mixed
    """

    data: float
    starts: float
    best: float
    mixed: float | None


@dataclass(frozen=True)
class Departure:
    """How far an agent's states leave the data, and what h promises there.

    :param agent: the name of the agent's own data
    :param distance: how far its states are from the data, see `measure_departure`; None where it can't be measured
    :param outside: the share of its states that lie outside the data
    :param promised: mean h of its states
    :param received: mean return that followed them
    :param above_returns: the share of its states where h is above every return of the data
    """

    agent: str
    distance: float | None
    outside: float | None
    promised: float
    received: float
    above_returns: float


# --- Agreement with returns ------------------------------------------------------------------------------------------


def measure_fit(values: Floats, returns: Floats) -> Fit:
    """Compare h with G.

    :param values: h(s), shape (n,)
    :param returns: G, shape (n,)
    """
    errors = returns - values
    spread = float(np.var(returns))
    is_constant = bool(np.ptp(returns) <= ROUNDING * max(1.0, float(np.abs(returns).max())))
    return Fit(
        rank_correlation=rank_correlation(values, returns),
        r2=None if is_constant else 1.0 - float(np.mean(errors**2)) / spread,
        r2_offset=None if is_constant else 1.0 - float(np.var(errors)) / spread,
        offset=float(np.median(errors)),
        mean_error=_mean_distance(errors),
        mean_error_of_constant=_mean_distance(returns),
        within_50=offset_error(errors, 0.5),
        within_90=offset_error(errors, 0.9),
        within_99=offset_error(errors, 0.99),
        largest_error=offset_error(errors, 1.0),
    )


def rank_correlation(values: Floats, returns: Floats) -> float:
    """Spearman's ρ of h and G, every transition counted alike; 0 where either is constant.

    By `th:performance decomposition`, a constant added to h changes nothing: what h is to say is which of two states is
    better.

    :param values: h(s), shape (n,)
    :param returns: G, shape (n,)
    """
    if np.ptp(values) == 0.0 or np.ptp(returns) == 0.0:
        return 0.0
    return float(spearmanr(values, returns).statistic)


def offset_error(errors: Floats, share: float) -> float:
    """ε_q = min_b (the q-quantile of |G − h − b|): half the length of the shortest interval with a share q of G − h.

    q = 1 gives ε = min_b ‖G − h − b‖∞, half the span, which `th:l-inf bias bound` is about; smaller q leave outliers,
    such as the luck of single episodes, out.

    :param errors: G − h, shape (n,)
    :param share: q ∈ (0, 1]
    """
    ordered = np.sort(errors)
    count = max(1, math.ceil(share * len(ordered)))
    return float((ordered[count - 1 :] - ordered[: len(ordered) - count + 1]).min()) / 2.0


def best_line(values: Floats, returns: Floats) -> tuple[float, float]:
    """Return a and b of the line a·h + b with the least Σ(G − a·h − b)²; h must not be constant.

    :param values: h(s), shape (n,)
    :param returns: G, shape (n,)
    """
    scale = float(np.mean((values - values.mean()) * (returns - returns.mean())) / np.var(values))
    return scale, float(returns.mean() - scale * values.mean())


def held_out_r2(values: Floats, returns: Floats, half: Integers) -> tuple[float, float] | None:
    """Return R² of h + b and of a·h + b, each chosen on one half of the episodes and measured on the other.

    None where h or the returns are constant on a half.

    :param values: h(s), shape (n,)
    :param returns: G, shape (n,)
    :param half: 0 or 1, that of each state's episode, shape (n,)
    """
    errors = []
    for chosen, held_out in ((half == 0, half == 1), (half == 1, half == 0)):
        h, target, seen = values[held_out], returns[held_out], values[chosen]
        if not chosen.any() or not held_out.any() or np.ptp(seen) <= rounding(seen):
            return None
        scale, offset = best_line(seen, returns[chosen])
        shift = float(np.mean(returns[chosen] - seen))
        errors.append([np.sum((target - h - shift) ** 2), np.sum((target - scale * h - offset) ** 2)])
    spread = float(np.sum((returns - returns.mean()) ** 2))
    if spread == 0.0:
        return None
    shifted, rescaled = (1.0 - np.sum(errors, axis=0) / spread).tolist()
    return shifted, rescaled


def mostly_cut(episodes: Episodes, gamma: float) -> Flags:
    """Whether γ^{T−t} > 1/2 in an episode that a time limit ended, shape (N,).

    There, more than half of a constant reward's value lies behind the time limit: with `cut` returns G is far too
    small, with `bootstrap` it is mostly h itself, and neither tells whether h is right.
    """
    flags: Flags = bootstrap_weights(episodes, gamma=gamma) > 0.5
    return flags


def state_means(values: Floats, states: NDArray[Any]) -> Floats:
    """Return, for each visit of a state, the mean over all its visits, shape (n,).

    The mean return of a discrete state's visits is an estimate of its value, which no single return is.

    :param values: shape (n,)
    :param states: of a Discrete space, shape (n,)
    """
    _, state = np.unique(states, return_inverse=True)
    means: Floats = (np.bincount(state, weights=values) / np.bincount(state))[state]
    return means


def _mean_distance(values: Floats) -> float:
    """min_b of the mean |x − b|, which the median attains."""
    return float(np.abs(values - np.median(values)).mean())


# --- Improvability ---------------------------------------------------------------------------------------------------


def bellman_residuals(episodes: Episodes, values: Floats, gamma: float) -> Floats:
    """δ = r + γ·h(s') − h(s), with h(s') = 0 where s' is terminal; shape (N,).

    :param values: h of all states of the data, shape (N + E,)
    """
    following = np.where(episodes.terminal, 0.0, values[episodes.positions + 1])
    residuals: Floats = episodes.rewards + gamma * following - values[episodes.positions]
    return residuals


def best_backup_residuals(episodes: Episodes, residuals: Floats) -> Floats:
    """max_a (B h)(s, a) − h(s) of each transition's state, as far as the data knows it; shape (N,).

    h is improvable where this is 0 or more for all s (the Definition in section 4.3). For states of a Discrete space,
    (B h)(s, a) is the mean over the transitions from s by a, and the maximum is over the actions that were seen in s:
    with data this converges to the Definition's, from below where actions are missing.

    Other states hardly occur twice. Then it is δ itself, of the one action and the one successor that were seen: a
    lower bound where the dynamics are deterministic, as another action may do better; with noise, δ ≥ 0 may be luck
    as well. For h = V of the policy that gathered the data, δ has the mean 0, so that a share near one half is no bad
    sign.

    :param residuals: δ, shape (N,)
    """
    if not isinstance(episodes.observation_space, Discrete):
        return residuals
    states, state = np.unique(episodes.observations, return_inverse=True)
    actions, action = np.unique(episodes.actions, axis=0, return_inverse=True)
    pair = state * len(actions) + action.ravel()
    counts = np.bincount(pair, minlength=len(states) * len(actions))
    sums = np.bincount(pair, weights=residuals, minlength=len(states) * len(actions))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    best: Floats = means.reshape(len(states), len(actions)).max(axis=1)[state]
    return best


def measure_improvability(episodes: Episodes, values: Floats, residuals: Floats) -> Improvability:
    """Summarise the residuals of `best_backup_residuals`, or δ.

    :param values: h of all states of the data, shape (N + E,)
    :param residuals: shape (N,)
    """
    holds = residuals >= -rounding(values)
    return Improvability(
        float(holds.mean()),
        share_interval(holds, episodes),
        float(residuals.mean()),
        float(residuals.std()),
        *np.quantile(residuals, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist(),
    )


def rounding(values: Floats) -> float:
    """How far below 0 a residual of these values may be by rounding."""
    return ROUNDING * max(1.0, float(np.abs(values).max()))


def share_interval(holds: Flags, episodes: Episodes) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, with as many independent observations as the episodes are worth.

        p = Σ_i x_i/Σ_i n_i        v = E/(E−1)·Σ_i (x_i − p·n_i)²/N²        n_eff = p(1−p)/v

    x_i of the n_i transitions of episode i hold. v is the variance of p where episodes are independent and transitions
    of one episode are not; n_eff independent ones would have the same. Where v is 0, an episode counts as one.

    :param holds: shape (N,)
    """
    lengths, count = episodes.lengths, len(episodes)
    held = np.bincount(episodes.episode_of, weights=holds)
    share = float(held.sum() / lengths.sum())
    spread = float(((held - share * lengths) ** 2).sum())
    effective = float(count)
    if spread > 0.0 and count > 1:
        variance = count / (count - 1) * spread / float(lengths.sum()) ** 2
        effective = min(share * (1.0 - share) / variance, float(lengths.sum()))
    square = NORMAL_QUANTILE**2
    centre = (share + square / (2.0 * effective)) / (1.0 + square / effective)
    inner = share * (1.0 - share) / effective + square / (4.0 * effective**2)
    width = NORMAL_QUANTILE * math.sqrt(inner) / (1.0 + square / effective)
    return max(0.0, centre - width), min(1.0, centre + width)


# --- The bias bound --------------------------------------------------------------------------------------------------


def best_episodes(episodes: Episodes, returns: Floats) -> Integers:
    """The tenth of the episodes with the highest return from their start, at least one, the best first.

    :param returns: G, shape (N,)
    """
    count = max(1, round(BEST_SHARE * len(episodes)))
    return np.argsort(-returns[episodes.starts], kind="stable")[:count]


def reshaped_returns(episodes: Episodes, values: Floats, *, gamma: float, lambda_: float) -> Floats:
    """G̃_0 = h(s_0) + Σ_t (λγ)^t·δ_t, what each episode gets in the reshaped MDP; shape (E,).

    That is its return with rewards r + (1−λ)γ·h(s') and discount λγ, and where a time limit ended it, it goes on with
    h(s_T). At λ = 1 it is the return G_0 = Σ_t γ^t·r_t + γ^T·h(s_T), with h(s_T) = 0 where s_T is terminal.

    :param values: h of all states of the data, shape (N + E,)
    """
    residuals, starts = bellman_residuals(episodes, values, gamma), episodes.starts
    sums = reverse_discounted_sum(residuals, episodes.lengths, lambda_ * gamma)[starts]
    returns: Floats = values[episodes.positions[starts]] + sums
    return returns


def bias_terms(
    episodes: Episodes, values: Floats, best: Integers, *, gamma: float, lambdas: Sequence[float]
) -> tuple[BiasTerms, ...]:
    """Estimate the two terms of Bias(h, λ, π) ≤ (1−λ)γ·(C(π*, V* − h, λγ) + C(π, h − Ṽ*, γ)) for some λ.

    The best episodes stand in for π*, all of them for the learner's π; what a policy gets in the reshaped MDP stands in
    for the Ṽ* that it is at most. Then the sums along trajectories are differences of values at the start:

        (1−λ)γ·C(π, V^π − h, λγ) = V^π(d0) − Ṽ^π(d0)        (1−λ)γ·C(π, h − Ṽ^π, γ) = Ṽ^π(d0) − V^π(d0)

    Ṽ^π(d0) is the mean of G̃_0 (`reshaped_returns`) and V^π(d0) that of G̃_0 at λ = 1, the return. Both go on from a
    time limit with h, however the other quantities count it: what lies behind it cancels, and at λ = 1 the terms are 0.
    The first term is exact for data of π*, and the second for data of π̃*, the optimal policy of the reshaped MDP; for
    data of others it is an upper bound of theirs. The sum is what the reshaping takes of the lead of the best episodes
    over all (`lead_of_best`).

    Source: `th:bias bound`, `lm:value difference`, `lm:pdl`.

    :param values: h of all states of the data, shape (N + E,)
    :param best: which episodes are the best
    """
    returns = reshaped_returns(episodes, values, gamma=gamma, lambda_=1.0)
    terms = []
    for lambda_ in lambdas:
        change = returns - reshaped_returns(episodes, values, gamma=gamma, lambda_=lambda_)
        terms.append(BiasTerms(lambda_, float(change[best].mean()), -float(change.mean())))
    return tuple(terms)


def lead_of_best(episodes: Episodes, values: Floats, best: Integers, *, gamma: float) -> float:
    """By how much the mean return of the best episodes is above that of all, time limits counted as in `bias_terms`.

    :param values: h of all states of the data, shape (N + E,)
    :param best: which episodes are the best
    """
    returns = reshaped_returns(episodes, values, gamma=gamma, lambda_=1.0)
    return float(returns[best].mean() - returns.mean())


def share_from_heuristic(lambda_: float, gamma: float) -> float:
    """w(λ) = (1−λ)γ/(1−λγ), the share of a value in the reshaped MDP that comes from h and not from rewards.

    By how much Ṽ^π rises if h rises by 1 everywhere (the proof that the bias does not change with a constant), and so
    by how much of h's error it can err.
    """
    return (1.0 - lambda_) * gamma / (1.0 - lambda_ * gamma)


# --- Coverage --------------------------------------------------------------------------------------------------------


def uncovered_share(episodes: Episodes, seed: int = 0) -> float | None:
    """The share of states for which the data has no example.

    In a Discrete space: the share of its states that no episode visits. Else each tenth of the episodes is held out in
    turn, and a state x of theirs is uncovered where the nearest state y of the others is not near:

        ‖x − y‖ > σ/2        σ² = the mean of ‖x − mean x‖² over all states

    with distances of standardised features (observations with more than 32 are projected at random to 32). The scale is
    the data's own spread: how far apart the states of one episode are, which is a matter of the time step, does not
    count, and episodes that are all equally far from each other are not called near. None for a single episode.

    :param seed: of the samples
    """
    if isinstance(episodes.observation_space, Discrete):
        return 1.0 - len(np.unique(episodes.states)) / int(episodes.observation_space.n)
    if len(episodes) < 2:
        return None
    rng = np.random.default_rng(seed)
    fold_of = np.repeat(rng.permutation(len(episodes)) % FOLDS, episodes.lengths + 1)
    indices = rng.permutation(len(episodes.states))[:SAMPLES]
    features, folds = _standardised(episodes.states, indices, rng)(episodes.states, indices), fold_of[indices]
    near = NEAR * math.sqrt(features.var(axis=0).sum()) + ROUNDING
    uncovered = 0
    for fold in np.unique(folds[:QUERIES]):
        queries = features[:QUERIES][folds[:QUERIES] == fold]
        uncovered += int(np.count_nonzero(cKDTree(features[folds != fold]).query(queries)[0] > near))
    return float(uncovered / min(QUERIES, len(indices)))


def _standardised(
    states: NDArray[Any], indices: Integers, rng: np.random.Generator
) -> Callable[[NDArray[Any], Integers], Floats]:
    """Return a function of states and indices: some states as rows of numbers, shape (n, ≤ 32).

    They are standardised as the given states are, and projected at random where they are long.
    """
    size = int(np.prod(states.shape[1:]))
    sample = _rows(states[indices[:PIECE]])
    centre, scale = sample.mean(axis=0), sample.std(axis=0)
    scale[scale <= ROUNDING * np.maximum(1.0, np.abs(centre))] = 1.0  # rounding is not to be blown up
    projection = np.eye(size) if size <= FEATURES else rng.normal(size=(size, FEATURES)) / math.sqrt(FEATURES)

    def features(states: NDArray[Any], indices: Integers) -> Floats:
        pieces = np.array_split(indices, math.ceil(len(indices) / PIECE))  # images, piece by piece, fit into memory
        return np.concatenate([(_rows(states[piece]) - centre) / scale @ projection for piece in pieces])

    return features


def _rows(states: NDArray[Any]) -> Floats:
    return states.reshape(len(states), -1).astype(np.float64)


# --- Beyond the data -------------------------------------------------------------------------------------------------


def share_above(values: Floats, returns: Floats) -> float:
    """The share of states where h is above every return of the data, of which nobody has shown that it can be got.

    :param values: h of some states
    :param returns: G, shape (N,)
    """
    return float(np.mean(values > returns.max() + rounding(returns)))


def mixed_states(states: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Return as many states that are none: each number is that of another of the states, drawn by itself."""
    return rng.permuted(states.reshape(len(states), -1), axis=0).reshape(states.shape)


def measure_disagreement(
    deviation: Callable[[NDArray[Any]], NDArray[Any]], episodes: Episodes, best: Integers, seed: int = 0
) -> Disagreement:
    """Compare the deviation of an ensemble's members on states of the data with that on mixtures of them.

    :param deviation: a function of a batch of states
    :param best: which episodes are the best
    :param seed: of the samples
    """
    rng = np.random.default_rng(seed)

    def mean(states: NDArray[Any]) -> float:
        return float(np.mean(deviation(states)))

    def sample(states: NDArray[Any]) -> NDArray[Any]:
        return states[rng.permutation(len(states))[:QUERIES]]

    states = sample(episodes.states)
    can_be_mixed = states[0].size > 1
    return Disagreement(
        data=mean(states),
        starts=mean(sample(episodes.states[episodes.positions[episodes.starts]])),
        best=mean(sample(episodes.select(best).states)),
        mixed=mean(mixed_states(states, rng)) if can_be_mixed else None,
    )


def measure_departure(episodes: Episodes, agent: Episodes, seed: int = 0) -> tuple[float | None, float | None]:
    """How far an agent's states leave the data: their distance, and the share of them that lie outside.

    One half of the episodes stands for the data, the other for states that belong to it; with d(x) the distance from x
    to the nearest state of the first half, features standardised as in `uncovered_share`,

        distance = median of d(agent's states) / median of d(other half's)
        outside:   d(x) > d of 99 % of the other half's states

    So an agent like those that made the data has 1 and 1 %. In a Discrete space there is no distance, and what no
    episode visits lies outside. The distance is None where the halves hold the same states, both are for one episode.

    :param seed: of the halves and samples
    """
    if isinstance(episodes.observation_space, Discrete):
        return None, float(np.mean(~np.isin(agent.states, episodes.states)))
    if len(episodes) < 2:
        return None, None
    rng = np.random.default_rng(seed)
    half_of = np.repeat(rng.permutation(len(episodes)) % 2, episodes.lengths + 1)
    first, second = (rng.permutation(np.flatnonzero(half_of == half)) for half in (0, 1))
    features = _standardised(episodes.states, first, rng)
    nearest = cKDTree(features(episodes.states, first[:SAMPLES]))
    own = nearest.query(features(episodes.states, second[:QUERIES]))[0]
    away = nearest.query(features(agent.states, rng.permutation(len(agent.states))[:QUERIES]))[0]
    unit = float(np.median(own))
    outside = float(np.mean(away > np.quantile(own, OWN_STATES) + ROUNDING))
    return (float(np.median(away)) / unit if unit > ROUNDING else None), outside
