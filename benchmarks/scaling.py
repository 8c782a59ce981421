"""Where the time of guided PPO on Procgen goes, against the number of env runners.

    python benchmarks/scaling.py --runners 0 1 2 4 --repeats 2

The paper's model and a heuristic of its size; 32 environments shared by the env runners (0: they step in the learner's
own process), 2,048 steps an iteration, three epochs. The table shows medians over the iterations after the first.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    CONNECTOR_PIPELINE_TIMER,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_CONNECTOR,
    LEARNER_UPDATE_TIMER,
    TIMERS,
)
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rllib import GAMMA, CNNHeuristic

import hurl
from hurl.experiments.ray_start import ray_here
from hurl.rllib import guided, on_procgen

ENVIRONMENTS = 32
STEPS = 2_048
CONNECTOR = (ALL_MODULES, LEARNER_CONNECTOR, CONNECTOR_PIPELINE_TIMER)


class TimedHeuristic(CNNHeuristic):
    """A heuristic that counts the seconds it takes."""

    seconds = 0.0

    def __call__(self, observations: Any) -> Any:
        """Return h of a batch of images."""
        started = perf_counter()
        values = super().__call__(observations)
        self.seconds += perf_counter() - started
        return values


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration: of sampling, of h, of what else is computed before the first gradient, of gradients."""

    total: float
    sampling: float
    heuristic: float
    connector: float
    gradients: float


def build(runners: int, heuristic: TimedHeuristic) -> Any:
    """Make the algorithm, its timers counting the seconds of an iteration: RLlib would average over a hundred."""
    each = ENVIRONMENTS // max(1, runners)
    config = on_procgen(PPOConfig(), "coinrun").env_runners(
        num_env_runners=runners,
        num_envs_per_env_runner=each,
        rollout_fragment_length=STEPS // ENVIRONMENTS,
        num_cpus_per_env_runner=0.1,  # more of them than cores, where that is asked for
    )
    config.training(gamma=GAMMA, train_batch_size_per_learner=STEPS, minibatch_size=512, num_epochs=3)
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(1.0), gamma=GAMMA, steps_per_iteration=STEPS)
    algorithm = guided(config.debugging(seed=0, log_level="ERROR"), guidance).build_algo()
    for timer in (ENV_RUNNER_SAMPLING_TIMER, LEARNER_UPDATE_TIMER):
        algorithm.metrics.log_value((TIMERS, timer), 0.0, reduce="sum")
    algorithm.learner_group._learner.metrics.log_value(CONNECTOR, 0.0, reduce="sum")
    return algorithm


def measure(algorithm: Any) -> Iteration:
    """Train for an iteration."""
    heuristic = algorithm.learner_group._learner.guidance.heuristic
    before, started = heuristic.seconds, perf_counter()
    result = algorithm.train()
    total = perf_counter() - started
    seconds_of_h = heuristic.seconds - before
    timers, learners = result["timers"], result["learners"]
    connector = float(learners[ALL_MODULES][LEARNER_CONNECTOR][CONNECTOR_PIPELINE_TIMER])
    learning = float(timers[LEARNER_UPDATE_TIMER])
    sampling = float(timers[ENV_RUNNER_SAMPLING_TIMER])
    return Iteration(total, sampling, seconds_of_h, connector - seconds_of_h, learning - connector)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Where the time of guided PPO on Procgen goes.")
    parser.add_argument("--runners", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the learner")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    table = Table(title=f"{STEPS:,} steps an iteration, learner on {arguments.threads} cores")
    for heading in ("env runners", "steps/s", "sampled/s", "sampling", "h", "advantages", "gradients", "rest"):
        table.add_column(heading, justify="right")
    with ray_here(os.cpu_count() or 1), Progress() as progress:
        turns = progress.add_task("iterations", total=len(arguments.runners) * (arguments.repeats + 1))
        for runners in arguments.runners:
            algorithm = build(runners, TimedHeuristic())
            iterations = []
            for _ in range(arguments.repeats + 1):
                iterations.append(measure(algorithm))
                progress.advance(turns)
            algorithm.stop()
            table.add_row(str(runners), *describe(iterations[1:]))  # the first warms up
    Console().print(table)


def describe(iterations: list[Iteration]) -> list[str]:
    """Return the medians: steps in a second, those of sampling alone, and the share of each part."""
    middle = {
        part: statistics.median(getattr(iteration, part) for iteration in iterations)
        for part in Iteration.__dataclass_fields__
    }
    total = middle.pop("total")
    parts = [*middle.values(), total - sum(middle.values())]
    shares = [f"{seconds / total:.1%}" for seconds in parts]
    return [f"{STEPS / total:,.0f}", f"{STEPS / middle['sampling']:,.0f}", *shares]


if __name__ == "__main__":
    main()
