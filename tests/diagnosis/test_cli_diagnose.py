"""`hurl diagnose` as a user types it."""

import json
import re
import sys

import pytest

from hurl.cli import main
from hurl.heuristics import Zero
from tests.data.examples import VECTORS, random_episodes, write_minari

FUNCTIONS = """
def first(s): return s[:, 0]
def column(s): return s[:, :1]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line in a folder with a dataset and a module of heuristics; return code, output and errors."""
    episodes = random_episodes([30] * 12, [True] * 12)
    write_minari(tmp_path / "datasets", episodes, monkeypatch=monkeypatch)
    (tmp_path / "judged.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def hurl(*words):
        monkeypatch.setattr(sys, "argv", ["hurl", *" ".join(words).split()])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return hurl


def test_table_verdict_and_files(run, tmp_path):
    code, output, errors = run("diagnose judged:first --dataset test/noise-v0 --gamma 0.9 --out judgement/first")
    assert code == 0, errors
    assert "rank correlation of h and return" in output
    assert "360 transitions, 12 episodes" in output
    assert "Suggested λ0:" in output
    folder = tmp_path / "judgement/first"
    assert sorted(file.name for file in folder.iterdir()) == ["diagnosis.json", "diagnosis.png"]
    numbers = json.loads((folder / "diagnosis.json").read_text("utf-8"))
    assert numbers["gamma"] == 0.9
    assert numbers["heuristic"] == "first"
    assert numbers["advice"] in " ".join(output.split())


def test_an_agents_own_states_are_held_against_the_data(run, tmp_path, monkeypatch):
    agent = random_episodes([30] * 4, [True] * 4, seed=1)
    write_minari(tmp_path / "datasets", agent, dataset_id="test/agent-v0", monkeypatch=monkeypatch)
    words = "diagnose judged:first --dataset test/noise-v0 --agent test/agent-v0 --root datasets --gamma 0.9 --out out"
    code, output, errors = run(words)
    assert code == 0, errors
    assert "agent: distance from the data, outside it" in output
    assert "The agent stays within the data" in output
    assert json.loads((tmp_path / "out/diagnosis.json").read_text("utf-8"))["departure"]["agent"] == "test/agent-v0"


@pytest.mark.parametrize(
    ("name", "folder"), [("judged:first", "first"), ("kept/zero", "zero"), ("zero", "zero"), ("odd:name/", "name")]
)
def test_files_have_a_place_where_none_is_given(run, tmp_path, name, folder):
    if name != "judged:first":
        Zero(gamma=0.9).save(tmp_path / name)
    code, output, errors = run("diagnose", name, "--dataset test/noise-v0 --gamma 0.9")
    assert code == 0, errors
    assert output.endswith(f"Picture: diagnosis/{folder}/diagnosis.png, numbers: diagnosis/{folder}/diagnosis.json\n")
    assert sorted(file.name for file in (tmp_path / "diagnosis" / folder).iterdir()) == [
        "diagnosis.json",
        "diagnosis.png",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "not of the form module:function, nor the folder of a saved heuristic"),
        ("judged:frist", "did you mean 'first'"),
        ("kept/no:where", "kept/no:where is not a saved heuristic"),
        ("storing:zero", "is for gamma=0.8, but here gamma=0.9"),
    ],
)
def test_a_run_and_a_diagnosis_find_a_heuristic_by_the_same_rules(run, tmp_path, name, message):
    from types import SimpleNamespace

    from hurl.experiments.config import RunConfig
    from hurl.experiments.folder import RunFolder
    from hurl.experiments.trainers.base import build_guidance
    from tests.experiments.conftest import SMALL

    (tmp_path / "storing.py").write_text("from hurl.heuristics import Zero\nzero = Zero(gamma=0.8)\n")
    code, _, errors = run("diagnose", name, "--dataset test/noise-v0 --gamma 0.9")
    assert code == 2, errors
    assert message in errors
    guided = SMALL | {"gamma": 0.9, "guidance": SMALL["guidance"] | {"heuristic": name}}
    with pytest.raises(ValueError, match=re.escape(message)):
        build_guidance(
            RunConfig.model_validate(guided), SimpleNamespace(observation_space=VECTORS), RunFolder(tmp_path / "run")
        )


def test_saved_heuristic_brings_its_discount(run, tmp_path):
    Zero(gamma=0.8).save(tmp_path / "zero")
    code, output, errors = run("diagnose zero --dataset test/noise-v0 --root datasets --time-limit bootstrap")
    assert code == 0, errors
    assert "γ = 0.8, time limits: bootstrap" in " ".join(output.split())
    assert "h is constant" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "judged:first --dataset test/noise-v0",
            "judged:first is for no discount in particular: give one with --gamma",
        ),
        ("judged:frist --dataset test/noise-v0 --gamma 0.9", "did you mean 'first'"),
        ("judged:column --dataset test/noise-v0 --gamma 0.9", "returned shape (372, 1) for 372 observations"),
        ("judged:first --dataset test/other-v0 --gamma 0.9", "there is no dataset 'test/other-v0'"),
        (
            "judged:first --dataset test/noise-v0 --agent test/other-v0 --gamma 0.9",
            "there is no dataset 'test/other-v0'",
        ),
        ("judged:first --dataset test/noise-v0 --gamma 1.5", "gamma must lie in [0, 1), got 1.5"),
        ("nowhere --dataset test/noise-v0", "nor the folder of a saved heuristic"),
        ("zero --dataset test/noise-v0 --gamma 0.7", "is for gamma=0.8, but here gamma=0.7"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, tmp_path, words, message):
    Zero(gamma=0.8).save(tmp_path / "zero")
    code, _, errors = run("diagnose", words)
    assert code == 2, errors
    assert message in errors
    assert len([line for line in errors.splitlines() if line.startswith("error:")]) == 1
