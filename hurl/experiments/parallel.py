"""Several runs side by side: one process a run, each with its share of the cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunFailedError", "RunSpec", "run_side_by_side"]

POLL_SECONDS = 0.3
PINNING = hasattr(os, "sched_setaffinity")  # not every system can tie a process to cores


class RunFailedError(RuntimeError):
    """Some of the runs did not finish."""


@dataclass(frozen=True)
class RunSpec:
    """A run as `hurl train` takes it: what, with which seed, into which folder."""

    source: str
    seed: int
    folder: Path

    @property
    def log(self) -> Path:
        """Where the process's output goes: beside its folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def command(self) -> list[str]:
        """Return the command that runs it."""
        seed, out = ["--seed", str(self.seed)], ["--out", str(self.folder)]
        return [sys.executable, "-m", "hurl", "train", self.source, *seed, *out]


def run_side_by_side(specs: list[RunSpec], jobs: int, watch: Callable[[], None] = lambda: None) -> None:
    """Run all, `jobs` at a time, each pinned to its share of the cores; those that failed are named at the end.

    :param watch: called a few times a second, to show progress
    """
    cores = sorted(os.sched_getaffinity(0)) if PINNING else list(range(os.cpu_count() or 1))
    jobs = min(jobs, len(cores))
    free = [cores[slot::jobs] for slot in range(jobs)]
    waiting, failed = list(specs), []
    running: dict[subprocess.Popen[bytes], tuple[RunSpec, list[int]]] = {}
    try:
        while waiting or running:
            while waiting and free:
                share, spec = free.pop(0), waiting.pop(0)
                running[_start(spec, share)] = (spec, share)
            time.sleep(POLL_SECONDS)
            watch()
            for process in [process for process in running if process.poll() is not None]:
                spec, share = running.pop(process)
                free.append(share)
                if process.returncode != 0:
                    failed.append(spec)
    finally:
        for process in running:
            process.terminate()
    if failed:
        reasons = "; ".join(f"{spec.folder}: {_last_line(spec.log)}" for spec in failed)
        raise RunFailedError(f"{len(failed)} of {len(specs)} runs failed ({reasons})")


def _start(spec: RunSpec, cores: list[int]) -> subprocess.Popen[bytes]:
    spec.folder.parent.mkdir(parents=True, exist_ok=True)
    with spec.log.open("wb") as log:
        process = subprocess.Popen(spec.command(), stdout=log, stderr=subprocess.STDOUT)
    if PINNING:
        os.sched_setaffinity(process.pid, cores)
    return process


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
