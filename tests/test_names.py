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
