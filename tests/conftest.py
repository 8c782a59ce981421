"""Tests run as `hurl train` does: one thread, and compiled code kept from one test to the next."""

import shutil
import sys
from pathlib import Path

import pytest

from hurl.experiments.process import prepare_process
from hurl.experiments.ray_start import ray_here as start_ray
from hurl.own_code import FOLDERS, IN_USE

prepare_process(threads=1)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path_factory):
    """Where a test lets modules be looked for, and which ones it wrote and imported: the next knows nothing of it."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for variable in (FOLDERS, IN_USE):
        monkeypatch.setenv(variable, "")
    yield
    written = tmp_path_factory.getbasetemp()
    for name, module in list(sys.modules.items()):
        if (file := getattr(module, "__file__", None)) and written in Path(file).parents:
            del sys.modules[name]


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine, which the algorithms of a module share."""
    with start_ray(cores=4):
        yield


CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1600",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """Yield a real browser, which keeps what reaches its console and what it asks the network for."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("pages are tested in Chromium, which is not installed: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*CHROMIUM, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options=options, service=Service(driver)) as page:
        yield page
