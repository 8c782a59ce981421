"""Commands of hurl on a Ray cluster: each with its cores declared, taken up by another node when one dies.

A command runs in a folder that its node sees. Where that is the very folder of the campaign, nothing needs moving.
Where it is not, as a file that the driver leaves there does not show, the node keeps a copy at the same path, which
configurations name: the driver sends what the command reads, and gets back what it wrote, every few seconds.
"""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any

from hurl.experiments.parcels import Version, list_files, pack, read_chunks, remove_others, unpack
from hurl.experiments.ray_start import RayClusterError, import_ray, job_config, ray_here
from hurl.experiments.tasks import (
    POLL_SECONDS,
    State,
    Task,
    cores_here,
    first_states,
    raise_failures,
    ready_tasks,
    start_command,
)
from hurl.files import open_log

REPORT_SECONDS = 5.0
CONNECT_SECONDS = 60.0  # a client has a server of its own started, which takes a while on a busy machine
ATTEMPTS = 5
NO_HURL = "No module named 'hurl"

# What a worker reports: a piece of a parcel, the names of all files once it is complete, the exit code, or nothing.
Report = bytes | list[str] | int | None


def run_tasks_on_ray(
    tasks: Sequence[Task],
    address: str,
    root: Path,
    watch: Callable[[dict[str, State]], None] = lambda states: None,
    *,
    shared: bool = False,
) -> None:
    """Run all on a Ray cluster, as many at a time as it has cores for; one that fails hurts only those that need it.

    A command whose node or worker dies is begun anew on another, where it carries on from what came back of it.

    :param address: `local` for a cluster of this machine alone, or as Ray takes it: `auto`, `10.0.0.1:6379`, `ray://…`
    :param root: the folder that the tasks read from and write to
    :param watch: called a few times a second with the state of each task
    :param shared: whether the tasks work on common files, so that all nodes must share the folder
    """
    with connected(address) as ray:
        _Dispatcher(ray, tasks, root.resolve(), shared).run(watch)


# Connecting ----------------------------------------------------------------------------------------------------------


@contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """Connect to a Ray cluster, or start one on this machine for `local`; yield the module `ray`."""
    if address == "local":
        with ray_here(cores_here()) as ray:
            yield ray
        return
    ray = import_ray()
    _check_address(address)
    try:
        # a client's server is told nothing of the client's folders
        options = {} if address.startswith("ray://") else {"job_config": job_config()}
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()  # else a failed `ray://` leaves the process in client mode
        raise RayClusterError(f"the Ray cluster at {address!r} can't be used: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Try to connect in another process, which can be ended: `ray.init` waits for many minutes where nobody answers."""
    if not re.fullmatch(r"auto|(ray://)?([^/:]+|\[[^/]+\]):\d{1,5}", address):
        raise RayClusterError(
            f"{address!r} is not the address of a Ray cluster: write local, auto, HOST:6379 or ray://HOST:10001"
        )
    command = [sys.executable, "-P", "-c", f"import ray; ray.init({address!r}, log_to_driver=False)"]
    try:
        trial = subprocess.run(command, capture_output=True, timeout=CONNECT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        reason = f"tried for {CONNECT_SECONDS:.0f} s"
    else:
        if trial.returncode == 0:
            return
        reason = ["no reason given", *trial.stderr.decode(errors="replace").strip().splitlines()][-1]
    raise RayClusterError(
        f"no Ray cluster answers at {address!r} ({reason}): start one with `ray start --head`, set RAY_AUTH_MODE=token "
        "where it asks for its token, or use --ray local"
    )


# On a node -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """What a node must know of a task.

    :param directory: where the driver is, and the user's own modules with it
    :param token: a file that the driver left in the folder of the campaign
    :param seconds: from one report to the next
    """

    task: Task
    root: Path
    directory: Path
    token: Path
    seconds: float


@dataclass(frozen=True)
class _Parcel:
    """Files on their way to a node.

    :param chunks: references to the pieces, in Ray's object store
    :param names: all files that are at the places
    """

    chunks: list[Any]
    places: tuple[Path, ...]
    names: list[str]


class _Runner:
    """Runs one command on a node, as an actor of Ray's: the driver asks it again and again how far it is."""

    def start(self, job: _Job, parcels: list[_Parcel] | None) -> bool:
        """Start the command; return False where it can't be without its files being sent.

        :param parcels: what the command reads and what there is of what it writes; None where it has not been packed
        """
        shared = job.token.exists()
        if not shared:
            if parcels is None:
                return False
            _receive(job.root, parcels)
        known = list_files(job.root, job.task.places)
        directory = job.directory if job.directory.is_dir() else None
        # to a command that asked for no GPU, Ray leaves all of them to see
        hidden = {} if job.task.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        self.process = start_command(job.task.arguments, job.task.log, directory, **hidden)
        self.reports = self._report(job, shared, known)
        return True

    def report(self) -> Report:
        """Return what there is to report, after a while."""
        return next(self.reports)

    def _report(self, job: _Job, shared: bool, sent: dict[str, Version]) -> Iterator[Report]:
        while True:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(job.seconds)
            code = self.process.poll()
            if not shared:
                sent = yield from _send_changes(job, sent)
            yield code


def _receive(root: Path, parcels: list[_Parcel]) -> None:
    """Put what the driver sent in place, instead of what an earlier attempt may have left here."""
    import ray

    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RayClusterError(
            f"the folder {root} can't be made on the node {socket.gethostname()} ({error.strerror}): "
            "choose one with --out that all nodes share, or that they can make"
        ) from None
    for parcel in parcels:
        with TemporaryFile() as file:
            for chunk in parcel.chunks:
                file.write(ray.get(chunk))
            unpack(file, root)
        remove_others(root, parcel.places, parcel.names)


def _send_changes(job: _Job, sent: dict[str, Version]) -> Generator[Report, None, dict[str, Version]]:
    """Yield what has changed since the last time as a parcel, then the names of all files; return their versions.

    The files must belong together, so where one changes meanwhile all is packed again, and where this does not help,
    another time.
    """
    for _ in range(5):
        files = list_files(job.root, job.task.places)
        if files == sent:
            break
        with TemporaryFile() as parcel:
            with suppress(FileNotFoundError):
                pack(job.root, [name for name, version in files.items() if sent.get(name) != version], parcel)
            if files == list_files(job.root, job.task.places):
                yield from read_chunks(parcel)
                yield list(files)
                return files
    return sent


# The driver ----------------------------------------------------------------------------------------------------------


@dataclass
class _Flight:
    """A task on the cluster.

    :param attempt: from 1 on
    :param started: whether its command has been started
    :param inbox: the parcel that is arriving
    """

    task: Task
    attempt: int
    runner: Any
    started: bool = False
    inbox: IO[bytes] = field(default_factory=TemporaryFile)


class _Dispatcher:
    """Hands tasks to the cluster as they become ready, and takes in what comes back."""

    def __init__(self, ray: ModuleType, tasks: Sequence[Task], root: Path, shared: bool) -> None:
        self.ray, self.tasks, self.root, self.shared = ray, tasks, root, shared
        self.states = first_states(tasks)
        self.flights: dict[Any, _Flight] = {}  # by the reference to the runner's next answer
        self.token = root / f".ray-{uuid.uuid4().hex}"
        self.sending = False  # until a node is met that does not share the folder
        self.begun = False
        self.packed: dict[Path, _Parcel] = {}  # what tasks read

    def run(self, watch: Callable[[dict[str, State]], None]) -> None:
        """Run all tasks."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.token.touch()
        checked = 0.0
        try:
            while True:
                if not self.begun and time.monotonic() - checked > REPORT_SECONDS:
                    self._check_nodes()
                    checked = time.monotonic()
                underway = {flight.task.name for flight in self.flights.values()}
                for task in ready_tasks(self.tasks, self.states):
                    if task.name not in underway:
                        self._submit(task)
                if not self.flights:
                    break
                answered, _ = self.ray.wait(list(self.flights), num_returns=len(self.flights), timeout=POLL_SECONDS)
                for reference in answered:
                    self._take(self.flights.pop(reference), reference)
                watch(self.states)
        finally:
            self.token.unlink(missing_ok=True)
        raise_failures(self.tasks, self.states)

    def _check_nodes(self) -> None:
        """Refuse a task that no node has the cores or GPUs for: Ray would wait for one.

        Later, when others run, it may wait: a node that died can come back.
        """
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        for task in self.tasks:
            if not nodes or self.states[task.name] not in (State.waiting, State.running):
                continue
            for what, key, asked in (("cores", "CPU", task.cores), ("GPUs", "GPU", task.gpus)):
                largest = max(node.get(key, 0) for node in nodes)
                if asked > largest:
                    remedy = "lower its `threads` or env runners" if what == "cores" else "lower `num_gpus_per_learner`"
                    raise RayClusterError(
                        f"{task.name} asks for {asked:g} {what} and the largest node of the cluster has "
                        f"{largest:g}: {remedy}, or add a node"
                    )

    def _submit(self, task: Task, attempt: int = 1) -> None:
        task.write_files()
        actor = self.ray.remote(num_cpus=task.cores, num_gpus=task.gpus, max_restarts=0)(_Runner)
        self._start(_Flight(task, attempt, actor.remote()))

    def _start(self, flight: _Flight) -> None:
        task = flight.task
        job = _Job(task, self.root, Path.cwd(), self.token, REPORT_SECONDS)
        reference = flight.runner.start.remote(job, self._parcels(task) if self.sending else None)
        self.flights[reference] = flight

    def _take(self, flight: _Flight, reference: Any) -> None:
        """Take in what a runner answers, and ask it again."""
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(reference)
        except errors.RayError as error:
            if isinstance(error, errors.RayTaskError) or NO_HURL in str(error):
                self._fail(flight, _describe(error))
            else:
                self._retry(flight, error)
        else:
            take = self._take_report if flight.started else self._take_start
            take(flight, answer)

    def _take_start(self, flight: _Flight, started: bool) -> None:
        if started:
            self.begun = flight.started = True
            self.states[flight.task.name] = State.running
            self._ask(flight)
        elif self.shared:
            raise RayClusterError(
                f"a node of the cluster does not see {self.root}: choose a folder with --out that all nodes share"
            )
        else:
            self.sending = True
            self._start(flight)

    def _take_report(self, flight: _Flight, report: Report) -> None:
        if isinstance(report, int):
            self.states[flight.task.name] = State.done if report == 0 else State.failed
            self.ray.kill(flight.runner)
            self._forget_packed()
            return
        if isinstance(report, bytes):
            flight.inbox.write(report)
        elif report is not None:
            unpack(flight.inbox, self.root)
            remove_others(self.root, flight.task.places, report)
            flight.inbox.seek(0)
            flight.inbox.truncate()
        self._ask(flight)

    def _ask(self, flight: _Flight) -> None:
        self.flights[flight.runner.report.remote()] = flight

    def _retry(self, flight: _Flight, error: Exception) -> None:
        self.ray.kill(flight.runner)  # which may live, out of reach, and would be in the way of the next
        self.states[flight.task.name] = State.waiting
        if flight.attempt < ATTEMPTS:
            self._submit(flight.task, flight.attempt + 1)
        else:
            self._fail(flight, f"its worker died {ATTEMPTS} times ({_first_line(error)})")

    def _fail(self, flight: _Flight, reason: str) -> None:
        self.states[flight.task.name] = State.failed
        self.ray.kill(flight.runner)
        with open_log(flight.task.log, anew=False) as log:
            log.write(f"{reason}\n".encode())

    def _parcels(self, task: Task) -> list[_Parcel]:
        """Pack what it reads, once for all tasks that do, and what there is of what it makes."""
        for path in task.inputs:
            if path not in self.packed:
                self.packed[path] = self._pack((path,))
        return [*(self.packed[path] for path in task.inputs), self._pack(task.places)]

    def _forget_packed(self) -> None:
        """Let Ray's object store drop what no task that is still to be done reads."""
        left = [task for task in self.tasks if self.states[task.name] in (State.waiting, State.running)]
        needed = {path for task in left for path in task.inputs}
        self.packed = {path: parcel for path, parcel in self.packed.items() if path in needed}

    def _pack(self, places: tuple[Path, ...]) -> _Parcel:
        names = list(list_files(self.root, places))
        with TemporaryFile() as file:
            pack(self.root, names, file)
            return _Parcel([self.ray.put(chunk) for chunk in read_chunks(file)], places, names)


def _describe(error: Exception) -> str:
    """Say in a sentence why a runner failed."""
    if NO_HURL in str(error):
        return "a node has no hurl in the Python that runs Ray there: install it on all nodes, in the same version"
    cause = getattr(error, "cause", error)
    return f"its node failed: {_first_line(cause)}" if not isinstance(cause, RayClusterError) else str(cause)


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
