"""What a process is told before it imports jax or torch: its share of the cores, and where to keep compiled code."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from threadpoolctl import threadpool_limits


def prepare_process(threads: int) -> None:
    """Limit the thread pools of OpenMP, torch and XLA, and let XLA keep what it compiled for the next run.

    NumPy's BLAS, loaded by now, gets one thread: heuristics are small, and more would only get in the way of the rest.
    Compiling takes longer than anything else at a run's start; kept, it is read back in a fraction of a second.
    """
    threadpool_limits(1, user_api="blas")
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC"):
        os.environ[variable] = str(threads)
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    # for this kind of processor: compiled code runs on no other
    compiled = cache_folder() / f"jax-{hashlib.sha256(_processor().encode()).hexdigest()[:12]}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def cache_folder() -> Path:
    """Return the folder of what can be made again, and is kept to save time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hurl"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
