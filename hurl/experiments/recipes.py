"""The paper's behaviour data: an algorithm is trained, and the policies that it had on its way are rolled out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hurl.experiments.config import ConfigurationError, DataConfig, RunConfig, load_config, preset_names
from hurl.experiments.metrics import Row
from hurl.names import nearest

if TYPE_CHECKING:
    from minari import MinariDataset

__all__ = ["Recipe", "collect_recipe", "load_recipe"]


@dataclass(frozen=True)
class Recipe:
    """How a dataset is made.

    :param config: of the run whose checkpoints are the policies
    :param run: the folder of that run, by default
    :param transitions: of each policy
    :param dataset: its id, by default
    """

    config: RunConfig
    run: Path
    transitions: int
    dataset: str


def load_recipe(name: str, seed: int = 0) -> Recipe:
    """Return how the data of a preset is made, with a seed for its run."""
    recipes: dict[str, DataConfig] = {}
    for variant in preset_names():
        data = load_config(variant).data
        if data is not None:
            recipes.setdefault(variant.split("/")[0], data)
    if name not in recipes:
        hint = nearest(name, recipes) or f"; there are {', '.join(recipes)}"
        raise ConfigurationError(f"there is no recipe {name!r}{hint}")
    recipe = recipes[name]
    seeded = recipe.model_copy(update={"settings": {"seed": seed} | recipe.settings})
    run = Path("runs") / "recipes" / name / f"seed-{seed}"
    return Recipe(seeded.run, run, recipe.transitions, f"{name}/behaviour-v0")


def collect_recipe(
    recipe: Recipe,
    *,
    run: Path | None = None,
    dataset_id: str | None = None,
    report_training: Callable[[Row], None] = lambda row: None,
    **settings: Any,
) -> MinariDataset:
    """Train what a recipe asks for, and collect from its checkpoints; both go on where they were stopped.

    :param run: the folder of the run; None means the recipe's
    :param dataset_id: None means the recipe's
    :param report_training: called with the metrics of each iteration
    :param settings: further arguments of `collect_policies`
    """
    from hurl.experiments.policies import collect_policies
    from hurl.experiments.run import train

    run = run or recipe.run
    train(recipe.config, run, report_training)
    return collect_policies([str(run)], dataset_id or recipe.dataset, **{"transitions": recipe.transitions, **settings})
