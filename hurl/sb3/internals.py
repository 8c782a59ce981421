"""What lies inside models of Stable-Baselines3, sb3-contrib (torch) and SBX (JAX), of which each library has its own.

What runs and checkpoints need from behind their public face is here: weights and optimiser states, random keys, and
the two halves of `learn`. Of what there is, torch's models have modules and SBX's have training states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv


def is_jax(model: BaseAlgorithm) -> bool:
    """Whether a model is SBX's: those of torch say which modules they save."""
    return not model._get_torch_save_params()[0]


def has_memory(model: BaseAlgorithm) -> bool:
    """Whether a model's policy remembers earlier steps."""
    return hasattr(model.policy, "lstm_actor")


def has_actor(model: BaseAlgorithm) -> bool:
    """Whether a model has an actor that predicts actions by itself."""
    policy = model.policy
    return hasattr(policy, "actor_state") or hasattr(policy, "actor") or isinstance(policy, ActorCriticPolicy)


# Weights and optimiser states ----------------------------------------------------------------------------------------


def read_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Return weights, optimiser states and random keys, as nested containers of arrays and plain values."""
    if is_jax(model):
        import jax

        return {
            key: [np.asarray(leaf) for leaf in jax.tree.leaves(getattr(owner, attribute))]
            for key, (owner, attribute) in _jax_states(model).items()
        }
    variables = {name: _attribute(model, name) for name in _torch_variables(model)}
    arrays: dict[str, Any] = map_tensors({"parameters": model.get_parameters(), "variables": variables}, _to_array)
    return arrays


def write_state(model: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Put what `read_state` returned into a model of the same architecture."""
    if is_jax(model):
        for key, (owner, attribute) in _jax_states(model).items():
            setattr(owner, attribute, _with_leaves(getattr(owner, attribute), state[key], key))
        return
    stored = map_tensors(dict(state), lambda array: torch.as_tensor(array, device=model.device))
    model.set_parameters(stored["parameters"], exact_match=True)
    for name in _torch_variables(model):
        _attribute(model, name).data = stored["variables"][name]


def write_weights(model: BaseAlgorithm, find: Callable[[str, str], Any]) -> None:
    """Put weights, and statistics of batch normalisation, into the training states of an SBX policy.

    :param find: returns nested arrays, by the policy's attribute and the field of the training state
    """
    import jax
    from flax.training.train_state import TrainState

    states = {attribute: value for attribute, value in vars(model.policy).items() if isinstance(value, TrainState)}
    for attribute, state in states.items():
        names = [name for name in ("params", "target_params", "batch_stats") if hasattr(state, name)]
        leaves = jax.tree.leaves({name: find(attribute, name) for name in names})
        fields = _with_leaves({name: getattr(state, name) for name in names}, leaves, attribute)
        setattr(model.policy, attribute, state.replace(**fields))


# Counters that go with networks: how often they were updated, when target networks and parameters are to be set anew.
COUNTERS = ("_n_updates", "_n_calls", "reset_idx")


def copy_networks(model: BaseAlgorithm) -> dict[str, Any]:
    """Return copies of all attributes of a model that change as it learns: networks, optimisers, keys and counters."""
    if is_jax(model):  # whose states are immutable
        own = [attribute for owner, attribute in _jax_states(model).values() if owner is model]
        networks = {name: getattr(model, name) for name in own} | {"policy": copy(model.policy)}
        if hasattr(model, "adaptive_lr"):
            networks["adaptive_lr"] = deepcopy(model.adaptive_lr)
    else:
        learnt = {name: value for name, value in vars(model).items() if _is_learnt(value)}
        try:
            networks = deepcopy(learnt, _drawn(model))  # at once, so that optimisers stay with their parameters
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"a ladder needs networks for each rung, and {type(model.policy).__name__} can't be copied ({error}): "
                "give the guidance a schedule"
            ) from error
    return networks | {name: vars(model)[name] for name in COUNTERS if name in vars(model)}


def copy_policy(model: BaseAlgorithm) -> BasePolicy:
    """Return a copy of a model's policy that stays as it is while the model learns."""
    if is_jax(model):  # whose states are immutable
        return copy(model.policy)
    try:
        return deepcopy(model.policy, _drawn(model))
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{type(model.policy).__name__} can't be copied ({error}), and so is no guide") from error


def read_actor(policy: Any) -> dict[str, Any]:
    """Return the weights that a policy's deterministic actions depend on, as nested containers of arrays."""
    name = _acting_state(policy)
    if name is None:
        return dict(map_tensors(dict(getattr(policy, "actor", policy).state_dict()), _to_array))
    import jax

    fields = _acting_fields(getattr(policy, name))
    return {field: [np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for field, tree in fields.items()}


def write_actor(policy: Any, weights: Mapping[str, Any]) -> None:
    """Put what `read_actor` returned into a policy of the same architecture."""
    name = _acting_state(policy)
    if name is None:
        tensors = map_tensors(dict(weights), lambda array: torch.as_tensor(array, device=policy.device))
        getattr(policy, "actor", policy).load_state_dict(tensors)
        return
    state = getattr(policy, name)
    fields = {field: _with_leaves(tree, weights[field], name) for field, tree in _acting_fields(state).items()}
    setattr(policy, name, state.replace(**fields))


def _acting_state(policy: Any) -> str | None:
    """Return which training state an SBX policy acts with; a policy of torch has none."""
    return next((name for name in ("actor_state", "qf_state") if hasattr(policy, name)), None)


def _acting_fields(state: Any) -> dict[str, Any]:
    """Return weights, and statistics of batch normalisation, of a training state."""
    return {name: getattr(state, name) for name in ("params", "batch_stats") if hasattr(state, name)}


def _drawn(model: BaseAlgorithm) -> dict[int, Any]:
    """Return what `deepcopy` is to put for what policies keep of the actions drawn last, which is no parameter."""
    distributions = [module.action_dist for module in model.policy.modules() if hasattr(module, "action_dist")]
    drawn = [value for distribution in distributions for value in vars(distribution).values()]
    kept = (torch.distributions.Distribution, list)
    return {id(value): value for value in drawn if isinstance(value, kept)} | {
        id(value): value.detach() for value in drawn if isinstance(value, torch.Tensor)
    }


def _is_learnt(value: Any) -> bool:
    if isinstance(value, list) and value:
        return all(isinstance(part, torch.Tensor) for part in value)
    return isinstance(value, torch.nn.Module | torch.Tensor | torch.optim.Optimizer)


def _jax_states(model: BaseAlgorithm) -> dict[str, tuple[Any, str]]:
    """Return where SBX keeps arrays: training states and random keys, as attributes of the model and its policy."""
    import jax
    from flax.training.train_state import TrainState

    return {
        f"{name}.{attribute}": (owner, attribute)
        for name, owner in (("model", model), ("policy", model.policy))
        for attribute, value in vars(owner).items()
        if isinstance(value, jax.Array | TrainState)
    }


def _with_leaves(tree: Any, leaves: list[Any], name: str) -> Any:
    """Return a tree of the same structure and shapes with other leaves."""
    import jax
    import jax.numpy as jnp

    old, structure = jax.tree.flatten_with_path(tree)
    new = [jnp.asarray(leaf) for leaf in leaves]
    for (where, before), after in zip(old, new, strict=True):
        if np.shape(before) != after.shape:
            place = f"{name}{jax.tree_util.keystr(where)}"
            raise ValueError(f"{place} has shape {after.shape}, the model's {np.shape(before)}")
    return jax.tree.unflatten(structure, new)


def map_tensors(values: Any, function: Callable[[Any], Any]) -> Any:
    """Return nested values with a function applied to tensors and arrays."""
    if isinstance(values, dict):
        return {key: map_tensors(value, function) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(map_tensors(value, function) for value in values)
    return function(values) if isinstance(values, torch.Tensor | np.ndarray) else values


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().numpy()


def _torch_variables(model: BaseAlgorithm) -> list[str]:
    return [name for name in model._get_torch_save_params()[1] if _attribute(model, name) is not None]


def _attribute(model: BaseAlgorithm, name: str) -> Any:
    value: Any = model
    for part in name.split("."):
        value = getattr(value, part)
    return value


# The two halves of `learn` -------------------------------------------------------------------------------------------


def begin_episodes(model: BaseAlgorithm, env: VecEnv, seed: int) -> None:
    """Begin new episodes in all environments from a seed, so that nothing of the simulator needs saving."""
    env.seed(seed)
    model._last_obs = env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones((env.num_envs,), dtype=bool)
    normalization = model.get_vec_normalize_env()
    if normalization is not None:  # replay buffers store what is beneath it
        model._last_original_obs = normalization.get_original_obs()
    for name in ("guidance", "curriculum"):  # what follows episodes, where a model has it
        follower = getattr(model, name, None)
        if follower is not None:
            follower.abandon_episodes()


def begin_learning(model: BaseAlgorithm, steps: int, callback: BaseCallback) -> None:
    """Do what `learn` does before its loop, for so many steps in all."""
    model._setup_learn(steps - model.num_timesteps, callback, reset_num_timesteps=False)
    callback.on_training_start({}, {})


def collect(model: BaseAlgorithm, callback: BaseCallback) -> int:
    """Collect a rollout, as `learn` does; return its steps."""
    before = model.num_timesteps
    if isinstance(model, OffPolicyAlgorithm):
        model.collect_rollouts(
            model.env,  # type: ignore[arg-type]
            callback,
            model.train_freq,  # type: ignore[arg-type]
            model.replay_buffer,  # type: ignore[arg-type]
            action_noise=model.action_noise,
            learning_starts=model.learning_starts,
        )
    elif isinstance(model, OnPolicyAlgorithm):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)  # type: ignore[arg-type]
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
    return model.num_timesteps - before


def train(model: BaseAlgorithm, steps: int) -> None:
    """Train on what there is, as `learn` does after a rollout of so many steps."""
    if isinstance(model, OnPolicyAlgorithm):
        model.train()
    elif isinstance(model, OffPolicyAlgorithm) and model.num_timesteps > model.learning_starts:
        gradient_steps = model.gradient_steps if model.gradient_steps >= 0 else steps
        if gradient_steps > 0:
            model.train(batch_size=model.batch_size, gradient_steps=gradient_steps)


# Acting --------------------------------------------------------------------------------------------------------------


def seed_actions(model: BaseAlgorithm, seed: int) -> None:
    """Seed all that a model's actions are drawn with."""
    set_random_seed(seed)
    model.action_space.seed(seed)
    policy: Any = model.policy
    if hasattr(policy, "key"):
        import jax

        policy.key = jax.random.PRNGKey(seed)


def sample_at_once(model: BaseAlgorithm) -> None:
    """Let an SBX policy split its random key and draw actions in one compiled call, without its optimiser's state.

    The actions are the same, and come in a third of the time.
    """
    policy: Any = model.policy
    if not hasattr(policy, "noise_key") or not hasattr(policy, "reset_noise") or policy.use_sde:
        return
    import jax

    @jax.jit
    def sample(state: Any, observations: Any, key: Any) -> tuple[Any, Any]:
        key, noise_key = jax.random.split(key)
        return key, policy.sample_action(state, observations, noise_key)

    predict = policy._predict

    def predict_at_once(observations: Any, deterministic: bool = False) -> Any:
        if deterministic:
            return predict(observations, deterministic=True)
        policy.key, actions = sample(policy.actor_state.replace(opt_state=()), observations, policy.key)
        return actions

    policy._predict = predict_at_once
