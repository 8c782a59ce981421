"""Policies from runs, zip files, functions and chance: that they act as what they were taken from, and safely."""

import base64
import contextlib
import io
import json
import pickle
import sys
import zipfile
from importlib import invalidate_caches

import flax.linen as nn
import numpy as np
import pytest
import sb3_contrib
import sbx
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import VecNormalize

import hurl
from hurl.data import CollectionError, load_episodes
from hurl.data.collect import _Plan
from hurl.envs import make_env
from hurl.experiments.checkpoint import read_weights
from hurl.experiments.config import EnvironmentConfig, load_config, validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.policies import collect_policies, find_environment, find_policies
from hurl.experiments.run import train
from hurl.experiments.trainers.base import CLONING, EVALUATION, TRAINING, derive_seed
from hurl.experiments.zips import ZipError, load_zip
from hurl.sb3 import internals
from tests.experiments.conftest import SAC, SMALL

LIBRARIES = {"sb3": sb3, "sbx": sbx, "contrib": sb3_contrib}
PENDULUM = EnvironmentConfig(**SMALL["environment"])
SMALL_NETS = {"net_arch": {"pi": [8], "qf": [8]}}


def small_run(folder, **changes):
    config = validate(SMALL | {"iterations": 4, "checkpoint_every": 1} | changes, "test")
    train(config, folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of Stable-Baselines3, one of SBX, and one of DQN, with four checkpoints each."""
    folder = tmp_path_factory.mktemp("runs")
    small_run(folder / "sb3")
    small_run(folder / "sbx", algorithm={"name": "sbx.SAC", "parameters": SAC}, guidance=None)
    dqn = {"buffer_size": 400, "learning_starts": 0, "exploration_fraction": 1.0, "train_freq": 50}
    small_run(
        folder / "dqn",
        environment={"id": "CartPole-v1", "n_envs": 2},
        algorithm={"name": "sb3.DQN", "parameters": dqn},
        guidance=None,
        updates_per_iteration=None,
    )
    return folder


@pytest.fixture
def env():
    return make_env("Pendulum-v1", 3, max_episode_steps=30)


def model_of(checkpoint):
    """The model of a checkpoint, as training built it."""
    config = RunFolder(checkpoint.parent.parent).read_config()
    library, name = config.algorithm.name.split(".")
    env = make_env(config.environment.id, 3, **config.environment.options)
    model = getattr(LIBRARIES[library], name)("MlpPolicy", env, **config.algorithm.parameters)
    internals.write_state(model, read_weights(checkpoint))
    return model


@pytest.mark.parametrize("base", ["sb3", "sbx"])
def test_each_checkpoint_of_a_run_acts_as_its_model(runs, env, base):
    observations = env.reset()
    policies = find_policies([str(runs / base)], env, PENDULUM, deterministic=True)
    assert [policy.name for policy in policies] == [f"{runs / base}/{number:06d}" for number in range(1, 5)]
    actions = {}
    for policy in reversed(policies):
        actions[policy.name] = policy.start(0)(observations)
        model = model_of(runs / base / "checkpoints" / policy.name[-6:])
        assert (actions[policy.name] == model.predict(observations, deterministic=True)[0]).all()
    assert len({array.tobytes() for array in actions.values()}) == 4
    assert len({policy.identity for policy in policies}) == 4


def test_every_second_checkpoint_and_one_alone(runs, env):
    names = [policy.name[-6:] for policy in find_policies([str(runs / "sb3")], env, PENDULUM, every=2)]
    assert names == ["000002", "000004"]
    for count, expected in ((1, ["000004"]), (2, ["000002", "000004"]), (3, ["000001", "000002", "000004"])):
        some = find_policies([str(runs / "sb3")], env, PENDULUM, count=count)
        assert [policy.name[-6:] for policy in some] == expected
    (alone,) = find_policies([str(runs / "sb3/checkpoints/000003")], env, PENDULUM)
    assert (alone.name[-6:], alone.source, alone.algorithm) == ("000003", str(runs / "sb3"), "sb3.SAC")


@pytest.mark.parametrize("base", ["sb3", "sbx"])
def test_chance_is_seeded_for_each_policy(runs, env, base):
    observations = env.reset()
    policy = find_policies([str(runs / base)], env, PENDULUM)[2]

    def three(seed):
        act = policy.start(seed)
        return np.array([act(observations) for _ in range(3)])

    first = three(7)
    assert len(np.unique(first)) == first.size
    assert (three(7) == first).all()
    assert (three(8) != first).all()


def test_sampling_in_one_call_gives_what_sbx_gives(runs, env):
    import jax

    observations = env.reset()
    act = find_policies([str(runs / "sbx")], env, PENDULUM)[3].start(5)
    model = model_of(runs / "sbx/checkpoints/000004")
    model.policy.key = jax.random.PRNGKey(5)
    for _ in range(3):
        assert (act(observations) == model.predict(observations)[0]).all()


def test_a_q_network_explores_as_it_did_when_it_was_saved(runs):
    env = make_env("CartPole-v1", 3)
    policies = find_policies([str(runs / "dqn")], env, EnvironmentConfig(id="CartPole-v1"))
    observations = np.zeros((3, 4), np.float32)

    def share_of_chance(policy):
        act = policy.start(0)
        actions = np.array([act(observations) for _ in range(400)])
        return np.mean(actions != np.median(actions, axis=0))

    # half of the actions taken by chance are the greedy one
    assert 0.25 < share_of_chance(policies[0]) < 0.5
    assert share_of_chance(policies[3]) < 0.1


def random_actions(policy, seed=1, count=200):
    act = policy.start(seed)
    return np.concatenate([act(None) for _ in range(count)])


def test_random_actions_fill_the_space(env):
    (policy,) = find_policies(["random"], env, PENDULUM)
    actions = random_actions(policy)
    assert actions.shape == (600, 1)
    assert actions.dtype == np.float32
    assert np.histogram(actions, 4, (-2, 2))[0].min() > 100
    assert (random_actions(policy) == actions).all()
    assert (random_actions(policy, seed=2) != actions).all()
    (discrete,) = find_policies(["random"], make_env("CartPole-v1", 3), PENDULUM)
    assert set(random_actions(discrete)) == {0, 1}


def test_a_function_is_a_policy(tmp_path, monkeypatch, env):
    (tmp_path / "my_policies.py").write_text(
        "import numpy as np\ndef noisy(observations): return np.random.uniform(-1, 1, (len(observations), 1))"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = ["my_policies:noisy"]
    env_id = "Pendulum-v1"
    settings = {"env_id": env_id, "transitions": 50, "n_envs": 2}
    digests = [
        load_episodes(collect_policies(names, "f-v0", root=tmp_path / str(seed), seed=seed % 2, **settings)).digest
        for seed in range(3)
    ]
    assert digests[0] == digests[2] != digests[1], "NumPy's generator is seeded"


def test_another_function_of_the_same_name_is_another_policy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    collected = {"env_id": "Pendulum-v1", "transitions": 20, "n_envs": 2, "root": tmp_path}
    names = []
    for push in (1, 2):
        sys.modules.pop("my_pushes", None)
        (tmp_path / "my_pushes.py").write_text(f"def act(observations): return 0 * observations[:, :1] + {push}")
        invalidate_caches()
        names.append(CampaignFolder.function("my_pushes:act", PENDULUM))
        if push == 1:
            collect_policies(["my_pushes:act"], "f-v0", **collected)
            collect_policies(["my_pushes:act"], "f-v0", **collected)  # of which nothing is left to collect
    assert names[0] != names[1]
    with pytest.raises(CollectionError, match="a dataset f-v0 with other policies, not these: choose another"):
        collect_policies(["my_pushes:act"], "f-v0", **collected)


def test_another_environment_of_the_same_name_has_other_data(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    environment, folder, names = EnvironmentConfig(id="my_pendulum:Mine-v0"), CampaignFolder(tmp_path), []
    for length in (5, 9):
        sys.modules.pop("my_pendulum", None)
        (tmp_path / "my_pendulum.py").write_text(f"LENGTH = {length}")
        invalidate_caches()
        names.append(CampaignFolder.function("hurl.envs.point_maze:demonstrate", environment))
        run = load_config("hopper/sac").model_copy(update={"environment": environment})
        names.append(folder.behaviour("hopper/sac", run).name)
    assert len(set(names)) == 4


def test_no_policy_is_rolled_out_from_a_seed_that_runs_have():
    config = load_config("hopper/sac", ["seed=5"])
    runs = {
        derive_seed(config, purpose, iteration)
        for purpose in (TRAINING, EVALUATION, CLONING)
        for iteration in range(50)
    }
    assert not runs & {_Plan((), 10, 1, 5, {}).rollout_seed(index) for index in range(50)}


def test_data_of_hurls_own_functions_keeps_its_name(env):
    name = "hurl.envs.point_maze:demonstrate"
    (policy,) = find_policies([name], env, PENDULUM)
    assert policy.identity == name
    assert CampaignFolder.function(name, PENDULUM) == "hurl-envs-point_maze-demonstrate-80859c1d"


# Zip files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "env_id", "arguments"),
    [
        ("sb3.PPO", "Pendulum-v1", {"policy_kwargs": {"net_arch": [7], "activation_fn": torch.nn.ELU}}),
        ("sb3.SAC", "Pendulum-v1", {"policy_kwargs": SMALL_NETS}),
        ("sb3.DQN", "CartPole-v1", {}),
        ("contrib.TQC", "Pendulum-v1", {}),
        ("sbx.SAC", "Pendulum-v1", {"policy_kwargs": SMALL_NETS | {"activation_fn": nn.tanh}}),
        ("sbx.SAC", "Pendulum-v1", {"policy_kwargs": SMALL_NETS | {"activation_fn": nn.relu}}),
        ("sbx.PPO", "CartPole-v1", {}),
        ("sbx.CrossQ", "Pendulum-v1", {"policy_kwargs": SMALL_NETS}),
    ],
)
def test_a_zip_file_acts_as_what_was_saved(tmp_path, name, env_id, arguments):
    env = make_env(env_id, 3)
    observations = env.reset()
    library, _, kind = name.partition(".")
    model = getattr(LIBRARIES[library], kind)("MlpPolicy", env, seed=3, **arguments)
    model.save(tmp_path / "model.zip")
    loaded = load_zip(tmp_path / "model.zip", name, env)
    expected = model.predict(observations, deterministic=True)[0]
    assert (loaded.predict(observations, deterministic=True)[0] == expected).all()
    (policy,) = find_policies([str(tmp_path / "model.zip")], env, PENDULUM, algorithm=name, deterministic=True)
    assert (policy.start(0)(observations) == expected).all()


class Trap:
    """What a stranger could put in a file: unpickled, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def edit(file, **changes):
    """Change entries of the JSON in a zip file."""
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["data"] = json.dumps(json.loads(contents["data"]) | changes).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC"])
def test_a_zip_file_runs_no_code(tmp_path, env, name):
    library, _, kind = name.partition(".")
    file, sign = tmp_path / "model.zip", tmp_path / "sign"
    getattr(LIBRARIES[library], kind)("MlpPolicy", env, policy_kwargs=SMALL_NETS).save(file)
    trap = {":type:": "trap", ":serialized:": base64.b64encode(pickle.dumps(Trap(sign))).decode()}
    edit(
        file, policy=trap, policy_class=trap, observation_space=trap, lr_schedule=trap, policy_kwargs=SMALL_NETS | trap
    )
    if name == "sb3.SAC":
        load_zip(file, name, env)
    else:
        with pytest.raises(ZipError, match="does not fit"):
            load_zip(file, name, env)
    assert not sign.exists()
    with contextlib.suppress(Exception):
        getattr(LIBRARIES[library], kind).load(file)
    assert sign.exists(), "the library's own load falls into the trap"


def on_gpu(content):
    """Return the content of a torch file as if its tensors had been saved on a GPU."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(file, "w") as written:
        for name in archive.namelist():
            place = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
            written.writestr(
                name, archive.read(name).replace(*place) if name.endswith("data.pkl") else archive.read(name)
            )
    return file.getvalue()


def test_a_zip_file_that_was_saved_on_a_gpu_acts_on_a_processor(tmp_path, env):
    file, observations = saved(tmp_path, env, seed=3), env.reset()
    expected = load_zip(file, "sb3.SAC", env).predict(observations, deterministic=True)[0]
    with zipfile.ZipFile(file) as archive:
        weights = on_gpu(archive.read("policy.pth"))
    assert b"cuda:0" in weights
    rewrite(file, **{"policy.pth": weights})
    assert (load_zip(file, "sb3.SAC", env).predict(observations, deterministic=True)[0] == expected).all()


@pytest.mark.parametrize("name", ["sb3.PPO", "sb3.SAC"])
def test_a_zip_file_of_an_agent_that_saw_normalised_observations_is_refused_where_it_tells(tmp_path, name):
    for wrapper in (lambda env: env, VecNormalize):
        env = make_env("Pendulum-v1", 2)
        model = getattr(sb3, name.partition(".")[2])("MlpPolicy", wrapper(env), policy_kwargs={"net_arch": [8]})
        model._setup_learn(1, None)  # as `learn` begins
        if name == "sb3.SAC":
            model._last_original_obs = model._last_obs  # as it has it after a step, normalised or not
        model.save(tmp_path / "model.zip")
        if wrapper is VecNormalize and name == "sb3.PPO":
            with pytest.raises(ZipError, match=r"has learnt through VecNormalize, whose statistics .*: load both in"):
                load_zip(tmp_path / "model.zip", name, env)
        else:
            load_zip(tmp_path / "model.zip", name, env)


def saved(folder, env, **arguments):
    sb3.SAC("MlpPolicy", env, **{"policy_kwargs": SMALL_NETS} | arguments).save(folder / "model.zip")
    return folder / "model.zip"


def test_zip_files_that_cannot_be_used_are_named(tmp_path, env):
    file = saved(tmp_path, env)
    with pytest.raises(ZipError, match=r"model.zip does not fit sb3.TD3 in this environment"):
        load_zip(file, "sb3.TD3", env)
    with pytest.raises(ZipError, match=r"model.zip does not fit sb3.DQN"):
        load_zip(file, "sb3.DQN", env)
    with pytest.raises(ZipError, match=r"does not fit sb3.SAC in this environment \(.*size mismatch"):
        load_zip(file, "sb3.SAC", make_env("MountainCarContinuous-v0", 1))
    with pytest.raises(ConfigurationError, match="no algorithm 'SACC'; did you mean 'SAC'"):
        load_zip(file, "sb3.SACC", env)
    edit(file, policy_kwargs={"features_extractor_class": "<class 'mine.Extractor'>"})
    with pytest.raises(ZipError, match=r"features_extractor_class=.*mine.Extractor.*, which can't be built anew"):
        load_zip(file, "sb3.SAC", env)
    edit(file, use_sde=True)
    with pytest.raises(ZipError, match="gSDE"):
        load_zip(file, "sb3.SAC", env)
    guidance = hurl.Guidance(lambda states: states[:, 0], gamma=0.99)
    hurl.guided(sb3.SAC)("MlpPolicy", env, guidance=guidance, policy_kwargs=SMALL_NETS).save(file)
    with pytest.raises(ZipError, match=r"has learnt with a ladder.*: load it in Python, and give hurl.data.collect"):
        load_zip(file, "sb3.SAC", env)
    file.write_bytes(b"no zip")
    with pytest.raises(ZipError, match="is not a model of Stable-Baselines3 or SBX"):
        load_zip(file, "sb3.SAC", env)


def rewrite(file, compression=zipfile.ZIP_STORED, **contents):
    """Write a zip file anew with other members; None leaves one out."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | contents
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)


def in_directory(file, offset, value):
    """Change a byte of what a zip file says of its first member, which is `data`."""
    with zipfile.ZipFile(file) as archive:
        start = archive.start_dir
    content = bytearray(file.read_bytes())
    content[start + offset] = value
    file.write_bytes(content)


def encrypt(file):
    """Say in both places that `data` is encrypted."""
    in_directory(file, 8, 1)
    content = bytearray(file.read_bytes())
    content[6] = 1
    file.write_bytes(content)


def flip(file, mark):
    """Change a byte after the first place where something stands."""
    content = bytearray(file.read_bytes())
    content[content.index(mark) + len(mark)] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (encrypt, "is encrypted, password required"),
        (lambda file: flip(file, b'"policy_class": {'), "Bad CRC-32"),
        (lambda file: in_directory(file, 10, 77), "compression method is not supported"),
        (lambda file: file.write_bytes(file.read_bytes()[:4_000]), "File is not a zip file"),
        (lambda file: rewrite(file, data=None), "no item named 'data'"),
        (lambda file: rewrite(file, data=b"[" * 100_000), "recursion"),
        (lambda file: rewrite(file, data=b"\xff"), "decode"),
        (lambda file: rewrite(file, data=b"3"), "not iterable"),
        (
            lambda file: rewrite(file, zipfile.ZIP_DEFLATED, data=b" " * 10**8),
            "data would be 100,000,000 bytes large",
        ),
    ],
)
def test_a_zip_file_that_is_damaged_or_foreign(tmp_path, env, damage, message):
    file = saved(tmp_path, env)
    damage(file)
    with pytest.raises(ZipError, match=rf"model.zip is not a model of .*{message}.*: save it with model.save"):
        load_zip(file, "sb3.SAC", env)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy_kwargs": 3}, "does not fit sb3.SAC"),
        ({"policy_kwargs": {"net_arch": [10**6, 10**6]}}, "is too small for a policy with layers of 1,000,000 and"),
        ({"policy_kwargs": {"n_critics": 10**9}}, "is too small for a policy"),
        ({"policy_kwargs": {"net_arch": "rubbish"}}, "does not fit sb3.SAC"),
    ],
)
def test_a_zip_file_whose_values_are_rubbish(tmp_path, env, changes, message):
    file = saved(tmp_path, env)
    edit(file, **changes)
    with pytest.raises(ZipError, match=message):
        load_zip(file, "sb3.SAC", env)


def test_a_pickle_in_a_zip_file_takes_no_memory_that_it_does_not_fill(tmp_path, env):
    sbx.SAC("MlpPolicy", env, policy_kwargs=SMALL_NETS).save(file := tmp_path / "model.zip")
    bomb = b"\x80\x02Nr\xff\xff\xff\x7f."  # puts None into the place 2³¹ − 1 of the memo
    edit(file, policy={":serialized:": base64.b64encode(bomb).decode()})
    with pytest.raises(ZipError, match="does not fit"):
        load_zip(file, "sbx.SAC", env)


# Environments, errors ------------------------------------------------------------------------------------------------


def test_the_environment_is_that_of_the_runs(runs):
    found = find_environment(["random", str(runs / "sb3"), str(runs / "sbx/checkpoints/000001")])
    assert (found.id, found.options) == ("Pendulum-v1", {"max_episode_steps": 30})
    assert find_environment([str(runs / "sb3")], "Hopper-v4").id == "Hopper-v4"
    with pytest.raises(CollectionError, match=r"sb3 is of Pendulum-v1 .* and .*dqn of CartPole-v1"):
        find_environment([str(runs / "sb3"), str(runs / "dqn")])
    with pytest.raises(CollectionError, match="'random' does not say which environment"):
        find_environment(["random"])


def test_sources_that_are_none_are_named(runs, env, tmp_path):
    def find(source, **settings):
        return find_policies([source], env, PENDULUM, **settings)

    with pytest.raises(CollectionError, match="'chance' is no policy: name a run's folder"):
        find("chance")
    (tmp_path / "campaign/variant/seed-0").mkdir(parents=True)
    with pytest.raises(CollectionError, match=r"module:function; of the runs in it, .*campaign/variant/seed-0"):
        find(str(tmp_path / "campaign"))
    with pytest.raises(CollectionError, match=r"there is no file none.zip"):
        find("none.zip")
    with pytest.raises(CollectionError, match=r"which algorithm it is of: name it, such as --algorithm sb3.PPO"):
        find(str(saved(tmp_path, env)))
    with pytest.raises(ValueError, match="'nowhere:policy' can't be imported"):
        find("nowhere:policy")
    with pytest.raises(CollectionError, match="no 5-th checkpoint yet"):
        find(str(runs / "sb3"), every=5)
    with pytest.raises(CollectionError, match=r"5 policies can't be chosen from 4 checkpoints of .*sb3"):
        find(str(runs / "sb3"), count=5)
    cart_pole = make_env("CartPole-v1", 1)
    message = r"sb3 was trained in Pendulum-v1 .* with observations Box.*\(3,\).* and CartPole-v1 has Box.*\(4,\)"
    with pytest.raises(CollectionError, match=message):
        find_policies([str(runs / "sb3")], cart_pole, EnvironmentConfig(id="CartPole-v1"))
    recurrent = {"name": "contrib.RecurrentPPO", "policy": "MlpLstmPolicy", "parameters": {"batch_size": 50}}
    small_run(tmp_path / "run", algorithm=recurrent, guidance=None, updates_per_iteration=None, iterations=1)
    with pytest.raises(CollectionError, match=r"contrib.RecurrentPPO remembers earlier steps"):
        find(str(tmp_path / "run"))


def test_gymnasium_can_make_the_environment_of_the_data_again(runs, tmp_path):
    dataset = collect_policies([str(runs / "sb3/checkpoints/000001")], "p-v0", transitions=40, root=tmp_path)
    assert dataset.recover_environment().spec.max_episode_steps == 30
    assert load_episodes(dataset).lengths.tolist() == [30, 10]
    assert dataset.storage.metadata["algorithm_name"] == "sb3.SAC"
