"""What YAML is read as, and what is refused of it, with the place where it stands."""

import pytest

from hurl.experiments.config import load_config
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.tuning.grid import Stage, read_grid
from hurl.experiments.yaml_text import DEEPEST, MOST_CHARACTERS, parse_yaml, write_yaml

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 9)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{number}: &a{number} [*a{number - 1}]\n" for number in range(1, 200))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("-12", -12),
        ("1_000", 1000),
        ("0x1F", 31),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("1:8", "1:8"),
        ("1:30.5", "1:30.5"),
        ("010", "010"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("'no'", "no"),
        ('"off"', "off"),
        ("1.2.3", "1.2.3"),
        ("[1, {b: 2}]", [1, {"b": 2}]),
        ("\n  b: 1", {"b": 1}),
    ],
)
def test_values_are_read_as_they_look(text, value):
    read = parse_yaml(f"key: {text}", "run.yaml")["key"]
    assert (read, type(read)) == (value, type(value))


def test_anchors_and_merged_mappings_are_read():
    text = "one: &one {a: 1, b: 2}\ntwo: &two {<<: *one, b: 3}\nthree: {<<: [*two, *one], c: 4}\n"
    assert parse_yaml(text, "run.yaml") == {
        "one": {"a": 1, "b": 2},
        "two": {"a": 1, "b": 3},
        "three": {"a": 1, "b": 3, "c": 4},
    }


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert parse_yaml(b"\xef\xbb\xbfseed: 1", "run.yaml") == {"seed": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1, 2", r"run\.yaml, line 2 is not YAML: while parsing a flow sequence, expected ',' or '\]'"),
        (
            "a: {b: 1\nc: 2",
            r"run\.yaml, line 2 is not YAML: while parsing a flow mapping that begins in line 1, expected ','",
        ),
        ("a:\n\t- b", r"run\.yaml, line 2 is not YAML: .*'\\t'"),
        ("a: 1\nb: *c", r"run\.yaml, line 2 is not YAML: found undefined alias 'c'"),
        ("a: 1\n---\nb: 2", r"run\.yaml, line 2 is not YAML: expected a single document"),
        ("<<: 3", r"run\.yaml, line 1 is not YAML: .*expected a mapping"),
        ("a: 1\nb: 2\na: 3", r"run\.yaml, line 3: the key 'a' is in line 1 already"),
        ("a: {b: 1, 'b': 2}", r"run\.yaml, line 1: the key 'b' is in line 1 already"),
        ("a: 1\n2: b", r"run\.yaml, line 2: a key must be a text"),
        ("{[1]: 2}", r"run\.yaml, line 1: a key must be a text"),
        ("a: 1\nseed: yes", r"run\.yaml, line 2: yes is ambiguous: write true or false"),
        ("a: [Off]", r"run\.yaml, line 1: Off is ambiguous"),
        ("on: 1", r"run\.yaml, line 1: on is ambiguous"),
        ("a: !!int '3'", r"run\.yaml, line 1: tags such as .*int' have no place"),
        ("a: !!binary aGk=", r"run\.yaml, line 1: tags such as .*binary' have no place"),
        ("a: !!python/name:os.system", r"run\.yaml, line 1: tags such as .*os.system' have no place"),
        ("a: &x {b: *x}", r"run\.yaml, line 1: an anchor is within what it names"),
        ("a: &x\n  <<: *x", r"run\.yaml, line \d: an anchor is within what it names"),
        ("a: " + "[" * 5000, rf"run\.yaml, line 1: values are nested more than {DEEPEST} deep"),
        ("- " * 5000, rf"run\.yaml, line 1: values are nested more than {DEEPEST} deep"),
        (CHAIN, rf"run\.yaml, line \d+: values are nested more than {DEEPEST} deep"),
        (LAUGHS, r"run\.yaml, line 1: with its anchors it stands for more than 100,000 values"),
        ("a: 9223372036854775808", r"run\.yaml, line 1: 9223372036854775808 is an integer of more than 64 bits"),
        ("a: " + "9" * 5000, r"run\.yaml, line 1: 9{40} is an integer of more than 64 bits"),
        ("a: 1\nb: \0", r"run\.yaml, line 2: the character U\+0000 is not allowed"),
        ('a: "\\0"', r"run\.yaml, line 1: the character U\+0000 has no place"),
        ('a: "\\ud83d"', r"run\.yaml, line 1: the character U\+D83D has no place"),
        (b"a: 1\nb: \xff", r"run\.yaml, line 2: the byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), r"run\.yaml, line 1: the byte 0xff is not UTF-8"),
        ("#" * (MOST_CHARACTERS + 1), r"run\.yaml has 100,001 characters, and at most 100,000 are read"),
        ("", r"run\.yaml must hold keys and values, found NoneType"),
    ],
)
def test_what_is_refused_is_named_with_its_line(text, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        parse_yaml(text, "run.yaml")


def test_every_file_is_read_in_this_way(tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_bytes(b"base: \xff")
    for read in lambda: load_config(str(file)), lambda: read_grid(str(file), Stage.base):
        with pytest.raises(ConfigurationError, match=r"broken\.yaml, line 1: the byte 0xff is not UTF-8"):
            read()


def test_what_is_written_is_read_as_the_same():
    texts = ["yes", "1:8", "1e-4", "1e5", "010", "2020-01-01", "null", "", "=", "<<", "0x10", "a\nb", "😀", "\u2028"]
    values = {"texts": texts, "numbers": [1, 1e-5, 1e22, float("inf")], "on": True, "nothing": None}
    assert parse_yaml(write_yaml(values), "run.yaml") == values
