"""The libraries whose algorithms are run, as far as planning must know them: nothing heavy is imported here."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hurl.experiments.errors import ConfigurationError
from hurl.names import install_extra, nearest_or_all

if TYPE_CHECKING:
    from hurl.experiments.trainers.base import Trainers

# How the names of other classes end that packages offer beside their algorithms.
NO_ALGORITHMS = ("Algorithm", "Buffer", "Config")


@dataclass(frozen=True)
class Demand:
    """What a run asks of a machine besides the process that it is.

    :param env_runners: processes that step environments; with 0 they are stepped where the learner is
    :param learners: processes that learn; with 0 the run's own does
    :param gpus: how many GPUs all learners have
    """

    env_runners: int = 0
    learners: int = 0
    gpus: float = 0.0


@dataclass(frozen=True)
class Library:
    """Where algorithms come from.

    :param name: what users write before the dot
    :param package: that they are imported from
    :param activations: the module that has their activation functions
    :param trainers_module: the module that runs them, see `hurl.experiments.trainers.base.Trainers`
    :param grid: the paper's grid for tuning them
    :param extra: the extra of hurl that brings the package; none where every installation has it
    :param follows_sb3: whether its algorithms are built as Stable-Baselines3's are, so that what is made for those can
        be had: wrappers, `VecNormalize`, callbacks, noise, logged data, ladders
    """

    name: str
    package: str
    activations: str = "torch.nn"
    trainers_module: str = "sb3"
    grid: str = "mujoco"
    extra: str | None = None
    follows_sb3: bool = True

    @property
    def trainers(self) -> Trainers:
        """What runs the library's algorithms; it imports the library."""
        return cast("Trainers", import_module(f"hurl.experiments.trainers.{self.trainers_module}"))

    def algorithm_names(self) -> list[str]:
        """Return the algorithms that the package offers, read from its source, since importing it takes seconds."""
        top, *rest = self.package.split(".")
        try:
            spec = find_spec(top)
        except ValueError:  # where something without a spec is in the package's place
            spec = None
        if spec is None or not spec.submodule_search_locations:
            return []
        source = Path(spec.submodule_search_locations[0], *rest, "__init__.py").read_text("utf-8")
        imports = (node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom))
        names = (alias.name for node in imports for alias in node.names)
        return [name for name in names if name[0].isupper() and not name.endswith(NO_ALGORITHMS)]

    def demand(self, parameters: Mapping[str, Any]) -> Demand:
        """Return what the parameters of an algorithm ask for."""
        return Demand()


class RLlib(Library):
    """RLlib, which starts processes of its own."""

    def demand(self, parameters: Mapping[str, Any]) -> Demand:
        """Return the processes and GPUs that are named under `env_runners` and `learners`."""
        learners = _whole_number(parameters, "learners", "num_learners")
        gpus = _number(parameters, "learners", "num_gpus_per_learner") * max(1, learners)
        return Demand(_whole_number(parameters, "env_runners", "num_env_runners"), learners, gpus)


LIBRARIES = {
    library.name: library
    for library in (
        Library("sb3", "stable_baselines3"),
        Library("contrib", "sb3_contrib"),
        Library("sbx", "sbx", activations="flax.linen", extra="fast"),
        RLlib(
            "rllib",
            "ray.rllib.algorithms",
            trainers_module="rllib",
            grid="procgen",
            follows_sb3=False,
            extra="rllib",
        ),
    )
}


def find_library(algorithm: str) -> Library:
    """Return the library of the algorithm that `sbx.SAC` names."""
    name, dot, _ = algorithm.partition(".")
    if not dot:
        found = [f"{library.name}.{name}" for library in LIBRARIES.values() if name in library.algorithm_names()]
        if found:
            wanted = " or ".join(found)
            raise ConfigurationError(f"algorithm.name {name!r} does not say of which library: write {wanted}")
    if not dot or name not in LIBRARIES:
        *others, last = LIBRARIES
        raise ConfigurationError(
            f"algorithm.name {algorithm!r} must begin with one of {', '.join(others)} and a dot, or be of RLlib, such "
            f"as {last}.PPO"
        )
    return LIBRARIES[name]


def check_algorithm(algorithm: str) -> None:
    """Refuse an algorithm that there is not, or whose library is not installed; the library is not imported."""
    library, class_name = find_library(algorithm), algorithm.partition(".")[2]
    names = library.algorithm_names()
    if not names and library.extra is not None:
        raise ConfigurationError(f"{algorithm} needs {library.package}: {install_extra(library.extra)}")
    if class_name not in names:
        raise ConfigurationError(
            f"{library.package} has no algorithm {class_name!r}{nearest_or_all(class_name, names)}"
        )


def _whole_number(parameters: Mapping[str, Any], group: str, key: str) -> int:
    number = _number(parameters, group, key)
    if number != int(number):
        raise ConfigurationError(f"algorithm.parameters.{group}.{key} must be a whole number, got {number!r}")
    return int(number)


def _number(parameters: Mapping[str, Any], group: str, key: str) -> float:
    """Return how many processes or GPUs are asked for, 0 where nothing is said."""
    values = parameters.get(group, {})
    if not isinstance(values, dict):
        raise ConfigurationError(f"algorithm.parameters.{group} must hold keys and values, got {values!r}")
    value = values.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise ConfigurationError(
            f"algorithm.parameters.{group}.{key} must be a number that is not negative, got {value!r}"
        )
    return value
