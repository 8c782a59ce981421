"""What the documents tell a reader to type: every command is one that there is, of presets that there are."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from hurl.cli import app
from hurl.experiments.campaign import choose_variants
from hurl.experiments.config import load_config
from hurl.experiments.fitting import find_kind
from hurl.experiments.paper_tables import paper_table
from hurl.experiments.recipes import load_recipe
from hurl.experiments.reproduce import plan_reproduction
from hurl.experiments.sources import preset_names

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_LINE = typer.main.get_command(app)


def commands(text):
    """Return the lines of shell that begin with `hurl`, what goes on after a backslash included, without that word."""
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in re.findall(r"^hurl (.*)$", block.replace("\\\n", " "), re.MULTILINE)]


def parse(words):
    """Return the name of the command that some words are of, and the values of its parameters."""
    name, command, context = "", COMMAND_LINE, COMMAND_LINE.make_context("hurl", words)
    while words := [*context._protected_args, *context.args]:
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context)
    return name, context.params


def separated(text):
    return None if text is None else text.split(",")


def check_reproduction(name, values, folder):
    if name.startswith("table"):
        paper_table(name)
    else:
        games, settings = separated(values["games"]), values["settings"]
        plan_reproduction(name, values["scale"], folder, games=games, settings=settings)


def check_names(command, values, folder):
    """Refuse, as the command itself does, names of presets, variants, figures, recipes and kinds that there are not."""
    source = values.get("source") or ""
    is_file = ".yaml" in source
    if command == "train" and not is_file:
        load_config(source, values["settings"])
    elif command == "campaign" and not is_file:
        choose_variants(source, separated(values["variants"]))
    elif command == "tune":
        assert any(name == source or name.startswith(f"{source}/") for name in preset_names())
    elif command == "show":
        load_config(values["name"])
    elif command == "reproduce":
        check_reproduction(values["name"], values, folder)
    elif command == "collect" and values["recipe"] is not None:
        load_recipe(values["recipe"])
    elif command == "fit":
        find_kind(values["kind"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_commands_of_the_documents_are_taken_by_the_command_line(document, tmp_path):
    for line in commands(document.read_text("utf-8")):
        check_names(*parse(shlex.split(line, comments=True)), tmp_path)


def test_every_preset_is_told_of():
    """In the table of `docs/experiments.md`, whose rows may name those of one family by their ends."""
    rows = (ROOT / "docs" / "experiments.md").read_text("utf-8").partition("| preset |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`-?([\w-]+)`", rows))
    families = {name.partition("/")[0] for name in preset_names()}
    assert {name for name in families if not {name, name.removeprefix("gauntlet-")} & told} == set()


def test_commands_are_found_in_the_documents():
    found = {line.split()[0] for document in DOCUMENTS for line in commands(document.read_text("utf-8"))}
    assert found >= {"campaign", "collect", "diagnose", "evaluate", "fit", "presets", "report", "reproduce", "train"}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("trian hopper/hurl-mc", "No such command 'trian'"),
        ("train", "Missing parameter: source"),
        ("train hopper/hurl-mc --sed 1", "No such option: --sed"),
        ("train hopper/hurl-mc --set gama=0.9", "gama"),
        ("campaign hopper --variants no-such", "hopper has no variant 'no-such'"),
    ],
)
def test_a_command_that_there_is_not_is_noticed(line, fault, tmp_path):
    with pytest.raises(Exception, match=fault):
        check_names(*parse(line.split()), tmp_path)
