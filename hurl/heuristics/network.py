"""A small multilayer perceptron over state vectors: fitted in JAX, evaluated in plain NumPy.

No framework sits in an agent's collection loop: a call costs two or three matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, Weights
from hurl.heuristics.storage import check_shape
from hurl.names import needs
from hurl.pieces import pieces
from hurl.values import NOTHING, check_argument, list_of, number, whole

__all__ = [
    "Activation",
    "Fitting",
    "Network",
    "as_inputs",
    "compile_epoch",
    "fit_network",
    "fit_networks",
    "forward",
    "in_chunks",
    "initial_parameters",
    "one_hot",
    "standardisation",
]

Activation = Literal["tanh", "relu"]
Array = NDArray[np.float32]
Parameters = list[tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Network:
    """f(x) = W_k·σ(… σ(W_1·x + b_1) …) + b_k.

    Over a Discrete space x is the one-hot vector of a state, so that W_1·x is a row of W_1.

    :param layers: (W, b) of each layer, of shapes (inputs, outputs) and (outputs,)
    :param activation: σ
    """

    layers: tuple[tuple[Array, Array], ...]
    activation: Activation = "tanh"

    def __call__(self, inputs: NDArray[Any]) -> Array:
        """Return the outputs, shape (n, outputs).

        :param inputs: shape (n, inputs), or integers of shape (n,) for one-hot vectors
        """
        (weight, bias), *rest = self.layers
        values: Array = (weight[inputs] if inputs.dtype.kind in "iu" else inputs @ weight) + bias
        for weight, bias in rest:
            np.tanh(values, out=values) if self.activation == "tanh" else np.maximum(values, 0, out=values)
            values = values @ weight
            values += bias
        return values

    @property
    def sizes(self) -> list[int]:
        """The width of each layer, inputs and outputs included."""
        return [len(self.layers[0][0]), *(len(bias) for _, bias in self.layers)]

    def settings(self) -> dict[str, Any]:
        """Return the architecture."""
        return {"sizes": self.sizes, "activation": self.activation}

    def weights(self, prefix: str = "") -> Weights:
        """Return the arrays, by name."""
        return {
            f"{prefix}{index}.{name}": array
            for index, layer in enumerate(self.layers)
            for name, array in zip(("weight", "bias"), layer, strict=True)
        }

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, prefix: str = "") -> Network:
        """Make a network from its architecture and arrays, whose shapes are checked."""
        check_activation(settings["activation"])
        sizes = settings["sizes"]
        layers = tuple(
            (
                check_shape(weights, f"{prefix}{index}.weight", (inputs, outputs)),
                check_shape(weights, f"{prefix}{index}.bias", (outputs,)),
            )
            for index, (inputs, outputs) in enumerate(pairwise(sizes))
        )
        return cls(layers, settings["activation"])


def as_inputs(observations: NDArray[Any], space: ObservationSpace) -> NDArray[Any]:
    """Return what a network takes: flat vectors of float32, or the numbers of states from 0 on."""
    observations = np.asarray(observations)
    if observations.shape == space.shape:
        raise HeuristicError(f"the heuristic is for batches, got one observation of {space}: put it into a list")
    if observations.shape[1:] != space.shape:
        raise HeuristicError(
            f"the heuristic is for observations of {space}, got observations of shape {observations.shape[1:]}"
        )
    if space.n is None:
        return observations.reshape(len(observations), -1).astype(np.float32, copy=False)
    states = observations.astype(np.int64) - space.start
    if len(states) and not 0 <= states.min() <= states.max() < space.n:
        raise HeuristicError(
            f"the heuristic is for states of {space}, got {observations.min()} to {observations.max()}"
        )
    return states


def in_chunks(function: Callable[[NDArray[Any]], NDArray[Any]], inputs: NDArray[Any], size: int = 2048) -> NDArray[Any]:
    """Return what a function of a batch returns, taking a large batch in pieces: its hidden values need memory."""
    if len(inputs) <= size:
        return function(inputs)
    return np.concatenate([function(inputs[piece]) for piece in pieces(len(inputs), size)])


def one_hot(inputs: NDArray[Any], n: int | None) -> Array:
    """Return vectors in place of the numbers of states; vectors stay as they are.

    :param inputs: what `as_inputs` returns
    :param n: the number of states of a Discrete space
    """
    if n is None:
        return inputs
    vectors = np.zeros((len(inputs), n), np.float32)
    vectors[np.arange(len(inputs)), inputs] = 1.0
    return vectors


def standardisation(inputs: NDArray[Any], n: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and deviation of each input; 0 and 1 for one-hot vectors.

    :param inputs: what `as_inputs` returns
    :param n: the number of states of a Discrete space
    """
    if n is not None:
        return np.zeros(n), np.ones(n)
    mean, deviation = inputs.mean(axis=0, dtype=np.float64), inputs.std(axis=0, dtype=np.float64)
    deviation[deviation < 1e-6] = 1.0  # a constant says nothing: leave it as it is
    return mean, deviation


@dataclass(frozen=True)
class Fitting:
    """How a network is fitted; the defaults are the paper's.

    :param hidden: widths of the hidden layers
    :param activation: of the hidden layers
    :param learning_rate: Adam's step size
    :param batch_size: transitions in an update
    :param epochs: passes over the data
    :param standardise: whether inputs and targets are brought to mean 0 and deviation 1 within the network
    :param patience: epochs without improvement on held-out data after which fitting stops; the best weights are kept.
        None goes through all epochs and keeps the last
    """

    hidden: Sequence[int] = (256, 256)
    activation: Activation = "tanh"
    learning_rate: float = 1e-3
    batch_size: int = 128
    epochs: int = 30
    standardise: bool = True
    patience: int | None = None

    def __post_init__(self) -> None:
        check_argument("batch_size", self.batch_size, whole(1), HeuristicError)
        check_argument("epochs", self.epochs, whole(1), HeuristicError)
        check_argument("patience", self.patience, whole(1) | NOTHING, HeuristicError)
        check_argument("learning_rate", self.learning_rate, number(0, above=True), HeuristicError)
        check_argument("hidden", self.hidden, list_of(whole(1)), HeuristicError)
        check_activation(self.activation)


def check_activation(activation: str) -> None:
    """Refuse an activation function that networks don't have."""
    if activation not in get_args(Activation):
        raise HeuristicError(f"activation must be one of {', '.join(get_args(Activation))}, got {activation!r}")


def check_loss(loss: float, epoch: int, learning_rate: float) -> None:
    """Refuse to go on where fitting diverged."""
    if not np.isfinite(loss):
        raise HeuristicError(
            f"fitting diverged in epoch {epoch}, the loss is {loss}: lower the learning rate from {learning_rate}"
        )


def fit_network(
    inputs: NDArray[Any],
    targets: Callable[[Network | None], NDArray[np.floating[Any]]],
    *,
    n: int | None,
    fitting: Fitting,
    seed: int,
    judge: Callable[[Network], float] | None = None,
    report: FitReport = lambda done, total, loss, score: None,
) -> tuple[Network, dict[str, float]]:
    """Fit one network, see `fit_networks`.

    :param targets: y for an epoch, given the network so far (None before the first), shape (n,)
    :param judge: a score on held-out data, higher is better; None where nothing is held out
    """
    networks, metrics = fit_networks(
        inputs,
        [np.arange(len(inputs))],
        lambda networks: [targets(None if networks is None else networks[0])],
        n=n,
        fitting=fitting,
        seeds=[seed],
        judge=None if judge is None else lambda networks: judge(networks[0]),
        report=report,
    )
    return networks[0], metrics


def fit_networks(
    inputs: NDArray[Any],
    parts: Sequence[NDArray[np.integer[Any]]],
    targets: Callable[[Sequence[Network] | None], Sequence[NDArray[np.floating[Any]]]],
    *,
    n: int | None,
    fitting: Fitting,
    seeds: Sequence[int],
    judge: Callable[[Sequence[Network]], float] | None = None,
    report: FitReport = lambda done, total, loss, score: None,
) -> tuple[list[Network], dict[str, float]]:
    """Fit networks by least squares, side by side: min_θ Σ_{i ∈ part} (f_θ(x_i) − y_i)², by Adam on minibatches.

    :param inputs: what `as_inputs` returns
    :param parts: the inputs that each network is fitted to; in an epoch all networks see as many, those of the smallest
    :param targets: y of each network for an epoch, given the networks so far (None before the first), shape (n,) each
    :param n: the number of states of a Discrete space
    :param seeds: of each network's first weights and order of the data
    :param judge: a score of all networks on held-out data, higher is better; None where nothing is held out
    :param report: called after each epoch with its number, that of all, the mean loss in units of the targets, and
        the score
    :return: the networks with the standardisation folded into their weights, and metrics
    """
    with needs("fitting a heuristic", "fast"):
        import jax
        import jax.numpy as jnp

    scalings = [_Scaling.of(inputs, values, fitting.standardise) for values in targets(None)]
    sizes = [n or inputs.shape[1], *fitting.hidden, 1]
    start, run_epoch = compile_epoch(_squared_error(fitting.activation), fitting)
    states = [start(initial_parameters(sizes, np.random.default_rng(seed))) for seed in seeds]
    keys: Sequence[Any] = [jax.random.key(seed) for seed in seeds]
    data, indices = jnp.asarray(scalings[0].inputs(inputs)), [jnp.asarray(part) for part in parts]
    networks, best = None, -np.inf
    for epoch in range(1, fitting.epochs + 1):
        scaled = [
            jnp.asarray(scaling.targets(values)) for scaling, values in zip(scalings, targets(networks), strict=True)
        ]
        keys, orders = zip(*(jax.random.split(key) for key in keys), strict=True)
        states, scaled_losses = run_epoch(states, orders, data, scaled, indices)
        losses = [float(loss) * scaling.target_scale**2 for loss, scaling in zip(scaled_losses, scalings, strict=True)]
        loss = float(np.mean(losses))
        check_loss(loss, epoch, fitting.learning_rate)
        networks = [
            scaling.fold(jax.device_get(parameters), fitting.activation)
            for scaling, (parameters, _) in zip(scalings, states, strict=True)
        ]
        score = judge(networks) if judge is not None else None
        report(epoch, fitting.epochs, loss, score)
        if fitting.patience is None or score is None or score > best:
            best_networks, metrics = networks, {"epochs": epoch, "loss": loss}
            best = best if score is None else score
        elif epoch - metrics["epochs"] >= fitting.patience:
            break
    return best_networks, metrics


@dataclass(frozen=True)
class _Scaling:
    """x ↦ (x − m)/s and y ↦ (y − m')/s', folded into the first and the last layer when the network is done."""

    input_mean: NDArray[np.float64]
    input_scale: NDArray[np.float64]
    target_mean: float
    target_scale: float

    @classmethod
    def of(cls, inputs: NDArray[Any], targets: NDArray[Any], standardise: bool) -> _Scaling:
        if not standardise:
            return cls(np.zeros(()), np.ones(()), 0.0, 1.0)
        target_scale = float(np.std(targets)) or 1.0
        if inputs.ndim == 1:
            return cls(np.zeros(()), np.ones(()), float(np.mean(targets)), target_scale)
        return cls(*standardisation(inputs, None), float(np.mean(targets)), target_scale)

    def inputs(self, inputs: NDArray[Any]) -> NDArray[Any]:
        if inputs.ndim == 1:
            return inputs
        return ((inputs - self.input_mean) / self.input_scale).astype(np.float32)

    def targets(self, targets: NDArray[Any]) -> Array:
        return ((np.asarray(targets) - self.target_mean) / self.target_scale).astype(np.float32)

    def fold(self, parameters: Parameters, activation: Activation) -> Network:
        """Return the network over inputs and targets in their own units."""
        layers = [(np.asarray(weight, np.float64), np.asarray(bias, np.float64)) for weight, bias in parameters]
        weight, bias = layers[0]
        if self.input_mean.ndim:
            weight = weight / self.input_scale[:, None]
            bias = bias - self.input_mean @ weight
        layers[0] = weight, bias
        weight, bias = layers[-1]
        layers[-1] = weight * self.target_scale, bias * self.target_scale + self.target_mean
        single = tuple((weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in layers)
        return Network(single, activation)


def initial_parameters(sizes: list[int], generator: np.random.Generator) -> Parameters:
    """Return Glorot's uniform weights and biases of zero."""
    parameters = []
    for inputs, outputs in pairwise(sizes):
        limit = np.sqrt(6 / (inputs + outputs))
        weight = generator.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)
        parameters.append((weight, np.zeros(outputs, np.float32)))
    return parameters


def forward(parameters: Parameters, inputs: Any, activation: Activation) -> Any:
    """Return what `Network` does, in JAX."""
    import jax
    import jax.numpy as jnp

    (weight, bias), *rest = parameters
    values = (weight[inputs] if inputs.ndim == 1 else inputs @ weight) + bias
    for weight, bias in rest:
        values = (jnp.tanh if activation == "tanh" else jax.nn.relu)(values) @ weight + bias
    return values


def _squared_error(activation: Activation) -> Callable[[Parameters, Any, Any], Any]:
    import jax.numpy as jnp

    def loss_of(parameters: Parameters, inputs: Any, targets: Any) -> Any:
        return jnp.mean((forward(parameters, inputs, activation)[:, 0] - targets) ** 2)

    return loss_of


def compile_epoch(
    loss_of: Callable[[Any, Any, Any], Any], fitting: Fitting
) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """Return how training starts, and an epoch of it: one compiled loop over shuffled minibatches.

    Several models are trained in the same loop, each on its own part of the inputs. They are not stacked: on a
    processor, products of stacked matrices take longer than one after the other, which can go side by side.

    :param loss_of: the loss of parameters on a batch of inputs and targets
    """
    import jax
    import optax

    optimiser = optax.adam(fitting.learning_rate)

    def update(state: Any, inputs: Any, targets: Any) -> Any:
        parameters, optimiser_state = state
        loss, gradient = jax.value_and_grad(loss_of)(parameters, inputs, targets)
        updates, optimiser_state = optimiser.update(gradient, optimiser_state)
        return (optax.apply_updates(parameters, updates), optimiser_state), loss

    @jax.jit
    def run_epoch(states: Any, keys: Any, inputs: Any, targets: Any, parts: Any) -> Any:
        smallest = min(len(part) for part in parts)
        size = min(fitting.batch_size, smallest)
        count = smallest // size

        def update_all(states: Any, batches: Any) -> Any:
            updated = [
                update(state, inputs[batch], values[batch])
                for state, batch, values in zip(states, batches, targets, strict=True)
            ]
            return tuple(zip(*updated, strict=True))

        orders = [
            part[jax.random.permutation(key, len(part))[: count * size]].reshape(count, size)
            for key, part in zip(keys, parts, strict=True)
        ]
        states, losses = jax.lax.scan(update_all, tuple(states), tuple(orders))
        return states, [values.mean() for values in losses]

    return lambda parameters: (parameters, optimiser.init(parameters)), run_epoch
