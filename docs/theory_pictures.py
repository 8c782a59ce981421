"""Make the pictures of docs/theory.md, and print the numbers that the page quotes.

python docs/theory_pictures.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hurl.tabular.chain import chain_figure, corridor_mdp
from hurl.tabular.chain_picture import write_chain
from hurl.tabular.learning import reference_heuristics, sample_complexity
from hurl.tabular.mdp import mdp_from_gymnasium
from hurl.tabular.pessimism import absorbing_values, monte_carlo_values, naive_values, pessimistic_values
from hurl.tabular.reshaping import reshaped
from hurl.tabular.simulate import sample_batch
from hurl.tabular.solve import evaluate, expectation, optimal, uniform_policy
from hurl.tabular.theory import bias_bound, decompose, improvability_gap, improvement_margin, linf_bias_bound

FOLDER = Path(__file__).parent / "theory"
LAMBDAS = np.linspace(0, 1, 101)
STYLES = {"good": "C0-", "bad": "C1--", "zero": "C2:"}
LABELS = {"good": "good h", "bad": "bad h", "zero": "h = 0"}


def bias_and_regret() -> None:
    """Draw bias and regret against λ on the chain, of the policy found and of the random policy."""
    figure = chain_figure()
    heuristics = figure.heuristics | {"zero": np.zeros(10)}
    picture, (found, random) = panels("policy found at λ: all is bias", "random policy: regret and bias")
    for name, h in heuristics.items():
        bias, bound = [], []
        for lambda_ in LAMBDAS:
            policy = optimal(reshaped(figure.mdp, h, lambda_)).policy
            bias.append(decompose(figure.mdp, h, lambda_, policy).bias)
            bound.append(bias_bound(figure.mdp, h, lambda_, policy).total)
        found.plot(LAMBDAS, bias, STYLES[name], label=LABELS[name])
        found.plot(LAMBDAS, bound, STYLES[name], alpha=0.35, linewidth=1)
        last = np.flatnonzero(np.array(bias) > 1e-9)[-1]
        print(f"bias of the policy found, {name}: {max(bias):.3f} at most, 0 from λ = {LAMBDAS[last + 1]:.2f} on")
    found.set_ylabel("bias (thin: its bound)")
    for name in ("good", "bad"):
        parts = [decompose(figure.mdp, heuristics[name], lambda_, uniform_policy(figure.mdp)) for lambda_ in LAMBDAS]
        random.plot(LAMBDAS, [part.regret for part in parts], STYLES[name], label=f"regret, {LABELS[name]}")
        random.plot(LAMBDAS, [part.bias for part in parts], STYLES[name], label=f"bias, {LABELS[name]}", alpha=0.4)
    random.axhline(parts[0].suboptimality, color="gray", linewidth=1, label="their sum, V* − V^π")
    for name in ("good", "bad"):
        print(f"ℓ∞ bound of the bias at λ = 0.5, {name}: {linf_bias_bound(figure.mdp, heuristics[name], 0.5):.1f}")
    save(picture, "bias-and-regret.png", (found, random))


def improvable() -> None:
    """Draw, for an improvable heuristic and one that is not, how far h is below Ṽ*, and the bound of the bias."""
    figure = chain_figure()
    mdp, good = figure.mdp, figure.heuristics["good"]
    bump = good.copy()
    bump[6 - 1] += 0.5
    picture, (margins, bounds) = panels("min over states of Ṽ* − h", "bound of the bias, of the policy found")
    for label, h, style in (("improvable: V(random)", good, "C0-"), ("not: the same, + 0.5 in state 6", bump, "C3--")):
        print(f"{label}: improvability gap {improvability_gap(mdp, h):.3f}")
        margins.plot(LAMBDAS, [improvement_margin(mdp, h, lambda_).min() for lambda_ in LAMBDAS], style, label=label)
        policies = [optimal(reshaped(mdp, h, lambda_)).policy for lambda_ in LAMBDAS]
        totals = [bias_bound(mdp, h, lambda_, policy).total for lambda_, policy in zip(LAMBDAS, policies, strict=True)]
        bounds.plot(LAMBDAS, totals, style, label=label)
    margins.axhline(0, color="gray", linewidth=1)
    save(picture, "improvable.png", (margins, bounds))


def pessimism() -> None:
    """Draw, on FrozenLake, how heuristics from data of several sizes overestimate, and what is found with them."""
    mdp = mdp_from_gymnasium("FrozenLake-v1", gamma=0.95)
    best = optimal(mdp)
    sizes = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000]
    kinds: dict[str, Any] = {
        "naive": lambda batch: naive_values(batch, gamma=0.95).h,
        "Monte-Carlo means": lambda batch: monte_carlo_values(batch, gamma=0.95),
        "pessimistic": lambda batch: pessimistic_values(batch, gamma=0.95, reward_range=(0, 1), bonus_scale=0.01).h,
        "absorbing": lambda batch: absorbing_values(batch, gamma=0.95, reward_range=(0, 1), minimum_count=20).h,
    }
    over: dict[str, list[float]] = {kind: [] for kind in kinds}
    values: dict[str, list[float]] = {kind: [] for kind in kinds}
    for size in sizes:
        batches = [
            sample_batch(mdp, uniform_policy(mdp), size, np.random.default_rng(seed), horizon=100) for seed in range(20)
        ]
        for kind, make in kinds.items():
            heuristics = [make(batch) for batch in batches]
            over[kind].append(float(np.median([np.max(h - best.values) for h in heuristics])))
            policies = [optimal(reshaped(mdp, h, 0.5)).policy for h in heuristics]
            values[kind].append(float(np.median([expectation(mdp, evaluate(mdp, policy)) for policy in policies])))
    picture, (errors, found) = panels("largest overestimation, max h − V*", "value of the policy found at λ = 0.5")
    for kind in kinds:
        errors.plot(sizes, over[kind], "o-", label=kind)
        found.plot(sizes, values[kind], "o-", label=kind)
        print(f"{kind}: overestimation", *(f"{error:.3f}" for error in over[kind]))
        print(f"{kind}: value found", *(f"{value:.3f}" for value in values[kind]))
    found.axhline(expectation(mdp, best.values), color="gray", linewidth=1, label="V*")
    errors.axhline(0, color="gray", linewidth=1)
    for axes in (errors, found):
        axes.set(xscale="log", xlabel="transitions in the data (median of 20 batches)")
    save(picture, "pessimism.png", (errors, found))


def samples() -> None:
    """Draw the samples that Q-learning needs to be nearly optimal, against λ, for heuristics from best to worst."""
    mdp = corridor_mdp(length=30, slip=0.1, gamma=0.99)
    rng = np.random.default_rng(0)
    batch = sample_batch(mdp, uniform_policy(mdp), 100_000, rng, horizon=1_000)
    heuristics = reference_heuristics(mdp, batch, bonus_scale=3e-4)
    lambdas = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]
    table = sample_complexity(
        mdp,
        heuristics,
        lambdas,
        epsilon=0.05,
        budget=100_000,
        evaluation_interval=500,
        horizon=1_000,
        rng=rng,
        exploration=0.2,
        runs=20,
    )
    print(table)
    picture = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = picture.add_subplot()
    for name, medians in zip(table.heuristics, table.median(), strict=True):
        reached = np.isfinite(medians)
        axes.plot(np.array(lambdas)[reached], medians[reached], "o-", label=name)
    axes.set(yscale="log", xlabel="λ", ylabel="environment steps to 0.05-optimality\n(median of 20 runs)")
    save(picture, "samples.png", (axes,))


def panels(left: str, right: str) -> tuple[Figure, Any]:
    """Make a figure with two titled panels."""
    picture = Figure(figsize=(11.0, 3.8), layout="constrained")
    axes = picture.subplots(1, 2)
    for panel, title in zip(axes, (left, right), strict=True):
        panel.set(title=title, xlabel="λ")
    return picture, axes


def save(picture: Figure, name: str, axes: tuple[Any, ...]) -> None:
    """Finish and write a picture."""
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.legend(fontsize=9, framealpha=0.8)
    picture.savefig(FOLDER / name, dpi=120)


if __name__ == "__main__":
    write_chain(FOLDER)
    bias_and_regret()
    improvable()
    pessimism()
    samples()
