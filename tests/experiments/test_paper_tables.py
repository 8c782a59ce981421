"""The presets against the tables of the paper's appendix, typed off once more."""

import pytest

from hurl.experiments.config import load_config
from hurl.experiments.paper_tables import paper_table
from hurl.experiments.sources import preset_names
from hurl.ladder import Ladder

# Hopper, HalfCheetah, Swimmer, Humanoid
DENSE = {
    "observation dimensions": (11, 17, 8, 376),
    "action dimensions": (3, 6, 2, 17),
    "evaluation horizon": (1000, 1000, 1000, 1000),
    "γ": (0.999, 0.99, 0.999, 0.99),
    "iterations N": (200, 200, 200, 500),
    "batch size": (4000, 4000, 4000, 10000),
    "policy network": ("(64, 64)", "(64, 64)", "(64, 64)", "(256, 256)"),
    "value network": ("(256, 256)", "(256, 256)", "(256, 256)", "(256, 256)"),
    "activation": ("tanh", "tanh", "tanh", "tanh"),
    "policy step size": (0.00025, 0.00025, 0.0005, 0.002),
    "value step size": (0.0005, 0.0005, 0.0005, 0.00025),
    "target step size": (0.02, 0.04, 0.01, 0.02),
    "minibatch size": (128, 128, 128, 128),
    "gradient steps per iteration": (1024, 1024, 1024, 1024),
    "behaviour policies": (50, 50, 50, 50),
    "HuRL-MC λ0": (0.95, 0.99, 0.95, 0.9),
    "HuRL-MC α": (1e5, 1e5, 1.0, 1.0),
    "HuRL-zero λ0": (0.98, 0.99, 0.99, 0.95),
    "HuRL-zero α": (1e-5, 1e5, 1.0, 1e-5),
}
SPARSE = {
    "observation dimensions": (11,),
    "action dimensions": (2,),
    "evaluation horizon": (500,),
    "γ": (0.9,),
    "iterations N": (200,),
    "batch size": (10000,),
    "policy network": ("(64, 64)",),
    "value network": ("(256, 256)",),
    "activation": ("tanh",),
    "policy step size": (0.00025,),
    "value step size": (0.00025,),
    "target step size": (0.02,),
    "minibatch size": (128,),
    "gradient steps per iteration": (1024,),
    "HuRL λ0": (0.5,),
    "HuRL α": (1e5,),
}
GRID = {
    "policy step size": [0.00025, 0.0005, 0.001, 0.002],
    "value step size": [0.00025, 0.0005, 0.001, 0.002],
    "target step size": [0.005, 0.01, 0.02, 0.04],
    "γ": [0.9, 0.99, 0.999],
    "λ0": [0.90, 0.95, 0.98, 0.99],
    "α": [1e-5, 1.0, 1e5],
}
PROCGEN = {
    "IMPALA layer sizes": "(16, 32, 32)",
    "rollout fragment length": 256,
    "remote env runners": 0,
    "environments per env runner": 64,
    "γ": 0.99,
    "minibatch size": 2048,
    "train batch size (4000 in the paper, less than a round of sampling)": 64 * 256,
    "epochs": 3,
    "learning rate": 0.0005,
    "batch mode": "truncate_episodes",
    "value function clip parameter": 10.0,
    "value function loss coefficient": 0.5,
    "KL coefficient": 0.2,
    "KL target": 0.01,
    "entropy coefficient": 0.01,
    "clip parameter": 0.1,
    "gradient clip": "None",
    "GAE λ": 0.95,
    "PPO-HuRL λ0": 0.99,
    "PPO-HuRL α": 0.5,
}
# Variants that the paper has not: guided ones, and all.
OURS = ("hurl-ensemble", "hurl-ladder")
GUIDED = (*OURS, "hurl-prior", "hurl-ladder-prior")
WITH_DATA = ("sac-prior", "hurl-prior", "hurl-ladder-prior", "rlpd", "rlpd-20")
PEERS = ("rlpd", "rlpd-20", "jsrl")
PROCGEN_GRID = {"λ0": [0.95, 0.97, 0.98, 0.985, 0.99], "α": [0.5, 0.75, 1.0, 3.0, 5.0]}


def _same(text, value):
    return text == value if isinstance(value, str) else float(text) == value


@pytest.mark.parametrize(
    ("table", "expected"),
    [("table-2", SPARSE), ("table-3", DENSE), ("table-4", {label: (value,) for label, value in PROCGEN.items()})],
)
def test_the_presets_have_the_values_of_the_paper(table, expected):
    _, rows = paper_table(table)
    assert [label for label, *_ in rows] == list(expected)
    for label, *values in rows:
        for text, value in zip(values, expected[label], strict=True):
            assert _same(text, value), (label, text, value)


@pytest.mark.parametrize(("table", "expected"), [("table-1", GRID), ("table-5", PROCGEN_GRID)])
def test_the_grids_of_the_tuning(table, expected):
    _, rows = paper_table(table)
    assert {label: [float(value) for value in values.split(", ")] for label, values in rows} == expected


@pytest.mark.parametrize("preset", ["hopper", "halfcheetah", "swimmer", "humanoid"])
def test_variants_differ_from_the_base_in_what_the_paper_says(preset):
    names = [name.split("/")[1] for name in preset_names() if name.startswith(f"{preset}/")]
    assert sorted(names) == sorted(
        ["bc", "hurl-mc", "hurl-vae", "hurl-zero", "pbrs", "sac", "sac-bc", *{*OURS, *WITH_DATA, *PEERS}]
    )
    configs = {name: load_config(f"{preset}/{name}") for name in names}
    plain = configs["sac"]
    assert (plain.warm_start, plain.guidance) == (None, None)
    for name, config in configs.items():
        own = ("algorithm", "updates_per_iteration") if name in ("rlpd", "rlpd-20") else ()
        for key in ("environment", "algorithm", "gamma", "steps_per_iteration", "updates_per_iteration"):
            assert getattr(config, key) == getattr(plain, key) or key in own, (name, key)
        assert config.evaluation_episodes == 10
        assert config.iterations == (0 if name == "bc" else plain.iterations)
        assert (config.warm_start is None) == (name in ("sac", "rlpd", "rlpd-20"))
        assert (config.prior is not None) == (name in WITH_DATA)
        if config.warm_start is not None:
            assert config.warm_start.epochs == (50 if preset == "humanoid" else 30)
            assert (config.data.iterations, config.data.transitions) == (200, 10_000)
    assert {name for name, config in configs.items() if config.guidance is not None} == {
        "hurl-zero",
        "hurl-mc",
        "hurl-vae",
        "pbrs",
        *GUIDED,
    }
    assert configs["pbrs"].guidance.shaping == "pbrs"
    assert configs["hurl-vae"].guidance.heuristic.kind == "vae"
    for name in ("hurl-mc", "hurl-vae", "pbrs", *GUIDED):
        assert configs[name].guidance.heuristic.parameters.get("epochs", 30) == (80 if preset == "humanoid" else 30)


@pytest.mark.parametrize("preset", ["hopper", "halfcheetah", "swimmer", "humanoid"])
def test_the_ensemble_guides_as_the_papers_heuristic_does_and_the_ladder_without_a_lambda(preset):
    papers, ensemble, ladder = (load_config(f"{preset}/{name}") for name in ("hurl-mc", *OURS))
    assert ensemble.guidance.heuristic.kind == "ensemble"
    assert ensemble.guidance.schedule == papers.guidance.schedule
    assert ladder.guidance.heuristic == ensemble.guidance.heuristic
    assert ladder.guidance.schedule.build(ladder.iterations) == Ladder()
    for config in (ensemble, ladder):
        own = {"guidance": papers.guidance, "checkpoint_every": papers.checkpoint_every}
        assert config.model_copy(update=own) == papers
    assert (ensemble.checkpoint_every, ladder.checkpoint_every) == (4, 20), "rungs are judged by whole episodes"


@pytest.mark.parametrize("preset", ["hopper", "halfcheetah", "swimmer", "humanoid"])
def test_prior_data_is_all_that_its_variants_add(preset):
    for with_data, without in (
        ("sac-prior", "sac-bc"),
        ("hurl-prior", "hurl-ensemble"),
        ("hurl-ladder-prior", "hurl-ladder"),
    ):
        config = load_config(f"{preset}/{with_data}")
        assert config.prior.share == 0.5
        assert config.model_copy(update={"prior": None}) == load_config(f"{preset}/{without}")
    config, own = load_config(f"{preset}/rlpd"), load_config(f"{preset}/rlpd-20")
    assert own.updates_per_iteration == 20 * own.steps_per_iteration
    assert own.model_copy(update={"updates_per_iteration": config.updates_per_iteration}) == config


def test_the_ablation_is_hopper_with_a_constant_lambda():
    mc = load_config("hopper/hurl-mc")
    for value in ("0.9", "0.95", "0.98", "0.99", "1"):
        config = load_config(f"hopper-lambda/{value}")
        assert config.guidance.schedule.build(200)(1) == config.guidance.schedule.build(200)(200) == float(value)
        assert config.model_copy(update={"guidance": mc.guidance}) == mc
        assert config.guidance.heuristic == mc.guidance.heuristic
