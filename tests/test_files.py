"""Files are there whole or not at all, and nothing in their places is followed or waited for."""

import os
import platform
import subprocess
import sys

import pytest

from hurl.files import MisplacedError, check_folder, make_folder, open_lock, open_log, read_regular, remove, write_whole


def test_what_a_user_names_may_be_a_link_but_no_pipe(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link", follow_links=True) == b"content"
    with pytest.raises(MisplacedError, match="link is a link in the place of a file"):
        read_regular(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "to pipe"):
        with pytest.raises(MisplacedError, match=f"{name} is a pipe in the place of a file"):
            read_regular(tmp_path / name, follow_links=True)
    (tmp_path / "to zeros").symlink_to("/dev/zero")
    with pytest.raises(MisplacedError, match="to zeros is a device"):
        read_regular(tmp_path / "to zeros", follow_links=True)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing")


@pytest.mark.parametrize("open_it", [open_lock, open_log])
def test_locks_and_logs_write_into_nothing_else(tmp_path, open_it):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises(MisplacedError, match=f"{name} is a {name} in the place of a file"):
            open_it(tmp_path / name)
    assert (tmp_path / "mine").read_text() == "mine"
    with open_it(tmp_path / "new") as file:
        file.flush()
    assert (tmp_path / "new").is_file()


def test_a_log_is_begun_anew_or_added_to(tmp_path):
    for text in (b"first", b"second"):
        with open_log(tmp_path / "logs/log") as log:
            log.write(text)
    with open_log(tmp_path / "logs/log", anew=False) as log:
        log.write(b" third")
    assert (tmp_path / "logs/log").read_bytes() == b"second third"
    (tmp_path / "linked").symlink_to(tmp_path / "logs")
    with pytest.raises(MisplacedError, match="linked is a link in the place of a folder"):
        open_log(tmp_path / "linked/log")


def test_a_folder_is_made_where_there_is_none(tmp_path):
    make_folder(tmp_path / "a/b")
    make_folder(tmp_path / "a/b")
    assert (tmp_path / "a/b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(MisplacedError, match="file is a file in the place of a folder"):
        check_folder(tmp_path / "file")


def test_of_a_link_the_link_alone_is_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    remove(tmp_path / "link")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine"]
    remove(tmp_path / "mine")
    remove(tmp_path / "nothing")
    assert not list(tmp_path.iterdir())


def test_writing_removes_what_dead_processes_left_of_the_same_file(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead, alive = process.pid, os.getppid()
    here = platform.node()
    left = [f".table.csv.{here}.{dead}.part", f".table.csv.{here}.{os.getpid()}.part"]
    kept = [f".table.csv.{here}.{alive}.part", f".other.csv.{here}.{dead}.part", ".table.csv.part"]
    kept.append(f".table.csv.another-{here}.{dead}.part")  # a machine whose processes are not known here
    for name in (*left, *kept):
        (tmp_path / name).write_text("half")
    write_whole(tmp_path / "table.csv", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "table.csv"])
    assert (tmp_path / "table.csv").read_bytes() == b"whole"


def test_writing_replaces_a_link_and_follows_none(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for name in ("table.csv", f".table.csv.{platform.node()}.{os.getpid()}.part"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    write_whole(tmp_path / "table.csv", b"whole")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "table.csv").read_bytes() == b"whole"
    assert not (tmp_path / "table.csv").is_symlink()
