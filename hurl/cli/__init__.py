"""The command line: it parses, calls and prints."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from hurl.cli import campaign, chain, collect, diagnose, fit, presets, report, reproduce, runs, tune
from hurl.cli.app import app, report_error

__all__ = ["campaign", "chain", "collect", "diagnose", "fit", "main", "presets", "report", "reproduce", "runs", "tune"]


def main() -> None:
    """Run the command line: an error is one sentence, and a traceback only with --debug."""
    sys.path.insert(0, str(Path.cwd()))  # heuristics and environments of the user's own
    try:
        app()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        sys.exit(report_error(error))
