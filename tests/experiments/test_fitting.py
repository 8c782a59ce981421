"""`hurl fit`: from the name of a kind to a folder."""

import subprocess
import sys

import numpy as np
import pytest

from hurl.experiments.errors import ConfigurationError
from hurl.experiments.fitting import fit_heuristic, kind_names
from hurl.heuristics import Engineered, EnsembleLowerBound, MonteCarloHeuristic, VAEFilteredHeuristic, load_heuristic
from tests.data.examples import random_episodes, write_minari

SMALL = {"hidden": [4], "epochs": 1, "batch_size": 4}


def hurl(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "hurl", *arguments], cwd=cwd, capture_output=True, text=True)


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
    with pytest.raises(ConfigurationError, match="there is no kind of heuristic 'value-function'"):
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
    assert set(kind_names()) <= set(result.stdout.replace(",", " ").replace(".", " ").split())


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("monte-karlo", {}, r"no kind of heuristic 'monte-karlo'; did you mean 'monte-carlo'"),
        ("monte-carlo", {"epoch": 3}, r"monte-carlo has no parameter 'epoch'; did you mean 'epochs'"),
        ("ensemble", {"member": 3}, r"ensemble has no parameter 'member'; did you mean 'members'"),
        ("zero", {"gamma": 0.8}, r"zero has no parameter 'gamma'"),
        ("offline-rl", {"gamma": 0.8}, r"offline-rl has no parameter 'gamma'"),
        ("engineered", {}, r"engineered needs the parameter 'function'"),
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
    expected = MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, hidden=[4], epochs=2, seed=3)
    loaded = load_heuristic(tmp_path / "h")
    states = random_episodes().states
    np.testing.assert_allclose(loaded(states), expected(states), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["monte-carlo", "--out", "h"], "give --dataset and --gamma"),
        (
            ["monte-carlo", "--out", "h", "--dataset", "aa/bb-v0", "--gamma", "0.9", "--root", "."],
            "no dataset 'aa/bb-v0'",
        ),
        (["monte-carl", "--out", "h"], "no kind of heuristic 'monte-carl'; did you mean 'monte-carlo'"),
        (["value-function", "--out", "h"], "name its run or checkpoint with --run"),
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
