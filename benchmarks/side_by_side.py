"""Runs side by side, a core each, against one run on both: iterations of the paper's Hopper experiment in an hour.

    python benchmarks/side_by_side.py

The two ways take turns; each is timed over its iterations after the first, which compiles.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from hurl.experiments.folder import RunFolder
from hurl.experiments.tasks import Task, run_tasks


def iterations_in_an_hour(folder: Path, runs: int, threads: int, iterations: int) -> float:
    """Return how many iterations so many runs at a time do in an hour, all together."""
    tasks = [
        Task(
            f"run {seed}",
            (
                *("train", "hopper/sac", "--seed", str(seed), "--out", str(folder / str(seed))),
                *("--set", f"iterations={iterations}", "--set", f"threads={threads}"),
            ),
            folder / f"{seed}.log",
        )
        for seed in range(runs)
    ]
    run_tasks(tasks, jobs=runs)
    rows = [row for seed in range(runs) for row in RunFolder(folder / str(seed)).read_metrics() if row.iteration > 1]
    seconds = statistics.mean(row.seconds for row in rows)
    return 3600 * runs / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Two runs side by side against one on both cores.")
    parser.add_argument("--iterations", type=int, default=8, help="of each run")
    parser.add_argument("--repeats", type=int, default=3, help="times that each way is measured")
    arguments = parser.parse_args()
    both: list[float] = []
    side_by_side: list[float] = []
    for _ in range(arguments.repeats):
        for results, runs, threads in ((both, 1, 2), (side_by_side, 2, 1)):
            with tempfile.TemporaryDirectory() as folder:
                results.append(iterations_in_an_hour(Path(folder), runs, threads, arguments.iterations))
    print(f"one run on both cores        {statistics.median(both):7,.0f} iterations in an hour")
    print(f"two runs, a core each        {statistics.median(side_by_side):7,.0f} iterations in an hour")
    ratios = [pair / one for one, pair in zip(both, side_by_side, strict=True)]
    print(f"ratio                        {statistics.median(ratios):7.2f} (of {', '.join(f'{r:.2f}' for r in ratios)})")


if __name__ == "__main__":
    main()
