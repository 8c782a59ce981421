"""Behaviour cloning: the actions of a dataset are put into a model's actor before it learns by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from hurl.data import Episodes, load_episodes
from hurl.pieces import pieces
from hurl.sb3.algorithms import GuidedAlgorithm
from hurl.sb3.internals import has_actor, has_memory, is_jax
from hurl.sb3.spaces import check_spaces
from hurl.values import check_argument, number, whole

if TYPE_CHECKING:
    from minari import MinariDataset

# The algorithms that have an actor which predicts actions by itself.
WITH_ACTOR = ("SAC", "TQC", "CrossQ", "TD3", "DDPG", "PPO", "A2C", "TRPO")
# Transitions whose loss is computed in one call.
LOSSES_PER_CALL = 2048
# Updates of a rehearsal in one call: always as many, so that SBX compiles them once.
UPDATES_PER_CALL = 16


class WarmStartError(ValueError):
    """A model or an argument that cloning can't be done with, and what to change."""


@dataclass(frozen=True)
class CloningResult:
    """What cloning did.

    :param epochs: passes over the data
    :param updates: gradient steps in all
    :param seconds: time taken, reading the data left out
    :param loss_before: mean loss of the data cloned, before the first update
    :param loss_after: the same after the last
    """

    epochs: int
    updates: int
    seconds: float
    loss_before: float
    loss_after: float


def warm_start(
    model: BaseAlgorithm,
    dataset: Episodes | MinariDataset | str,
    *,
    epochs: int = 30,
    learning_rate: float | None = None,
    batch_size: int = 128,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda epoch, loss: None,
    root: str | Path | None = None,
) -> CloningResult:
    """Clone the actions of a dataset into a model's actor, in place, by Adam on the mean over the transitions of

        ‖π(s) − a‖²       for continuous actions, π(s) the deterministic action
        −log π(a | s)     for discrete actions (cross-entropy)

    Continuous actions are compared as the policy puts them out: squashed ones (SAC, TQC, CrossQ, TD3, DDPG) in
    [−1, 1], those of a Gaussian (PPO, A2C, TRPO) in the environment's own units, by the mean before it is clipped.
    Observations are normalised by the model's `VecNormalize`, where it has one, as that stands at this moment.

    What the deterministic action does not depend on stays as it is: critics, and how much the policy explores (its
    standard deviation; where that is a head on the actor's layers, as in SAC, it moves with them, as does a critic that
    shares layers with the actor). Optimiser states stay as they are, target actors become copies of the cloned one, and
    no random state of the model is touched. Algorithms without an actor are refused: the outputs of a Q-network are
    returns, which trained as preferences between actions would mislead the learning that follows. Of a guided model
    with a ladder, all rungs get the networks of λ = 1 after it.

    Critics that know nothing lead a cloned policy away from what it can do as soon as it learns: see `Rehearsal`.

    :param model: an actor-critic model of Stable-Baselines3, sb3-contrib or SBX, guided or not
    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param epochs: passes over the data; each leaves out what does not fill a batch, other transitions every time
    :param learning_rate: None means that of the policy at the beginning of its training
    :param seed: of the batches' order
    :param report: called after each epoch with its number and its mean loss
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    """
    _check_actor(model)
    _check_counts(epochs=epochs, batch_size=batch_size)
    episodes = load_episodes(dataset, root)
    check_spaces(model, episodes)

    started = perf_counter()
    with model.on_rung(model.last_rung) if isinstance(model, GuidedAlgorithm) else nullcontext():
        actor = _build_actor(model, learning_rate)
        data = actor.prepare(_normalized(model, episodes.observations), _targets(model, episodes))
        before = actor.loss(data)
        generator, updates = np.random.default_rng(seed), 0
        for epoch in range(1, epochs + 1):
            batches = _batches(generator, episodes.transitions, batch_size)
            loss = _finite_epoch(actor, data, batches, f"cloning {episodes.name} diverged in epoch {epoch}")
            updates += len(batches)
            report(epoch, loss)
        actor.write()
        actor.write_target()
        after = actor.loss(data)
    if isinstance(model, GuidedAlgorithm):
        model.share_networks()
    return CloningResult(epochs, updates, perf_counter() - started, before, after)


class Rehearsal(BaseCallback):
    """Cloning that goes on while an off-policy model learns, so that it keeps what `warm_start` has given it.

    The critics of a cloned policy know nothing yet, and what they ask for undoes the clone within some hundred updates.
    So the actor is cloned into again after each call of `train`, at first as often as the model has updated itself,
    then less and less:

        updates of the rehearsal = own updates · max(0, 1 − t / steps)      t the model's count of environment steps

    It is a callback of `learn`. Its optimiser is one of its own, as that of `warm_start`; the algorithm's, and target
    actors, are not touched. Observations are normalised as the policy sees them when they are rehearsed. Of a guided
    model with a ladder, every rung rehearses as often as it learns.

    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param steps: environment steps until nothing is rehearsed any more
    :param learning_rate: None means that of the policy at the beginning of its training
    :param seed: of what is drawn from the data
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    """

    def __init__(
        self,
        dataset: Episodes | MinariDataset | str,
        *,
        steps: int,
        learning_rate: float | None = None,
        batch_size: int = 128,
        seed: int = 0,
        root: str | Path | None = None,
    ) -> None:
        super().__init__()
        _check_counts(steps=steps, batch_size=batch_size)
        self.episodes = load_episodes(dataset, root)
        self.steps, self.learning_rate, self.batch_size, self.seed = steps, learning_rate, batch_size, seed

    def _init_callback(self) -> None:
        model = self.model
        _check_actor(model)
        if not isinstance(model, OffPolicyAlgorithm):
            raise WarmStartError(
                f"{type(model).__name__} can't rehearse, which is for algorithms with a replay buffer: leave it out, "
                "or take one of SAC, TQC, CrossQ, TD3 and DDPG"
            )
        check_spaces(model, self.episodes)
        self.actors = []
        for rung in self._rungs():
            with rung:
                self.actors.append(_build_actor(model, self.learning_rate))
        self.begin(self.seed)

    def begin(self, seed: int) -> None:
        """Begin anew, with optimisers that have no past: what comes depends on the model and the seed alone."""
        self.targets, self.generator = _targets(self.model, self.episodes), np.random.default_rng(seed)
        self.due, self.own_updates = [0.0] * len(self.actors), [0] * len(self.actors)
        for index, rung in enumerate(self._rungs()):
            with rung:
                self._begin_rung(index)

    def _begin_rung(self, index: int) -> None:
        self.actors[index].begin(self.model.policy)
        self.due[index], self.own_updates[index] = 0.0, self.model._n_updates

    def rehearse(self) -> None:
        """Clone as often as is due after the updates that the model has made since the last time."""
        share = max(0.0, 1.0 - self.model.num_timesteps / self.steps)
        for index, rung in enumerate(self._rungs()):
            with rung:
                if self.actors[index].policy is not self.model.policy:  # the rung has been given others
                    self._begin_rung(index)
                updates = self.model._n_updates
                self.due[index] += share * (updates - self.own_updates[index])
                self.own_updates[index] = updates
                if share > 0.0:
                    self._clone(index)

    def _clone(self, index: int) -> None:
        actor, places = self.actors[index], np.arange(UPDATES_PER_CALL * self.batch_size)
        actor.read()
        while self.due[index] >= UPDATES_PER_CALL:
            rows = self.generator.integers(self.episodes.transitions, size=(UPDATES_PER_CALL, self.batch_size))
            states = self.episodes.states[self.episodes.positions[rows.ravel()]]
            data = actor.prepare(_normalized(self.model, states), self.targets[rows.ravel()])
            batches = places.reshape(rows.shape)
            loss = _finite_epoch(actor, data, batches, f"rehearsing {self.episodes.name} diverged")
            self.logger.record_mean("rehearsal/loss", loss)
            self.due[index] -= UPDATES_PER_CALL
        actor.write()

    def _rungs(self) -> list[AbstractContextManager[None]]:
        """Return what puts each rung's networks in their place; without a ladder there is one."""
        if isinstance(self.model, GuidedAlgorithm) and self.model.guidance is not None:
            return [self.model.on_rung(rung) for rung in range(max(1, len(self.model.guidance.rungs)))]
        return [nullcontext()]

    def _on_rollout_start(self) -> None:
        self.rehearse()

    def _on_training_end(self) -> None:
        self.rehearse()

    def _on_step(self) -> bool:
        return True


def _finite_epoch(actor: _JaxActor | _TorchActor, data: _Data, batches: NDArray[np.int64], diverged: str) -> float:
    """Clone batch by batch and return the loss; refuse one that is not finite."""
    try:
        loss = actor.run_epoch(data, batches)
    except ValueError:  # torch's distributions refuse NaN by it
        loss = float("nan")
    if not np.isfinite(loss):
        raise WarmStartError(f"{diverged}, the loss is {loss}: lower the learning rate from {actor.learning_rate}")
    return loss


def _check_actor(model: BaseAlgorithm) -> None:
    """Refuse a model that has no actor to clone into."""
    if has_memory(model) or not has_actor(model):
        kind = "its actor needs memory" if has_memory(model) else "it has no actor that predicts actions by itself"
        others = ", ".join(WITH_ACTOR)
        raise WarmStartError(f"{type(model).__name__} can't be warm-started, {kind}: take one of {others}")


# Data ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Data:
    """Observations as the policy's network takes them, and what it should answer, as arrays of its framework."""

    observations: Any
    targets: Any

    def __len__(self) -> int:
        return len(self.targets)


def _normalized(model: BaseAlgorithm, observations: NDArray[Any]) -> NDArray[Any]:
    """Return raw observations as the model's policy sees them at present."""
    normalization = model.get_vec_normalize_env()
    return observations if normalization is None else normalization.normalize_obs(observations)  # type: ignore[return-value]


def _targets(model: BaseAlgorithm, episodes: Episodes) -> NDArray[Any]:
    """Return the actions as the policy puts them out; shape (n,) or (n, parts) for discrete ones."""
    if not isinstance(model.action_space, Box):
        return episodes.actions
    scaled = model.policy.scale_action(episodes.actions) if model.policy.squash_output else episodes.actions
    return scaled.reshape(len(scaled), -1).astype(np.float32)


def _batches(generator: np.random.Generator, transitions: int, batch_size: int) -> NDArray[np.int64]:
    """Return the indices of one epoch's batches in random order, shape (updates, batch_size)."""
    batch_size = min(batch_size, transitions)
    updates = transitions // batch_size
    return generator.permutation(transitions)[: updates * batch_size].reshape(updates, batch_size)


# Actors --------------------------------------------------------------------------------------------------------------


def _build_actor(model: BaseAlgorithm, learning_rate: float | None) -> _JaxActor | _TorchActor:
    learning_rate = float(model.lr_schedule(1.0)) if learning_rate is None else learning_rate
    check_argument("learning_rate", learning_rate, number(0, above=True), WarmStartError)
    return (_JaxActor if is_jax(model) else _TorchActor)(model, learning_rate)


class _TorchActor:
    """The actor of a Stable-Baselines3 or sb3-contrib model, with an optimiser of its own."""

    def __init__(self, model: BaseAlgorithm, learning_rate: float) -> None:
        self.discrete = not isinstance(model.action_space, Box)
        self.learning_rate = learning_rate
        self.begin(model.policy)

    def begin(self, policy: Any) -> None:
        """Take a policy of the same kind, and an optimiser that has no past."""
        self.policy = policy
        # Adam leaves alone what has no gradient: the critic's layers, and the standard deviation.
        parameters = getattr(self.policy, "actor", self.policy).parameters()
        self.optimizer = torch.optim.Adam(parameters, self.learning_rate, fused=True)

    def read(self) -> None:
        """Nothing is to be read: the policy's own parameters are changed."""

    def prepare(self, observations: NDArray[Any], targets: NDArray[Any]) -> _Data:
        inputs, _ = self.policy.obs_to_tensor(observations)
        return _Data(inputs, torch.as_tensor(targets, dtype=torch.float32, device=self.policy.device))

    def run_epoch(self, data: _Data, batches: NDArray[np.int64]) -> float:
        self.policy.set_training_mode(True)
        total = torch.zeros((), device=self.policy.device)
        for batch in torch.as_tensor(batches, device=self.policy.device):
            self.optimizer.zero_grad()
            loss = self._losses(data.observations[batch], data.targets[batch]).mean()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        self.policy.set_training_mode(False)
        return float(total) / len(batches)

    @torch.no_grad()
    def loss(self, data: _Data) -> float:
        self.policy.set_training_mode(False)
        parts = pieces(len(data), LOSSES_PER_CALL)
        sums = [self._losses(data.observations[part], data.targets[part]).sum() for part in parts]
        return sum(map(float, sums)) / len(data)

    def write(self) -> None:
        """Leave no gradients behind."""
        self.optimizer.zero_grad()

    def write_target(self) -> None:
        """Make the target actor, where there is one, a copy of the actor."""
        if hasattr(self.policy, "actor_target"):
            self.policy.actor_target.load_state_dict(self.policy.actor.state_dict())

    def _losses(self, observations: Any, targets: Any) -> Any:
        if self.discrete:
            return -self.policy.get_distribution(observations).log_prob(targets)
        actions = self.policy._predict(observations, deterministic=True)
        return (actions.flatten(1) - targets).square().sum(1)


class _JaxActor:
    """The actor of an SBX model, with an optimiser of its own; an epoch is one call of compiled code."""

    def __init__(self, model: BaseAlgorithm, learning_rate: float) -> None:
        import jax
        import optax

        self.discrete = not isinstance(model.action_space, Box)
        self.learning_rate, self.optimizer = learning_rate, optax.adam(learning_rate)
        self.compiled_epoch, self.compiled_losses = jax.jit(self._scan), jax.jit(self._losses)
        self.begin(model.policy)

    def begin(self, policy: Any) -> None:
        """Take a policy of the same kind, and an optimiser that has no past."""
        self.policy = policy
        self.apply: Any = policy.actor_state.apply_fn
        self.read()
        self.optimizer_state = self.optimizer.init(self.parameters)

    def read(self) -> None:
        """Take the parameters as they are now."""
        state: Any = self.policy.actor_state
        self.parameters = state.params
        self.statistics = getattr(state, "batch_stats", None)  # of CrossQ's batch normalisation

    def prepare(self, observations: NDArray[Any], targets: NDArray[Any]) -> _Data:
        import jax.numpy as jnp

        inputs, _ = self.policy.prepare_obs(observations)
        return _Data(jnp.asarray(inputs), jnp.asarray(targets, jnp.int32 if self.discrete else jnp.float32))

    def run_epoch(self, data: _Data, batches: NDArray[np.int64]) -> float:
        carry = self.parameters, self.statistics, self.optimizer_state
        carry, loss = self.compiled_epoch(carry, data.observations, data.targets, batches.astype(np.int32))
        self.parameters, self.statistics, self.optimizer_state = carry
        return float(loss)

    def loss(self, data: _Data) -> float:
        losses = [
            self.compiled_losses(self.parameters, self.statistics, data.observations[part], data.targets[part])
            for part in pieces(len(data), LOSSES_PER_CALL)
        ]
        return float(np.concatenate(losses).mean(dtype=np.float64))

    def write(self) -> None:
        """Put the parameters into the policy."""
        state = self.policy.actor_state.replace(params=self.parameters)
        self.policy.actor_state = state if self.statistics is None else state.replace(batch_stats=self.statistics)

    def write_target(self) -> None:
        """Make the target actor, where there is one, a copy of the actor."""
        state = self.policy.actor_state
        if hasattr(state, "target_params"):
            self.policy.actor_state = state.replace(target_params=self.parameters)

    def _scan(self, carry: Any, observations: Any, targets: Any, batches: Any) -> Any:
        import jax
        import optax

        def loss(parameters: Any, statistics: Any, batch: Any) -> Any:
            outcome, statistics = self._call(parameters, statistics, observations[batch], train=True)
            return self._compare(outcome, targets[batch]).mean(), statistics

        def update(carry: Any, batch: Any) -> Any:
            parameters, statistics, optimizer_state = carry
            (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, statistics, batch)
            changes, optimizer_state = self.optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(parameters, changes), statistics, optimizer_state), value

        carry, losses = jax.lax.scan(update, carry, batches)
        return carry, losses.mean()

    def _losses(self, parameters: Any, statistics: Any, observations: Any, targets: Any) -> Any:
        outcome, _ = self._call(parameters, statistics, observations, train=False)
        return self._compare(outcome, targets)

    def _call(self, parameters: Any, statistics: Any, observations: Any, *, train: bool) -> tuple[Any, Any]:
        """Return what the network puts out, and the statistics of its batch normalisation, if any."""
        if statistics is None:
            return self.apply(parameters, observations), None
        variables = {"params": parameters, "batch_stats": statistics}
        outcome, changed = self.apply(variables, observations, train=train, mutable=["batch_stats"])
        return outcome, changed["batch_stats"]

    def _compare(self, outcome: Any, targets: Any) -> Any:
        if self.discrete:
            return -outcome.log_prob(targets)
        actions = outcome.mode() if hasattr(outcome, "mode") else outcome  # TD3's network puts out the action itself
        return ((actions - targets) ** 2).sum(axis=1)


# Checks --------------------------------------------------------------------------------------------------------------


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        check_argument(name, value, whole(1), WarmStartError)
