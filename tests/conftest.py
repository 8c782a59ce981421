"""Tests run as `hurl train` does: one thread, and compiled code kept from one test to the next."""

import os

import pytest

from hurl.experiments.process import prepare_process

prepare_process(threads=1)


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine, which the algorithms of a module share."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray lets its workers wait for all else on the machine
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
