"""The page of a report, in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from hurl.reports import collect_runs, compute_report, write_report

from .conftest import run_writer


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report on two environments; return its page."""
    folder = tmp_path_factory.mktemp("report")
    write_run = run_writer(folder / "runs")
    for seed in (0, 1):
        write_run(f"hopper/sac/seed-{seed}", [10.0 + seed, 20.0, 30.0], seed=seed)
        write_run(f"hopper/hurl/seed-{seed}", [30.0, 40.0 + 2 * seed, 50.0], seed=seed, h=1.0)
        write_run(
            f"hopper/<bc>/seed-{seed}",
            [15.0],
            seed=seed,
            start=0,
            settings=["warm_start.dataset=a/b-v0", "iterations=0"],
        )
    write_run("swimmer/sac/seed-0", [1.0, 1.5, 2.0], environment="Swimmer-v4")
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
    hopper = [("0", name) for name in ("return", "lambda", "discount", "h", "auc")]
    swimmer = [("1", name) for name in ("return", "lambda", "discount")]  # one variant, which no heuristic guides
    assert names == hopper + swimmer + [(None, f"score-{index}") for index in range(5)]
    for chart in charts:
        (svg,) = find(chart, "svg")
        assert svg.size["width"] > 200
        assert find(svg, ".curve, .interval")
        assert "NaN" not in svg.get_attribute("outerHTML")
    assert curves(page, "return") == ["<bc>", "hurl", "sac"]
    assert curves(page, "lambda") == ["hurl", "sac"]
    assert curves(page, "h") == ["hurl"]


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
    charts = find(page, '.environment .chart:not([data-chart="auc"])')
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
