"""The page of a report, in a real browser."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from torch.utils.tensorboard import SummaryWriter

from hurl.experiments.metrics import read_rows, write_rows
from hurl.reports import collect_runs, compute_report, write_report

from .conftest import run_writer


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report on two environments; return its page."""
    folder = tmp_path_factory.mktemp("report")
    write_run = run_writer(folder / "runs")
    for seed in (0, 1):
        plain = write_run(f"hopper/sac/seed-{seed}", [10.0 + seed, 20.0, 30.0], seed=seed)
        with SummaryWriter(str(plain / "tensorboard")) as events:
            for iteration in (1, 2, 3):
                events.add_scalar("train/<critic>_loss", seed + iteration, 1_000 * iteration)
        write_run(f"hopper/hurl/seed-{seed}", [30.0, 40.0 + 2 * seed, 50.0], seed=seed, h=1.0)
        write_run(
            f"hopper/<bc>/seed-{seed}",
            [15.0],
            seed=seed,
            start=0,
            settings=["warm_start.dataset=a/b-v0", "iterations=0"],
        )
    swimmer = write_run("swimmer/sac/seed-0", [1.0, 1.5, 2.0], environment="Swimmer-v4") / "metrics.csv"
    write_rows(swimmer, [replace(row, success_rate=row.iteration / 4) for row in read_rows(swimmer)])
    write_report(compute_report(collect_runs([folder / "runs"])), folder)
    return folder / "report.html"


@pytest.fixture
def page(chromium: Chrome, report: Path) -> Iterator[Chrome]:
    """Open the report; nothing may have reached the browser's console when the test ends."""
    chromium.get_log("browser")
    chromium.get_log("performance")
    chromium.get(report.as_uri())
    yield chromium
    assert chromium.get_log("browser") == []


def find(page: Chrome | WebElement, selector: str) -> list[WebElement]:
    return page.find_elements(By.CSS_SELECTOR, selector)


def curves(page: Chrome, chart: str, environment: int = 0) -> list[str | None]:
    """Return the variants that are drawn in a chart."""
    chosen = f'.chart[data-environment="{environment}"][data-chart="{chart}"] g'
    return [curve.get_attribute("data-variant") for curve in find(page, chosen)]


def test_every_picture_is_there(page: Chrome) -> None:
    charts = find(page, ".chart")
    names = [(chart.get_attribute("data-environment"), chart.get_attribute("data-chart")) for chart in charts]
    hopper = [("0", name) for name in ("return", "lambda", "discount", "h", "auc", "loss:train/<critic>_loss")]
    # One variant, which no heuristic guides.
    swimmer = [("1", name) for name in ("return", "success_rate", "lambda", "discount")]
    assert names == hopper + swimmer + [(None, f"score-{index}") for index in range(5)] + [(None, "profiles")]
    for chart in charts:
        (svg,) = find(chart, "svg")
        assert svg.size["width"] > 200 or not chart.is_displayed()
        assert find(svg, ".curve, .interval")
        assert "NaN" not in svg.get_attribute("outerHTML")
    assert curves(page, "return") == ["<bc>", "hurl", "sac"]
    assert curves(page, "lambda") == ["hurl", "sac"]
    assert curves(page, "h") == ["hurl"]


@pytest.mark.parametrize(
    ("name", "environment", "chart"), [("losses", 0, "loss:train/<critic>_loss"), ("success", 1, "success_rate")]
)
def test_losses_and_success_rates_are_shown_when_asked_for(
    page: Chrome, name: str, environment: int, chart: str
) -> None:
    (place,) = find(page, f'.chart[data-environment="{environment}"][data-chart="{chart}"]')
    assert not place.is_displayed()
    (switch,) = find(page, f"input[name={name}]")
    switch.click()
    assert place.is_displayed()
    assert find(place, "svg")[0].size["width"] > 200
    assert curves(page, chart, environment) == ["sac"]
    switch.click()
    assert not place.is_displayed()


def test_single_seeds_are_shown_when_asked_for(page: Chrome) -> None:
    assert find(page, ".seed") == []
    (switch,) = find(page, "input[name=seeds]")
    switch.click()
    seeds = find(page, '.chart[data-environment="0"][data-chart="return"] .curve[data-variant="sac"] .seed')
    first, second = (seed.get_attribute("points").split() for seed in seeds)
    assert first[0] != second[0], "their first returns are 10 and 11"
    assert first[1:] == second[1:]
    assert find(page, '.chart[data-environment="0"][data-chart="return"] .curve[data-variant="sac"] polygon') == []
    switch.click()
    assert find(page, ".seed") == []


def test_smoothing_is_the_mean_of_what_came_before(page: Chrome) -> None:
    def heights() -> list[float]:
        (line,) = find(page, '.chart[data-environment="1"][data-chart="return"] polyline')
        return [float(point.split(",")[1]) for point in line.get_attribute("points").split()]

    assert heights()[0] - heights()[1] == pytest.approx(heights()[1] - heights()[2], abs=0.3)
    Select(find(page, "select[name=smoothing]")[0]).select_by_value("3")
    first, second, third = heights()  # 1, 1.25 and 1.5
    assert first - second == pytest.approx(second - third, abs=0.3)
    (label,) = find(page, '.chart[data-environment="1"][data-chart="return"] .surface')
    ActionChains(page).move_to_element_with_offset(label, label.size["width"] // 2 - 2, 0).perform()
    assert find(page, "#tooltip")[0].text.splitlines()[1] == "sac 1.5 1.5 to 1.5 1 seed"


def test_profiles_are_steps_from_all_runs_to_none(page: Chrome) -> None:
    chosen = '.chart[data-chart="profiles"] .curve[data-variant="sac"] polyline'
    (line,) = find(page, chosen)
    points = [tuple(map(float, point.split(","))) for point in line.get_attribute("points").split()]
    assert all(x == pytest.approx(after) or y == pytest.approx(below) for (x, y), (after, below) in pairwise(points))
    assert points[-1][1] >= points[0][1], "no run is above the best"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_light_or_dark_as_the_reader_likes_it(page: Chrome, scheme: str) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    try:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        paper, ink = page.execute_script(
            "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
            ".map(color => color.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0))"
        )
        assert (paper > ink) == (scheme == "light")
        assert abs(paper - ink) > 400
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_page_asks_nothing_of_the_network(page: Chrome) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1


def test_a_click_on_a_name_hides_its_curve_and_another_shows_it(page: Chrome) -> None:
    (button,) = find(page, '.environment[data-environment="0"] .legend button[data-variant="hurl"]')
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert curves(page, "return") == ["<bc>", "sac"]
    assert curves(page, "lambda") == ["sac"]
    assert button.get_attribute("aria-pressed") == "false"
    assert curves(page, "return", environment=1) == ["sac"]
    button.click()
    assert curves(page, "return") == ["<bc>", "hurl", "sac"]


@pytest.mark.parametrize(
    ("axis", "title", "last"),
    [("iterations", "iterations", "3"), ("time", "wall time (seconds)", "18"), ("steps", "environment steps", "3000")],
)
def test_the_horizontal_axis_is_steps_iterations_or_time(page: Chrome, axis: str, title: str, last: str) -> None:
    charts = find(page, '.environment figure:not(.losses):not(.success) .chart:not([data-chart="auc"])')
    assert [find(chart, ".x-title")[0].text for chart in charts] == ["environment steps"] * len(charts)
    (choice,) = find(page, f"input[name=axis][value={axis}]")
    choice.click()
    assert [find(chart, ".x-title")[0].text for chart in charts] == [title] * len(charts)
    ticks = [text.text for text in find(charts[0], "text[text-anchor=middle]:not(.x-title):not(.y-title)")]
    assert ticks[-1] == last


def test_pointing_at_a_chart_tells_the_values_of_all_curves(page: Chrome) -> None:
    (surface,) = find(page, '.chart[data-environment="0"][data-chart="return"] .surface')
    # One chart is 3,000 steps wide: a bit right of its middle is nearest to iteration 2.
    ActionChains(page).move_to_element_with_offset(surface, surface.size["width"] // 6, 0).perform()
    (tooltip,) = find(page, "#tooltip")
    assert tooltip.is_displayed()
    assert tooltip.text.splitlines() == [
        "environment steps: 2,000",
        "<bc> 15 15 to 15 2 seeds",
        "hurl 41 40.5 to 41.5 2 seeds",
        "sac 20 20 to 20 2 seeds",
    ]
    ActionChains(page).move_to_element(find(page, "h1")[0]).perform()
    assert not tooltip.is_displayed()


def test_the_page_fits_a_telephone(page: Chrome) -> None:
    try:
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        )
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        widths = "return [...document.querySelectorAll('.chart svg')].map(s => s.viewBox.baseVal.width)"
        WebDriverWait(page, 10).until(lambda page: max(page.execute_script(widths)) <= 390)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
