"""Names that users write: finding what they mean, and the nearest where there is no such thing."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Self, TypeVar

__all__ = [
    "HeuristicFolder",
    "HeuristicFunction",
    "HeuristicName",
    "Registry",
    "UnknownEnvironmentError",
    "UntrustedCodeError",
    "check_trust",
    "describe_exception",
    "describe_fault",
    "find_function",
    "find_maker",
    "find_module",
    "foreign_code",
    "install_extra",
    "is_yaml",
    "look_beside",
    "look_in",
    "module_folders",
    "nearest",
    "nearest_or_all",
    "needs",
    "own_folders",
    "parse_heuristic",
    "printable",
    "take_folders",
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
    found = difflib.get_close_matches(name, list(names), n=2, cutoff=0.5)
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


def describe_fault(error: BaseException) -> str:
    """Say what importing a user's module raised, and in which line of which file of the user's own."""
    what = describe_exception(error)
    if isinstance(error, SyntaxError):
        place = (error.filename, error.lineno)
        what = f"{type(error).__name__}: {error.msg}"
    else:
        paths = sysconfig.get_paths()
        others = ("<", str(Path(__file__).parent), *(paths[name] for name in ("stdlib", "purelib", "platlib")))
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
        place = (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
    return what if place[0] is None else f"{place[0]}, line {place[1]}: {what}"


def printable(text: str) -> str:
    """Return a text in one line, in which all is written out that a terminal would take for a command."""
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


def is_yaml(name: str) -> bool:
    """Whether a name is that of a YAML file."""
    return name.endswith((".yaml", ".yml"))


# The user's own modules ----------------------------------------------------------------------------------------------

# Where processes that are started look for them, and whether they are on the path already, as Ray's workers must know.
FOLDERS, IN_USE = "HURL_PATH", "HURL_PATH_IN_USE"


def look_beside(file: str) -> None:
    """Let the user's own modules beside a YAML file be found, before those in the working folder."""
    if is_yaml(file):
        look_in(Path(file).parent, before=Path.cwd())


def look_in(folder: Path, before: Path | None = None) -> None:
    """Let the user's own modules in a folder be found, by this process and by those that it starts.

    :param before: a folder that comes after it, where that is looked in too
    """
    own, new, later = own_folders(), str(folder.resolve()), str(before)
    if new not in own:
        own.insert(own.index(later) if later in own else len(own), new)
        os.environ[FOLDERS] = os.pathsep.join(own)


def own_folders() -> list[str]:
    """Return the folders that the user's own modules are looked for in."""
    return [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]


def take_folders() -> None:
    """Put the folders of the user's own modules on the path, after everything installed.

    They are not there before a name asks for it: packages import what they find of others, and must find nothing that
    merely lies in the working folder.
    """
    own = own_folders()
    if own:
        os.environ[IN_USE] = "1"
        sys.path[:] = [*(folder for folder in sys.path if folder not in own), *own]


def module_folders(names: Iterable[str]) -> dict[str, str | None]:
    """Return the packages of some names of code, `module:name` each, and the folder that each is found in, if any.

    Those of what is installed are left out.
    """
    installed = {str(Path(sysconfig.get_paths()[name]).resolve()) for name in ("stdlib", "purelib", "platlib")}
    packages = {re.split("[.:]", name)[0] for name in names} - {"hurl"}
    found = {package: _folder_of(package) for package in sorted(packages)}
    return {package: folder for package, folder in found.items() if folder not in installed}


def _folder_of(package: str) -> str | None:
    """Return the folder that a package would be imported from, without importing it."""
    spec = PathFinder.find_spec(package, [*sys.path, *own_folders()])
    if spec is None:
        return None
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if place is None:
        return None
    is_package = spec.origin is not None and spec.submodule_search_locations is not None
    return str(Path(place).resolve().parent.parent if is_package else Path(place).resolve().parent)


# Code by its name ----------------------------------------------------------------------------------------------------

# hurl's own modules whose functions and environments files may name: those that are defined there, no others.
OWN_ROOMS = ("hurl.heuristics.engineered", "hurl.envs", "hurl.envs.point_maze", "hurl.envs.sparse_reacher")
# Wrappers of Gymnasium's that change what an agent sees, does and is paid, and touch nothing else: RecordVideo writes.
HARMLESS_WRAPPERS = frozenset(
    f"gymnasium.wrappers:{name}"
    for name in (
        "AtariPreprocessing",
        "ClipAction",
        "ClipReward",
        "DelayObservation",
        "DiscretizeAction",
        "DiscretizeObservation",
        "DtypeObservation",
        "FilterObservation",
        "FlattenObservation",
        "FrameStackObservation",
        "GrayscaleObservation",
        "MaxAndSkipObservation",
        "RescaleAction",
        "RescaleObservation",
        "ReshapeObservation",
        "ResizeObservation",
        "StickyAction",
        "TimeAwareObservation",
        "TimeLimit",
    )
)
NEVER_RUN = "is of Python's standard library, which is never run by a name: name a function of a module of your own"


class UntrustedCodeError(ValueError):
    """A file names code that would be run, and nobody has said that it may."""


def foreign_code(names: Iterable[str]) -> list[str]:
    """Return those of some names of code, `module:name` each, that are not of hurl's own, nor known to be harmless."""
    return [name for name in names if name.rpartition(":")[0] not in OWN_ROOMS and name not in HARMLESS_WRAPPERS]


def check_trust(source: str | Path, names: Iterable[str], trust: bool) -> None:
    """Refuse to go on with a file, which may be a stranger's, that names code other than hurl's own.

    :param source: the file
    :param names: all code that it names and that would be run, `module:name` each
    :param trust: whether the user has said that it may be
    """
    foreign = foreign_code(names)
    for name in foreign:
        if _is_standard(name):
            raise UntrustedCodeError(f"{source} names {name!r}, which {NEVER_RUN}")
    if foreign and not trust:
        raise UntrustedCodeError(
            f"{source} names code that would be run, {foreign[0]!r}: repeat with --trust (in Python trust=True) if you "
            "know who wrote it"
        )


def find_module(name: str) -> ModuleType:
    """Import the module of a name of code, `module:name`: an installed one, or one of the user's own."""
    module_name = name.rpartition(":")[0]
    if _is_standard(module_name):
        raise ValueError(f"{name!r} {NEVER_RUN}{_hidden(module_name)}")
    if module_name.partition(".")[0] != "hurl":
        take_folders()
    try:
        return import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too, which would end a command as if it were done
        hint = _near_modules(error, module_name) or _hidden(module_name)
        raise ValueError(f"{name!r} can't be imported: {describe_fault(error)}{hint}") from error


def describe_code(name: str) -> list[str]:
    """Return what tells code, `module:name`, from other code: its name, and a hash of its module unless hurl's own.

    What the module imports in its turn does not count.
    """
    if not foreign_code([name]):
        return [name]
    try:
        source = inspect.getsource(find_module(name))
    except (OSError, TypeError):  # compiled, or made by a program
        return [name]
    return [name, hashlib.sha256(source.encode()).hexdigest()]


def describe_exception(error: BaseException) -> str:
    """Return the type of an exception and its message, if any."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def find_function(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names, or an object of the user's own that is called like one."""
    function = _find_callable(name, "function")
    if isinstance(function, type):
        raise ValueError(f"{name!r} is a class: name a function")
    _check_home(name, function, "function")
    return function


def find_maker(name: str, base: type[Any]) -> Callable[..., Any]:
    """Return the class that `module:Class` names, which must be derived from another, or a function, as above."""
    maker = _find_callable(name, "class or function")
    if isinstance(maker, type) and not issubclass(maker, base):
        raise ValueError(f"{name!r} is a class that is not derived from {base.__name__}: name one that is")
    _check_home(name, maker, "class or function")
    return maker


def _find_callable(name: str, kind: str) -> Callable[..., Any]:
    """Return what `module:name` names.

    :param kind: what it should be, in the words of an error
    """
    module_name, _, own_name = name.partition(":")
    if not module_name or not own_name:
        raise ValueError(f"{name!r} is not of the form module:{kind.split()[-1]}")
    module = find_module(name)
    names = [key for key, value in vars(module).items() if callable(value)]
    if own_name not in names:
        hint = nearest(own_name, names) or _hidden(module_name)
        raise ValueError(f"{module_name} has no {kind} {own_name!r}{hint}")
    found: Callable[..., Any] = getattr(module, own_name)
    return found


def _check_home(name: str, function: Callable[..., Any], kind: str) -> None:
    """Refuse what is not of the user's own or a package's: builtins, what a module of hurl's has from elsewhere."""
    code = getattr(function, "__func__", function)  # of a method
    home = str(code.__module__ if isinstance(code, FunctionType | type) else type(code).__module__)
    if _is_standard(home):
        raise ValueError(f"{name!r} {NEVER_RUN}")
    room = name.rpartition(":")[0]
    if room in OWN_ROOMS and home != room:
        raise ValueError(f"{name!r} is not defined in {room}: name a {kind} by the module that defines it")


def _is_standard(name: str) -> bool:
    """Return whether a module, or the module of a name of code, is of the standard library."""
    return re.split("[.:]", name)[0] in sys.stdlib_module_names


def _hidden(name: str) -> str:
    """Say that a module of the user's own is hidden by another one of its name, where it is."""
    package = name.partition(".")[0]
    spec = find_spec(package)
    found = "" if spec is None else str(spec.origin)
    for folder in map(Path, own_folders()):
        for own in (folder / f"{package}.py", folder / package / "__init__.py"):
            if spec is not None and own.is_file() and not Path(found).is_relative_to(folder):
                return f"; {own} is hidden by {found}: give yours another name"
    return ""


def _near_modules(error: BaseException, name: str) -> str:
    """Return which modules a name that is of none may mean: of those in the working folder and beside a YAML file."""
    if not isinstance(error, ModuleNotFoundError) or error.name != name:
        return ""
    return nearest(name, {module.name for module in pkgutil.iter_modules(own_folders())})
