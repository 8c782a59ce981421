"""Names that users write: finding what they mean, and the nearest where there is no such thing."""

from __future__ import annotations

import difflib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self, TypeVar

__all__ = [
    "HeuristicFolder",
    "HeuristicFunction",
    "HeuristicName",
    "Registry",
    "UnknownEnvironmentError",
    "describe_exception",
    "install_extra",
    "is_yaml",
    "nearest",
    "nearest_or_all",
    "needs",
    "parse_heuristic",
    "printable",
]

Kind = TypeVar("Kind")
Class = TypeVar("Class", bound=type[Any])


class Registry(dict[str, type[Kind]]):
    """Classes by the names that users write, each registered where it is defined.

    :param room: the module, or the package of modules, that defines hurl's own; the entry points with which installed
        packages name modules that define more have the same name
    """

    def __init__(self, room: str) -> None:
        super().__init__()
        self.room, self._is_loaded = room, False

    def register(self, name: str) -> Callable[[Class], Class]:
        """Return a decorator that names a class; one that is defined anew, as in a notebook, takes its own place.

        :param name: what users write; it must be new, and so must be the name of the class, which files have
        """

        def add(cls: Class) -> Class:
            for known, other in list(self.items()):
                if _place(other) == _place(cls):
                    del self[known]
                elif known == name or other.__name__ == cls.__name__:
                    raise ValueError(
                        f"{_place(cls)} can't be {name!r}: {_place(other)} is {known!r} already, choose another name"
                    )
            self[name] = cls
            return cls

        return add

    def load(self) -> Self:
        """Import all modules that define classes, hurl's own and those of packages."""
        from importlib.metadata import entry_points  # `import hurl` need not wait for it

        if not self._is_loaded:
            for module in pkgutil.iter_modules(getattr(import_module(self.room), "__path__", ())):
                import_module(f"{self.room}.{module.name}")
            for entry in entry_points(group=self.room):
                try:
                    entry.load()
                except Exception as error:
                    raise ImportError(
                        f"{entry.value!r}, a package's {self.room}, can't be loaded ({error}): mend or uninstall it"
                    ) from error
            self._is_loaded = True
        return self


def _place(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class HeuristicName(str):
    """The name of a heuristic that there is, see `parse_heuristic`."""


class HeuristicFunction(HeuristicName):
    """`module:function`."""


class HeuristicFolder(HeuristicName):
    """The folder of a saved heuristic."""


def parse_heuristic(name: str) -> HeuristicName:
    """Tell what a name is of: of a function if it has a colon and no separator of paths, or else of a folder.

    It is the same wherever a run's configuration is read, so whether there is such a folder does not matter.
    """
    is_path = "/" in name or os.sep in name
    return HeuristicFunction(name) if ":" in name and not is_path else HeuristicFolder(name)


AS_NEAR = 0.1  # how much less alike a second suggestion may be


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of some names, or nothing where none is near."""
    found = difflib.get_close_matches(name, list(names), n=2, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, match, name).ratio() for match in found]
    found = [match for match, ratio in zip(found, likeness, strict=True) if ratio >= likeness[0] - AS_NEAR]
    return f"; did you mean {' or '.join(repr(match) for match in found)}?" if found else ""


def nearest_or_all(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of some names, or `; there are …` with all where none is near."""
    return nearest(name, names) or f"; there are {', '.join(names)}"


class UnknownEnvironmentError(ValueError):
    """No backend that may be used has an environment of this id.

    :param module: that was imported to register it, if any
    """

    def __init__(self, env_id: str, backend: str, known: set[str], module: str | None = None) -> None:
        where = {"auto": "EnvPool or Gymnasium", "envpool": "EnvPool", "gymnasium": "Gymnasium"}[backend]
        hint = nearest(env_id, sorted(known)) or ", and no id there resembles it."
        own = "" if backend == "envpool" else _how_to_name_own(env_id, module)
        super().__init__(f"There is no environment {env_id!r} in {where}{hint}{own}")


def _how_to_name_own(env_id: str, module: str | None) -> str:
    if module is not None:
        return f" The module {module} does not register it: call gymnasium.register({env_id!r}, …) there."
    return (
        f" For one of your own write module:id, such as mymaze:{env_id}, with the module, mymaze.py, which registers "
        "it, beside the YAML file or in the working folder."
    )


def install_extra(name: str) -> str:
    """Return the remedy where the packages of an extra are missing."""
    return f"pip install 'hurl-rl[{name}]'"


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Name the extra that brings a package, where importing it fails.

    :param what: that needs the package
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{what} needs {error.name}: {install_extra(extra)}", name=error.name) from error


def describe_exception(error: BaseException) -> str:
    """Return the type of an exception and its message, if any."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def printable(text: str) -> str:
    """Return a text in one line, in which all is written out that a terminal would take for a command."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


def is_yaml(name: str) -> bool:
    """Whether a name is that of a YAML file."""
    return name.endswith((".yaml", ".yml"))
