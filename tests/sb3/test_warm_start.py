"""Behaviour cloning into the actors of Stable-Baselines3, sb3-contrib and SBX."""

import dataclasses
from contextlib import nullcontext
from copy import deepcopy

import gymnasium as gym
import jax
import numpy as np
import pytest
import sb3_contrib
import sbx
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import hurl
from hurl.data import DatasetError, Episodes
from hurl.sb3 import Rehearsal, WarmStartError, warm_start
from hurl.sb3.internals import has_actor, has_memory
from hurl.sb3.warm_start import WITH_ACTOR

OFF_POLICY = {"learning_starts": 0, "buffer_size": 200, "batch_size": 16, "policy_kwargs": {"net_arch": [32]}}
ON_POLICY = {"n_steps": 64, "policy_kwargs": {"net_arch": [32]}}
CONTINUOUS = {
    "sb3.SAC": (sb3.SAC, OFF_POLICY),
    "sb3.TD3": (sb3.TD3, OFF_POLICY),
    "sb3.PPO": (sb3.PPO, ON_POLICY),
    "sb3.A2C": (sb3.A2C, ON_POLICY),
    "contrib.TQC": (sb3_contrib.TQC, OFF_POLICY),
    "contrib.CrossQ": (sb3_contrib.CrossQ, OFF_POLICY),
    "contrib.TRPO": (sb3_contrib.TRPO, ON_POLICY),
    "sbx.SAC": (sbx.SAC, OFF_POLICY),
    "sbx.TD3": (sbx.TD3, OFF_POLICY),
    "sbx.TQC": (sbx.TQC, OFF_POLICY),
    "sbx.CrossQ": (sbx.CrossQ, OFF_POLICY),
    "sbx.PPO": (sbx.PPO, ON_POLICY),
}
DISCRETE = {"sb3.PPO": sb3.PPO, "sbx.PPO": sbx.PPO}
CLONING = {"epochs": 40, "learning_rate": 3e-3, "batch_size": 32}


class Point(gym.Env):
    """States of three numbers, and actions between bounds that are neither alike nor around zero."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, action_space=None):
        self.action_space = action_space or spaces.Box(np.float32([-4, 0]), np.float32([2, 1]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        return self._observe(), 0.0, False, bool(self.np_random.random() < 0.05), {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


def expert(states):
    """Actions within the bounds of `Point`."""
    return np.stack([-1 + 2 * np.tanh(2 * states[:, 0]), 0.5 + 0.4 * states[:, 1] * states[:, 2]], 1).astype(np.float32)


def choices(states):
    """One of three actions."""
    return np.digitize(states[:, 0] + states[:, 1], [-0.4, 0.4])


def episodes_of(act, env, episodes=16, length=32, scale=1.0):
    states = np.random.default_rng(1).uniform(-scale, scale, (episodes * (length + 1), 3)).astype(np.float32)
    first = np.arange(len(states)) % (length + 1) < length
    return Episodes(
        states, act(states[first] / scale), np.zeros(episodes * length), np.full(episodes, length),
        np.zeros(episodes, bool), env.observation_space, env.action_space, "point/expert-v0",
    )  # fmt: skip


def make(name, **further):
    algorithm, parameters = CONTINUOUS[name]
    return algorithm("MlpPolicy", Point(), seed=0, **deepcopy(parameters | further))


def deterministic(model, data):
    return model.predict(data.observations, deterministic=True)[0]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_policy_predicts_the_actions_of_the_data(name):
    model, data = make(name), episodes_of(expert, Point())
    error_before = np.square(deterministic(model, data) - data.actions).mean()
    result = warm_start(model, data, **CLONING)
    assert np.square(deterministic(model, data) - data.actions).mean() < 0.05 * error_before
    assert result.updates == 40 * 16
    assert result.loss_after < 0.1 * result.loss_before


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC", "sb3.PPO", "sbx.PPO"])
def test_the_loss_is_the_squared_distance_of_deterministic_actions_as_the_policy_puts_them_out(name):
    model, data = make(name), episodes_of(expert, Point())
    result = warm_start(model, data, epochs=1)
    difference = deterministic(model, data) - data.actions
    if name.endswith("SAC"):
        difference = difference / np.array([3.0, 0.5])  # in [-1, 1]
        assert result.loss_after == pytest.approx(np.square(difference).sum(1).mean(), rel=1e-3)
    else:  # clipped to the bounds on its way out, where the mean lies beyond
        assert result.loss_after >= np.square(difference).sum(1).mean() - 1e-4


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2])], ids=["one", "several"])
def test_discrete_actions_are_cloned_by_cross_entropy(name, space):
    def act(states):
        first = choices(states)
        return first if isinstance(space, spaces.Discrete) else np.stack([first, states[:, 2] > 0], 1).astype(np.int64)

    env = Point(space)
    model = DISCRETE[name]("MlpPolicy", env, seed=0, **deepcopy(ON_POLICY))
    result = warm_start(model, episodes_of(act, env), **CLONING)
    data = episodes_of(act, env)
    assert (deterministic(model, data) == data.actions).mean() > 0.9
    if isinstance(space, spaces.Discrete):
        assert result.loss_before == pytest.approx(np.log(3), abs=0.3)
    assert result.loss_after < 0.3


def arrays(tree):
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def equal(first, second):
    return all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(second), strict=True))


def test_critics_deviations_and_optimisers_of_torch_models_stay_as_they_are():
    data = episodes_of(expert, Point())
    for name, kept in (
        ("sb3.SAC", ("critic.", "critic_target.", "actor.log_std.")),
        ("sb3.TD3", ("critic.", "critic_target.")),
        ("sb3.PPO", ("value_net.", "mlp_extractor.value_net.", "log_std")),
    ):
        model = make(name)
        model.learn(64)  # leaves gradients behind
        before = {key: value.clone() for key, value in model.policy.state_dict().items()}
        optimizer = getattr(model.policy, "actor", model.policy).optimizer
        moments = [value.clone() for state in optimizer.state.values() for value in state.values()]
        warm_start(model, data, epochs=2)
        after = model.policy.state_dict()
        for key, value in before.items():
            assert torch.equal(after[key], value) == key.startswith(kept), key
        assert all(
            torch.equal(old, new)
            for old, new in zip(moments, (v for s in optimizer.state.values() for v in s.values()), strict=True)
        )


@pytest.mark.parametrize("name", ["sbx.SAC", "sbx.CrossQ", "sbx.PPO"])
def test_critics_and_optimisers_of_jax_models_stay_as_they_are(name):
    model = make(name)
    policy = model.policy
    critic = "vf_state" if name == "sbx.PPO" else "qf_state"
    before = getattr(policy, critic), policy.actor_state
    warm_start(model, episodes_of(expert, Point()), epochs=2)
    assert equal(getattr(policy, critic), before[0])
    assert equal(policy.actor_state.opt_state, before[1].opt_state)
    assert not equal(policy.actor_state.params, before[1].params)
    if name == "sbx.CrossQ":
        assert not equal(policy.actor_state.batch_stats, before[1].batch_stats)
    if name == "sbx.PPO":
        assert equal(policy.actor_state.params["params"]["log_std"], before[1].params["params"]["log_std"])


def test_target_actors_are_copies_of_the_cloned_one():
    data = episodes_of(expert, Point())
    torch_model, jax_model = make("sb3.TD3"), make("sbx.TD3")
    for model in (torch_model, jax_model):
        warm_start(model, data, epochs=2)
    actor, target = torch_model.policy.actor.state_dict(), torch_model.policy.actor_target.state_dict()
    assert all(torch.equal(actor[key], target[key]) for key in actor)
    assert equal(jax_model.policy.actor_state.params, jax_model.policy.actor_state.target_params)


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC"])
def test_cloning_repeats_with_its_seed_and_touches_no_random_state(name):
    data = episodes_of(expert, Point())
    actions = []
    for seed in (0, 0, 1):
        model = make(name)
        keys = [np.array(key) for key in (getattr(model, "key", 0), getattr(model.policy, "key", 0))]
        numpy_state, torch_state = np.random.get_state()[1], torch.get_rng_state()  # noqa: NPY002
        warm_start(model, data, epochs=2, seed=seed)
        assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert equal(keys, [getattr(model, "key", 0), getattr(model.policy, "key", 0)])
        actions.append(deterministic(model, data))
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC", "sb3.PPO"])
def test_a_guided_model_is_cloned_into_as_a_plain_one(name):
    data = episodes_of(expert, Point())
    algorithm, parameters = CONTINUOUS[name]
    guidance = hurl.Guidance(lambda states: states[:, 0], hurl.ConstantSchedule(0.5), gamma=0.9)
    guided = hurl.guided(algorithm)("MlpPolicy", Point(), seed=0, guidance=guidance, **deepcopy(parameters))
    plain = make(name, gamma=0.9)
    for model in (guided, plain):
        warm_start(model, data, epochs=3)
    np.testing.assert_array_equal(deterministic(guided, data), deterministic(plain, data))


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.PPO"])
def test_observations_are_normalised_as_the_model_sees_them(name):
    class Large(Point):
        observation_space = spaces.Box(-1000, 1000, (3,), np.float32)

        def _observe(self):
            return 1000 * super()._observe()

    algorithm, parameters = CONTINUOUS[name]
    env = VecNormalize(DummyVecEnv([Large]), norm_reward=False)
    model = algorithm("MlpPolicy", env, seed=0, **deepcopy(parameters))
    env.seed(0)
    env.reset()
    for _ in range(200):
        env.step([np.zeros(2, np.float32)])
    data = episodes_of(expert, Large(), scale=1000.0)
    warm_start(model, data, **CLONING)
    predicted, _ = model.predict(env.normalize_obs(data.observations), deterministic=True)
    assert np.square(predicted - data.actions).mean() < 0.05


def test_the_learning_rate_is_the_policys_by_default():
    data = episodes_of(expert, Point())
    explicit, default = make("sbx.SAC"), make("sbx.SAC", learning_rate=1e-2)
    warm_start(explicit, data, epochs=1, learning_rate=1e-2)
    warm_start(default, data, epochs=1)
    np.testing.assert_allclose(deterministic(explicit, data), deterministic(default, data), atol=1e-5)


def test_each_epoch_is_reported_with_its_loss():
    seen = []
    result = warm_start(
        make("sbx.SAC"),
        episodes_of(expert, Point(), episodes=4),
        epochs=30,
        learning_rate=3e-3,
        batch_size=16,
        report=lambda epoch, loss: seen.append((epoch, loss)),
    )
    assert [epoch for epoch, _ in seen] == list(range(1, 31))
    assert seen[-1][1] < 0.5 * seen[0][1]
    assert result.loss_before > seen[0][1] > result.loss_after


def test_fewer_transitions_than_a_batch_are_one_batch():
    result = warm_start(make("sb3.SAC"), episodes_of(expert, Point(), episodes=1, length=5), epochs=2, batch_size=64)
    assert result.updates == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number from 1 to .*, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to .*, got 0"),
        ({"learning_rate": -1.0}, r"learning_rate must be a positive finite number, got -1\.0"),
        ({"learning_rate": 1e30}, r"diverged in epoch \d+.*lower the learning rate from 1e\+30"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(WarmStartError, match=message):
        warm_start(make("sb3.PPO"), episodes_of(expert, Point()), **{"epochs": 5} | arguments)


@pytest.mark.parametrize(
    ("spaces_of_data", "message"),
    [
        ({"observation_space": spaces.Box(-1, 1, (4,))}, r"observations of Box.*\(4,\).*model's are of Box.*\(3,\)"),
        ({"observation_space": spaces.Box(-9, 9, (3,), np.int64)}, "observations of .*int64.*float32"),
        ({"observation_space": spaces.Discrete(3)}, r"observations of Discrete\(3\), but the model's are of Box"),
        ({"action_space": spaces.Box(-1, 1, (2,))}, r"actions of Box\(-1\.0, 1\.0.*take data of the model's"),
        ({"action_space": spaces.Discrete(2)}, r"actions of Discrete\(2\), but the model's are of Box"),
    ],
)
def test_data_of_another_environment_is_refused(spaces_of_data, message):
    data = dataclasses.replace(episodes_of(expert, Point()), **spaces_of_data)
    with pytest.raises(DatasetError, match=message):
        warm_start(make("sb3.SAC"), data)


def test_numbers_of_another_precision_are_the_same_space():
    data = episodes_of(expert, Point())
    double = dataclasses.replace(
        data,
        states=data.states.astype(np.float64),
        observation_space=spaces.Box(-1, 1, (3,), np.float64),
    )
    models = [make("sb3.SAC"), make("sb3.SAC")]
    for model, episodes in zip(models, (data, double), strict=True):
        warm_start(model, episodes, epochs=1)
    np.testing.assert_array_equal(*(deterministic(model, data) for model in models))


def test_nothing_complete_is_refused_by_the_data():
    with pytest.raises(DatasetError, match="has no complete episode"):
        episodes_of(expert, Point()).select([])


@pytest.mark.parametrize("library", [sb3, sbx], ids=["sb3", "sbx"])
def test_algorithms_without_an_actor_are_refused(library):
    env = Point(spaces.Discrete(3))
    model = library.DQN("MlpPolicy", env, buffer_size=10)
    with pytest.raises(WarmStartError, match=r"DQN can't be warm-started.*take one of SAC, TQC"):
        warm_start(model, episodes_of(choices, env))


@pytest.mark.parametrize("library", [sb3, sb3_contrib], ids=["sb3", "contrib"])
def test_the_algorithms_with_an_actor_are_those_that_are_named(library):
    for name, algorithm in vars(library).items():
        if not isinstance(algorithm, type) or not issubclass(algorithm, BaseAlgorithm):
            continue
        env = Point() if name in WITH_ACTOR or name == "ARS" else Point(spaces.Discrete(3))
        policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
        small = {"buffer_size": 10} if issubclass(algorithm, OffPolicyAlgorithm) else {}
        model = algorithm(policy, env, **small)
        assert (has_actor(model) and not has_memory(model)) == (name in WITH_ACTOR), name


def test_recurrent_policies_are_refused():
    model = sb3_contrib.RecurrentPPO("MlpLstmPolicy", Point(), n_steps=8, batch_size=8)
    with pytest.raises(WarmStartError, match="RecurrentPPO can't be warm-started, its actor needs memory"):
        warm_start(model, episodes_of(expert, Point()))


class Pictures(gym.Env):
    """Images whose brightness is the action to take."""

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((36, 36, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((36, 36, 3), np.uint8), 0.0, False, False, {}


@pytest.mark.parametrize("library", [sb3, sbx], ids=["sb3", "sbx"])
def test_images_are_cloned_from_with_their_channels_last(library):
    actions = np.random.default_rng(0).integers(0, 2, 32)
    states = np.zeros((33, 36, 36, 3), np.uint8)
    states[:32, :, :, 0] = 200 * actions[:, None, None]
    data = Episodes(
        states, actions, np.zeros(32), np.array([32]), np.array([False]),
        Pictures.observation_space, Pictures.action_space, "pictures/bright-v0",
    )  # fmt: skip
    model = library.PPO("CnnPolicy", Pictures(), seed=0, n_steps=64)
    warm_start(model, data, epochs=15, learning_rate=1e-3, batch_size=16)
    assert (deterministic(model, data) == actions).all()


# Rehearsal -----------------------------------------------------------------------------------------------------------


class Misleading(Point):
    """A reward for actions that are far from most of the expert's."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(action[0]), *rest


def rehearsing(name, schedule=None, **options):
    """A model that would learn something else than the data's actions, and soon."""
    algorithm, parameters = CONTINUOUS[name]
    options |= {"learning_rate": 1e-2, "train_freq": 10, "gradient_steps": 20, "gamma": 0.9, "seed": 0}
    if schedule is not None:
        algorithm = hurl.guided(algorithm)
        options["guidance"] = hurl.Guidance(lambda states: 0 * states[:, 0], schedule, gamma=0.9)
    return algorithm("MlpPolicy", Misleading(), **deepcopy(parameters | options))


def distance(model, data):
    return np.square(deterministic(model, data) - data.actions).mean()


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("sb3.SAC", None),
        ("sb3.TD3", hurl.Ladder(0.5, 1.0)),
        ("contrib.TQC", None),
        ("sbx.SAC", hurl.Ladder(0.5, 1.0)),
        ("sbx.TD3", hurl.ConstantSchedule(0.5)),
    ],
)
def test_a_rehearsal_keeps_what_was_cloned(name, schedule):
    data = episodes_of(expert, Point())
    distances = []
    for callback in (None, Rehearsal(data, steps=1000, learning_rate=1e-2)):
        model = rehearsing(name, schedule)
        warm_start(model, data, epochs=10, learning_rate=1e-2)
        model.learn(50, callback=callback)
        rungs = [nullcontext()] if schedule is None else [model.on_rung(rung) for rung in range(len(model._networks))]
        for rung in rungs:
            with rung:
                distances.append(distance(model.policy, data))
    alone, rehearsed = np.reshape(distances, (2, -1))
    assert (rehearsed < 0.5 * alone).all()


def test_a_rehearsal_is_as_long_as_the_models_own_updates_and_fades():
    data, drawn = episodes_of(expert, Point()), []

    class Counted(Rehearsal):
        def _clone(self, number):
            before = self.due[number]
            super()._clone(number)
            drawn.append(before - self.due[number])

    rehearsing("sb3.TD3", train_freq=10, gradient_steps=20).learn(60, callback=Counted(data, steps=40))
    # Of 20 own updates each, 15, 10 and 5 are due after 10, 20 and 30 steps; 16 are done at once.
    assert drawn == [0, 0, 16, 0]


def test_a_rehearsal_leaves_critics_targets_and_optimisers_to_the_algorithm():
    model, rehearsal = rehearsing("sb3.TD3").learn(10), Rehearsal(episodes_of(expert, Point()), steps=1000)
    before = deepcopy(model.get_parameters())
    rehearsal.init_callback(model)
    model._n_updates += 20
    rehearsal.rehearse()
    after = model.get_parameters()
    changed = {name for name, value in before["policy"].items() if not torch.equal(value, after["policy"][name])}
    assert changed == {name for name in before["policy"] if name.startswith("actor.")}
    assert equal(*({name: state[name] for name in state if name != "policy"} for state in (before, after)))


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC"])
def test_what_is_rehearsed_is_normalised_as_the_policy_sees_it_then(name):
    """Of a `VecNormalize` that has seen one state when learning begins, and more and more after it."""
    data = episodes_of(expert, Point())
    algorithm, options = CONTINUOUS[name]
    env = VecNormalize(DummyVecEnv([Misleading] * 2))
    model = algorithm("MlpPolicy", env, seed=0, train_freq=5, gradient_steps=40, **deepcopy(options))
    warm_start(model, data, **CLONING)
    model.learn(400, callback=Rehearsal(data, steps=10**6, learning_rate=3e-3))
    actions = model.predict(env.normalize_obs(data.observations), deterministic=True)[0]
    assert np.abs(actions - data.actions).mean() < 0.25


def test_a_rehearsal_follows_networks_that_are_put_in_the_place_of_others():
    data = episodes_of(expert, Point())
    model, rehearsal = rehearsing("sb3.SAC", hurl.Ladder(0.5, 1.0)).learn(10), Rehearsal(data, steps=1000)
    rehearsal.init_callback(model)
    with model.on_rung(0):
        model._n_updates += 1000  # which the networks that take its place have not had
    rehearsal.rehearse()
    model.share_networks()
    rehearsal.rehearse()
    for rung in (0, 1):
        with model.on_rung(rung):
            model._n_updates += 20
    before = [model_state(model, rung) for rung in (0, 1)]
    rehearsal.rehearse()
    assert not any(equal(before[rung], model_state(model, rung)) for rung in (0, 1))


def model_state(model, rung):
    with model.on_rung(rung):
        return deepcopy(model.actor.state_dict())


def test_what_can_not_be_rehearsed_is_refused():
    data = episodes_of(expert, Point())
    with pytest.raises(WarmStartError, match=r"PPO can't rehearse.*replay buffer: leave it out, or take one of SAC"):
        make("sb3.PPO").learn(64, callback=Rehearsal(data, steps=100))
    with pytest.raises(WarmStartError, match=r"DQN can't be warm-started.*take one of SAC, TQC"):
        sb3.DQN("MlpPolicy", Point(spaces.Discrete(3)), buffer_size=10).learn(9, callback=Rehearsal(data, steps=100))
    with pytest.raises(WarmStartError, match=r"steps must be a whole number from 1 to .*, got 0"):
        Rehearsal(data, steps=0)
    with pytest.raises(WarmStartError, match=r"learning_rate must be a positive finite number, got 0\.0"):
        make("sb3.SAC", learning_rate=0.0).learn(9, callback=Rehearsal(data, steps=100))
    other = dataclasses.replace(data, action_space=spaces.Box(-1, 1, (2,)))
    with pytest.raises(DatasetError, match=r"actions of Box\(-1\.0, 1\.0.*take data of the model's"):
        make("sb3.SAC").learn(9, callback=Rehearsal(other, steps=100))


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC"])
def test_a_rehearsal_that_diverges_is_told(name):
    model = rehearsing(name)
    with pytest.raises(WarmStartError, match=r"rehearsing .* diverged, the loss is nan: lower the learning rate from"):
        model.learn(200, callback=Rehearsal(episodes_of(expert, Point()), steps=1000, learning_rate=1e38))
