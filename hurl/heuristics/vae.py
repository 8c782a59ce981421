"""Pessimism by novelty: a Monte-Carlo network that is believed only where the data has been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import TimeLimit, load_episodes
from hurl.data.returns import usable_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, register
from hurl.heuristics.monte_carlo import MonteCarloHeuristic, returns_of, scores
from hurl.heuristics.network import (
    Fitting,
    Network,
    as_inputs,
    check_loss,
    compile_epoch,
    forward,
    in_chunks,
    initial_parameters,
    one_hot,
    standardisation,
)
from hurl.heuristics.storage import check_shape, under_prefix, with_prefix
from hurl.names import needs
from hurl.values import check_argument, number, whole

__all__ = ["VAEFilteredHeuristic"]

Array = NDArray[np.float32]

# How much the divergence from the prior counts beside the error of reconstruction.
DIVERGENCE_WEIGHT = 0.5
# Variances of the latent variables stay within e^±10, so that none is 0 or infinite.
LOG_VARIANCE_LIMIT = 10.0
# How far rounding takes a loss, as a part of it.
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class StateVAE:
    """A variational autoencoder of states, whose loss is high for states unlike those it was fitted to.

        L(x) = ‖x − x̂‖²/D + w·KL(N(μ, σ²) ‖ N(0, I))/Z,        (μ, log σ²) = encoder(x),  x̂ = decoder(z)

    with x the D standardised observations, or the one-hot vector of a state, Z latent variables z, and w = ½. It is
    fitted with z ~ N(μ, σ²) and evaluated at z = μ, so that a state has the same loss each time.

    :param mean: of the observations in the data
    :param scale: their deviations
    """

    encoder: Network
    decoder: Network
    mean: Array
    scale: Array

    def losses(self, vectors: Array) -> Array:
        """Return L for each of a batch of vectors, shape (n,)."""
        standard = (vectors - self.mean) / self.scale
        means, log_variances = np.split(self.encoder(standard), 2, axis=1)
        log_variances = np.clip(log_variances, -LOG_VARIANCE_LIMIT, LOG_VARIANCE_LIMIT)
        divergence = (means**2 + np.exp(log_variances) - log_variances - 1).mean(axis=1) / 2
        error = ((standard - self.decoder(means)) ** 2).mean(axis=1)
        losses: Array = error + np.float32(DIVERGENCE_WEIGHT) * divergence
        return losses

    def settings(self) -> dict[str, Any]:
        """Return the architecture."""
        return {"encoder": self.encoder.settings(), "decoder": self.decoder.settings()}

    def weights(self) -> Weights:
        """Return the arrays, by name."""
        networks = self.encoder.weights("encoder.") | self.decoder.weights("decoder.")
        return networks | {"mean": self.mean, "scale": self.scale}

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights) -> StateVAE:
        """Make it from its architecture and arrays, whose shapes are checked."""
        encoder = Network.restore(settings["encoder"], weights, "encoder.")
        decoder = Network.restore(settings["decoder"], weights, "decoder.")
        size = (encoder.sizes[0],)
        return cls(encoder, decoder, check_shape(weights, "mean", size), check_shape(weights, "scale", size))


@register("vae")
class VAEFilteredHeuristic(StorableHeuristic):
    """The Monte-Carlo heuristic where a state is known, the lowest return in the data where it is not.

    A state is known if its loss under a variational autoencoder of the data's states is at most the 99th percentile of
    the losses over the data. Source: appendix, "Extra Experiments with VAE-based Heuristics" in `app:experiments`.

    :param network: the Monte-Carlo network
    :param vae: the autoencoder
    :param threshold: the highest loss of a known state
    :param lowest: h of an unknown state
    """

    observation_space: ObservationSpace

    def __init__(
        self,
        network: Network,
        vae: StateVAE,
        threshold: float,
        lowest: float,
        time_limit: TimeLimit,
        **origin: Any,
    ) -> None:
        super().__init__(**origin)
        self.network = network
        self.vae = vae
        self.threshold = threshold
        self.lowest = lowest
        self.time_limit = time_limit

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        percentile: float = 99.0,
        latent: int = 32,
        vae_epochs: int = 10,
        time_limit: TimeLimit = "cut",
        validation: float = 0.1,
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
        **fitting: Any,
    ) -> Self:
        """Fit the Monte-Carlo network, then the autoencoder.

        Parameters that are not named here are those of `MonteCarloHeuristic.fit`.

        :param percentile: the share of the data's states, in percent, that count as known
        :param latent: the number of the autoencoder's latent variables
        :param vae_epochs: passes over the data to fit the autoencoder
        :param report: called after each epoch with the number of epochs so far, that of all, the loss, and R²; the
            autoencoder's epochs come last and have no R²
        :param fitting: how the network is fitted, see `hurl.heuristics.network.Fitting`; the autoencoder takes the
            widths, the learning rate and the size of batches from it
        """
        check_argument("percentile", percentile, number(0, 100, above=True), HeuristicError)
        check_argument("latent", latent, whole(1), HeuristicError)
        settings = Fitting(**fitting)
        vae_settings = replace(settings, activation="relu", epochs=vae_epochs)
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        begun = perf_counter()
        values = MonteCarloHeuristic.fit(
            episodes,
            gamma=gamma,
            time_limit=time_limit,
            validation=validation,
            seed=seed,
            report=lambda epoch, epochs, loss, score: report(epoch, epochs + vae_epochs, loss, score),
            **fitting,
        )
        space = values.observation_space
        inputs = as_inputs(train.observations, space)
        vae, loss = fit_vae(
            inputs,
            n=space.n,
            latent=latent,
            fitting=vae_settings,
            seed=seed,
            report=lambda epoch, loss: report(settings.epochs + epoch, settings.epochs + vae_epochs, loss, None),
        )
        losses = in_chunks(lambda chunk: vae.losses(one_hot(chunk, space.n)), inputs)
        lowest = returns_of(train, gamma, time_limit, values.network, space).min()
        # a batch of another size may be rounded otherwise, which must not make a state at the limit unknown
        threshold = float(np.percentile(losses, percentile)) * (1 + ROUNDING)
        heuristic = cls(values.network, vae, threshold, float(lowest), time_limit, **values.origin())
        heuristic.metrics = values.metrics | {"vae_loss": loss} | scores(train, held_out, gamma, time_limit, heuristic)
        heuristic.metrics["seconds"] = perf_counter() - begun
        return heuristic

    def __call__(self, observations: Any) -> Array:
        """Return h for a batch of observations, shape (n,)."""
        inputs = as_inputs(observations, self.observation_space)
        return in_chunks(
            lambda chunk: np.where(self._known(chunk), self.network(chunk)[:, 0], np.float32(self.lowest)), inputs
        )

    def known(self, observations: Any) -> NDArray[np.bool_]:
        """Return whether each of a batch of observations is like those in the data, shape (n,)."""
        return in_chunks(self._known, as_inputs(observations, self.observation_space))

    def _known(self, inputs: NDArray[Any]) -> NDArray[np.bool_]:
        known: NDArray[np.bool_] = self.vae.losses(one_hot(inputs, self.observation_space.n)) <= self.threshold
        return known

    def settings(self) -> dict[str, Any]:
        """Return the architectures, when a state is unknown and what h is there, and how time limits counted."""
        return {
            "network": self.network.settings(),
            "vae": self.vae.settings(),
            "threshold": self.threshold,
            "lowest": self.lowest,
            "time_limit": self.time_limit,
        }

    def weights(self) -> Weights:
        """Return those of the network and of the autoencoder."""
        return self.network.weights("network.") | with_prefix("vae.", self.vae.weights())

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        return cls(
            Network.restore(settings["network"], weights, "network."),
            StateVAE.restore(settings["vae"], under_prefix("vae.", weights)),
            settings["threshold"],
            settings["lowest"],
            settings["time_limit"],
            **origin,
        )


def fit_vae(
    inputs: NDArray[Any],
    *,
    n: int | None,
    latent: int,
    fitting: Fitting,
    seed: int,
    report: Callable[[int, float], None],
) -> tuple[StateVAE, float]:
    """Fit an autoencoder by Adam on minibatches of L(x), see `StateVAE`.

    :param inputs: what `as_inputs` returns
    :param n: the number of states of a Discrete space
    :param report: called after each epoch with its number and the mean loss
    :return: the autoencoder, and the mean loss of the last epoch
    """
    with needs("fitting a heuristic", "fast"):
        import jax
        import jax.numpy as jnp

    mean, scale = (array.astype(np.float32) for array in standardisation(inputs, n))
    generator = np.random.default_rng(seed)
    size = len(mean)
    parameters = (
        initial_parameters([size, *fitting.hidden, 2 * latent], generator),
        initial_parameters([latent, *reversed(fitting.hidden), size], generator),
    )
    start, run_epoch = compile_epoch(_loss(fitting, n), fitting)
    states, key, everything = [start(parameters)], jax.random.key(seed), [jnp.arange(len(inputs))]
    data = jnp.asarray(inputs if n is not None else (inputs - mean) / scale)
    loss = float("nan")
    for epoch in range(1, fitting.epochs + 1):
        key, order, noise = jax.random.split(key, 3)
        noises = [jax.random.normal(noise, (len(inputs), latent))]
        states, losses = run_epoch(states, [order], data, noises, everything)
        loss = float(losses[0])
        check_loss(loss, epoch, fitting.learning_rate)
        report(epoch, loss)
    encoder, decoder = (Network(tuple(layers), fitting.activation) for layers in jax.device_get(states[0][0]))
    return StateVAE(encoder, decoder, mean, scale), loss


def _loss(fitting: Fitting, n: int | None) -> Callable[[Any, Any, Any], Any]:
    """Return the mean of L over a batch, a function of the parameters, the inputs and noise for z."""
    import jax
    import jax.numpy as jnp

    def loss_of(parameters: Any, inputs: Any, noise: Any) -> Any:
        encoder, decoder = parameters
        means, log_variances = jnp.split(forward(encoder, inputs, fitting.activation), 2, axis=1)
        log_variances = jnp.clip(log_variances, -LOG_VARIANCE_LIMIT, LOG_VARIANCE_LIMIT)
        decoded = forward(decoder, means + jnp.exp(log_variances / 2) * noise, fitting.activation)
        vectors = inputs if n is None else jax.nn.one_hot(inputs, n)
        divergence = (means**2 + jnp.exp(log_variances) - log_variances - 1).mean() / 2
        return jnp.mean((vectors - decoded) ** 2) + DIVERGENCE_WEIGHT * divergence

    return loss_of
