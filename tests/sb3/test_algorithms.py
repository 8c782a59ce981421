import inspect

import numpy as np
import pytest
import sb3_contrib
import sbx
import stable_baselines3 as sb3
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.logger import configure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hurl
from tests.sb3.conftest import GAMMA, heuristic

OFF_POLICY = {"buffer_size": 500, "learning_starts": 40, "batch_size": 8, "train_freq": 10, "gradient_steps": 10}
ROLLOUTS = {"n_steps": 20}
PPO = ROLLOUTS | {"batch_size": 20}
ALGORITHMS = {
    "sb3.SAC": (sb3.SAC, "box", OFF_POLICY),
    "sb3.TD3": (sb3.TD3, "box", OFF_POLICY),
    "sb3.DDPG": (sb3.DDPG, "box", OFF_POLICY),
    "sb3.DQN": (sb3.DQN, "discrete", OFF_POLICY),
    "sb3.PPO": (sb3.PPO, "discrete", PPO),
    "sb3.A2C": (sb3.A2C, "discrete", ROLLOUTS),
    "contrib.TQC": (sb3_contrib.TQC, "box", OFF_POLICY),
    "contrib.QRDQN": (sb3_contrib.QRDQN, "discrete", OFF_POLICY),
    "contrib.CrossQ": (sb3_contrib.CrossQ, "box", OFF_POLICY),
    "contrib.TRPO": (sb3_contrib.TRPO, "box", PPO),
    "contrib.RecurrentPPO": (sb3_contrib.RecurrentPPO, "box", PPO),
    "sbx.SAC": (sbx.SAC, "box", OFF_POLICY),
    "sbx.TQC": (sbx.TQC, "box", OFF_POLICY),
    "sbx.TD3": (sbx.TD3, "box", OFF_POLICY),
    "sbx.DDPG": (sbx.DDPG, "box", OFF_POLICY),
    "sbx.DQN": (sbx.DQN, "discrete", OFF_POLICY),
    "sbx.CrossQ": (sbx.CrossQ, "box", OFF_POLICY),
    "sbx.PPO": (sbx.PPO, "box", PPO),
}


def make_guidance(schedule=None, gamma=GAMMA, h=heuristic):
    schedule = schedule or hurl.LinearSchedule(0.2, iterations=5)
    return hurl.Guidance(h, schedule, gamma=gamma, steps_per_iteration=20)


def build(name, walk, **options):
    algorithm, action, settings = ALGORITHMS[name]
    policy = "MlpLstmPolicy" if name.endswith("RecurrentPPO") else "MlpPolicy"
    small = {"net_arch": [8]} if "PPO" in name or "DQN" in name or "A2C" in name or "TRPO" in name else {
        "net_arch": {"pi": [8], "qf": [8]}
    }  # fmt: skip
    settings = {"guidance": make_guidance(), "seed": 0, "policy_kwargs": small} | settings | options
    return hurl.guided(algorithm)(policy, walk(action=action), **settings)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_saves_and_goes_on(name, walk, tmp_path):
    model = build(name, walk).learn(60)
    assert (model.guidance.steps, model.guidance.iteration) == (60, 3)
    assert model.guidance.lambda_ == pytest.approx(0.6)

    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=walk(action=ALGORITHMS[name][1]))
    assert (loaded.guidance.steps, loaded.guidance.lambda_) == (60, model.guidance.lambda_)
    observations = model.env.reset()
    np.testing.assert_array_equal(
        model.predict(observations, deterministic=True)[0], loaded.predict(observations, deterministic=True)[0]
    )
    loaded.learn(20, reset_num_timesteps=False)
    assert loaded.guidance.steps == 80


def test_result_is_a_subclass_with_two_more_keywords():
    guided = hurl.guided(sb3.SAC)
    assert issubclass(guided, sb3.SAC)
    assert hurl.guided(guided) is guided is hurl.guided(sb3.SAC)
    expected = {*inspect.signature(sb3.SAC).parameters, "guidance", "prior"}
    assert set(inspect.signature(guided).parameters) == expected


def test_gamma_comes_from_the_guidance(walk):
    assert build("sb3.SAC", walk, guidance=make_guidance(gamma=0.8)).gamma == 0.8
    assert build("sb3.SAC", walk, gamma=GAMMA).gamma == GAMMA
    with pytest.raises(ValueError, match=r"gamma is 0.5 for the algorithm and 0.9 for its guidance"):
        build("sb3.PPO", walk, gamma=0.5)


def test_models_given_the_same_guidance_count_apart(walk):
    guidance = make_guidance()
    first, second = (build("sb3.DQN", walk, guidance=guidance) for _ in range(2))
    first.learn(40)
    assert (first.guidance.steps, second.guidance.steps, guidance.steps) == (40, 0, 0)


def test_new_guidance_can_be_given_at_loading(walk, tmp_path):
    build("sb3.PPO", walk).learn(20).save(tmp_path / "model")
    other = make_guidance(hurl.ConstantSchedule(0.3))
    loaded = hurl.guided(sb3.PPO).load(tmp_path / "model", env=walk(action="discrete"), guidance=other)
    assert (loaded.guidance.lambda_, loaded.gamma) == (0.3, pytest.approx(0.3 * GAMMA))


def test_an_unguided_model_can_be_guided_from_its_file(walk, tmp_path):
    plain = sb3.DQN("MlpPolicy", walk(action="discrete"), gamma=GAMMA, **OFF_POLICY).learn(40)
    plain.save(tmp_path / "model")
    with pytest.raises(TypeError, match=r"holds a model without guidance: load it with guidance=.*or by DQN\.load"):
        hurl.guided(sb3.DQN).load(tmp_path / "model")
    model = hurl.guided(sb3.DQN).load(tmp_path / "model", env=walk(action="discrete"), guidance=make_guidance())
    assert model.learn(20).guidance.steps == 20


@pytest.mark.parametrize("name", ["sb3.SAC", "sb3.PPO"])
def test_set_env_keeps_the_guidance(name, walk):
    model = build(name, walk).learn(40)
    model.set_env(walk(action=ALGORITHMS[name][1]))
    assert model.learn(20, reset_num_timesteps=False).guidance.steps == 60


@pytest.mark.parametrize("name", ["sb3.SAC", "sb3.PPO"])
def test_tensorboard_shows_lambda_discount_and_h(name, walk, tmp_path):
    model = build(name, walk)
    model.set_logger(configure(str(tmp_path), ["tensorboard"]))
    model.learn(60, log_interval=1)
    events = EventAccumulator(str(tmp_path)).Reload()
    last = {tag: events.Scalars(f"guidance/{tag}")[-1] for tag in ("lambda", "discount", "h_mean", "h_min", "h_max")}
    step = last["lambda"].step
    lambda_ = hurl.LinearSchedule(0.2, iterations=5)(-(-step // 20))
    assert last["lambda"].value == pytest.approx(lambda_)
    assert last["discount"].value == pytest.approx(lambda_ * GAMMA)
    assert last["h_min"].value < last["h_mean"].value < last["h_max"].value


def test_a_broken_heuristic_stops_the_run(walk):
    model = build("sb3.PPO", walk, guidance=make_guidance(h=lambda s: heuristic(s)[:, None]))
    with pytest.raises(hurl.HeuristicError, match=r"shape \(1, 1\) for 1 observations"):
        model.learn(20)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (sb3_contrib.ARS, "ARS can't be guided"),
        (np.ndarray, "takes an algorithm class"),
        ("SAC", "takes an algorithm class.*'SAC'"),
    ],
)
def test_what_cannot_be_guided_is_refused(algorithm, message):
    with pytest.raises(TypeError, match=message):
        hurl.guided(algorithm)


def test_guidance_must_be_given(walk):
    with pytest.raises(TypeError, match="GuidedSAC needs guidance="):
        hurl.guided(sb3.SAC)("MlpPolicy", walk())
    for algorithm in (sb3.DQN, sb3.PPO):
        with pytest.raises(TypeError, match=r"guidance must be a hurl\.Guidance"):
            hurl.guided(algorithm)("MlpPolicy", walk(action="discrete"), guidance=heuristic)


def test_a_buffer_put_in_by_hand_is_guided(walk):
    model = build("sb3.SAC", walk).learn(30)
    other = build("sb3.SAC", walk).learn(20)
    model.replay_buffer = sb3.SAC("MlpPolicy", walk(), **OFF_POLICY).learn(20).replay_buffer
    model.learn(10)
    assert model.guidance.steps == 40
    assert model.replay_buffer.rewards.shape == (500, 1)
    model.replay_buffer = other.replay_buffer
    model.learn(10)
    assert (model.guidance.steps, other.guidance.steps) == (50, 20)


def test_a_model_saved_in_the_middle_of_a_rollout_keeps_the_true_count(walk, tmp_path):
    model = build("sb3.PPO", walk)
    model.learn(60, callback=CheckpointCallback(10, str(tmp_path), name_prefix="model"))
    loaded = hurl.guided(sb3.PPO).load(tmp_path / "model_30_steps")
    assert (loaded.num_timesteps, loaded.guidance.steps, loaded.guidance.iteration) == (30, 30, 2)
