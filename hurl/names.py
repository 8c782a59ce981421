"""Names that users write: finding what they mean, and the nearest where there is no such thing."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["find_function", "install_extra", "is_yaml", "look_beside", "nearest"]


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest of some names, or nothing where none is near."""
    found = difflib.get_close_matches(name, list(names), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(match) for match in found)}?" if found else ""


def install_extra(name: str) -> str:
    """Return the remedy where the packages of an extra are missing."""
    return f"pip install --constraint constraints.txt --editable '.[{name}]' in the clone"


def is_yaml(name: str) -> bool:
    """Whether a name is that of a YAML file."""
    return name.endswith((".yaml", ".yml"))


def look_beside(file: str) -> None:
    """Let functions in modules beside a file be found, by this process and by those that it starts."""
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
    except ModuleNotFoundError as error:
        raise ValueError(f"{name!r} can't be imported: {error}") from None
    names = [key for key, value in vars(module).items() if callable(value)]
    if function_name not in names:
        raise ValueError(f"{module_name} has no function {function_name!r}{nearest(function_name, names)}")
    function: Callable[..., Any] = getattr(module, function_name)
    return function
