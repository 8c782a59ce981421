"""Datasets that are damaged, or a stranger's: a sentence that names them, and nothing of them is run."""

import dataclasses
import json
import os
import random

import gymnasium as gym
import h5py
import numpy as np
import pytest
from minari.serialization import serialize_space

from hurl.data import DatasetError, load_episodes, summarize
from hurl.data.storage import find_dataset
from hurl.files import MisplacedError
from tests.data.examples import random_episodes, write_minari

ID = "test/noise-v0"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The folder of a dataset's files."""
    write_minari(tmp_path, random_episodes(), monkeypatch=monkeypatch)
    return tmp_path / ID / "data"


def damage(content, generator):
    """Change some of the bytes, mostly where there are any, or cut the rest off."""
    content, kind = bytearray(content), generator.choice(["bit", "zero", "ones", "block", "cut"])
    written = [place for place, byte in enumerate(content) if byte]
    place = generator.choice(written) if generator.random() < 0.8 else generator.randrange(len(content))
    if kind == "cut":
        return content[:place]
    if kind == "block":
        content[place : place + 16] = generator.randbytes(len(content[place : place + 16]))
    else:
        content[place] = {"bit": content[place] ^ 1 << generator.randrange(8), "zero": 0, "ones": 255}[kind]
    return content


@pytest.mark.parametrize(("name", "tries"), [("main_data.hdf5", 120), ("metadata.json", 60)])
def test_whatever_is_damaged_the_sentence_names_it(name, tries, data):
    good, generator, sentences = load_episodes(ID), random.Random(0), []
    content = (data / name).read_bytes()
    for _ in range(tries):
        (data / name).write_bytes(damage(content, generator))
        try:
            read = load_episodes(ID)
        except DatasetError as error:
            sentences.append(str(error))
        else:  # some bytes are of no account, and numbers may be others
            for field in ("states", "actions", "rewards"):
                assert getattr(read, field).shape == getattr(good, field).shape
            assert (read.lengths == good.lengths).all()
    assert len(sentences) > tries / 3
    assert all(str(data) in sentence or ID in sentence for sentence in sentences)


def change(data, **values):
    """Change the metadata; None takes a key out."""
    metadata = json.loads((data / "metadata.json").read_text()) | values
    metadata = {key: value for key, value in metadata.items() if value is not None}
    (data / "metadata.json").write_text(json.dumps(metadata))


def test_the_environment_of_a_dataset_is_not_made(data, tmp_path, monkeypatch):
    (tmp_path / "strangers_environment.py").write_text("raise SystemExit('its code ran')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = gym.envs.registration.EnvSpec("Strangers-v0", entry_point="strangers_environment:Environment")
    change(data, env_spec=spec.to_json(), eval_env_spec=spec.to_json())
    assert len(load_episodes(ID)) == 4
    change(data, observation_space=None)
    with pytest.raises(DatasetError, match=rf"{data} can't be read .*observation_space.*: collect or download it anew"):
        load_episodes(ID)


@pytest.mark.parametrize("count", [10**15, -1, "4", 3.0, True])
def test_a_number_of_episodes_that_is_none(count, data):
    change(data, total_episodes=count)
    with pytest.raises(DatasetError, match=r"noise-v0/data can't be read .*"):
        load_episodes(ID)


def test_episodes_that_the_metadata_leave_out(data):
    change(data, total_episodes=3)
    with pytest.raises(DatasetError, match=r"noise-v0/data .*it has 12 steps, and 15 by its metadata"):
        load_episodes(ID)


def replace(group, name, values, **options):
    del group[name]
    group.create_dataset(name, data=values, **options)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("rewards", np.full(3, np.nan), "3 rewards that are NaN or infinite"),
        ("rewards", np.zeros((3, 1)), r"rewards of float64, shape \(3, 1\)"),
        ("rewards", np.array([b"a", b"b", b"c"]), r"rewards of \|S1"),
        ("terminations", np.zeros(3), "terminations of float64"),
        ("truncations", np.zeros(2, bool), "truncations has 2 entries in place of 3"),
        ("actions", np.zeros((4, 2), np.float32), "actions has 4 entries in place of 3"),
        ("observations", np.zeros((3, 3), np.float32), "observations has 3 entries in place of 4"),
        ("observations", np.zeros((4, 2), np.float32), "dimension"),
        ("actions", np.zeros((3, 2), complex), r"actions of complex128, shape \(2,\), that are not of its space"),
    ],
)
def test_arrays_that_do_not_belong_together(name, values, message, data):
    with h5py.File(data / "main_data.hdf5", "a") as file:
        replace(file["episode_3"], name, values)
    with pytest.raises(DatasetError, match=message):
        load_episodes(ID)


def test_an_array_that_claims_more_than_is_stored_takes_no_memory(data):
    with h5py.File(data / "main_data.hdf5", "a") as file:
        for name in ("rewards", "terminations", "truncations", "actions", "observations"):
            array = file["episode_3"][name]
            array.resize(2**40 + (name == "observations"), axis=0)
    with pytest.raises(DatasetError, match=r"rewards has the shape \(1099511627776,\), of which little is there"):
        load_episodes(ID)


def test_arrays_in_other_files_are_not_read(data, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(np.zeros(3).tobytes())
    with h5py.File(data / "main_data.hdf5", "a") as file:
        group = file["episode_3"]
        del group["rewards"]
        group.create_dataset("rewards", (3,), float, external=str(other))
    with pytest.raises(DatasetError, match="rewards is kept in another file"):
        load_episodes(ID)
    with h5py.File(data / "main_data.hdf5", "a") as file:
        del file["episode_3"]
        file["episode_3"] = h5py.ExternalLink(str(other), "/")
    with pytest.raises(DatasetError, match="episode_3 is a link to elsewhere"):
        load_episodes(ID)


@pytest.mark.parametrize("key", ["observation_space", "action_space"])
def test_what_is_inside_of_spaces_with_parts_is_not_read(key, data, tmp_path):
    parts = gym.spaces.Dict({"part": gym.spaces.Box(-1, 1, (3,), np.float32)})
    change(data, **{key: serialize_space(parts)})
    with h5py.File(data / "main_data.hdf5", "a") as file:
        for group in file.values():
            name = f"{key.removesuffix('_space')}s"
            del group[name]
            group.create_group(name)["part"] = h5py.ExternalLink(str(tmp_path / "other"), "/")
    with pytest.raises(DatasetError, match=r"noise-v0 has .* of Dict\(.*: only plain arrays can be used"):
        load_episodes(ID)


@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name, data):
    (data / name).unlink()
    os.mkfifo(data / name)
    with pytest.raises(MisplacedError, match=f"{name} is a pipe in the place of a file"):
        load_episodes(ID)


def test_states_beyond_a_discrete_space(tmp_path, monkeypatch):
    episodes = random_episodes(observation_space=gym.spaces.Discrete(5))
    states = episodes.states.copy()
    states[3] = 5
    write_minari(tmp_path, dataclasses.replace(episodes, states=states), monkeypatch=monkeypatch)
    with pytest.raises(DatasetError, match=r"observations that are not of its space Discrete\(5\)"):
        load_episodes(ID)


def test_a_summary_of_a_damaged_dataset(data):
    dataset = find_dataset(ID)
    with pytest.raises(DatasetError, match=r"noise-v0/data can't be read .*policy"):
        summarize(dataset)
