"""Parcels: what arrives, and how."""

import io
import platform
import tarfile

import pytest

from hurl.experiments.parcels import list_files, pack, read_chunks, remove_others, unpack


def write(root, **contents):
    for name, content in contents.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def send(source, names, target):
    with io.BytesIO() as parcel, io.BytesIO() as arrived:
        pack(source, names, parcel)
        for chunk in read_chunks(parcel):
            arrived.write(chunk)
        unpack(arrived, target)


@pytest.fixture
def folders(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return tmp_path / "here", tmp_path / "there"


def test_new_files_come_beside_old_ones_and_changed_ones_replace_them(folders, monkeypatch):
    monkeypatch.setattr("hurl.experiments.parcels.CHUNK_BYTES", 700)
    here, there = folders
    write(here, run__metrics="new", run__checkpoints__2__model="x" * 5000)
    write(there, run__metrics="old", run__checkpoints__1__model="first")
    (there / f".parcel.{platform.node()}.99999999.part/run").mkdir(parents=True)  # of a process that was killed
    send(here, list_files(here, [here / "run"]), there)
    found = {name: (there / name).read_text() for name in list_files(there, [there])}
    assert found == {
        "run/metrics": "new",
        "run/checkpoints/1/model": "first",
        "run/checkpoints/2/model": "x" * 5000,
    }
    assert not [path for path in there.iterdir() if path.name.startswith(".")]


def test_a_folder_that_is_new_appears_whole_and_checkpoints_last(folders, monkeypatch):
    here, there = folders
    write(here, run__checkpoints__2__model="m", run__checkpoints__2__state="s", run__metrics="2", run__replay__2="r")
    write(there, run__metrics="1", run__checkpoints__1__model="m", run__replay__1="r")
    moved = []
    replace = type(here).replace

    def watch(source, target):
        result = replace(source, target)
        moved.append(str(target.relative_to(there)))
        return result

    monkeypatch.setattr(type(here), "replace", watch)
    send(here, list_files(here, [here / "run"]), there)
    assert moved == ["run/replay/2", "run/metrics", "run/checkpoints/2"]


def test_what_is_being_written_is_left_out(folders):
    here, _ = folders
    write(here, run__lock="", run__metrics="1", log="text")
    (here / "run" / ".metrics.part").write_text("half")
    (here / "run" / ".2.part").mkdir()
    (here / "run" / ".2.part" / "model").write_text("half")
    assert set(list_files(here, [here / "run", here / "log", here / "nothing"])) == {"run/metrics", "log"}


def test_files_that_are_gone_are_removed_at_their_places_only(folders):
    here, _ = folders
    write(here, run__metrics="1", run__replay__1="r", other__metrics="1")
    remove_others(here, [here / "run"], ["run/metrics"])
    assert sorted(path.name for path in here.rglob("*")) == ["metrics", "metrics", "other", "run"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../outside", tarfile.REGTYPE), ("/tmp/hurl-outside", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)],
)
def test_a_parcel_can_write_nowhere_else(folders, name, kind):
    _, there = folders
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    with io.BytesIO() as parcel:
        with tarfile.open(fileobj=parcel, mode="w") as archive:
            archive.addfile(member)
        with pytest.raises(ValueError, match=f"a parcel holds '{name}', which is no file in its folder"):
            unpack(parcel, there)
    assert sorted(path.name for path in there.parent.rglob("*")) == ["here", "there"]


def test_links_arrive_as_files(folders):
    here, there = folders
    write(here, run__first="content")
    (here / "run" / "second").hardlink_to(here / "run" / "first")
    (here / "run" / "third").symlink_to(here / "run" / "first")
    send(here, list_files(here, [here / "run"]), there)
    assert {file.read_text() for file in (there / "run").iterdir()} == {"content"}
    assert not [file for file in (there / "run").iterdir() if file.is_symlink()]
