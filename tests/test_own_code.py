import os
import sys

import pytest

from hurl.envs import make_env
from hurl.own_code import find_function


def test_what_is_wrong_with_a_module_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unfinished.py").write_text("def upright(observations)\n    return 0\n")
    with pytest.raises(ValueError, match=r"'unfinished:upright' can't be imported: .*unfinished.py, line 1"):
        find_function("unfinished:upright")
    with pytest.raises(ValueError, match=r"'no_such:upright' can't be imported: .*No module named 'no_such'"):
        find_function("no_such:upright")
    (tmp_path / "finished.py").write_text("def upright(observations):\n    return 0\n")
    with pytest.raises(ValueError, match=r"finished has no function 'uprigt'; did you mean 'upright'"):
        find_function("finished:uprigt")
    assert find_function("finished:upright")([]) == 0


def test_an_interruption_while_a_module_is_imported_stays_one(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "interrupted_module.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        find_function("interrupted_module:upright")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\nimport no_such_package", "line 2: ModuleNotFoundError: No module named 'no_such_package'"),
        ("from hurl import no_such_name", "line 1: ImportError: cannot import name 'no_such_name'"),
        ("import json\n\njson.loads('{')", "line 3: JSONDecodeError: Expecting property name"),
        ("x = (", r"line 1: SyntaxError: '\(' was never closed"),
        ("x = '\x00'", "SyntaxError: source code string cannot contain null bytes"),
        ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
        ("assert False", "line 1: AssertionError$"),
        ("def f(): f()\nf()", "line 1: RecursionError"),
        ("raise SystemExit", "line 1: SystemExit"),
        ("raise SystemExit(0)", "line 1: SystemExit: 0"),
        ("raise GeneratorExit", "line 1: GeneratorExit"),
    ],
)
@pytest.mark.parametrize("find", [find_function, make_env])
def test_whatever_a_module_raises_is_told_with_its_place(find, text, fault, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "faulty.py").write_text(text)
    with pytest.raises(ValueError, match=rf"'faulty:CartPole-v1' can't be imported: .*{fault}"):
        find("faulty:CartPole-v1")


def test_a_misspelt_module_is_told_with_the_nearest_beside_it(tmp_path, monkeypatch):
    for name in "here", "beside":
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "swinging_up.py").write_text("def upright(observations):\n    return 0\n")
    (tmp_path / "beside" / "pendulums.py").write_text("import nothing_such\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("HURL_PATH", f"{tmp_path / 'here'}{os.pathsep}{tmp_path / 'beside'}")
    with pytest.raises(ValueError, match=r"No module named 'swing_up'; did you mean 'swinging_up'\?$"):
        find_function("swing_up:upright")
    with pytest.raises(ValueError, match=r"No module named 'pendulum'; did you mean 'pendulums'\?$"):
        find_function("pendulum:upright")
    with pytest.raises(ValueError, match=r"No module named 'nothing_such'$"):
        find_function("pendulums:upright")
    with pytest.raises(ValueError, match=r"'maze', among what is installed and in .*here and .*beside$"):
        find_function("maze:upright")
