import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_code_example_runs_as_written():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shorter = example.replace("model.learn(2_000_000, progress_bar=True)", "model.learn(320, progress_bar=True)")
    assert shorter != example
    names: dict[str, object] = {}
    exec(compile(shorter, "README.md", "exec"), names)
    assert names["model"].guidance.steps == 320
