"""Wrappers, normalisation and callbacks of one's own, by the names that a configuration has."""

import json
import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hurl.cli import app
from hurl.data import load_episodes
from hurl.envs import find_wrapper, make_env
from hurl.experiments.agents import value_function_of
from hurl.experiments.checkpoint import checkpoint_paths, read_weights
from hurl.experiments.config import ConfigurationError, RunConfig, load_config, load_environment, validate
from hurl.experiments.errors import TrainingEndedError
from hurl.experiments.evaluate import evaluate_checkpoint, find_checkpoint
from hurl.experiments.folder import RunFolder
from hurl.experiments.policies import collect_policies
from hurl.experiments.run import train
from hurl.experiments.trainers.base import make_environment
from hurl.experiments.trainers.sb3 import build_policy
from hurl.own_code import UntrustedCodeError, find_maker, look_beside, look_in, own_folders
from tests.experiments import own_code
from tests.experiments.conftest import SAC, repeating
from tests.experiments.swinging import write_pushing
from tests.experiments.test_run import InterruptionError, stop_after

OWN = "tests.experiments.own_code"
SCALED = [f"{OWN}:Scale", {f"{OWN}:paying": {"bonus": 100}}]


def observations_of(env, steps=3):
    """Return what environments show from their beginning on, without actions, and what they pay."""
    shown, paid = [env.reset()], []
    for _ in range(steps):
        observations, rewards, *_ = env.step(np.zeros((env.num_envs, *env.action_space.shape), np.float32))
        shown.append(observations)
        paid.append(rewards)
    env.close()
    return np.array(shown), np.array(paid)


def test_environments_that_share_their_spaces_are_resumed_exactly(small, tmp_path):
    small["environment"] = {"id": "tests.experiments.odd_environments:Paying-v0", "n_envs": 2}
    small["algorithm"]["parameters"]["learning_starts"] = 10_000  # until when actions are drawn at random
    config = RunConfig.model_validate(small | {"guidance": None, "steps_per_iteration": 240})
    train(config, tmp_path / "alone")
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "interrupted", stop_after(3))
    train(config, tmp_path / "interrupted")
    assert repeating(tmp_path / "alone" / "metrics.csv") == repeating(tmp_path / "interrupted" / "metrics.csv")


# Wrappers ------------------------------------------------------------------------------------------------------------


def test_wrappers_are_put_around_each_environment_in_their_order():
    wrappers = [find_wrapper(f"{OWN}:Scale", {"factor": 2.0}), find_wrapper(f"{OWN}:paying", {"bonus": 100})]
    plain, pay = observations_of(make_env("Pendulum-v1", 2, seed=3, backend="gymnasium"))
    wrapped, more = observations_of(make_env("Pendulum-v1", 2, seed=3, wrappers=wrappers))
    np.testing.assert_allclose(wrapped, 2 * plain, rtol=1e-6)
    np.testing.assert_allclose(more, pay + 100, rtol=1e-6)
    assert wrapped.dtype == np.float32
    twice = [find_wrapper("gymnasium.wrappers:FlattenObservation", {}), find_wrapper(f"{OWN}:Scale", {})]
    assert make_env("Pendulum-v1", wrappers=twice).observation_space.high[0] == 10


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "gymnasium.wrappers:FlatenObservation",
            {},
            "has no class or function 'FlatenObservation'; did you mean 'Flat",
        ),
        ("collections:OrderedDict", {}, "is of Python's standard library"),
        (f"{OWN}:Counting", {}, "is a class that is not derived from Wrapper: name one that is"),
        (f"{OWN}:Scale", {"factr": 2}, r"can't be put around the environment with \{'factr': 2\}: TypeError"),
        (f"{OWN}:forgetful", {}, "returned None: let it return an environment"),
    ],
)
def test_what_is_no_wrapper_is_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_env("Pendulum-v1", wrappers=[find_wrapper(name, arguments)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["environment.wrappers=[gymnasium.wrappers.ClipAction]"], "write gymnasium.wrappers:ClipAction"),
        (["environment.wrappers=[a:B, 3]"], "each should be a name, module:name, or one with arguments"),
        (["environment.wrappers=[{a:B: {}, c:D: {}}]"], "each should be a name"),
        (["environment.wrappers=[{a:B: 3}]"], "each should be a name"),
        (["environment.wrappers=a:B"], "should be a valid list"),
        (["environment.wrappers=[a:B]", "environment.backend=envpool"], "can't be wrapped one by one: leave one"),
        (["environment.wrappers=[gymnasium.wrappers:NormalizeReward]"], "set environment.normalize"),
        (["environment.normalize=3"], "should be true or false, or keys and values, got 3"),
        (["environment.normalize={gamma: 0.9}"], "gamma is the run's own here: leave it out"),
        (
            ["environment.normalize={clip_ob: 1}"],
            "unknown key 'environment.normalize.clip_ob'; did you mean 'clip_obs'",
        ),
        (["environment.normalize={norm_obs: 1}"], "norm_obs: input should be a valid boolean, got 1"),
        (["callbacks=[a]"], "each should be a name"),
    ],
)
def test_a_bad_name_is_refused_where_it_is_read(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        load_config("sparse-reacher/sac", settings)


@pytest.mark.parametrize("setting", ["environment.wrappers=[a:B]", "environment.normalize=true", "callbacks=[a:B]"])
def test_rllib_has_none_of_them(setting):
    key = setting.partition("=")[0]
    with pytest.raises(ConfigurationError, match=rf"{key} can't be had with rllib.PPO: leave it out"):
        load_config("procgen/ppo", [setting])


def test_what_is_not_set_is_not_written():
    plain = load_config("sparse-reacher/sac")
    off = load_config("sparse-reacher/sac", ["environment.wrappers=[]", "environment.normalize=false", "callbacks=[]"])
    assert off == plain
    assert not {"wrappers", "normalize", "callbacks"} & {*plain.model_dump(), *plain.model_dump()["environment"]}
    once = load_config("sparse-reacher/sac", ["environment.wrappers=[{a:B: {}}]", "environment.normalize=true"])
    assert once.model_dump()["environment"]["wrappers"] == ["a:B"]
    assert validate(once.model_dump(mode="json"), "again") == once


def test_data_is_not_normalised_by_a_setting():
    with pytest.raises(ConfigurationError, match="data is collected as it comes"):
        load_environment("Pendulum-v1", ["normalize=true"])


def test_the_code_of_wrappers_and_callbacks_needs_the_users_word(small, tmp_path):
    small["environment"]["wrappers"] = ["gymnasium.wrappers:FlattenObservation"]
    small["callbacks"] = ["evil:Callback"]
    folder = RunFolder(tmp_path)
    folder.config_file.write_text(RunConfig.model_validate(small).to_yaml())
    assert folder.read_config().code[-1] == "evil:Callback", "which does not run where a policy is rolled out"
    for name in ("evil:Wrapper", "gymnasium.wrappers:RecordVideo"):
        small["environment"]["wrappers"] = [{name: {"video_folder": "films"}}]
        folder.config_file.write_text(RunConfig.model_validate(small).to_yaml())
        with pytest.raises(UntrustedCodeError, match=rf"names code that would be run, '{name}'"):
            folder.read_config()


# Normalisation -------------------------------------------------------------------------------------------------------

NORMALISED = {
    "sb3.SAC": {"algorithm": {"name": "sb3.SAC", "parameters": SAC}},
    "sb3.SAC, ladder": {"algorithm": {"name": "sb3.SAC", "parameters": SAC}},
    "sbx.SAC": {"algorithm": {"name": "sbx.SAC", "parameters": SAC}},
    "sb3.PPO": {"algorithm": {"name": "sb3.PPO", "parameters": {"batch_size": 50}}, "updates_per_iteration": None},
}


def normalise(small, base="sb3.SAC", **settings):
    values = small | NORMALISED[base]
    values["environment"] |= {"wrappers": SCALED, "normalize": settings or True}
    if base.endswith("ladder"):
        values["guidance"]["schedule"] = {"kind": "ladder", "rungs": [0.8, 1.0]}
    return values


@pytest.mark.parametrize("base", NORMALISED)
def test_an_interrupted_normalised_run_ends_as_one_left_alone(small, tmp_path, base):
    config = RunConfig.model_validate(normalise(small, base))
    train(config, tmp_path / "alone")
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "interrupted", stop_after(3))
    rows = train(config, tmp_path / "interrupted")
    assert repeating(tmp_path / "alone" / "metrics.csv") == repeating(tmp_path / "interrupted" / "metrics.csv")
    first, second = (
        read_weights(checkpoint_paths(RunFolder(tmp_path / name))[-1])["normalization"]
        for name in ("alone", "interrupted")
    )
    np.testing.assert_equal(first, second)
    assert first["observations"]["var"][0] > 10, "what wrappers show"
    assert rows[-1].return_mean > 30 * 80, "rewards as they come, which are above 80 a step"


def test_a_normalised_warm_start_is_of_the_statistics_of_its_data(small, tmp_path, monkeypatch):
    warm_start = write_pushing(tmp_path / "data", monkeypatch) | {"rehearsal": 4}
    values = normalise(small) | {"warm_start": warm_start}
    del values["environment"]["wrappers"]
    config = RunConfig.model_validate(values)
    train(config, tmp_path / "alone")
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "interrupted", stop_after(3))
    train(config, tmp_path / "interrupted")
    assert repeating(tmp_path / "alone" / "metrics.csv") == repeating(tmp_path / "interrupted" / "metrics.csv")
    first = read_weights(checkpoint_paths(RunFolder(tmp_path / "alone"))[0])["normalization"]["observations"]
    np.testing.assert_allclose(
        first["mean"], load_episodes("pendulum/pushing-v0", tmp_path / "data").observations.mean(0), atol=1e-5
    )


@pytest.fixture
def normalised_run(small, tmp_path):
    config = RunConfig.model_validate(normalise(small) | {"iterations": 2})
    train(config, tmp_path / "run")
    return tmp_path / "run", config


def test_a_checkpoint_acts_on_normalised_observations_in_raw_environments(normalised_run):
    run, config = normalised_run
    rows = RunFolder(run).read_metrics()
    result = evaluate_checkpoint(find_checkpoint(run), episodes=2, seed=1, trust=True)
    assert result.returns.min() > 30 * 80
    env = make_env("Pendulum-v1", 1, wrappers=[find_wrapper(f"{OWN}:Scale", {})])
    policy = build_policy(config, env)
    policy.load(find_checkpoint(run))
    stored = read_weights(find_checkpoint(run))["normalization"]["observations"]
    observations = env.reset()
    seen = ((observations - stored["mean"]) / np.sqrt(stored["var"] + 1e-8)).astype(np.float32)
    np.testing.assert_array_equal(
        policy.predict(observations, deterministic=True)[0], policy.model.predict(seen, deterministic=True)[0]
    )
    assert rows[-1].iteration == 2


def test_what_is_collected_from_a_normalised_run_is_raw(normalised_run, tmp_path):
    run, _ = normalised_run
    collect_policies([str(run)], "pendulum/own-v0", transitions=60, n_envs=2, root=tmp_path / "data", trust=True)
    episodes = load_episodes("pendulum/own-v0", tmp_path / "data")
    radius = np.linalg.norm(episodes.observations[:, :2], axis=1)
    np.testing.assert_allclose(radius, 10, rtol=1e-5)
    assert episodes.rewards.min() > 80


def test_the_value_function_of_a_normalised_run_is_in_raw_units(normalised_run):
    run, config = normalised_run
    heuristic = value_function_of(run, trust=True)
    policy = build_policy(config, make_environment(config.environment, 1, 0))
    policy.load(find_checkpoint(run))
    env = policy.model.get_vec_normalize_env()
    assert (env.gamma, env.clip_obs) == (config.gamma, 10)
    assert heuristic.normalisation.mean.tolist() == env.obs_rms.mean.tolist()
    observations = np.array([[10.0, 0.0, 1.0]], np.float32)
    actions = policy.model.policy.scale_action(policy.predict(observations, deterministic=True)[0])
    seen = policy.model.policy.obs_to_tensor(env.normalize_obs(observations))[0]
    with torch.no_grad():
        value = float(torch.cat(policy.model.critic(seen, torch.as_tensor(actions)), dim=1).min())
    assert heuristic(observations)[0] == pytest.approx(value * np.sqrt(env.ret_rms.var + env.epsilon), rel=1e-4)


def test_images_are_not_normalised(small, tmp_path):
    small |= {"guidance": None, "environment": {"id": "CartPole-v1", "n_envs": 2, "normalize": True}}
    small["algorithm"] = {"name": "sb3.DQN", "parameters": {"learning_starts": 0}}
    small["environment"]["wrappers"] = [f"{OWN}:as_images"]
    with pytest.raises(
        ConfigurationError, match=r"shows images, which policies scale themselves: set .*norm_obs=false"
    ):
        train(RunConfig.model_validate(small), tmp_path / "run")


# Callbacks -----------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_while_the_agent_learns(small, tmp_path, monkeypatch):
    monkeypatch.setattr(own_code.Counting, "calls", [])
    plain = train(RunConfig.model_validate(small), tmp_path / "plain")
    config = RunConfig.model_validate(small | {"callbacks": [f"{OWN}:Counting"]})
    with pytest.raises(InterruptionError):
        train(config, tmp_path / "run", stop_after(3))
    rows = train(config, tmp_path / "run")
    assert own_code.Counting.calls == ["start 0", "start 200", "end 500"]
    assert [row.return_mean for row in rows] == [row.return_mean for row in plain]


@pytest.mark.parametrize("base", ["sb3.SAC", "sb3.PPO"])
def test_a_callback_ends_a_run_with_its_iteration(small, tmp_path, base):
    callback = "stable_baselines3.common.callbacks:StopTrainingOnMaxEpisodes"  # of 30 steps in 2 environments
    values = small | NORMALISED[base] | {"callbacks": [f"{OWN}:Counting", {callback: {"max_episodes": 4}}]}
    config = RunConfig.model_validate(values)
    message = rf"{callback} has ended the run after iteration 3 of 5, which has a checkpoint in .*run: evaluate it, or"
    with pytest.raises(TrainingEndedError, match=message):
        train(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert [path.name for path in checkpoint_paths(folder)] == ["000002", "000003"]
    assert [row.steps for row in folder.read_metrics()] == [100, 200, 300]
    assert not folder.is_finished(config)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (f"{OWN}:Scale", "is a class that is not derived from BaseCallback"),
        (f"{OWN}:Stopping", r"can't be made with \{\}: TypeError: .*missing .* argument: 'steps'"),
        (f"{OWN}:Stoping", "has no class or function 'Stoping'; did you mean 'Stopping'"),
    ],
)
def test_what_is_no_callback_is_refused(small, tmp_path, callback, message):
    with pytest.raises(ConfigurationError, match=f"callbacks: .*{message}"):
        train(RunConfig.model_validate(small | {"callbacks": [callback]}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_of_hurls_own_is_named_by_the_module_that_defines_it():
    with pytest.raises(ValueError, match=r"is not defined in hurl.envs: name a class or function by the module"):
        find_maker("hurl.envs:make_env", gym.Wrapper)


# Where modules are ---------------------------------------------------------------------------------------------------

SWING = """
import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

class Swing(PendulumEnv):
    pass

gym.register("my/Swing-v0", entry_point=Swing, max_episode_steps=30)

def upright(observations):
    return 10 * observations[:, 0]
"""
RUN = """
environment: {id: "my_swing:my/Swing-v0", n_envs: 2}
algorithm: {name: sb3.PPO, parameters: {batch_size: 50}}
guidance: {heuristic: "my_swing:upright", schedule: {kind: linear, lambda0: 0.5}}
gamma: 0.95
iterations: 1
steps_per_iteration: 100
evaluation_episodes: 1
"""


@pytest.fixture
def forget(monkeypatch):
    """Return a function that forgets which modules were found, and where."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def forget():
        sys.path[:] = [folder for folder in sys.path if folder not in own_folders()]
        monkeypatch.setenv("HURL_PATH", "")
        sys.modules.pop("my_swing", None)
        gym.registry.pop("my/Swing-v0", None)

    yield forget
    forget()


def test_a_run_remembers_where_its_modules_are(tmp_path, forget):
    project, run = tmp_path / "project", tmp_path / "run"
    project.mkdir()
    (project / "my_swing.py").write_text(SWING)
    (project / "swing.yaml").write_text(RUN)
    look_beside(str(project / "swing.yaml"))
    train(load_config(str(project / "swing.yaml")), run)
    assert json.loads((run / "modules.json").read_text()) == {"my_swing": str(project)}
    forget()
    with pytest.raises(UntrustedCodeError, match="repeat with --trust"):
        evaluate_checkpoint(find_checkpoint(run), episodes=1, seed=0)
    assert own_folders() == []
    assert len(evaluate_checkpoint(find_checkpoint(run), episodes=1, seed=0, trust=True).returns) == 1


def test_a_module_that_is_found_is_not_looked_for_where_it_was(small, tmp_path, forget):
    forget()
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "moved_swing.py").write_text(SWING)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    small["environment"] = {"id": "moved_swing:my/Swing-v0", "n_envs": 2}
    folder.config_file.write_text(RunConfig.model_validate(small).to_yaml())
    folder.modules_file.write_text(json.dumps({"moved_swing": str(tmp_path / "before")}))
    look_in(tmp_path / "now")
    folder.read_config(trust=True)
    assert own_folders() == [str(tmp_path / "now")]
    (tmp_path / "now" / "moved_swing.py").unlink()
    folder.read_config(trust=True)
    assert own_folders() == [str(tmp_path / "now"), str(tmp_path / "before")]
    folder.modules_file.write_text("[3]")
    forget()
    with pytest.raises(ValueError, match=r"modules.json is damaged: remove it"):
        folder.read_config(trust=True)


def test_the_example_of_the_documentation_runs(tmp_path, forget, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    for kind, name in (("python", "mymaze.py"), ("yaml", "corridor.yaml")):
        (block,) = re.findall(rf"```{kind}\n(# {name}\n.*?)```", text, re.DOTALL)
        (tmp_path / name).write_text(block)
    commands = re.findall(r"^hurl (\w+ (?:corridor\.yaml|campaigns/corridor)[^#\n]*)", text, re.MULTILINE)
    settings = {"steps_per_iteration": 400, "updates_per_iteration": 5, "evaluation_episodes": 2}
    small = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    shorter = {
        "campaign": ["--variants", "hurl", "--seeds", "0", "--iterations", "1", *small],
        "evaluate": ["--episodes", "2"],
    }
    assert [command.split()[0] for command in commands] == list(shorter)
    monkeypatch.chdir(tmp_path)
    for command in commands:
        words = command.split()
        result = CliRunner().invoke(app, [*words, *shorter[words[0]]], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    (row,) = RunFolder(tmp_path / "campaigns/corridor/hurl/seed-0").read_metrics()
    assert row.h_min > 0


def test_modules_beside_a_campaigns_file_are_there_when_it_is_planned(tmp_path, forget):
    """It gets past its plan, which names data by the code that makes it, to a folder that it can't have."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "my_policy.py").write_text("def act(observations):\n    return observations[:, :1]\n")
    file = tmp_path / "project" / "my.yaml"
    file.write_text(
        "environment: {id: Pendulum-v1, n_envs: 2}\nalgorithm: {name: sb3.SAC}\ngamma: 0.9\niterations: 1\n"
        "steps_per_iteration: 10\nupdates_per_iteration: 1\nwarm_start: {}\n"
        "data: {policy: 'my_policy:act', transitions: 10}\nvariants: {cloned: }\n"
    )
    (tmp_path / "taken").write_text("")
    result = CliRunner().invoke(app, ["campaign", str(file), "--seeds", "0", "--out", str(tmp_path / "taken")])
    assert isinstance(result.exception, FileExistsError | NotADirectoryError), result.exception
