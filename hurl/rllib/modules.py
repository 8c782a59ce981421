"""The model of the paper's Procgen experiments, and a configuration with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from hurl.envs.procgen import Difficulty, procgen_id
from hurl.impala import ImpalaCNN
from hurl.rllib.vector_env import on_envpool

# Images that pass through the network together: on a CPU, those of a minibatch at once are a quarter slower.
CHUNK = 256


def on_procgen(
    config: AlgorithmConfig, game: str, difficulty: Difficulty = "easy", *, threads: int = 1, **options: Any
) -> AlgorithmConfig:
    """Return the configuration for a game of Procgen, played by an IMPALA-CNN whose layers policy and value share.

        config = on_procgen(PPOConfig(), "coinrun").env_runners(num_envs_per_env_runner=64)

    :param config: for one agent, on RLlib's new API stack; it is copied, not changed
    :param game: one of `hurl.envs.procgen.PROCGEN_GAMES`
    :param threads: EnvPool's worker threads in each env runner
    :param options: handed to `envpool.make`, such as `num_levels=200`
    """
    on_pool = on_envpool(config, procgen_id(game, difficulty), threads=threads, **options)
    return on_pool.rl_module(rl_module_spec=RLModuleSpec(module_class=ImpalaCNNModule))


class ImpalaCNNModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Policy and value as two linear heads of one IMPALA-CNN, for images of uint8 with their channels first.

    The model configuration may name `depths`, the channels of each stage (16, 32, 32), and `width`, the number of
    features that the heads see (256).
    """

    def setup(self) -> None:
        """Make the network."""
        images, actions = self.observation_space, self.action_space
        if images.dtype != np.uint8 or len(images.shape) != 3 or images.shape[0] > min(images.shape[1:]):
            raise ValueError(f"ImpalaCNNModule takes images of uint8, channels first, got observations of {images}")
        if not isinstance(actions, spaces.Discrete):
            raise ValueError(f"ImpalaCNNModule takes a Discrete action space, got {actions}")
        architecture = {name: self.model_config[name] for name in ("depths", "width") if name in self.model_config}
        network = ImpalaCNN(images.shape, {"policy": int(actions.n), "value": 1}, **architecture)
        # Convolutions on a CPU are faster so.
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _features(self, images: Tensor) -> Tensor:
        chunks = torch.split(images.contiguous(memory_format=torch.channels_last), CHUNK)
        return torch.cat([self.network.features(chunk) for chunk in chunks])

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.network.heads["policy"](self._features(batch[Columns.OBS]))}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features = self._features(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.network.heads["policy"](features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return V of each observation, shape (n,).

        :param embeddings: what `forward_train` returned for the batch, in a loss; without them, as for advantages, no
            gradient reaches the convolutions
        """
        if embeddings is None:
            # a whole train batch: what a gradient needs of it would take gigabytes
            with torch.no_grad():
                embeddings = self._features(batch[Columns.OBS])
        values: Tensor = self.network.heads["value"](embeddings)
        return values.squeeze(-1)
