import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from hurl.cli import app
from hurl.reports import ReportError, collect_runs, compute_report, write_report
from hurl.reports.statistics import Estimate
from hurl.reports.tables import form_of, summary_table

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


def test_the_baseline_is_the_one_wanted_or_what_has_no_guidance(runs: Path, write_run: WriteRun) -> None:
    def baselines(wanted: str | None) -> list[str]:
        return [section.baseline for section in compute_report(collect_runs([runs]), baseline=wanted).sections]

    assert baselines(None) == ["sac", "sac"]
    assert baselines("hurl") == ["hurl", "sac"]
    cloned = ["warm_start.dataset=a/b-v0"]
    write_run("hopper/a-sac-bc/seed-0", [1.0, 2.0], settings=cloned)
    write_run("hopper/a-bc/seed-0", [1.0], start=0, settings=[*cloned, "iterations=0"])
    assert baselines(None) == ["sac", "sac"], "the algorithm alone, whatever it is called"
    for variant in ("hurl-mc", "hurl-vae"):
        write_run(f"hopper/{variant}/seed-0", [1.0, 2.0], h=1.0, settings=cloned)
    assert baselines(None) == ["a-sac-bc", "sac"], "most guided variants differ from it in guidance alone"
    with pytest.raises(ReportError, match=r"no variant 'hurk' to be the baseline; did you mean 'hurl'"):
        baselines("hurk")


def test_without_a_run_that_has_no_guidance_the_baseline_is_told(write_run: WriteRun, tmp_path: Path) -> None:
    for lambda0 in ("0.9", "0.95", "1"):
        settings = ["guidance.schedule.kind=constant", f"guidance.schedule.lambda0={lambda0}"]
        write_run(f"ablation/{lambda0}/seed-0", [1.0, 2.0], h=1.0, settings=settings)
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert (section.baseline, section.remarks) == ("1", []), "λ = 1 is the algorithm alone"
    shutil.rmtree(tmp_path / "runs/ablation/1")
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert section.baseline == "0.9"
    assert "no variant is without guidance; 0.9 is the baseline, --baseline names another" in section.remarks[0]
    write_run("ablation/0.97/seed-0", [1.0] * 5, h=1.0, settings=[*settings[:1], "guidance.schedule.lambda0=0.97"])
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert (section.baseline, section.comparison.iterations) == ("0.97", 5), "one that has only begun is none"


def test_a_ladder_of_one_rung_is_the_algorithm_alone(write_run: WriteRun, tmp_path: Path) -> None:
    for name, rungs in (("guided", "[0.9, 1.0]"), ("plain", "[1.0]")):
        settings = [f"guidance.schedule={{kind: ladder, rungs: {rungs}}}"]
        write_run(f"hopper/{name}/seed-0", [1.0, 2.0], h=1.0, settings=settings)
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert (section.baseline, section.remarks) == ("plain", [])


def test_variants_that_differ_in_more_than_guidance_are_told(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("hopper/plain/seed-0", [1.0, 2.0])
    write_run("hopper/guided/seed-0", [1.0, 2.0], h=1.0)
    other = ["algorithm.parameters.tau=0.5", "gamma=0.5"]
    write_run("hopper/other/seed-0", [1.0, 2.0], h=1.0, settings=other)
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert section.remarks == [
        f"{section.environment.name}: other differs from plain in other settings too: algorithm.parameters.tau, gamma"
    ]


def test_a_variant_alone_is_measured_against_nothing(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("hopper/hurl/seed-0", [1.0, 2.0], h=1.0)
    (section,) = compute_report(collect_runs([tmp_path])).sections
    table = summary_table(section)
    assert [heading for heading in table.headings if heading.startswith("AUC")] == ["AUC"]
    assert all(len(row) == len(table.headings) for row in table.rows)


@pytest.mark.parametrize(
    ("values", "others", "shown"),
    [
        ((0.0, 1.0), (), "0.30"),
        ((0.25, 0.35), (), "0.300"),
        ((10.0, 50.0), (), "0.3"),
        ((-500.0, 2_000.0), (), "0"),
        ((1.21, 1.58), (1.0,), "0.300"),
        ((0.4, 2.3), (1.0,), "0.30"),
        ((500.0, 500.0), (), "0"),
        ((0.0, 0.0), (), "0"),
        ((500.0, 500.0 + 1e-9), (), "0.300"),
        ((float("nan"), 3.0), (), "0.30"),
    ],
)
def test_numbers_have_three_digits_of_the_range_of_their_column(
    values: tuple[float, ...], others: tuple[float, ...], shown: str
) -> None:
    assert format(0.3, form_of([None, *map(Estimate, values)], *others)) == shown


def test_returns_of_zero_and_one_are_told_apart(write_run: WriteRun, tmp_path: Path) -> None:
    for name, returns in (("sac", [0.0, 0.25, 0.5]), ("hurl", [0.25, 0.5, 1.0])):
        write_run(f"{name}/seed-0", returns, h=1.0 if name == "hurl" else float("nan"))
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert [row[3] for row in summary_table(section).rows] == ["0.583", "0.250"]


def test_a_table_says_over_how_many_iterations_it_is(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("sac/seed-0", [1.0, 2.0, 3.0])
    write_run("hurl/seed-0", [2.0, 3.0], h=1.0)
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    assert "Hopper-v4, over iterations 1 to 2, which all variants have" in output
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "Evaluation returns over iterations 1 to 2, which all variants have; baseline: sac." in page


def test_losses_are_those_that_tensorboard_shows(write_run: WriteRun, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for seed in (0, 1):
        folder = write_run(f"sac/seed-{seed}", [1.0, 2.0, 3.0], seed=seed)
        with SummaryWriter(str(folder / "tensorboard")) as events:
            for steps in (1_000, 2_000):
                events.add_scalar("train/critic_loss", seed + steps, steps)
            events.add_scalar("train/learning_rate", 0.1, 1_000)
            events.add_scalar("cloning/loss", 9.0, 1)
    (folder / "tensorboard/events.out.tfevents.2.damaged").write_bytes(b"\x09" * 40)
    (folder / "tensorboard/events.out.tfevents.3.link").symlink_to("/dev/zero")
    (section,) = compute_report(collect_runs([tmp_path])).sections
    assert section.loss_tags == ["train/critic_loss"]
    np.testing.assert_array_equal(section.losses[0]["train/critic_loss"].middle, [1000.5, 2000.5, np.nan])


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
        write_run(f"hopper/sac/seed-{seed}", [-500.0, -500.0], seed=seed)
        write_run(f"swimmer/sac/seed-{seed}", [-500.0, -500.0], seed=seed, environment="Swimmer-v4")
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    assert "No scores over environments: Hopper-v4: all runs have the same AUC" in output
    assert "all runs have the same AUC" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_one_seed_says_so_in_place_of_scores(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("hopper/sac/seed-0", [1.0, 2.0])
    write_run("swimmer/sac/seed-0", [1.0, 2.0], environment="Swimmer-v4")
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    assert "No scores over environments: Hopper-v4: sac has one seed, no score without two" in output
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "sac has one seed, no score without two" in page
    assert "One seed, so no interval: sac" in page


def test_one_environment_has_no_scores_over_environments(write_run: WriteRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(f"hurl/seed-{seed}", [2.0 + seed, 3.0], seed=seed, h=1.0)
        write_run(f"sac/seed-{seed}", [1.0 + seed, 2.0], seed=seed)
    error, output = run_command(tmp_path / "runs", "--out", tmp_path / "out")
    assert error is None
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "environments" not in output + re.sub(r'id="data">.*?</script>', "", page, flags=re.DOTALL).split("<h2>")[-3]
    assert "interquartile mean" not in page.split("<h2>How to read this")[0]
    assert "Runs beside runs" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [score["title"] for score in data["scores"]] == ["P(better than baseline)"]
    assert [row["name"] for row in data["profiles"]["rows"]] == ["hurl", "sac"]
    links = set(re.findall(r'href="([^"]+\.(?:svg|png|csv))"', page))
    assert {"scores.svg", "profiles.svg"} <= links
    assert all((tmp_path / "out" / link).is_file() for link in links)


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


def test_a_cloned_policy_whose_guidance_was_never_fitted_is_reported(write_run: WriteRun, tmp_path: Path) -> None:
    fitted = ["iterations=0", "warm_start.dataset=a/b-v0", "guidance={heuristic: {kind: ensemble}}"]
    write_run("bc/seed-0", [3.0], start=0, settings=fitted)
    write_run("sac/seed-0", [1.0, 2.0])
    write_report(compute_report(collect_runs([tmp_path])), tmp_path / "report")
    assert "dataset a/b-v0" in (tmp_path / "report" / "report.html").read_text("utf-8")
