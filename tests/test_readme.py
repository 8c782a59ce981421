import re
from pathlib import Path

from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.folder import RunFolder

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_code_example_runs_as_written():
    example, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shorter = example.replace("model.learn(2_000_000, progress_bar=True)", "model.learn(320, progress_bar=True)")
    assert shorter != example
    names: dict[str, object] = {}
    exec(compile(shorter, "README.md", "exec"), names)
    assert names["model"].guidance.steps == 320


def test_the_run_of_ones_own_runs_as_written(tmp_path):
    files = re.findall(r"```(?:yaml|python)\n# (my_\w+\.\w+)\n(.*?)```", README, re.DOTALL)
    assert [name for name, _ in files] == ["my_run.yaml", "my_heuristics.py"]
    for name, content in files:
        (tmp_path / name).write_text(content)
    shorter = ["--set", "iterations=1", "--set", "updates_per_iteration=5", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["train", str(tmp_path / "my_run.yaml"), *shorter], catch_exceptions=False)
    assert result.exit_code == 0
    (row,) = RunFolder(tmp_path / "run").read_metrics()
    assert -160 <= row.h_min < row.h_max <= 0
