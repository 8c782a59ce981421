"""What a cloned policy keeps while it learns: returns of Hopper's first iterations, with and without a rehearsal.

Data and heuristic are those that `hurl campaign gauntlet-hopper` has made. A line each of a CSV file: variant,
rehearsal, seed, iteration, return. Runs are kept under --out, and finished ones are not begun again.

    python benchmarks/forgetting.py --data DATA_FOLDER --dataset ID --out runs/forgetting --rehearsal 0 10 --seeds 0 1
    python benchmarks/forgetting.py … --heuristic HEURISTIC_FOLDER
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from hurl.experiments.config import load_config
from hurl.experiments.metrics import Row
from hurl.experiments.process import prepare_process

ITERATIONS = 20


def run(arguments: argparse.Namespace, rehearsal: int, seed: int) -> list[Row]:
    """Run the preset, and return its metrics."""
    from hurl.experiments.run import train  # after the process is prepared, for it imports JAX and torch

    variant = "base" if arguments.heuristic is None else "constant-mc"
    settings = [f"warm_start.dataset={arguments.dataset}", f"warm_start.root={arguments.data}", "data=null"]
    settings += [f"iterations={arguments.iterations}", f"seed={seed}"]
    if rehearsal:
        settings.append(f"warm_start.rehearsal={rehearsal}")
    if arguments.heuristic is not None:
        settings.append(f"guidance.heuristic={arguments.heuristic}")
    config = load_config(f"gauntlet-hopper/{variant}", settings)
    path = arguments.out / variant / f"rehearsal-{rehearsal}" / f"seed-{seed}"
    return train(config, path, lambda row: print(path, row.iteration, f"{row.return_mean:.0f}", flush=True))


def main() -> None:
    """Run all, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of Minari datasets")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--heuristic", help="a saved heuristic's folder: then with a constant λ of 0.95")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearsal", type=int, nargs="+", default=[0, 10], help="iterations; 0 means none")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    arguments = parser.parse_args()
    prepare_process(threads=1)
    for rehearsal in arguments.rehearsal:
        for seed in arguments.seeds:
            run(arguments, rehearsal, seed)
    with (arguments.out / "forgetting.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["variant", "rehearsal", "seed", "iteration", "return"])
        for metrics in sorted(arguments.out.glob("*/rehearsal-*/seed-*/metrics.csv")):
            variant, rehearsal_name, seed_name = metrics.parts[-4:-1]
            names = variant, rehearsal_name.removeprefix("rehearsal-"), seed_name.removeprefix("seed-")
            with metrics.open(newline="") as rows:
                writer.writerows(
                    [*names, row["iteration"], f"{float(row['return_mean']):.1f}"] for row in csv.DictReader(rows)
                )


if __name__ == "__main__":
    main()
