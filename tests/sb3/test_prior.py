"""Logged data in the batches: the share that was asked for, of the same reshaped MDP as the agent's own."""

import dataclasses
import re
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import sbx
import stable_baselines3 as sb3
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import hurl
from hurl.data import DatasetError, Episodes
from hurl.heuristics.engineered import zero
from hurl.sb3.prior import check_share, logged_rows, trajectory_coefficients
from tests.data.examples import write_minari
from tests.sb3.conftest import GAMMA, LENGTH, ByHand, Walk, differ, heuristic, leaves
from tests.sb3.test_replay import columns

FIRST = 50  # the number of the first logged episode, which no agent's own reaches
OPTIONS = {"buffer_size": 300, "learning_starts": 10, "batch_size": 16, "policy_kwargs": {"net_arch": [8]}, "seed": 0}


def logged(episodes=8, action="box"):
    """Episodes of the walk that are numbered from `FIRST` on, actions between −1 and 1."""
    env = Walk(action)
    numbers = FIRST + np.arange(episodes)
    states = [[(number, time) for time in range(LENGTH + 1)] for number in numbers]
    count = episodes * LENGTH
    actions = np.linspace(-1, 1, count)[:, None] if action == "box" else np.arange(count) % 2
    return Episodes(
        states=np.array(states, np.float32).reshape(-1, 2),
        actions=actions,
        rewards=np.array([10.0 * number + time for number in numbers for time in range(LENGTH)]),
        lengths=np.full(episodes, LENGTH),
        terminated=numbers % 2 == 1,
        observation_space=env.observation_space,
        action_space=env.action_space,
        name="walk/logged-v0",
    )


def learn(env, prior=None, algorithm=sb3.SAC, lambda_=0.6, steps=40, **options):
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(lambda_), gamma=GAMMA)
    prior = prior or hurl.PriorData(logged())
    return hurl.guided(algorithm)(
        "MlpPolicy", env, guidance=guidance, prior=prior, **deepcopy(OPTIONS) | options
    ).learn(steps)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_of_every_batch_is_logged_and_all_of_it_reshaped(walk, share):
    model = learn(walk(2), hurl.PriorData(logged(), share), steps=80)
    by_hand, seen = ByHand(0.6), set()
    samples = model.replay_buffer.sample(400)
    for (episode, time), reward, done, discount in columns(samples):
        assert reward == pytest.approx(by_hand.reward(episode, time), rel=1e-5)
        assert done == by_hand.terminated(episode, time)
        assert discount == pytest.approx(by_hand.discount)
        seen.add((bool(episode >= FIRST), int(episode % 2), int(time) + 1 == LENGTH))
    assert len(seen) == 8, "running, truncated and terminal steps of both"
    is_logged = samples.observations.numpy()[:, 0] >= FIRST
    np.testing.assert_array_equal(is_logged, logged_rows(400, share))
    assert is_logged.reshape(-1, 20).sum(1) == pytest.approx(share * 20, abs=1)  # also where it is cut into batches


def test_logged_observations_and_actions_belong_together(walk):
    model = learn(walk())
    samples = model.replay_buffer.sample(64)
    rows = samples.observations.numpy()[:, 0] >= FIRST
    (numbers, times), following = samples.observations.numpy()[rows].T, samples.next_observations.numpy()[rows]
    index = ((numbers - FIRST) * LENGTH + times).astype(int)
    np.testing.assert_allclose(samples.actions.numpy()[rows, 0], logged().actions[index, 0], rtol=1e-6)
    np.testing.assert_array_equal(following, np.stack([numbers, times + 1], 1))


def test_heuristic_is_called_once_for_each_logged_transition(walk):
    asked = []

    def watched(observations):
        asked.append((observations[:, 0] >= FIRST).sum())
        return heuristic(observations)

    guidance = hurl.Guidance(watched, hurl.ConstantSchedule(0.6), gamma=GAMMA)
    data = logged()
    hurl.guided(sb3.SAC)("MlpPolicy", walk(), guidance=guidance, prior=hurl.PriorData(data), **deepcopy(OPTIONS)).learn(
        60
    )
    assert sum(asked) == data.transitions


def test_time_limits_end_logged_episodes_too_where_a_buffer_takes_them_for_ends(walk):
    buffer = {"replay_buffer_kwargs": {"handle_timeout_termination": False}}
    for (episode, time), reward, done, _ in columns(learn(walk(), **buffer).replay_buffer.sample(300)):
        if episode >= FIRST:
            assert done == (time + 1 == LENGTH)
            assert not done or reward == 10.0 * episode + time


def test_n_step_returns_end_with_the_logged_episode(walk):
    model = learn(walk(), n_steps=3)
    by_hand, lengths = ByHand(0.6), set()
    for (episode, time), reward, done, discount in columns(model.replay_buffer.sample(300)):
        if episode < FIRST:
            continue
        times = range(time, min(time + 3, LENGTH))
        expected = sum(by_hand.discount**k * by_hand.reward(episode, t) for k, t in enumerate(times))
        assert reward == pytest.approx(expected, rel=1e-5)
        assert discount == pytest.approx(by_hand.discount ** len(times), rel=1e-5)
        assert done == by_hand.terminated(episode, times[-1])
        lengths.add(len(times))
    assert lengths == {1, 2, 3}


def test_actions_are_scaled_as_the_policy_puts_them_out(walk):
    wide = spaces.Box(-4, 4, (1,), np.float32)
    env = DummyVecEnv([lambda: gym.wrappers.RescaleAction(Walk(), -4, 4)])
    data = dataclasses.replace(logged(), actions=4 * logged().actions, action_space=wide)
    model = learn(env, hurl.PriorData(data, 0.9))
    actions = model.replay_buffer.sample(400).actions.numpy()
    assert 0.9 < np.abs(actions).max() <= 1.0


def test_normalised_environments(walk):
    env = VecNormalize(walk(), gamma=GAMMA)
    model = learn(env)
    raw, normalised = (model.replay_buffer.sample for _ in range(2))
    np.random.seed(3)  # noqa: NPY002 - what Stable-Baselines3 samples with
    raw = raw(64)
    np.random.seed(3)  # noqa: NPY002
    normalised = normalised(64, env=env)
    np.testing.assert_allclose(
        normalised.observations, env.normalize_obs(raw.observations.numpy()), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(normalised.rewards, env.normalize_reward(raw.rewards.numpy()), rtol=1e-4)


def test_a_new_discount_holds_for_logged_data_too(walk):
    model = learn(walk())
    model.gamma = 0.5
    samples = model.replay_buffer.sample(64)
    for (episode, time), reward, done, discount in columns(samples):
        if episode >= FIRST and not done:
            assert reward == pytest.approx(10 * episode + time + 0.4 * 0.5 * (100 - 3 * (time + 1) + episode), rel=1e-5)
            assert discount == pytest.approx(0.3)


def test_blended_returns_by_rank(walk):
    model = learn(walk(), hurl.PriorData(logged(), blend=0.5))
    data = logged()
    np.testing.assert_allclose(trajectory_coefficients(data, 0.5), 1 - 0.5 * np.arange(1, 9) / 8)
    for (episode, time), reward, _, discount in columns(model.replay_buffer.sample(200)):
        if episode < FIRST:
            assert reward == pytest.approx(ByHand(0.6).reward(episode, time), rel=1e-5)
            continue
        coefficient = 1 - 0.5 * (episode - FIRST + 1) / 8
        following = sum(GAMMA ** (t - time) * (10 * episode + t) for t in range(time + 1, LENGTH))
        if episode % 2 == 0:  # cut at a time limit, after which h is what is known
            following += GAMMA ** (LENGTH - time) * (100 - 3 * LENGTH + episode)
        assert reward == pytest.approx(10 * episode + time + (1 - coefficient) * following, rel=1e-4)
        assert discount == pytest.approx(coefficient * GAMMA)


def test_without_guidance_nothing_is_reshaped(walk):
    model = hurl.guided(sb3.SAC)(
        "MlpPolicy", walk(), prior=hurl.PriorData(logged()), gamma=GAMMA, **deepcopy(OPTIONS)
    ).learn(40)
    for (episode, time), reward, _, discount in columns(model.replay_buffer.sample(100)):
        assert reward == 10 * episode + time
        assert discount == pytest.approx(GAMMA)


@pytest.mark.parametrize("algorithm", [sb3.SAC, sb3.TD3, sb3_contrib.TQC, sbx.SAC, sbx.TQC, sbx.TD3])
def test_algorithms_learn_from_it(walk, algorithm):
    """Data that differs in its rewards alone gives other networks, after updates that change nothing else."""
    costly = dataclasses.replace(logged(), rewards=-logged().rewards)
    first, second, third = (
        leaves(learn(walk(), hurl.PriorData(data), algorithm)) for data in (logged(), logged(), costly)
    )
    assert not differ(first, second)
    assert differ(first, third)


@pytest.mark.parametrize("algorithm", [sb3.DQN, sbx.DQN])
def test_discrete_actions(walk, algorithm):
    env = walk(action="discrete")
    model = learn(env, hurl.PriorData(logged(action="discrete")), algorithm)
    samples = model.replay_buffer.sample(50)
    rows = samples.observations.numpy()[:, 0] >= FIRST
    assert set(samples.actions.numpy()[rows].ravel()) == {0, 1}


def test_every_rung_of_a_ladder_has_it(walk):
    guidance = hurl.Guidance(heuristic, hurl.Ladder(0.5, 1.0), gamma=GAMMA)
    model = hurl.guided(sb3.SAC)(
        "MlpPolicy", walk(), guidance=guidance, prior=hurl.PriorData(logged()), **deepcopy(OPTIONS)
    )
    model.learn(40)
    for rung, lambda_ in enumerate((0.5, 1.0)):
        with model.on_rung(rung):
            for (episode, time), reward, _, discount in columns(model.replay_buffer.sample(50)):
                assert reward == pytest.approx(ByHand(lambda_).reward(episode, time), rel=1e-5)
                assert discount == pytest.approx(lambda_ * GAMMA)


def test_the_data_is_in_memory_once(walk):
    data = logged()
    model = learn(walk(), hurl.PriorData(data))
    kept = model.replay_buffer.logged
    assert np.shares_memory(kept.states, data.states)
    arrays = {name: value for name, value in vars(kept).items() if isinstance(value, np.ndarray)}
    arrays |= {name: value for name, value in vars(kept.episodes).items() if isinstance(value, np.ndarray)}
    read = [getattr(data, field.name) for field in dataclasses.fields(data)]
    own = [array for array in arrays.values() if not any(array is value for value in read)]
    beside = 14 * data.transitions + 8 * len(data)  # the ends of the episodes, too
    assert 5 * data.transitions <= sum(array.nbytes for array in own) <= beside


def test_the_folder_of_the_data_may_be_a_text(walk, tmp_path, monkeypatch):
    write_minari(tmp_path, logged(), dataset_id="walk/logged-v0", monkeypatch=monkeypatch)
    kept = learn(walk(), hurl.PriorData("walk/logged-v0", root=str(tmp_path))).replay_buffer.logged
    np.testing.assert_array_equal(kept.states, logged().states)


def test_a_saved_model_says_what_it_goes_on_without(walk, tmp_path):
    model = learn(walk())
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay")
    kind = hurl.guided(sb3.SAC)
    with pytest.warns(UserWarning, match="learnt from the logged data walk/logged-v0, which its file does not hold"):
        kind.load(tmp_path / "model", env=walk()).learn(1)
    loaded = kind.load(tmp_path / "model", env=walk(), prior=hurl.PriorData(logged()))
    loaded.load_replay_buffer(tmp_path / "replay")
    assert loaded.replay_buffer.sample(8).observations.numpy()[:, 0].max() >= FIRST


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"share of prior data in a batch must lie between 0 and 1, got"):
        hurl.PriorData(logged(), share)


def test_returns_are_not_blended_into_the_problem_itself(walk):
    guidance = hurl.Guidance(heuristic, hurl.Ladder(0.5, 1.0), gamma=GAMMA)
    prior = hurl.PriorData(logged(), blend=0.5)
    model = hurl.guided(sb3.SAC)("MlpPolicy", walk(), guidance=guidance, prior=prior, **deepcopy(OPTIONS)).learn(40)
    with model.on_rung(1):
        for (episode, time), reward, _, discount in columns(model.replay_buffer.sample(50)):
            assert (reward, discount) == (10 * episode + time, pytest.approx(GAMMA))
    with model.on_rung(0):
        assert len(set(model.replay_buffer.sample(50).discounts.numpy().ravel().tolist())) > 2


def test_with_one_rung_returns_are_blended_as_with_a_constant_lambda(walk):
    discounts = []
    for schedule in (hurl.Ladder(1.0), hurl.ConstantSchedule(1.0)):
        guidance = hurl.Guidance(heuristic, schedule, gamma=GAMMA)
        prior = hurl.PriorData(logged(), blend=0.5)
        model = hurl.guided(sb3.SAC)("MlpPolicy", walk(), guidance=guidance, prior=prior, **deepcopy(OPTIONS)).learn(40)
        assert model.guidance.changes_nothing
        discounts.append(sorted(set(model.replay_buffer.sample(400).discounts.numpy().ravel().round(6).tolist())))
    assert discounts[0] == discounts[1]
    assert len(discounts[0]) > 2


def test_prior_data_alone_goes_on_with_a_model_that_had_none(walk, tmp_path):
    plain = sb3.SAC("MlpPolicy", walk(), gamma=GAMMA, **deepcopy(OPTIONS))
    plain.save(tmp_path / "plain")
    model = hurl.guided(sb3.SAC).load(tmp_path / "plain", env=walk(), prior=hurl.PriorData(logged())).learn(40)
    assert (model.guidance.lambda_, model.guidance.gamma) == (1.0, GAMMA)
    assert model.replay_buffer.sample(8).observations.numpy()[:, 0].max() >= FIRST


@pytest.mark.parametrize("batch_size", [2, 3, 4, 5, 10, 16, 100, 128, 250, 256, 500, 512, 1000, 1024, 4096])
def test_the_shares_that_are_advised_are_taken(batch_size):
    with pytest.raises(ValueError, match="take one from") as refused:
        check_share(0.0001, batch_size)
    least, most = re.search(r"from ([\d.]+) to ([\d.]+), or", str(refused.value)).groups()
    check_share(float(least), batch_size)
    check_share(float(most), batch_size)


def test_what_can_not_be(walk):
    with pytest.raises(ValueError, match=r"share of 0\.01 is 0 of the 16 transitions of a batch: take one from 0\.032"):
        learn(walk(), hurl.PriorData(logged(), 0.01))
    with pytest.raises(TypeError, match="share must be a number, got 'half'"):
        hurl.PriorData(logged(), "half")
    with pytest.raises(TypeError, match="share must be a number, got None"):
        hurl.PriorData(logged(), None)
    with pytest.raises(TypeError, match="prior data needs a dataset"):
        hurl.PriorData(None)
    with pytest.raises(TypeError, match=r"data is a Minari dataset, its id, .*, or episodes, got 5"):
        learn(walk(), hurl.PriorData(5))
    with pytest.raises(ValueError, match=r"blend=0\.5 needs a heuristic for what follows the time limits that end 4"):
        hurl.guided(sb3.SAC)("MlpPolicy", walk(), prior=hurl.PriorData(logged(), blend=0.5), **deepcopy(OPTIONS))
    told = hurl.Guidance(zero, hurl.ConstantSchedule(0.9), gamma=GAMMA)  # that nothing follows, by the user's word
    hurl.guided(sb3.SAC)(
        "MlpPolicy", walk(), guidance=told, prior=hurl.PriorData(logged(), blend=0.5), **deepcopy(OPTIONS)
    )
    with pytest.raises(ValueError, match="blend must be above 0 and at most 1, got 2"):
        hurl.PriorData(logged(), blend=2)
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(1.0), gamma=GAMMA, shaping="pbrs")
    with pytest.raises(ValueError, match=r"blend=0\.5 can't be had with shaping='pbrs': leave blend out"):
        hurl.guided(sb3.SAC)("MlpPolicy", walk(), guidance=guidance, prior=hurl.PriorData(logged(), blend=0.5))
    with pytest.raises(DatasetError, match=r"has 7 transitions, fewer than the 8 that a batch of 16 takes"):
        learn(walk(), hurl.PriorData(logged(1)))
    with pytest.raises(DatasetError, match=r"actions of Discrete\(2\), but the model's are of Box"):
        learn(walk(), hurl.PriorData(logged(action="discrete")))
    with pytest.raises(TypeError, match=r"prior must be a hurl\.PriorData, got 'data'"):
        learn(walk(), "data")
    with pytest.raises(TypeError, match="PPO learns from its own rollouts alone and can't take prior data"):
        hurl.guided(sb3.PPO)("MlpPolicy", walk(), prior=hurl.PriorData(logged()))


def test_dictionaries_of_observations_are_refused():
    env = sb3.common.envs.BitFlippingEnv(n_bits=3, continuous=True)
    with pytest.raises(ValueError, match=r"dictionaries of observations.*gymnasium's FlattenObservation"):
        hurl.guided(sb3.SAC)("MultiInputPolicy", env, prior=hurl.PriorData(logged()))


def test_hindsight_replay_is_refused():
    env = sb3.common.envs.BitFlippingEnv(n_bits=3, continuous=True)
    guidance = hurl.Guidance(lambda goals: np.zeros(len(goals["desired_goal"])), gamma=0.9)
    with pytest.raises(ValueError, match="prior data can't be had with hindsight replay"):
        hurl.guided(sb3.SAC)(
            "MultiInputPolicy",
            env,
            guidance=guidance,
            prior=hurl.PriorData(logged()),
            replay_buffer_class=sb3.HerReplayBuffer,
        )
