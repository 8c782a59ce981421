"""`hurl campaign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hurl.cli.app import Settings, Trust, app, say
from hurl.cli.steps import Jobs, Ray, count_jobs, run_campaign
from hurl.experiments.campaign import parse_seeds, plan_campaign, run_name
from hurl.own_code import look_beside


@app.command(
    epilog="Examples:  hurl campaign hopper --variants sac-bc,hurl-mc --seeds 0-2 --jobs 2  |  "
    "hurl campaign my.yaml --seeds 0-4"
)
def campaign(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|FILE.yaml", help="A preset, without a variant, or a YAML file with `variants:`."
        ),
    ],
    variants: Annotated[str | None, typer.Option(help="Some of its variants, with commas (all by default).")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-4 or 0,2,5.")] = "0-4",
    jobs: Jobs = None,
    ray: Ray = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Iterations of the runs that train.")] = None,
    out: Annotated[Path, typer.Option(help="The campaign's folder.")] = Path("campaigns"),
    settings: Settings = None,
    trust: Trust = False,
) -> None:
    """Run variants of a preset, or of a file of yours, with several seeds, and before them what they are made from.

    The same command carries on where a stopped one left off.
    """
    at_a_time = count_jobs(jobs, ray)
    chosen = None if variants is None else [name.strip() for name in variants.split(",")]
    look_beside(source)
    plan = plan_campaign(source, chosen, parse_seeds(seeds), out, settings or [], iterations=iterations, trust=trust)
    run_campaign(plan, jobs=at_a_time, ray=ray)
    folder = out / run_name(source)
    say(f"Done: {len(plan.runs)} runs in {folder}; compare them with `hurl report {folder}`", bold=folder)
