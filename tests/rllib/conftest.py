"""One Ray for all tests of RLlib."""

import os

import pytest


@pytest.fixture(scope="session")
def ray_session():
    """Start Ray on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray lets its workers wait for all else on the machine
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
