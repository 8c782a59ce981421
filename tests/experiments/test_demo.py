"""`hurl demo`, made small: what it trains, and what it prints and draws of that."""

import numpy as np
import pytest
from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.folder import RunFolder

SETTINGS = ["steps_per_iteration=100", "updates_per_iteration=10", "evaluation_episodes=1", "checkpoint_every=20"]


def test_the_demonstration_trains_and_compares_its_runs(tmp_path):
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    arguments = ["demo", "--out", str(tmp_path), "--seeds", "1", "--jobs", "1", *options]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    for variant, lambda_ in (("sac", 1.0), ("pbrs", 1.0), ("hurl", 0.8)):
        rows = RunFolder(tmp_path / "demo" / variant / "seed-0").read_metrics()
        assert [row.iteration for row in rows] == list(range(1, 21))
        assert {row.lambda_ for row in rows} == {lambda_}
        assert all(np.isnan(row.h_mean) == (variant == "sac") for row in rows)
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"│ {variant} ")]
        shown = float(line.split("│")[5])
        assert shown == pytest.approx(np.mean([row.return_mean for row in rows[-5:]]), abs=0.5)
    assert (tmp_path / "report" / "report.html").is_file()
    assert len(list((tmp_path / "report").glob("*-return.png"))) == 1
