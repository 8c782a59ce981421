"""What docs/architecture.md says of the rooms: which are light, and which way dependencies point."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hurl
from hurl.experiments.environments import check_environment
from hurl.names import UnknownEnvironmentError

HEAVY = {"torch", "jax", "ray", "d3rlpy", "gymnasium", "pydantic"}


@pytest.mark.parametrize(
    ("room", "too_heavy"), [("hurl", HEAVY | {"importlib.metadata"}), ("hurl.tabular", HEAVY | {"hurl.data"})]
)
def test_what_needs_little_is_imported_with_little(room, too_heavy):
    program = f"import sys, {room}; print(sorted({too_heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


def test_help_and_misspelt_names_wait_for_nothing_heavy(tmp_path):
    commands = ["", "campaign", "chain", "collect", "demo", "diagnose", "evaluate", "fit", "presets", "presets show"]
    commands += ["report", "reproduce", "train", "tune", "tune-trial"]
    misspelt = {
        "train --sed 1": "No such option",
        "train hoper/hurl": "there is no preset 'hoper/hurl'; did you mean 'hopper/hurl",
        "train sparse-reacher/hrl": "there is no preset 'sparse-reacher/hrl'; did you mean 'sparse-reacher/hurl'",
        "train sparse-reacher/hurl --set algorithm.name=SAC": "write sb3.SAC or sbx.SAC",
        "train sparse-reacher/hurl --set algorithm.name=sbx.SAK": "sbx has no algorithm 'SAK'; did you mean 'SAC'",
        "train procgen/ppo --set algorithm.name=rllib.PPQ": "has no algorithm 'PPQ'; did you mean 'PPO'",
        "train sparse-reacher/hurl --set algorithm.name=sb3.HerReplayBuffer": "no algorithm 'HerReplayBuffer'",
        "train sparse-reacher/hurl --set environment.id=Hoper-v4": "no environment 'Hoper-v4' in EnvPool or Gymnasium",
        "collect random --env Hoper-v4 --dataset aa/b-v0": "no environment 'Hoper-v4' in EnvPool or Gymnasium; did",
        "campaign hopper --variants sac-bx": "hopper has no variant 'sac-bx'; did you mean 'sac-bc'",
        "collect x.zip --dataset aa/b-v0 --algorithm sb3.PPPO": "no algorithm 'PPPO'; did you mean 'PPO'",
        "collect --recipe hoper": "there is no recipe 'hoper'; did you mean 'hopper'",
        "fit ensembel --out h": "there is no kind of heuristic 'ensembel'; did you mean 'ensemble'",
        "reproduce figure-9": "figure-9",
        "tune hoper --stage base": "there is no preset 'hoper'",
    }
    program = (
        "import sys\n"
        "from hurl.cli import main\n"
        f"for line in {[f'{command} --help' for command in commands] + list(misspelt)}:\n"
        "    sys.argv = ['hurl', *line.split()]\n"
        "    try: main()\n"
        "    except SystemExit as end: print(f'@{end.code}', file=sys.stderr)\n"
        "heavy = 'torch jax ray minari envpool matplotlib pandas stable_baselines3 gym optuna'.split()\n"
        "print('heavy:', *(name for name in heavy if name in sys.modules))\n"
    )
    with pytest.raises(UnknownEnvironmentError):
        check_environment("Hoper-v4")  # asks EnvPool, once for all processes
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout.splitlines()[-1].split() == ["heavy:"]
    told = re.split(r"@(\d)\n", result.stderr)
    assert told[:-1:2][: len(commands)] == [""] * len(commands)
    assert told[1::2] == ["0"] * len(commands) + ["2"] * len(misspelt)
    for text, expected in zip(told[:-1:2][len(commands) :], misspelt.values(), strict=True):
        assert expected in text


def test_what_is_entered_on_first_use_is_listed():
    for room in (hurl, hurl.heuristics):
        assert {"load_heuristic", "MonteCarloHeuristic"} <= set(dir(room))
        for name in set(dir(room)) - {"rllib"}:
            assert getattr(room, name) is not None
    assert {"heuristics", "sb3", "tabular"} <= set(dir(hurl))


def test_the_notice_of_gym_is_not_printed():
    program = "import hurl, stable_baselines3, sys; print('gym' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("True\n", "")


# Which rooms and modules of hurl a room may use.
FOUNDATIONS = {
    "data": {"discounting", "files", "names"},
    "heuristics": {"data", "files", "guidance", "impala", "names", "own_code", "pieces", "schedules", "values"},
    "tabular": {"discounting", "files", "guidance", "ladder", "names", "schedules", "values"},
    "envs": {"heuristics", "names", "own_code", "values"},
    "sb3": {"data", "guidance", "heuristics", "jump_start", "names", "pieces", "prior", "schedules", "turns", "values"},
    "rllib": {"envs", "guidance", "heuristics", "impala", "names"},
    "diagnosis": {"data", "discounting", "files", "guidance", "heuristics", "names", "pieces", "schedules"},
}
MODULES = {file.stem for file in Path(hurl.__file__).parent.glob("*.py")}
FOUNDATIONS["experiments"] = MODULES | {"data", "diagnosis", "envs", "heuristics", "rllib", "sb3"}
FOUNDATIONS["reports"] = MODULES | {"experiments"}


@pytest.mark.parametrize("room", FOUNDATIONS)
def test_dependencies_point_one_way(room):
    used = {name for file in (Path(hurl.__file__).parent / room).rglob("*.py") for name in imported_rooms(file)}
    assert used <= FOUNDATIONS[room] | {room}, "also inside of functions"


def imported_rooms(file):
    """Return the rooms and modules of hurl that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"hurl.{alias.name}" for alias in node.names] if node.module == "hurl" else [node.module]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("hurl.") and name != "hurl.__version__")
