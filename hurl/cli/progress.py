"""Progress bars, and tables that are drawn again and again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from hurl.cli.app import console
from hurl.experiments.campaign import Campaign, CampaignRun
from hurl.experiments.config import RunConfig
from hurl.experiments.errors import RunFolderError
from hurl.experiments.folder import RunFolder
from hurl.experiments.metrics import LABELS, Row
from hurl.experiments.tasks import State

CLONING, ITERATION = "cloning, epoch", "iteration"
MANY = 30  # steps that a terminal still shows
QUIET_SECONDS = 60.0  # between two lines on a run, where there is no terminal


class Bars(Progress):
    """Progress bars, one below the other; plain lines where there is no terminal.

    :param transient: whether they are gone in the end
    """

    def __init__(self, *, transient: bool = False) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=transient,
            disable=not console.is_terminal,
        )
        self.bars: dict[str, TaskID] = {}

    def draw(self, name: str, done: int, total: int | None, status: str) -> None:
        """Draw how far something is; its bar is there from the first time on."""
        if name not in self.bars:
            self.bars[name] = self.add_task(name, total=None, status="")
        self.update(self.bars[name], completed=done, total=total, status=status, visible=total != 0)

    def tell(self, name: str, done: int, total: int, status: str) -> None:
        """Draw how far something is, and say it in a line where there is no terminal."""
        self.draw(name, done, total, status)
        self.say(f"{name} {done}/{total}  {status}")

    def say(self, line: str) -> None:
        """Print a line where there is no terminal."""
        if not console.is_terminal:
            print(line, flush=True)


class RunProgress(Bars):
    """Progress of the warm start, if any, and of the iterations."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        self.config = config
        self.epochs = 0 if config.warm_start is None else config.warm_start.epochs
        if self.epochs:
            self.draw(CLONING, 0, self.epochs, "reading the data")
        else:
            self.draw(ITERATION, 0, config.iterations, "")

    def resume(self, iteration: int) -> None:
        """Say that the run was begun before."""
        console.print(f"resuming from iteration {iteration}")

    def show_cloning(self, epoch: int, loss: float) -> None:
        """Show an epoch of the warm start."""
        self.tell(CLONING, epoch, self.epochs, f"loss {loss:.4f}")

    def show(self, row: Row) -> None:
        """Show an iteration; iteration 0 is the cloned policy."""
        status = describe(row)
        if row.iteration:
            status += f"  {self.config.steps_per_iteration / row.seconds:,.0f} steps/s"
        else:
            self.draw(CLONING, self.epochs, self.epochs, f"done: {status}")
        self.tell(ITERATION, row.iteration, self.config.iterations, status)


def describe(row: Row) -> str:
    """Say what a row has for the terminal."""
    return "  ".join(f"{label} {text}" for label, text in row.texts().items())


class LiveTable(Live):
    """A table that is drawn again and again, where there is a terminal."""

    def __init__(self) -> None:
        super().__init__(console=console, refresh_per_second=2)

    def start(self, refresh: bool = False) -> None:
        """Begin to draw."""
        if console.is_terminal:
            super().start(refresh)


class CampaignTable(LiveTable):
    """A live table of the steps and runs; lines as they change where there is no terminal."""

    def __init__(self, plan: Campaign) -> None:
        super().__init__()
        self.plan = plan
        self.states: dict[str, State] = {}
        self.cells: dict[Path, tuple[float, list[str]]] = {}
        self.said: dict[str, tuple[float, list[str]]] = {}

    def show(self, states: dict[str, State]) -> None:
        """Show how far each step is."""
        if console.is_terminal:
            self.update(self._table(states))
        for name, state in states.items():
            if not console.is_terminal:
                self._tell(name, state)
        self.states = dict(states)

    def _tell(self, name: str, state: State) -> None:
        """Print a line on a step whose state has changed, and now and then on a run that has come further."""
        run, now = self.plan.trained.get(name), time.monotonic()
        if self.states.get(name, State.waiting) is not state:
            print(f"{state.value:>8}  {name}", flush=True)
            self.said[name] = now, []
        elif state is State.running and run is not None and now >= self.said[name][0] + QUIET_SECONDS:
            cells = self._progress(run)
            if cells != self.said[name][1]:
                headings = ("iteration", *LABELS, "time left")
                told = (f"{heading} {cell}" for heading, cell in zip(headings, cells, strict=False) if cell)
                print(f"{state.value:>8}  {name}  {'  '.join(told)}", flush=True)
            self.said[name] = now, cells

    def _table(self, states: dict[str, State]) -> Table:
        """Return a row for each step; of many, those that run or have failed."""
        tasks = self.plan.tasks
        done = sum(state is State.done for state in states.values())
        table = Table(title=f"{done} of {len(tasks)} steps done", title_justify="left")
        for heading in ("step", "", "iteration", *LABELS, "time left"):
            table.add_column(heading, justify="left" if heading in ("step", "") else "right", overflow="fold")
        if len(tasks) > MANY:
            tasks = tuple(task for task in tasks if states[task.name] in (State.running, State.failed))
        for task in tasks:
            run = self.plan.trained.get(task.name)
            table.add_row(task.name, states[task.name].value, *(self._progress(run) if run is not None else []))
        return table

    def _progress(self, run: CampaignRun) -> list[str]:
        """Return how far a run is and the time left, read again where its metrics have changed."""
        file = RunFolder(run.folder).metrics_file
        changed = file.stat().st_mtime if file.exists() else 0.0
        if self.cells.get(run.folder, (-1.0, []))[0] != changed:
            self.cells[run.folder] = changed, _describe(run)
        return self.cells[run.folder][1]


def _describe(run: CampaignRun) -> list[str]:
    try:
        rows = RunFolder(run.folder).read_metrics()
    except RunFolderError:
        return ["damaged"]
    cells = describe_last(rows, run.config.iterations)
    if rows and rows[-1].iteration < run.config.iterations:
        seconds = [row.seconds for row in rows[-10:]]
        left = sum(seconds) / len(seconds) * (run.config.iterations - rows[-1].iteration)
        cells.append(f"{left / 60:.0f} min")
    return cells


def describe_last(rows: Sequence[Row], iterations: int) -> list[str]:
    """Return the cells of a table on how far a run is: the iteration, and what its last row has for the terminal."""
    shown = rows[-1].texts() if rows else {}
    return [f"{rows[-1].iteration if rows else 0}/{iterations}", *(shown.get(label, "") for label in LABELS)]
