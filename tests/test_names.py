import pytest

from hurl.names import find_function


def test_what_is_wrong_with_a_module_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unfinished.py").write_text("def upright(observations)\n    return 0\n")
    with pytest.raises(ValueError, match=r"'unfinished:upright' can't be imported: .*unfinished.py, line 1"):
        find_function("unfinished:upright")
    with pytest.raises(ValueError, match=r"'no_such:upright' can't be imported: No module named 'no_such'$"):
        find_function("no_such:upright")
    (tmp_path / "finished.py").write_text("def upright(observations):\n    return 0\n")
    with pytest.raises(ValueError, match=r"finished has no function 'uprigt'; did you mean 'upright'"):
        find_function("finished:uprigt")
    assert find_function("finished:upright")([]) == 0


def test_a_misspelt_module_is_told_with_the_nearest_beside_it(tmp_path, monkeypatch):
    for name in "here", "beside":
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "swinging_up.py").write_text("def upright(observations):\n    return 0\n")
    (tmp_path / "beside" / "pendulums.py").write_text("import nothing_such\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "beside"))
    monkeypatch.syspath_prepend(tmp_path / "beside")
    with pytest.raises(ValueError, match=r"No module named 'swing_up'; did you mean 'swinging_up'\?$"):
        find_function("swing_up:upright")
    with pytest.raises(ValueError, match=r"No module named 'pendulum'; did you mean 'pendulums'\?$"):
        find_function("pendulum:upright")
    with pytest.raises(ValueError, match=r"No module named 'nothing_such'$"):
        find_function("pendulums:upright")
