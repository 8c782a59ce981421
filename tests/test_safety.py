"""What docs/safety.md says: no code that a file names is run without the user's word, nor what lies beside it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

import hurl
from hurl.cli import main
from hurl.cli.app import app
from hurl.data import Episodes
from hurl.experiments.agents import value_function_of
from hurl.experiments.campaign import Campaign, plan_campaign
from hurl.experiments.config import RunConfig, load_config
from hurl.experiments.evaluate import evaluate_checkpoint, film
from hurl.experiments.folder import RunFolder
from hurl.experiments.policies import find_environment, find_policies
from hurl.experiments.ray_start import job_config
from hurl.experiments.tasks import start_command
from hurl.experiments.tuning.grid import Stage
from hurl.experiments.tuning.scale import Scale, Timing
from hurl.experiments.tuning.study import StudyConfig, setting_up
from hurl.experiments.tuning.trials import run_trial
from hurl.heuristics import Engineered, Zero, max_of, scaled
from hurl.own_code import UntrustedCodeError, find_function, look_beside, look_in, take_folders
from hurl.reports import collect_runs
from tests.data.examples import write_minari
from tests.experiments.conftest import SMALL
from tests.reports.conftest import run_writer

WITHOUT_LEAVE = r"names code that would be run, 'evil:.*': repeat with --trust .* if you know who wrote it"
EVIL = """
import gymnasium as gym
from pathlib import Path
Path(__file__).with_name("ran").touch()
if "Evil-v0" not in gym.registry:
    gym.register("Evil-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
def h(observations): return observations[:, 0]
"""


@pytest.fixture
def evil(tmp_path):
    """A module that can be imported, and the file that is there once it has been."""
    (tmp_path / "evil.py").write_text(EVIL)
    look_in(tmp_path)
    return tmp_path / "ran"


# Functions by their names --------------------------------------------------------------------------------------------

LENT = """
from functools import partial
from pickle import loads
from shutil import rmtree
from subprocess import Popen
import jax
class Model:
    def value(self, observations): return observations[:, 0]
    def __call__(self, observations): return observations[:, 0]
def plain(observations): return observations[:, 0]
some = partial(plain)
instance, method, jitted = Model(), Model().value, jax.jit(plain)
"""


@pytest.fixture
def lent(tmp_path):
    (tmp_path / "lent.py").write_text(LENT)
    look_in(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["builtins:eval", "pickle:loads", "os:system", "os.path:exists", "antigravity:anything", "lent:loads",
     "lent:rmtree", "lent:some", "hurl.own_code:import_module", "importlib:import_module"],
)  # fmt: skip
def test_the_standard_library_is_never_run_by_a_name(name, lent):
    with pytest.raises(ValueError, match=r"is of Python's standard library, which is never run by a name"):
        find_function(name)


@pytest.mark.parametrize("name", ["lent:Popen", "lent:Model", "hurl.envs.point_maze:PointMazeEnv"])
def test_a_class_is_no_function(name, lent):
    with pytest.raises(ValueError, match=r"is a class: name a function"):
        find_function(name)


def test_what_a_module_of_hurls_has_from_elsewhere_is_not_its_own():
    with pytest.raises(ValueError, match=r"is not defined in hurl.envs: name a function by the module that defines it"):
        find_function("hurl.envs:make_env")


@pytest.mark.parametrize("name", ["lent:plain", "lent:instance", "lent:method", "lent:jitted"])
def test_functions_and_what_is_called_like_them_are_found(name, lent):
    np.testing.assert_array_equal(find_function(name)(np.ones((2, 3))), [1, 1])


# Heuristics ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves an engineered heuristic, a part of others, as a stranger may: of any name."""

    def save(name):
        heuristic = max_of(Zero(), scaled(Engineered("hurl.heuristics.engineered:zero"), 2.0))
        heuristic.save(tmp_path / "h")
        config = tmp_path / "h" / "config.json"
        config.write_text(config.read_text().replace("hurl.heuristics.engineered:zero", name))
        return tmp_path / "h"

    return save


def test_a_heuristic_runs_a_strangers_function_only_with_the_users_word(saved, evil):
    folder = saved("evil:h")
    with pytest.raises(UntrustedCodeError, match=WITHOUT_LEAVE):
        hurl.load_heuristic(folder)
    assert not evil.exists()
    assert hurl.load_heuristic(folder, trust=True)(np.ones((3, 2))).tolist() == [2, 2, 2]
    assert evil.exists()


@pytest.mark.parametrize("name", ["builtins:eval", "pickle:loads"])
def test_no_word_lets_a_heuristic_run_the_standard_library(saved, name):
    for trust in (False, True):
        with pytest.raises(UntrustedCodeError, match=rf"config.json names '{name}', which .* never run by a name"):
            hurl.load_heuristic(saved(name), trust=trust)
    with pytest.raises(hurl.HeuristicError, match=r"never run by a name"):
        Engineered(name)


def test_hurls_own_functions_need_no_word(saved):
    assert hurl.load_heuristic(saved("hurl.heuristics.engineered:zero"))(np.ones((3, 2))).tolist() == [0, 0, 0]
    with pytest.raises(UntrustedCodeError, match=r"'hurl.files:write_whole'"):
        hurl.load_heuristic(saved("hurl.files:write_whole"))


@pytest.mark.parametrize("words", [(), ("--trust",)])
def test_diagnose_runs_nothing_of_a_strangers(saved, tmp_path, monkeypatch, words):
    folder = saved("builtins:eval")
    codes = np.frombuffer(b"open('ran', 'w').close() or 0.0*1", np.uint8).reshape(1, -1).repeat(2, axis=0)
    space = gym.spaces.Box(0, 255, codes.shape[1:], np.uint8)
    actions = np.zeros((1, 1), np.float32), gym.spaces.Box(-1, 1, (1,))
    episodes = Episodes(codes, actions[0], np.zeros(1), np.ones(1, int), np.ones(1, bool), space, actions[1], "e-v0")
    write_minari(tmp_path / "data", episodes, dataset_id="codes/all-v0", monkeypatch=monkeypatch)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        app, ["diagnose", str(folder), "--dataset", "codes/all-v0", "--root", "data", "--gamma", "0.9", *words]
    )
    assert isinstance(result.exception, ValueError)
    assert not (tmp_path / "ran").exists()


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """The folder of a stranger's run, whose environment is of a module of the stranger's."""
    folder = RunFolder(tmp_path / "run")
    values = SMALL | {"guidance": None, "environment": {"id": "evil:Evil-v0", "n_envs": 2}}
    checkpoint = folder.checkpoints / "000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    folder.config_file.write_text(RunConfig.model_validate(values).to_yaml())
    return folder


READERS = {
    "evaluate": lambda run, checkpoint, env: evaluate_checkpoint(checkpoint, episodes=1, seed=0),
    "film": lambda run, checkpoint, env: film(checkpoint, Path("film.mp4"), seed=0),
    "collect": lambda run, checkpoint, env: find_environment([str(run)]),
    "collect a checkpoint": lambda run, checkpoint, env: find_environment([str(checkpoint)]),
    "collect elsewhere": lambda run, checkpoint, env: find_policies([str(run)], None, env),
    "value-function": lambda run, checkpoint, env: value_function_of(run),
    "read": lambda run, checkpoint, env: RunFolder(run).read_config(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_run_imports_a_strangers_environment_only_with_the_users_word(run, evil, reader):
    env = load_config("sparse-reacher/sac").environment
    with pytest.raises(UntrustedCodeError, match=rf"run/config.yaml {WITHOUT_LEAVE}"):
        READERS[reader](run.path, run.checkpoints / "000001", env)
    assert not evil.exists()


def test_an_environment_around_another_is_a_name_of_code_too(run):
    text = run.config_file.read_text().replace("evil:Evil-v0", "Pendulum-v1")
    run.config_file.write_text(text.replace("options: {}", "options: {env_id: 'evil:Evil-v0'}"))
    with pytest.raises(UntrustedCodeError, match=WITHOUT_LEAVE):
        run.read_config()


def test_with_the_users_word_the_environment_is_made(run, evil):
    config = run.read_config(trust=True)
    assert not evil.exists()
    hurl.make_env(config.environment.id, 1).close()
    assert evil.exists()


def test_the_command_line_says_how_to_trust_a_run(run, evil, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hurl", "evaluate", str(run.path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "repeat with --trust" in capsys.readouterr().err
    assert not evil.exists()
    monkeypatch.setattr(sys, "argv", ["hurl", "evaluate", str(run.path), "--trust"])
    with pytest.raises(SystemExit):
        main()
    assert evil.exists()


def test_an_environment_of_the_standard_library_is_never_imported(run):
    with pytest.raises(ValueError, match=r"'antigravity:Evil-v0' is of Python's standard library"):
        hurl.make_env("antigravity:Evil-v0")


def test_a_report_runs_nothing(tmp_path, evil):
    run = run_writer(tmp_path / "runs")("a", [1.0, 2.0], environment="evil:Evil-v0")
    assert [found.folder for found in collect_runs([run]).runs] == [run]
    assert not evil.exists()


def test_a_study_runs_a_strangers_code_only_with_the_users_word(tmp_path, evil):
    config = RunConfig.model_validate(SMALL | {"guidance": {"heuristic": "evil:h"}})
    with setting_up(tmp_path / "study") as study:
        parts = {"config": config, "prepared": config, "scale": Scale(1, 1, False), "timing": Timing(1.0, 1.0)}
        study.write(StudyConfig(stage=Stage.guidance, source="a.yaml", grid={"gamma": [0.9]}, **parts))
        study.add_trials()
    with pytest.raises(UntrustedCodeError, match=rf"study.yaml {WITHOUT_LEAVE}"):
        run_trial(study, 0)
    assert not evil.exists()


# The user's word, handed on ------------------------------------------------------------------------------------------


def steps(plan):
    """Return the steps by their commands, and whether each is trusting."""
    return {(task.arguments[0], "--trust" in task.arguments) for task in plan.tasks}


def test_a_campaign_hands_on_the_users_word(tmp_path):
    assert steps(plan_campaign("hopper", ["hurl-mc"], [0], tmp_path)) == {
        ("train", False), ("collect", False), ("fit", False),
    }  # fmt: skip
    trusting = plan_campaign("hopper", ["hurl-mc"], [0], tmp_path, trust=True)
    assert steps(trusting) == {("train", True), ("collect", True), ("fit", False)}, "which reads data alone"


def test_a_campaign_trusts_what_its_own_steps_make_of_the_users_names(tmp_path):
    config = load_config("hopper/hurl-mc", ["guidance.heuristic={kind: engineered, parameters: {function: 'mine:h'}}"])
    plan = Campaign(tmp_path)
    plan.add_run("run", config)
    assert steps(plan) == {("train", False), ("collect", False), ("fit", False), ("train", True)}, "the run alone"
    plan = Campaign(tmp_path)
    plan.add_run("run", load_config("hopper/hurl-mc", ["environment.id=mine:Hopper-v0"]))
    assert steps(plan) == {("train", False), ("collect", True), ("fit", False)}


# The path ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path):
    """A folder with modules that would be found in the place of others, or by them, if it were on the path."""
    sprung = f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n"
    for name in ("numpy", "matplotlib", "torch", "yaml", "difflib", "gym_notices"):
        (tmp_path / f"{name}.py").write_text(sprung)
    (tmp_path / "jax_plugins").mkdir()
    (tmp_path / "jax_plugins" / "trap.py").write_text(sprung)
    information = tmp_path / "trap-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: trap\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[hurl.heuristics]\ntrap = yaml\n[hurl.schedules]\ntrap = yaml\n")
    run_writer(tmp_path / "runs")("a", [1.0, 2.0], settings=["guidance.heuristic=hurl.heuristics.engineered:zero"])
    return tmp_path


def test_what_lies_beside_a_run_is_not_imported(trap):
    command = [sys.executable, "-m", "hurl", "report", "runs", "--out", "report"]
    environment = os.environ | {"PYTHONPATH": str(Path(hurl.__file__).parent.parent)}
    result = subprocess.run(command, cwd=trap, env=environment, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert (trap / "report" / "report.html").exists()
    assert not (trap / "sprung").exists()


def test_a_step_imports_nothing_that_lies_beside_it(trap):
    process = start_command(["fit", "--help"], trap / "log", trap)
    assert process.wait(timeout=200) == 0, (trap / "log").read_text()
    assert not (trap / "sprung").exists()


def test_the_users_folders_are_on_the_path_once_a_name_asks_for_it_and_after_everything(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_heuristics.py").write_text("def h(observations): return 0")
    monkeypatch.setattr(sys, "argv", ["hurl", "--version"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main()
    look_beside("own/run.yaml")
    before = list(sys.path)
    assert str(tmp_path) not in before
    find_function("hurl.heuristics.engineered:zero")
    assert sys.path == before
    find_function("own_heuristics:h")
    assert sys.path == [*before, str(tmp_path / "own"), str(tmp_path)]


def test_a_module_that_is_hidden_by_an_installed_one_is_named(tmp_path):
    look_in(tmp_path)
    (tmp_path / "yaml.py").write_text("def h(observations): return 0")
    with pytest.raises(ValueError, match=r"yaml has no function 'hurled'; .*/yaml.py is hidden by .*yaml/__init__.py"):
        find_function("yaml:hurled")
    (tmp_path / "random.py").write_text("def h(observations): return 0")
    with pytest.raises(ValueError, match=r"standard library.*; .*/random.py is hidden by .*: give yours another name"):
        find_function("random:h")


def test_rays_workers_do_not_look_in_the_users_folders_first(tmp_path):
    look_in(tmp_path)
    config = job_config()
    config._py_driver_sys_path.extend([str(tmp_path), "/elsewhere"])
    told = str(config._serialize())
    assert str(tmp_path) not in told
    assert "/elsewhere" in told


def test_a_process_that_is_started_finds_what_this_one_found(tmp_path):
    (tmp_path / "own_heuristics.py").write_text("def h(observations): return 0")
    look_in(tmp_path)
    take_folders()
    program = "import json, sys, hurl; print(json.dumps(sys.path[-1]))"
    found = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == str(tmp_path)
