"""`python -m hurl`, and the command `hurl`, is the command line."""

from __future__ import annotations

import sys

from hurl.names import install_extra


def main() -> None:
    """Run the command line, or say what it needs where that is not installed."""
    try:
        from hurl.cli import main as run
    except ModuleNotFoundError as error:
        print(f"error: the command line needs {error.name}: {install_extra('experiments')}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
