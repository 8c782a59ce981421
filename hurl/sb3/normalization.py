"""The running statistics of `VecNormalize` as arrays, so that a checkpoint can hold them without a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

PARTS = ("mean", "var", "count")


def read_statistics(env: VecNormalize) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return mean, variance and count of what the agent has seen, by the key of observations, and of its returns."""
    return {
        name: {part: np.asarray(getattr(statistics, part), np.float64) for part in PARTS}
        for name, statistics in _statistics(env).items()
    }


def write_statistics(env: VecNormalize, stored: Mapping[str, Mapping[str, Any]]) -> None:
    """Put in what `read_statistics` returned."""
    for name, statistics in _statistics(env).items():
        for part in PARTS:
            value, shape = np.asarray(stored[name][part], np.float64), np.shape(getattr(statistics, part))
            if value.shape != shape or not np.isfinite(value).all() or ((value < 0).any() and part != "mean"):
                raise ValueError(f"the {part} of {name} can't be what normalises, of shape {shape}")
            setattr(statistics, part, float(value) if part == "count" else value.copy())


def observe(env: VecNormalize, observations: Any) -> None:
    """Count observations in that the environments have not shown, as of a dataset."""
    if env.norm_obs and isinstance(env.obs_rms, RunningMeanStd):
        env.obs_rms.update(observations)


def _statistics(env: VecNormalize) -> dict[str, RunningMeanStd]:
    observations: Any = env.obs_rms if env.norm_obs else {}
    named = observations if isinstance(observations, dict) else {"": observations}
    return {"returns": env.ret_rms} | {f"observations {key}".strip(): value for key, value in named.items()}
