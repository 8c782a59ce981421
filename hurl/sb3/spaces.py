"""Whether data has the spaces of a model."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space

from hurl.data import DatasetError, Episodes


def check_spaces(model: BaseAlgorithm, episodes: Episodes) -> None:
    """Refuse data of other observations or actions than a model's."""
    for name, wanted, found in (
        ("observations", model.observation_space, episodes.observation_space),
        ("actions", model.action_space, episodes.action_space),
    ):
        if not _fits(found, wanted, bounds=name == "actions"):
            raise DatasetError(
                f"dataset {episodes.name} has {name} of {found}, but the model's are of {wanted}: take data of the "
                "model's environment"
            )


def _fits(found: gym.Space[Any], wanted: gym.Space[Any], *, bounds: bool) -> bool:
    """Whether values of one space can stand for those of another, whatever the precision of their numbers."""
    if isinstance(found, Box) and isinstance(wanted, Box):
        shapes = [wanted.shape]
        if is_image_space(wanted):  # Stable-Baselines3 puts the channels of images first, and transposes what comes
            shapes.append((*wanted.shape[1:], wanted.shape[0]))
        if found.shape not in shapes or np.dtype(found.dtype).kind != np.dtype(wanted.dtype).kind:
            return False
        return not bounds or (np.allclose(found.low, wanted.low) and np.allclose(found.high, wanted.high))
    if isinstance(found, Discrete) and isinstance(wanted, Discrete):
        return bool(found.n == wanted.n and found.start == wanted.start)
    return bool(found == wanted)
