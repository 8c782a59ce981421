"""What all commands share: the application, the console, options, and how errors are told."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Column, Table
from rich.text import Text

from hurl import __version__
from hurl.names import printable

Function = TypeVar("Function", bound=Callable[..., Any])
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
DEBUG = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
WIDTH_OF_FILES = 160  # columns of a table that goes to a file or a pipe, where nothing needs breaking


class App(typer.Typer):
    """An application whose commands all take --debug, which is `main`'s alone to read."""

    def command(self, *args: Any, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that makes a command of a function, with one option more."""
        register = super().command(*args, **settings)

        def add(function: Function) -> Function:
            @wraps(function)
            def run(*, debug: bool, **values: Any) -> None:
                try:
                    function(**values)
                except SystemExit as error:  # of a user's code: commands end with typer.Exit
                    raise RuntimeError(f"code of the run's environment or policy ended it with {error!r}") from error

            parameters = inspect.signature(function, eval_str=True).parameters.values()
            vars(run)["__signature__"] = inspect.Signature([*parameters, DEBUG])
            register(run)
            return function

        return add


class PlainConsole(Console):
    """A console that prints names and paths to the letter: nothing in them is markup, or moves the cursor."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text to print, which all strings become, those of tables too."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Show what is done while it lasts."""
        return super().status(self.render_str(status) if isinstance(status, str) else status, **options)


app = App(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = PlainConsole()
if not console.is_terminal:
    console.width = WIDTH_OF_FILES

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value of the configuration; may be given several times."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run code of others than hurl that saved runs and heuristics name: if you know who wrote it.",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hurl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Heuristic-guided reinforcement learning."""


def say(text: str, *, bold: object = "", highlight: bool = True) -> None:
    """Print a line, which is not broken where it goes to a file.

    :param bold: what of it stands out
    """
    line = console.render_str(text, highlight=highlight)
    line.highlight_words([printable(str(bold))], "bold")
    console.print(line, soft_wrap=True)


def make_table(
    headings: Iterable[str], rows: Iterable[Iterable[str]] = (), *, left: Container[str] = (), **options: Any
) -> Table:
    """Return a table of numbers.

    :param left: the headings of columns that are words, and begin at the left
    """
    columns = (Column(heading, justify="left" if heading in left else "right") for heading in headings)
    table = Table(*columns, **options)
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def interruptible() -> Iterator[None]:
    """Say, where a run is stopped from the keyboard, that it can be carried on."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: the same command carries on from the last checkpoint, if there is one yet", file=sys.stderr)
        raise typer.Exit(130) from None


def report_error(error: BaseException) -> int:
    """Print an error in one sentence; return the exit code: 2 for bad input, 1 for a failure at run time."""
    message = printable(" ".join(str(error).split()))
    is_input = isinstance(error, ValueError | ImportError | FileExistsError | NotADirectoryError)
    if isinstance(error, FileExistsError | NotADirectoryError):
        message = printable(f"there is a file where the folder {error.filename} should be: name another folder")
    elif isinstance(error, OSError) and not is_input:
        message += "; nothing written before is lost: mend this and repeat the command to carry on"
    elif not is_input:
        name = "" if type(error).__module__.startswith("hurl.") else f"{type(error).__name__}: "
        message = f"{name}{message} (repeat with --debug for the traceback)"
    print(f"error: {message}", file=sys.stderr)
    return 2 if is_input else 1
