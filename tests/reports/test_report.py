import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from hurl.cli import app
from hurl.reports import ReportError, collect_runs, compute_report, write_report
from hurl.reports.tables import summary_table

from .conftest import WriteRun


@pytest.fixture
def runs(write_run: WriteRun, tmp_path: Path) -> Path:
    for seed in (0, 1):
        write_run(f"hopper/sac/seed-{seed}", [10.0 + seed, 20.0], seed=seed)
        write_run(f"hopper/hurl/seed-{seed}", [30.0, 40.0 + seed], seed=seed, h=1.0)
    write_run("swimmer/sac/seed-0", [1.0, 2.0], environment="Swimmer-v4")
    return tmp_path / "runs"


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_pictures_and_tables_are_beside_the_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    write_report(compute_report(collect_runs([runs])), out)
    pictures = {"hopper-v4-return", "hopper-v4-guidance", "hopper-v4-auc", "swimmer-v4-return", "swimmer-v4-guidance"}
    pictures |= {"returns", "scores", "profiles"}
    assert {file.stem for file in out.glob("*.png")} == pictures == {file.stem for file in out.glob("*.svg")}
    for file in out.glob("*.png"):
        with Image.open(file) as picture:
            assert len(picture.convert("RGB").getcolors(2**20) or ()) > 10
    assert "hurl (2)" in "".join(ElementTree.parse(out / "hopper-v4-return.svg").getroot().itertext())
    links = set(re.findall(r'href="([^"]+\.(?:svg|png|csv))"', (out / "report.html").read_text("utf-8")))
    assert links
    assert all((out / link).is_file() for link in links)


def test_csv_files_have_the_numbers_of_the_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    write_report(compute_report(collect_runs([runs])), out)
    rows = {row["variant"]: row for row in read_csv(out / "hopper-v4-table.csv")}
    assert float(rows["hurl"]["auc"]) == 35.25
    assert float(rows["hurl"]["auc_ratio"]) == pytest.approx(35.25 / 15.25)
    assert float(rows["hurl"]["auc_low"]) == 35.0
    curves = [row for row in read_csv(out / "hopper-v4-curves.csv") if row["variant"] == "hurl"]
    assert [float(row["return_50"]) for row in curves] == [30.0, 40.5]
    page = (out / "report.html").read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["environments"][0]["variants"][0]["y"]["return"]["middle"] == [30.0, 40.5]
    assert "2.31 [2.26, 2.37]" in page
    assert {row["variant"] for row in read_csv(out / "scores.csv")} == {"hurl", "sac"}


def test_names_cannot_break_the_page(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("<b>&x/seed-0", [1.0])
    write_report(compute_report(collect_runs([tmp_path])), tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "<b>" not in page


def test_the_page_names_the_folders_that_runs_were_made_from(write_run: WriteRun, tmp_path: Path) -> None:
    for variant, heuristic in ("mc", "runs/a:b/h"), ("hand", "swing:low"):
        settings = [f"guidance.heuristic={heuristic}", "guidance.schedule.lambda0=0.9"]
        write_run(f"{variant}/seed-0", [1.0, 2.0], settings=settings)
    write_report(compute_report(collect_runs([tmp_path / "runs"])), tmp_path / "report")
    page = (tmp_path / "report/report.html").read_text("utf-8")
    assert "heuristic runs/a:b/h" in page
    assert "heuristic swing:low" not in page


def test_the_baseline_is_the_one_wanted_or_the_usual(runs: Path, write_run: WriteRun) -> None:
    def baselines(wanted: str | None) -> list[str]:
        return [section.baseline for section in compute_report(collect_runs([runs]), baseline=wanted).sections]

    assert baselines(None) == ["sac", "sac"]
    assert baselines("hurl") == ["hurl", "sac"]
    write_run("hopper/sac-bc/seed-0", [1.0])
    assert baselines(None) == ["sac-bc", "sac"]
    with pytest.raises(ReportError, match=r"no variant 'hurk' to be the baseline; did you mean 'hurl'"):
        baselines("hurk")


def run_command(*arguments: object) -> tuple[object, str]:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return result.exception, result.output


def test_the_command_reports_the_rest_and_tells_what_it_left_out(runs: Path, tmp_path: Path) -> None:
    damaged = runs / "hopper/sac/seed-1/metrics.csv"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    error, output = run_command(runs, "--out", tmp_path / "out", "--threshold", "Hopper-v4=35")
    assert error is None
    assert f"warning: {damaged} is damaged in line 3" in output
    assert "Swimmer-v4" in output
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "is damaged in line 3" in page
    assert "steps to 35" in page
    assert "5 runs in 2 environments" in page


def test_a_threshold_says_how_many_seeds_reach_it(write_run: WriteRun, tmp_path: Path) -> None:
    for name, last in (
        ("all", [9.0, 9.0, 9.0]),
        ("most", [9.0, 9.0, 1.0]),
        ("few", [9.0, 1.0, 1.0]),
        ("none", [1.0] * 3),
    ):
        for seed, value in enumerate(last):
            write_run(f"{name}/seed-{seed}", [1.0, value], seed=seed)
    report = compute_report(collect_runs([tmp_path / "runs"]), thresholds={"Hopper-v4": 5.0})
    table = summary_table(report.sections[0])
    column = table.headings.index("steps to 5")
    reached = {row[0]: row[column] for row in table.rows}
    assert reached == {"all": "2,000", "most": "2,000 (2 of 3)", "few": "1 of 3 seeds", "none": "never"}


def test_tables_fit_a_narrow_terminal(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr("hurl.cli.report.console", Console(width=80, file=output))
    error, _ = run_command(runs, "--out", tmp_path / "out")
    assert error is None
    lines = [line for line in output.getvalue().splitlines() if line.startswith(("┃", "│"))]
    assert all(len(line) <= 80 and line[-1] in "┃│" for line in lines)
    assert any("iterations" in line for line in lines)


def test_bad_thresholds_are_told(runs: Path, tmp_path: Path) -> None:
    for text, message in (
        ("3", "does not say which of Hopper-v4, Swimmer-v4"),
        ("Hoper-v4=3", "did you mean 'Hopper-v4'"),
        ("Hopper-v4=much", "not of the form"),
    ):
        error, _ = run_command(runs, "--out", tmp_path / "out", "--threshold", text)
        assert isinstance(error, ValueError)
        assert message in str(error)
    assert not (tmp_path / "out").exists()


def test_equal_runs_say_so_in_place_of_scores(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(f"hurl/seed-{seed}", [-500.0, -500.0], seed=seed)
        write_run(f"sac/seed-{seed}", [-500.0, -500.0], seed=seed)
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    assert "No scores over environments: Hopper-v4: all runs have the same AUC" in output
    assert "all runs have the same AUC" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_one_seed_says_so_in_place_of_scores(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [1.0, 2.0])
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    assert "No scores over environments: Hopper-v4: sac has one seed, no score without two" in output
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "sac has one seed, no score without two" in page
    assert "One seed, so no interval: sac" in page


HOSTILE_NAMES = [
    "$x^$",
    "_hidden",
    "[bold]",
    "[red]:smile:",
    "<script>alert(1)<",
    "a\nb\tc\x1b[2J",
    "undecodable-\udcff",
    "=1+1",
    "@SUM(A1)",
    "-2+3",
    "x" * 200,
]


@pytest.fixture
def hostile(write_run: WriteRun, tmp_path: Path) -> Path:
    """Runs whose variants and environment have names that many a format takes for more than a name."""
    for number, name in enumerate(HOSTILE_NAMES):
        write_run(f"[red]/{name}/seed-0", [number, number + 1.0], environment="'</script>$y^$ {x} \\u001b[2J'")
    return tmp_path / "runs"


def test_a_name_is_a_name_whatever_is_in_it(hostile: Path, tmp_path: Path) -> None:
    out = tmp_path / "report[/x]"
    result = CliRunner().invoke(app, ["report", str(hostile), "--out", str(out)])
    assert result.exit_code == 0, result.exception
    assert f"Report: {out}/report.html" in result.output
    assert "\x1b" not in result.output
    names = {"a\\nb\\tc\\x1b[2J", "undecodable-\\udcff"} | {name for name in HOSTILE_NAMES if name.isprintable()}
    rows = read_csv(next(out.glob("*-table.csv")))
    assert {row["variant"].removeprefix("'") for row in rows} == names
    assert not any(row["variant"].startswith(("=", "@", "-")) for row in rows)
    assert all(float(row["auc"]) >= 0 for row in rows)
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert {variant["name"] for variant in data["environments"][0]["variants"]} == names
    picture = "".join(ElementTree.parse(next(out.glob("*-return.svg"))).getroot().itertext())
    for name in (*sorted(names - {"x" * 200}), "x" * 59 + "…"):
        assert f"{name} (1)" in picture
