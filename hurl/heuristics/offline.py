"""The state value that an offline RL algorithm of d3rlpy learns from the data."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Self, get_args

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from hurl.data import Episodes, discounted_returns, load_episodes
from hurl.data.returns import usable_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin, register
from hurl.heuristics.monte_carlo import scores
from hurl.heuristics.network import Network, as_inputs, in_chunks, one_hot, standardisation
from hurl.heuristics.storage import check_shape
from hurl.names import install_extra, nearest
from hurl.values import check_argument, whole

__all__ = ["OfflineRLHeuristic"]

Algorithm = Literal["iql", "cql"]
Array = NDArray[np.float32]

# Actions that an expectation over the policy is the mean of, in each state.
DRAWS = 8
# The deviation of returns as continuous CQL is shown them: d3rlpy's defaults, which depend on the units, are made for
# the rewards of MuJoCo. With 1, its entropy bonus would be as large as the values, and its penalty too blunt.
CQL_UNIT = 50.0
# Updates between two reports.
REPORT_EVERY = 100
# The limits of log σ in d3rlpy's Gaussian policies.
LOG_DEVIATION_LIMITS = (-20.0, 2.0)


@register("offline-rl")
class OfflineRLHeuristic(StorableHeuristic):
    """V of an offline RL algorithm, which finds what the data allows beyond the policies that made it.

        iql                        h(s) = V(s), an upper expectile of Q(s, a) over the data's actions
        cql, continuous actions    h(s) = E_{a∼π(s)}[min_i Q_i(s, a)]
        cql, discrete actions      h(s) = max_a min_i Q_i(s, a)

    The expectation is the mean over a = tanh(μ(s) + σ(s)·z) for a few z that are drawn once and stored. d3rlpy (the
    extra `offline`) fits the networks; evaluating them needs NumPy alone. A time limit is no end: Q is bootstrapped.
    Sources: Kostrikov et al. 2021 (IQL), Kumar et al. 2020 (CQL).

    :param networks: `value` for IQL; `critic0`, `critic1`, … for CQL, and its `policy` if actions are continuous
    :param noise: the z of the policy, shape (draws, actions); None where there is no policy
    """

    observation_space: ObservationSpace
    time_limit = "bootstrap"

    def __init__(self, algorithm: Algorithm, networks: dict[str, Network], noise: Array | None, **origin: Any) -> None:
        super().__init__(**origin)
        self.algorithm = algorithm
        self.networks = networks
        self.noise = noise

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        algorithm: Algorithm = "iql",
        steps: int = 20_000,
        batch_size: int = 256,
        hidden: Sequence[int] = (256, 256),
        validation: float = 0.1,
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **options: Any,
    ) -> Self:
        """Run the algorithm on a dataset, its observations standardised and its rewards scaled by the deviation of the
        returns, so that its parameters mean the same whatever the units.

        Parameters that are not named here are those of `MonteCarloHeuristic.fit`.

        :param algorithm: `iql`, for continuous actions, or `cql`, which takes some six times as long
        :param steps: updates
        :param batch_size: transitions in an update
        :param hidden: widths of the hidden layers
        :param validation: the share of episodes that are held out to measure R² against their returns; 0 holds none out
        :param report: called every 100 updates with their number, that of all, the loss, and None
        :param options: the algorithm's own numbers, as d3rlpy names them, such as `expectile` (IQL),
            `conservative_weight` (CQL) or `alpha` (CQL, discrete actions)
        """
        if algorithm not in get_args(Algorithm):
            raise HeuristicError(f"algorithm must be one of {', '.join(get_args(Algorithm))}, got {algorithm!r}")
        check_argument("steps", steps, whole(1), HeuristicError)
        check_argument("batch_size", batch_size, whole(1), HeuristicError)
        episodes = usable_episodes(load_episodes(dataset, root), gamma, "bootstrap")
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        begun = perf_counter()
        config = _configuration(algorithm, episodes, gamma, steps, hidden, options)
        networks, loss = _train(config, train, gamma, steps, batch_size, seed, report)
        noise = None
        if "policy" in networks:
            half = np.random.default_rng(seed).normal(size=(DRAWS // 2, networks["policy"].sizes[-1] // 2))
            noise = np.concatenate([half, -half]).astype(np.float32)  # in pairs, so that their mean is exactly 0
        heuristic = cls(algorithm, networks, noise, **data_origin(episodes, gamma, steps=steps, loss=loss))
        heuristic._check_convergence(train)
        heuristic.metrics |= scores(train, held_out, gamma, "bootstrap", heuristic)
        heuristic.metrics["seconds"] = perf_counter() - begun
        return heuristic

    def __call__(self, observations: Any) -> Array:
        """Return h for a batch of observations, shape (n,)."""
        return in_chunks(self._values, as_inputs(observations, self.observation_space))

    def _values(self, inputs: NDArray[Any]) -> Array:
        if "value" in self.networks:
            return self.networks["value"](inputs)[:, 0]
        if self.noise is None:
            values: Array = self._lowest(inputs).max(axis=1)
            return values
        vectors = one_hot(inputs, self.observation_space.n)
        means, log_deviations = np.split(self.networks["policy"](vectors), 2, axis=1)
        deviations = np.exp(np.clip(log_deviations, *LOG_DEVIATION_LIMITS))
        actions = np.tanh(means[:, None] + deviations[:, None] * self.noise)
        pairs = np.concatenate([np.repeat(vectors, len(self.noise), axis=0), actions.reshape(-1, means.shape[1])], 1)
        expected: Array = self._lowest(pairs).reshape(len(inputs), -1).mean(axis=1)
        return expected

    def _lowest(self, inputs: NDArray[Any]) -> Array:
        """Return min_i Q_i, shape (n, outputs)."""
        critics = [network for name, network in self.networks.items() if name.startswith("critic")]
        lowest: Array = np.min([critic(inputs) for critic in critics], axis=0)
        return lowest

    def _check_convergence(self, episodes: Episodes) -> None:
        """Refuse values that are on average far beyond max |r|/(1−γ), which no sum of discounted rewards exceeds."""
        assert self.gamma is not None
        size, limit = np.abs(self(episodes.observations)).mean(), np.abs(episodes.rewards).max() / (1.0 - self.gamma)
        if not np.isfinite(size) or size > 3 * limit > 0:
            raise HeuristicError(
                f"{self.algorithm} diverged: its values are {size:.3g} on average, and rewards like these add up to "
                f"{limit:.3g} at most; lower `tau` or the learning rate, or raise the weight of CQL's penalty"
            )

    def settings(self) -> dict[str, Any]:
        """Return the algorithm and the architectures."""
        networks = {name: network.settings() for name, network in self.networks.items()}
        draws = None if self.noise is None else len(self.noise)
        return {"algorithm": self.algorithm, "networks": networks, "draws": draws}

    def weights(self) -> Weights:
        """Return those of the networks, and the noise."""
        weights: Weights = {} if self.noise is None else {"noise": self.noise}
        for name, network in self.networks.items():
            weights |= network.weights(f"{name}.")
        return weights

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        networks = {
            name: Network.restore(network, weights, f"{name}.") for name, network in settings["networks"].items()
        }
        noise = None
        if settings["draws"] is not None:
            noise = check_shape(weights, "noise", (settings["draws"], networks["policy"].sizes[-1] // 2))
        return cls(settings["algorithm"], networks, noise, **origin)


def _d3rlpy() -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # importing it says that Gym is no longer maintained
            import d3rlpy
    except ModuleNotFoundError as error:
        raise ImportError(f"OfflineRLHeuristic needs d3rlpy ({error}): {install_extra('offline')}") from error
    return d3rlpy


def _configuration(
    algorithm: Algorithm, episodes: Episodes, gamma: float, steps: int, hidden: Sequence[int], options: dict[str, Any]
) -> Any:
    """Return d3rlpy's configuration, with defaults for fewer updates than is usual.

    Target networks must pass values on over the horizon 1/(1−γ) within the updates that there are, so they follow the
    networks with a delay of a fifth of steps·(1−γ).
    """
    d3rlpy = _d3rlpy()
    space = episodes.action_space
    if not isinstance(space, Box | Discrete):
        raise HeuristicError(f"offline RL on actions of {space} is not possible: only of a Box or Discrete space")
    discrete = isinstance(space, Discrete)
    if discrete and algorithm == "iql":
        raise HeuristicError(f"IQL needs continuous actions, these are of {space}: use algorithm='cql'")
    delay = max(1.0, steps * (1.0 - gamma) / 5)
    defaults: dict[str, Any]
    if algorithm == "iql":
        cls, defaults = d3rlpy.algos.IQLConfig, {"tau": max(0.005, 1 / delay)}
    elif discrete:
        cls = d3rlpy.algos.DiscreteCQLConfig
        defaults = {"learning_rate": 3e-4, "alpha": 0.1, "target_update_interval": round(delay)}
    else:
        cls = d3rlpy.algos.CQLConfig
        defaults = {
            "tau": max(0.005, 1 / delay),
            "alpha_learning_rate": 0.0,  # the weight of the penalty stays as it is
            "actor_learning_rate": 1e-3,
            "n_action_samples": 4,
        }
    known = {field.name for field in fields(cls) if field.type in (int, float, bool)} - {"gamma", "batch_size"}
    for name in options:
        if name not in known:
            raise HeuristicError(
                f"{cls.__name__} of d3rlpy has no number {name!r}{nearest(name, known)}; it has "
                f"{', '.join(sorted(known))}"
            )
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=list(hidden))
    encoders = {field.name: encoder for field in fields(cls) if field.name.endswith("encoder_factory")}
    return cls(gamma=gamma, **encoders, **(defaults | options))


class _Transitions:
    """The data as the algorithm is shown it: standardised vectors, actions within [−1, 1], scaled rewards."""

    def __init__(self, episodes: Episodes, value_scale: float) -> None:
        self.episodes, self.value_scale = episodes, value_scale
        self.space = ObservationSpace.of(episodes.observation_space)
        self.states = as_inputs(episodes.states, self.space)
        self.mean, self.scale = standardisation(self.states[episodes.positions], self.space.n)
        self.actions, self.action_size = _actions(episodes)

    def batch(self, rows: NDArray[np.int64]) -> Any:
        """Return some of the transitions as d3rlpy takes them."""
        import torch
        from d3rlpy.torch_utility import TorchMiniBatch

        positions = self.episodes.positions[rows]
        vectors = (one_hot(self.states[where], self.space.n) for where in (positions, positions + 1))
        arrays: tuple[NDArray[Any], ...] = (
            *((vector - self.mean) / self.scale for vector in vectors),
            self.actions[rows],
            self.episodes.rewards[rows, None] / self.value_scale,
            self.episodes.terminal[rows, None],
        )
        observations, following, actions, rewards, ends = (torch.from_numpy(x.astype(np.float32)) for x in arrays)
        return TorchMiniBatch(
            observations=observations,
            actions=actions,
            rewards=rewards,
            next_observations=following,
            next_actions=actions,  # neither algorithm reads them
            returns_to_go=rewards,  # nor these
            terminals=ends,
            intervals=torch.ones_like(rewards),
            device="cpu",
        )


def _train(
    config: Any, episodes: Episodes, gamma: float, steps: int, batch_size: int, seed: int, report: FitReport
) -> tuple[dict[str, Network], float]:
    """Return the networks of the trained algorithm, in the units of the data, and the mean loss of the last report."""
    import torch

    returns = discounted_returns(episodes, gamma=gamma)
    value_scale = (float(np.std(returns)) or 1.0) / (CQL_UNIT if hasattr(config, "conservative_weight") else 1.0)
    data = _Transitions(episodes, value_scale)
    generator = np.random.default_rng(seed)
    losses: list[float] = []
    loss = float("nan")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = config.create(device=False)
        learner.create_impl((len(data.mean),), data.action_size)
        _begin_at(float(np.mean(returns)) / value_scale, learner.impl.modules)
        for step in range(1, steps + 1):
            rows = generator.integers(episodes.transitions, size=batch_size)
            losses.append(_update(learner.impl, data.batch(rows), step))
            if step % REPORT_EVERY == 0 or step == steps:
                loss = float(np.mean(losses))
                losses.clear()
                report(step, steps, loss, None)
    return _networks(learner.impl.modules, partial(_exported, mean=data.mean, scale=data.scale), value_scale), loss


def _networks(modules: Any, export: Callable[..., Network], value_scale: float) -> dict[str, Network]:
    """Return the networks that V is made of, by name."""
    if hasattr(modules, "value_func"):
        return {"value": export(modules.value_func, value_scale=value_scale)}
    critics = enumerate(modules.q_funcs)
    networks = {f"critic{index}": export(critic, value_scale=value_scale) for index, critic in critics}
    if hasattr(modules, "policy"):
        networks["policy"] = export(modules.policy, value_scale=1.0, heads=2)
    return networks


def _begin_at(value: float, modules: Any) -> None:
    """Let all values begin near the mean of the returns, not near 0, which target networks would be slow to leave."""
    import torch

    functions = [modules.value_func] if hasattr(modules, "value_func") else []
    with torch.no_grad():
        for function in [*functions, *modules.q_funcs, *modules.targ_q_funcs]:
            _linear_layers(function)[-1].bias += value


def _linear_layers(module: Any) -> list[Any]:
    from torch.nn import Linear

    return [layer for layer in module.modules() if isinstance(layer, Linear)]


def _update(impl: Any, batch: Any, step: int) -> float:
    """Learn from a batch; return the loss."""
    if hasattr(impl.modules, "value_func"):
        # V does not depend on the policy, which would take a third of the time
        losses = impl.update_critic(batch)
        impl.update_critic_target()
    else:
        losses = impl.update(batch, step)
    return float(losses["critic_loss"] if "critic_loss" in losses else losses["loss"])


def _actions(episodes: Episodes) -> tuple[Array, int]:
    """Return actions as d3rlpy takes them, shape (N, actions), and how many numbers, or choices, there are.

    Numbers are brought to [−1, 1], the range of its policies: from the limits of the space, or of the data where the
    space has none.
    """
    space = episodes.action_space
    if isinstance(space, Discrete):
        return (episodes.actions.reshape(-1, 1) - space.start).astype(np.float32), int(space.n)
    assert isinstance(space, Box)
    flat = episodes.actions.reshape(len(episodes.actions), -1).astype(np.float64)
    low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    low, high = np.where(np.isfinite(low), low, flat.min(axis=0)), np.where(np.isfinite(high), high, flat.max(axis=0))
    width = np.where(high > low, high - low, 1.0)
    return np.clip(2 * (flat - low) / width - 1, -1, 1).astype(np.float32), flat.shape[1]


def _exported(
    module: Any, mean: NDArray[np.float64], scale: NDArray[np.float64], value_scale: float, heads: int = 1
) -> Network:
    """Return a torch module as a network over observations, and of values, in their own units.

    :param heads: how many linear layers side by side are the last
    """
    layers = [
        (layer.weight.detach().numpy().T.astype(np.float64), layer.bias.detach().numpy().astype(np.float64))
        for layer in _linear_layers(module)
    ]
    weights, biases = zip(*layers[-heads:], strict=True)
    layers[-heads:] = [(np.concatenate(weights, axis=1) * value_scale, np.concatenate(biases) * value_scale)]
    weight, bias = layers[0]
    size = len(mean)  # an action's numbers, which come after the observation's, stay as they are
    standard = weight[:size] / scale[:, None]
    layers[0] = np.concatenate([standard, weight[size:]]), bias - mean @ standard
    return Network(tuple((weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in layers), "relu")
