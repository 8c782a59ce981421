import gymnasium as gym
import numpy as np
import pytest
import sbx
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

import hurl
from tests.sb3.conftest import GAMMA, LENGTH, ByHand, heuristic

N_STEPS = 18  # two episodes and a part: running, truncated and terminal steps
GAE_LAMBDA = 0.8


class Keep(BaseCallback):
    """Keep what the last rollout held before training reshapes its arrays."""

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        names = ("observations", "rewards", "values", "advantages")
        self.kept = {name: getattr(buffer, name).copy() for name in names}
        self.gamma = buffer.gamma


def roll_out(algorithm, env, lambda_=0.6, shaping="hurl", **options):
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(lambda_), gamma=GAMMA, shaping=shaping)
    keep = Keep()
    model = hurl.guided(algorithm)(
        "MlpPolicy", env, guidance=guidance, n_steps=N_STEPS, batch_size=N_STEPS, gae_lambda=GAE_LAMBDA, n_epochs=1,
        learning_rate=0.0, seed=0, **options,
    )  # fmt: skip
    model.learn(N_STEPS * env.num_envs, callback=keep)
    return model, keep


def value_of(model, observation):
    if isinstance(model, PPO):
        with torch.no_grad():
            return model.policy.predict_values(torch.as_tensor(observation[None])).item()
    return model.vf.apply(model.policy.vf_state.params, observation[None]).item()


@pytest.mark.parametrize("algorithm", [PPO, sbx.PPO])
@pytest.mark.parametrize("shaping", ["hurl", "pbrs", "discounted-pbrs"])
def test_rewards_and_advantages_are_those_of_the_reshaped_mdp(walk, algorithm, shaping):
    model, keep = roll_out(algorithm, walk(2), 0.6, shaping)
    by_hand = ByHand(0.6, shaping)
    assert keep.gamma == pytest.approx(by_hand.discount)

    advantage = np.zeros(2)
    for step in reversed(range(N_STEPS)):
        for env in range(2):
            episode, time = keep.kept["observations"][step, env].astype(int)
            reward = by_hand.reward(episode, time)
            ended = time + 1 == LENGTH
            following = np.array([episode, time + 1], np.float32)
            if ended and not by_hand.terminated(episode, time):
                reward += by_hand.discount * value_of(model, following)
            assert keep.kept["rewards"][step, env] == pytest.approx(reward, abs=1e-3)
            bootstrap = 0.0 if ended else by_hand.discount * value_of(model, following)
            carried = 0.0 if ended or step == N_STEPS - 1 else by_hand.discount * GAE_LAMBDA * advantage[env]
            advantage[env] = reward + bootstrap - keep.kept["values"][step, env] + carried
            assert keep.kept["advantages"][step, env] == pytest.approx(advantage[env], abs=1e-2)


@pytest.mark.parametrize("shaping", ["hurl", "pbrs"])
def test_vec_normalize_reshapes_raw_values_then_normalizes(walk, shaping):
    class Scales(Keep):
        """Keep the scale of each step's reward, and what is added to it at a time limit."""

        def _on_training_start(self):
            self.scales, self.bootstraps = [], []

        def _on_step(self):
            env, (info,) = self.training_env, self.locals["infos"]
            self.scales.append(np.sqrt(env.ret_rms.var + env.epsilon))
            truncated = info.get("TimeLimit.truncated", False)
            value = value_of(self.model, info["terminal_observation"]) if truncated else 0.0
            self.bootstraps.append(self.model.gamma * value)
            return True

    env = VecNormalize(walk(), gamma=GAMMA, clip_reward=np.inf)
    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(0.6), gamma=GAMMA, shaping=shaping)
    keep = Scales()
    hurl.guided(PPO)("MlpPolicy", env, guidance=guidance, n_steps=N_STEPS, batch_size=N_STEPS).learn(N_STEPS, keep)
    found = (keep.kept["rewards"][:, 0] - keep.bootstraps) * keep.scales
    expected = [ByHand(0.6, shaping).reward(step // LENGTH, step % LENGTH) for step in range(N_STEPS)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("schedule", [hurl.ConstantSchedule(0.6), hurl.Ladder(0.5, 1.0)])
def test_callbacks_find_the_wrappers_that_users_have_put_there(walk, schedule):
    """`EvalCallback` copies the statistics of `VecNormalize`, wrapper by wrapper, in the midst of a rollout."""
    training, evaluation = VecNormalize(walk(), gamma=GAMMA), VecNormalize(walk(), gamma=GAMMA)
    guidance = hurl.Guidance(heuristic, schedule, gamma=GAMMA, steps_per_iteration=N_STEPS)
    model = hurl.guided(PPO)("MlpPolicy", training, guidance=guidance, n_steps=N_STEPS, batch_size=N_STEPS)
    callback = EvalCallback(evaluation, eval_freq=10, n_eval_episodes=1, warn=False, verbose=0)
    model.learn(10 * N_STEPS, callback=callback)
    assert callback.evaluations_results or np.isfinite(callback.last_mean_reward)
    assert evaluation.obs_rms.count > 100
    assert not {"reset", "step_wait"} & vars(training.venv).keys()


@pytest.mark.parametrize("wrap", [lambda env: env, VecNormalize])
@pytest.mark.parametrize("schedule", [hurl.ConstantSchedule(0.6), hurl.Ladder(0.5, 1.0)])
def test_steps_that_a_callback_takes_are_not_observed(walk, schedule, wrap):
    class Play(BaseCallback):
        def _on_step(self):
            if self.num_timesteps == 10:
                env = self.training_env
                env.reset()
                for _ in range(3 * LENGTH):
                    env.step(np.array([env.action_space.sample()]))
            return True

    guidance = hurl.Guidance(heuristic, schedule, gamma=GAMMA, steps_per_iteration=N_STEPS)
    model = hurl.guided(PPO)("MlpPolicy", wrap(walk()), guidance=guidance, n_steps=N_STEPS, batch_size=N_STEPS)
    model.learn(4 * N_STEPS, callback=Play())
    assert model.guidance.steps == model.num_timesteps == 4 * N_STEPS


def test_environments_are_given_back_after_an_error(walk):
    class Fail(BaseCallback):
        def _on_step(self):
            raise ArithmeticError

    guidance = hurl.Guidance(heuristic, gamma=GAMMA, steps_per_iteration=N_STEPS)
    env = walk()
    env.reset = given = env.reset
    with pytest.raises(ArithmeticError):
        hurl.guided(PPO)("MlpPolicy", env, guidance=guidance, n_steps=N_STEPS, batch_size=N_STEPS).learn(100, Fail())
    assert vars(env)["reset"] is given
    assert "step_wait" not in vars(env)


def test_each_rollout_uses_the_lambda_of_the_iteration_it_completes(walk):
    seen = []

    class Note(BaseCallback):
        def _on_step(self):
            seen.append((self.model.guidance.iteration, self.model.guidance.lambda_, self.model.gamma))
            return True

    schedule = hurl.LinearSchedule(0.0, iterations=3)
    guidance = hurl.Guidance(heuristic, schedule, gamma=GAMMA, steps_per_iteration=16)
    model = hurl.guided(PPO)("MlpPolicy", walk(2), guidance=guidance, n_steps=8, batch_size=16)
    model.learn(48, callback=Note())
    expected = [(1, 0.0, 0.0), (2, 0.5, 0.5 * GAMMA), (3, 1.0, GAMMA)]
    assert seen == [item for item in expected for _ in range(8)]


def test_a_stopped_rollout_counts_only_the_steps_taken(walk):
    class Stop(BaseCallback):
        def _on_step(self):
            return self.num_timesteps < 5

    guidance = hurl.Guidance(heuristic, hurl.ConstantSchedule(0.5), gamma=GAMMA)
    model = hurl.guided(PPO)("MlpPolicy", walk(), guidance=guidance, n_steps=16, batch_size=16)
    model.learn(100, callback=Stop())
    assert model.guidance.steps == model.num_timesteps == 5


@pytest.mark.parametrize("lambda_", [0.5, 1.0])
def test_integer_rewards_of_subprocesses_are_reshaped(lambda_):
    guidance = hurl.Guidance(lambda s: np.full(len(s), 0.5), hurl.ConstantSchedule(lambda_), gamma=GAMMA)
    env = SubprocVecEnv([lambda: gym.make("Taxi-v3")] * 2)
    try:
        model = hurl.guided(PPO)("MlpPolicy", env, guidance=guidance, n_steps=8, batch_size=8)
        keep = Keep()
        model.learn(16, callback=keep)
    finally:
        env.close()
    raw = keep.kept["rewards"] - (1 - lambda_) * GAMMA * 0.5
    assert set(np.round(raw.ravel(), 4)) <= {-1.0, -10.0}
