"""The documentation site: built strictly, every link good, and opened as files in a real browser."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).parent.parent
PAGES = ("index.html", "gallery.html", "paper.html", "reference/configuration.html", "reference/hurl.html")


class Parser(HTMLParser):
    """Reads the anchors of a page, and what it links to and loads."""

    def __init__(self):
        super().__init__()
        self.anchors, self.links, self.loaded = {""}, [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        self.loaded += [values[key] for key in ("src", "href") if tag in ("img", "script", "link") and values.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def parsed(site):
    """Read every page."""
    pages = {}
    for file in site.rglob("*.html"):
        pages[file] = Parser()
        pages[file].feed(file.read_text("utf-8"))
    return pages


def test_every_link_leads_somewhere(site, parsed):
    broken = []
    for file, page in parsed.items():
        if file.name == "404.html":  # whose links begin at the root of a server
            continue
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file() or (target in parsed and unquote(parts.fragment) not in parsed[target].anchors):
                broken.append((file.relative_to(site).as_posix(), link))
    assert broken == []


def test_nothing_is_loaded_from_another_host(parsed):
    loaded = {link for page in parsed.values() for link in page.loaded}
    assert [link for link in loaded if urlsplit(link).scheme not in ("", "data")] == []


def test_the_reference_has_every_key_and_every_command(site):
    configuration = (site / "reference/configuration.html").read_text("utf-8")
    assert all(f"<code>{key}</code>" in configuration for key in ("n_envs", "lambda0", "rehearsal", "members"))
    commands = (site / "reference/commands.html").read_text("utf-8")
    assert all(f"hurl {name}" in commands for name in ("train", "fit", "diagnose", "presets show"))
    assert "tune-trial" not in commands, "hidden"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_open_as_files_without_a_word_on_the_console(chromium, site, scheme, width):
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    chromium.get((site / "index.html").as_uri())
    chromium.execute_script("localStorage.clear()")  # the colours that another test was shown
    chromium.get_log("browser")
    chromium.get_log("performance")
    for page in PAGES:
        chromium.get((site / page).as_uri())
        assert chromium.execute_script("return document.documentElement.scrollWidth") <= width, page
        chosen = chromium.execute_script("return document.body.dataset.mdColorScheme")
        assert chosen == {"light": "default", "dark": "slate"}[scheme]
    assert chromium.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []


def test_search_finds_pages_that_are_opened_as_files(chromium, site):
    chromium.get((site / "index.html").as_uri() + "?q=relaxation_values")
    chromium.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    found = WebDriverWait(chromium, 10).until(
        lambda page: page.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
    )
    assert any("reference/tabular.html" in link.get_attribute("href") for link in found)
