"""A ladder: every rung learns its own reshaped problem from the same data, and the best of them acts."""

import json
import warnings
from itertools import chain, pairwise
from threading import Lock

import gymnasium as gym
import numpy as np
import pytest
import sbx
import stable_baselines3 as sb3
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hurl
from tests.sb3.conftest import GAMMA, ByHand, differ, heuristic, leaves
from tests.sb3.test_algorithms import ALGORITHMS, OFF_POLICY, PPO, build, make_guidance
from tests.sb3.test_prior import logged

LADDER = hurl.Ladder(0.5, 1.0)


def laddered(name, walk, ladder=LADDER, **options):
    return build(name, walk, guidance=make_guidance(ladder), **options)


def judge(bandit, best):
    """Let a rung be clearly the best in the newest blocks."""
    for block in range(8):
        for rung in range(bandit.count):
            bandit.add(rung, block + (1000.0 if rung == best else -1000.0))
        bandit.close_block()


def networks_of(model):
    """Return the leaves of each rung's networks."""
    found = []
    for rung in (0, 1):
        with model.on_rung(rung):
            found.append(leaves(model))
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_on_all_rungs_saves_and_goes_on(name, walk, tmp_path):
    model = laddered(name, walk).learn(200)
    networks = networks_of(model)
    assert differ(*networks)
    assert model.guidance.bandit.closed == 10 - getattr(model, "learning_starts", 0) // 20

    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=walk(action=ALGORITHMS[name][1]))
    assert loaded.guidance.bandit.state() == model.guidance.bandit.state()
    observations = model.env.reset()
    for rung in (0, 1):
        with loaded.on_rung(rung):
            assert not differ(networks[rung], leaves(loaded))
        with model.on_rung(rung), loaded.on_rung(rung):
            expected = type(model).unguided.predict(model, observations, deterministic=True)[0]
            found = type(model).unguided.predict(loaded, observations, deterministic=True)[0]
        np.testing.assert_array_equal(expected, found)
    loaded.learn(20, reset_num_timesteps=False)
    assert loaded.guidance.steps == 220


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC"])
def test_a_transition_serves_every_rung(name, walk):
    model = laddered(name, walk).learn(100)
    for rung, lambda_ in enumerate((0.5, 1.0)):
        by_hand = ByHand(lambda_)
        with model.on_rung(rung):
            samples = model.replay_buffer.sample(64)
        np.testing.assert_allclose(samples.discounts, lambda_ * GAMMA, rtol=1e-6)
        walked = zip(samples.observations.numpy(), samples.rewards.numpy()[:, 0], strict=True)
        for (episode, time), reward in walked:
            assert reward == pytest.approx(by_hand.reward(int(episode), int(time)), rel=1e-5)


def test_all_rungs_are_updated_as_often_until_one_is_the_best(walk, monkeypatch):
    model = laddered("sb3.SAC", walk).learn(40)
    sample, sizes = model.replay_buffer.sample, []

    def watched(batch_size, env=None):
        sizes.append((model.guidance.lambda_, batch_size))
        return sample(batch_size, env=env)

    monkeypatch.setattr(model.replay_buffer, "sample", watched)
    model.train(2, 8)
    assert sizes == [(0.5, 8), (0.5, 8), (1.0, 8), (1.0, 8)]
    assert model._n_updates == 2
    with model.on_rung(0):
        assert model._n_updates == 2
    judge(model.guidance.bandit, best=0)
    sizes.clear()
    for _ in range(16):
        model.train(1, 64)
    assert sizes.count((0.5, 64)) == 16
    assert sizes.count((1.0, 64)) == 2


def test_the_rung_with_the_best_returns_acts(walk):
    model = laddered("sb3.SAC", walk).learn(60)
    observations = np.zeros((3, 2), np.float32)
    actions = {}
    for rung in (0, 1):
        with model.on_rung(rung):
            actions[rung] = sb3.SAC.predict(model, observations, deterministic=True)[0]
    assert not np.array_equal(actions[0], actions[1])
    for best in (0, 1):
        judge(model.guidance.bandit, best)
        assert model.guidance.lambda_ == (0.5, 1.0)[best]
        np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], actions[best])


def test_in_training_each_environment_has_the_actions_of_its_rung(walk):
    model = laddered("sb3.TD3", lambda **options: walk(n_envs=4, **options)).learn(60)
    model.guidance.turns.acting(4)[:] = [0, 1, 1, 0]
    actions, _ = model._sample_action(0, None, 4)
    for rung, environments in ((0, [0, 3]), (1, [1, 2])):
        with model.on_rung(rung):
            expected = sb3.TD3.predict(model, model._last_obs)[0]
        np.testing.assert_array_equal(actions[environments], expected[environments])


def test_a_rollout_is_of_one_rung_and_trains_it_alone(walk):
    model = laddered("sb3.PPO", walk)
    before = leaves(model)
    model.learn(20)
    for rung in (0, 1):
        with model.on_rung(rung):
            assert differ(before, leaves(model)) == (rung == model._turn)
            assert model.gamma == (0.5, 1.0)[rung] * GAMMA


def test_a_turn_lasts_until_an_episode_of_each_environment_has_begun_and_ended_in_it():
    turns, chosen = make_guidance(LADDER).start(0).turns, []
    most_behind = turns.bandit.most_behind
    turns.bandit.most_behind = lambda owed: chosen.append(most_behind(owed)) or chosen[-1]

    def step(*ended):
        turns.observe(np.ones(2), np.array(ended))
        return turns.take(2), len(chosen), sorted(chain(*turns.bandit.current))

    first = turns.take(2)
    assert step(True, False) == (first, 1, [1.0])
    assert step(True, False) == (first, 1, [1.0]), "one of each environment counts"
    second, *rest = step(False, True)
    assert rest == [2, [1.0, 3.0]]
    assert step(True, False) == (second, 2, [1.0, 3.0]), "it began in the turn before"
    assert step(True, True) == (second, 2, [1.0, 1.0, 3.0])
    assert step(False, True)[1:] == (3, [1.0, 1.0, 1.0, 3.0])


@pytest.mark.parametrize("environments", [4, 16])
def test_turns_credit_long_episodes_as_often_as_short_ones(environments):
    """Rung 0 has episodes of 10 and of 500 steps, half of each, that pay 1 a step; those of rung 1 have 200."""
    generator = np.random.default_rng(0)
    turns = hurl.Guidance(heuristic, LADDER, gamma=GAMMA, steps_per_iteration=10**9).start(0).turns

    def draw(turn):
        return int(generator.choice([10, 500])) if turn == 0 else 200

    turn = turns.take(environments)
    left = np.array([draw(turn) for _ in range(environments)])
    for step in range(100_000):
        turn = turns.take(environments) if step % 16 == 0 else turn
        left -= 1
        turns.observe(np.ones(environments), left == 0)
        left[left == 0] = [draw(turn) for _ in range((left == 0).sum())]
    guided, base = turns.bandit.current
    assert np.mean(base) == 200
    assert np.mean(guided) == pytest.approx(255, abs=40)


@pytest.mark.parametrize(("best", "share"), [(None, 0.5), (0, 0.9), (1, 0.1)])
def test_turns_give_rungs_their_shares_of_the_steps(best, share):
    """A rollout is 10 steps; episodes of rung 0 last 100 of them, and its turns as long, those of rung 1 last 1."""
    guidance = hurl.Guidance(heuristic, LADDER, gamma=GAMMA).start(0)
    step, none, ended = np.zeros((1, 2), np.float32), np.array([False]), np.array([True])
    guidance.bandit.decided, guidance.bandit.close_block = best, lambda: None
    steps, length = np.zeros(2), 0
    for _ in range(6_000):
        turn = guidance.turns.take(1)
        for _ in range(10):
            length = (length + 1) % (100, 1)[turn]
            guidance.observe(step, step, np.ones(1), none, none if length else ended)
        steps[turn] += 10
    assert steps[0] / steps.sum() == pytest.approx(share, abs=0.005)


def test_turns_go_on_from_their_state_step_by_step():
    first, second = (hurl.Guidance(heuristic, LADDER, gamma=GAMMA).start(seed) for seed in (0, 1))
    generator, found = np.random.default_rng(0), []
    for step in range(200):
        if step % 20 == 10:  # in the midst of a turn
            second.restore(json.loads(json.dumps(first.state())))
            first.abandon_episodes()
        ended = generator.random(3) < 0.2
        found.append([each.turns.take(3) for each in (first, second)])
        for each in (first, second):
            each.turns.observe(np.ones(3), ended)
    assert all(one == other for one, other in found[10:])
    assert len({one for one, _ in found}) == 2


@pytest.mark.parametrize("name", ["sb3.SAC", "sbx.SAC", "sb3.DQN"])
def test_what_is_drawn_at_random_before_learning_judges_no_rung(name, walk):
    model = laddered(name, walk, learning_starts=70)
    assert model.learn(60).guidance.bandit.closed == 0
    assert model.guidance.turns.rung_steps.sum() == 0
    assert model.learn(100, reset_num_timesteps=False).guidance.bandit.closed > 0


@pytest.mark.parametrize("name", ["sb3.PPO", "sb3.SAC", "sbx.SAC"])
def test_all_rungs_can_have_the_networks_of_the_problem_itself(name, walk):
    model = laddered(name, walk).learn(200)
    guided, base = networks_of(model)
    assert differ(guided, base)
    with model.on_rung(0):
        model.share_networks()
        assert not differ(leaves(model), base)
    assert not any(differ(networks, base) for networks in networks_of(model))


def test_cloning_while_another_rung_is_in_place_is_into_the_problem_itself(walk):
    model = laddered("sb3.SAC", walk).learn(200)

    def weights(network, rung):
        with model.on_rung(rung):
            return [tensor.numpy().copy() for tensor in getattr(model, network).state_dict().values()]

    actor, critic = weights("actor", 1), weights("critic", 1)
    with model.on_rung(0):
        hurl.sb3.warm_start(model, logged(), epochs=1, batch_size=8)
    assert differ(actor, weights("actor", 1)), "it is what was cloned into"
    assert not differ(weights("actor", 0), weights("actor", 1))
    assert not any(differ(critic, weights("critic", rung)) for rung in (0, 1))


def test_an_episode_that_random_actions_began_counts_for_no_rung():
    turns = hurl.Guidance(heuristic, LADDER, gamma=GAMMA).start(0).turns
    turns.act_without_rungs(2)
    turns.observe(np.ones(2), np.array([False, True]))
    turns.observe(np.ones(2), np.array([True, True]))
    assert [*chain(*turns.bandit.current)] == [1.0], "that of the second environment, which rungs have begun"


class Images(gym.Env):
    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def _observe(self):
        return np.full((36, 36, 1), self.time, np.uint8)

    def step(self, action):
        self.time += 1
        return self._observe(), float(action), self.time == 9, False, {}


def test_images(tmp_path):
    guidance = hurl.Guidance(lambda images: images[:, 0, 0, 0].astype(float), LADDER, gamma=GAMMA)
    options = OFF_POLICY | {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 4}, "net_arch": [4]}}
    model = hurl.guided(sb3.DQN)("CnnPolicy", Images(), guidance=guidance, seed=0, **options).learn(60)
    assert model.predict(np.zeros((2, 36, 36, 1), np.uint8))[0].shape == (2,)
    assert differ(*networks_of(model))


def test_dictionaries_several_steps_and_normalisation(walk):
    small = {"policy_kwargs": {"net_arch": [4]}, "seed": 0} | OFF_POLICY
    guidance = make_guidance(LADDER)
    model = hurl.guided(sb3.SAC)("MultiInputPolicy", walk(observation="dict"), guidance=guidance, **small).learn(60)
    assert differ(*networks_of(model))

    model = hurl.guided(sb3.SAC)("MlpPolicy", walk(), guidance=guidance, n_steps=3, **small).learn(60)
    with model.on_rung(0):
        discounts = model.replay_buffer.sample(64).discounts.numpy()
    assert np.isclose(discounts, [(0.5 * GAMMA) ** n for n in (1, 2, 3)]).any(axis=1).all()

    env = VecNormalize(walk(), gamma=GAMMA)
    model = hurl.guided(sb3.SAC)("MlpPolicy", env, guidance=guidance, **small | {"learning_starts": 0}).learn(60)
    assert model.guidance.bandit.start == 28 - 7 + 70 / 2  # of episodes 0 and 1, as they were paid


def test_hindsight_experience_replay():
    class Reach(gym.Env):
        observation_space = spaces.Dict(
            {key: spaces.Box(-9, 9, (1,), np.float32) for key in ("observation", "achieved_goal", "desired_goal")}
        )
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def _observe(self):
            here = np.array([self.place], np.float32)
            return {"observation": here, "achieved_goal": here, "desired_goal": np.array([self.goal], np.float32)}

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place, self.goal, self.time = 0.0, float(self.np_random.uniform(-3, 3)), 0
            return self._observe(), {}

        def compute_reward(self, achieved, desired, info):
            return -(np.abs(achieved - desired) > 0.5).astype(np.float32).reshape(-1)

        def step(self, action):
            self.place, self.time = self.place + float(action[0]), self.time + 1
            shown = self._observe()
            reward = float(self.compute_reward(shown["achieved_goal"][None], shown["desired_goal"][None], {})[0])
            return shown, reward, False, self.time == 10, {}

    def h(observations):
        return -np.abs(observations["achieved_goal"] - observations["desired_goal"])[:, 0]

    guidance = hurl.Guidance(h, LADDER, gamma=GAMMA)
    options = OFF_POLICY | {"replay_buffer_class": sb3.HerReplayBuffer, "policy_kwargs": {"net_arch": [4]}}
    model = hurl.guided(sb3.SAC)("MultiInputPolicy", Reach(), guidance=guidance, seed=0, **options).learn(80)
    with model.on_rung(0):
        guided = model.replay_buffer.sample(200).rewards.numpy()
    with model.on_rung(1):
        plain = model.replay_buffer.sample(200).rewards.numpy()
    assert set(plain.ravel().tolist()) <= {-1.0, 0.0}
    assert not set(guided.ravel().tolist()) <= {-1.0, 0.0}


def test_state_dependent_exploration(walk):
    model = laddered("sb3.A2C", lambda **_: walk(action="box"), use_sde=True).learn(100)
    noise = []
    for rung in (0, 1):
        with model.on_rung(rung):
            noise.append(model.policy.action_dist.exploration_mat.detach().numpy())
    assert differ([noise[0]], [noise[1]])
    with pytest.raises(ValueError, match="use_sde can't be had off-policy with a ladder"):
        laddered("sb3.SAC", walk, use_sde=True)


def test_a_policy_that_cannot_be_copied_is_named(walk):
    class Locked(FlattenExtractor):
        def __init__(self, space):
            super().__init__(space)
            self.lock = Lock()

    options = {"policy_kwargs": {"features_extractor_class": Locked}}
    with pytest.raises(ValueError, match=r"a ladder needs .*, and SACPolicy can't be copied \(.*\): give the"):
        laddered("sb3.SAC", walk, **options)
    build("sb3.SAC", walk, guidance=make_guidance(), **options).learn(60)


def test_actions_of_several_parts():
    class Parts(Images):
        observation_space = spaces.Box(0, 9, (1,), np.float32)
        action_space = spaces.MultiDiscrete([2, 3])

        def _observe(self):
            return np.array([self.time], np.float32)

        def step(self, action):
            return super().step(int(action[0]))

    guidance = hurl.Guidance(lambda states: states[:, 0], LADDER, gamma=GAMMA)
    model = hurl.guided(sb3.PPO)("MlpPolicy", Parts(), guidance=guidance, seed=0, **PPO).learn(40)
    assert differ(*networks_of(model))


def test_callbacks_see_the_best_rung_and_save_all_of_them(walk, tmp_path):
    class Watch(BaseCallback):
        def _on_step(self):
            if self.num_timesteps == 15:
                judge(self.model.guidance.bandit, best=0)
                self.model._put_in_place(1)  # the turn of λ = 1
                self.model.save(tmp_path / "by-callback")
                self.seen = self.model.predict(observations, deterministic=True)[0]
                with self.model.on_rung(0):
                    self.expected = type(self.model).unguided.predict(self.model, observations, deterministic=True)[0]
            return True

    observations = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    watch = Watch()
    model = laddered("sb3.PPO", lambda **_: walk(action="box")).learn(400)
    model.num_timesteps = 0
    before = []
    for rung in (0, 1):
        with model.on_rung(rung):
            before.append(leaves(model))
    model.learn(19, callback=watch)
    np.testing.assert_array_equal(watch.seen, watch.expected)
    loaded = type(model).load(tmp_path / "by-callback", env=walk(action="box"))
    for rung in (0, 1):
        with loaded.on_rung(rung):
            assert not differ(before[rung], leaves(loaded))


@pytest.mark.parametrize("outer", [0, 1])
def test_a_rung_within_a_rung(outer, walk):
    model = laddered("sb3.SAC", walk).learn(60)
    expected = []
    for rung in (0, 1):
        with model.on_rung(rung):
            expected.append(leaves(model))
    with model.on_rung(outer):
        for rung in (0, 1):
            with model.on_rung(rung):
                assert model.guidance.lambda_ == (0.5, 1.0)[rung]
                assert not differ(expected[rung], leaves(model))
        assert not differ(expected[outer], leaves(model))


def test_a_saved_ladder_goes_on_with_other_rungs(walk, tmp_path):
    # more than the iterations after which episodes that never end are told
    model = laddered("sb3.SAC", walk).learn(420)
    model.save(tmp_path / "model")
    assert model.rung_states is None
    other = make_guidance(hurl.Ladder(0.2, 0.5, 1.0))
    loaded = type(model).load(tmp_path / "model", env=walk(), guidance=other)
    for rung, source in enumerate((1, 0, 1)):  # 0.2 is new and begins as λ = 1 is, 0.5 was there
        with loaded.on_rung(rung), model.on_rung(source):
            assert not differ(leaves(model), leaves(loaded))
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert loaded.learn(100, reset_num_timesteps=False).guidance.steps == 520


@pytest.mark.parametrize("name", ["sb3.SAC", "sb3.PPO"])
def test_tensorboard_says_what_each_rung_is_worth(name, walk, tmp_path):
    model = laddered(name, walk)
    model.set_logger(configure(str(tmp_path), ["tensorboard"]))
    model.learn(120)
    model.dump_logs()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = {tag for tag in events.Tags()["scalars"] if tag.startswith("guidance/")}
    assert tags >= {f"guidance/{kind}_{rung}" for kind in ("return", "share") for rung in ("0.5", "1")}
    shares = [events.Scalars(f"guidance/share_{rung}")[-1].value for rung in ("0.5", "1")]
    assert sum(shares) == pytest.approx(1.0)


def test_a_model_without_a_ladder_goes_on_with_one(walk, tmp_path):
    model = build("sb3.SAC", walk, guidance=make_guidance()).learn(420)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=walk(), guidance=make_guidance(LADDER))
    for rung in (0, 1):
        with loaded.on_rung(rung):
            assert not differ(leaves(model), leaves(loaded))
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert loaded.learn(100, reset_num_timesteps=False).guidance.steps == 520


@pytest.mark.parametrize("algorithm", [sb3.SAC, sbx.SAC])
def test_without_a_schedule_the_rungs_suit_gamma(algorithm, walk):
    guidance = hurl.Guidance(heuristic, gamma=0.99)
    assert guidance.rungs == pytest.approx((0.850, 1.0), abs=1e-3)
    model = hurl.guided(algorithm)("MlpPolicy", walk(), guidance=guidance, gamma=0.99, seed=0, **OFF_POLICY)
    assert model.guidance.rungs == guidance.rungs


def test_the_draws_of_rungs_follow_the_seed(walk):
    def returns(seed):
        model = laddered("sb3.PPO", walk, seed=seed, **PPO).learn(400)
        return model.guidance.bandit.state()["draws"]

    assert returns(1) == returns(1) != returns(2)


def test_environments_may_change(walk, monkeypatch):
    lasted, lengths = hurl.ladder.Bandit.lasted, []

    def watched(bandit, rung, steps):
        lengths.append(steps)
        lasted(bandit, rung, steps)

    monkeypatch.setattr(hurl.ladder.Bandit, "lasted", watched)
    model = laddered("sb3.SAC", walk).learn(60)
    whole = set(lengths)
    model.set_env(DummyVecEnv([walk().envs[0].__class__]))
    assert model.learn(40, reset_num_timesteps=False).guidance.steps == 100
    assert set(lengths) == whole, "what was cut is in no episode"


@pytest.mark.parametrize("rung", [-1, 2])
def test_a_rung_that_is_not_there_is_named(rung, walk):
    model = laddered("sb3.TD3", walk)
    with pytest.raises(ValueError, match=rf"numbered 0 to 1, got {rung}"), model.on_rung(rung):
        pass


def test_a_turn_begins_without_what_another_rungs_networks_remember(walk):
    """On-policy episodes go on over a change of the turn; what a recurrent policy has kept of them does not."""

    class Starts(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            found.append((self.model._turn, bool(self.model.rollout_buffer.episode_starts[0].all())))

    found = []
    laddered("contrib.RecurrentPPO", walk, **PPO | {"n_steps": 10, "batch_size": 10}).learn(400, callback=Starts())
    changed = [begun for (before, _), (turn, begun) in pairwise(found) if turn != before]
    assert changed
    assert all(changed)
    assert not all(begun for (before, _), (turn, begun) in pairwise(found) if turn == before)


@pytest.mark.parametrize("name", ["sb3.TD3", "sb3.SAC"])
def test_predict_is_of_the_rung_that_is_asked_for(name, walk):
    model = laddered(name, walk).learn(200)
    judge(model.guidance.bandit, 0)
    observations = model.env.reset()
    actions = []
    for rung in (0, 1):
        with model.on_rung(rung):
            actions.append(model.predict(observations, deterministic=True)[0])
            np.testing.assert_array_equal(actions[-1], model.policy.predict(observations, deterministic=True)[0])
    assert not np.array_equal(*actions)
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], actions[0])


def test_too_few_steps_to_judge_by_are_warned_of(walk):
    with pytest.warns(UserWarning, match=r"60 steps are fewer than 4 iterations of 20, by .*: lower steps_per_it"):
        laddered("sb3.TD3", walk).learn(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        laddered("sb3.TD3", walk).learn(80)
