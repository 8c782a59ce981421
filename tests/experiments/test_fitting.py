"""`hurl fit`: from the name of a kind to a folder."""

import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.agents import value_function_of
from hurl.experiments.config import validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.fitting import fit_heuristic, kind_names
from hurl.experiments.run import train
from hurl.heuristics import (
    Engineered,
    EnsembleLowerBound,
    MonteCarloHeuristic,
    VAEFilteredHeuristic,
    ValueFunctionHeuristic,
    load_heuristic,
)
from hurl.heuristics.base import KINDS, register
from tests.data.examples import random_episodes, write_minari

SMALL = {"hidden": [4], "epochs": 1, "batch_size": 4}


def hurl(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "hurl", *arguments], capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    ("kind", "parameters", "cls"),
    [
        ("monte-carlo", SMALL, MonteCarloHeuristic),
        ("vae", SMALL | {"vae_epochs": 1, "latent": 2}, VAEFilteredHeuristic),
        ("ensemble", SMALL | {"members": 2}, EnsembleLowerBound),
        ("engineered", {"function": "tests.experiments.test_fitting:first"}, Engineered),
    ],
)
def test_a_kind_is_its_class(kind, parameters, cls):
    heuristic = fit_heuristic(kind, random_episodes(), gamma=0.9, parameters=parameters)
    assert type(heuristic) is cls
    assert heuristic.gamma == (None if cls is Engineered else 0.9)
    assert heuristic(np.ones((3, 3), np.float32)).shape == (3,)


def first(observations):
    return observations[:, 0]


def test_what_is_made_of_others_or_of_an_agent_is_not_fitted_to_data():
    assert not {"max-of", "scaled", "shifted"} & set(kind_names())
    assert set(kind_names()) - set(kind_names(["fit"])) == {"value-function"}
    with pytest.raises(ConfigurationError, match="a heuristic of kind 'value-function' is not made from data; "):
        fit_heuristic("value-function", random_episodes(), gamma=0.9)


def test_the_help_names_the_kinds_without_torch(tmp_path):
    program = (
        "import sys, contextlib\n"
        "from hurl.cli import app\n"
        "with contextlib.suppress(SystemExit): app(['fit', '--help'])\n"
        "assert not {'torch', 'jax', 'ray', 'd3rlpy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    words = re.findall(r"[\w-]+", result.stdout)
    assert set(kind_names()) <= set(words)
    assert min(map(words.index, kind_names())) == words.index("ensemble"), "what is recommended comes first"


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("monte-karlo", {}, r"no kind of heuristic 'monte-karlo'; did you mean 'monte-carlo'"),
        ("monte-carlo", {"epoch": 3}, r"monte-carlo has no parameter 'epoch'; did you mean 'epochs'"),
        ("ensemble", {"member": 3}, r"ensemble has no parameter 'member'; did you mean 'members'"),
        ("zero", {"gamma": 0.8}, r"zero has no parameter 'gamma'"),
        ("offline-rl", {"gamma": 0.8}, r"offline-rl has no parameter 'gamma'"),
        ("engineered", {}, r"engineered needs the parameter 'function'"),
        ("reversed", {"validation": "abc"}, r"monte-carlo can't be fitted so: validation must be .*, got 'abc'"),
        ("reversed", {"of": 5}, r"reversed can't be fitted so: of must be a text, got 5"),
        ("reversed", {"of": ["a"]}, r"reversed can't be fitted so: of must be a text, got \['a'\]"),
    ],
)
def test_what_is_misspelt_or_missing(kind, parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        fit_heuristic(kind, random_episodes(), gamma=0.9, parameters=parameters)


def test_the_command_writes_a_folder(tmp_path, monkeypatch):
    write_minari(tmp_path / "data", random_episodes(), monkeypatch=monkeypatch)
    arguments = ["--dataset", "test/noise-v0", "--root", "data", "--gamma", "0.9", "--out", "h", "--seed", "3"]
    settings = ["--set", "hidden=[4]", "--set", "epochs=2"]
    result = hurl("fit", "monte-carlo", *arguments, *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "fitting 2/2" in result.stdout
    assert "R² held out" in result.stdout
    assert "hurl diagnose h --dataset test/noise-v0 --root data" in result.stdout
    assert "guidance: {heuristic: h}, and off-policy  prior: {dataset: test/noise-v0, root: data}" in result.stdout
    expected = MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, hidden=[4], epochs=2, seed=3)
    loaded = load_heuristic(tmp_path / "h")
    states = random_episodes().states
    np.testing.assert_allclose(loaded(states), expected(states), rtol=1e-5)


def test_a_heuristic_is_replaced_only_where_that_is_wanted(tmp_path, monkeypatch):
    write_minari(tmp_path / "data", random_episodes(), monkeypatch=monkeypatch)
    arguments = ["fit", "zero", "--dataset", "test/noise-v0", "--gamma", "0.9", "--out", "h", "--threads", "1"]

    def answered(answer):
        keyboard, terminal = pty.openpty()
        os.write(keyboard, answer)
        return hurl(*arguments, cwd=tmp_path, stdin=terminal)

    assert hurl(*arguments, cwd=tmp_path, stdin=subprocess.DEVNULL).returncode == 0
    before = (tmp_path / "h").stat().st_ino
    refused = hurl(*arguments, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "h holds a heuristic: choose another folder, or replace it with --force" in refused.stderr
    assert answered(b"n\n").returncode == 1
    assert (tmp_path / "h").stat().st_ino == before
    assert "in place of the one that was there" in answered(b"y\n").stdout
    assert (tmp_path / "h").stat().st_ino != before
    forced = hurl(*arguments, "--force", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert "in place of the one that was there" in forced.stdout


def test_data_without_a_kind_gives_an_ensemble(tmp_path, monkeypatch):
    write_minari(tmp_path / "data", random_episodes(), monkeypatch=monkeypatch)
    arguments = ["--dataset", "test/noise-v0", "--root", "data", "--gamma", "0.9", "--out", "h"]
    result = hurl("fit", *arguments, "--set", "hidden=[4]", "--set", "epochs=1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "EnsembleLowerBound(gamma=0.9, dataset='test/noise-v0') → h" in result.stdout
    assert type(load_heuristic(tmp_path / "h")) is EnsembleLowerBound


@pytest.mark.parametrize(("count", "words"), [(1, "1 episode"), (2, "2 episodes")])
def test_too_few_episodes_to_hold_any_out_is_one_sentence(count, words, tmp_path, monkeypatch):
    write_minari(tmp_path / "data", random_episodes([5] * count, [True] * count), monkeypatch=monkeypatch)
    arguments = ["--dataset", "test/noise-v0", "--root", "data", "--gamma", "0.9", "--out", "h"]
    result = hurl("fit", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert f"dataset test/noise-v0 has {words}, too few to hold any out" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "h").exists()


@pytest.fixture
def halved():
    """A kind of one's own that is made from an agent, registered for one test."""
    before = dict(KINDS.load())

    @register("halved")
    class Halved(ValueFunctionHeuristic):
        def __call__(self, observations):
            return super().__call__(observations) / 2

    yield Halved
    KINDS.clear()
    KINDS.update(before)


def test_a_kind_of_ones_own_is_made_from_an_agent_by_its_class(halved, small, tmp_path):
    train(validate({**small, "guidance": None, "iterations": 1}, "test"), tmp_path / "run")

    def fit(*options):
        return CliRunner().invoke(app, ["fit", "halved", "--out", str(tmp_path / "h"), "--threads", "1", *options])

    assert "halved needs one agent: its run" in str(fit().exception)
    run = ("--run", str(tmp_path / "run"))
    assert "halved takes all from the agent: leave out" in str(fit(*run, "--gamma", "0.9").exception)
    result = fit(*run)
    assert result.exit_code == 0, result.output
    loaded = load_heuristic(tmp_path / "h")
    assert type(loaded) is halved
    states = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(loaded(states), value_function_of(tmp_path / "run")(states) / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scaled", "--out", "h"], "a heuristic of kind 'scaled' is not made from data or an agent"),
        (["monte-carlo", "--out", "h"], "give --dataset and --gamma"),
        (["--out", "h", "--dataset", "a/b-v0"], "ensemble is fitted to data for a discount: give --gamma"),
        (["--out", "h", "--run", "x"], "a discount: leave out --run, give --dataset and --gamma"),
        (
            ["monte-carlo", "--out", "h", "--dataset", "aa/bb-v0", "--gamma", "0.9", "--root", "."],
            "no dataset 'aa/bb-v0'",
        ),
        (["monte-carl", "--out", "h"], "no kind of heuristic 'monte-carl'; did you mean 'monte-carlo'"),
        (["value-function", "--out", "h"], "its run or checkpoint with --run, or its zip"),
        (["value-function", "--out", "h", "--run", "x", "--gamma", "0.9"], "leave out --dataset, --gamma"),
        (["zero", "--out", "."], "holds other things than a heuristic"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, tmp_path):
    (tmp_path / "words.txt").write_text("words")
    result = hurl("fit", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "h").exists()
