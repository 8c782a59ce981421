"""Monte-Carlo regression over images: the paper's recipe for Procgen, in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hurl.data import Episodes, TimeLimit, discounted_returns, load_episodes
from hurl.guidance import HeuristicError
from hurl.heuristics.base import FitReport, ObservationSpace, StorableHeuristic, Weights, data_origin
from hurl.heuristics.monte_carlo import r_squared, usable_episodes
from hurl.heuristics.network import Fitting, check_loss
from hurl.heuristics.storage import check_shape

__all__ = ["ImageMonteCarloHeuristic", "ImpalaCNN"]

Images = NDArray[np.uint8]

# Images that pass through the network together: a whole batch would take gigabytes.
CHUNK = 250


class ImpalaCNN(nn.Module):
    """The convolutional network of IMPALA (Espeholt et al. 2018), with any number of linear heads.

    For each depth a 3×3 convolution, a 3×3 max-pooling with stride 2 and two residual blocks; then a linear layer.

    :param shape: channels, height and width of an image
    :param heads: the number of outputs of each head, by name
    :param depths: channels of each stage
    :param width: how many features the heads see
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        heads: Mapping[str, int],
        *,
        depths: Sequence[int] = (16, 32, 32),
        width: int = 256,
    ) -> None:
        super().__init__()
        self.depths, self.width = list(depths), width
        channels, *sides = shape
        stages: list[nn.Module] = []
        for depth in depths:
            stages += [nn.Conv2d(channels, depth, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            stages += [_Residual(depth), _Residual(depth)]
            channels, sides = depth, [-(-side // 2) for side in sides]
        self.stages = nn.Sequential(*stages)
        self.linear = nn.Linear(channels * math.prod(sides), width)
        self.heads = nn.ModuleDict({name: nn.Linear(width, outputs) for name, outputs in heads.items()})

    def features(self, images: Tensor) -> Tensor:
        """Return what the heads see, shape (n, width).

        :param images: from 0 to 255, channels first, shape (n, *shape)
        """
        scaled = images.to(self.linear.weight.dtype) / 255
        flat = functional.relu(self.stages(scaled)).flatten(start_dim=1)
        return functional.relu(self.linear(flat))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return the outputs of each head, shape (n, outputs)."""
        features = self.features(images)
        return {name: head(features) for name, head in self.heads.items()}


class _Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        residual: Tensor = self.second(functional.relu(self.first(functional.relu(images))))
        return images + residual


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
        root: Path | None = None,
        report: FitReport = lambda done, total, loss, score: None,
    ) -> Self:
        """Fit the heuristic to a dataset, by Adam on batches; targets are standardised within the network.

        The paper takes one step for each of the 38 batches that its 192,000 observations make. Smaller datasets need
        more epochs, or smaller batches.

        :param dataset: a Minari dataset, its id, or episodes
        :param gamma: γ, the discount of the returns
        :param time_limit: how an episode that a time limit ended counts: `cut`, `bootstrap` or `drop`
        :param validation: the share of episodes that are held out to measure R²; 0 holds none out
        :param epochs: passes over the data
        :param batch_size: transitions in an update
        :param learning_rate: Adam's step size
        :param seed: of the split, the first weights and the order of the data
        :param root: the folder of Minari datasets, None for the user's own
        :param report: called after each update with its number, that of all, the loss, and R² on the held-out episodes
            after the epoch before
        """
        Fitting(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)  # which checks them
        episodes = usable_episodes(load_episodes(dataset, root), gamma, time_limit)
        shape = _image_shape(episodes.observation_space)
        origin = data_origin(episodes, gamma)
        train, held_out = episodes.split(validation, seed) if validation else (episodes, None)
        del episodes  # images are large: what the two parts hold is not kept twice
        begun = perf_counter()
        regression = _Regression(shape, discounted_returns(train, gamma=gamma), learning_rate, seed)

        def returns_of(part: Episodes) -> NDArray[np.float64]:
            last_values = regression.predict(part.last_states) if time_limit == "bootstrap" else None
            return discounted_returns(part, gamma=gamma, last_values=last_values)

        size = min(batch_size, train.transitions)
        updates = train.transitions // size
        generator = np.random.default_rng(seed)
        losses: list[float] = []
        score = None
        for epoch in range(epochs):
            # before the first epoch the network knows nothing to go on with beyond a time limit
            targets = returns_of(train) if epoch else discounted_returns(train, gamma=gamma)
            order = generator.permutation(train.transitions)[: updates * size]
            for batch in order.reshape(updates, size):
                losses.append(regression.update(train, targets, batch))
                check_loss(losses[-1], epoch + 1, learning_rate)
                report(len(losses), epochs * updates, losses[-1], score)
            if held_out is not None:
                score = r_squared(returns_of(held_out), regression.predict(held_out.observations))
        loss = float(np.mean(losses[-updates:]))
        origin["metrics"] = {"epochs": epochs, "loss": loss, "seconds": perf_counter() - begun}
        if score is not None:
            origin["metrics"]["r2_held_out"] = score
        return cls(regression.fold(), time_limit, **origin)

    def __call__(self, observations: Any) -> NDArray[np.float32]:
        """Return h for a batch of images, shape (n,)."""
        images = np.asarray(observations)
        shape = self.observation_space.shape
        # Stable-Baselines3 puts the channels first, whatever the environment does
        if images.ndim != 4 or _channels_first(images.shape[1:]) != _channels_first(shape) or images.dtype != np.uint8:
            raise HeuristicError(
                f"the heuristic is for images of shape {shape} and type uint8, got "
                f"observations of shape {images.shape[1:]} and type {images.dtype}"
            )
        if torch.cuda.is_available():
            self.network.cuda()
        return _predict(self.network, images)

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
        shape = _channels_first(origin["observation_space"].shape)
        network = _value_network(shape, depths=settings["depths"], width=settings["width"])
        for name, tensor in network.state_dict().items():
            tensor.copy_(torch.tensor(check_shape(weights, name, tuple(tensor.shape))))
        return cls(network, settings["time_limit"], **origin)


class _Regression:
    """A network being fitted to standardised targets, (G − mean) / scale.

    :param shape: of an image, channels first
    :param targets: G, that mean and scale are of
    """

    def __init__(
        self, shape: tuple[int, int, int], targets: NDArray[np.float64], learning_rate: float, seed: int
    ) -> None:
        self.mean, self.scale = float(np.mean(targets)), float(np.std(targets)) or 1.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = _value_network(shape)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)

    def update(self, episodes: Episodes, targets: NDArray[np.float64], batch: NDArray[np.int64]) -> float:
        """Take one step: the gradient of the batch's mean is the sum of its chunks' shares. Return the loss."""
        self.optimiser.zero_grad()
        total = 0.0
        for rows in _chunks(len(batch)):
            chunk = batch[rows]
            values = _values(self.network, episodes.states[episodes.positions[chunk]])
            scaled = torch.tensor((targets[chunk] - self.mean) / self.scale, dtype=torch.float32)
            loss = functional.mse_loss(values, scaled, reduction="sum") / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self.optimiser.step()
        return total * self.scale**2

    def predict(self, images: Images) -> NDArray[np.float32]:
        """Return the network's values in units of the targets."""
        return _predict(self.network, images) * self.scale + self.mean

    def fold(self) -> ImpalaCNN:
        """Return the network with the standardisation folded into its last layer."""
        head: Any = self.network.heads["value"]
        with torch.no_grad():
            head.weight *= self.scale
            head.bias.copy_(head.bias * self.scale + self.mean)
        return self.network


def _value_network(shape: tuple[int, int, int], **architecture: Any) -> ImpalaCNN:
    network = ImpalaCNN(shape, {"value": 1}, **architecture)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _predict(network: ImpalaCNN, images: Images) -> NDArray[np.float32]:
    values = np.empty(len(images), np.float32)
    with torch.inference_mode():
        for rows in _chunks(len(images)):
            values[rows] = _values(network, images[rows]).cpu().numpy()
    return values


def _values(network: ImpalaCNN, images: Images) -> Tensor:
    """Return the network's value of each image, channels first or last, shape (n,)."""
    tensor = torch.tensor(images, device=network.linear.weight.device)
    if _channels_last(images.shape[1:]):
        tensor = tensor.permute(0, 3, 1, 2)
    outputs: dict[str, Tensor] = network(tensor.contiguous(memory_format=torch.channels_last))
    return outputs["value"][:, 0]


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, count, CHUNK))


def _channels_last(shape: Sequence[int]) -> bool:
    """Whether an image's channels come last: there are fewer of them than rows or columns."""
    return shape[2] < shape[0]


def _channels_first(shape: Sequence[int]) -> tuple[int, int, int]:
    return (shape[2], shape[0], shape[1]) if _channels_last(shape) else (shape[0], shape[1], shape[2])


def _image_shape(space: gym.Space[Any]) -> tuple[int, int, int]:
    """Return channels, height and width of the images of a space."""
    if space.dtype != np.uint8 or space.shape is None or len(space.shape) != 3:
        raise HeuristicError(
            f"observations of {space} are not images, arrays of uint8 with channels, rows and columns: fit a "
            "MonteCarloHeuristic to them"
        )
    return _channels_first(space.shape)
