import os
import signal
import subprocess
import sys

import psutil
import pytest
import yaml

from hurl.experiments.folder import RunFolder
from hurl.experiments.tasks import State, Task, TasksFailedError, run_tasks
from hurl.files import MisplacedError
from tests.experiments.conftest import wait_for, wait_until_ended


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def training(folder, name, seed, **more):
    run = folder / name / str(seed)
    arguments = ("train", f"{name}.yaml", "--seed", str(seed), "--out", str(run))
    return Task(f"{name} {seed}", arguments, folder / f"{name}-{seed}.log", outputs=(run,), **more)


def test_tasks_side_by_side_and_one_that_fails(small, folder):
    small |= {"guidance": None, "iterations": 2}
    (folder / "good.yaml").write_text(yaml.safe_dump(small))
    (folder / "bad.yaml").write_text(yaml.safe_dump(small | {"environment": {"id": "Nowhere-v0", "n_envs": 2}}))
    tasks = [
        training(folder, "bad", 0),
        training(folder, "bad", 1),
        training(folder, "good", 0),
        training(folder, "good", 1, inputs=(folder / "good" / "0",)),
        training(folder, "good", 2, inputs=(folder / "bad" / "0",)),
        training(folder, "good", 3, inputs=(folder / "good" / "2",)),
    ]
    seen = []
    message = r"2 of 6 tasks failed \(bad 0, bad 1: There is no environment 'Nowhere-v0'.*2 that need them were not"
    with pytest.raises(TasksFailedError, match=message) as failure:
        run_tasks(tasks, jobs=2, watch=lambda states: seen.append(dict(states)))
    assert str(failure.value).count("There is no environment") == 1
    assert list(seen[-1].values()) == [State.failed] * 2 + [State.done] * 2 + [State.blocked] * 2
    assert not any(states["good 0"] is not State.done and states["good 1"] is State.running for states in seen)
    runs = [RunFolder(folder / "good" / seed).read_metrics() for seed in "01"]
    assert [len(rows) for rows in runs] == [2, 2]


def test_nothing_is_written_through_links(folder):
    for name in ("mine", "configs", "logs"):
        (folder / name).mkdir()
    (folder / "mine/log").write_text("mine")
    (folder / "logs/task.log").symlink_to(folder / "mine/log")
    with pytest.raises(MisplacedError, match=r"task.log is a link in the place of a file"):
        run_tasks([Task("task", ("presets",), folder / "logs/task.log")], jobs=1)
    (folder / "configs").rmdir()
    (folder / "configs").symlink_to(folder / "mine")
    task = Task("task", ("presets",), folder / "task.log", files=((folder / "configs/task.yaml", "text"),))
    with pytest.raises(MisplacedError, match="configs is a link in the place of a folder"):
        run_tasks([task], jobs=1)
    assert [(file.name, file.read_text()) for file in (folder / "mine").iterdir()] == [("log", "mine")]


def test_what_is_finished_is_not_done_again(folder):
    run_tasks([Task("never", ("train", "nothing.yaml"), folder / "never.log", finished=True)], jobs=1)
    assert not (folder / "never.log").exists()


def test_each_task_gets_its_share_of_the_cores(folder):
    from hurl.experiments.tasks import _start

    core = sorted(os.sched_getaffinity(0))[-1]
    process = _start(Task("nothing", ("train", "nothing.yaml"), folder / "log" / "run.log"), [core])
    assert os.sched_getaffinity(process.pid) == {core}
    process.wait()
    assert process.returncode == 2
    assert "no file" in (folder / "log" / "run.log").read_text()


@pytest.mark.parametrize("deadly", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_started_ends_with_the_process_that_started_it(small, folder, deadly):
    small |= {"guidance": None, "iterations": 10_000}
    (folder / "long.yaml").write_text(yaml.safe_dump(small))
    script = (
        "from pathlib import Path\n"
        "from hurl.experiments.tasks import Task, run_tasks\n"
        "run_tasks([Task('long', ('train', 'long.yaml', '--out', 'run'), Path('log'))], 1)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script])
    metrics = folder / "run" / "metrics.csv"
    wait_for(metrics.exists)
    (child,) = psutil.Process(driver.pid).children()
    driver.send_signal(deadly)
    driver.wait()
    wait_until_ended(child)
