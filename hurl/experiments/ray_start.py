"""Ray on this machine alone, for a run or for a campaign."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from hurl.names import install_extra
from hurl.own_code import own_folders

# Ray gives its own processes half a minute to come up, which a busy machine now and then needs more than once.
STARTS = 4


class RayClusterError(ValueError):
    """A Ray cluster that can't be used, with what to do about it."""


def import_ray() -> ModuleType:
    """Import Ray, which sends nobody anything about its use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise ImportError(f"Ray is not installed: {install_extra('rllib')}") from None
    module: ModuleType = ray
    return module


@contextmanager
def ray_here(cores: int) -> Iterator[ModuleType]:
    """Start Ray on this machine, and end it; yield the module `ray`.

    It listens on loopback alone, and answers only to those who have a token that is made for this start.

    :param cores: how many cores its tasks may take
    """
    ray = import_ray()
    # Else its workers wait for all else on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _reachable_from_here_alone():
        _start(ray, cores)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _reachable_from_here_alone() -> Iterator[None]:
    """Let Ray be started so that nobody else reaches it: whoever does can run anything as this user."""
    from ray._private import ray_constants

    values = {
        # Ray keeps to loopback where it believes that there can be no cluster, as on Windows.
        ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0",
        # Other users of the machine reach loopback too.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    can_be_cluster = ray_constants.ENABLE_RAY_CLUSTER
    try:
        with _environment(values):
            ray_constants.ENABLE_RAY_CLUSTER = False
            _read_environment_again()
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = can_be_cluster
        _read_environment_again()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, for this process and those that it starts, and put them back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _read_environment_again() -> None:
    """Let Ray, which reads the environment when it is imported, know of mode and token."""
    raylet: Any = import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def job_config() -> Any:
    """Return what Ray is told of this process: its workers must not look for modules where only the user's own are.

    Ray would put the working folder before everything installed on their path; `import hurl` puts it after that.
    """
    from ray.job_config import JobConfig

    config: Any = JobConfig()
    serialize = config._serialize  # called once Ray has added the folder

    def serialize_without_own_folders() -> Any:
        config._py_driver_sys_path = [path for path in config._py_driver_sys_path if path not in own_folders()]
        return serialize()

    config._serialize = serialize_without_own_folders
    return config


def _start(ray: ModuleType, cores: int) -> None:
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(
                "local",
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                job_config=job_config(),
            )
        except Exception as error:  # Ray raises this very class where its processes are slow
            ray.shutdown()
            if attempt == STARTS:
                raise RayClusterError(f"Ray can't be started on this machine, tried {STARTS} times: {error}") from error
        else:
            return
