"""`hurl campaign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hurl.cli.app import Settings, app, say
from hurl.cli.steps import Jobs, Ray, count_jobs, run_campaign
from hurl.experiments.campaign import parse_seeds, plan_campaign
from hurl.experiments.config import preset_names


@app.command(epilog="Example:  hurl campaign hopper --variants sac-bc,hurl-mc --seeds 0-2 --jobs 2")
def campaign(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="A preset, without a variant (see `hurl presets`).")],
    variants: Annotated[str | None, typer.Option(help="Some of its variants, with commas (all by default).")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0-4 or 0,2,5.")] = "0-4",
    jobs: Jobs = None,
    ray: Ray = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Iterations of the runs that train.")] = None,
    out: Annotated[Path, typer.Option(help="The campaign's folder.")] = Path("campaigns"),
    settings: Settings = None,
) -> None:
    """Run variants of a preset with several seeds: data, heuristics, warm starts and training, each shared step once.

    The same command carries on where a stopped one left off.
    """
    at_a_time = count_jobs(jobs, ray)
    names = [name.split("/")[1] for name in preset_names() if name.startswith(f"{preset}/")]
    chosen = names if variants is None else [name.strip() for name in variants.split(",")]
    plan = plan_campaign(preset, chosen, parse_seeds(seeds), out, settings or [], iterations=iterations)
    run_campaign(plan, jobs=at_a_time, ray=ray)
    folder = out / preset
    say(f"Done: {len(plan.runs)} runs in {folder}; compare them with `hurl report {folder}`", bold=folder)
