"""Commands of hurl side by side: a process each, with its share of the cores, after what each of them needs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hurl.files import make_folder, open_log, read_regular, write_whole

POLL_SECONDS = 0.3
PINNING = hasattr(os, "sched_setaffinity")  # not every system can tie a process to cores

# The command ends with the process that started it, however that ends: its standard input is then closed.
COMMAND = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
from hurl.cli import main
main()
"""


class TasksFailedError(RuntimeError):
    """Some of the tasks did not finish."""


class State(StrEnum):
    """How far a task is."""

    waiting = "waiting"
    running = "running"
    done = "done"
    failed = "failed"
    blocked = "blocked"


@dataclass(frozen=True)
class Task:
    """A command of hurl that does nothing where it has been done before, and carries on where it was stopped.

    :param name: what it is called in tables
    :param arguments: of the command `hurl`
    :param log: where its output goes
    :param inputs: files and folders that it reads: it comes after the tasks that make them
    :param outputs: files and folders that it makes, at once or bit by bit
    :param cores: how many it uses; on this machine it gets its share, whatever it asks for
    :param gpus: how many it uses, which Ray hands out; on this machine it sees all that there are
    :param files: those of its inputs that nobody has written yet: paths and texts, written when it starts
    :param finished: whether it was found to be done when it was planned, so that it need not run
    """

    name: str
    arguments: tuple[str, ...]
    log: Path
    inputs: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()
    cores: int = 1
    gpus: float = 0.0
    files: tuple[tuple[Path, str], ...] = ()
    finished: bool = False

    @property
    def places(self) -> tuple[Path, ...]:
        """Where it writes."""
        return (*self.outputs, self.log)

    def write_files(self) -> None:
        """Write what it reads, before it is started."""
        for path, text in self.files:
            make_folder(path.parent)
            write_whole(path, text.encode())


def run_tasks(
    tasks: Sequence[Task], jobs: int, watch: Callable[[dict[str, State]], None] = lambda states: None
) -> None:
    """Run all, `jobs` at a time, each pinned to its share of the cores; one that fails hurts only those that need it.

    :param watch: called a few times a second with the state of each task
    """
    cores = sorted(os.sched_getaffinity(0)) if PINNING else list(range(os.cpu_count() or 1))
    jobs = min(jobs, cores_here())
    free = [cores[slot::jobs] for slot in range(jobs)]
    states = first_states(tasks)
    running: dict[subprocess.Popen[bytes], tuple[Task, list[int]]] = {}
    try:
        while True:
            for task in ready_tasks(tasks, states)[: len(free)]:
                share = free.pop(0)
                running[_start(task, share)] = (task, share)
                states[task.name] = State.running
            if not running:
                break
            time.sleep(POLL_SECONDS)
            for process in [process for process in running if process.poll() is not None]:
                task, share = running.pop(process)
                free.append(share)
                states[task.name] = State.done if process.returncode == 0 else State.failed
            watch(states)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()  # a run that is still ending would be in the way of one that carries it on
    raise_failures(tasks, states)


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if PINNING else os.cpu_count() or 1


def start_command(
    arguments: Sequence[str], log: Path, directory: Path | None = None, **variables: str
) -> subprocess.Popen[bytes]:
    """Start a command of hurl that ends, at the latest, with this process.

    :param log: where its output goes
    :param directory: where it runs, this process's own by default
    :param variables: of its environment, beside those of this process
    """
    with open_log(log) as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, *arguments],  # which would have the working folder first on its path
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | variables,
        )


def first_states(tasks: Sequence[Task]) -> dict[str, State]:
    """Return the states before anything runs."""
    return {task.name: State.done if task.finished else State.waiting for task in tasks}


def ready_tasks(tasks: Sequence[Task], states: dict[str, State]) -> list[Task]:
    """Return the tasks that can be started now, all that they read being made, and mark those that never can."""
    makers = {path: task.name for task in tasks for path in task.outputs}
    ready = []
    for task in tasks:
        if states[task.name] is State.waiting:
            before = {states[makers[path]] for path in task.inputs if path in makers}
            if before & {State.failed, State.blocked}:
                states[task.name] = State.blocked
            elif before <= {State.done}:
                ready.append(task)
    return ready


def raise_failures(tasks: Sequence[Task], states: dict[str, State]) -> None:
    """Say which tasks failed, if any, with the last lines of their logs, each line once."""
    failed = [task for task in tasks if states[task.name] is State.failed]
    if failed:
        names: dict[str, list[str]] = {}
        for task in failed:
            names.setdefault(_last_line(task.log), []).append(task.name)
        reasons = "; ".join(f"{', '.join(alike)}: {line}" for line, alike in names.items())
        blocked = sum(state is State.blocked for state in states.values())
        also = f", and {blocked} that need them were not begun" if blocked else ""
        raise TasksFailedError(f"{len(failed)} of {len(tasks)} tasks failed ({reasons}){also}")


def _start(task: Task, cores: list[int]) -> subprocess.Popen[bytes]:
    task.write_files()
    process = start_command(task.arguments, task.log)
    if PINNING:
        os.sched_setaffinity(process.pid, cores)
    return process


def _last_line(log: Path) -> str:
    lines = read_regular(log).decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "no output"
