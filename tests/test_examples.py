"""The examples of the gallery and the notebook, run small; the page that a newcomer follows, as it is written."""

import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.folder import RunFolder

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
STEPS = {"engineered": 1_200, "from_agent": 1_200, "from_data": 1_200, "her": 800, "planner": 400, "ppo": 4_096}
WITH_RAY = {"cluster": 20, "rllib_ppo": 2_000}
SHARED = "learning_curves"


def run_example(name, steps, out, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--steps", str(steps), "--out", str(out)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_every_example_is_run_here_and_is_in_the_gallery():
    names = {file.stem for file in EXAMPLES.glob("*.py")}
    assert names - {SHARED} == STEPS.keys() | WITH_RAY.keys()
    gallery = (ROOT / "docs/gallery.md").read_text("utf-8")
    for name in names - {SHARED}:
        assert f'--8<-- "examples/{name}.py"' in gallery
        assert (ROOT / f"docs/gallery/{name}.png").stat().st_size <= 60_000


@pytest.mark.parametrize("name", STEPS)
def test_an_example_runs_and_draws_its_picture(name, tmp_path, monkeypatch):
    run_example(name, STEPS[name], tmp_path, monkeypatch)


@pytest.mark.parametrize("name", WITH_RAY)
def test_an_example_with_ray_runs_and_draws_its_picture(name, ray_here, tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    run_example(name, WITH_RAY[name], tmp_path, monkeypatch)


def test_the_notebook_runs_from_top_to_bottom(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((EXAMPLES / "first-steps.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "first-steps.ipynb", "exec"), names)
    assert names["model"].guidance.lambda_ == 1.0


def test_the_getting_started_page_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/getting-started.md").read_text("utf-8")
    files = re.findall(r"```(?:yaml|python)\n# (\w+\.\w+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["mymaze.py", "rooms.yaml"]
    for name, content in files:
        Path(name).write_text(content)
    sys.path.insert(0, str(tmp_path))
    smaller = ["--set", "steps_per_iteration=400", "--set", "updates_per_iteration=4"]
    shorter = {"train": [*smaller, "--set", "iterations=1"], "campaign": [*smaller, "--iterations", "1"]}
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    commands = [line.split(" #")[0].split() for block in blocks for line in block.splitlines() if line[:5] == "hurl "]
    for _, verb, *words in commands:
        words = [re.sub(r"checkpoints/\d+", "checkpoints/000001", word) for word in words]
        if "--transitions" in words:
            words[words.index("--transitions") + 1] = "1000"
        if "--seeds" in words:
            words[words.index("--seeds") + 1] = "0"
        result = CliRunner().invoke(app, [verb, *words, *shorter.get(verb, [])])
        assert result.exit_code == 0, (verb, words, result.output, result.exception)
    assert {verb for _, verb, *_ in commands} == {"train", "campaign", "report", "collect", "diagnose", "evaluate"}
    (row,) = RunFolder(Path("campaigns/rooms/guided/seed-0")).read_metrics()
    assert row.h_min < row.h_max < 0
    assert Path("report/report.html").is_file()
