"""`hurl train`, `hurl evaluate` and `hurl demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from hurl.cli.app import Settings, Trust, app, console, interruptible, make_table, say
from hurl.cli.progress import RunProgress
from hurl.cli.report import report_on
from hurl.cli.steps import run_campaign
from hurl.experiments.campaign import Campaign, plan_campaign, run_name
from hurl.experiments.config import RunConfig, load_config
from hurl.experiments.environments import check_environment
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import RUNS, CampaignFolder
from hurl.experiments.libraries import check_algorithm
from hurl.experiments.metrics import show_return
from hurl.experiments.process import prepare_process
from hurl.experiments.sources import split_variant
from hurl.own_code import look_beside


@app.command(epilog="Example:  hurl train sparse-reacher/hurl --seed 1 --set iterations=50")
def train(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.yaml", help="A preset (see `hurl presets`), or a YAML file.")
    ],
    out: Annotated[Path | None, typer.Option(help="The run's folder (runs/NAME/seed-N by default).")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed; short for --set seed=N.")] = None,
    settings: Settings = None,
    goes_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the run that is there, with what was set when it began.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Train an agent; the same command carries on where a stopped run left off.

    A finished run goes on with --continue --set iterations=N, where what it did does not depend on its length; of an
    off-policy algorithm, if it had `keep_replay: true`.
    """
    config = load_config(source, [*(settings or []), *([] if seed is None else [f"seed={seed}"])])
    check_algorithm(config.algorithm.name)
    check_environment(config.environment.id)
    look_beside(split_variant(source)[0])
    folder = out or CampaignFolder(RUNS).run(run_name(source), config.seed)
    if goes_on:
        config = RunFolder(folder).read_config_to_train(settings or [], named=config.code, trust=trust)
    prepare_process(config.threads)
    if config.data is not None and config.needs_data:
        plan, data = Campaign(RUNS, trust=trust), config.data
        trust = trust or plan.names_fitted_code(config)
        config, _ = plan.prepare(config)
        say(f"First what the run is made from: {data.describe()}")
        run_campaign(plan, jobs=1)
    from hurl.experiments.run import train as run

    say(f"{config.algorithm.name} on {config.environment.id}, seed {config.seed} → {folder}", bold=folder)
    if RunFolder(folder).is_finished(config):
        console.print("It was trained to its end before; this is what it did:")
    _tell_of_earlier(RunFolder(folder), config)
    with RunProgress(config) as progress, interruptible():
        rows = run(
            config,
            folder,
            progress.show,
            report_cloning=progress.show_cloning,
            report_resuming=progress.resume,
            trust=trust,
        )
    best = max(rows, key=lambda row: row.return_mean)
    say(
        f"Done: return {show_return(rows[-1].return_mean)} after {rows[-1].steps:,} steps "
        f"(best {show_return(best.return_mean)} in iteration {best.iteration}); metrics in {folder / 'metrics.csv'}"
    )


def _tell_of_earlier(folder: RunFolder, config: RunConfig) -> None:
    """Say from where a run goes on that is made longer, and that one without a checkpoint begins anew."""
    from hurl.experiments.extension import check_extension, checkpoints_of, is_longer

    if not folder.exists:
        return
    stored = folder.parse_config()
    found = checkpoints_of(folder, config)
    if is_longer(stored, config):
        check_extension(folder, stored, config)
        last = int(found[-1].name) if found else 0
        say(
            f"It is made longer, from {stored.iterations} iterations to {config.iterations}, and goes on from "
            f"iteration {last}, its last checkpoint, of which there is one every {config.checkpoint_every}"
        )
    elif not found and folder.metrics_file.exists():
        say(f"It was stopped before its first checkpoint, of iteration {config.checkpoint_every}, and begins anew")


@app.command(epilog="Example:  hurl evaluate runs/sparse-reacher/hurl/seed-0 --episodes 20")
def evaluate(
    path: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run's folder, or one of its checkpoints.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environments.")] = 0,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions from the policy.")] = False,
    video: Annotated[Path | None, typer.Option(help="Film one episode into this file (.mp4 or .gif).")] = None,
    trust: Trust = False,
) -> None:
    """Roll a trained policy out and print its returns."""
    prepare_process(threads=1)
    from hurl.experiments.evaluate import check_filming, evaluate_checkpoint, film, find_checkpoint

    checkpoint = find_checkpoint(path)
    if video is not None:
        check_filming(video)
    with console.status(f"rolling out {checkpoint}"):
        result = evaluate_checkpoint(
            checkpoint, episodes=episodes, seed=seed, deterministic=not stochastic, trust=trust
        )
    say(f"{checkpoint}, {episodes} episodes")
    table = make_table(("", "mean", "std", "min", "max"))
    for name, values in (("return", result.returns), ("length", result.lengths)):
        table.add_row(name, *map(show_return, (values.mean(), values.std(), values.min(), values.max())))
    if np.isfinite(result.success_rate):
        table.add_row("success", f"{result.success_rate:.0%}")
    console.print(table)
    if video is not None:
        film(checkpoint, video, seed=seed, deterministic=not stochastic, trust=trust)
        console.print(f"Filmed an episode: {video}")


@app.command(epilog="Example:  hurl demo --out runs/demo")
def demo(
    out: Annotated[Path, typer.Option(help="The folder of the demonstration.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each algorithm.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, a core or more each.")] = 2,
    settings: Settings = None,
) -> None:
    """Train SAC, SAC with PBRS and HuRL on Sparse-Reacher, and compare them in pictures and a table."""
    plan = plan_campaign("demo", ["sac", "pbrs", "hurl"], range(seeds), out, settings or [])
    run_campaign(plan, jobs=jobs)
    from hurl.reports import collect_runs

    report_on(collect_runs([run.folder for run in plan.runs]), out / "report")
    console.print("A return of 0 is perfect, and -500 is never at the goal.")
