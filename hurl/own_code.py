"""The user's own code: where its modules are looked for, whether it may be run, and finding it by its name."""

from __future__ import annotations

import hashlib
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from hurl.names import describe_exception, is_yaml, nearest

__all__ = [
    "UntrustedCodeError",
    "check_trust",
    "describe_fault",
    "find_function",
    "find_maker",
    "find_module",
    "foreign_code",
    "look_beside",
    "look_in",
    "module_folders",
    "own_folders",
    "take_folders",
]

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
    """Return which modules a name that is of none may mean, of those beside a YAML file and in the working folder."""
    if not isinstance(error, ModuleNotFoundError) or error.name != name:
        return ""
    folders = own_folders()
    near = nearest(name, {module.name for module in pkgutil.iter_modules(folders)})
    return near or (f", among what is installed and in {' and '.join(folders)}" if folders else "")
