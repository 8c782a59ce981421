"""The paper's results on finite MDPs, each as one function that computes what the statement is about.

M is the MDP, h the heuristic, λ the mixing coefficient and M̃ = `reshaped(M, h, λ)` with its discount γ̃ = λγ; a tilde
marks what belongs to M̃. d^π is the average state distribution of π in M, with d^π(s, a) = d^π(s)·π(a | s), and
V(d) = E_{s∼d}[V(s)]. A policy is an array of actions, shape (S,), or of probabilities π(a | s), shape (S, A).

The labels are those of the paper's LaTeX source. An equality comes as an `Identity` whose sides are computed by
different routes; a two-sided inequality as `Bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hurl.schedules import check_coefficient
from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.reshaping import check_heuristic, discounted_pbrs, reshaped
from hurl.tabular.solve import average_distribution, bellman, evaluate, expectation, optimal

Policy = NDArray[Any]

# How far rounding may carry an inequality over its edge, relative to max(1, ‖h‖∞).
ROUNDING = 1e-9


@dataclass(frozen=True)
class Decomposition:
    """What a policy loses: V*(d0) − V^π(d0), the suboptimality, is the regret plus the bias."""

    regret: float
    bias: float
    suboptimality: float


@dataclass(frozen=True)
class BiasBound:
    """An upper bound of the bias, the sum of two terms.

    :param underestimation: what h misses of V* where the optimal policy goes
    :param overestimation: what h promises above Ṽ* where the policy goes; no more than 0 for an improvable h
    """

    underestimation: float
    overestimation: float

    @property
    def total(self) -> float:
        """The bound itself."""
        return self.underestimation + self.overestimation


@dataclass(frozen=True)
class BellmanPessimism:
    """How pessimistic Q and π' are; each number is the smallest one over all states (and actions).

    :param consistency: (B h)(s, a) − Q(s, a), what is assumed to be 0 or more
    :param improvability: max_a (B h)(s, a) − h(s), which is then 0 or more
    :param underestimation: V^π'(s) − h(s), which is then 0 or more
    """

    consistency: float
    improvability: float
    underestimation: float


@dataclass(frozen=True)
class Bounds:
    """lower ≤ x ≤ upper for every entry of what a function bounds."""

    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Identity:
    """Two sides that are equal but for rounding: numbers, or arrays of one shape."""

    left: float | Floats
    right: float | Floats


# --- Section 4.1: short-horizon reduction ----------------------------------------------------------------------------


def decompose(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> Decomposition:
    """V*(d0) − V^π(d0) = Regret(h, λ, π) + Bias(h, λ, π), where

        Regret(h, λ, π) = λ·(Ṽ*(d0) − Ṽ^π(d0)) + (1−λ)/(1−γ)·(Ṽ*(d^π) − Ṽ^π(d^π))
        Bias(h, λ, π) = (V*(d0) − Ṽ*(d0)) + γ(1−λ)/(1−γ)·E_{s,a∼d^π} E_{s'|s,a}[h(s') − Ṽ*(s')]

    and neither changes when a constant is added to h. Source: `th:performance decomposition`, with `eq:regret` and
    `eq:bias`. The regret is 0 for π = π̃*, the bias is 0 for h = V* and for λ = 1. (Below
    `th:regret as action gap`, the paper prints Regret(h, 0, π) for the regret at λ = 1: it means Regret(h, 1, π).)

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    guided = reshaped(mdp, h, lambda_)
    values, guided_values = optimal(mdp).values, optimal(guided).values
    regret = _mixed(mdp, lambda_, policy, guided_values - evaluate(guided, policy))
    promised = _average(mdp, policy, mdp.expect(check_heuristic(mdp, h) - guided_values))
    bias = expectation(mdp, values - guided_values) + mdp.gamma * (1.0 - lambda_) / (1.0 - mdp.gamma) * promised
    return Decomposition(regret, bias, expectation(mdp, values) - expectation(mdp, evaluate(mdp, policy)))


def bias_shift(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy, b: float) -> Identity:
    """Bias(h, λ, π) = Bias(h + b, λ, π) for every number b.

    Source: `th:performance decomposition`, last sentence; the appendix proves it as a proposition without a label.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    return Identity(decompose(mdp, h, lambda_, policy).bias, decompose(mdp, h + b, lambda_, policy).bias)


def value_shift(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy, b: float) -> Identity:
    """Ṽ^π(s; h + b) − Ṽ^π(s; h) = (1−λ)γ/(1−λγ)·b, shape (S,).

    Source: the first step in the proof that the bias does not change with a constant. The right side is the same for
    all policies and states, which is why h and h + b have the same π̃* and the same regret.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    change = evaluate(reshaped(mdp, h + b, lambda_), policy) - evaluate(reshaped(mdp, h, lambda_), policy)
    return Identity(change, np.full(mdp.n_states, (1.0 - lambda_) * mdp.gamma / (1.0 - lambda_ * mdp.gamma) * b))


# --- Section 4.2: regret, and what reshaping preserves ---------------------------------------------------------------


def regret_as_action_gaps(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> float:
    """Regret(h, λ, π) = −E_{ρ^π(d0)}[Σ_t γ^t·Ã*(s_t, a_t)] with Ã*(s, a) = r̃(s, a) + γ̃·E_{s'|s,a}[Ṽ*(s')] − Ṽ*(s) ≤ 0.

    Source: `th:regret as action gap`. The gaps are those of M̃; they are summed along trajectories of M, with γ: as the
    value of π in an MDP that pays −Ã*.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    guided = reshaped(mdp, h, lambda_)
    values = optimal(guided).values
    gaps = bellman(guided, values) - values[:, None]
    return -expectation(mdp, evaluate(replace(mdp, rewards=gaps), policy))


def has_value_bounds(mdp: FiniteMDP, h: Floats) -> bool:
    """Whether r(s, a) ∈ [0, 1] and h(s) ∈ [0, 1/(1−γ)]: then Ṽ^π(s) ∈ [0, 1/(1−γ)] for all π, s and λ.

    Source: `th:preserved MDP properties`, 1). `value_bounds` gives the range for any rewards and any h.

    :param h: the heuristic, shape (S,)
    """
    h = check_heuristic(mdp, h)
    within = mdp.rewards.min() >= 0.0 and mdp.rewards.max() <= 1.0 and h.min() >= 0.0
    return bool(within and h.max() <= 1.0 / (1.0 - mdp.gamma))


def value_bounds(mdp: FiniteMDP, h: Floats, lambda_: float) -> Bounds:
    """(min r + (1−λ)γ·min h)/(1−λγ) ≤ Ṽ^π(s) ≤ (max r + (1−λ)γ·max h)/(1−λγ) for all π and s.

    Source: the proof of `th:preserved MDP properties`, 1). With r ∈ [0, 1] and h ∈ [0, 1/(1−γ)] (`has_value_bounds`)
    both ends lie in [0, 1/(1−γ)], as (1 + (1−λ)γ/(1−γ))/(1−λγ) = 1/(1−γ).

    :param h: the heuristic, shape (S,)
    """
    check_coefficient("lambda_", lambda_)
    h = check_heuristic(mdp, h)
    share, scale = (1.0 - lambda_) * mdp.gamma, 1.0 / (1.0 - lambda_ * mdp.gamma)
    lower, upper = mdp.rewards.min() + share * h.min(), mdp.rewards.max() + share * h.max()
    return Bounds(float(lower * scale), float(upper * scale))


def linear_reward_weights(mdp: FiniteMDP, h: Floats, lambda_: float, weights: Floats, measures: Floats) -> Floats:
    """θ̃ = θ + (1−λ)γ·μ h, shape (d,), such that r̃(s, a) = ⟨φ(s, a), θ̃⟩ for the same features φ, shape (S, A, d).

    Source: `th:preserved MDP properties`, 2), which says M̃ where it assumes that M is linear: r(s, a) = ⟨φ(s, a), θ⟩
    and P(s' | s, a) = ⟨φ(s, a), μ(s')⟩. The transitions of M̃ are those of M, so M̃ is linear too. `discounted_pbrs` is
    not: it subtracts h(s), which need not be linear in φ(s, a).

    :param h: the heuristic, shape (S,)
    :param weights: θ, shape (d,)
    :param measures: μ, shape (d, S)
    """
    check_coefficient("lambda_", lambda_)
    return weights + (1.0 - lambda_) * mdp.gamma * (measures @ check_heuristic(mdp, h))


def shaping_equivalence(mdp: FiniteMDP, h: Floats, lambda_: float) -> Identity:
    """r̄(s, a) = r̃(s, a) + γ̃·E_{s'|s,a}[h(s')] − h(s), shape (S, A): the λγ-discounted PBRS MDP is the PBRS of M̃.

    Source: the paragraph after `th:preserved MDP properties`. Both have the discount λγ; so V̄_λ^π = Ṽ^π − h, and the
    optimal policies are the same. M̄_λ has no bounds such as those of M̃: V̄_λ^π goes below 0 where h exceeds Ṽ^π.

    :param h: the heuristic, shape (S,)
    """
    guided, h = reshaped(mdp, h, lambda_), check_heuristic(mdp, h)
    shaped = guided.rewards + guided.gamma * mdp.expect(h) - h[:, None]
    return Identity(discounted_pbrs(mdp, h, lambda_).rewards, shaped)


# --- Section 4.3: bias and the quality of heuristics -----------------------------------------------------------------


def linf_error(h: Floats, values: Floats) -> float:
    """ε = min_b ‖h + b − V‖∞ = (max(h − V) − min(h − V))/2, half the span of the error.

    Source: the assumption of `th:l-inf bias bound`, where V is V*.

    :param h: the heuristic, shape (S,)
    :param values: V, shape (S,)
    """
    return float(np.ptp(np.asarray(h, np.float64) - values)) / 2.0


def linf_bias_bound(mdp: FiniteMDP, h: Floats, lambda_: float) -> float:
    """Bias(h, λ, π) ≤ (1−λγ)²/(1−γ)²·ε for every π, with ε = min_b ‖h + b − V*‖∞.

    Source: `th:l-inf bias bound`. The bound is loose: it is ε at λ = 1, where the bias is 0. The same argument, with
    the b that makes max(h + b − V*) = 0 rather than the one that centres the error, gives the smaller
    2(1−λ)γ/(1−γ)·ε, which at λ = 0 is the known bound on a greedy policy's loss (Singh and Yee, 1994).

    :param h: the heuristic, shape (S,)
    """
    check_coefficient("lambda_", lambda_)
    error = linf_error(check_heuristic(mdp, h), optimal(mdp).values)
    return ((1.0 - lambda_ * mdp.gamma) / (1.0 - mdp.gamma)) ** 2 * error


def future_sum(mdp: FiniteMDP, policy: Policy, g: Floats, eta: float) -> float:
    """C(π, g, η) = E_{ρ^π(d0)}[Σ_{t≥1} η^{t−1}·g(s_t)], from the state after the first on.

    Source: `th:bias bound`. The paper allows η = 1, where the sum need not exist; its bounds use λγ and γ, below 1.

    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    :param g: a function of states, shape (S,)
    :param eta: η ∈ [0, 1)
    """
    return expectation(mdp, _future_sums(mdp, policy, g, eta))


def bias_bound(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> BiasBound:
    """Bias(h, λ, π) ≤ (1−λ)γ·(C(π*, V* − h, λγ) + C(π, h − Ṽ*, γ)).

    Source: `th:bias bound`. (The last lines of its proof print π for π* in the first term and π* for π in the second;
    the statement is right.) The second term equals the bias's own; only V*(d0) − Ṽ*(d0) is bounded. A constant added
    to h moves both terms, by the same amount in opposite directions, and leaves the total as it is.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    best, guided_values = optimal(mdp), optimal(reshaped(mdp, h, lambda_)).values
    share = (1.0 - lambda_) * mdp.gamma
    return BiasBound(
        underestimation=share * future_sum(mdp, best.policy, best.values - h, lambda_ * mdp.gamma),
        overestimation=share * future_sum(mdp, policy, h - guided_values, mdp.gamma),
    )


def improvability_gap(mdp: FiniteMDP, h: Floats) -> float:
    """min_s [max_a (B h)(s, a) − h(s)]: h is improvable where this is 0 or more.

    Source: the Definition in section 4.3. One number, the worst state's; `bellman(mdp, h).max(axis=1) - h` tells the
    states apart.

    :param h: the heuristic, shape (S,)
    """
    h = check_heuristic(mdp, h)
    return float((bellman(mdp, h).max(axis=1) - h).min())


def is_improvable(mdp: FiniteMDP, h: Floats, tolerance: float = ROUNDING) -> bool:
    """Whether max_a (B h)(s, a) ≥ h(s) for all s.

    Source: the Definition in section 4.3. h = V^π' is improvable for every π'; h = 0 is where no reward is negative.

    :param h: the heuristic, shape (S,)
    :param tolerance: the gap below 0 that counts as rounding, relative to max(1, ‖h‖∞)
    """
    return improvability_gap(mdp, h) >= -tolerance * max(1.0, float(np.abs(h).max()))


def improvement_margin(mdp: FiniteMDP, h: Floats, lambda_: float) -> Floats:
    """Ṽ*(s) − h(s), shape (S,): 0 or more for all s and λ if h is improvable.

    Source: `th:improvable heuristic`. Its proof shows more, for every h: the margin is at least
    `improvability_gap(mdp, h)`/(1−λγ).

    :param h: the heuristic, shape (S,)
    """
    return optimal(reshaped(mdp, h, lambda_)).values - h


# --- Section 4.4: pessimism ------------------------------------------------------------------------------------------


def bellman_pessimism(mdp: FiniteMDP, q: Floats, policy: Policy) -> BellmanPessimism:
    """If h(s) = Q(s, π') and Q(s, a) ≤ (B h)(s, a) for all s and a, then h is improvable and h(s) ≤ V^π'(s).

    Source: `th:bellman pessimism and improvable heuristic`. The paper's proof goes through for every Q in this form:
    improvability ≥ consistency, and underestimation ≥ consistency/(1−γ). (The proof prints Q(s, π') = (B h)(s, π')
    where it means ≤.)

    :param q: Q, shape (S, A)
    :param policy: π', actions, shape (S,), or probabilities, shape (S, A)
    """
    if np.shape(q) != (mdp.n_states, mdp.n_actions):
        raise ValueError(f"Q has shape ({mdp.n_states}, {mdp.n_actions}), got {np.shape(q)}")
    q = np.asarray(q, np.float64)
    h = _on_policy(mdp, policy, q)
    return BellmanPessimism(
        consistency=float((bellman(mdp, h) - q).min()),
        improvability=improvability_gap(mdp, h),
        underestimation=float((evaluate(mdp, policy) - h).min()),
    )


def is_bellman_pessimistic(mdp: FiniteMDP, q: Floats, policy: Policy, tolerance: float = ROUNDING) -> bool:
    """Whether Q(s, a) ≤ (B h)(s, a) for all s and a, with h(s) = Q(s, π').

    Source: the assumption of `th:bellman pessimism and improvable heuristic`.

    :param q: Q, shape (S, A)
    :param policy: π', actions, shape (S,), or probabilities, shape (S, A)
    :param tolerance: the excess that counts as rounding, relative to max(1, ‖Q‖∞)
    """
    return bellman_pessimism(mdp, q, policy).consistency >= -tolerance * max(1.0, float(np.abs(q).max()))


# --- The appendix's lemmas -------------------------------------------------------------------------------------------


def general_performance_difference(
    mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy, values: Floats
) -> Identity:
    """V(d0) − V^π(d0) = γ(1−λ)/(1−γ)·E_{s,a∼d^π} E_{s'|s,a}[h(s') − V(s')] + λ·x(d0) + (1−λ)/(1−γ)·x(d^π), x = V − Ṽ^π.

    Source: `lm:gpdl`, for every V.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    :param values: V, shape (S,)
    """
    h, values = check_heuristic(mdp, h), check_heuristic(mdp, values, "V")
    promised = mdp.gamma * (1.0 - lambda_) / (1.0 - mdp.gamma) * _average(mdp, policy, mdp.expect(h - values))
    gap = _mixed(mdp, lambda_, policy, values - evaluate(reshaped(mdp, h, lambda_), policy))
    return Identity(expectation(mdp, values) - expectation(mdp, evaluate(mdp, policy)), promised + gap)


def performance_difference(mdp: FiniteMDP, policy: Policy, values: Floats) -> Identity:
    """V(d0) − V^π(d0) = 1/(1−γ)·E_{s,a∼d^π}[V(s) − (B V)(s, a)].

    Source: `lm:pdl`, for every V (Kakade and Langford, 2002).

    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    :param values: V, shape (S,)
    """
    values = check_heuristic(mdp, values, "V")
    errors = _average(mdp, policy, values[:, None] - bellman(mdp, values))
    return Identity(expectation(mdp, values) - expectation(mdp, evaluate(mdp, policy)), errors / (1.0 - mdp.gamma))


def weighted_performance_difference(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> Identity:
    """h(d0) − V^π(d0) = λ·(h(d0) − Ṽ^π(d0)) + (1−λ)/(1−γ)·(h(d^π) − Ṽ^π(d^π)).

    Source: `pr:lambda weighted pdf`, which is `lm:gpdl` with V = h; λ = 0 gives `lm:pdl`.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    h = check_heuristic(mdp, h)
    gap = _mixed(mdp, lambda_, policy, h - evaluate(reshaped(mdp, h, lambda_), policy))
    return Identity(expectation(mdp, h) - expectation(mdp, evaluate(mdp, policy)), gap)


def bellman_backup_difference(mdp: FiniteMDP, h: Floats, lambda_: float, values: Floats) -> Identity:
    """(B V)(s, a) − (B̃ V)(s, a) = (1−λ)γ·E_{s'|s,a}[V(s') − h(s')], shape (S, A).

    Source: `lm:Bellman backup difference`, for every V.

    :param h: the heuristic, shape (S,)
    :param values: V, shape (S,)
    """
    h, values = check_heuristic(mdp, h), check_heuristic(mdp, values, "V")
    difference = bellman(mdp, values) - bellman(reshaped(mdp, h, lambda_), values)
    return Identity(difference, (1.0 - lambda_) * mdp.gamma * mdp.expect(values - h))


def value_difference(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> Identity:
    """V^π(s) − Ṽ^π(s) = (1−λ)γ·E_{ρ^π(s)}[Σ_{t≥1} (λγ)^{t−1}·(V^π(s_t) − h(s_t))], shape (S,).

    Source: `lm:value difference`.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    h, values = check_heuristic(mdp, h), evaluate(mdp, policy)
    future = _future_sums(mdp, policy, values - h, lambda_ * mdp.gamma)
    return Identity(values - evaluate(reshaped(mdp, h, lambda_), policy), (1.0 - lambda_) * mdp.gamma * future)


def value_change(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy) -> Bounds:
    """−ε_l − (1−λ)γ/(1−λγ)·ε_u ≤ h(s) − Ṽ^π(s) ≤ ε_u + (1−λ)γ/(1−λγ)·ε_l if −ε_l ≤ h(s) − V^π(s) ≤ ε_u.

    Source: `lm:value change`, with the smallest ε_l = −min(h − V^π) and ε_u = max(h − V^π); either may be negative.

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    """
    check_coefficient("lambda_", lambda_)
    errors = check_heuristic(mdp, h) - evaluate(mdp, policy)
    below, above = -float(errors.min()), float(errors.max())
    share = (1.0 - lambda_) * mdp.gamma / (1.0 - lambda_ * mdp.gamma)
    return Bounds(-below - share * above, above + share * below)


def online_value_difference(mdp: FiniteMDP, h: Floats, lambda_: float, policy: Policy, values: Floats) -> Identity:
    """1/(1−γ)·E_{s,a∼d^π}[V(s) − (B̃ V)(s, a)] = λ·(V(d0) − Ṽ^π(d0)) + (1−λ)/(1−γ)·(V(d^π) − Ṽ^π(d^π)).

    Source: `lm:online value difference`, for every V. (The proof prints −λγ·E[Ṽ^π(s') − V(s')] where the sign is +; the
    statement is right.)

    :param h: the heuristic, shape (S,)
    :param policy: actions, shape (S,), or probabilities, shape (S, A)
    :param values: V, shape (S,)
    """
    guided, values = reshaped(mdp, h, lambda_), check_heuristic(mdp, values, "V")
    errors = _average(mdp, policy, values[:, None] - bellman(guided, values))
    gap = _mixed(mdp, lambda_, policy, values - evaluate(guided, policy))
    return Identity(errors / (1.0 - mdp.gamma), gap)


def _mixed(mdp: FiniteMDP, lambda_: float, policy: Policy, gap: Floats) -> float:
    """λ·x(d0) + (1−λ)/(1−γ)·x(d^π) for x of shape (S,)."""
    visited = expectation(mdp, gap, average_distribution(mdp, policy))
    return lambda_ * expectation(mdp, gap) + (1.0 - lambda_) / (1.0 - mdp.gamma) * visited


def _average(mdp: FiniteMDP, policy: Policy, table: Floats) -> float:
    """E_{s,a∼d^π}[x(s, a)] for x of shape (S, A)."""
    return expectation(mdp, _on_policy(mdp, policy, table), average_distribution(mdp, policy))


def _on_policy(mdp: FiniteMDP, policy: Policy, table: Floats) -> Floats:
    """x(s, π) = E_{a∼π(s)}[x(s, a)], shape (S,), for x of shape (S, A)."""
    policy = mdp.check_policy(policy)
    chosen: Floats = table[np.arange(mdp.n_states), policy] if policy.ndim == 1 else (policy * table).sum(axis=1)
    return chosen


def _future_sums(mdp: FiniteMDP, policy: Policy, g: Floats, eta: float) -> Floats:
    """E_{ρ^π(s)}[Σ_{t≥1} η^{t−1}·g(s_t)] for each state s, shape (S,): the value of π where a step pays E[g(s')]."""
    if not 0.0 <= eta < 1.0:
        raise ValueError(f"eta must lie in [0, 1), where the sum exists whatever g is, got {eta!r}")
    return evaluate(replace(mdp, rewards=mdp.expect(g), gamma=eta), policy)
