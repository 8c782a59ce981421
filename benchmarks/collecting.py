"""Speed of collecting Hopper data from an SBX SAC policy: EnvPool alone, `hurl collect`, and Minari's own collector.

They take turns, so that whatever else the machine does meets them alike; the table shows medians, and ratios within the
turns. The policy is that of the preset hopper/sac with fresh weights, or a checkpoint's; its first call, which compiles
it, is not counted. A policy with fresh weights falls at once, so that most episodes are short, and resets many: trained
ones are faster to collect from where their episodes are long.

    python benchmarks/collecting.py --repeats 5
    python benchmarks/collecting.py --checkpoint runs/hopper/sac/seed-0/checkpoints/000200
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hurl.experiments.process import prepare_process

N_ENVS = 10


def contestants(transitions: int, threads: int, checkpoint: Path | None) -> dict[str, Callable[[], int]]:
    """Return what is to be timed: functions that return how many steps they took."""
    import envpool
    import gymnasium as gym
    import minari

    from hurl.data import Policy, collect
    from hurl.data.rollout import roll_out
    from hurl.envs import make_env
    from hurl.experiments.config import load_config
    from hurl.experiments.trainers.sb3 import build_policy

    env = make_env("Hopper-v4", N_ENVS, 0, threads=threads)
    models = [build_policy(load_config("hopper/sac"), env) for _ in range(2)]
    if checkpoint is not None:
        for model in models:
            model.load(checkpoint)
    ours, theirs = models

    def start(seed: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        ours.seed(seed)
        return lambda observations: ours.predict(observations)[0]

    policy = Policy("sac", start, "benchmark", "sbx.SAC", "benchmark")
    pool = envpool.make("Hopper-v4", env_type="gymnasium", num_envs=N_ENVS, num_threads=threads, seed=0)
    pool.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (transitions // N_ENVS, N_ENVS, 3)).astype(np.float32)
    folder = Path(tempfile.mkdtemp())

    def envpool_alone() -> int:
        for action in actions:
            pool.step(action)
        return actions.shape[0] * N_ENVS

    def rolling_out() -> int:
        return int(roll_out(policy, env.venv, transitions, 0).lengths.sum())

    def collecting() -> int:
        shutil.rmtree(folder, ignore_errors=True)
        return int(collect([policy], env, "benchmark-v0", transitions=transitions, root=folder).total_steps)

    def minari_collecting() -> int:
        shutil.rmtree(folder, ignore_errors=True)
        collector = minari.DataCollector(gym.make("Hopper-v4"))
        steps = 0
        while steps < transitions // 5:
            observation, _ = collector.reset()
            ended = False
            while not ended:
                action, _ = theirs.predict(observation.astype(np.float32))
                observation, _, terminated, truncated, _ = collector.step(action)
                steps, ended = steps + 1, terminated or truncated
        collector.create_dataset("benchmark-v0")
        collector.close()
        return steps

    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    return {
        f"EnvPool alone, {N_ENVS} environments, given actions": envpool_alone,
        "hurl: policy rolled out": rolling_out,
        "hurl: rolled out and written (hurl collect)": collecting,
        "Minari's DataCollector, the same policy, written": minari_collecting,
    }


def main() -> None:
    """Time all in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--transitions", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2, help="EnvPool's")
    parser.add_argument("--checkpoint", type=Path, help="of a run of hopper/sac; fresh weights by default")
    arguments = parser.parse_args()
    prepare_process(threads=1)
    warnings.simplefilter("ignore")
    timed = contestants(arguments.transitions, arguments.threads, arguments.checkpoint)
    for run in timed.values():
        run()
    speeds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in track(range(arguments.repeats), "in turns"):
        for name, run in timed.items():
            began = perf_counter()
            steps = run()
            speeds[name].append(steps / (perf_counter() - began))
    peer = np.array(speeds[list(timed)[-1]])
    table = Table(title=f"Hopper-v4, {arguments.transitions:,} transitions a turn, {arguments.threads} threads")
    for heading in ("", "steps/s", "against Minari's"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, values in speeds.items():
        table.add_row(name, f"{np.median(values):,.0f}", f"{np.median(np.array(values) / peer):.1f} x")
    Console().print(table)


if __name__ == "__main__":
    main()
