"""Behaviour data: an algorithm is trained, and the policies that it had on its way are rolled out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hurl.experiments.config import DataConfig, RunConfig, load_config, preset_names
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.layout import RUNS, CampaignFolder
from hurl.names import nearest_or_all


@dataclass(frozen=True)
class Recipe:
    """How a dataset is made.

    :param name: of the run whose checkpoints are the policies: its preset, and a digest of its configuration
    :param config: of that run
    :param run: its folder
    :param dataset: the id
    :param transitions: of each policy
    :param seed: of the rollouts
    :param policies: how many of the run's checkpoints are rolled out, evenly spaced up to the last; None means all
    """

    name: str
    config: RunConfig
    run: Path
    dataset: str
    transitions: int
    seed: int
    policies: int | None = None


def load_recipe(name: str, seed: int = 0) -> Recipe:
    """Return how the data of a preset is made by itself: its run has the seed of the rollouts."""
    recipes: dict[str, DataConfig] = {}
    for variant in preset_names():
        data = load_config(variant).data
        if data is not None:
            recipes.setdefault(variant.split("/")[0], data)
    if name not in recipes:
        raise ConfigurationError(f"there is no recipe {name!r}{nearest_or_all(name, recipes)}")
    data, folder = recipes[name], CampaignFolder(RUNS)
    config = _config(data, {"seed": seed})
    run = folder.behaviour(data.train, config)
    return Recipe(run.name, config, run, f"{name}/behaviour-v0", data.transitions, seed, _some(data))


def recipe_of(config: RunConfig, data: DataConfig, folder: CampaignFolder) -> Recipe:
    """Return how data is made for a run: where it acts, and with its seed unless the data has one of its own."""
    preset = load_config(data.train).environment
    ours = {key: getattr(config.environment, key) for key in ("id", "backend", "options")}
    behaviour = _config(data, {f"environment.{key}": ours[key] for key in ours if ours[key] != getattr(preset, key)})
    run = folder.behaviour(data.train, behaviour)
    seed = config.seed if data.seed is None else data.seed
    dataset = folder.dataset(run, data.transitions, seed, _some(data))
    return Recipe(run.name, behaviour, run, dataset, data.transitions, seed, _some(data))


def _some(data: DataConfig) -> int | None:
    """Return how many policies are rolled out, None where all are."""
    return None if data.policies is None else data.policy_count


def _config(data: DataConfig, settings: dict[str, Any]) -> RunConfig:
    """Return the run that data is collected from; what the data itself sets wins over the settings."""
    return data.model_copy(update={"settings": settings | data.settings}).run
