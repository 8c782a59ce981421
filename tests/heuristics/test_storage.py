"""A saved heuristic is what it was, or is refused in one sentence."""

import hashlib
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import hurl
from hurl.files import MisplacedError
from hurl.guidance import HeuristicError
from hurl.heuristics import Engineered, MonteCarloHeuristic, Zero, load_heuristic, sparse_reacher
from hurl.heuristics.storage import CARD, CONFIG, WEIGHTS
from tests.data.examples import VECTORS, random_episodes

SMALL = {"hidden": (8, 8), "epochs": 1, "batch_size": 4}


@pytest.fixture(scope="module")
def heuristic():
    return MonteCarloHeuristic.fit(random_episodes(), gamma=0.9, **SMALL)


@pytest.fixture
def folder(heuristic, tmp_path):
    heuristic.save(tmp_path / "h")
    return tmp_path / "h"


def test_a_fresh_process_gives_bit_equal_values(heuristic, folder, tmp_path):
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", observations)
    program = (
        "import sys, numpy, hurl; h = hurl.load_heuristic(sys.argv[1]);"
        "numpy.save(sys.argv[3], h(numpy.load(sys.argv[2])));"
        "assert 'jax' not in sys.modules and 'torch' not in sys.modules"
    )
    arguments = [str(path) for path in (folder, tmp_path / "x.npy", tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), heuristic(observations))


def test_what_is_loaded_says_where_it_came_from(heuristic, folder):
    loaded = hurl.load_heuristic(folder, observation_space=VECTORS, gamma=0.9)
    assert loaded.digest == heuristic.digest
    assert loaded.dataset == {"id": "test/noise-v0", "digest": random_episodes().digest}
    assert loaded.metrics == heuristic.metrics
    assert json.loads((folder / CONFIG).read_text())["versions"]["hurl"] == hurl.__version__


def test_a_card_says_what_it_is(heuristic, folder):
    card = (folder / "README.md").read_text("utf-8")
    for fact in ("MonteCarloHeuristic, `monte-carlo`", "| discount γ | 0.9 |", "Box of shape (3,) (float)"):
        assert fact in card
    assert f"`test/noise-v0`, hash `{random_episodes().digest}`" in card
    assert all(f"| {name} | {value:.6g} |" in card for name, value in heuristic.metrics.items())
    assert f"hurl {hurl.__version__}" in card
    (folder / "README.md").write_text("A card that its owner has written.")
    assert load_heuristic(folder).digest == heuristic.digest


@pytest.mark.parametrize("original", [Zero(gamma=0.5), Engineered("hurl.heuristics.engineered:sparse_reacher")])
def test_heuristics_without_weights(original, tmp_path):
    original.save(tmp_path / "h")
    loaded = load_heuristic(tmp_path / "h")
    observations = np.random.default_rng(0).normal(size=(5, 11)).astype(np.float32)
    expected = np.zeros(5) if isinstance(original, Zero) else sparse_reacher(observations)
    np.testing.assert_array_equal(loaded(observations), expected)
    assert loaded.gamma == original.gamma


def test_saving_again_replaces_a_heuristic_and_nothing_else(heuristic, folder, tmp_path):
    Zero().save(folder)
    assert isinstance(load_heuristic(folder), Zero)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("words")
    (other / CONFIG).write_text("{}")
    with pytest.raises(HeuristicError, match="holds other things than a heuristic"):
        heuristic.save(other)
    assert (other / "chapter.txt").read_text() == "words"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h", "thesis"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.parent.parent / "other")])
@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_what_is_no_file_of_the_folder_is_neither_read_nor_replaced(folder, file, make):
    shutil.move(folder / file, folder.parent / "other")
    make(folder / file)
    with pytest.raises(MisplacedError, match=rf"{file} is a (pipe|folder|link) in the place of a file"):
        load_heuristic(folder)
    with pytest.raises(HeuristicError, match="holds other things than a heuristic"):
        Zero().save(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([CARD, CONFIG, WEIGHTS])


def test_saving_through_a_link_keeps_the_link_and_removes_what_was_left(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    for name in (f".h.{platform.node()}.{os.getpid()}.part", ".h.old"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    Zero().save(link)
    assert link.is_symlink()
    assert isinstance(load_heuristic(folder), Zero)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h", "link", "mine"]
    assert (tmp_path / "mine/file").exists()


def test_a_kill_between_two_names_loses_nothing(heuristic, folder, tmp_path):
    folder.replace(tmp_path / ".h.old")
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert load_heuristic(folder).digest == load_heuristic(link).digest == heuristic.digest
    Zero().save(folder)
    assert isinstance(load_heuristic(folder), Zero)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h", "link"]


def test_what_another_process_is_saving_to_the_same_folder_stays(folder, tmp_path):
    other = tmp_path / f".h.{platform.node()}.{os.getppid()}.part"
    other.mkdir()
    Zero().save(folder)
    assert other.is_dir()


def test_a_heuristic_that_is_not_written_leaves_nothing_behind(heuristic, folder, tmp_path, monkeypatch):
    def refuse(self, versions):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hurl.heuristics.card.model_card", refuse)
    with pytest.raises(OSError, match="No space left"):
        Zero().save(folder)
    assert load_heuristic(folder).digest == heuristic.digest
    assert [path.name for path in tmp_path.iterdir()] == ["h"]


@pytest.mark.parametrize(
    ("space", "gamma", "message"),
    [
        (gym.spaces.Box(-1, 1, (4,), np.float32), 0.9, r"is for observations of Box of shape \(3,\).*shape \(4,\)"),
        (gym.spaces.Discrete(3), 0.9, r"but here they are of Discrete\(3\)"),
        (gym.spaces.Box(0, 255, (3,), np.uint8), 0.9, "integer"),
        (VECTORS, 0.99, r"is for gamma=0.9, but here gamma=0.99: fit one with gamma=0.99"),
    ],
)
def test_a_run_of_another_kind_is_refused(folder, space, gamma, message):
    with pytest.raises(HeuristicError, match=message):
        load_heuristic(folder, observation_space=space, gamma=gamma)


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_missing_file(folder, file):
    (folder / file).unlink()
    with pytest.raises(HeuristicError, match=f"has no {file}"):
        load_heuristic(folder)


def test_altered_weights(folder):
    arrays = load_file(folder / WEIGHTS)
    arrays["0.bias"][0] += 1
    save_file(arrays, folder / WEIGHTS)
    with pytest.raises(HeuristicError, match="its hash differs"):
        load_heuristic(folder)


def change_config(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


def test_an_unknown_class(folder):
    change_config(folder, **{"class": "MonteCarloHeuristik"})
    with pytest.raises(
        HeuristicError, match=r"unknown class 'MonteCarloHeuristik'; did you mean 'MonteCarloHeuristic'"
    ):
        load_heuristic(folder)


@pytest.mark.parametrize("name", [[], {}, None, 3])
def test_a_class_that_is_no_name(folder, name):
    change_config(folder, **{"class": name})
    with pytest.raises(HeuristicError, match=r"holds a heuristic of the unknown class .*; known are "):
        load_heuristic(folder)


def test_weights_of_another_shape(folder):
    settings = {"network": {"sizes": [3, 9, 8, 1], "activation": "tanh"}, "time_limit": "cut"}
    change_config(folder, settings=settings)
    with pytest.raises(HeuristicError, match=r"'0.weight' of shape \(3, 8\), config.json asks for \(3, 9\)"):
        load_heuristic(folder)


def test_an_unknown_activation(folder):
    settings = {"network": {"sizes": [3, 8, 8, 1], "activation": "Tanh"}, "time_limit": "cut"}
    change_config(folder, settings=settings)
    with pytest.raises(HeuristicError, match="activation must be one of tanh, relu, got 'Tanh'"):
        load_heuristic(folder)


def test_a_guidance_of_another_discount_is_refused(heuristic):
    hurl.Guidance(heuristic, hurl.ConstantSchedule(0.9), gamma=0.9)
    with pytest.raises(HeuristicError, match=r"dataset='test/noise-v0'\) is for gamma=0.9, but here gamma=0.5"):
        hurl.Guidance(heuristic, hurl.ConstantSchedule(0.9), gamma=0.5)


def test_settings_that_are_missing(folder):
    change_config(folder, settings={})
    with pytest.raises(HeuristicError, match="does not describe a MonteCarloHeuristic"):
        load_heuristic(folder)


def test_a_config_that_is_no_json(folder):
    (folder / CONFIG).write_text("{")
    with pytest.raises(HeuristicError, match="is not JSON"):
        load_heuristic(folder)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("the pickle was loaded",)


def test_a_pickle_is_never_loaded(folder):
    (folder / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(HeuristicError, match="is a pickle, which could run any code, and is not loaded"):
        load_heuristic(folder)


def test_a_file_of_another_kind(folder):
    content = b"not a safetensors file at all"
    (folder / WEIGHTS).write_bytes(content)
    change_config(folder, weights_sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(HeuristicError, match="is not a safetensors file"):
        load_heuristic(folder)


def test_arrays_of_a_type_that_numpy_has_not(folder):
    heading = json.dumps({"0.bias": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    (folder / WEIGHTS).write_bytes(len(heading).to_bytes(8, "little") + heading + b"ab")
    with pytest.raises(HeuristicError, match=r"is not a safetensors file \('BF16'\): save the heuristic anew"):
        load_heuristic(folder)


def test_an_engineered_function_that_is_gone(tmp_path):
    Engineered("hurl.heuristics.engineered:sparse_reacher").save(tmp_path / "h")
    change_config(tmp_path / "h", settings={"function": "hurl.heuristics.engineered:sparse_reach"})
    with pytest.raises(HeuristicError, match=r"no function 'sparse_reach'; did you mean 'sparse_reacher'"):
        load_heuristic(tmp_path / "h")
