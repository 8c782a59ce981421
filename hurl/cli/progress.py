"""Progress bars of runs."""

from __future__ import annotations

from typing import Self

from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hurl.cli.app import console
from hurl.experiments.campaign import Campaign, CampaignRun
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import RunFolder, RunFolderError
from hurl.experiments.metrics import Row
from hurl.experiments.tasks import State

__all__ = ["CampaignTable", "LiveTable", "RunProgress"]

MANY = 30  # steps that a terminal still shows


class RunProgress:
    """Progress bars of the warm start, if any, and of the iterations; plain lines where there is no terminal."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.epochs = 0 if config.warm_start is None else config.warm_start.epochs
        self.progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> RunProgress:
        self.progress.start()
        if self.epochs:
            self.cloning = self.progress.add_task("cloning, epoch", total=self.epochs, status="reading the data")
        self.iterations = self.progress.add_task(
            "iteration", total=self.config.iterations, status="", visible=not self.epochs, start=not self.epochs
        )
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def resume(self, iteration: int) -> None:
        """Say that the run was begun before."""
        console.print(f"resuming from iteration {iteration}")

    def show_cloning(self, epoch: int, loss: float) -> None:
        """Show an epoch of the warm start."""
        status = f"loss {loss:.4f}"
        self.progress.update(self.cloning, completed=epoch, status=status)
        if not console.is_terminal:
            print(f"cloning, epoch {epoch}/{self.epochs}  {status}", flush=True)

    def show(self, row: Row) -> None:
        """Show an iteration; iteration 0 is the cloned policy."""
        status = f"return {row.return_mean:.1f}"
        if row.iteration:
            status += f"  λ {row.lambda_:.3f}  {self.config.steps_per_iteration / row.seconds:,.0f} steps/s"
            self.progress.update(self.iterations, completed=row.iteration, status=status)
        else:
            self.progress.update(self.cloning, completed=self.epochs, status=f"done: {status}")
            self.progress.update(self.iterations, visible=self.config.iterations > 0)
            self.progress.start_task(self.iterations)
        if not console.is_terminal:
            print(f"iteration {row.iteration}/{self.config.iterations}  {status}", flush=True)


class LiveTable:
    """A table that is drawn again and again, where there is a terminal."""

    def __init__(self) -> None:
        self.live = Live(console=console, refresh_per_second=2)

    def __enter__(self) -> Self:
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if console.is_terminal:
            self.live.stop()


class CampaignTable(LiveTable):
    """A live table of the steps and runs; lines as they change where there is no terminal."""

    def __init__(self, plan: Campaign) -> None:
        super().__init__()
        self.plan = plan
        self.runs = {run.task: run for run in plan.runs}
        self.states: dict[str, State] = {}
        self.cells: dict[str, tuple[float, list[str]]] = {}

    def show(self, states: dict[str, State]) -> None:
        """Show how far each step is."""
        if console.is_terminal:
            self.live.update(self._table(states))
        for name, state in states.items():
            if not console.is_terminal and self.states.get(name, State.waiting) is not state:
                print(f"{state.value:>8}  {name}", flush=True)
        self.states = dict(states)

    def _table(self, states: dict[str, State]) -> Table:
        """Return a row for each step; of many, those that run or have failed."""
        tasks = self.plan.tasks
        done = sum(state is State.done for state in states.values())
        table = Table(title=f"{done} of {len(tasks)} steps done", title_justify="left")
        for heading in ("step", "", "iteration", "return", "λ", "time left"):
            table.add_column(heading, justify="left" if heading in ("step", "") else "right", overflow="fold")
        if len(tasks) > MANY:
            tasks = tuple(task for task in tasks if states[task.name] in (State.running, State.failed))
        for task in tasks:
            run = self.runs.get(task.name)
            table.add_row(task.name, states[task.name].value, *(self._progress(run) if run is not None else [""] * 4))
        return table

    def _progress(self, run: CampaignRun) -> list[str]:
        """Return iteration, return, λ and time left of a run, read again where its metrics have changed."""
        file = RunFolder(run.folder).metrics_file
        changed = file.stat().st_mtime if file.exists() else 0.0
        if self.cells.get(run.task, (-1.0, []))[0] != changed:
            self.cells[run.task] = changed, _describe(run)
        return self.cells[run.task][1]


def _describe(run: CampaignRun) -> list[str]:
    try:
        rows = RunFolder(run.folder).read_metrics()
    except RunFolderError:
        return ["damaged", "", "", ""]
    if not rows:
        return [f"0/{run.config.iterations}", "", "", ""]
    last = rows[-1]
    seconds = [row.seconds for row in rows[-10:]]
    left = sum(seconds) / len(seconds) * (run.config.iterations - last.iteration)
    time = f"{left / 60:.0f} min" if last.iteration < run.config.iterations else ""
    return [f"{last.iteration}/{run.config.iterations}", f"{last.return_mean:.1f}", f"{last.lambda_:.3f}", time]
