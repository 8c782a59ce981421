"""YAML as configurations are written in it: plain values only, and each read as it looks.

YAML 1.1 takes `yes` for true, `1:8` for 68, `010` for 8 and `1e-4` for a text, keeps the last of two values of one key,
and lets a few lines stand for billions of values. Here numbers are numbers, what is ambiguous is refused, and every
refusal names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from hurl.experiments.errors import ConfigurationError

MOST_CHARACTERS = 100_000
MOST_VALUES = 100_000
DEEPEST = 50
LARGEST_INTEGER = 2**63 - 1

TAG = "tag:yaml.org,2002:"
FLOAT = re.compile(
    r"[-+]?(\d[\d_]*\.[\d_]*([eE][-+]?\d+)?|\.\d[\d_]*([eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
)
# How texts without quotes are read, the first that fits; all else is text.
PLAIN = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?(0b[01][01_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0|[1-9][0-9_]*)"),
    "float": FLOAT,
    "null": re.compile("~|null|Null|NULL|"),
    "merge": re.compile("<<"),
}
AMBIGUOUS = re.compile("yes|no|on|off", re.IGNORECASE)
UNWRITABLE = re.compile("[\0\ud800-\udfff]")  # in no file, nor in a file's name


class _Loader(yaml.SafeLoader):
    """Reads plain values, and remembers how deep it is in them."""

    depth = 0

    def get_single_node(self) -> Node | None:
        """Read all values, and check them before anything is made of them."""
        node: Node | None = super().get_single_node()
        if node is not None:
            _check_nodes(node, [], [0])
        return node

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Read a value; refuse one with a tag, or one too deep for those who read it after."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise _problem(f"tags such as {event.tag!r} have no place here: leave it out", event)
        if self.depth > DEEPEST:
            raise _problem(f"values are nested more than {DEEPEST} deep", event)
        self.depth += 1
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> str:
        """Return what a text is taken for."""
        if kind is not ScalarNode:
            return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        found = (name for name, pattern in PLAIN.items() if implicit[0] and pattern.fullmatch(value or ""))
        return TAG + next(found, "str")

    def construct_yaml_int(self, node: ScalarNode) -> int:
        """Read an integer, one of 64 bits."""
        if len(node.value) <= 100 and abs(number := int(super().construct_yaml_int(node))) <= LARGEST_INTEGER:
            return number
        raise _problem(f"{node.value:.40} is an integer of more than 64 bits", node)


_Loader.add_constructor(f"{TAG}int", _Loader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):
    """Puts into quotes what either YAML 1.1 or `_Loader` would take for something else than text."""


_Dumper.add_implicit_resolver(f"{TAG}float", re.compile(f"^({FLOAT.pattern})$"), list("-+0123456789."))


def parse_yaml(text: str | bytes, source: str) -> dict[str, Any]:
    """Parse a YAML mapping.

    :param text: if bytes, of UTF-8
    :param source: what the text is of, which an error names
    """
    text = _decode(text, source)
    try:
        values = yaml.load(text, _Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(
            f"{source}, line {line}: the character U+{error.character:04X} is not allowed in YAML"
        ) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(f"{source}{_describe(error)}") from None
    if not isinstance(values, dict):
        raise ConfigurationError(f"{source} must hold keys and values, found {type(values).__name__}")
    return values


def write_yaml(values: Mapping[str, Any]) -> str:
    """Return values as YAML, which `parse_yaml` reads as the same."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Refused(yaml.MarkedYAMLError):
    """What is YAML, but nothing that a configuration may hold."""


def _problem(problem: str, place: Any) -> _Refused:
    """Return the error for what an event or a node stands for."""
    return _Refused(problem=problem, problem_mark=place.start_mark)


def _describe(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong in which line, without the text around it."""
    mark = error.problem_mark or error.context_mark
    line = f", line {mark.line + 1}" if mark is not None else ""
    begun = error.context_mark
    since = f" that begins in line {begun.line + 1}" if begun and mark and begun.line < mark.line else ""
    context = f"{error.context}{since}" if error.context else None
    what = ", ".join(filter(None, (context, error.problem)))
    return f"{line}: {what}" if isinstance(error, _Refused) else f"{line} is not YAML: {what}"


def _decode(text: str | bytes, source: str) -> str:
    """Return text without a byte order mark; refuse what is not UTF-8, or too long to be read in a few seconds."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise ConfigurationError(
            f"{source}, line {line}: the byte 0x{byte:02x} is not UTF-8, save the file as such"
        ) from None
    if len(text) > MOST_CHARACTERS:
        raise ConfigurationError(f"{source} has {len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")
    return text.removeprefix("\ufeff")


def _check_nodes(node: Node, above: list[Node], count: list[int]) -> None:
    """Refuse values that hold themselves, that are too many with what anchors stand for, or that are ambiguous.

    :param above: the values that the node is in
    :param count: how many values have been seen
    """
    count[0] += 1
    if any(node is other for other in above):
        raise _problem("an anchor is within what it names itself", node)
    if len(above) > DEEPEST:
        raise _problem(f"values are nested more than {DEEPEST} deep", node)
    if count[0] > MOST_VALUES:
        raise _problem(f"with its anchors it stands for more than {MOST_VALUES:,} values", node)
    if isinstance(node, ScalarNode):
        _check_text(node)
    if isinstance(node, MappingNode):
        _check_keys(node)
    if isinstance(node, CollectionNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                _check_nodes(part, [*above, node], count)


def _check_text(node: ScalarNode) -> None:
    """Refuse words that are truth values to some, and characters that could not be written anywhere."""
    if node.style is None and AMBIGUOUS.fullmatch(node.value):
        raise _problem(f"{node.value} is ambiguous: write true or false, or the word in quotes", node)
    if found := UNWRITABLE.search(node.value):
        raise _problem(f"the character U+{ord(found[0]):04X} has no place in a text", node)


def _check_keys(node: MappingNode) -> None:
    """Refuse keys that are no texts, or are there twice."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag not in (f"{TAG}str", f"{TAG}merge"):
            raise _problem("a key must be a text, in quotes where it would be something else", key)
        if key.value in lines:
            raise _problem(f"the key {key.value!r} is in line {lines[key.value]} already", key)
        lines[key.value] = key.start_mark.line + 1
