"""Kinds of a user's own, as CONTRIBUTING.md shows them: of an installed package, and of a module that is imported."""

import csv
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml

import hurl
from hurl.experiments.campaign import plan_campaign
from hurl.experiments.config import load_config
from hurl.experiments.errors import ConfigurationError
from hurl.names import Registry
from hurl.schedules import ConstantSchedule
from tests.experiments.conftest import SMALL
from tests.experiments.swinging import DATASET, pushing_episodes, write_pushing

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text("utf-8")


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


@pytest.fixture
def site(tmp_path):
    """A folder with the package, as pip would install it."""
    (tmp_path / "my_kinds.py").write_text(block("python"))
    information = tmp_path / "my_kinds-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-kinds\nVersion: 1.0\n")
    groups = tomllib.loads(block("toml"))["project"]["entry-points"]
    sections = [
        [f"[{group}]", *(f"{name} = {value}" for name, value in names.items())] for group, names in groups.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(line for section in sections for line in section))
    return tmp_path


@pytest.fixture
def my_kinds(site, monkeypatch):
    """The module, imported and registered for one test."""
    # the kinds that there are, before the package can be found
    before = [(registry, dict(registry.load())) for registry in (hurl.heuristics.KINDS, hurl.schedules.KINDS)]
    monkeypatch.syspath_prepend(site)
    yield import_module("my_kinds")
    del sys.modules["my_kinds"]
    for registry, kinds in before:
        registry.clear()
        registry.update(kinds)


def command(folder, *words):
    """Run a command in the folder, which is one that packages are installed in."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run(
        [sys.executable, "-m", "hurl", *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_commands_know_the_kinds_of_a_package(site, monkeypatch):
    write_pushing(site / "data", monkeypatch)
    assert " linear," in command(site, "fit", "--help").stdout
    fit = ["fit", "linear", "--dataset", DATASET, "--root", "data", "--gamma", "0.95"]
    result = command(site, *fit, "--set", "ridge=0.1", "--out", "heuristics/linear")
    assert result.returncode == 0, result.stderr

    run = SMALL | yaml.safe_load(block("yaml")) | {"iterations": 3}
    (site / "run.yaml").write_text(yaml.safe_dump(run))
    result = command(site, "train", "run.yaml", "--out", "run")
    assert result.returncode == 0, result.stderr
    with (site / "run/metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["lambda"]) for row in rows] == [0.9, 0.9, 1.0]
    assert all(float(row["h_min"]) < float(row["h_max"]) for row in rows)

    result = command(site, *fit, "--set", "rigde=0.1", "--out", "other")
    assert (result.returncode, "linear has no parameter 'rigde'; did you mean 'ridge'" in result.stderr) == (2, True)


def test_a_heuristic_of_an_own_kind_is_saved_and_loaded(my_kinds, tmp_path):
    heuristic = my_kinds.LinearHeuristic.fit(pushing_episodes(), gamma=0.95)
    heuristic.save(tmp_path / "h")
    loaded = hurl.load_heuristic(tmp_path / "h", gamma=0.95)
    states = pushing_episodes().states
    assert type(loaded) is my_kinds.LinearHeuristic
    np.testing.assert_array_equal(loaded(states), heuristic(states))


def test_an_own_kind_is_fitted_for_a_campaign(my_kinds, tmp_path):
    plan = plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, ["guidance.heuristic={kind: linear}"])
    (fit,) = [task.arguments for task in plan.tasks if task.arguments[0] == "fit"]
    assert fit[1] == "linear"
    assert "seed=0" not in fit, "it has no such parameter"


def test_a_schedule_of_an_own_kind_in_a_configuration(my_kinds):
    config = load_config("sparse-reacher/hurl", ["guidance.schedule={kind: step, lambda0: 0.9, until: 2}"])
    assert config.guidance.schedule.build(200) == my_kinds.StepSchedule(0.9, 2)
    for schedule, message in {
        "{kind: step, lambda0: 0.9}": "the key 'guidance.schedule.until' is missing",
        "{kind: step, lambda0: 0.9, untill: 2}": "'guidance.schedule.untill' of the kind 'step'; did you mean 'until'",
        "{kind: step, lambda0: 0.9, until: soon}": "guidance.schedule.until: .*valid integer.*, got 'soon'",
        "{kind: step, lambda0: 0.9, until: 2, iterations: 9}": "unknown key 'guidance.schedule.iterations'",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            load_config("sparse-reacher/hurl", [f"guidance.schedule={schedule}"])


def test_without_the_package_its_heuristic_is_refused_in_one_sentence(site, monkeypatch):
    write_pushing(site / "data", monkeypatch)
    fit = ["fit", "linear", "--dataset", DATASET, "--root", "data", "--gamma", "0.95", "--out", "h"]
    assert command(site, *fit).returncode == 0
    (site / "my_kinds-1.0.dist-info/entry_points.txt").unlink()
    with pytest.raises(hurl.HeuristicError, match=r"unknown class 'LinearHeuristic'.* or the package, that wrote it"):
        hurl.load_heuristic(site / "h")
    result = command(site, *fit)
    assert (result.returncode, "there is no kind of heuristic 'linear'" in result.stderr) == (2, True)


def test_a_package_that_is_broken_is_named(site):
    (site / "my_kinds.py").write_text("import a_module_that_is_not_there")
    result = command(site, "fit", "zero", "--out", "h")
    assert result.returncode == 2
    assert "can't be loaded (No module named 'a_module_that_is_not_there'): mend or uninstall it" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_name_is_taken_once():
    registry = Registry("hurl.schedules")
    registry.register("constant")(ConstantSchedule)
    with pytest.raises(ValueError, match=r"can't be 'constant': hurl.schedules.ConstantSchedule is 'constant' already"):
        registry.register("constant")(type("Other", (), {}))
    with pytest.raises(ValueError, match=r"can't be 'other': hurl.schedules.ConstantSchedule is 'constant' already"):
        registry.register("other")(type("ConstantSchedule", (), {}))
    anew = type("ConstantSchedule", (), {"__module__": "hurl.schedules"})
    registry.register("constant")(anew)
    assert dict(registry) == {"constant": anew}, "a class that is defined anew, as in a notebook, takes its own place"
