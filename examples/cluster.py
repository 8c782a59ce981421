"""A campaign on a Ray cluster: that of RAY_ADDRESS, such as HOST:6379, or one that is started on this machine."""

import os
import shutil
import subprocess
import sys

from learning_curves import arguments


def hurl(*words):
    """Run a command of hurl."""
    print("$ hurl", *words, flush=True)
    subprocess.run([sys.executable, "-m", "hurl", *map(str, words)], check=True)


def main():
    """Compare SAC and HuRL on Sparse-Reacher: every run is a task of Ray's, with a core of its own."""
    options = arguments(__doc__, steps=25_000)
    iterations, runs, report = max(1, options.steps // 5_000), options.out / "campaign", options.out / "report"
    per_iteration = min(5_000, options.steps)
    sizes = ["--set", f"steps_per_iteration={per_iteration}", "--set", f"updates_per_iteration={per_iteration}"]
    length = ["--seeds", "0,1", "--iterations", iterations, *sizes]
    hurl(
        "campaign",
        "demo",
        "--variants",
        "sac,hurl",
        *length,
        "--out",
        runs,
        "--ray",
        os.environ.get("RAY_ADDRESS", "local"),
    )
    hurl("report", runs / "demo", "--out", report)
    (picture,) = report.glob("*return*.png")
    shutil.copy(picture, options.out / "cluster.png")


if __name__ == "__main__":
    main()
