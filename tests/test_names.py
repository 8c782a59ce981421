import pytest

from hurl.names import find_function


def test_what_is_wrong_with_a_module_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unfinished.py").write_text("def upright(observations)\n    return 0\n")
    with pytest.raises(ValueError, match=r"'unfinished:upright' can't be imported: .*unfinished.py, line 1"):
        find_function("unfinished:upright")
    with pytest.raises(ValueError, match=r"'no_such:upright' can't be imported: No module named 'no_such'"):
        find_function("no_such:upright")
    (tmp_path / "finished.py").write_text("def upright(observations):\n    return 0\n")
    with pytest.raises(ValueError, match=r"finished has no function 'uprigt'; did you mean 'upright'"):
        find_function("finished:uprigt")
    assert find_function("finished:upright")([]) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise SystemExit", "SystemExit"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("open('no-such-table.csv')", "FileNotFoundError: .*'no-such-table.csv'"),
        ("from os import no_such_name", "cannot import name 'no_such_name'"),
    ],
)
def test_whatever_a_module_raises_is_a_failure_to_import_it(line, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_module.py").write_text(line)
    with pytest.raises(ValueError, match=rf"'raising_module:upright' can't be imported: {message}"):
        find_function("raising_module:upright")


def test_an_interruption_while_a_module_is_imported_stays_one(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "interrupted_module.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        find_function("interrupted_module:upright")
