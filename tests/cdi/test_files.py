import os
import shutil
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdi import (
    CdiDirectory,
    CdiError,
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    InvalidSpec,
    Spec,
    decode,
    file_name,
    replace_file,
)
from tests.cdi.tampering import WAYS, as_written
from tests.held import HeldSince


def spec(path: str = "/dev/fuse", kind: str = "example.com/fuse") -> Spec:
    edits = ContainerEdits(device_nodes=(DeviceNode(path=path),))
    return Spec.of(kind, [Device.of("misc-fuse", edits)])


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_spec_is_written_whole_and_readable_whatever_the_umask(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path / "run" / "cdi", "device-plugin")
    name = file_name("example.com/fuse")
    old = os.umask(0o077)
    try:
        assert folder.write(name, spec())
    finally:
        os.umask(old)
    path = folder.path / "nodeplug-device-plugin~example.com~fuse.json"
    assert files(folder.path) == [path.name]
    assert decode(path.read_bytes()) == spec()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    assert folder.write("a", spec())
    before = (tmp_path / "nodeplug-dra~a.json").stat()
    assert not folder.write("a", spec())
    assert (tmp_path / "nodeplug-dra~a.json").stat().st_ino == before.st_ino
    assert folder.write("a", spec("/dev/other"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("way", WAYS)
def test_what_somebody_does_to_a_file_is_noticed_and_undone(tmp_path: Path, way: str) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    before = as_written(path)
    assert not folder.is_touched("a")
    WAYS[way](path)
    assert folder.is_touched("a")
    assert folder.write("a", spec())
    assert as_written(path) == before
    assert not folder.is_touched("a")


def test_what_changes_nothing_for_readers_is_no_touch(tmp_path: Path) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    path.read_bytes()
    os.link(path, tmp_path / "backup")
    assert not folder.is_touched("a")
    path.touch()
    assert folder.is_touched("a")  # without reading the file, this cannot be distinguished from an edit
    assert not folder.write("a", spec())
    assert not folder.is_touched("a")


def test_a_file_that_we_removed_is_touched_once_somebody_puts_one_there(tmp_path: Path) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    folder.remove("a")
    assert not folder.is_touched("a")
    path.touch()
    assert folder.is_touched("a")
    assert not folder.is_touched("no name/of ours\n")


def test_what_somebody_does_to_a_file_the_moment_that_it_appears_is_noticed(tmp_path: Path) -> None:
    folder, noticed = CdiDirectory(tmp_path, "dra"), []

    def change(path: Path, name: str) -> None:
        while not path.exists():
            pass
        path.chmod(0o600)
        noticed.append(folder.is_touched(name))

    for number in range(50):
        name = f"a{number}"
        changing = threading.Thread(target=change, args=(tmp_path / f"nodeplug-dra~{name}.json", name))
        changing.start()
        folder.write(name, spec())
        changing.join()
    assert noticed == [True] * 50


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    folder.write("a", spec())
    target = tmp_path / "nodeplug-dra~a.json"
    done = threading.Event()

    def write() -> None:
        for number in range(100):
            folder.write("a", spec(f"/dev/{'x' * 1000}{number}"))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        decode(target.read_bytes())
    writer.join()


def test_what_cdi_or_we_forbid_is_never_written(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    with pytest.raises(InvalidSpec, match="no devices"):
        folder.write("a", Spec.of("ab/cd", []))
    hook = ContainerEdits(hooks=(Hook(hook_name="prestart", path="/bin/true"),))
    with pytest.raises(InvalidSpec, match="run as root"):
        folder.write("a", Spec.of("ab/cd", [Device(name="d", container_edits=hook)]))
    assert files(tmp_path) == []


def test_only_our_own_files_are_listed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.5.0")
    (tmp_path / "nodeplug.json").write_text("somebody's")
    mine, other = CdiDirectory(tmp_path, "device-plugin"), CdiDirectory(tmp_path, "dra")
    mine.write("a", spec())
    other.write("b", spec(kind="example.com/claim"))
    assert (mine.ours(), other.ours()) == (("a",), ("b",))
    mine.sync(())
    assert files(tmp_path) == ["nodeplug-dra~b.json", "nodeplug.json", "nvidia.yaml"]
    assert not mine.remove("a")
    assert other.remove("b")


def test_sync_writes_the_missing_removes_the_unwanted_and_clears_what_a_crash_left(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    folder.write("gone", spec())
    folder.write("kept", spec())
    inode = (tmp_path / "nodeplug-dra~kept.json").stat().st_ino
    (tmp_path / ".nodeplug-dra~kept.json.1234abcd.tmp").write_text("{")
    (tmp_path / ".nodeplug-device-plugin~x.json.1234abcd.tmp").write_text("somebody is writing this")
    folder.sync((("kept", spec()), ("new", spec("/dev/new"))))
    assert folder.ours() == ("kept", "new")
    assert (tmp_path / "nodeplug-dra~kept.json").stat().st_ino == inode
    assert [x for x in files(tmp_path) if x.endswith(".tmp")] == [".nodeplug-device-plugin~x.json.1234abcd.tmp"]


def test_a_folder_that_vanished_is_empty_and_comes_back_with_the_next_write(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path / "cdi", "dra")
    folder.write("a", spec())
    shutil.rmtree(tmp_path / "cdi")
    assert folder.ours() == ()
    assert not folder.remove("a")
    folder.sync((("a", spec()),))
    assert folder.ours() == ("a",)


class Interrupted(bytes):
    """A file's content. At the start of its write something else happens."""

    first: Callable[[], object] | None = None

    def __getitem__(self, key: Any) -> Any:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().__getitem__(key)


@pytest.mark.parametrize("what", ["folder", "temporary file"])
def test_a_file_is_written_again_of_which_somebody_removes_what_is_half_written(tmp_path: Path, what: str) -> None:
    path, data = tmp_path / "cdi/nodeplug-dra~a.json", Interrupted(b"content")
    path.parent.mkdir()
    data.first = partial(shutil.rmtree, path.parent)
    if what == "temporary file":  # another daemon does so at its start
        data.first = partial(CdiDirectory(path.parent, "dra").keep, ())
    replace_file(path, data)
    assert path.read_bytes() == b"content"
    assert files(path.parent) == [path.name]


def test_garbage_or_a_link_at_our_name_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path / "cdi", "dra")
    folder.write("a", spec())
    target = folder.path / "nodeplug-dra~a.json"
    target.write_bytes(b"{")
    assert folder.write("a", spec())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(target.read_bytes())
    target.unlink()
    target.symlink_to(elsewhere)
    assert folder.write("a", spec("/dev/other"))
    assert not target.is_symlink()
    assert decode(elsewhere.read_bytes()) == spec()


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    (tmp_path / "nodeplug-dra~a.json").mkdir()  # a rename onto it fails
    with pytest.raises(OSError, match="directory"):
        folder.write("a", spec())
    assert files(tmp_path) == ["nodeplug-dra~a.json"]


def test_names_of_kinds_and_claims_differ_and_fit() -> None:
    claim = "3f2b0a52-0c1d-4a1e-9a55-000000000001"
    assert file_name("example.com/gpu") == "example.com~gpu"
    assert file_name("gpu.example.com/claim", claim) == f"gpu.example.com~claim~{claim}"
    assert file_name("a-b/c") != file_name("a/b-c")
    long = "a" * 250 + "/gpu"
    assert file_name(long) != file_name(long, claim)
    assert len(file_name(long, claim)) <= 160


@pytest.mark.parametrize("name", ["", "../a", "ab/cd", ".a", "a" * 161, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CdiError, match="file_name"):
        CdiDirectory(tmp_path, "dra").write(name, spec())


def test_an_owner_that_could_reach_others_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CdiError, match="owner"):
        CdiDirectory(tmp_path, "a~b")


def test_what_is_no_file_in_the_place_of_a_spec_costs_no_descriptor(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    (tmp_path / "nodeplug-dra~a.json").mkdir()
    os.mkfifo(tmp_path / "nodeplug-dra~b.json")
    since = HeldSince()
    for _ in range(5):
        with pytest.raises(IsADirectoryError, match=r"nodeplug-dra~a\.json"):
            folder.write("a", spec())
    assert folder.write("b", spec())
    assert since.descriptors() == []
    assert files(tmp_path) == ["nodeplug-dra~a.json", "nodeplug-dra~b.json"]
    assert (tmp_path / "nodeplug-dra~b.json").is_file()


@pytest.mark.parametrize("place", [lambda path: path.write_text(""), os.mkfifo], ids=["a file", "a pipe"])
def test_what_is_no_folder_in_the_place_of_the_folder_is_refused_and_stays(
    tmp_path: Path, place: Callable[[Path], object]
) -> None:
    folder = CdiDirectory(tmp_path / "cdi", "dra")
    place(folder.path)
    since = HeldSince()
    for _ in range(5):
        with pytest.raises(OSError, match="cdi"):
            folder.sync((("a", spec()),))
    assert since.descriptors() == []
    folder.path.unlink()
    folder.sync((("a", spec()),))
    assert folder.ours() == ("a",)


def test_a_file_that_somebody_made_large_is_not_read(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    with (tmp_path / "nodeplug-dra~a.json").open("wb") as file:
        file.truncate(1 << 40)
    assert folder.write("a", spec())
    assert decode((tmp_path / "nodeplug-dra~a.json").read_bytes()) == spec()


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_synced_file_is_on_the_disk_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_synced: bool
) -> None:
    path, synced = tmp_path / "file", list[tuple[bytes, bool]]()

    def fsync(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").read_bytes(), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(path, b"content", is_synced=is_synced)
    assert synced == [(b"content", False)] * is_synced
    assert path.read_bytes() == b"content"
