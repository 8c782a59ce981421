import os

import pytest
import yaml

from hurl.experiments.folder import RunFolder
from hurl.experiments.parallel import RunFailedError, RunSpec, run_side_by_side
from hurl.experiments.plots import plot_learning_curves


def test_runs_side_by_side_and_one_that_fails(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small |= {"guidance": None, "iterations": 2}
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(small))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(small | {"environment": {"id": "Nowhere-v0", "n_envs": 2}}))
    specs = [RunSpec(f"{name}.yaml", seed, tmp_path / name / str(seed)) for name in ("good", "bad") for seed in (0, 1)]
    watched = []
    with pytest.raises(RunFailedError, match=r"2 of 4 runs failed .*There is no environment 'Nowhere-v0'"):
        run_side_by_side(specs, jobs=2, watch=lambda: watched.append(1))
    assert watched
    runs = [RunFolder(tmp_path / "good" / seed).read_metrics() for seed in "01"]
    assert [len(rows) for rows in runs] == [2, 2]
    plot_learning_curves({"good": runs}, "two runs", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_each_run_gets_its_share_of_the_cores(tmp_path):
    from hurl.experiments.parallel import _start

    core = sorted(os.sched_getaffinity(0))[0]
    process = _start(RunSpec("nothing.yaml", 0, tmp_path / "run"), [core])
    process.wait()
    assert process.returncode == 2
    assert "no file" in (tmp_path / "run.log").read_text()
