"""Monte-Carlo regression over images, and the network it uses."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.numpy import load, save

import hurl
from hurl import impala
from hurl.data import Episodes
from hurl.guidance import HeuristicError
from hurl.heuristics import EnsembleLowerBound, ImageMonteCarloHeuristic, MonteCarloHeuristic, load_heuristic
from hurl.heuristics.storage import WEIGHTS
from hurl.impala import ImpalaCNN
from tests.data.examples import random_episodes

QUICK = {"gamma": 0.5, "batch_size": 32, "learning_rate": 1e-3}


def bright_episodes(count=150, length=4, shape=(3, 16, 16), *, terminated=True, seed=0):
    """Pictures of noise whose reward is their brightness, 1000 and more, with a standard deviation of 10."""
    generator = np.random.default_rng(seed)
    brightness = generator.normal(size=count * (length + 1))
    noise = generator.normal(0, 20, (len(brightness), *shape))
    states = np.clip(128 + 30 * brightness.reshape(-1, 1, 1, 1) + noise, 0, 255).astype(np.uint8)
    rewards = 1000 + 10 * brightness.reshape(count, length + 1)[:, :-1].ravel()
    return Episodes(
        states,
        np.zeros(count * length, np.int64),
        rewards,
        np.full(count, length),
        np.full(count, terminated),
        spaces.Box(0, 255, shape, np.uint8),
        spaces.Discrete(15),
        "test/bright-v0",
    )


@pytest.fixture(scope="module")
def heuristic():
    return ImageMonteCarloHeuristic.fit(bright_episodes(), **{**QUICK, "gamma": 0.0}, epochs=8)


# The network ---------------------------------------------------------------------------------------------------------


def test_the_architecture_is_that_of_the_paper():
    network = ImpalaCNN((3, 64, 64), {"policy": 15, "value": 1})
    outputs = network(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert {name: tuple(output.shape) for name, output in outputs.items()} == {"policy": (2, 15), "value": (2, 1)}
    assert network.features(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape == (2, 256)
    convolutions = 0
    for before, after in ((3, 16), (16, 32), (32, 32)):
        convolutions += before * after * 9 + after + 4 * (after * after * 9 + after)
    linear = 32 * 8 * 8 * 256 + 256
    assert sum(parameter.numel() for parameter in network.parameters()) == convolutions + linear + 257 * 16


def test_sides_that_halve_unevenly():
    network = ImpalaCNN((1, 7, 20), {"value": 1}, depths=(4, 4))
    assert network(torch.zeros(1, 1, 7, 20, dtype=torch.uint8))["value"].shape == (1, 1)


def test_images_are_scaled_to_one():
    network = ImpalaCNN((3, 16, 16), {"value": 1})
    seen = []
    network.stages.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(torch.full((1, 3, 16, 16), 255, dtype=torch.uint8))
    assert seen[0].dtype == torch.float32
    assert (seen[0] == 1).all()


# Fitting -------------------------------------------------------------------------------------------------------------


def test_brightness_is_learnt(heuristic):
    assert heuristic.metrics["r2_held_out"] > 0.9
    unseen = bright_episodes(seed=1)
    values = heuristic(unseen.observations)
    residual = np.mean((values - unseen.rewards) ** 2)
    assert residual < 0.1 * np.var(unseen.rewards)
    assert heuristic.gamma == 0.0
    assert heuristic.dataset["digest"] == bright_episodes().digest


def test_channels_last_are_the_same_network(heuristic):
    episodes = bright_episodes()
    turned = Episodes(
        np.ascontiguousarray(np.moveaxis(episodes.states, 1, -1)),
        episodes.actions,
        episodes.rewards,
        episodes.lengths,
        episodes.terminated,
        spaces.Box(0, 255, (16, 16, 3), np.uint8),
        episodes.action_space,
        "test/turned-v0",
    )
    first = ImageMonteCarloHeuristic.fit(episodes, **QUICK)
    last = ImageMonteCarloHeuristic.fit(turned, **QUICK)
    assert {name: array.shape for name, array in last.weights().items()} == {
        name: array.shape for name, array in first.weights().items()
    }
    np.testing.assert_allclose(last(turned.observations), first(episodes.observations), rtol=1e-5)


def test_the_step_of_a_batch_does_not_depend_on_its_chunks(monkeypatch):
    options = {**QUICK, "batch_size": 50, "validation": 0, "epochs": 2}
    whole = ImageMonteCarloHeuristic.fit(bright_episodes(25), **options)
    monkeypatch.setattr(impala, "CHUNK", 16)
    chunked = ImageMonteCarloHeuristic.fit(bright_episodes(25), **options)
    for name, array in whole.weights().items():
        np.testing.assert_allclose(chunked.weights()[name], array, atol=1e-4, rtol=1e-4, err_msg=name)
    observations = bright_episodes(25).observations
    np.testing.assert_allclose(chunked(observations), whole(observations), rtol=1e-5)


def test_a_seed_repeats_and_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second, other = (ImageMonteCarloHeuristic.fit(bright_episodes(30), seed=s, **QUICK) for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.digest == second.digest != other.digest


def test_bootstrapping_goes_on_beyond_time_limits():
    """With γ = 0.5 and rewards near 1000 for ever the value is near 2000; cut at a time limit it is less."""
    episodes = bright_episodes(60, length=2, terminated=False)
    options = {**QUICK, "epochs": 8, "validation": 0}
    bootstrapped = ImageMonteCarloHeuristic.fit(episodes, time_limit="bootstrap", **options)
    cut = ImageMonteCarloHeuristic.fit(episodes, time_limit="cut", **options)
    assert np.mean(cut(episodes.observations)) == pytest.approx(1250, rel=0.05)
    assert np.mean(bootstrapped(episodes.observations)) > 1500
    with pytest.raises(ValueError, match="ended at a time limit"):
        ImageMonteCarloHeuristic.fit(episodes, time_limit="drop", **options)


def test_each_update_is_reported():
    rows = []
    heuristic = ImageMonteCarloHeuristic.fit(
        bright_episodes(40), **{**QUICK, "gamma": 0.0}, epochs=3, report=lambda *row: rows.append(row)
    )
    done, total, losses, scores = (list(column) for column in zip(*rows, strict=True))
    updates = 40 * 4 * 9 // 10 // QUICK["batch_size"]  # of an epoch, with a tenth of the episodes held out
    assert done == list(range(1, 3 * updates + 1))
    assert set(total) == {3 * updates}
    assert np.mean(losses[:updates]) > heuristic.metrics["loss"] == pytest.approx(np.mean(losses[-updates:]))
    assert scores[:updates] == [None] * updates
    assert scores[-1] > scores[updates]
    assert heuristic.metrics["epochs"] == 3


# Storing -------------------------------------------------------------------------------------------------------------


def test_a_fresh_process_gives_bit_equal_values(heuristic, tmp_path):
    heuristic.save(tmp_path / "h")
    observations = bright_episodes().observations  # more than pass through the network together
    np.save(tmp_path / "x.npy", observations)
    program = (
        "import sys, numpy, hurl, torch; torch.set_num_threads(1); h = hurl.load_heuristic(sys.argv[1]);"
        "numpy.save(sys.argv[3], h(numpy.load(sys.argv[2])))"
    )
    arguments = [str(tmp_path / name) for name in ("h", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), heuristic(observations))
    assert hurl.load_heuristic(tmp_path / "h").digest == heuristic.digest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda weights: weights.pop("linear.bias"), "no array 'linear.bias'"),
        (lambda weights: weights.update({"linear.bias": np.zeros(5, np.float32)}), r"shape \(5,\), config.json asks"),
    ],
)
def test_weights_that_do_not_fit_are_refused(heuristic, change, sentence, tmp_path, monkeypatch):
    weights = load(save({name: np.ascontiguousarray(array) for name, array in heuristic.weights().items()}))
    change(weights)
    monkeypatch.setattr(ImageMonteCarloHeuristic, "weights", lambda self: weights)
    heuristic.save(tmp_path / "h")
    assert (tmp_path / "h" / WEIGHTS).is_file()
    with pytest.raises(HeuristicError, match=sentence):
        load_heuristic(tmp_path / "h")


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observations", "sentence"),
    [
        (np.zeros((2, 3, 8, 8), np.uint8), r"images of shape \(3, 16, 16\) and type uint8, got .* shape \(3, 8, 8\)"),
        (np.zeros((2, 3, 16, 16), np.float32), "got observations of .* type float32"),
    ],
)
def test_other_observations_are_refused(heuristic, observations, sentence):
    with pytest.raises(HeuristicError, match=sentence):
        heuristic(observations)


def test_vectors_and_images_are_for_other_heuristics():
    with pytest.raises(HeuristicError, match=r"are not images, .* fit a MonteCarloHeuristic"):
        ImageMonteCarloHeuristic.fit(random_episodes(), gamma=0.9)
    with pytest.raises(HeuristicError, match=r"are images, .* fit an ImageMonteCarloHeuristic"):
        MonteCarloHeuristic.fit(bright_episodes(5), gamma=0.9)
    with pytest.raises(HeuristicError, match=r"are images, .* fit an ImageMonteCarloHeuristic"):
        EnsembleLowerBound.fit(bright_episodes(9), gamma=0.9)


@pytest.mark.parametrize(("name", "value"), [("epochs", 1.5), ("batch_size", 0), ("learning_rate", 0.0)])
def test_options_that_make_no_sense(name, value):
    with pytest.raises(HeuristicError, match=f"{name} must be a .*number.*, got {value}"):
        ImageMonteCarloHeuristic.fit(bright_episodes(5), **{**QUICK, name: value})


def test_a_fit_that_diverges_says_so():
    with pytest.raises(HeuristicError, match="fitting diverged in epoch 1, the loss is nan: lower the learning rate"):
        ImageMonteCarloHeuristic.fit(bright_episodes(30), **{**QUICK, "learning_rate": 1e30})


def test_an_agent_that_sees_channels_first_is_guided_by_images_with_channels_last():
    from stable_baselines3 import A2C

    heuristic = ImageMonteCarloHeuristic.fit(bright_episodes(20, shape=(36, 36, 3)), **QUICK)
    env = gym.make("tests/BlinkingPicture-v0")
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(0.5), gamma=0.5, steps_per_iteration=8)
    model = hurl.guided(A2C)("CnnPolicy", env, guidance=guidance, gamma=0.5, n_steps=4)
    model.learn(8)
    assert model.guidance.steps == 8
    np.testing.assert_allclose(
        heuristic(np.full((1, 36, 36, 3), 9, np.uint8)), heuristic(np.full((1, 3, 36, 36), 9, np.uint8)), rtol=1e-6
    )


class BlinkingPicture(gym.Env):
    """A picture of one brightness after the other."""

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


gym.register("tests/BlinkingPicture-v0", entry_point=BlinkingPicture, max_episode_steps=5)
