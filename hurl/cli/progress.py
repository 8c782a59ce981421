"""Progress bars of runs."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hurl.cli.app import console
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import Row, RunFolder

__all__ = ["RunProgress", "RunsProgress"]


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
            seconds = row.seconds_collecting + row.seconds_training + row.seconds_evaluating
            status += f"  λ {row.lambda_:.3f}  {self.config.steps_per_iteration / seconds:,.0f} steps/s"
            self.progress.update(self.iterations, completed=row.iteration, status=status)
        else:
            self.progress.update(self.cloning, completed=self.epochs, status=f"done: {status}")
            self.progress.update(self.iterations, visible=self.config.iterations > 0)
            self.progress.start_task(self.iterations)
        if not console.is_terminal:
            print(f"iteration {row.iteration}/{self.config.iterations}  {status}", flush=True)


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
            self.progress.update(task, completed=rows[-1].iteration, value=f"{rows[-1].return_mean:.1f}")
            if rows[-1].iteration == self.progress.tasks[task].total:
                self.finished.add(name)
                self.progress.stop_task(task)
                if not console.is_terminal:
                    print(f"{name}: return {rows[-1].return_mean:.1f}", flush=True)
