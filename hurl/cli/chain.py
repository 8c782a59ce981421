"""`hurl chain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hurl.cli.app import app, console, make_table, say


@app.command(epilog="Example:  hurl chain --out figure-1")
def chain(
    out: Annotated[Path, typer.Option(help="Folder for chain.png and chain.json.")] = Path("chain"),
    rewards: Annotated[
        Literal["settled", "caption"],
        typer.Option(help="`settled` fits the paper's text; `caption` is its caption to the letter."),
    ] = "settled",
) -> None:
    """Reproduce the paper's Figure 1: a good and a bad heuristic on a chain of ten states."""
    from hurl.tabular.chain import arrows
    from hurl.tabular.chain_picture import write_chain

    figure = write_chain(out, rewards)
    headings = ("h = 0" if name == "zero" else f"{name} h" for name in figure.curves)
    points = zip(*figure.curves.values(), strict=True)
    rows = ([f"{row[0][0]:.1f}", *(f"{value:.4f}" for _, value in row)] for row in points)
    console.print(make_table(["λ", *headings], rows, title="Value from the start of the policy that HuRL finds"))
    console.print("The policies, in states 2 to 9 (left < and right >):")
    for name, policy in figure.policies.items():
        console.print(f"{name:>16}  {arrows(policy)}")
    say(f"Picture: {out / 'chain.png'}, numbers: {out / 'chain.json'}", bold=out / "chain.png")
