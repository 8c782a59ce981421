"""`hurl demo`, on runs that were made before: what it prints and draws of them."""

from typer.testing import CliRunner

from hurl.cli import app
from hurl.experiments.campaign import plan_campaign
from hurl.experiments.folder import RunFolder
from tests.reports.conftest import row

# The return of the last iterations by variant and seed.
RETURNS = {"sac": (-500.0, -490.0), "pbrs": (-480.0, -480.0), "hurl": (-100.0, -60.0)}


def test_the_demonstration_compares_its_runs(tmp_path):
    for run in plan_campaign("demo", list(RETURNS), range(2), tmp_path).runs:
        folder, config = RunFolder(run.folder), run.config
        with folder.open(config):
            value = RETURNS[run.folder.parent.name][config.seed]
            folder.write_metrics([row(n, value) for n in range(1, config.iterations + 1)])
            (folder.checkpoints / f"{config.iterations:06d}").mkdir(parents=True)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--seeds", "2"], catch_exceptions=False)
    assert result.exit_code == 0
    (hurl, *_) = [line for line in result.output.splitlines() if line.startswith("│ hurl")]
    assert "-80.0 [-100.0, -60.0]" in hurl
    assert "+415.0 [+390.0, +440.0]" in hurl
    assert (tmp_path / "report" / "report.html").is_file()
    assert len(list((tmp_path / "report").glob("*-return.png"))) == 1
