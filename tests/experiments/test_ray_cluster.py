"""Commands on two real nodes of Ray on this machine, one of which dies."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.ray_cluster import _Job, _Runner, connected, run_tasks_on_ray
from hurl.experiments.ray_start import RayClusterError, _start
from hurl.experiments.tasks import State, Task, TasksFailedError, run_tasks
from hurl.files import aside
from tests.experiments.conftest import SMALL, repeating, wait_for, wait_until_ended

# Ray's components end with this; a token, which it would keep in the user's home, is of no use on loopback.
# Nothing waits for other work on the machine, or gives up because of it.
ENVIRONMENT = os.environ | {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
}
LONG = SMALL | {"iterations": 12, "updates_per_iteration": 30, "guidance": None}
OWN_FILESYSTEM = 'mkdir -p "$0" && mount -t tmpfs none "$0" && exec "$@"'


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """A node started with `ray start`, with one core."""

    def __init__(self, *options, hidden):
        """Start it; `hidden` is a folder in whose place it sees an empty one, as another machine would."""
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, as the paths of sockets must be
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1", *options]
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", OWN_FILESYSTEM, hidden, *command]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=subprocess.STDOUT)

    def wait(self):
        """Wait until it runs."""
        for _ in range(120):
            if "Ray runtime started" in (self.folder / "log").read_text():
                return
            time.sleep(0.5)
        raise AssertionError((self.folder / "log").read_text())

    def ray_processes(self):
        """Return what belongs to Ray: not the commands that its workers run, which must end by themselves."""
        main = psutil.Process(self.process.pid)
        return [main, *(child for child in main.children(recursive=True) if not is_command(child))]

    def kill(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.ray_processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_command(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return "from hurl.cli import main" in " ".join(process.cmdline())
    return False


def commands_of(node):
    return [child for child in psutil.Process(node.process.pid).children(recursive=True) if is_command(child)]


@pytest.fixture(scope="module")
def unshared(tmp_path_factory):
    """A folder that each node has one of its own instead of."""
    return tmp_path_factory.mktemp("unshared")


@pytest.fixture(scope="module")
def head(unshared):
    port, client_port, folder = free_port(), free_port(), tempfile.mkdtemp(prefix="ray-")
    node = Node(
        *("--head", "--port", str(port), "--ray-client-server-port", str(client_port), "--temp-dir", folder),
        *("--node-ip-address", "127.0.0.1", "--include-dashboard=false"),
        hidden=unshared,
    )
    node.address, node.client_address = f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
    try:
        node.wait()
        yield node
    finally:
        node.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def second(head, unshared):
    """Another node of the cluster."""
    node = Node("--address", head.address, "--node-ip-address", "127.0.0.1", hidden=unshared)
    try:
        node.wait()
        yield node
    finally:
        node.kill()


def write_config(root, name, values):
    (root / "configs").mkdir(parents=True, exist_ok=True)
    (root / "configs" / f"{name}.yaml").write_text(yaml.safe_dump(values))


def training(root, name, *inputs):
    config, run = root / "configs" / f"{name}.yaml", root / "runs" / name
    arguments = ("train", str(config), "--out", str(run))
    return Task(name, arguments, root / "logs" / f"{name}.log", (config, *inputs), (run,))


def plan(root):
    """Return tasks of a folder: two long runs, and data, a heuristic of it and a run that needs both."""
    data, heuristic = root / "data" / "pendulum" / "random-v0", root / "heuristics" / "fitted"
    for seed in (0, 1):
        write_config(root, f"long-{seed}", LONG | {"seed": seed})
    write_config(
        root, "guided", SMALL | {"iterations": 2, "guidance": SMALL["guidance"] | {"heuristic": str(heuristic)}}
    )
    common = ("--dataset", "pendulum/random-v0", "--root", str(root / "data"), "--threads", "1")
    collect = ("collect", "random", "--env", "Pendulum-v1", "--transitions", "300", *common)
    fit = ("fit", "monte-carlo", *common, "--gamma", "0.95", "--set", "epochs=1", "--out", str(heuristic))
    return [
        training(root, "long-0"),
        training(root, "long-1"),
        Task("data", collect, root / "logs" / "data.log", outputs=(data, aside(data))),
        Task("fit", fit, root / "logs" / "fit.log", (data,), (heuristic,)),
        training(root, "guided", heuristic),
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The metrics of the same tasks on this machine."""
    root = tmp_path_factory.mktemp("alone")
    run_tasks(plan(root), jobs=2)
    return {file.parent.name: repeating(file) for file in root.glob("runs/*/metrics.csv")}


class Killer:
    """Kills a node in the middle of its long run, when a checkpoint of that is here."""

    def __init__(self, node):
        self.node, self.victim, self.run = node, None, None

    def __call__(self, states):
        for command in [] if self.victim is not None else commands_of(self.node):
            run = Path(command.cmdline()[-1])
            if run.name.startswith("long") and (run / "checkpoints" / "000002").exists():
                self.victim, self.run = command, run
                self.node.kill()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "fetched"])
def test_nothing_is_lost_with_a_node(shared, head, second, alone, unshared, tmp_path, monkeypatch):
    monkeypatch.setattr("hurl.experiments.ray_cluster.REPORT_SECONDS", 0.5)
    root = tmp_path if shared else unshared
    killer = Killer(second)
    tasks = plan(root)[: 2 if shared else None]
    run_tasks_on_ray(tasks, head.address, root, killer)
    assert killer.victim is not None
    wait_until_ended(killer.victim)  # though nothing but Ray was killed
    assert "resuming from iteration" in (root / "logs" / f"{killer.run.name}.log").read_text()
    for task in tasks:
        if task.arguments[0] == "train":
            assert repeating(root / "runs" / task.name / "metrics.csv") == alone[task.name]
    assert not [path for path in root.iterdir() if path.name.startswith(".")]


def test_a_command_that_fails_is_not_repeated_and_hurts_only_those_that_need_it(head, tmp_path):
    write_config(tmp_path, "bad", SMALL | {"environment": {"id": "Nowhere-v0", "n_envs": 2}})
    tasks = [training(tmp_path, "bad"), Task("good", ("presets",), tmp_path / "logs" / "good.log")]
    tasks.append(Task("after", ("presets",), tmp_path / "logs" / "after.log", (tmp_path / "runs" / "bad",)))
    seen = []
    with pytest.raises(
        TasksFailedError, match=r"1 of 3 tasks failed \(bad: .*no environment 'Nowhere-v0'.*1 that need"
    ):
        run_tasks_on_ray(tasks, head.address, tmp_path, lambda states: seen.append(dict(states)))
    assert seen[-1] == {"bad": State.failed, "good": State.done, "after": State.blocked}
    changes = [states["bad"] for before, states in pairwise(seen) if before["bad"] != states["bad"]]
    assert changes in ([State.running, State.failed], [State.failed])


@pytest.fixture
def nothing_here(monkeypatch):
    """Commands can be run on a cluster only, whose nodes are processes of their own."""
    monkeypatch.delattr("hurl.experiments.tasks.start_command")


@pytest.mark.usefixtures("nothing_here")
def test_a_campaign_through_a_client(head, tmp_path):
    settings = ["steps_per_iteration=100", "updates_per_iteration=5", "evaluation_episodes=2"]
    arguments = ["campaign", "sparse-reacher", "--variants", "sac", "--seeds", "0", "--iterations", "1"]
    arguments += [part for setting in settings for part in ("--set", setting)]
    arguments += ["--out", str(tmp_path), "--ray", head.client_address]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert len(repeating(tmp_path / "sparse-reacher" / "sac" / "seed-0" / "metrics.csv")) == 1


@pytest.mark.usefixtures("nothing_here")
def test_a_study_on_two_nodes(head, second, tmp_path):
    write_config(tmp_path, "tuned", SMALL | {"iterations": 2, "guidance": None})
    (tmp_path / "grid.yaml").write_text("base: {gamma: [0.9, 0.95]}")
    study = tmp_path / "study"
    arguments = ["tune", str(tmp_path / "configs" / "tuned.yaml"), "--stage", "base", "--trials", "3"]
    arguments += ["--grid", str(tmp_path / "grid.yaml"), "--out", str(study), "--ray", head.address]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert [(study / "trials" / f"{number:04d}" / "metrics.csv").is_file() for number in range(3)] == 3 * [True]
    states = [line.split(",")[1] for line in (study / "trials.csv").read_text().splitlines()]
    assert states == ["state", "complete", "complete", "complete"]


def test_a_study_in_a_folder_that_a_node_does_not_see(head, unshared):
    task = Task("trial 0", ("presets",), unshared / "logs" / "0.log")
    with pytest.raises(RayClusterError, match=r"does not see .*: choose a folder with --out that all nodes share"):
        run_tasks_on_ray([task], head.address, unshared, shared=True)


def test_a_client_that_fails_leaves_the_process_as_it_was(head, monkeypatch):
    monkeypatch.setattr("hurl.experiments.ray_cluster._check_address", lambda address: None)
    monkeypatch.setattr("ray.util.client.worker.INITIAL_TIMEOUT_SEC", 0.1)
    monkeypatch.setattr("ray.util.client.worker.MAX_TIMEOUT_SEC", 0.1)
    with pytest.raises(RayClusterError, match="can't be used"), connected(f"ray://127.0.0.1:{free_port()}"):
        pass
    with connected(head.address) as ray:
        assert ray.is_initialized()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cores": 64}, "wide asks for 64 cores and the largest node of the cluster has 1: lower its `threads`"),
        ({"gpus": 0.5}, "wide asks for 0.5 GPUs and the largest node of the cluster has 0: lower `num_gpus_per"),
    ],
)
def test_more_than_a_node_has(asked, message, head, tmp_path):
    task = replace(training(tmp_path, "wide"), **asked)
    with pytest.raises(RayClusterError, match=message):
        run_tasks_on_ray([task], head.address, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_command_that_asks_for_no_gpu_sees_none(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = []
    for gpus in (0.0, 0.5):
        task = Task("presets", ("presets",), tmp_path / "log", gpus=gpus)
        runner = _Runner()
        assert runner.start(_Job(task, tmp_path, tmp_path, token=tmp_path, seconds=1.0), None)
        process = psutil.Process(runner.process.pid)
        wait_for(process.environ)  # which is empty in a process that is only just there
        seen.append(process.environ()["CUDA_VISIBLE_DEVICES"])
        assert runner.process.wait() == 0
    assert seen == ["", "0,1"]


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_an_address_that_does_not_answer(prefix, monkeypatch):
    monkeypatch.setattr("hurl.experiments.ray_cluster.CONNECT_SECONDS", 3.0)
    began = time.monotonic()
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"{prefix}127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(RayClusterError, match=f"no Ray cluster answers at '{address}'"), connected(address):
            pass
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("address", ["", "somewhere", "http://127.0.0.1:6379", "127.0.0.1:port"])
def test_what_is_no_address(address):
    with pytest.raises(RayClusterError, match="is not the address of a Ray cluster: write local"), connected(address):
        pass


@pytest.mark.parametrize("slow", [0, 3, 4])
def test_ray_that_is_slow_to_come_up_is_started_again(slow):
    class BusyMachine:
        started = ended = 0

        def init(self, *arguments, **options):
            self.started += 1
            if self.started <= slow:
                raise Exception("The current node timed out during startup.")

        def shutdown(self):
            self.ended += 1

    machine = BusyMachine()
    if slow < 4:
        _start(machine, 1)
    else:
        with pytest.raises(RayClusterError, match="can't be started on this machine, tried 4 times: The current node"):
            _start(machine, 1)
    assert (machine.started, machine.ended) == (min(slow + 1, 4), slow)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"Ray is not installed: pip install 'hurl-rl\[rllib\]'"), connected("local"):
        pass


def test_jobs_are_for_this_machine(tmp_path):
    arguments = ["campaign", "sparse-reacher", "--ray", "local", "--jobs", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ValueError)
    assert "leave --jobs out" in str(result.exception)
