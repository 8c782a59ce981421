"""The command line: it parses, calls and prints."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from hurl.experiments.config import load_config, preset_description, preset_names
from hurl.experiments.folder import Row, RunFolder
from hurl.experiments.process import prepare_process

if TYPE_CHECKING:
    from hurl.experiments.config import RunConfig

app = typer.Typer(
    help="Heuristic-guided reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console()

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value of the configuration; may be given several times."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class ChainRewards(StrEnum):
    """The rewards of the chain of Figure 1."""

    settled = "settled"
    caption = "caption"


@app.command(epilog="Example:  hurl train sparse-reacher/hurl --seed 1 --set iterations=50")
def train(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.yaml", help="A preset (see `hurl presets`) or a YAML file.")
    ],
    out: Annotated[Path | None, typer.Option(help="The run's folder (runs/NAME/seed-N by default).")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed; short for --set seed=N.")] = None,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Train an agent; the same command carries on where a stopped run left off."""
    config = load_config(source, [*(settings or []), *([] if seed is None else [f"seed={seed}"])])
    name = source
    if source.endswith((".yaml", ".yml")):
        name = Path(source).stem
        sys.path.insert(0, str(Path(source).resolve().parent))  # a heuristic beside the file is found
    folder = out or Path("runs") / name / f"seed-{config.seed}"
    prepare_process(config.threads)
    from hurl.experiments.run import train as run

    console.print(
        f"{config.algorithm.name} on {config.environment.id}, seed {config.seed} → [bold]{folder}[/bold]",
        soft_wrap=True,
    )
    with RunProgress(config) as progress, interruptible():
        rows = run(config, folder, progress.show)
    best = max(rows, key=lambda row: row.return_mean)
    console.print(
        f"Done: return {rows[-1].return_mean:.1f} after {rows[-1].steps:,} steps "
        f"(best {best.return_mean:.1f} in iteration {best.iteration}); metrics in {folder / 'metrics.csv'}",
        soft_wrap=True,
    )


@app.command(epilog="Example:  hurl evaluate runs/sparse-reacher/hurl/seed-0 --episodes 20")
def evaluate(
    path: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run's folder, or one of its checkpoints.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the environments.")] = 0,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions from the policy.")] = False,
    video: Annotated[Path | None, typer.Option(help="Film one episode into this file (.mp4 or .gif).")] = None,
    debug: Debug = False,
) -> None:
    """Roll a trained policy out and print its returns."""
    prepare_process(threads=1)
    from hurl.experiments.evaluate import evaluate_checkpoint, film, find_checkpoint

    checkpoint = find_checkpoint(path)
    with console.status(f"rolling out {checkpoint}"):
        result = evaluate_checkpoint(checkpoint, episodes=episodes, seed=seed, deterministic=not stochastic)
    console.print(f"{checkpoint}, {episodes} episodes", soft_wrap=True)
    table = Table()
    for heading in ("", "mean", "std", "min", "max"):
        table.add_column(heading, justify="right")
    for name, values in (("return", result.returns), ("length", result.lengths)):
        table.add_row(name, *(f"{value:.1f}" for value in (values.mean(), values.std(), values.min(), values.max())))
    console.print(table)
    if video is not None:
        film(checkpoint, video, seed=seed, deterministic=not stochastic)
        console.print(f"Filmed an episode: {video}")


@app.command(epilog="Example:  hurl demo --out runs/demo")
def demo(
    out: Annotated[Path, typer.Option(help="The folder of the demonstration.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each algorithm.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, a core or more each.")] = 2,
    debug: Debug = False,
) -> None:
    """Train SAC, SAC with PBRS and HuRL on Sparse-Reacher, and compare them in a picture and a table."""
    from hurl.experiments.demo import LAST_ITERATIONS, demo_specs, run_demo

    iterations = load_config("demo/hurl").iterations
    with (
        RunsProgress(
            {f"{spec.source}, seed {spec.seed}": spec.folder for spec in demo_specs(out, seeds)}, iterations
        ) as bars,
        interruptible(),
    ):
        results, picture = run_demo(out, seeds, jobs, bars.refresh)
    table = Table(title=f"Return on Sparse-Reacher, {seeds} seeds (0 is perfect, -500 is never at the goal)")
    table.add_column("algorithm")
    for heading in (f"last {LAST_ITERATIONS}, median", "worst seed", "best seed", "whole run, median"):
        table.add_column(heading, justify="right")
    for result in results:
        values = (result.final, result.worst, result.best, result.mean)
        table.add_row(result.label, *(f"{value:.1f}" for value in values))
    console.print(table)
    console.print(f"Picture: [bold]{picture}[/bold]", soft_wrap=True)


@app.command(epilog="Example:  hurl chain --out figure-1")
def chain(
    out: Annotated[Path, typer.Option(help="Folder for chain.png and chain.json.")] = Path("chain"),
    rewards: Annotated[
        ChainRewards, typer.Option(help="`settled` fits the paper's text; `caption` is its caption to the letter.")
    ] = ChainRewards.settled,
    debug: Debug = False,
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
    for name, policy in figure.policies.items():
        console.print(f"{name:>16}  {arrows(policy)}")
    console.print(f"Picture: [bold]{out / 'chain.png'}[/bold], numbers: {out / 'chain.json'}", soft_wrap=True)


@app.command(epilog="Example:  hurl presets")
def presets() -> None:
    """List the presets that `hurl train` knows."""
    for name in preset_names():
        console.print(f"[bold]{name:<22}[/bold] {preset_description(name)}", highlight=False)


class RunProgress:
    """A progress bar with return, λ, speed and time left; plain lines where the output is not a terminal."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.progress = Progress(
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("return {task.fields[value]}  λ {task.fields[lambda_]}  {task.fields[speed]} steps/s"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> RunProgress:
        self.progress.start()
        self.task = self.progress.add_task("", total=self.config.iterations, value="—", lambda_="—", speed="—")
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def show(self, row: Row) -> None:
        """Show an iteration."""
        seconds = row.seconds_collecting + row.seconds_training + row.seconds_evaluating
        value, lambda_ = f"{row.return_mean:.1f}", f"{row.lambda_:.3f}"
        speed = f"{self.config.steps_per_iteration / seconds:,.0f}"
        self.progress.update(self.task, advance=1, value=value, lambda_=lambda_, speed=speed)
        if not console.is_terminal:
            line = f"iteration {row.iteration}/{self.config.iterations}"
            print(f"{line}  return {value}  λ {lambda_}  {speed} steps/s", flush=True)


class RunsProgress:
    """A progress bar for each of several runs, read from their folders; plain lines where there is no terminal."""

    def __init__(self, folders: dict[str, Path], iterations: int) -> None:
        self.folders = {name: RunFolder(folder) for name, folder in folders.items()}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("return {task.fields[value]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {
            name: self.progress.add_task(name, total=iterations, value="—", start=False) for name in self.folders
        }
        self.finished: set[str] = set()

    def __enter__(self) -> RunsProgress:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def refresh(self) -> None:
        """Read how far the runs are."""
        for name, folder in self.folders.items():
            if name in self.finished or not folder.metrics_file.exists():
                continue
            rows, task = folder.read_metrics(), self.tasks[name]
            self.progress.start_task(task)
            self.progress.update(task, completed=len(rows), value=f"{rows[-1].return_mean:.1f}")
            if len(rows) == self.progress.tasks[task].total:
                self.finished.add(name)
                self.progress.stop_task(task)
                if not console.is_terminal:
                    print(f"{name}: return {rows[-1].return_mean:.1f}", flush=True)


def main() -> None:
    """Run the command line: an error is one sentence, and a traceback only with --debug."""
    sys.path.insert(0, str(Path.cwd()))  # heuristics and environments of the user's own
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        sys.exit(_report(error))


@contextmanager
def interruptible() -> Iterator[None]:
    """Say, where a run is stopped from the keyboard, that it can be carried on."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: the same command carries on from the last checkpoint", file=sys.stderr)
        raise typer.Exit(130) from None


def _report(error: Exception) -> int:
    """Print an error in one sentence; return the exit code: 2 for bad input, 1 for a failure at run time."""
    message = " ".join(str(error).split())
    if isinstance(error, ValueError | ImportError):
        print(f"error: {message}", file=sys.stderr)
        return 2
    if isinstance(error, OSError):
        print(
            f"error: {message}; nothing written before is lost: mend this and repeat the command to carry on",
            file=sys.stderr,
        )
        return 1
    print(f"error: {type(error).__name__}: {message} (repeat with --debug for the traceback)", file=sys.stderr)
    return 1
