"""Progress bars of runs."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hurl.cli.app import console
from hurl.experiments.config import RunConfig
from hurl.experiments.folder import Row, RunFolder

__all__ = ["RunProgress", "RunsProgress"]


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
