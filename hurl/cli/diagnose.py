"""`hurl diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hurl.cli.app import Trust, app, console, make_table, say
from hurl.cli.progress import Bars
from hurl.discounting import TimeLimit

if TYPE_CHECKING:
    from hurl.guidance import Heuristic


@app.command(epilog="Example:  hurl diagnose heuristics/hopper --dataset hopper/behaviour-v0")
def diagnose(
    heuristic: Annotated[
        str, typer.Argument(metavar="FOLDER|MODULE:FUNCTION", help="A saved heuristic, or a function of a batch.")
    ],
    dataset: Annotated[str, typer.Option(metavar="ID", help="The Minari dataset to judge it with.")],
    gamma: Annotated[float | None, typer.Option(help="The discount; that of a saved heuristic by default.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A dataset of the agent's own: how far it leaves the data, what h says there."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the Minari datasets (your own by default).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files (diagnosis/<name of the heuristic> by default).")
    ] = None,
    time_limit: Annotated[
        TimeLimit | None,
        typer.Option(
            help="What returns count after a time limit: nothing, h there, or drop the episode (by default as h's own)."
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Judge a heuristic with data before it guides a run, and suggest a λ to begin with."""
    from hurl.data import load_episodes
    from hurl.diagnosis import diagnose as judge
    from hurl.files import write_whole
    from hurl.heuristics.storage import find_heuristic
    from hurl.names import parse_heuristic

    with Bars(transient=True) as bars:
        bars.draw("diagnosis", 0, None, f"reading {dataset}")
        episodes = load_episodes(dataset, root)
        function = find_heuristic(parse_heuristic(heuristic), episodes.observation_space, gamma, trust=trust)
        result = judge(
            function,
            episodes,
            _discount(heuristic, function) if gamma is None else gamma,
            agent=agent,
            time_limit=time_limit,
            root=root,
            progress=lambda done, total: bars.draw("diagnosis", done, total, "evaluating h"),
        )
        out = _default_folder(heuristic) if out is None else out
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "diagnosis.json", f"{result.to_json()}\n".encode())
        result.plot(out / "diagnosis.png")
    headings, words = ("quantity", "value"), ("quantity",)
    console.print(make_table(headings, result.rows(), left=words, title=result.title, title_justify="left"))
    console.print(result.advice, style="bold", highlight=False)
    for sentence in result.verdict:
        console.print(f"• {sentence}", highlight=False)
    say(f"Picture: {out / 'diagnosis.png'}, numbers: {out / 'diagnosis.json'}", bold=out / "diagnosis.png")


def _discount(name: str, function: Heuristic) -> float:
    """Return the discount that a heuristic is for."""
    gamma: float | None = getattr(function, "gamma", None)
    if gamma is None:
        raise ValueError(f"the heuristic {name} is for no discount in particular: give one with --gamma")
    return gamma


def _default_folder(name: str) -> Path:
    """Return `diagnosis/` and the last part of a heuristic's name: its folder's, or the function's."""
    return Path("diagnosis") / Path(name).resolve().name.rpartition(":")[2]
