"""What tests of several heuristics share."""

import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import sys, numpy, hurl
values = hurl.load_heuristic(sys.argv[1], trust=True)(numpy.load(sys.argv[2]))
assert not {'jax', 'torch', 'd3rlpy'} & set(sys.modules), "a stored heuristic is evaluated by NumPy alone"
numpy.save(sys.argv[3], values)
"""


@pytest.fixture
def in_fresh_process(tmp_path):
    """Save a heuristic, load it in another process, and return its values there."""

    def values_of(heuristic, observations):
        heuristic.save(tmp_path / "heuristic")
        np.save(tmp_path / "observations.npy", observations)
        paths = [str(tmp_path / name) for name in ("heuristic", "observations.npy", "values.npy")]
        subprocess.run([sys.executable, "-c", PROGRAM, *paths], check=True)
        return np.load(tmp_path / "values.npy")

    return values_of
