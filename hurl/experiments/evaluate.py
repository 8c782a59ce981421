"""Rolling out the policy of a run: returns, and a film."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from hurl.experiments.checkpoint import checkpoint_paths, is_checkpoint, run_of
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError
from hurl.experiments.folder import RunFolder
from hurl.experiments.run import Evaluation, evaluate
from hurl.experiments.trainers.base import CheckpointPolicy, build_environment
from hurl.files import write_whole
from hurl.names import install_extra

FRAMES_PER_SECOND = 30


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint that a path names: itself, or the newest of a run's folder."""
    if is_checkpoint(path):
        return path
    RunFolder(path).parse_config()
    checkpoints = checkpoint_paths(RunFolder(path))
    if not checkpoints:
        raise RunFolderError(
            f"{path} has no checkpoint: let the run go on until its first one, or, where none was kept, train it again"
        )
    return checkpoints[-1]


def load_policy(path: str | Path, *, seed: int = 0, trust: bool = False) -> CheckpointPolicy:
    """Return the policy of a run, with the weights of its newest checkpoint, or of the checkpoint that is named.

        policy = hurl.load_policy("runs/my_run/seed-0")
        actions, _ = policy.predict(observations, deterministic=True)
        policy.model.save("agent.zip")  # of Stable-Baselines3, sb3-contrib and SBX: a zip as their own

    `predict` takes the environment's own observations, a batch of them. A ladder's policy is that of its best rung.

    :param path: the folder of a run or of a checkpoint
    :param seed: of what actions are drawn with
    :param trust: whether code that the run names may be run, other than hurl's own
    """
    checkpoint = find_checkpoint(Path(path))
    config = config_of(checkpoint, trust=trust)
    with closing(build_environment(config, 1, seed)) as env:
        return _load_policy(config, checkpoint, env, seed)


def evaluate_checkpoint(
    checkpoint: Path, *, episodes: int, seed: int, deterministic: bool = True, trust: bool = False
) -> Evaluation:
    """Roll a checkpoint's policy out for some episodes, side by side.

    :param trust: whether code that the run names may be run, other than hurl's own
    """
    config = config_of(checkpoint, trust=trust)
    with closing(build_environment(config, episodes, seed)) as env:
        return evaluate(_load_policy(config, checkpoint, env, seed), env, episodes, deterministic)


def check_filming(file: Path) -> None:
    """Refuse a film that can't be made."""
    if file.suffix not in (".mp4", ".gif"):
        raise ValueError(f"the video's name must end in .mp4 or .gif, got {str(file)!r}")
    for name in ("imageio.v2", "imageio_ffmpeg", "pygame"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"filming needs the extra 'video' ({error}): {install_extra('video')}") from None


def film(checkpoint: Path, file: Path, *, seed: int, deterministic: bool = True, trust: bool = False) -> None:
    """Film one episode of a checkpoint's policy.

    :param trust: whether code that the run names may be run, other than hurl's own
    """
    check_filming(file)
    imageio = import_module("imageio.v2")
    config = config_of(checkpoint, trust=trust)
    environment = config.environment.model_copy(
        update={"options": config.environment.options | {"render_mode": "rgb_array"}, "backend": "gymnasium"}
    )
    with closing(build_environment(config.model_copy(update={"environment": environment}), 1, seed)) as env:
        frames = _frames(_load_policy(config, checkpoint, env, seed), env, deterministic)
    content = BytesIO()
    imageio.mimsave(content, frames, format=file.suffix, fps=FRAMES_PER_SECOND)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content.getbuffer())


def _frames(model: PolicyPredictor, env: VecEnv, deterministic: bool) -> list[Any]:
    observations, state, start, done = env.reset(), None, np.array([True]), np.array([False])
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
        actions, state = model.predict(observations, state, start, deterministic)  # type: ignore[arg-type]
        observations, _, done, _ = env.step(actions)
        start = done
    return frames


def config_of(checkpoint: Path, *, trust: bool = False) -> RunConfig:
    """Return the configuration of the run that a checkpoint is of, see `RunFolder.read_config`."""
    return run_of(checkpoint).read_config(trust=trust)


def _load_policy(config: RunConfig, checkpoint: Path, env: VecEnv, seed: int) -> CheckpointPolicy:
    """Return a policy with the checkpoint's weights."""
    with run_of(checkpoint).naming_config():
        policy = config.algorithm.library.trainers.build_policy(config, env)
    policy.load(checkpoint)
    policy.seed(seed)
    env.seed(seed)  # building a model seeds its environments with the run's own seed
    return policy
