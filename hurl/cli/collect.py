"""`hurl collect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from hurl.cli.app import Settings, Trust, app, console, interruptible, make_table, say
from hurl.cli.progress import Bars
from hurl.cli.steps import run_campaign
from hurl.experiments.campaign import Campaign
from hurl.experiments.environments import check_environment
from hurl.experiments.layout import RUNS
from hurl.experiments.libraries import check_algorithm
from hurl.experiments.metrics import show_return
from hurl.experiments.process import prepare_process
from hurl.experiments.recipes import Recipe, load_recipe
from hurl.experiments.tasks import cores_here

if TYPE_CHECKING:
    from minari import MinariDataset

    from hurl.data import Progress


@app.command(
    epilog="Examples:  hurl collect runs/hopper/sac/seed-0 --dataset hopper/mine-v0 --every 2  |  "
    "hurl collect random --env Hopper-v4 --dataset hopper/random-v0  |  hurl collect --recipe hopper"
)
def collect(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Policies: a run's folder (all its checkpoints), a checkpoint, a .zip file of Stable-Baselines3 or "
            "SBX (which sees raw observations: not of an agent trained through VecNormalize), `random`, or "
            "module:function (observations to actions).",
            show_default=False,
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(metavar="ID", help="The dataset's id, such as hopper/mine-v0.")] = None,
    transitions: Annotated[int | None, typer.Option(help="Transitions of each policy (10,000 by default).")] = None,
    env: Annotated[str | None, typer.Option(metavar="ID", help="The environment (the runs' own by default).")] = None,
    settings: Settings = None,
    every: Annotated[int, typer.Option(min=1, help="Of a run, every so many-th checkpoint.")] = 1,
    policies: Annotated[
        int | None, typer.Option(min=1, help="Of those of a run, so many, evenly spaced up to the last.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The algorithm of .zip files, such as sb3.PPO or sbx.SAC.")
    ] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Models act without chance.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed.")] = 0,
    n_envs: Annotated[int, typer.Option(min=1, help="Environments that step together.")] = 10,
    threads: Annotated[
        int | None, typer.Option(min=1, help="EnvPool's threads (all cores by default); the data is the same.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the Minari datasets (your own by default).")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The paper's data: train SAC, collect from 50 checkpoints; hopper, …"),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the recipe's run (in runs/shared/behaviour by default).")
    ] = None,
    trust: Trust = False,
) -> None:
    """Roll policies out into a Minari dataset; the same command carries on where a stopped one left off."""
    default = 10_000
    if recipe is not None:
        if sources:
            raise ValueError(f"a recipe trains policies of its own: leave either --recipe or {sources[0]!r} out")
        made = _train_recipe(recipe, seed, run)
        sources, dataset, default = [made.source], dataset or made.dataset, made.transitions
        if made.environment is not None and env is None:
            env, settings = made.environment.id, [*made.environment_settings, *(settings or [])]
        policies = made.policies if policies is None else policies
    if not sources:
        raise ValueError("there is no policy to roll out: name a run's folder, a .zip file, random, or a --recipe")
    if dataset is None:
        raise ValueError("the dataset has no id: give it one, such as --dataset hopper/mine-v0")
    if algorithm is not None:
        check_algorithm(algorithm)
    if env is not None:
        check_environment(env)
    prepare_process(threads=1)  # small networks are no faster with more, and arithmetic repeats exactly
    from hurl.experiments.policies import collect_policies

    with _CollectionBars() as bars, interruptible():
        collected = collect_policies(
            sources,
            dataset,
            transitions=default if transitions is None else transitions,
            n_envs=n_envs,
            env_id=env,
            settings=settings or (),
            every=every,
            count=policies,
            algorithm=algorithm,
            deterministic=deterministic,
            seed=seed,
            root=root,
            threads=threads or cores_here(),
            trust=trust,
            report=bars.show,
        )
    _print_summary(collected, bars)


def _train_recipe(name: str, seed: int, run: Path | None) -> Recipe:
    """Train what a recipe takes its policies from, in a folder of one's own or the recipe's."""
    recipe = load_recipe(name, seed)
    if run is not None:
        if recipe.config is None:
            raise ValueError(f"the policy of {name} is a function, for which nothing is trained: leave --run {run} out")
        recipe = replace(recipe, source=str(run))
    plan = Campaign(RUNS)
    plan.add_behaviour(recipe)
    run_campaign(plan, jobs=1)
    return recipe


class _CollectionBars(Bars):
    """Progress of collecting; `transitions` that were collected in so many `seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.transitions, self.began, self.seconds = 0, perf_counter(), 0.0

    def show(self, progress: Progress) -> None:
        """Show how far collecting is."""
        done = (progress.number - 1) * progress.wanted + progress.transitions
        policy = f"policy {progress.number}/{progress.policies}"
        self.draw("transition", done, progress.policies * progress.wanted, policy)
        if progress.transitions == 0:
            self.began = perf_counter()
        elif progress.transitions == progress.wanted:
            if not progress.earlier:
                self.transitions += progress.wanted
                self.seconds += perf_counter() - self.began
            self.say(f"{policy}  {progress.policy}{'  (from an earlier collection)' if progress.earlier else ''}")


def _print_summary(dataset: MinariDataset, bars: _CollectionBars) -> None:
    from hurl.data import summarize

    policies = sorted(summarize(dataset), key=lambda policy: policy.return_mean)
    title = f"{dataset.id}: {dataset.total_steps:,} transitions, policies: {len(policies)}"
    table = make_table(("", "policy", "return", "episodes", "transitions"), left=("policy",), title=title)
    ranks = {len(policies) - 1: "best", len(policies) // 2: "median", 0: "worst"} if len(policies) > 2 else {}
    for index in sorted(ranks) or range(len(policies)):
        label, policy = ranks.get(index, ""), policies[index]
        table.add_row(
            label, policy.name, show_return(policy.return_mean), str(policy.episodes), f"{policy.transitions:,}"
        )
    table.add_section()
    table.add_row("all", "", "", f"{dataset.total_episodes:,}", f"{dataset.total_steps:,}")
    console.print(table)
    done = "Nothing was left to collect"
    if bars.transitions:
        done = f"{bars.transitions:,} collected, {bars.transitions / bars.seconds:,.0f} steps/s"
    say(f"{done}; in {dataset.storage.data_path.parent}", bold=dataset.storage.data_path.parent)
