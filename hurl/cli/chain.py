"""`hurl chain`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hurl.cli.app import app, console


class ChainRewards(StrEnum):
    """The rewards of the chain of Figure 1."""

    settled = "settled"
    caption = "caption"


@app.command(epilog="Example:  hurl chain --out figure-1")
def chain(
    out: Annotated[Path, typer.Option(help="Folder for chain.png and chain.json.")] = Path("chain"),
    rewards: Annotated[
        ChainRewards, typer.Option(help="`settled` fits the paper's text; `caption` is its caption to the letter.")
    ] = ChainRewards.settled,
) -> None:
    """Reproduce the paper's Figure 1: a good and a bad heuristic on a chain of ten states."""
    from hurl.tabular.chain import arrows, write_chain

    figure = write_chain(out, rewards.value)
    table = Table(title="Value from the start of the policy that HuRL finds")
    table.add_column("λ", justify="right")
    for name in figure.curves:
        table.add_column("h = 0" if name == "zero" else f"{name} h", justify="right")
    for points in zip(*figure.curves.values(), strict=True):
        table.add_row(f"{points[0][0]:.1f}", *(f"{value:.4f}" for _, value in points))
    console.print(table)
    console.print("The policies, in states 2 to 9 (left < and right >):")
    for name, policy in figure.policies.items():
        console.print(f"{name:>16}  {arrows(policy)}")
    console.print(f"Picture: [bold]{out / 'chain.png'}[/bold], numbers: {out / 'chain.json'}", soft_wrap=True)
