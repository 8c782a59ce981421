"""Collecting: which transitions are kept, that they are what happened, and that a stopped collection goes on."""

import json
import os

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.vec_env import DummyVecEnv

from hurl.data import CollectionError, DatasetError, Policy, collect, load_episodes, summarize
from hurl.data.rollout import roll_out
from hurl.envs import make_env
from hurl.files import MisplacedError

N_ENVS = 4


class Walk(gym.Env):
    """Episodes of a random length that the first state tells; every third ends at a time limit.

    A state is (length, step, a number that is the episode's own), a reward step + action.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, longest=40):
        self.longest = longest

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        short = self.np_random.random() < 0.5
        self.length = int(self.np_random.integers(1, 4) if short else self.np_random.integers(20, self.longest))
        self.step_count, self.mark = 0, self.np_random.random()
        return self._state(), {}

    def step(self, action):
        reward = self.step_count + float(action[0])
        self.step_count += 1
        ended = self.step_count == self.length
        return self._state(), reward, ended and self.length % 3 != 0, ended and self.length % 3 == 0, {}

    def _state(self):
        return np.array([self.length, self.step_count, self.mark])


class Endless(Walk):
    def step(self, action):
        return self._state(), 0.0, False, False, {}


class Picture(gym.Env):
    observation_space = Box(0, 255, (32, 32, 3), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.last = self.observation_space.sample()
        return self.last, 0.0, True, False, {}


def walks(n_envs=N_ENVS, kind=Walk):
    return DummyVecEnv([kind] * n_envs)


def noise(name="noise", starts=None):
    """A policy that draws from its own generator, and writes into what it is given."""

    def start(seed):
        if starts is not None:
            starts.append(name)
        generator = np.random.default_rng(seed)

        def act(observations):
            observations[:] = 0
            return generator.uniform(-1, 1, (len(observations), 1)).astype(np.float32)

        return act

    return Policy(name, start, "somewhere", "noise", name)


def constant(actions):
    return Policy("constant", lambda seed: lambda observations: actions, "somewhere", "constant", "constant")


def lengths_by_beginning(seed, transitions):
    """The lengths of the episodes that count, from the rule itself: by hand, one event at a time."""
    envs = [Walk() for _ in range(N_ENVS)]
    begun = [(0, slot, int(env.reset(seed=seed + slot)[0][0])) for slot, env in enumerate(envs)]
    ends = {slot: length for _, slot, length in begun}
    lengths = {slot: [length] for _, slot, length in begun}
    for now in range(1, 100_000):
        taken = sum(min(now - begin, length) for begin, _, length in begun)
        for slot in [slot for slot, end in ends.items() if end == now]:
            del ends[slot]
            if taken < transitions:
                lengths[slot].append(int(envs[slot].reset()[0][0]))
                begun.append((now, slot, lengths[slot][-1]))
                ends[slot] = now + lengths[slot][-1]
        if not ends:
            break
    kept, missing = [], transitions
    for _, _, length in sorted(begun):
        kept.append(min(length, missing))
        missing -= kept[-1]
        if not missing:
            return kept
    raise AssertionError


@pytest.mark.parametrize("transitions", [1, 7, 100, 501])
@pytest.mark.parametrize("seed", [0, 1])
def test_episodes_count_in_the_order_in_which_they_began(transitions, seed):
    rollout = roll_out(noise(), walks(), transitions, seed)
    assert rollout.lengths.tolist() == lengths_by_beginning(seed, transitions)
    assert rollout.lengths.sum() == transitions == len(rollout.rewards) == len(rollout.actions)


def test_short_episodes_are_not_favoured():
    """Half of all episodes are long. Of those that are the first to end, many more are short."""
    lengths = []
    for seed in range(0, 60_000, 1000):
        rollout = roll_out(noise(), walks(10), 300, seed)
        starts = np.cumsum(rollout.lengths) - rollout.lengths + np.arange(len(rollout.lengths))
        lengths += rollout.states[starts, 0].tolist()  # what the first state tells, also of the episode that is cut
    assert abs(np.mean(np.array(lengths) > 10) - 0.5) < 0.04


def test_an_episode_holds_what_happened_in_it():
    rollout = roll_out(noise(), walks(), 501, 3)
    ends = np.cumsum(rollout.lengths)
    assert rollout.cut.tolist() == [False] * (len(ends) - 1) + [True]
    for number, (length, end) in enumerate(zip(rollout.lengths, ends, strict=True)):
        states = rollout.states[end - length + number : end + number + 1]
        assert np.ptp(states[:, [0, 2]], axis=0).tolist() == [0, 0], "one episode, its last state included"
        assert states[:, 1].tolist() == list(range(length + 1))
        actions = rollout.actions[end - length : end, 0]
        np.testing.assert_allclose(rollout.rewards[end - length : end], states[:-1, 1] + actions, rtol=1e-6)
        if rollout.cut[number]:
            assert length < states[0, 0]
            assert not rollout.terminated[number]
        else:
            assert length == states[0, 0]
            assert rollout.terminated[number] == (length % 3 != 0), "a time limit is no termination"


def test_nothing_is_cut_where_episodes_add_up():
    env = make_env("Pendulum-v1", 5, max_episode_steps=20)
    rollout = roll_out(noise(), env, 100, 0)
    assert rollout.lengths.tolist() == [20] * 5
    assert not rollout.cut.any()
    assert not rollout.terminated.any()


def test_environments_whose_episodes_never_end_are_left_in_time():
    rollout = roll_out(noise(), walks(kind=Endless), 50, 0)
    assert (rollout.lengths.tolist(), rollout.cut.tolist()) == ([50], [True])


def test_the_dataset_is_one_of_minaris_and_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    policies = [noise("first"), noise("second")]
    spec = gym.spec("Pendulum-v1")
    env = make_env("Pendulum-v1", 3, max_episode_steps=20)
    seen = []
    collect(policies, env, "swing/up-v0", transitions=50, env_spec=spec, report=seen.append)
    dataset = minari.load_dataset("swing/up-v0")
    assert list(minari.list_local_datasets()) == ["swing/up-v0"]
    assert (dataset.total_steps, dataset.total_episodes) == (100, 6)
    assert dataset.recover_environment().spec.id == "Pendulum-v1"
    assert "total_steps=20" in repr(dataset[0])
    metadata = list(dataset.storage.get_episode_metadata(range(6)))
    assert [episode["policy"] for episode in metadata] == ["first"] * 3 + ["second"] * 3
    assert [bool(episode["cut"]) for episode in metadata] == [False, False, True] * 2
    assert {episode["source"] for episode in metadata} == {"somewhere"}
    assert metadata[0]["seed"] == metadata[1]["seed"] != metadata[3]["seed"]
    assert dataset[2].truncations.tolist() == [False] * 9 + [True]

    episodes = load_episodes("swing/up-v0")
    assert episodes.states.dtype == np.float32
    assert episodes.lengths.tolist() == [20, 20, 10] * 2
    first, second = summarize(dataset)
    assert (first.name, first.episodes, first.transitions) == ("first", 3, 50)
    assert first.return_mean == pytest.approx(episodes.rewards[:40].sum() / 2), "without the episode that was cut"
    assert second.return_mean == pytest.approx(episodes.rewards[50:90].sum() / 2)
    assert [(p.policy, p.number, p.transitions) for p in seen if p.transitions in (0, 50)] == [
        ("first", 1, 0), ("first", 1, 50), ("second", 2, 0), ("second", 2, 50),
    ]  # fmt: skip
    assert not (tmp_path / "swing/.up-v0.part").exists()
    card = (tmp_path / "swing/up-v0/README.md").read_text("utf-8")
    assert card.startswith("# swing/up-v0\n\n50 transitions of each of 2 policies, rolled out by hurl.")
    assert "| transitions | 100 in 6 episodes |" in card
    assert f"| second | {second.return_mean:.6g} | 3 | 50 |" in card


def test_images_are_kept_as_they_were(tmp_path):
    env = DummyVecEnv([Picture])
    dataset = collect([constant([1])], env, "pictures-v0", transitions=3, root=tmp_path)
    assert all(episode.observations.dtype == np.uint8 for episode in dataset)
    assert (dataset[2].observations[-1] == env.envs[0].last).all()


class Stop(Exception):  # noqa: N818
    pass


def stopping_at(policy, transitions):
    def report(progress):
        if progress.policy == policy and progress.transitions >= transitions:
            raise Stop

    return report


def digest(dataset):
    return load_episodes(dataset).digest


@pytest.mark.parametrize("transitions", [0, 150, 400])
def test_a_stopped_collection_goes_on_with_what_is_missing(tmp_path, transitions):
    starts = []
    policies = [noise(name, starts) for name in ("first", "second", "third")]

    def run(root, **report):
        return collect(policies, walks(), "walk/a-v0", transitions=400, root=tmp_path / root, **report)

    alone = digest(run("alone"))
    with pytest.raises(Stop):
        run("stopped", report=stopping_at("second", transitions))
    assert not (tmp_path / "stopped/walk/a-v0").exists()
    starts.clear()
    assert digest(run("stopped")) == alone
    assert starts == (["third"] if transitions == 400 else ["second", "third"])


@pytest.mark.parametrize("change", ["transitions", "seed", "environment", "n_envs", "identity", "damage"])
def test_what_other_settings_left_is_not_used(tmp_path, change):
    starts = []
    settings = {"transitions": 60, "seed": 0, "environment": {"id": "a"}}
    policies, n_envs = [noise("first", starts), noise("second", starts)], N_ENVS
    with pytest.raises(Stop):
        collect(policies, walks(), "w-v0", root=tmp_path, report=stopping_at("second", 0), **settings)
    part = tmp_path / ".w-v0.part/000000.npz"
    assert part.exists()
    if change == "damage":
        part.write_bytes(part.read_bytes()[:-100])
    elif change == "n_envs":
        n_envs = N_ENVS + 1
    elif change == "identity":
        policies[0] = Policy("first", policies[0].start, "somewhere", "noise", "another")
    else:
        settings[change] = {"transitions": 70, "seed": 1, "environment": {"id": "b"}}[change]
    starts.clear()
    after = digest(collect(policies, walks(n_envs), "w-v0", root=tmp_path, **settings))
    assert starts == ["first", "second"]
    assert after == digest(collect(policies, walks(n_envs), "w-v0", root=tmp_path / "alone", **settings))


def test_a_dataset_that_is_there_is_returned_or_refused_and_never_changed(tmp_path):
    starts = []
    policies = [noise("first", starts)]
    before = digest(collect(policies, walks(), "w-v0", transitions=60, root=tmp_path))
    starts.clear()
    assert digest(collect(policies, walks(), "w-v0", transitions=60, root=tmp_path)) == before
    with pytest.raises(
        CollectionError, match=r"w-v0 with transitions 60, not 61: choose another dataset id, or remove"
    ):
        collect(policies, walks(), "w-v0", transitions=61, root=tmp_path)
    with pytest.raises(CollectionError, match="w-v0 with other policies"):
        collect([*policies, noise("second")], walks(), "w-v0", transitions=60, root=tmp_path)
    metadata = tmp_path / "w-v0/data/metadata.json"
    values = json.loads(metadata.read_text())
    del values["hurl"]
    metadata.write_text(json.dumps(values))
    with pytest.raises(CollectionError, match="of another origin"):
        collect(policies, walks(), "w-v0", transitions=60, root=tmp_path)
    assert starts == []
    assert digest(minari.MinariDataset(tmp_path / "w-v0/data")) == before


def test_two_do_not_collect_the_same_dataset_at_a_time(tmp_path):
    def start(seed):
        with pytest.raises(CollectionError, match="another process is collecting w-v0"):
            collect([noise()], walks(), "w-v0", transitions=5, root=tmp_path)
        return noise().start(seed)

    policy = Policy("first", start, "somewhere", "noise", "noise")
    assert collect([policy], walks(), "w-v0", transitions=5, root=tmp_path).total_steps == 5


def test_parts_that_lie_elsewhere_are_left_alone(tmp_path):
    mine = tmp_path / "mine"
    (mine / "dataset").mkdir(parents=True)
    (mine / "dataset/thesis.txt").write_text("words")
    parts = tmp_path / "test/.walk-v0.part"
    parts.parent.mkdir()
    parts.symlink_to(mine)
    with pytest.raises(MisplacedError, match=r"walk-v0.part is a link in the place of a folder"):
        collect([noise()], walks(), "test/walk-v0", transitions=10, root=tmp_path)
    assert sorted(path.name for path in mine.rglob("*")) == ["dataset", "thesis.txt"]
    parts.unlink()
    parts.mkdir()
    os.mkfifo(parts / "000000.npz")
    with pytest.raises(MisplacedError, match=r"000000.npz is a pipe in the place of a file"):
        collect([noise()], walks(), "test/walk-v0", transitions=10, root=tmp_path)
    (parts / "000000.npz").unlink()
    (parts / "dataset").symlink_to(mine / "dataset")
    collect([noise()], walks(), "test/walk-v0", transitions=10, root=tmp_path)
    assert (mine / "dataset/thesis.txt").read_text() == "words"
    assert not parts.exists()


@pytest.mark.parametrize("dataset_id", ["", "w", "w-v", "w-v0/", "../w-v0", "a b-v0", "w-va"])
def test_malformed_dataset_ids_are_refused(tmp_path, dataset_id):
    with pytest.raises(DatasetError, match="is not of the form namespace/name-v0"):
        collect([noise()], walks(), dataset_id, transitions=5, root=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("policies", "settings", "message"),
    [
        ([noise()], {"transitions": 0}, "transitions must be at least 1, got 0"),
        ([noise()], {"transitions": 5, "seed": -1}, "seed must be 0 or more, got -1"),
        ([], {"transitions": 5}, "no policy"),
        ([noise(), noise()], {"transitions": 5}, "'noise' is named twice"),
        ([constant(np.zeros(4))], {"transitions": 5}, r"shape \(4,\) for 4 observations: .* takes \(4, 1\)"),
        ([constant(np.full((4, 1), np.nan))], {"transitions": 5}, "'constant' returned .*nan.* finite numbers"),
        ([constant(np.full((4, 1), "up"))], {"transitions": 5}, "'constant' returned .*up.* finite numbers"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, policies, settings, message):
    with pytest.raises(CollectionError, match=message):
        collect(policies, walks(), "w-v0", root=tmp_path, **settings)


@pytest.mark.parametrize("actions", [[2], [-1], [0.5]])
def test_actions_that_a_discrete_space_has_not_are_refused(actions):
    with pytest.raises(CollectionError, match="whole numbers from 0 to 1"):
        roll_out(constant(np.array(actions)), DummyVecEnv([Picture]), 3, 0)


def test_spaces_without_single_arrays_are_refused(tmp_path):
    env = DummyVecEnv([Picture])
    env.observation_space = gym.spaces.Dict({"a": Discrete(2)})
    with pytest.raises(CollectionError, match="only of a Box or Discrete space"):
        collect([constant([0])], env, "w-v0", transitions=3, root=tmp_path)


def test_a_collection_that_fails_at_once_leaves_no_folder(tmp_path):
    policy = Policy("bad", lambda seed: lambda observations: np.full(len(observations), 0.5), "bad", "bad", "bad")
    with pytest.raises(CollectionError, match="whole numbers from 0 to 1"):
        collect([policy], make_env("CartPole-v1", 2), "ab/w-v0", transitions=10, root=tmp_path / "root")
    assert not list(tmp_path.iterdir())
