"""MDPs made from an MDP and a heuristic: the reshaped MDP, and those of potential-based shaping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hurl.schedules import check_coefficient
from hurl.tabular.mdp import FiniteMDP, Floats


def reshaped(mdp: FiniteMDP, h: Floats, lambda_: float) -> FiniteMDP:
    """M̃ = (S, A, P, r̃, γ̃) with r̃(s, a) = r(s, a) + (1 − λ)·γ·E_{s'|s,a}[h(s')] and γ̃ = λ·γ.

    Source: equation (2), `eq:reshaped MDP`. States are never terminal here: give absorbing states the h of their worth.

    :param h: the heuristic, shape (S,)
    """
    check_coefficient("lambda_", lambda_)
    rewards = mdp.rewards + (1.0 - lambda_) * mdp.gamma * mdp.expect(check_heuristic(mdp, h))
    return replace(mdp, rewards=rewards, gamma=lambda_ * mdp.gamma)


def pbrs(mdp: FiniteMDP, h: Floats) -> FiniteMDP:
    """M̄ = (S, A, P, r̄, γ) with r̄(s, a) = r(s, a) + γ·E_{s'|s,a}[h(s')] − h(s).

    Source: section 2.2 (Ng et al., 1999).
    """
    h = check_heuristic(mdp, h)
    return replace(mdp, rewards=mdp.rewards + mdp.gamma * mdp.expect(h) - h[:, None])


def discounted_pbrs(mdp: FiniteMDP, h: Floats, lambda_: float) -> FiniteMDP:
    """M̄_λ = (S, A, P, r̄, λγ): the shaped reward with a smaller discount. Source: section 2.2."""
    check_coefficient("lambda_", lambda_)
    return replace(pbrs(mdp, h), gamma=lambda_ * mdp.gamma)


def check_heuristic(mdp: FiniteMDP, h: Floats, name: str = "a heuristic") -> Floats:
    """Refuse what is not one finite value for each state."""
    h = np.asarray(h, np.float64)
    if h.shape != (mdp.n_states,):
        raise ValueError(f"{name} has one value for each of {mdp.n_states} states, got shape {h.shape}")
    wrong = np.flatnonzero(~np.isfinite(h))
    if wrong.size:
        raise ValueError(f"{name} must be finite, got {h[wrong[0]]} in state {wrong[0]}")
    return h
