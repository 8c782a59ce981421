"""Monte-Carlo regression over images: the paper's recipe for Procgen, in torch, which is imported on first use."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from hurl.data import Episodes, TimeLimit, discounted_returns, load_episodes
from hurl.data.returns import own_returns, usable_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin, register
from hurl.heuristics.monte_carlo import r_squared, vary
from hurl.heuristics.network import Fitting, check_loss
from hurl.heuristics.storage import check_shape

if TYPE_CHECKING:
    from hurl.impala import ImpalaCNN

__all__ = ["ImageMonteCarloHeuristic"]


@register("image-monte-carlo")
class ImageMonteCarloHeuristic(StorableHeuristic):
    """Monte-Carlo regression over images: h = argmin_f Σ_t (f(s_t) − G_t)², with f an IMPALA-CNN.

    Images are arrays of uint8 with their channels first or last. Source: appendix, section on Procgen.
    """

    observation_space: ObservationSpace

    def __init__(self, network: ImpalaCNN, time_limit: TimeLimit, **origin: Any) -> None:
        super().__init__(**origin)
        self.network = network
        self.time_limit = time_limit

    @classmethod
    def fit(
        cls,
        dataset: Any,
        *,
        gamma: float,
        time_limit: TimeLimit = "cut",
        validation: float = 0.1,
        epochs: int = 1,
        batch_size: int = 5000,
        learning_rate: float = 1e-4,
        seed: int = 0,
        root: str | Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
    ) -> Self:
        """Fit the heuristic to a dataset, by Adam on batches; targets are standardised within the network.

        The paper takes one step for each of the 38 batches that its 192,000 observations make. Smaller datasets need
        more epochs, or smaller batches.

        Parameters that are not named here are those of `MonteCarloHeuristic.fit`.

        :param epochs: passes over the data
        :param batch_size: transitions in an update
        :param learning_rate: Adam's step size
        :param report: called after each update with its number, that of all, the loss, and R² on the held-out episodes
            after the epoch before
        """
        from hurl.impala import Regression, channels_first

        Fitting(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)  # which checks them
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        space = episodes.observation_space
        if space.dtype != np.uint8 or space.shape is None or len(space.shape) != 3:
            raise HeuristicError(
                f"observations of {space} are not images, arrays of uint8 with channels, rows and columns: fit a "
                "MonteCarloHeuristic to them"
            )
        shape = channels_first(space.shape)
        origin = data_origin(episodes, gamma)
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        del episodes  # images are large: what the two parts hold is not kept twice
        begun = perf_counter()
        targets = own_returns(train, gamma=gamma, time_limit=time_limit)
        judged = None if held_out is None else own_returns(held_out, gamma=gamma, time_limit=time_limit)
        regression = Regression(shape, targets, learning_rate, seed)

        def returns_of(part: Episodes) -> NDArray[np.float64]:
            last_values = regression.predict(part.last_states) if time_limit == "bootstrap" else None
            return discounted_returns(part, gamma=gamma, last_values=last_values)

        size = min(batch_size, train.transitions)
        updates = train.transitions // size
        generator = np.random.default_rng(seed)
        losses: list[float] = []
        score = None
        for epoch in range(epochs):
            targets = returns_of(train) if epoch else targets
            order = generator.permutation(train.transitions)[: updates * size]
            for batch in order.reshape(updates, size):
                losses.append(regression.update(train, targets, batch))
                check_loss(losses[-1], epoch + 1, learning_rate)
                report(len(losses), epochs * updates, losses[-1], score)
            if held_out is not None and judged is not None and vary(judged):
                score = r_squared(judged, regression.predict(held_out.observations))
        loss = float(np.mean(losses[-updates:]))
        origin["metrics"] = {"epochs": epochs, "loss": loss, "seconds": perf_counter() - begun}
        if score is not None:
            origin["metrics"]["r2_held_out"] = score
        return cls(regression.fold(), time_limit, **origin)

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of images, shape (n,)."""
        import torch

        from hurl.impala import channels_first, predict

        images = np.asarray(observations)
        shape = self.observation_space.shape
        # Stable-Baselines3 puts the channels first, whatever the environment does
        if images.ndim != 4 or channels_first(images.shape[1:]) != channels_first(shape) or images.dtype != np.uint8:
            raise HeuristicError(
                f"the heuristic is for images of shape {shape} and type uint8, got "
                f"observations of shape {images.shape[1:]} and type {images.dtype}"
            )
        if torch.cuda.is_available():
            self.network.cuda()
        return predict(self.network, images)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: the network as every machine can have it, on the processor."""
        return self.__dict__ | {"network": deepcopy(self.network).cpu()}

    def settings(self) -> dict[str, Any]:
        """Return the architecture, and how time limits counted."""
        return {"depths": self.network.depths, "width": self.network.width, "time_limit": self.time_limit}

    def weights(self) -> Weights:
        """Return the network's."""
        return {name: tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}

    @classmethod
    def restore(cls, settings: dict[str, Any], weights: Weights, **origin: Any) -> Self:
        """Make it from what was stored."""
        import torch

        from hurl.impala import channels_first, value_network

        shape = channels_first(origin["observation_space"].shape)
        network = value_network(shape, depths=settings["depths"], width=settings["width"])
        for name, tensor in network.state_dict().items():
            tensor.copy_(torch.tensor(check_shape(weights, name, tuple(tensor.shape))))
        return cls(network, settings["time_limit"], **origin)
