import dataclasses
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from d3rlpy.algos import CQLConfig, DiscreteCQLConfig, IQLConfig
from safetensors.numpy import load, save

from hurl.guidance import HeuristicError
from hurl.heuristics import OfflineRLHeuristic
from hurl.heuristics.base import ObservationSpace
from hurl.heuristics.offline import LOG_DEVIATION_LIMITS, _exported
from hurl.heuristics.storage import pack, unpack
from tests.data.examples import random_episodes

SMALL = {"hidden": (8, 8), "steps": 5, "batch_size": 4}
OBSERVATIONS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
MEAN, SCALE, VALUE_SCALE = np.array([1.0, -2.0, 300.0]), np.array([0.1, 5.0, 70.0]), 50.0


def choices(episodes):
    """The same episodes with three discrete actions, counted from 5."""
    actions = np.random.default_rng(0).integers(5, 8, episodes.transitions)
    return dataclasses.replace(episodes, actions=actions, action_space=gym.spaces.Discrete(3, start=5))


def learner(config, action_size):
    torch.manual_seed(0)
    made = config().create(device=False)
    made.create_impl((3,), action_size)
    with torch.no_grad():
        for parameter in made.impl.modules.get_torch_modules().values():
            for values in parameter.parameters():
                values.add_(torch.randn_like(values) * 0.1)
    return made


def in_own_units(standard):
    return (standard * SCALE + MEAN).astype(np.float32)


def exported(module, **options):
    return _exported(module, MEAN, SCALE, VALUE_SCALE, **options)


def heuristic_of(algorithm, networks, noise=None):
    return OfflineRLHeuristic(algorithm, networks, noise, observation_space=ObservationSpace((3,), "float"))


def test_iql_value_is_that_of_d3rlpy():
    made = learner(IQLConfig, 2)
    with torch.no_grad():
        expected = made.impl.modules.value_func(torch.from_numpy(OBSERVATIONS))[:, 0].numpy() * VALUE_SCALE
    heuristic = heuristic_of("iql", {"value": exported(made.impl.modules.value_func)})
    np.testing.assert_allclose(heuristic(in_own_units(OBSERVATIONS)), expected, rtol=1e-4, atol=1e-5 * VALUE_SCALE)


def test_cql_value_is_the_mean_of_d3rlpys_over_its_policy():
    made = learner(CQLConfig, 2)
    modules = made.impl.modules
    networks = {f"critic{index}": exported(critic) for index, critic in enumerate(modules.q_funcs)}
    networks["policy"] = _exported(modules.policy, MEAN, SCALE, 1.0, heads=2)
    noise = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    total = np.zeros(20)
    with torch.no_grad():
        states = torch.from_numpy(OBSERVATIONS)
        output = modules.policy(states)
        for row in noise:
            actions = torch.tanh(output.mu + output.logstd.exp() * torch.from_numpy(row))
            values = [critic(states, actions).q_value[:, 0] for critic in modules.q_funcs]
            total += torch.minimum(*values).numpy() * VALUE_SCALE
    heuristic = heuristic_of("cql", networks, noise)
    np.testing.assert_allclose(heuristic(in_own_units(OBSERVATIONS)), total / 4, rtol=1e-4, atol=1e-5 * VALUE_SCALE)


def test_the_limits_of_the_policys_deviation_are_d3rlpys():
    policy = learner(CQLConfig, 2).impl.modules.policy
    with torch.no_grad():
        extremes = policy(1e6 * torch.randn(100, 3)).logstd
    assert {float(extremes.min()), float(extremes.max())} == set(LOG_DEVIATION_LIMITS)


def test_discrete_cql_value_is_the_best_of_d3rlpys():
    made = learner(DiscreteCQLConfig, 3)
    (critic,) = made.impl.modules.q_funcs
    expected = [made.predict_value(OBSERVATIONS, np.full(20, action)) for action in range(3)]
    heuristic = heuristic_of("cql", {"critic0": exported(critic)})
    np.testing.assert_allclose(
        heuristic(in_own_units(OBSERVATIONS)),
        np.max(expected, axis=0) * VALUE_SCALE,
        rtol=1e-4,
        atol=1e-5 * VALUE_SCALE,
    )


@pytest.mark.parametrize("kind", ["iql", "cql", "discrete cql"])
def test_fit_save_and_load_in_a_fresh_process(kind, in_fresh_process):
    algorithm = kind.split()[-1]
    episodes = choices(random_episodes()) if kind == "discrete cql" else random_episodes()
    first = OfflineRLHeuristic.fit(episodes, gamma=0.9, algorithm=algorithm, **SMALL)
    torch.rand(1)  # the random state that fitting finds does not matter
    again, other = (
        OfflineRLHeuristic.fit(episodes, gamma=0.9, algorithm=algorithm, seed=seed, **SMALL) for seed in (0, 1)
    )
    assert first.digest == again.digest != other.digest
    assert set(first.metrics) == {"steps", "loss", "r2_training", "r2_held_out", "seconds"}
    np.testing.assert_array_equal(in_fresh_process(first, OBSERVATIONS), first(OBSERVATIONS))
    np.testing.assert_array_equal(first(OBSERVATIONS), first(OBSERVATIONS))


def test_fitting_writes_nothing_and_prints_nothing(tmp_path):
    program = (
        "from tests.data.examples import random_episodes\n"
        "from hurl.heuristics import OfflineRLHeuristic\n"
        "OfflineRLHeuristic.fit(random_episodes(), gamma=0.9, steps=5, hidden=(8,))"
    )
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_fitting_leaves_the_random_state_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    OfflineRLHeuristic.fit(random_episodes(), gamma=0.9, **SMALL)
    assert torch.rand(1) == expected


def test_progress():
    rows = []
    OfflineRLHeuristic.fit(
        random_episodes(),
        gamma=0.9,
        report=lambda done, total, loss, score: rows.append((done, total)),
        **(SMALL | {"steps": 250}),
    )
    assert rows == [(100, 250), (200, 250), (250, 250)]


@pytest.mark.parametrize(("terminated", "expected"), [(True, 1.0), (False, 2.0)])
def test_a_time_limit_is_no_end(terminated, expected):
    """r = 1 in one state, γ = ½: worth 1 if every step ends the episode, 1/(1 − γ) = 2 if it is only cut off there."""
    episodes = choices(random_episodes([1] * 20, [terminated] * 20, observation_space=gym.spaces.Discrete(1)))
    heuristic = OfflineRLHeuristic.fit(
        dataclasses.replace(episodes, rewards=np.ones(20)),
        gamma=0.5,
        algorithm="cql",
        steps=400,
        batch_size=16,
        hidden=(8,),
        learning_rate=1e-2,
        alpha=0.0,
    )
    assert heuristic(np.array([0]))[0] == pytest.approx(expected, abs=0.1)


def test_actions_of_any_range_are_brought_to_that_of_the_policies():
    """Acting with ten times the numbers in ten times the range is the same problem, in the same range another one."""
    episodes = random_episodes()
    wide, unlimited = (gym.spaces.Box(-limit, limit, (2,), np.float32) for limit in (10, np.inf))
    stretched = dataclasses.replace(episodes, actions=episodes.actions * 10, action_space=wide)
    crowded = dataclasses.replace(episodes, action_space=wide)
    tuned = SMALL | {"steps": 50, "critic_learning_rate": 1e-2, "tau": 0.5}
    values = [OfflineRLHeuristic.fit(data, gamma=0.9, **tuned)(OBSERVATIONS) for data in (episodes, stretched, crowded)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-3)
    assert np.abs(values[0] - values[2]).max() > 0.01
    # without limits, the data's own count
    actions = episodes.actions.copy()
    actions[0], actions[1] = -1, 1
    bounded, free = (
        dataclasses.replace(episodes, actions=actions, action_space=space)
        for space in (episodes.action_space, unlimited)
    )
    fits = [OfflineRLHeuristic.fit(data, gamma=0.9, validation=0.0, **tuned) for data in (bounded, free)]
    assert fits[0].digest == fits[1].digest


def test_without_d3rlpy_the_extra_is_named():
    program = (
        "import sys; sys.modules['d3rlpy'] = None\n"
        "from tests.data.examples import random_episodes\n"
        "from hurl.heuristics import OfflineRLHeuristic\n"
        "OfflineRLHeuristic.fit(random_episodes(), gamma=0.9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: OfflineRLHeuristic needs d3rlpy")
    assert last.endswith("pip install 'hurl-rl[offline]'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "bcq"}, "algorithm must be one of iql, cql, got 'bcq'"),
        ({"steps": 0}, "steps must be a whole number from 1 to .*, got 0"),
        ({"expectil": 0.9}, "IQLConfig of d3rlpy has no number 'expectil'; did you mean 'expectile'"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\), got 1\.5"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        OfflineRLHeuristic.fit(random_episodes(), **({"gamma": 0.9} | SMALL | arguments))


@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_values_beyond_all_rewards_are_refused(rate):
    with pytest.raises(HeuristicError, match=r"iql diverged: its values are .* on average.* lower `tau`"):
        OfflineRLHeuristic.fit(random_episodes(), gamma=0.9, critic_learning_rate=rate, **SMALL)


def test_actions_that_do_not_fit_the_algorithm():
    with pytest.raises(
        HeuristicError, match=r"IQL needs continuous actions, these are of Discrete.*: use algorithm='cql'"
    ):
        OfflineRLHeuristic.fit(choices(random_episodes()), gamma=0.9)
    episodes = dataclasses.replace(random_episodes(), action_space=gym.spaces.MultiBinary(2))
    with pytest.raises(HeuristicError, match=r"actions of MultiBinary\(2\) is not possible"):
        OfflineRLHeuristic.fit(episodes, gamma=0.9)


@pytest.mark.parametrize("name", ["noise", "policy.1.bias", "critic1.0.weight"])
def test_weights_of_another_shape_are_refused(name):
    fitted = OfflineRLHeuristic.fit(random_episodes(), gamma=0.9, algorithm="cql", **SMALL)
    description, weights = pack(fitted)
    weights[name] = np.zeros((5, 5), np.float32)
    with pytest.raises(HeuristicError, match=rf"h: weights.safetensors has '{name}' of shape \(5, 5\)"):
        unpack(description, load(save(weights)), "h")
