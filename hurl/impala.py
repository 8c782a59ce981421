"""The convolutional network of IMPALA, in torch: that of heuristics over images, and of RLlib's agents in Procgen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hurl.data import Episodes
from hurl.pieces import pieces

__all__ = ["ImpalaCNN", "Regression", "channels_first", "predict", "value_network"]

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


class Regression:
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
            self.network = value_network(shape)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)

    def update(self, episodes: Episodes, targets: NDArray[np.float64], batch: NDArray[np.int64]) -> float:
        """Take one step: the gradient of the batch's mean is the sum of its chunks' shares. Return the loss."""
        self.optimiser.zero_grad()
        total = 0.0
        for rows in pieces(len(batch), CHUNK):
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
        return predict(self.network, images) * self.scale + self.mean

    def fold(self) -> ImpalaCNN:
        """Return the network with the standardisation folded into its last layer."""
        head: Any = self.network.heads["value"]
        with torch.no_grad():
            head.weight *= self.scale
            head.bias.copy_(head.bias * self.scale + self.mean)
        return self.network


def value_network(shape: tuple[int, int, int], **architecture: Any) -> ImpalaCNN:
    """Return a network with one output, the value of an image; the shape has the channels first."""
    network = ImpalaCNN(shape, {"value": 1}, **architecture)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def predict(network: ImpalaCNN, images: Images) -> NDArray[np.float32]:
    """Return the network's value of each image, channels first or last, shape (n,)."""
    values = np.empty(len(images), np.float32)
    with torch.inference_mode():
        for rows in pieces(len(images), CHUNK):
            values[rows] = _values(network, images[rows]).cpu().numpy()
    return values


def _values(network: ImpalaCNN, images: Images) -> Tensor:
    """Return the network's value of each image, channels first or last, shape (n,)."""
    tensor = torch.tensor(images, device=network.linear.weight.device)
    if _channels_last(images.shape[1:]):
        tensor = tensor.permute(0, 3, 1, 2)
    outputs: dict[str, Tensor] = network(tensor.contiguous(memory_format=torch.channels_last))
    return outputs["value"][:, 0]


def _channels_last(shape: Sequence[int]) -> bool:
    """Whether an image's channels come last: there are fewer of them than rows or columns."""
    return shape[2] < shape[0]


def channels_first(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the shape of an image with its channels first."""
    return (shape[2], shape[0], shape[1]) if _channels_last(shape) else (shape[0], shape[1], shape[2])
