"""A jump start: a frozen copy of the policy begins every training episode, for fewer and fewer steps."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
import sb3_contrib
import sbx
import stable_baselines3 as sb3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hurl
from hurl.sb3 import JumpStart, internals, jump_started, warm_start
from hurl.sb3.jump_start import Curriculum
from tests.experiments.swinging import pushing_episodes
from tests.sb3.conftest import LENGTH
from tests.sb3.test_algorithms import ALGORITHMS, OFF_POLICY, make_guidance
from tests.sb3.test_identity import CASES, train
from tests.sb3.test_ladder import Images

NAMES = [name for name, (algorithm, _, _) in ALGORITHMS.items() if issubclass(algorithm, sb3.SAC.__mro__[1])]
QUICK = JumpStart(stages=2, tolerance=0.05, window=2, episodes=2)


def build(name, env, jump_start=QUICK, **options):
    algorithm, _, settings = ALGORITHMS[name]
    small = {"net_arch": [8]} if "DQN" in name else {"net_arch": {"pi": [8], "qf": [8]}}
    settings = {"seed": 0, "policy_kwargs": small, "jump_start": jump_start} | settings | options
    return jump_started(algorithm)("MlpPolicy", env, **settings)


def play(curriculum, length, pay, environments=1):
    """Play one episode of this length in each environment; return in how many steps the guide acted."""
    acted = 0
    for step in range(length):
        acted += int(curriculum.guided(environments).sum())
        dones = np.full(environments, step == length - 1)
        curriculum.observe(np.full(environments, pay / length), dones)
    return acted


# The curriculum ------------------------------------------------------------------------------------------------------


def test_the_guides_steps_fall_by_equal_stages_from_the_length_of_its_own_episodes():
    curriculum = Curriculum(JumpStart(stages=5, window=1, episodes=1))
    assert [play(curriculum, 20, 1.0) for _ in range(8)] == [20, 16, 16, 12, 8, 4, 0, 0]
    assert (curriculum.stage, curriculum.horizon) == (5, 0)


def test_a_stage_lasts_until_the_moving_average_is_within_the_tolerance_of_the_best():
    curriculum = Curriculum(JumpStart(stages=10, tolerance=0.1, window=2, episodes=1))
    play(curriculum, 10, 555.0)  # of the guide alone: it tells a length, and is no best return

    def stages(*returns):
        found = []
        for paid in returns:
            play(curriculum, 10, paid)
            found.append(curriculum.stage)
        return found

    assert stages(100.0, 100.0) == [1, 1]  # the first average is what later ones are compared with
    assert stages(80.0) == [2]  # 90, just near enough
    assert stages(80.0, 60.0) == [2, 2]
    assert stages(140.0) == [3]  # 100 again
    assert stages(140.0, 110.0) == [4, 4]  # 140 is the best now, 125 is not near enough


def test_the_tolerance_is_below_returns_that_are_negative_too():
    curriculum = Curriculum(JumpStart(stages=10, tolerance=0.1, window=1, episodes=1))
    play(curriculum, 10, -1.0)
    for paid, stage in ((-100.0, 1), (-115.0, 1), (-109.0, 2)):
        play(curriculum, 10, paid)
        assert curriculum.stage == stage


def test_an_evaluation_is_of_several_episodes_of_any_environment():
    curriculum = Curriculum(JumpStart(stages=4, window=1, episodes=4))
    assert play(curriculum, 8, 1.0, environments=3) == 24
    assert curriculum.stage == 0
    play(curriculum, 8, 1.0, environments=3)
    assert (curriculum.stage, curriculum.horizon) == (1, 6)


def test_the_guides_length_is_not_that_of_its_shortest_episodes():
    curriculum = Curriculum(JumpStart(stages=1, episodes=2))
    for step in range(1, 31):
        assert curriculum.stage == 0
        curriculum.guided(3)
        curriculum.observe(np.zeros(3), step % np.array([5, 10, 30]) == 0)
    assert curriculum._guide_length == 15  # the first of each environment


def test_the_guides_length_is_the_mean_with_many_environments():
    generator, curriculum = np.random.default_rng(0), Curriculum(JumpStart())
    lengths = generator.normal(300, 50, size=64).astype(int)
    for step in range(1, lengths.max() + 1):
        curriculum.guided(64)
        curriculum.observe(np.zeros(64), step % lengths == 0)
    assert curriculum._guide_length == lengths.mean()


def test_episodes_under_way_are_forgotten_and_the_state_goes_on():
    settings = JumpStart(stages=10, window=2, episodes=2)
    first = Curriculum(settings)
    for paid in range(7):
        play(first, 10, float(paid))
    second = Curriculum(settings)
    second.restore(first.state())
    for curriculum in (first, second):
        curriculum.guided(1)
        curriculum.observe(np.array([77.0]), np.array([False]))
        curriculum.abandon_episodes()
        assert [play(curriculum, 10, 5.0) for _ in range(9)] == [9, 8, 8, 7, 7, 6, 6, 5, 5]
    assert first.state() == second.state()


def test_the_guides_length_counts_no_episode_that_was_cut_off():
    settings = JumpStart(stages=1, episodes=2)
    first, second = Curriculum(settings), Curriculum(settings)
    play(first, 10, 1.0)
    for _ in range(4):
        first.guided(1)
        first.observe(np.zeros(1), np.array([False]))
    second.restore(first.state())
    first.abandon_episodes()
    for curriculum in (first, second):
        with pytest.warns(UserWarning, match=r"17% of the guide's steps were in episodes that resets cut off"):
            play(curriculum, 10, 1.0)
        assert curriculum._guide_length == 10


def test_long_episodes_that_resets_always_cut_off_keep_the_guide_from_its_stages_no_longer():
    """Of four environments one has episodes that are longer than a run goes on without a reset."""
    curriculum = Curriculum(JumpStart(stages=1, episodes=8))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for step in range(1, 301):
            curriculum.guided(4)
            curriculum.observe(np.zeros(4), step % np.array([5, 5, 5, 1000]) == 0)
            if step % 50 == 0:
                curriculum.abandon_episodes()
    assert curriculum.stage == 1
    assert curriculum._guide_length == (5 + 5 + 5 + 50) / 4
    assert "no episode has ended in 50 steps" in str(warned[0].message)
    assert "of the guide's steps were in episodes that resets cut off" in str(warned[1].message)


def test_a_guide_whose_episodes_never_end_is_warned_of():
    curriculum = Curriculum(QUICK)
    curriculum.abandon_episodes()
    for _ in range(4):
        curriculum.guided(2)
        curriculum.observe(np.zeros(2), np.zeros(2, bool))
    with pytest.warns(UserWarning, match=r"no episode has ended in 4 steps of an environment.*raise checkpoint_every"):
        curriculum.abandon_episodes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 0}, "stages must be a whole number from 1 to .*, got 0"),
        ({"window": 0}, "window must be a whole number from 1 to .*, got 0"),
        ({"episodes": -1}, "episodes must be a whole number from 1 to .*, got -1"),
        ({"tolerance": -0.1}, r"tolerance must be a number from 0 to below 1, got -0.1"),
        ({"tolerance": float("nan")}, "tolerance must be a number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        JumpStart(**settings)


# Algorithms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [name for name in CASES if "PPO" not in name])
def test_without_a_guide_it_is_the_base_algorithm(case):
    algorithm, env_id, options = CASES[case]
    base = train(algorithm, env_id, **options)
    for expected, found in zip(base, train(jump_started(algorithm), env_id, **options), strict=True):
        np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_learns_with_a_guide_that_stays_as_it_is_saves_and_goes_on(name, walk, tmp_path):
    env = walk(action=ALGORITHMS[name][1])
    model = build(name, env)
    observations = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    before = model.policy.predict(observations, deterministic=True)[0]
    model.take_guide()
    model.learn(200)
    np.testing.assert_array_equal(model.guide.predict(observations, deterministic=True)[0], before)
    assert model.curriculum.stage == 2  # returns of the walk rise

    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=env)
    assert loaded.curriculum.state() == model.curriculum.state()
    assert loaded.jump_start == model.jump_start
    np.testing.assert_array_equal(loaded.guide.predict(observations, deterministic=True)[0], before)
    np.testing.assert_array_equal(
        loaded.predict(observations, deterministic=True)[0], model.predict(observations, deterministic=True)[0]
    )
    loaded.learn(20, reset_num_timesteps=False)


@pytest.mark.parametrize("name", ["sb3.SAC", "sb3.DQN", "sbx.SAC"])
def test_the_guide_acts_first_and_the_learner_after_it(name, walk):
    environments = 3
    env = walk(n_envs=environments, action=ALGORITHMS[name][1])
    model = build(name, env, JumpStart(stages=2, window=50, episodes=3))
    model.take_guide()
    model.learn(300)
    horizon = int(np.ceil(LENGTH / 2))
    assert model.curriculum.horizon == LENGTH / 2
    buffer = model.replay_buffer
    actions, seen = buffer.actions[: buffer.pos], buffer.observations[: buffer.pos]
    chosen = np.stack([model.guide.predict(rows, deterministic=True)[0] for rows in seen])
    by_guide = np.isclose(actions, chosen.reshape(actions.shape), atol=1e-6).all(axis=2)
    time, first = seen[:, :, 1], seen[:, :, 0] == 0
    assert by_guide[first].all()  # alone, until the length of its episodes is known
    assert by_guide[~first & (time < horizon)].all()
    assert not by_guide[~first & (time >= horizon)].all()


def test_learning_without_a_guide_is_warned_of(walk):
    model = jump_started(sb3.TD3)("MlpPolicy", walk(), learning_starts=10, buffer_size=100)
    with pytest.warns(UserWarning, match=r"no guide begins the episodes: .* call model\.take_guide\(\) before learn"):
        model.learn(20)


def test_the_guide_is_deterministic_where_the_learner_explores(walk):
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.5))
    model = build("sb3.TD3", walk(), action_noise=noise)
    model.take_guide()
    model.learn(2, log_interval=None)
    buffer = model.replay_buffer
    chosen = model.guide.predict(buffer.observations[:2, 0], deterministic=True)[0]
    np.testing.assert_allclose(buffer.actions[:2, 0], chosen, atol=1e-6)


def test_actions_in_the_units_of_the_environment():
    model = build("sb3.SAC", "Pendulum-v1")
    warm_start(model, pushing_episodes(), epochs=2)
    model.take_guide()
    model.learn(5)
    buffer = model.replay_buffer
    chosen = model.guide.predict(buffer.observations[:5, 0], deterministic=True)[0]
    assert np.abs(chosen).max() > 0.01
    np.testing.assert_allclose(2 * buffer.actions[:5, 0], chosen, atol=1e-5)  # torques are in [−2, 2]


def test_returns_are_as_they_were_paid(walk):
    model = build("sb3.SAC", VecNormalize(walk(), norm_obs=False), JumpStart(episodes=1, window=3))
    model.take_guide()
    model.learn(4 * LENGTH)
    paid = sum(range(LENGTH))
    assert model.curriculum.state()["evaluations"] == [paid + 10 * LENGTH * episode for episode in (1, 2, 3)]


def test_a_guide_that_would_change_with_what_normalises_is_refused(walk):
    model = build("sb3.SAC", VecNormalize(walk()), QUICK)
    with pytest.raises(ValueError, match=r"a jump start can't be had with normalised observations, .*norm_obs=False"):
        model.take_guide()


def test_images_and_dictionaries(walk):
    small = {"features_extractor_kwargs": {"features_dim": 4}, "net_arch": [4]}
    model = jump_started(sb3.DQN)("CnnPolicy", Images(), policy_kwargs=small, jump_start=QUICK, seed=0, **OFF_POLICY)
    model.take_guide()
    model.learn(9)
    buffer = model.replay_buffer
    guide = [model.guide.predict(image[0], deterministic=True)[0] for image in buffer.observations[:9]]
    np.testing.assert_array_equal(buffer.actions[:9].ravel(), np.ravel(guide))
    assert model.learn(80).curriculum.stage > 0
    options = {"policy_kwargs": {"net_arch": [4]}, "jump_start": QUICK, "seed": 0} | OFF_POLICY
    model = jump_started(sb3.SAC)("MultiInputPolicy", walk(observation="dict"), **options)
    model.take_guide()
    model.learn(LENGTH)
    buffer = model.replay_buffer
    spaces = model.observation_space
    seen = {name: values[:LENGTH, 0].reshape(-1, *spaces[name].shape) for name, values in buffer.observations.items()}
    guide, _ = model.guide.predict(seen, deterministic=True)
    np.testing.assert_allclose(model.policy.unscale_action(buffer.actions[:LENGTH, 0]), guide, atol=1e-5)
    assert model.learn(60).curriculum.stage > 0


def test_predict_is_the_learners_alone(walk):
    model = build("sb3.SAC", walk(), JumpStart(episodes=1000))
    model.take_guide()
    model.learn(200)
    observations = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    guided, learnt = (policy.predict(observations, deterministic=True)[0] for policy in (model.guide, model.policy))
    assert not np.array_equal(guided, learnt)
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], learnt)


def test_environments_may_change(walk):
    model = build("sb3.SAC", walk(), JumpStart(episodes=1000))
    model.take_guide()
    model.learn(50)
    model.set_env(walk())
    model.learn(3, reset_num_timesteps=False)
    assert model.curriculum._elapsed.tolist() == [3]
    model.learn(3, reset_num_timesteps=False)
    assert model.curriculum._elapsed.tolist() == [6]


def test_a_guide_taken_later_begins_new_episodes(walk):
    model = build("sb3.SAC", walk(), JumpStart(episodes=1000)).learn(50)
    model.take_guide()
    model.learn(3, reset_num_timesteps=False)
    assert model.replay_buffer.observations[50, 0, 1] == 0
    assert model.curriculum._elapsed.tolist() == [3]


def test_the_log_says_how_far_it_is(walk, tmp_path):
    model = build("sb3.SAC", walk())
    model.set_logger(configure(str(tmp_path), ["tensorboard"]))
    model.take_guide()
    model.learn(200)
    model.dump_logs()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Scalars("jump_start/stage")[-1].value == 2
    assert events.Scalars("jump_start/horizon")[-1].value == 0


def test_other_settings_can_be_given_at_loading(walk, tmp_path):
    model = build("sb3.SAC", walk())
    model.take_guide()
    model.learn(30).save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=walk(), jump_start=JumpStart(stages=4))
    assert loaded.curriculum.settings.stages == 4
    with pytest.raises(TypeError, match=r"jump_start must be a hurl\.sb3\.JumpStart, got 7"):
        type(model).load(tmp_path / "model", env=walk(), jump_start=7)


def test_result_is_a_subclass_that_is_made_once():
    assert issubclass(jump_started(sb3.SAC), sb3.SAC)
    assert jump_started(jump_started(sb3.SAC)) is jump_started(sb3.SAC)
    assert jump_started(sbx.SAC) is not jump_started(sb3.SAC)
    parameters = inspect.signature(jump_started(sb3.SAC)).parameters
    assert set(parameters) == {*inspect.signature(sb3.SAC).parameters, "jump_start"}


@pytest.mark.parametrize("algorithm", [sb3.PPO, sbx.PPO, sb3_contrib.TRPO, sb3_contrib.ARS, 7])
def test_what_learns_from_no_replay_is_refused(algorithm):
    with pytest.raises(TypeError, match=r"can't be jump-started, since .* off-policy only: take SAC"):
        jump_started(algorithm)


@pytest.mark.parametrize(
    "combine", [lambda: jump_started(hurl.guided(sb3.SAC)), lambda: hurl.guided(jump_started(sb3.SAC))]
)
def test_guidance_and_a_jump_start_are_refused_together(combine, walk):
    with pytest.raises(TypeError, match="guidance and a jump start can't be had together"):
        combine()("MlpPolicy", walk(), guidance=make_guidance())


def test_the_actors_weights_can_be_taken_and_put_back(walk):
    for name in ("sb3.SAC", "sbx.CrossQ", "contrib.QRDQN", "sbx.DQN"):
        first, second = (build(name, walk(action=ALGORITHMS[name][1]), seed=seed) for seed in (0, 1))
        observations = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
        actions = [model.policy.predict(observations, deterministic=True)[0] for model in (first, second)]
        assert not np.array_equal(*actions)
        internals.write_actor(second.policy, internals.read_actor(first.policy))
        np.testing.assert_array_equal(second.policy.predict(observations, deterministic=True)[0], actions[0])


def test_its_classes_are_pickled_by_what_they_start():
    for kind in (jump_started(sbx.SAC), jump_started(sb3.TD3)):
        assert pickle.loads(pickle.dumps(kind)) is kind
