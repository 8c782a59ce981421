"""What a ladder and prior data cost: the paper's Hopper iteration with a constant λ and with each, in one run by turns.

As long as it is open which rung is the best, all learn from every batch; once it is decided the best does, and others
now and then. Both are measured: the bandit is told returns that leave it open, and returns that decide it. Prior data
is half of each batch, of half a million transitions. See `throughput.py` for the iteration.

    python benchmarks/extras.py --repeats 8
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import sbx
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits
from throughput import GAMMA, N_ENVS, SETTINGS, STEPS, iterate, network

import hurl
from hurl.data import Episodes
from hurl.envs import make_env

CONSTANT, PRIOR, OPEN, DECIDED = "constant λ", "constant λ, prior data", "ladder, open", "ladder, decided"
SCHEDULES = {
    CONSTANT: hurl.ConstantSchedule(0.95),
    PRIOR: hurl.ConstantSchedule(0.95),
    OPEN: hurl.Ladder(0.95, 1.0),
    DECIDED: hurl.Ladder(0.95, 1.0),
}
BETTER = {OPEN: 0.0, DECIDED: 1e6}
EPISODES, LENGTH = 500, 1_000


def logged(env: Any) -> Episodes:
    """Make up episodes, of numbers that say nothing."""
    rng, count = np.random.default_rng(0), EPISODES * LENGTH
    return Episodes(
        states=rng.normal(size=(count + EPISODES, *env.observation_space.shape)),
        actions=rng.uniform(-1, 1, (count, *env.action_space.shape)).astype(np.float32),
        rewards=rng.normal(size=count),
        lengths=np.full(EPISODES, LENGTH),
        terminated=np.zeros(EPISODES, bool),
        observation_space=env.observation_space,
        action_space=env.action_space,
        name="made-up/noise-v0",
    )


def build(name: str) -> Any:
    """Build a guided SAC."""
    schedule = SCHEDULES[name]
    guidance = hurl.Guidance(network, schedule, gamma=GAMMA, steps_per_iteration=STEPS)
    env = make_env("Hopper-v4", N_ENVS, 0, threads=2)
    options = SETTINGS | {"train_freq": (STEPS // N_ENVS, "step")}
    prior = hurl.PriorData(logged(env)) if name == PRIOR else None
    return hurl.guided(sbx.SAC)("MlpPolicy", env, guidance=guidance, prior=prior, **options)


def tell(model: Any, better: float) -> None:
    """Tell a bandit returns by which its first rung is so much better."""
    bandit = model.guidance.bandit
    for block in range(bandit.ladder.window):
        for rung in range(bandit.count):
            bandit.add(rung, block + better * (rung == 0))
        bandit.close_block()


def measure(models: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return the seconds of an iteration of each, collecting and training."""
    spent = {name: np.zeros(2) for name in models}
    for name in (*models, *reversed(models)):
        if name in BETTER:
            tell(models[name], BETTER[name])
        spent[name] += iterate(models[name]) / 2
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8, help="turns of two iterations each (default: 8)")
    repeats = parser.parse_args().repeats
    threadpool_limits(1, user_api="blas")
    models = {name: build(name) for name in SCHEDULES}
    measure(models)  # which compiles
    turns = [measure(models) for _ in track(range(repeats), description="turns", transient=True)]
    totals = {name: np.array([turn[name].sum() for turn in turns]) for name in models}
    table = Table("", "steps/s", "iteration", "speed against constant λ", title="Hopper-v4, 4,000 steps, 1,024 updates")
    for name, seconds in totals.items():
        ratio = totals[CONSTANT].mean() / seconds.mean()  # means, for not every iteration has updates of all rungs
        table.add_row(name, f"{STEPS / seconds.mean():,.0f}", f"{seconds.mean():.2f} s", f"{ratio:.3f}×")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
