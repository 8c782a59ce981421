"""What the parameters of algorithms may be."""

import inspect
from importlib import import_module

import pytest
from stable_baselines3.common.base_class import BaseAlgorithm

from hurl.experiments.config import load_config, validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.parameters import REFUSED_EVERYWHERE, REFUSED_SB3, RLLIB, SB3, check_parameters
from hurl.experiments.run import train
from hurl.experiments.trainers.rllib_config import _default_config, known_parameters
from hurl.values import Kind

PACKAGES = {"sb3": "stable_baselines3", "contrib": "sb3_contrib", "sbx": "sbx"}
CONSTRUCTORS = {
    f"{library}.{name}": inspect.signature(value).parameters
    for library, package in PACKAGES.items()
    for name, value in vars(import_module(package)).items()
    if isinstance(value, type) and issubclass(value, BaseAlgorithm)
}


@pytest.mark.parametrize("algorithm", CONSTRUCTORS)
def test_every_default_is_allowed(algorithm):
    parameters = CONSTRUCTORS[algorithm].items()
    defaults = {name: argument.default for name, argument in parameters if argument.default is not argument.empty}
    check_parameters(algorithm, {name: value for name, value in defaults.items() if isinstance(SB3.get(name), Kind)})


def test_every_argument_of_a_constructor_is_known_and_no_other():
    arguments = {name for constructor in CONSTRUCTORS.values() for name in constructor}
    assert arguments | {"guidance", "jump_start", "prior"} == {*SB3, *REFUSED_SB3, *REFUSED_EVERYWHERE}


@pytest.mark.parametrize("algorithm", ["rllib.PPO", "rllib.SAC", "rllib.DQN"])
def test_every_default_of_rllib_is_allowed(algorithm):
    config, known = _default_config(algorithm), known_parameters(algorithm)
    values = {name: getattr(config, name) for name in known if isinstance(RLLIB.get(name), Kind)}
    values |= {name: [list(pair) for pair in value] for name, value in values.items() if name == "epsilon"}
    check_parameters(algorithm, values)


@pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        ("sb3.SAC", {"ent_coef": "auto_0.1", "target_entropy": "auto", "gradient_steps": -1, "tau": 1}),
        ("sb3.SAC", {"ent_coef": 0.2, "target_entropy": -3, "learning_rate": 0, "learning_starts": 0}),
        ("sb3.PPO", {"ent_coef": 0.01, "clip_range_vf": None, "policy_kwargs": {"net_arch": [], "ortho_init": False}}),
        ("sbx.SAC", {"policy_kwargs": {"net_arch": {"pi": [64], "qf": [256, 256]}, "layer_norm": True}}),
        ("sbx.TQC", {"device": "cuda:1", "qf_learning_rate": None, "policy_kwargs": {"anything": "else"}}),
        ("rllib.PPO", {"lr": [[0, 0.001], [1000, 0.0]], "grad_clip": 0.5, "env_runners": {"num_env_runners": 2}}),
        ("rllib.DQN", {"epsilon": 0.1, "n_step": [1, 3], "model_config": {"fcnet_hiddens": [8]}}),
    ],
)
def test_what_makes_sense_is_allowed(algorithm, parameters):
    check_parameters(algorithm, parameters)


@pytest.mark.parametrize(
    ("algorithm", "key", "value", "allowed"),
    [
        ("sb3.SAC", "tau", 5, "a number from 0 to 1"),
        ("sb3.SAC", "tau", True, "a number from 0 to 1"),
        ("sb3.SAC", "batch_size", 0, "a whole number from 1 to 1,000,000,000"),
        ("sb3.SAC", "batch_size", 1e2, "a whole number"),
        ("sb3.SAC", "buffer_size", -5, "a whole number from 1"),
        ("sb3.SAC", "buffer_size", 10**18, "a whole number from 1"),
        ("sb3.SAC", "learning_rate", -1e-3, "a finite number that is not negative"),
        ("sb3.SAC", "learning_rate", float("nan"), "a finite number"),
        ("sb3.SAC", "learning_rate", float("inf"), "a finite number"),
        ("sb3.SAC", "learning_rate", "fast", "a finite number"),
        ("sb3.SAC", "gradient_steps", -7, "a whole number from -1"),
        ("sb3.SAC", "train_freq", 0, "a whole number from 1"),
        ("sb3.SAC", "train_freq", [1, "episode"], "a whole number from 1"),
        ("sb3.SAC", "ent_coef", "hello", "a finite number that is not negative or 'auto' or such as 'auto_0.1'"),
        ("sb3.SAC", "device", "nope", "'auto', 'cpu' or such as 'cuda:0'"),
        ("sb3.SAC", "policy_kwargs", 3, "keys and values"),
        ("sb3.SAC", "policy_kwargs.net_arch", [-1], "the widths of layers"),
        ("sb3.SAC", "policy_kwargs.net_arch", [1e9], "the widths of layers"),
        ("sb3.SAC", "policy_kwargs.net_arch", [10**9], "the widths of layers"),
        ("sb3.SAC", "policy_kwargs.net_arch", {"pi": 64}, "the widths of layers"),
        ("sb3.SAC", "policy_kwargs.net_arch", {}, "the widths of layers"),
        ("sbx.SAC", "policy_kwargs.layer_norm", "no", "true or false"),
        ("sbx.TD3", "policy_delay", 0, "a whole number from 1"),
        ("contrib.TQC", "top_quantiles_to_drop_per_net", -1, "a whole number from 0"),
        ("sb3.DQN", "exploration_fraction", 1.5, "a number from 0 to 1"),
        ("sb3.DQN", "target_update_interval", 0, "a whole number from 1"),
        ("sb3.PPO", "n_steps", 0, "a whole number from 1"),
        ("sb3.PPO", "n_epochs", 1.5, "a whole number from 1"),
        ("sb3.PPO", "clip_range", float("nan"), "a positive finite number"),
        ("sbx.PPO", "ent_coef", "auto", "a finite number that is not negative"),
        ("rllib.PPO", "clip_param", -1, "a positive finite number"),
        ("rllib.PPO", "lr", [[0, "x"]], "a finite number that is not negative or a schedule"),
        ("rllib.PPO", "minibatch_size", 0, "a whole number from 1"),
        ("rllib.PPO", "num_epochs", 1.5, "a whole number from 1"),
        ("rllib.PPO", "use_critic", 3, "true or false"),
        ("rllib.PPO", "env_runners.batch_mode", "all", "'truncate_episodes' or 'complete_episodes'"),
        ("rllib.PPO", "model_config.fcnet_hiddens", [0], "a list, each a whole number from 1 to 10,000"),
        ("rllib.SAC", "tau", -1, "a number from 0 to 1"),
        ("rllib.DQN", "grad_clip_by", "luck", "'value' or 'norm' or 'global_norm'"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_a_configuration_is_read(small, algorithm, key, value, allowed):
    first, _, second = key.partition(".")
    parameters = {first: {second: value} if second else value}
    values = small | {"algorithm": {"name": algorithm, "parameters": parameters}}
    with pytest.raises(ConfigurationError) as error:
        validate(values, "run.yaml")
    message = str(error.value)
    assert message.startswith(f"run.yaml: algorithm.parameters.{key} must be {allowed}"), message
    assert message.endswith(f", got {value!r}")


@pytest.mark.parametrize("key", ["verbose", "tensorboard_log", "_init_setup_model", "env", "policy", "action_noise"])
def test_what_the_run_sets_is_refused(small, key):
    values = small | {"algorithm": {"name": "sb3.SAC", "parameters": {key: 1}}}
    with pytest.raises(ConfigurationError, match=f"algorithm.parameters has no place for '{key}': "):
        validate(values, "run.yaml")


def test_a_bad_parameter_is_told_before_data_is_made():
    with pytest.raises(ConfigurationError, match=r"^--set algorithm.parameters.tau=5: .*\.tau must be a number"):
        load_config("hopper/hurl-mc", ["algorithm.parameters.tau=5"])


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"policy_kwargs": {"no_such": 1}}, "unexpected keyword argument 'no_such'"),
        ({"policy_kwargs": {"optimizer_kwargs": {"eps": "x"}}}, "'<=' not supported"),
        ({"replay_buffer_kwargs": {"no_such": 1}}, "unexpected keyword argument 'no_such'"),
    ],
)
def test_what_the_library_itself_refuses_names_the_parameters(small, tmp_path, algorithm, reason):
    config = validate(small | {"algorithm": {"name": "sb3.SAC", "parameters": algorithm}}, "run.yaml")
    message = f"sb3.SAC on Pendulum-v1 can't be built with .*{next(iter(algorithm))}.*: .*({reason})"
    with pytest.raises(ConfigurationError, match=message):
        train(config, tmp_path / "run")
