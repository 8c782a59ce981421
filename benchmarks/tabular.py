"""Optimal values of random sparse MDPs: `hurl.tabular.optimal` beside QuantEcon's `DiscreteDP`, interleaved in one run.

Each MDP has 4 actions with 8 random successors each, and γ = 0.99. Both solve it by modified policy iteration to
within 1e-8, from the same matrix; QuantEcon in its sparse state-action-pair form, with its compiled code warm, and with
several numbers k of evaluation sweeps, of which 20 is its default. Making the MDP and the `DiscreteDP` is not counted.
They take turns; the table shows medians, and ratios within the turns.

    python benchmarks/tabular.py --repeats 15
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
from quantecon.markov import DiscreteDP
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import sparse
from threadpoolctl import threadpool_limits

from hurl.tabular.mdp import FiniteMDP
from hurl.tabular.solve import optimal

SIZES = (1_000, 10_000, 100_000)
ACTIONS, SUCCESSORS, GAMMA, TOLERANCE = 4, 8, 0.99, 1e-8
OURS = "hurl"
PEERS = {f"QuantEcon k={sweeps}": sweeps for sweeps in (20, 10, 5)}


def random_mdp(states: int) -> FiniteMDP:
    """Draw successors, probabilities and rewards."""
    rng = np.random.default_rng(0)
    starts = np.arange(states + 1) * SUCCESSORS
    matrices = []
    for _ in range(ACTIONS):
        probabilities = rng.dirichlet(np.ones(SUCCESSORS), states).ravel()
        successors = rng.integers(states, size=states * SUCCESSORS)
        matrices.append(sparse.csr_array((probabilities, successors, starts), shape=(states, states)))
    return FiniteMDP(matrices, rng.random((states, ACTIONS)), GAMMA, np.full(states, 1 / states))


def contestants(mdp: FiniteMDP) -> dict[str, Callable[[], np.ndarray]]:
    """Return what solves the MDP, by name; each returns V*."""
    pairs = np.divmod(np.arange(mdp.n_states * ACTIONS), ACTIONS)
    program = DiscreteDP(mdp.rewards.ravel(), sparse.csr_matrix(mdp.matrix), GAMMA, *pairs)

    def peer(sweeps: int) -> np.ndarray:
        # Its epsilon is twice the error of the values.
        return program.solve(method="modified_policy_iteration", epsilon=2 * TOLERANCE, k=sweeps).v

    return {OURS: lambda: optimal(mdp, TOLERANCE).values} | {name: partial(peer, k) for name, k in PEERS.items()}


def measure(states: int, repeats: int) -> dict[str, np.ndarray]:
    """Return the seconds of each turn; refuse values that differ."""
    solvers = contestants(random_mdp(states))
    values = {name: solve() for name, solve in solvers.items()}  # compiles, too
    for name in PEERS:
        difference = np.abs(values[name] - values[OURS]).max()
        if difference > 2 * TOLERANCE:
            raise ValueError(f"the values of {states} states by {name} differ by {difference}")
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    for turn in range(repeats):
        for name in list(solvers)[:: 1 if turn % 2 else -1]:
            started = perf_counter()
            solvers[name]()
            seconds[name].append(perf_counter() - started)
    return {name: np.array(spent) for name, spent in seconds.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="turns at each size (default: 15)")
    repeats = parser.parse_args().repeats
    threadpool_limits(1)
    seconds = {states: measure(states, repeats) for states in track(SIZES, description="sizes", transient=True)}
    Console(width=110).print(tabulate(seconds))


def tabulate(seconds: dict[int, dict[str, np.ndarray]]) -> Table:
    """Make the table: medians over the turns, those of the ratio to the fastest peer, and growth from size to size."""
    table = Table(title=f"V* within {TOLERANCE}: {ACTIONS} actions, {SUCCESSORS} successors each, γ = {GAMMA}")
    for heading in ("states", OURS, *PEERS, "speed against the fastest", "growth, ours", "growth, fastest"):
        table.add_column(heading, justify="right")
    before: list[float] = []
    for states, spent in seconds.items():
        medians = {name: float(np.median(values)) for name, values in spent.items()}
        fastest = min(PEERS, key=medians.__getitem__)
        now = [medians[OURS], medians[fastest]]
        table.add_row(
            f"{states:,}",
            *(f"{medians[name] * 1e3:.2f} ms" for name in (OURS, *PEERS)),
            f"{np.median(spent[fastest] / spent[OURS]):.2f}×",
            *(f"{after / earlier:.1f}×" for after, earlier in zip(now, before, strict=False)),
        )
        before = now
    return table


if __name__ == "__main__":
    main()
