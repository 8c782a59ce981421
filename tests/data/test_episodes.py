import dataclasses
import os

import gymnasium as gym
import minari
import numpy as np
import pytest

from hurl.data import DatasetError, Episodes, load_episodes
from hurl.files import MisplacedError
from tests.data.examples import random_episodes, write_minari


def test_views_agree_with_a_loop_over_episodes():
    episodes = random_episodes()
    row = state = 0
    for episode, length in enumerate(episodes.lengths):
        states = episodes.states[state : state + length + 1]
        rows = slice(row, row + length)
        np.testing.assert_array_equal(episodes.observations[rows], states[:-1])
        np.testing.assert_array_equal(episodes.last_states[episode], states[-1])
        assert list(episodes.terminal[rows]) == [False] * (length - 1) + [episodes.terminated[episode]]
        row, state = row + length, state + length + 1


def test_select_keeps_episodes_together():
    episodes = random_episodes()
    chosen = episodes.select([2, 0])
    assert list(chosen.lengths) == [7, 4]
    assert list(chosen.terminated) == [False, True]
    np.testing.assert_array_equal(chosen.rewards, np.concatenate([episodes.rewards[5:12], episodes.rewards[:4]]))
    np.testing.assert_array_equal(chosen.observations[:7], episodes.observations[5:12])
    np.testing.assert_array_equal(chosen.last_states[1], episodes.last_states[0])


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [([-1, -4], [3, 0]), ((1, 2), [1, 2]), ([True, False, False, True], [0, 3]), (np.array([False, True] * 2), [1, 3])],
)
def test_episodes_are_chosen_as_numpy_does(chosen, numbers):
    assert random_episodes().select(chosen).digest == random_episodes().select(numbers).digest


@pytest.mark.parametrize("chosen", [[4], [-5], [True, False], [0.5]])
def test_episodes_that_there_are_not_are_refused(chosen):
    with pytest.raises(IndexError):
        random_episodes().select(chosen)


def test_split_shares_no_episode_and_loses_none():
    episodes = random_episodes(lengths=[2] * 10, terminated=[True] * 10)
    train, held_out = episodes.split(0.3, seed=1)
    assert (len(train), len(held_out)) == (7, 3)
    firsts = [float(part.observations[start, 0]) for part in (train, held_out) for start in part.starts]
    assert sorted(firsts) == sorted(episodes.observations[episodes.starts, 0].tolist())


def test_one_episode_cannot_be_split():
    with pytest.raises(DatasetError, match="has one complete episode"):
        random_episodes(lengths=[5], terminated=[True]).split(0.1, seed=0)


def test_the_digest_changes_with_any_value():
    episodes = random_episodes()
    rewards = episodes.rewards.copy()
    rewards[3] += 1e-9
    assert dataclasses.replace(episodes, rewards=rewards).digest != episodes.digest
    assert random_episodes().digest == episodes.digest


def test_a_minari_dataset_is_read_whole(tmp_path, monkeypatch):
    episodes = random_episodes()
    write_minari(tmp_path, episodes, monkeypatch=monkeypatch)
    from_id = load_episodes("test/noise-v0")
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    from_root = load_episodes("test/noise-v0", root=tmp_path)
    for read in (from_id, from_root):
        for field in ("states", "actions", "rewards", "lengths", "terminated"):
            np.testing.assert_array_equal(getattr(read, field), getattr(episodes, field))
        assert read.observation_space == episodes.observation_space
        assert read.name == "test/noise-v0"


def test_a_dataset_of_minaris_own_collector_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("FrozenLake-v1"))
    for seed in range(3):
        env.reset(seed=seed)
        done = False
        while not done:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
    dataset = env.create_dataset(
        "lake/random-v0", algorithm_name="-", code_permalink="-", author="-", author_email="-", description="-"
    )
    episodes = load_episodes(dataset)
    assert len(episodes) == 3
    assert episodes.states.shape == (episodes.transitions + 3,)
    assert isinstance(episodes.observation_space, gym.spaces.Discrete)


def test_unfinished_episodes_are_left_out(tmp_path, monkeypatch):
    write_minari(tmp_path, random_episodes(), complete=False, monkeypatch=monkeypatch)
    with pytest.raises(DatasetError, match="no complete episode among its 4"):
        load_episodes("test/noise-v0")


def test_a_missing_dataset_names_those_that_exist(tmp_path, monkeypatch):
    write_minari(tmp_path, random_episodes(), monkeypatch=monkeypatch)
    with pytest.raises(DatasetError, match=r"no dataset 'test/nose-v0' .*there are test/noise-v0"):
        load_episodes("test/nose-v0")


@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5"])
def test_a_pipe_in_a_dataset_is_not_waited_for(tmp_path, name):
    data = tmp_path / "test/noise-v0/data"
    data.mkdir(parents=True)
    os.mkfifo(data / name)
    with pytest.raises(MisplacedError, match=f"{name} is a pipe in the place of a file"):
        load_episodes("test/noise-v0", tmp_path)


@pytest.mark.parametrize(("field", "name"), [("rewards", "rewards"), ("states", "observations")])
def test_numbers_that_are_none_are_refused(field, name):
    episodes = random_episodes()
    values = getattr(episodes, field).copy()
    values.flat[2] = np.nan
    with pytest.raises(DatasetError, match=f"test/noise-v0 has 1 {name} that are NaN or infinite"):
        dataclasses.replace(episodes, **{field: values})


def test_arrays_that_do_not_belong_together_are_refused():
    episodes = random_episodes()
    with pytest.raises(DatasetError, match=r"15 rewards in 4 episodes.*19 states: got 15, 15 and 18"):
        dataclasses.replace(episodes, states=episodes.states[:-1])
    with pytest.raises(DatasetError, match=r"has 4 episodes, but says of 3 whether they ended"):
        dataclasses.replace(episodes, terminated=episodes.terminated[:-1])
    with pytest.raises(DatasetError, match=r"has an episode of 0 steps"):
        dataclasses.replace(episodes, lengths=np.array([5, 0, 7, 3]))


@pytest.mark.parametrize("dataset_id", ["hopper", "a b", "hopper/behaviour"])
def test_an_id_that_is_none(dataset_id):
    with pytest.raises(DatasetError, match=f"'{dataset_id}' is not of the form namespace/name-v0"):
        load_episodes(dataset_id)


def test_dictionaries_are_refused():
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(2)})
    with pytest.raises(DatasetError, match="FlattenObservation"):
        dataclasses.replace(random_episodes(), observation_space=space)


def test_no_episode_is_refused():
    with pytest.raises(DatasetError, match="no complete episode"):
        random_episodes().select([])
    assert isinstance(random_episodes().select([0]), Episodes)
