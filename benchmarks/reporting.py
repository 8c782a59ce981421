"""Time of `hurl report` on many runs, and where it goes.

Runs are made up: learning curves with noise, five seeds of each variant, in as many environments as are needed.

    python benchmarks/reporting.py --runs 100 --iterations 200
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from hurl.experiments.config import load_config
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import Row

ENVIRONMENTS = {
    "hopper": "Hopper-v4",
    "halfcheetah": "HalfCheetah-v4",
    "swimmer": "Swimmer-v4",
    "humanoid": "Humanoid-v4",
}
SPEEDS = {"sac": 0.010, "sac-bc": 0.013, "hurl-zero": 0.015, "hurl-mc": 0.022, "pbrs": 0.011}
STAGES = {
    "reading runs": "collect_runs",
    "tables and curves": "_section",
    "scores by rliable": "aggregate",
    "pictures (PNG, SVG)": "write_pictures",
    "tables (CSV)": "write_tables",
    "page (HTML)": "page_of",
}


def make_runs(folder: Path, runs: int, iterations: int) -> None:
    """Write folders of runs with made-up metrics."""
    generator = np.random.default_rng(0)
    places = [
        (seed, environment, variant) for seed in range(runs) for environment in ENVIRONMENTS for variant in SPEEDS
    ]
    for seed, environment, variant in places[:runs]:
        config = load_config("sparse-reacher/sac", [f"environment.id={ENVIRONMENTS[environment]}", f"seed={seed}"])
        config = config.model_copy(update={"iterations": iterations})
        run = RunFolder(folder / environment / variant / f"seed-{seed}")
        with run.open(config):
            run.write_metrics(_rows(generator, SPEEDS[variant], iterations))


def _rows(generator: np.random.Generator, speed: float, iterations: int) -> list[Row]:
    progress = 1.0 - np.exp(-speed * np.arange(1, iterations + 1))
    returns = 3_000.0 * progress * generator.uniform(0.8, 1.1) + generator.normal(0.0, 90.0, iterations)
    lambdas = 0.95 + 0.05 * progress
    return [
        Row(
            iteration=n,
            steps=10_000 * n,
            return_mean=value,
            return_std=5.0,
            return_min=value - 9,
            return_max=value + 9,
            episode_length=1_000.0,
            training_return=value,
            lambda_=lam,
            discount=0.99 * lam,
            h_mean=value / 10,
            h_min=0.0,
            h_max=value,
            seconds_collecting=1.0,
            seconds_training=4.0,
            seconds_evaluating=1.0,
        )
        for n, (value, lam) in enumerate(zip(returns.tolist(), lambdas.tolist(), strict=True), start=1)
    ]


def profile(folder: Path, out: Path) -> dict[str, float]:
    """Return the seconds of each stage, in this process, under the profiler."""
    from hurl.reports import collect_runs, compute_report, write_report

    profiler = cProfile.Profile()
    profiler.enable()
    write_report(compute_report(collect_runs([folder])), out)
    profiler.disable()
    times = {key[2]: values[3] for key, values in pstats.Stats(profiler).stats.items() if "/hurl/reports/" in key[0]}
    return {stage: times[function] for stage, function in STAGES.items()}


def main() -> None:
    """Make runs, time the command, and print where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "runs", Path(name) / "report"
        make_runs(folder, arguments.runs, arguments.iterations)
        began = perf_counter()
        command = [sys.executable, "-m", "hurl", "report", str(folder), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = perf_counter() - began
        size = (out / "report.html").stat().st_size
        stages = profile(folder, out)
    table = Table(title=f"{arguments.runs} runs of {arguments.iterations} iterations")
    table.add_column("")
    table.add_column("seconds", justify="right")
    table.add_row("hurl report, the whole command", f"{seconds:.1f}", end_section=True)
    for stage, value in stages.items():
        table.add_row(f"{stage}, profiled", f"{value:.1f}")
    Console().print(table)
    print(f"report.html: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
