"""What MkDocs does for the site beyond its plugins.

Pages of the repository's root and the examples get a place in the site, so that links are good there and on the forge
alike; the notebook becomes a page; the reference is read off the code; formulas become MathML, which browsers draw
without a script.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

import site_reference
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "examples/*.py",
    "examples/*.yaml",
    "examples/*.ipynb",
    "results/*.csv",
)
NOTEBOOK = "examples/first-steps.ipynb"
GENERATED = re.compile(r"<!-- generated: (\w+) -->")
LINK = re.compile(r"(\]\()([^)#:\s]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let blocks of code in the language `math` be formulas, as forges do."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "formula", "format": formula}]
    return config


def formula(source: str, language: str, css_class: str, *_: Any, **__: Any) -> str:
    """Turn LaTeX into MathML."""
    return f'<div class="{css_class}">{convert(source.strip(), display="block")}</div>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of the folder of pages, at its path in the repository."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "first-steps.md", content=notebook_page(ROOT / NOTEBOOK)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is read off the code, and let links out of the folder of pages lead to the places in the site."""
    markdown = GENERATED.sub(lambda match: getattr(site_reference, match[1])(), markdown)
    folder = posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda match: match[1] + place_in_site(match[2], folder), markdown)


def place_in_site(target: str, folder: str) -> str:
    """Return a link as it is in the site, where the repository's root and the folder of pages are one."""
    path = posixpath.normpath(posixpath.join(folder, target))
    path = path.removeprefix("../").removeprefix("docs/")
    return posixpath.relpath(path, folder or ".")


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: its text, its code, and what the code printed and drew."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    note = f"*This page is a notebook: [{path.name}](../{NOTEBOOK}), to be run from top to bottom.*"
    title, *rest = (cell_markdown(cell) for cell in cells)
    return "\n\n".join([title, note, *rest])


def cell_markdown(cell: dict[str, Any]) -> str:
    """Return one cell of a notebook as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(output_markdown, cell["outputs"])])


def output_markdown(output: dict[str, Any]) -> str:
    """Return what a cell printed or drew as Markdown."""
    if "image/png" in output.get("data", {}):
        picture = "".join(output["data"]["image/png"]).replace("\n", "")
        return f"![what the cell draws](data:image/png;base64,{picture})"
    text = output.get("text") or output["data"]["text/plain"]
    return f"```text\n{''.join(text).rstrip()}\n```"
