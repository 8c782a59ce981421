"""The benchmarks are run by hand: what they take from hurl, and from one another, is there."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
NEIGHBOURS = {file.stem: file for folder in ("benchmarks", "examples") for file in (ROOT / folder).glob("*.py")}


def imports(tree):
    """Return each import of a program, also inside of functions: the module, and the names that are taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]


def defined(file):
    """Return the names that a program defines, without running it: some take minutes, and claim cores."""
    scope = ast.parse(file.read_text("utf-8")).body
    functions = {node.name for node in scope if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    values = {
        name.id
        for node in scope
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return functions | values


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.name)
def test_what_a_benchmark_imports_is_there(file):
    for module, names in imports(ast.parse(file.read_text("utf-8"))):
        if module.split(".")[0] == "hurl":
            missing = [name for name in names if not hasattr(import_module(module), name)]
        else:
            missing = set(names) - defined(NEIGHBOURS[module]) if module in NEIGHBOURS else []
        assert not missing, f"{module} has no {', '.join(missing)}"
