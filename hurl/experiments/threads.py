"""How many processor cores a run may use: to be said before jax or torch is imported."""

from __future__ import annotations

import os

__all__ = ["limit_threads"]


def limit_threads(threads: int) -> None:
    """Limit the thread pools of BLAS, OpenMP, torch and XLA; they read these variables when they are first loaded."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC"):
        os.environ[variable] = str(threads)
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
