"""Callbacks of Stable-Baselines3 that a configuration names."""

from __future__ import annotations

from collections.abc import Sequence

from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from hurl.experiments.config import Named, name_and_arguments
from hurl.experiments.errors import ConfigurationError
from hurl.names import describe_exception
from hurl.own_code import find_maker
from hurl.values import show


class IterationCallbacks(CallbackList):
    """Callbacks of a run, which ends only where an iteration does: so one that wants to stop is heeded then.

    `ended_by` is the name of the first that returned False, if any.
    """

    def __init__(self, names: Sequence[str], callbacks: list[BaseCallback]) -> None:
        super().__init__(callbacks)
        self.names = names
        self.ended_by: str | None = None

    def _on_step(self) -> bool:
        for name, callback in zip(self.names, self.callbacks, strict=True):
            if not callback.on_step() and self.ended_by is None:
                self.ended_by = name
        return True


def build_callbacks(entries: Sequence[Named] | None) -> IterationCallbacks:
    """Make the callbacks that a configuration names."""
    parsed = [name_and_arguments(entry) for entry in entries or ()]
    return IterationCallbacks([name for name, _ in parsed], [_build(name, arguments) for name, arguments in parsed])


def _build(name: str, arguments: dict[str, object]) -> BaseCallback:
    try:
        make = find_maker(name, BaseCallback)
    except ValueError as error:
        raise ConfigurationError(f"callbacks: {error}") from error
    try:
        callback = make(**arguments)
    except Exception as error:  # callbacks raise what they like
        reason = " ".join(describe_exception(error).split())
        raise ConfigurationError(f"callbacks: {name!r} can't be made with {show(arguments)}: {reason}") from error
    if not isinstance(callback, BaseCallback):
        raise ConfigurationError(f"callbacks: {name!r} returned {show(callback)}: let it return a BaseCallback")
    return callback
