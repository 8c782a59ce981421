"""Tests run as `hurl train` does: one thread, and compiled code kept from one test to the next."""

import sys

import pytest

from hurl.experiments.process import prepare_process
from hurl.experiments.ray_start import ray_here as start_ray
from hurl.names import FOLDERS, IN_USE

prepare_process(threads=1)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch):
    """Where one test lets modules be looked for, the next does not."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for variable in (FOLDERS, IN_USE):
        monkeypatch.setenv(variable, "")


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine, which the algorithms of a module share."""
    with start_ray(cores=4):
        yield
