"""The command line: it parses, calls and prints."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from pathlib import Path

from hurl.cli import campaign, chain, collect, diagnose, fit, presets, report, reproduce, runs, tune
from hurl.cli.app import app, report_error
from hurl.own_code import look_in

__all__ = ["campaign", "chain", "collect", "diagnose", "fit", "main", "presets", "report", "reproduce", "runs", "tune"]


def main() -> None:
    """Run the command line: an error is one sentence, and a traceback only with --debug."""
    look_in(Path.cwd())  # for heuristics and environments of the user's own
    warnings.formatwarning = _describe_warning
    threading.excepthook = _tell_thread_error
    try:
        app()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        sys.exit(report_error(error))


def _describe_warning(message: Warning | str, category: type[Warning], *place: object, **line: object) -> str:
    """Return what is printed of a warning: of one to the user the sentence alone."""
    if category is UserWarning:
        return f"warning: {message}\n"
    return f"{place[0]}:{place[1]}: {category.__name__}: {message}\n"


def _tell_thread_error(error: threading.ExceptHookArgs) -> None:
    """Keep what a thread could not write to itself: TensorBoard's hands that to the one that trains, which tells it."""
    if not issubclass(error.exc_type, OSError):
        threading.__excepthook__(error)
