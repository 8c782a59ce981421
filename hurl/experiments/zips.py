"""Agents from the zip files that Stable-Baselines3 and SBX save, without running what is in them.

Such a file is a folder of JSON, torch files and pickles, and the libraries' own `load` runs whatever code the pickles
hold. Here the model is built anew from its class, and only numbers are taken from the file: the architecture from the
JSON, torch's weights with `weights_only`, and SBX's weights, which are in a pickle, with a reader for which every class
and function is an empty stand-in, so that nothing can be imported, called or constructed but plain containers.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import textwrap
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.errors import ConfigurationError
from hurl.experiments.trainers.sb3 import find_algorithm, resolve_policy_kwargs
from hurl.files import read_regular
from hurl.sb3.internals import write_weights

# What is unpacked from a file, or built from what it says, is at most so many times its size: more is a zip bomb.
LARGEST = 100
# What of the keyword arguments of a policy the weights don't depend on.
FOR_TRAINING = ("optimizer_class", "optimizer_kwargs", "use_sde")


class ZipError(ValueError):
    """A zip file that no policy can be taken from, with what to do about it."""


def load_zip(path: Path, algorithm: str, env: VecEnv) -> BaseAlgorithm:
    """Return a model with the networks, the discount and the step count of a zip file, for these environments.

    :param algorithm: what `save` was called on, such as `sb3.PPO`: the file does not say
    """
    data, weights = _read(path)
    if data.get("use_sde"):
        raise ZipError(
            f"{path} explores with gSDE (use_sde), whose noise is not in the file: roll it out in Python, "
            "with hurl.data.collect and a Policy of your own"
        )
    if data.get("_last_original_obs") is not None and not issubclass(find_algorithm(algorithm), OffPolicyAlgorithm):
        raise ZipError(  # off-policy, the same is there without VecNormalize too
            f"{path} has learnt through VecNormalize, whose statistics are not in the file: load both in Python, and "
            "give hurl.data.collect a Policy of your own, or the model to ValueFunctionHeuristic.from_agent"
        )
    if data.get("rung_states"):
        raise ZipError(  # the others are in a pickle
            f"{path} has learnt with a ladder, and only the networks of λ = 1 can be read without running its code, "
            "not those of the rung that pays best: load it in Python, and give hurl.data.collect a Policy of your own"
        )
    try:
        model = _build(path, algorithm, env, data)
        if weights is not None:
            model.policy.load_state_dict(torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True))
        else:
            stored = _Reader(io.BytesIO(base64.b64decode(data["policy"][":serialized:"]))).load()
            write_weights(model, lambda attribute, field: _arrays(stored.state[attribute].state[field]))
        model.num_timesteps, vars(model)["gamma"] = int(data["num_timesteps"]), float(data["gamma"])
        if hasattr(model, "exploration_rate"):
            model.exploration_rate = float(data["exploration_rate"])
    except (ConfigurationError, ZipError):
        raise
    except Exception as error:  # nor is what building and filling a model raise where the file is of another
        raise ZipError(
            f"the policy in {path} does not fit {algorithm} in this environment ({_reason(error)}): "
            "name the algorithm and the environment that the policy was trained with"
        ) from None
    return model


def is_guided(path: Path) -> bool:
    """Whether the model in a zip file has learnt a reshaped problem."""
    data, _ = _read(path)
    return data.get("guidance") is not None and not data.get("guidance_changes_nothing")


def _read(path: Path) -> tuple[dict[str, Any], bytes | None]:
    """Return the JSON of a zip file, and torch's weights where it has some."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_regular(path, follow_links=True))) as file:
            data = dict(json.loads(_unpack(file, "data")))
            weights = _unpack(file, "policy.pth") if "policy.pth" in file.namelist() else None
    except Exception as error:  # what zipfile raises of a file that is damaged, encrypted or foreign is no one family
        raise ZipError(
            f"{path} is not a model of Stable-Baselines3 or SBX ({_reason(error)}): save it with model.save"
        ) from None
    return data, weights


def _unpack(file: zipfile.ZipFile, name: str) -> bytes:
    """Return a member of a zip file, unless it is too large to be a model's."""
    size, packed = file.getinfo(name).file_size, sum(member.compress_size for member in file.infolist())
    if size > LARGEST * packed:
        raise ValueError(f"{name} would be {size:,} bytes large, of {packed:,} that are there")
    return file.read(name)


def _reason(error: Exception) -> str:
    return textwrap.shorten(str(error), 200, placeholder=" …") or type(error).__name__


def _build(path: Path, algorithm: str, env: VecEnv, data: dict[str, Any]) -> BaseAlgorithm:
    """Build a model of the file's architecture, with the least of buffers."""
    kind = find_algorithm(algorithm)
    kwargs = _policy_kwargs(path, data["policy_kwargs"])
    _check_size(path, kwargs)
    buffer = {"buffer_size": env.num_envs} if issubclass(kind, OffPolicyAlgorithm) else {"n_steps": 64}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of batch sizes, which don't matter where nothing is trained
        model: BaseAlgorithm = kind(
            "CnnPolicy" if is_image_space(env.observation_space) else "MlpPolicy",
            env,
            policy_kwargs=resolve_policy_kwargs(kwargs, algorithm),
            **buffer,
        )
    return model


def _policy_kwargs(path: Path, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the policy that its weights depend on, as plain values.

    What JSON can't hold is there as its `repr`, beside a pickle that is not read.
    """
    kwargs = {key: value for key, value in stored.items() if not key.startswith(":") and key not in FOR_TRAINING}
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = _activation_name(kwargs["activation_fn"])
    for key, value in kwargs.items():
        if value is None or (isinstance(value, str) and value.startswith("<")):
            raise ZipError(
                f"the policy in {path} was built with {key}={value!r}, which can't be built anew without running the "
                "file's code: train with `hurl train`, whose checkpoints can be collected from"
            )
    return kwargs


def _check_size(path: Path, kwargs: dict[str, Any]) -> None:
    """Refuse an architecture whose weights can't be in the file: it would take memory without bounds."""
    widths = [int(number) for number in re.findall(r"\d+", json.dumps(kwargs))]
    first, second = sorted([*widths, 1, 1])[-2:]
    if 4 * first * second > LARGEST * path.stat().st_size:
        raise ZipError(f"{path} is too small for a policy with layers of {first:,} and {second:,}: save it anew")


def _activation_name(text: str) -> str | None:
    """Return the name of an activation function from its `repr`, in torch or JAX; None where it has none."""
    found = re.search(r"torch\.nn\.modules\.activation\.(\w+)|<function (\w+) at", text)
    if found:
        return (found[1] or found[2]).lower()
    return "relu" if "custom_jvp" in text else None  # JAX wraps relu, and no other of ours, in that


# Pickles, read as data -----------------------------------------------------------------------------------------------


class _Inert:
    """Stands for any class, function or object of a pickle: it keeps what it was given, and does nothing."""

    name = ""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.arguments, self.state = arguments, None

    def __call__(self, *arguments: Any, **keywords: Any) -> _Inert:
        return _Inert(*arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Take an entry of a mapping, and forget it."""


class _Reader(pickle._Unpickler):  # the one in C takes memory for whatever place in its memo a file names
    """Reads a pickle without its classes and functions: nothing is imported, and nothing of it runs."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in."""
        return type("_Inert", (_Inert,), {"name": f"{module}.{name}"})


def _arrays(value: Any) -> Any:
    """Return nested dicts of arrays, from dicts of numbers and of what a pickle has in place of JAX's arrays."""
    if isinstance(value, dict):
        return {key: _arrays(entry) for key, entry in value.items()}
    if isinstance(value, int | float):
        return np.asarray(value)
    if not isinstance(value, _Inert) or not value.name.endswith("._reconstruct_array"):
        raise ValueError(f"there is {type(value).__name__} in place of an array")
    _, _, (_, shape, kind, in_columns, content), _ = value.arguments
    code, *_ = kind.arguments
    if not re.fullmatch("[fiu][1248]", code):
        raise ValueError(f"there are arrays of type {code!r}")
    return np.frombuffer(content, np.dtype(f"<{code}")).reshape(shape, order="F" if in_columns else "C")
