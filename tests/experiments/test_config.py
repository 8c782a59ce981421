from pathlib import Path

import pytest

from hurl.experiments.config import load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.sources import preset_names
from hurl.names import HeuristicFolder, HeuristicFunction
from hurl.schedules import KINDS, ConstantSchedule, LinearSchedule, TanhSchedule

MINIMAL = """
environment: {id: Pendulum-v1, n_envs: 2}
algorithm: {name: sb3.SAC, parameters: {learning_rate: 1e-4}}
gamma: 0.95
iterations: 3
steps_per_iteration: 100
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL)
    return str(path)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid(name):
    assert load_config(name).environment.id


def test_sparse_reacher_has_the_papers_values():
    config = load_config("sparse-reacher/hurl")
    parameters = config.algorithm.parameters
    assert (config.gamma, config.iterations, config.steps_per_iteration, config.updates_per_iteration) == (
        0.9, 200, 10_000, 1024,
    )  # fmt: skip
    assert (parameters["learning_rate"], parameters["qf_learning_rate"], parameters["tau"]) == (2.5e-4, 2.5e-4, 0.02)
    assert parameters["policy_kwargs"] == {"net_arch": {"pi": [64, 64], "qf": [256, 256]}, "activation_fn": "tanh"}
    assert parameters["batch_size"] == 128
    assert config.guidance.schedule.build(200) == TanhSchedule(0.5, alpha=1e5, iterations=200)
    assert load_config("sparse-reacher/sac").guidance is None
    assert load_config("sparse-reacher/pbrs").guidance.shaping == "pbrs"


def test_file_with_overrides(file):
    settings = ["iterations=7", "environment.options.g=9.0", "algorithm.parameters.policy_kwargs={net_arch: [8]}"]
    config = load_config(file, settings)
    assert config.iterations == 7
    assert config.environment.options == {"g": 9.0}
    assert config.algorithm.parameters == {"learning_rate": 1e-4, "policy_kwargs": {"net_arch": [8]}}


def test_constant_schedule():
    config = load_config("sparse-reacher/hurl", ["guidance.schedule={kind: constant, lambda0: 0.3}"])
    assert config.guidance.schedule.build(10) == ConstantSchedule(0.3)


def test_omega_form_of_tanh():
    config = load_config("sparse-reacher/hurl", ["guidance.schedule={lambda0: 0.3, omega: 0.1}"])
    assert config.guidance.schedule.build(10) == TanhSchedule(0.3, omega=0.1)


@pytest.mark.parametrize("kind", ["constant", "linear", "exponential", "tanh"])
def test_what_a_run_stored_of_a_schedule_is_read_again(kind):
    stored = "lambda0: 0.3, alpha: 1.0, omega: null, iterations: null"
    config = load_config("sparse-reacher/hurl", [f"guidance.schedule={{kind: {kind}, {stored}}}"])
    schedule = config.guidance.schedule
    assert config == load_config("sparse-reacher/hurl", [f"guidance.schedule={{kind: {kind}, lambda0: 0.3}}"])
    assert schedule.model_dump() == {
        "kind": kind, "lambda0": 0.3, "alpha": 1.0, "omega": None, "iterations": None,
    }  # fmt: skip
    assert schedule.build(9)(1) == 0.3


def test_a_schedule_of_ones_own_needs_no_annotations(monkeypatch):
    class Falling:
        def __init__(self, start, rate=0.5, *rest, iterations, **more):
            self.made_with = (start, rate + 0.0, rest, iterations, more)

    monkeypatch.setitem(KINDS.load(), "falling", Falling)

    def load(settings):
        return load_config("sparse-reacher/hurl", [f"guidance.schedule={{kind: falling{settings}}}"])

    assert load(", start: 0.9").guidance.schedule.build(7).made_with == (0.9, 0.5, (), 7, {})
    for settings, message in {
        "": "the key 'guidance.schedule.start' is missing",
        ", start: 1, more: 2": "unknown key 'guidance.schedule.more'",
        ", start: 1, other: 2": "unknown key 'guidance.schedule.other'",
        ", start: 1, rate: high": "guidance.schedule: can only concatenate str",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            load(settings)


def test_a_schedule_has_the_runs_iterations_unless_it_names_its_own():
    for settings, iterations in ("", 200), (", iterations: 50", 50):
        config = load_config("sparse-reacher/hurl", [f"guidance.schedule={{kind: linear, lambda0: 0.3{settings}}}"])
        assert config.guidance.schedule.build(200) == LinearSchedule(0.3, iterations=iterations)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("swing:upright", HeuristicFunction),
        ("my.module:f", HeuristicFunction),
        ("saved", HeuristicFolder),
        ("runs/a:b/h", HeuristicFolder),
        ("./a:b", HeuristicFolder),
    ],
)
def test_what_the_name_of_a_heuristic_is_of(name, kind, tmp_path):
    config = load_config("sparse-reacher/hurl", [f"guidance.heuristic={name}"])
    (tmp_path / "copy.yaml").write_text(config.to_yaml())
    for found in config, load_config(str(tmp_path / "copy.yaml")):
        assert type(found.guidance.heuristic) is kind
        assert found.guidance.heuristic == name


def test_another_kind_takes_nothing_of_the_old_ones_parameters(tmp_path):
    preset = load_config("hopper/hurl-mc").guidance
    assert (preset.schedule.kind, preset.heuristic.parameters) == ("tanh", {"validation": 0.0})
    (tmp_path / "mine.yaml").write_text(
        "extends: hopper/hurl-mc\nguidance: {heuristic: {kind: ensemble}, schedule: {kind: ladder}}\n"
    )
    changed = ["guidance.schedule.window=9", "guidance.schedule.kind=ladder", "guidance.heuristic.kind=ensemble"]
    for source, settings, window in (
        (str(tmp_path / "mine.yaml"), [], 8),
        ("hopper/hurl-mc", changed, 9),
        ("hopper/hurl-mc", [*changed[1:], changed[0]], 9),
    ):
        guidance = load_config(source, settings).guidance
        assert guidance.schedule.parameters == {"rungs": None, "window": window, "exploration": 0.1}
        assert (guidance.heuristic.kind, guidance.heuristic.parameters) == ("ensemble", {})
    for kind in ("linear", "constant"):  # a schedule's λ0 is any other's, but α is none of a constant
        schedule = load_config("hopper/hurl-mc", [f"guidance.schedule.kind={kind}"]).guidance.schedule
        assert (schedule.kind, schedule.parameters["lambda0"]) == (kind, preset.schedule.parameters["lambda0"])
    (tmp_path / "no-kind.yaml").write_text(
        "extends: hopper/hurl-mc\nguidance: {heuristic: {kind: ensemble}, schedule: {omega: 0.01}}\n"
    )
    assert load_config(f"{tmp_path}/no-kind.yaml", ["guidance.schedule.kind=ladder"]).guidance.schedule.kind == "ladder"
    with pytest.raises(ConfigurationError, match=r"--set guidance.schedule.kind=linear: the key .*lambda0' is missing"):
        load_config("gauntlet-hopper/ladder-mc", ["guidance.schedule.kind=linear"])
    same = load_config("hopper/hurl-mc", ["guidance.schedule.kind=tanh"]).guidance
    assert same == preset
    order = ["guidance.schedule={kind: constant, lambda0: 0.9}", "guidance.schedule.kind=ladder"]
    kinds = [load_config("hopper/hurl-mc", settings).guidance.schedule.kind for settings in (order, order[::-1])]
    assert kinds == ["ladder", "constant"], "what is set last counts"


def test_a_kind_among_what_users_name_is_a_key_as_any_other(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "extends: sparse-reacher/sac\nenvironment: {options: {kind: a, size: 3}}\n"
        "variants: {b: {environment: {options: {kind: b}}}}\n"
    )
    options = load_config(f"{tmp_path}/mine.yaml/b").environment.options
    assert options == {"kind": "b", "size": 3}
    set_anew = load_config(f"{tmp_path}/mine.yaml/b", ["environment.options.kind=c"]).environment.options
    assert set_anew == {"kind": "c", "size": 3}


def test_yaml_round_trip(tmp_path):
    config = load_config("sparse-reacher/hurl", ["seed=4"])
    (tmp_path / "copy.yaml").write_text(config.to_yaml())
    assert load_config(str(tmp_path / "copy.yaml")) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["iteration=5"], "unknown key 'iteration'; did you mean 'iterations'"),
        (
            ["guidance.schedule.lamda0=0.5"],
            r"unknown key 'guidance.schedule.lamda0' of the kind 'tanh'; did you mean 'lambda0'",
        ),
        (["guidance.schedule.lambda0=1.5"], r"guidance.schedule: lambda0 must lie in \[0, 1\], got 1.5$"),
        (["guidance.schedule.lambda0=high"], "guidance.schedule.lambda0: .*valid number.*, got 'high'"),
        (["guidance.schedule={alpha: 1}"], "the key 'guidance.schedule.lambda0' is missing"),
        (["guidance.schedule.alpha=0"], "guidance.schedule: alpha must be a positive finite number, got 0.0"),
        (["guidance.schedule.kind=tahn"], "guidance.schedule.kind: must be one of .*tanh, .*, got 'tahn'"),
        (["guidance.schedule={kind: constant, lambda0: 2}"], r"guidance.schedule: lambda0 must lie in \[0, 1\], got 2"),
        (["guidance.schedule={kind: constant, lambda0: 1, alpha: -1}"], "alpha=-1.0 has no meaning"),
        (["guidance.schedule={kind: constant, lambda0: 1, iterations: 0}"], "iterations: .*equal to 1, got 0"),
        (["guidance.schedule={lambda0: 1, omega: 0}"], "omega must be a positive finite number, got 0"),
        (["guidance.schedule={lambda0: 1, omega: 0.1, iterations: 0}"], "iterations: .*equal to 1, got 0"),
        (["guidance.schedule={lambda0: 1, omega: 0.1, alpha: 2}"], "omega=0.1 is for kind: tanh without alpha"),
        (["guidance.schedule={lambda0: 1, rungs: null}"], "unknown key 'guidance.schedule.rungs' of the kind 'tanh'"),
        (["guidance.schedule=ladder"], r"guidance.schedule: must hold keys and values, {key: value}, got 'ladder'"),
        (["prior=true"], r"prior: must hold keys and values, {key: value}, got True"),
        (["prior={dataset: a/b-v0, root: 5}"], "prior.root: must be the path of a folder, got 5"),
        (["guidance.schedule={kind: ladder, rungs: [0.5]}"], r"schedule: .*last rung must be 1.*Ladder\(0.5, 1.0\)"),
        (["guidance.schedule={kind: ladder, rungs: [1.0, 0.5]}"], r"schedule: the rungs of a ladder must rise, got"),
        (["guidance.schedule={kind: ladder, rungs: [0.5, 1.5]}"], r"schedule: a rung of a ladder must lie in \[0, 1\]"),
        (["guidance.schedule={kind: ladder}", "guidance.shaping=pbrs"], "schedule: a ladder is for shaping='hurl'"),
        (
            ["guidance.schedule={kind: ladder}", "algorithm={name: rllib.PPO}"],
            "rllib.PPO can't have a ladder, .*name one",
        ),
        (["guidance.schedule={kind: ladder}", "gamma=1"], "schedule: gamma=1.0 gives no horizon"),
        (["gamma=1.5"], "gamma: .*less than or equal to 1, got 1.5"),
        (["iterations=0"], "iterations: .*greater than or equal to 1, got 0"),
        (["iterations=many"], "iterations: .*valid integer.*, got 'many'"),
        (["steps_per_iteration=10001"], "steps_per_iteration=10001 must be a multiple of environment.n_envs=20"),
        (["guidance.shaping=pbsr"], "guidance.shaping: .*'pbsr'"),
        (["environment={n_envs: 4}"], "the key 'environment.id' is missing"),
        (["guidance.schedule={kind: constant, lambda0: 1, alpha: 2}"], "alpha=2.0 has no meaning for kind: constant"),
        (["guidance.schedule={kind: linear, lambda0: 1, omega: 2}"], "omega=2.0 is for kind: tanh"),
        (["iterations"], "'iterations' is not of the form key=value"),
        (["iterations={"], "^--set iterations={, line 1 is not YAML"),
        (["iterations=3\nseed: 4"], "sets more than one value"),
        (["seed=true"], "^--set seed=true: seed: input should be a valid integer, got True"),
        (["seed=yes"], "^--set seed=yes, line 1: yes is ambiguous"),
        (["seed=1:8"], "seed: input should be a valid integer, got '1:8'"),
        (["seed='5'"], "seed: input should be a valid integer, got '5'"),
        (["seed=4294967296"], "seed: input should be less than 4294967296"),
        (["gamma=true"], "gamma: input should be a valid number, got True"),
        (["gamma=.nan"], "gamma: input should be a finite number, got nan"),
        (["updates_per_iteration=true"], "updates_per_iteration: input should be a valid integer, got True"),
        (["guidance.schedule.lambda0=true"], "guidance.schedule.lambda0: input should be a valid number, got True"),
        (
            ["guidance.schedule={kind: ladder, rungs: [true]}"],
            "guidance.schedule.rungs: input should be a valid number",
        ),
        (["environment.n_envs=1000000000"], "environment.n_envs: input should be less than or equal to 10000"),
        (["evaluation_episodes=1000000000"], "evaluation_episodes: input should be less than or equal to 10000"),
        (["threads=1000000"], "threads: input should be less than or equal to 1024"),
        (["environment.options.seed=3"], "environment.options: 'seed' has no place here, set seed"),
        (["environment.options={threads: 3}"], "environment.options: 'threads' has no place here, set threads"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        load_config("sparse-reacher/hurl", settings)


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [
        (["seed=1", "batch_size=0"], "--set batch_size=0: unknown key 'batch_size'"),
        (["environment={n_envs: 4}", "seed=1"], "--set environment={n_envs: 4}: the key 'environment.id' is missing"),
        (["guidance.schedule.lambda0=2"], "--set guidance.schedule.lambda0=2: guidance.schedule: lambda0 must lie"),
        (["environment.n_envs=3"], "--set environment.n_envs=3: steps_per_iteration=10000 must be a multiple"),
        (["algorithm.parameters.tau=2"], "--set algorithm.parameters.tau=2: algorithm.parameters.tau must be"),
        (["gamma=2", "seed=-1"], "--set gamma=2: gamma: .*, got 2; --set seed=-1: seed: .*, got -1"),
    ],
)
def test_what_is_wrong_with_a_setting_is_not_blamed_on_the_file(settings, blamed):
    with pytest.raises(ConfigurationError, match=f"^{blamed}"):
        load_config("sparse-reacher/hurl", settings)


def test_what_is_wrong_with_a_file_is_not_blamed_on_a_setting(file):
    Path(file).write_text(MINIMAL.replace("gamma: 0.95", "gamma: 1.5"))
    with pytest.raises(ConfigurationError, match=r"run\.yaml: gamma: .*, got 1.5$"):
        load_config(file, ["seed=1", "algorithm.parameters.tau=0.1"])


def test_the_settings_of_data_are_named_as_such():
    data = load_config("hopper/hurl-mc", ["data.settings.gamma=2"]).data
    with pytest.raises(ConfigurationError, match=r"^data\.settings gamma=2: gamma: "):
        _ = data.run


def test_unknown_sources_suggest_what_there_is(tmp_path):
    with pytest.raises(ConfigurationError, match="no preset 'sparse-reecher/hurl'; did you mean 'sparse-reacher/hurl'"):
        load_config("sparse-reecher/hurl")
    with pytest.raises(
        ConfigurationError, match=r"'sparse-reacher' is several variants: write .* or sparse-reacher/hurl"
    ):
        load_config("sparse-reacher")
    with pytest.raises(ConfigurationError, match=r"no file 'missing\.yaml'"):
        load_config("missing.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(ConfigurationError, match=r"list\.yaml must hold keys and values, found list"):
        load_config(str(tmp_path / "list.yaml"))
