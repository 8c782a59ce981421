"""Rolling out the policy of a run: returns, and a film."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.build import build_environment, build_model, find_algorithm
from hurl.experiments.checkpoint import checkpoint_paths, load_weights
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import RunFolder, RunFolderError
from hurl.experiments.run import Evaluation, evaluate
from hurl.names import install_extra

__all__ = ["build_policy", "config_of", "evaluate_checkpoint", "film", "find_checkpoint"]

FRAMES_PER_SECOND = 30


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint that a path names: itself, or the newest of a run's folder."""
    if (path / "state.json").exists():
        return path
    RunFolder(path).read_config()
    checkpoints = checkpoint_paths(RunFolder(path))
    if not checkpoints:
        raise RunFolderError(
            f"{path} has no checkpoint: let the run go on until its first one, or, where none was kept, train it again"
        )
    return checkpoints[-1]


def evaluate_checkpoint(checkpoint: Path, *, episodes: int, seed: int, deterministic: bool = True) -> Evaluation:
    """Roll a checkpoint's policy out for some episodes, side by side."""
    config = config_of(checkpoint)
    with closing(build_environment(config, episodes, seed)) as env:
        model = _load_policy(config, checkpoint, env, seed)
        return evaluate(model, env, episodes, deterministic)


def check_filming(file: Path) -> None:
    """Refuse a film that can't be made."""
    if file.suffix not in (".mp4", ".gif"):
        raise ValueError(f"the video's name must end in .mp4 or .gif, got {str(file)!r}")
    for name in ("imageio.v2", "imageio_ffmpeg", "pygame"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"filming needs the extra 'video' ({error}): {install_extra('video')}") from None


def film(checkpoint: Path, file: Path, *, seed: int, deterministic: bool = True) -> None:
    """Film one episode of a checkpoint's policy."""
    check_filming(file)
    imageio = import_module("imageio.v2")
    config = config_of(checkpoint)
    environment = config.environment.model_copy(
        update={"options": config.environment.options | {"render_mode": "rgb_array"}, "backend": "gymnasium"}
    )
    with closing(build_environment(config.model_copy(update={"environment": environment}), 1, seed)) as env:
        frames = _frames(_load_policy(config, checkpoint, env, seed), env, deterministic)
    file.parent.mkdir(parents=True, exist_ok=True)
    imageio.mimsave(file, frames, fps=FRAMES_PER_SECOND)


def _frames(model: PolicyPredictor, env: VecEnv, deterministic: bool) -> list[Any]:
    observations, done = env.reset(), np.array([False])
    frames: list[Any] = []
    while not done[0]:
        try:
            frames.append(env.render())
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"this machine can't render the environment ({reason}); MuJoCo's need OpenGL, "
                "such as OSMesa with MUJOCO_GL=osmesa"
            ) from error
        actions, _ = model.predict(observations, deterministic=deterministic)  # type: ignore[arg-type]
        observations, _, done, _ = env.step(actions)
    return frames


def config_of(checkpoint: Path) -> RunConfig:
    """Return the configuration of the run that a checkpoint is of."""
    return RunFolder(checkpoint.resolve().parent.parent).read_config()


def build_policy(config: RunConfig, env: VecEnv) -> BaseAlgorithm:
    """Make a model that is to act only: without guidance and the code of its heuristic, and with no room for replay."""
    algorithm = config.algorithm
    if issubclass(find_algorithm(algorithm.name), OffPolicyAlgorithm):
        parameters = algorithm.parameters | {"buffer_size": env.num_envs}
        algorithm = algorithm.model_copy(update={"parameters": parameters})
    return build_model(config.model_copy(update={"guidance": None, "algorithm": algorithm}), env)


def _load_policy(config: RunConfig, checkpoint: Path, env: VecEnv, seed: int) -> PolicyPredictor:
    """Return a model with the checkpoint's weights."""
    if config.algorithm.library == "rllib":
        from hurl.experiments.rllib_build import RLlibPolicy  # which imports Ray
        from hurl.experiments.rllib_checkpoint import load_policy

        policy = RLlibPolicy(config, env)
        load_policy(policy, checkpoint)
        set_random_seed(seed)
        return policy
    model = build_policy(config, env)
    load_weights(model, checkpoint)
    env.seed(seed)  # building a model seeds its environments with the run's own seed
    return model
