"""What docs/architecture.md says of the rooms: which are light, and which way dependencies point."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hurl

HEAVY = {"torch", "jax", "ray", "d3rlpy", "gymnasium", "pydantic"}


@pytest.mark.parametrize(
    ("room", "too_heavy"), [("hurl", HEAVY | {"importlib.metadata"}), ("hurl.tabular", HEAVY | {"hurl.data"})]
)
def test_what_needs_little_is_imported_with_little(room, too_heavy):
    program = f"import sys, {room}; print(sorted({too_heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("room", "foundations"),
    [
        ("data", {"discounting", "files"}),
        ("heuristics", {"data", "files", "guidance", "impala", "names", "schedules"}),
        ("tabular", {"discounting", "guidance", "ladder", "schedules"}),
    ],
)
def test_dependencies_point_one_way(room, foundations):
    text = "\n".join(file.read_text("utf-8") for file in (Path(hurl.__file__).parent / room).rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:from|import) hurl\.(\w+)", text, re.MULTILINE))
    assert imported <= foundations | {room}, "also inside of functions"
