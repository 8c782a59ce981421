"""Behaviour data: an algorithm is trained and the policies that it had on its way are rolled out, or a function is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hurl.experiments.config import DataConfig, EnvironmentConfig, RunConfig, load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.layout import RUNS, CampaignFolder
from hurl.experiments.sources import as_overrides, preset_names
from hurl.names import nearest_or_all


@dataclass(frozen=True)
class Recipe:
    """How a dataset is made.

    :param name: of what is rolled out: a run's preset or a function, and a digest of what determines it
    :param source: the folder of the run whose checkpoints are the policies, or a function
    :param dataset: the id
    :param transitions: of each policy
    :param seed: of the rollouts
    :param config: of the run; None where there is none
    :param environment: where a function acts; None where the run says it
    :param policies: how many of the run's checkpoints are rolled out, evenly spaced up to the last; None means all
    """

    name: str
    source: str
    dataset: str
    transitions: int
    seed: int
    config: RunConfig | None = None
    environment: EnvironmentConfig | None = None
    policies: int | None = None

    @property
    def run(self) -> Path | None:
        """The folder of the run; None where there is none."""
        return None if self.config is None else Path(self.source)

    @property
    def environment_settings(self) -> list[str]:
        """What the environment has beside its id, `key=value` each."""
        if self.environment is None:
            return []
        return as_overrides(self.environment.model_dump(exclude={"id", "n_envs"}, exclude_defaults=True))


def load_recipe(name: str, seed: int = 0) -> Recipe:
    """Return how the data of a preset is made by itself: its run has the seed of the rollouts."""
    recipes: dict[str, tuple[DataConfig, EnvironmentConfig]] = {}
    for variant in preset_names():
        config = load_config(variant)
        if config.data is not None:
            recipes.setdefault(variant.split("/")[0], (config.data, config.environment))
    if name not in recipes:
        raise ConfigurationError(f"there is no recipe {name!r}{nearest_or_all(name, recipes)}")
    data, environment = recipes[name]
    recipe = _recipe(data, {"seed": seed}, environment, seed, CampaignFolder(RUNS))
    return replace(recipe, dataset=f"{name}/behaviour-v0")


def recipe_of(config: RunConfig, data: DataConfig, folder: CampaignFolder) -> Recipe:
    """Return how data is made for a run: where it acts, and with its seed unless the data has one of its own."""
    seed = config.seed if data.seed is None else data.seed
    settings = {}
    if data.train is not None:
        preset = load_config(data.train).environment
        ours = {key: getattr(config.environment, key) for key in ("id", "backend", "options", "wrappers")}
        settings = {f"environment.{key}": ours[key] for key in ours if ours[key] != getattr(preset, key)}
    return _recipe(data, settings, config.environment.model_copy(update={"normalize": None}), seed, folder)


def _recipe(
    data: DataConfig, settings: dict[str, Any], environment: EnvironmentConfig, seed: int, folder: CampaignFolder
) -> Recipe:
    """Return how data is made.

    :param settings: of the run that it is collected from; what the data itself sets wins over them
    :param environment: where a function acts
    """
    if data.policy is not None:
        name = folder.function(data.policy, environment)
        dataset = folder.dataset(name, data.transitions, seed)
        return Recipe(name, data.policy, dataset, data.transitions, seed, environment=environment)
    assert data.train is not None
    config = data.model_copy(update={"settings": settings | data.settings}).run
    run = folder.behaviour(data.train, config)
    some = None if data.policies is None else data.policy_count
    dataset = folder.dataset(run.name, data.transitions, seed, some)
    return Recipe(run.name, str(run), dataset, data.transitions, seed, config, policies=some)
