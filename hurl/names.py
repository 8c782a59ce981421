"""Names that users write: finding what they mean, and the nearest where there is no such thing."""

from __future__ import annotations

import difflib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeVar

__all__ = [
    "HeuristicFolder",
    "HeuristicFunction",
    "HeuristicName",
    "Registry",
    "find_function",
    "install_extra",
    "is_yaml",
    "look_beside",
    "nearest",
    "nearest_or_all",
    "needs",
    "parse_heuristic",
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


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of some names, or nothing where none is near."""
    found = difflib.get_close_matches(name, list(names), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(match) for match in found)}?" if found else ""


def nearest_or_all(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of some names, or `; there are …` with all where none is near."""
    return nearest(name, names) or f"; there are {', '.join(names)}"


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


def is_yaml(name: str) -> bool:
    """Whether a name is that of a YAML file."""
    return name.endswith((".yaml", ".yml"))


def look_beside(file: str) -> None:
    """Let functions in modules beside a YAML file be found, by this process and by those that it starts."""
    if is_yaml(file):
        folder = str(Path(file).resolve().parent)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def find_function(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"{name!r} is not of the form module:function")
    try:
        module = import_module(module_name)
    except (ModuleNotFoundError, SyntaxError) as error:
        raise ValueError(f"{name!r} can't be imported: {error}") from None
    names = [key for key, value in vars(module).items() if callable(value)]
    if function_name not in names:
        raise ValueError(f"{module_name} has no function {function_name!r}{nearest(function_name, names)}")
    function: Callable[..., Any] = getattr(module, function_name)
    return function
