"""The agent of a run guides another one."""

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import hurl
from hurl.cli import app
from hurl.experiments.agents import value_function_of, value_function_of_zip
from hurl.experiments.config import validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import train
from hurl.experiments.trainers.sb3 import build_trainer
from hurl.guidance import HeuristicError
from hurl.heuristics import ValueFunctionHeuristic
from hurl.heuristics.engineered import zero

OBSERVATIONS = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)


def checkpoints(values, folder):
    """Train a small run; return its checkpoints."""
    train(validate({**values, "iterations": 2, "checkpoint_every": 1, "evaluation_episodes": 1}, "test"), folder)
    return sorted((folder / "checkpoints").glob("0*"))


def own_values(checkpoint):
    """What the critics of a SAC say, its file read with safetensors alone: the policy's tensors come first in it."""
    model = sb3.SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": {"pi": [8], "qf": [8]}})
    tensors = load_file(checkpoint / "model.safetensors")
    model.policy.load_state_dict({name: tensors[str(index)] for index, name in enumerate(model.policy.state_dict())})
    actions = model.policy.scale_action(model.predict(OBSERVATIONS, deterministic=True)[0])
    with torch.no_grad():
        critics = model.critic(torch.tensor(OBSERVATIONS), torch.tensor(actions))
    return torch.cat(critics, dim=1).min(dim=1).values.numpy()


def test_the_value_function_of_a_run(small, tmp_path):
    first, last = checkpoints({**small, "guidance": None}, tmp_path)
    np.testing.assert_allclose(value_function_of(first)(OBSERVATIONS), own_values(first), rtol=1e-5, atol=1e-5)
    heuristic = value_function_of(tmp_path)
    np.testing.assert_allclose(heuristic(OBSERVATIONS), own_values(last), rtol=1e-5, atol=1e-5)
    assert np.abs(own_values(first) - own_values(last)).max() > 1e-3
    assert heuristic.settings()["agent"] == "SAC after 200 steps"
    assert heuristic.gamma == small["gamma"]


def test_a_guided_run_is_taken_over_once_lambda_is_1(small, tmp_path):
    first, last = checkpoints(small, tmp_path)
    with pytest.raises(HeuristicError, match=r"λ=0\.5"):
        value_function_of(first)
    np.testing.assert_allclose(value_function_of(last)(OBSERVATIONS), own_values(last), rtol=1e-5, atol=1e-5)


def test_a_critic_that_was_never_trained_is_refused(small, tmp_path):
    config = validate({**small, "guidance": None}, "test")
    folder = RunFolder(tmp_path)
    with folder.open(config):
        build_trainer(config, folder).save(0)
    with pytest.raises(HeuristicError, match="was never trained: name the run of an agent that learnt"):
        value_function_of(tmp_path)


@pytest.mark.parametrize(("algorithm", "env_id"), [(sb3.PPO, "CartPole-v1"), (sb3.SAC, "Pendulum-v1")])
def test_the_value_function_of_a_zip_file(algorithm, env_id, tmp_path):
    model = algorithm("MlpPolicy", env_id, gamma=0.97, policy_kwargs={"net_arch": [8]}, seed=0)
    model.num_timesteps = 700
    model.save(tmp_path / "old.zip")
    heuristic = value_function_of_zip(tmp_path / "old.zip", f"sb3.{algorithm.__name__}", env_id)
    own, observations = ValueFunctionHeuristic.from_agent(model), OBSERVATIONS[:, [0, 1, 2, 0]]
    observations = observations[:, : model.observation_space.shape[0]]
    np.testing.assert_array_equal(heuristic(observations), own(observations))
    assert heuristic.gamma == 0.97
    assert heuristic.settings()["agent"] == f"{algorithm.__name__} after 700 steps"


def test_a_guidance_that_changes_nothing_hides_no_value_function(tmp_path):
    guidance = hurl.Guidance(zero, hurl.ConstantSchedule(1.0), gamma=0.9)  # as prior data alone has it
    hurl.guided(sb3.PPO)("MlpPolicy", "CartPole-v1", guidance=guidance, n_steps=64).save(tmp_path / "old.zip")
    assert value_function_of_zip(tmp_path / "old.zip", "sb3.PPO", "CartPole-v1").gamma == 0.9


def test_the_zip_file_of_an_agent_that_is_still_guided_is_refused(tmp_path):
    guidance = hurl.Guidance(zero, hurl.ConstantSchedule(0.5), gamma=0.9)
    hurl.guided(sb3.PPO)("MlpPolicy", "CartPole-v1", guidance=guidance, n_steps=64).save(tmp_path / "old.zip")
    with pytest.raises(HeuristicError, match=r"old\.zip is of a guided agent, .* in Python"):
        value_function_of_zip(tmp_path / "old.zip", "sb3.PPO", "CartPole-v1")


def test_hurl_fit_takes_over_a_zip_file(tmp_path):
    file, out = str(tmp_path / "old.zip"), str(tmp_path / "h")
    sb3.PPO("MlpPolicy", "CartPole-v1", gamma=0.97).save(file)
    command = ["fit", "value-function", "--out", out, "--agent", file]
    result = CliRunner().invoke(app, [*command, "--algorithm", "sb3.PPO", "--env", "CartPole-v1"])
    assert result.exit_code == 0, result.output
    assert hurl.load_heuristic(out).gamma == 0.97
    command += ["--force"]
    with pytest.raises(ConfigurationError, match="does not say what it is of: name its algorithm"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    with pytest.raises(ConfigurationError, match="needs one agent"):
        CliRunner().invoke(app, [*command, "--run", "x"], catch_exceptions=False)
    with pytest.raises(ConfigurationError, match="says itself what it is of: leave out --algorithm"):
        CliRunner().invoke(
            app, ["fit", "value-function", "--out", out, "--force", "--run", "x", "--env", "y"], catch_exceptions=False
        )
