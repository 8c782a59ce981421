"""What is tuned, a configuration and the values to try for some of its keys, and whether they suit each other."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

from hurl.experiments.config import RunConfig, load_config, with_values
from hurl.experiments.sources import preset_names
from hurl.experiments.yaml_text import parse_yaml
from hurl.files import read_regular
from hurl.names import is_yaml, nearest

Scalar = bool | int | float | str | None
Grid = dict[str, list[Scalar]]
# What of its environment a run may have other than its data.
IN_TRAINING_ALONE = ("n_envs", "normalize")


class TuningError(ValueError):
    """A study that can't be run, with what to change."""


class Stage(StrEnum):
    """What is tuned: the base algorithm without guidance, or the guidance with the base fixed."""

    base = "base"
    guidance = "guidance"


# The numbers of random configurations in the paper.
TRIALS = {Stage.base: 300, Stage.guidance: 120}


def find_source(source: str, stage: Stage) -> str:
    """Return the preset variant or YAML file that is tuned; for the base, a preset alone means its plain algorithm."""
    configs = {name: load_config(name) for name in preset_names() if name.split("/")[0] == source}
    if not configs:
        return source
    if stage is Stage.base:
        return next((name for name, config in configs.items() if config.is_plain), next(iter(configs)))
    guided = [name for name, config in configs.items() if config.guidance and config.guidance.schedule.kind != "ladder"]
    raise TuningError(f"{source!r} does not say which guidance to tune: name a variant, such as {' or '.join(guided)}")


def read_grid(name: str, stage: Stage) -> Grid:
    """Return the values to try for each key of the configuration.

    :param name: a grid of the package, such as `mujoco`, or a YAML file with the keys of each stage
    """
    values = parse_yaml(_read_grid_file(name), name)
    if unknown := [key for key in values if key not in list(Stage)]:
        raise TuningError(
            f"{name}: unknown stage {unknown[0]!r}{nearest(str(unknown[0]), [stage.value for stage in Stage])}"
        )
    if not values.get(stage):
        raise TuningError(f"{name} has no grid for the stage {stage}: choose another with --grid")
    grid = values[stage]
    if not isinstance(grid, dict):
        raise TuningError(f"{name}: {stage} must hold keys of the configuration, each with a list of values")
    for key, choices in grid.items():
        _check_choices(f"{name}: {key}", choices)
    return {str(key): list(choices) for key, choices in grid.items()}


def _read_grid_file(name: str) -> bytes:
    if is_yaml(name):
        if not Path(name).is_file():
            raise TuningError(f"there is no grid file {name!r}: write one, or take --grid mujoco or procgen")
        return read_regular(Path(name), follow_links=True)
    files = resources.files("hurl.experiments").joinpath("grids").iterdir()
    grids = {file.name.removesuffix(".yaml"): file for file in files}
    if name not in grids:
        hint = nearest(name, grids) or f"; there are {', '.join(sorted(grids))}, or give a YAML file"
        raise TuningError(f"there is no grid {name!r}{hint}")
    return grids[name].read_bytes()


def _check_choices(name: str, choices: Any) -> None:
    if not isinstance(choices, list) or not choices:
        raise TuningError(f"{name} must be a list of one value or more, got {choices!r}")
    for value in choices:
        if not isinstance(value, bool | int | float | str | None):
            raise TuningError(f"{name}: a value must be a number, a text, true, false or null, got {value!r}")


def check_stage(stage: Stage, config: RunConfig) -> None:
    """Refuse a configuration that the stage has nothing to tune in."""
    if config.iterations == 0:
        raise TuningError("tuning scores the training curve, and a run of 0 iterations has none: set iterations")
    if stage is Stage.base and config.guidance is not None:
        raise TuningError("the base is tuned without guidance: name a variant that has none, or --set guidance=null")
    if stage is Stage.guidance and config.guidance is None:
        raise TuningError("there is no guidance to tune in a configuration without one: name another variant")


def check_grid(grid: Grid, config: RunConfig) -> None:
    """Refuse a grid with a key or a value that the configuration does not take."""
    for key, choices in grid.items():
        if key in ("seed", "iterations"):
            raise TuningError(f"{key!r} can't be in a grid: each trial has its own seed, and all have the same length")
        if config.needs_data and _determines_preparation(key, config):
            raise TuningError(f"{key!r} can't be in the grid, since data and heuristic are made with it once for all")
        if key.startswith("algorithm.parameters."):
            _check_parameter(key.split(".")[2], config)
        for value in choices:
            with_values(config, {key: value}, "the grid")


def _determines_preparation(key: str, config: RunConfig) -> bool:
    if config.heuristic_to_fit is not None and (key == "gamma" or key.startswith("guidance.heuristic")):
        return True
    part, _, rest = key.partition(".")
    return part == "data" or (part == "environment" and rest.partition(".")[0] not in IN_TRAINING_ALONE)


def _check_parameter(name: str, config: RunConfig) -> None:
    if name in config.algorithm.parameters:
        return
    known = config.algorithm.library.trainers.known_parameters(config.algorithm.name)
    if name not in known:
        raise TuningError(
            f"the grid has algorithm.parameters.{name}, but {config.algorithm.name} has no parameter "
            f"{name!r}{nearest(name, known)}"
        )
