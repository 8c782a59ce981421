import numpy as np
import pytest
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import hurl
from hurl.guidance import HeuristicError
from tests.sb3.conftest import GAMMA, LENGTH, ByHand, heuristic

STEPS = 40


def collect(env, lambda_=0.6, shaping="hurl", h=heuristic, steps=STEPS, policy="MlpPolicy", **options):
    """Fill a guided SAC's replay buffer, without training."""
    guidance = hurl.Guidance(h, hurl.ConstantSchedule(lambda_), gamma=GAMMA, shaping=shaping)
    options = {"buffer_size": 1000, "policy_kwargs": {"net_arch": [8]}} | options
    return hurl.guided(SAC)(policy, env, guidance=guidance, learning_starts=10_000, seed=0, **options).learn(steps)


def columns(samples):
    """Return (episode, time), reward, done and discount of each sample."""
    observations = samples.observations["walk"] if isinstance(samples.observations, dict) else samples.observations
    return zip(
        observations.numpy().astype(int),
        samples.rewards.numpy()[:, 0],
        samples.dones.numpy()[:, 0],
        samples.discounts.numpy()[:, 0],
        strict=True,
    )


@pytest.mark.parametrize("shaping", ["hurl", "pbrs", "discounted-pbrs"])
@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("n_envs", "observation", "policy"),
    [(1, "box", "MlpPolicy"), (3, "box", "MlpPolicy"), (2, "dict", "MultiInputPolicy")],
)
def test_samples_are_those_of_the_reshaped_mdp(walk, shaping, lambda_, n_envs, observation, policy):
    model = collect(walk(n_envs, observation=observation), lambda_, shaping, policy=policy, steps=STEPS * n_envs)
    by_hand = ByHand(lambda_, shaping)
    seen = set()
    for (episode, time), reward, done, discount in columns(model.replay_buffer.sample(400)):
        assert reward == pytest.approx(by_hand.reward(episode, time), abs=1e-4)
        assert done == by_hand.terminated(episode, time)
        assert discount == pytest.approx(by_hand.discount)
        seen.add((int(episode % 2), int(time) + 1 == LENGTH))
    assert seen == {(0, False), (0, True), (1, False), (1, True)}, "running, truncated and terminal steps"


def halve_in_place(observations):
    for array in observations.values() if isinstance(observations, dict) else [observations]:
        array //= 2
    return np.zeros(len(array))


def test_a_heuristic_that_writes_changes_neither_what_is_stored_nor_what_is_relabelled(walk):
    with pytest.raises(HeuristicError, match=r"test_replay:halve_in_place writes into the observations"):
        collect(walk(), h=halve_in_place)
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=6, continuous=True, max_steps=6)])
    options = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 4}}
    model = collect(env, h=lambda s: np.zeros(len(s["observation"])), steps=60, policy="MultiInputPolicy", **options)
    stored = {key: array.copy() for key, array in model.replay_buffer.observations.items()}
    model.guidance.heuristic = halve_in_place
    with pytest.raises(HeuristicError, match="writes into the observations"):
        model.replay_buffer.sample(100)
    for key, array in model.replay_buffer.observations.items():
        np.testing.assert_array_equal(array, stored[key])


def test_lambda_is_that_of_the_moment_of_sampling(walk):
    schedule = hurl.LinearSchedule(0.0, iterations=3)
    guidance = hurl.Guidance(heuristic, schedule, gamma=GAMMA, steps_per_iteration=10)
    model = hurl.guided(SAC)("MlpPolicy", walk(), guidance=guidance, buffer_size=100, learning_starts=1000)
    for steps, lambda_ in [(10, 0.0), (20, 0.5), (30, 1.0)]:
        model.learn(10, reset_num_timesteps=False)
        assert (model.guidance.steps, model.guidance.lambda_) == (steps, lambda_)
        for (episode, time), reward, _, discount in columns(model.replay_buffer.sample(50)):
            assert reward == pytest.approx(ByHand(lambda_).reward(episode, time), abs=1e-4)
            assert discount == pytest.approx(lambda_ * GAMMA)


@pytest.mark.parametrize("shaping", ["hurl", "pbrs"])
def test_n_step_returns(walk, shaping):
    model = collect(walk(), 0.6, shaping, n_steps=3)
    by_hand = ByHand(0.6, shaping)
    lengths = set()
    for (episode, time), reward, done, discount in columns(model.replay_buffer.sample(300)):
        if (episode, time) in {(STEPS // LENGTH, STEPS % LENGTH - 1), (STEPS // LENGTH, STEPS % LENGTH - 2)}:
            continue  # the newest steps have fewer than three to sum
        times = range(time, min(time + 3, LENGTH))
        expected = sum(by_hand.discount**k * by_hand.reward(episode, t) for k, t in enumerate(times))
        assert reward == pytest.approx(expected, abs=1e-3)
        assert discount == pytest.approx(by_hand.discount ** len(times), rel=1e-5)
        assert done == by_hand.terminated(episode, times[-1])
        lengths.add(len(times))
    assert lengths == {1, 2, 3}


def test_memory_optimized_buffer_treats_every_end_as_terminal(walk):
    # Stable-Baselines3 drops the distinction there, and the last observation of an episode with it.
    model = collect(walk(), optimize_memory_usage=True, replay_buffer_kwargs={"handle_timeout_termination": False})
    for (episode, time), reward, done, _ in columns(model.replay_buffer.sample(300)):
        ended = time + 1 == LENGTH
        expected = 10 * episode + time + 0.4 * GAMMA * (0 if ended else 100 - 3 * (time + 1) + episode)
        assert reward == pytest.approx(expected, abs=1e-4)
        assert done == ended


@pytest.mark.parametrize("shaping", ["hurl", "pbrs"])
def test_vec_normalize_reshapes_raw_values_then_normalizes(walk, shaping):
    env = VecNormalize(walk(), gamma=GAMMA, clip_reward=np.inf)
    model = collect(env, 0.6, shaping)
    samples = model.replay_buffer.sample(200, env=env)
    observations = env.unnormalize_obs(samples.observations.numpy())
    scale = np.sqrt(env.ret_rms.var + env.epsilon)
    for (episode, time), reward in zip(np.rint(observations), samples.rewards.numpy()[:, 0], strict=True):
        assert reward * scale == pytest.approx(ByHand(0.6, shaping).reward(episode, time), abs=1e-2)


def test_heuristic_is_called_once_per_arriving_batch_and_never_for_an_update(walk):
    calls = []
    model = collect(walk(3), h=lambda s: calls.append(len(s)) or heuristic(s), steps=60)
    assert calls == [3] * 20
    model.train(gradient_steps=10, batch_size=8)
    assert len(calls) == 20


def test_cache_costs_four_bytes_a_transition(walk):
    buffer = collect(walk(2)).replay_buffer
    assert buffer.rewards.terms.nbytes == 4 * buffer.buffer_size * buffer.n_envs


@pytest.mark.parametrize("shaping", ["hurl", "pbrs"])
@pytest.mark.parametrize("normalize", [False, True])
def test_her_recomputes_h_for_relabelled_goals(shaping, normalize):
    def misses(observations):
        return -10.0 * np.abs(observations["achieved_goal"] - observations["desired_goal"]).sum(axis=1)

    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=6, continuous=True, max_steps=6)])
    if normalize:
        env = VecNormalize(env, gamma=GAMMA, norm_obs=False, clip_reward=np.inf)
    options = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 4}}
    model = collect(env, 0.6, shaping, misses, steps=120, policy="MultiInputPolicy", **options)
    samples = model.replay_buffer.sample(500, env=env if normalize else None)
    observations = {key: value.numpy() for key, value in samples.observations.items()}
    following = {key: value.numpy() for key, value in samples.next_observations.items()}
    raw = np.where(misses(following) == 0, 0.0, -1.0)
    goes_on = 1 - samples.dones.numpy()[:, 0]
    expected = raw + 0.4 * GAMMA * misses(following) * goes_on
    if shaping == "pbrs":
        expected = raw + GAMMA * misses(following) * goes_on - misses(observations)
    scale = np.sqrt(env.ret_rms.var + env.epsilon) if normalize else 1.0
    np.testing.assert_allclose(samples.rewards.numpy()[:, 0] * scale, expected, rtol=1e-4, atol=1e-4)
    assert len(np.unique(following["desired_goal"], axis=0)) > 1, "goals were relabelled"
    assert samples.discounts.numpy() == pytest.approx(np.full((500, 1), 0.9 if shaping == "pbrs" else 0.54))


@pytest.mark.parametrize("observation", ["box", "dict"])
def test_saved_replay_buffer_is_guided_anew(walk, tmp_path, observation):
    policy = "MultiInputPolicy" if observation == "dict" else "MlpPolicy"
    first = collect(walk(2, observation=observation), policy=policy)
    first.save_replay_buffer(tmp_path / "buffer")
    second = collect(walk(2, observation=observation), steps=2, policy=policy)
    second.load_replay_buffer(tmp_path / "buffer")
    np.testing.assert_array_equal(second.replay_buffer.rewards.terms, first.replay_buffer.rewards.terms)
    second.learn(10)
    assert second.replay_buffer.pos == first.replay_buffer.pos + 5

    plain = SAC(policy, walk(2, observation=observation), buffer_size=1000)
    plain.load_replay_buffer(tmp_path / "buffer")
    np.testing.assert_array_equal(plain.replay_buffer.rewards, first.replay_buffer.rewards.raw)
    assert not isinstance(plain.replay_buffer, type(first.replay_buffer))
