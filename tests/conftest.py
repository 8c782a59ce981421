"""Tests run as `hurl train` does: one thread, and compiled code kept from one test to the next."""

import pytest

from hurl.experiments.process import prepare_process
from hurl.experiments.ray_start import ray_here as start_ray

prepare_process(threads=1)


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine, which the algorithms of a module share."""
    with start_ray(cores=4):
        yield
