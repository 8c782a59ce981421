"""`hurl fit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from hurl.cli.app import Trust, app, console, make_table, say
from hurl.cli.progress import Bars
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.process import prepare_process
from hurl.experiments.sources import apply_settings

if TYPE_CHECKING:
    from hurl.heuristics.base import StorableHeuristic

# What to take where h comes from data: where the data says little, it is low.
RECOMMENDED = "ensemble"


class FitCommand(TyperCommand):
    """A command whose help names the kinds that there are, users' own among them."""

    def format_help(self, *arguments: Any, **more: Any) -> None:
        """Find the kinds, which other commands need not wait for."""
        from hurl.experiments.fitting import kind_names

        kind = next(parameter for parameter in self.params if isinstance(parameter, TyperArgument))
        *others, last = (name for name in kind_names() if name != RECOMMENDED)
        kind.help = f"{RECOMMENDED}, where h comes from data; else {', '.join(others)}, or {last}."
        super().format_help(*arguments, **more)


@app.command(
    cls=FitCommand,
    epilog="Examples:  hurl fit --dataset hopper/behaviour-v0 --gamma 0.999 --out heuristics/hopper  |  "
    "hurl fit value-function --agent old.zip --algorithm sb3.PPO --env CartPole-v1 --out heuristics/old",
)
def fit(
    out: Annotated[Path, typer.Option(help="The heuristic's folder.")],
    kind: Annotated[str, typer.Argument(metavar="KIND")] = RECOMMENDED,
    dataset: Annotated[
        str | None, typer.Option(help="The id of a Minari dataset, such as hopper/behaviour-v0.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="γ, the discount of the run that the heuristic is for.")] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN|CHECKPOINT", help="For value-function and its like: the agent.")
    ] = None,
    agent: Annotated[
        Path | None,
        typer.Option(metavar="ZIP", help="The same: what model.save of Stable-Baselines3, sb3-contrib or SBX wrote."),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The algorithm of --agent, such as sb3.PPO or sbx.SAC.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(metavar="ID", help="The environment of --agent, or one with the same spaces.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="The folder of Minari datasets (the user's own by default).")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed; short for --set seed=N.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the kind, such as epochs=30; several may be."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Processor cores to use.")] = 2,
    trust: Trust = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the heuristic in the folder without asking.")] = False,
) -> None:
    """Make a heuristic from a dataset, or from an agent's critic, and save it as a folder without pickles."""
    prepare_process(threads)
    from hurl.experiments.fitting import find_kind, fit_heuristic
    from hurl.heuristics.storage import check_replaceable

    cls = find_kind(kind)
    check_replaceable(out)
    out.parent.mkdir(parents=True, exist_ok=True)  # a place that can't be written to is known before all is fitted
    replaced = ""
    if out.exists() and any(out.iterdir()):
        _agree_to_replace(out, force)
        replaced = ", in place of the one that was there"
    heuristic: StorableHeuristic
    if not hasattr(cls, "fit"):
        if any(other is not None for other in (dataset, gamma, root, seed, settings)):
            raise ConfigurationError(
                f"{kind} takes all from the agent: leave out --dataset, --gamma, --root, --seed and --set"
            )
        heuristic = _take_value_function(kind, cls, run, agent, algorithm, env, trust)
    else:
        given = {"--run": run, "--agent": agent, "--algorithm": algorithm, "--env": env}
        wrong = [f"leave out {name}" for name, value in given.items() if value is not None]
        missing = [name for name, value in {"--dataset": dataset, "--gamma": gamma}.items() if value is None]
        wrong += [f"give {' and '.join(missing)}"] if missing else []
        if wrong or dataset is None or gamma is None:
            raise ConfigurationError(f"{kind} is fitted to data for a discount: {', '.join(wrong)}")
        parameters = apply_settings({}, settings or []) | ({} if seed is None else {"seed": seed})
        epochs = (0, 0)  # done, and in all
        with Bars() as bars:
            bars.draw("fitting", 0, None, "reading the data")

            def report(done: int, total: int, loss: float, score: float | None) -> None:
                nonlocal epochs
                epochs = done, total
                bars.tell("fitting", done, total, f"loss {loss:.4g}" + ("" if score is None else f"  R² {score:.3f}"))

            heuristic = fit_heuristic(kind, dataset, gamma=gamma, parameters=parameters, root=root, report=report)
        if "epochs" in heuristic.metrics and epochs[0] < epochs[1]:
            say(
                f"Stopped after epoch {epochs[0]} of {epochs[1]}, for held-out episodes were predicted no better, and "
                f"went back to epoch {heuristic.metrics['epochs']:.0f}; --set patience=N waits for longer."
            )
    heuristic.save(out)
    if heuristic.metrics:
        named = {name.replace("r2_", "R² ").replace("_", " "): value for name, value in heuristic.metrics.items()}
        rows = ((name, f"{value:,.4g}") for name, value in named.items())
        console.print(make_table(("how it fits", ""), rows, left=("how it fits",)))
    say(f"{heuristic} → {out}{replaced}", bold=out)
    _say_what_next(out, dataset, root)


def _say_what_next(out: Path, dataset: str | None, root: Path | None) -> None:
    """Say how to judge h, and what to write in a run: with h the data itself, which did best, see logged-data.md."""
    if dataset is None:
        say(f"In a run:  guidance: {{heuristic: {out}}}")
        return
    option, key = ("", "") if root is None else (f" --root {root}", f", root: {root}")
    say(f"Judge it:  hurl diagnose {out} --dataset {dataset}{option}")
    say(f"In a run:  guidance: {{heuristic: {out}}}, and off-policy  prior: {{dataset: {dataset}{key}}}")


def _agree_to_replace(out: Path, force: bool) -> None:
    """Ask whether a heuristic may be replaced; without a terminal to ask at, only --force says so."""
    if force:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{out} holds a heuristic: choose another folder, or replace it with --force")
    typer.confirm(f"{out} holds a heuristic; replace it?", abort=True)


def _take_value_function(
    kind: str, cls: type[Any], run: Path | None, agent: Path | None, algorithm: str | None, env: str | None, trust: bool
) -> StorableHeuristic:
    if (run is None) == (agent is None):
        raise ConfigurationError(f"{kind} needs one agent: its run or checkpoint with --run, or its zip with --agent")
    from hurl.experiments.agents import value_function_of, value_function_of_zip

    if run is not None:
        if algorithm is not None or env is not None:
            raise ConfigurationError(f"{run} says itself what it is of: leave out --algorithm and --env")
        return value_function_of(run, cls, trust=trust)
    assert agent is not None
    if algorithm is None or env is None:
        raise ConfigurationError(
            f"{agent} does not say what it is of: name its algorithm, such as --algorithm sb3.PPO, and --env"
        )
    return value_function_of_zip(agent, algorithm, env, cls)
