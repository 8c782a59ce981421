"""An old agent's critic, taken over into NumPy, says what it said in torch or JAX."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

import hurl
from hurl.guidance import HeuristicError
from hurl.heuristics import ValueFunctionHeuristic, load_heuristic

BOX = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
ACTIONS = spaces.Box(-2, 3, (2,), np.float32)
IMAGES = spaces.Box(0, 255, (3, 36, 36), np.uint8)
GAMMA = 0.97


class Noise(gym.Env):
    """Observations and rewards of chance, in any space."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 5 * self.np_random.normal(), self.np_random.random() < 0.1, False, {}


def environment(algorithm=sb3.SAC, observation_space=BOX):
    discrete = algorithm.__name__ in ("DQN", "QRDQN")
    return DummyVecEnv([lambda: Noise(observation_space, spaces.Discrete(4) if discrete else ACTIONS)])


def agent(algorithm, env=None, policy="MlpPolicy", **options):
    """An agent whose weights, and running statistics, are all at random."""
    env = environment(algorithm) if env is None else env
    sizes = {"n_steps": 8} if algorithm.__name__ in ("PPO", "A2C", "TRPO") else {"buffer_size": 50}
    if algorithm.__name__ in ("PPO", "TRPO"):
        sizes["batch_size"] = 8
    policy_kwargs = dict(options.pop("policy_kwargs", {}))  # algorithms write into what they are given
    model = algorithm(policy, env, gamma=GAMMA, seed=0, policy_kwargs=policy_kwargs, **{**sizes, **options})
    generator = np.random.default_rng(0)
    if any(True for _ in model.policy.parameters()):
        for tensor in model.policy.state_dict().values():
            if tensor.dtype.is_floating_point:
                tensor += torch.tensor(generator.uniform(-0.4, 0.5, tensor.shape), dtype=tensor.dtype)
    else:
        shake_flax(model.policy, generator)
    return model


def shake_flax(policy, generator):
    import jax

    def noisy(array):
        return array + generator.uniform(-0.4, 0.5, array.shape) if getattr(array, "ndim", 0) else array

    for name, state in vars(policy).items():
        if name.endswith("_state"):
            fields = {"params": jax.tree.map(noisy, state.params)}
            if hasattr(state, "batch_stats"):
                fields["batch_stats"] = jax.tree.map(noisy, state.batch_stats)
            setattr(policy, name, state.replace(**fields))


def observations(space=BOX, count=32):
    space.seed(0)
    return np.stack([space.sample() for _ in range(count)])


# What the models themselves say --------------------------------------------------------------------------------------


def torch_values(model, batch):
    policy = model.policy
    policy.set_training_mode(False)
    seen = policy.obs_to_tensor(batch)[0]
    with torch.no_grad():
        if hasattr(policy, "predict_values"):
            return policy.predict_values(seen)[:, 0].numpy()
        if hasattr(policy, "quantile_net"):
            return policy.quantile_net(seen).mean(dim=1).max(dim=1).values.numpy()
        if hasattr(policy, "q_net"):
            return policy.q_net(seen).max(dim=1).values.numpy()
        actions = policy.scale_action(model.predict(batch, deterministic=True)[0])
        critics = policy.critic(seen, torch.tensor(actions))
        if isinstance(critics, torch.Tensor):  # TQC: (n, critics, quantiles)
            return critics.mean(dim=2).min(dim=1).values.numpy()
        return torch.cat(critics, dim=1).min(dim=1).values.numpy()


def flax_values(model, batch):
    policy = model.policy
    if hasattr(policy, "vf_state"):
        return np.asarray(policy.vf_state.apply_fn(policy.vf_state.params, batch))[:, 0]
    if not hasattr(policy, "actor_state"):
        return np.asarray(policy.qf_state.apply_fn(policy.qf_state.params, batch)).max(axis=1)
    actions = policy.scale_action(model.predict(batch, deterministic=True)[0])
    if hasattr(policy, "qf1_state"):
        states = (policy.qf1_state, policy.qf2_state)
        return np.min([np.mean(state.apply_fn(state.params, batch, actions), axis=1) for state in states], axis=0)
    variables = policy.qf_state.params
    if hasattr(policy.qf_state, "batch_stats"):
        variables = {"params": variables, "batch_stats": policy.qf_state.batch_stats}
    return np.asarray(policy.qf_state.apply_fn(variables, batch, actions)).min(axis=0)[:, 0]


def assert_same(values, expected):
    assert values.shape == expected.shape
    assert np.ptp(expected) > 0.1, "values that do not vary would prove nothing"
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


SMALL = {"net_arch": [16, 8]}
TORCH = [
    (sb3.PPO, {}),
    (sb3.PPO, {"activation_fn": torch.nn.ReLU, "net_arch": {"pi": [4], "vf": [8, 16, 8]}}),
    (sb3.A2C, {"net_arch": []}),
    (sb3_contrib.TRPO, {}),
    (sb3.DQN, SMALL),
    (sb3_contrib.QRDQN, {**SMALL, "n_quantiles": 5}),
    (sb3.SAC, SMALL),
    (sb3.SAC, {"activation_fn": torch.nn.Tanh, "net_arch": {"pi": [8], "qf": [16, 16]}, "n_critics": 3}),
    (sb3.TD3, SMALL),
    (sb3.DDPG, SMALL),
    (sb3_contrib.TQC, {**SMALL, "n_quantiles": 5}),
    (sb3_contrib.CrossQ, SMALL),
    (sb3_contrib.CrossQ, {**SMALL, "batch_norm": False}),
]
FLAX = [
    ("PPO", {}),
    ("DQN", {}),
    ("SAC", {"net_arch": {"pi": [8], "qf": [16, 16]}, "n_critics": 3}),
    ("TD3", SMALL),
    ("DDPG", SMALL),
    ("TQC", {**SMALL, "n_quantiles": 5}),
    ("CrossQ", SMALL),
    ("CrossQ", {**SMALL, "batch_norm": False, "batch_norm_actor": False}),
]


@pytest.mark.parametrize(("algorithm", "policy_kwargs"), TORCH)
def test_torch_agents(algorithm, policy_kwargs):
    model = agent(algorithm, policy_kwargs=policy_kwargs)
    heuristic = ValueFunctionHeuristic.from_agent(model)
    assert_same(heuristic(observations()), torch_values(model, observations()))
    heuristic.check(BOX, GAMMA)


@pytest.mark.parametrize(("name", "policy_kwargs"), FLAX)
def test_sbx_agents(name, policy_kwargs):
    import sbx

    model = agent(getattr(sbx, name), policy_kwargs=policy_kwargs)
    assert_same(ValueFunctionHeuristic.from_agent(model)(observations()), flax_values(model, observations()))


def test_sbx_activation():
    import flax.linen as nn
    import sbx

    model = agent(sbx.TD3, policy_kwargs={**SMALL, "activation_fn": nn.tanh})
    assert_same(ValueFunctionHeuristic.from_agent(model)(observations()), flax_values(model, observations()))


@pytest.mark.parametrize("algorithm", [sb3.PPO, sb3.SAC])
def test_states_of_a_discrete_space(algorithm):
    space = spaces.Discrete(7)
    model = agent(algorithm, environment(algorithm, space))
    states = np.arange(7)
    assert_same(ValueFunctionHeuristic.from_agent(model)(states), torch_values(model, states))


def test_normalised_observations_and_rewards():
    env = VecNormalize(environment(), clip_obs=1.2)
    model = agent(sb3.SAC, env, learning_starts=20, policy_kwargs=SMALL)
    model.learn(30)
    heuristic = ValueFunctionHeuristic.from_agent(model)
    raw = 3 * observations()
    normalised = env.normalize_obs(raw)
    assert np.mean(np.abs(normalised) == np.float32(1.2)) > 0.1, "the test is to see observations that are cut off"
    assert_same(heuristic(raw), env.unnormalize_reward(torch_values(model, normalised)))
    env.obs_rms.mean += 1  # the heuristic is what the agent was, whatever comes after
    assert_same(heuristic(raw), env.unnormalize_reward(torch_values(model, normalised)))


@pytest.mark.parametrize("normalised", [False, True])
def test_a_fresh_process_gives_bit_equal_values_without_torch_and_jax(normalised, tmp_path):
    env = VecNormalize(environment()) if normalised else environment()
    heuristic = ValueFunctionHeuristic.from_agent(agent(sb3.TD3, env, policy_kwargs=SMALL))
    heuristic.save(tmp_path / "h")
    np.save(tmp_path / "x.npy", observations())
    program = (
        "import sys, numpy, hurl; h = hurl.load_heuristic(sys.argv[1]);"
        "numpy.save(sys.argv[3], h(numpy.load(sys.argv[2])));"
        "assert 'jax' not in sys.modules and 'torch' not in sys.modules"
    )
    arguments = [str(tmp_path / name) for name in ("h", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), heuristic(observations()))


def test_a_normalisation_of_another_shape_is_refused(tmp_path):
    heuristic = ValueFunctionHeuristic.from_agent(agent(sb3.TD3, VecNormalize(environment()), policy_kwargs=SMALL))
    heuristic.normalisation.mean.resize((5,), refcheck=False)
    heuristic.save(tmp_path / "h")
    with pytest.raises(HeuristicError, match=r"has 'mean' of shape \(5,\), config.json asks for \(6,\)"):
        load_heuristic(tmp_path / "h")


# Guided agents ------------------------------------------------------------------------------------------------------


def guided_agent(lambda_, shaping="hurl"):
    schedule = hurl.ConstantSchedule(lambda_) if isinstance(lambda_, float) else lambda_
    guidance = hurl.Guidance(lambda batch: np.zeros(len(batch)), schedule, gamma=GAMMA, shaping=shaping)
    return hurl.guided(sb3.PPO)("MlpPolicy", environment(), n_steps=8, batch_size=8, guidance=guidance)


def test_a_guided_agent_that_has_returned_to_the_original_mdp():
    model = guided_agent(1.0)
    heuristic = ValueFunctionHeuristic.from_agent(model)
    assert_same(heuristic(observations()), torch_values(model, observations()))
    assert heuristic.gamma == GAMMA


@pytest.mark.parametrize("schedule", [1.0, hurl.Ladder(1.0)])
def test_an_agent_that_blends_logged_returns_in_is_refused(schedule):
    model = guided_agent(schedule)
    model.prior = hurl.PriorData("some/data-v0", blend=0.5)
    with pytest.raises(HeuristicError, match=r"blend=0\.5, so that its critic estimates values with other discounts"):
        ValueFunctionHeuristic.from_agent(model)


def test_the_last_of_several_rungs_learns_the_problem_whatever_is_blended_in():
    model = guided_agent(hurl.Ladder(0.5, 1.0))
    model.prior = hurl.PriorData("some/data-v0", blend=0.5)
    assert ValueFunctionHeuristic.from_agent(model).gamma == GAMMA


def test_a_ladders_values_are_those_of_the_problem_whichever_rung_is_in_place():
    model = guided_agent(hurl.Ladder(0.5, 1.0))
    with model.on_rung(0), torch.no_grad():
        model.policy.value_net.bias += 1.0
        heuristic = ValueFunctionHeuristic.from_agent(model)
    assert_same(heuristic(observations()), torch_values(model, observations()))


@pytest.mark.parametrize(
    ("lambda_", "shaping", "sentence"),
    [(0.95, "hurl", "λ=0.95, so that its critic estimates values with discount"), (1.0, "pbrs", "estimates V − h")],
)
def test_a_guided_agent_that_values_another_mdp_is_refused(lambda_, shaping, sentence):
    with pytest.raises(HeuristicError, match=sentence):
        ValueFunctionHeuristic.from_agent(guided_agent(lambda_, shaping))


# Agents that can't be taken over -------------------------------------------------------------------------------------


class Doubled(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, 6)

    def forward(self, batch):
        return 2 * batch.flatten(start_dim=1)


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (sb3.PPO, {"policy_kwargs": {"activation_fn": torch.nn.ELU}}, "have ELU layers, and only linear layers"),
        (sb3.SAC, {"policy_kwargs": {**SMALL}, "use_sde": True}, "explores with gSDE"),
        (sb3.SAC, {"policy_kwargs": {"features_extractor_class": Doubled}}, "pass through a Doubled"),
        (sb3_contrib.ARS, {}, "ARS has no critic: take an agent of PPO"),
        (
            sb3_contrib.RecurrentPPO,
            {"policy": "MlpLstmPolicy"},
            "policy is of class RecurrentActorCriticPolicy, and only",
        ),
    ],
)
def test_agents_that_cannot_be_taken_over(algorithm, options, sentence):
    model = algorithm(options.pop("policy", "MlpPolicy"), environment(), **options)
    with pytest.raises(HeuristicError, match=sentence):
        ValueFunctionHeuristic.from_agent(model)


@pytest.mark.parametrize(
    ("policy_kwargs", "sentence"),
    [({"layer_norm": True}, "have LayerNorm layers"), ({"dropout_rate": 0.1}, r"at random \(dropout_rate=0.1\)")],
)
def test_sbx_agents_that_cannot_be_taken_over(policy_kwargs, sentence):
    import sbx

    model = sbx.TD3("MlpPolicy", environment(), buffer_size=50, policy_kwargs={**SMALL, **policy_kwargs})
    with pytest.raises(HeuristicError, match=sentence):
        ValueFunctionHeuristic.from_agent(model)


def test_an_sbx_activation_that_cannot_be_taken_over():
    import flax.linen as nn
    import sbx

    model = sbx.TD3("MlpPolicy", environment(), buffer_size=50, policy_kwargs={**SMALL, "activation_fn": nn.elu})
    with pytest.raises(HeuristicError, match="have elu layers"):
        ValueFunctionHeuristic.from_agent(model)


@pytest.mark.parametrize(
    ("policy", "space", "sentence"),
    [
        ("CnnPolicy", IMAGES, "policy is of class ActorCriticCnnPolicy"),
        ("MlpPolicy", IMAGES, r"images of shape \(3, 36, 36\), and only critics over state vectors"),
        ("MlpPolicy", spaces.MultiBinary(3), "only Box and Discrete"),
        ("MultiInputPolicy", spaces.Dict({"x": BOX}), "policy is of class MultiInputActorCriticPolicy"),
    ],
)
def test_observations_that_no_heuristic_is_over(policy, space, sentence):
    model = sb3.PPO(policy, environment(sb3.PPO, space), n_steps=8, batch_size=8)
    with pytest.raises(HeuristicError, match=sentence):
        ValueFunctionHeuristic.from_agent(model)


def test_normalisation_within_another_wrapper_is_refused():
    env = VecFrameStack(VecNormalize(environment()), 2)
    with pytest.raises(HeuristicError, match="put it outside of the other wrappers"):
        ValueFunctionHeuristic.from_agent(sb3.PPO("MlpPolicy", env, n_steps=8, batch_size=8))


def test_a_critic_over_the_number_of_a_state_is_refused():
    import sbx

    model = sbx.PPO("MlpPolicy", environment(sb3.PPO, spaces.Discrete(5)), n_steps=8, batch_size=8)
    with pytest.raises(HeuristicError, match=r"takes 1 inputs where observations of Discrete\(5\) make 5"):
        ValueFunctionHeuristic.from_agent(model)


def test_observations_of_another_shape_are_refused():
    heuristic = ValueFunctionHeuristic.from_agent(agent(sb3.PPO))
    with pytest.raises(HeuristicError, match=r"got observations of shape \(6,\)"):
        heuristic(np.zeros((4, 6), np.float32))
