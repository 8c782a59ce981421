"""`hurl presets`."""

from __future__ import annotations

from typing import Annotated

import typer

from hurl.cli.app import App, app, say
from hurl.experiments.config import load_config
from hurl.experiments.sources import preset_description, preset_names

presets = App()
app.add_typer(presets, name="presets")


@presets.callback(invoke_without_command=True, epilog="Example:  hurl presets")
def list_presets(context: typer.Context) -> None:
    """List the presets, or show one of them whole."""
    if context.invoked_subcommand is None:
        for name in preset_names():
            say(f"{name:<22} {preset_description(name)}", bold=name, highlight=False)


@presets.command(epilog="Example:  hurl presets show hopper/hurl-mc > my_run.yaml")
def show(name: Annotated[str, typer.Argument(metavar="PRESET/VARIANT", help="A preset and its variant.")]) -> None:
    """Print a preset with all its values: a configuration that `hurl train` takes."""
    print(load_config(name).to_yaml(), end="")
