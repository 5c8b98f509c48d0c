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
from tests.cdi.tampering import CHANGES, as_written
from tests.leaks import LeakCheck


def spec(path: str = "/dev/fuse", kind: str = "example.com/fuse") -> Spec:
    edits = ContainerEdits(device_nodes=(DeviceNode(path=path),))
    return Spec.of(kind, [Device.of("misc-fuse", edits)])


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_spec_file_is_complete_and_readable_with_any_umask(tmp_path: Path) -> None:
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


def test_unchanged_spec_is_not_written_again(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    assert folder.write("a", spec())
    before = (tmp_path / "nodeplug-dra~a.json").stat()
    assert not folder.write("a", spec())
    assert (tmp_path / "nodeplug-dra~a.json").stat().st_ino == before.st_ino
    assert folder.write("a", spec("/dev/other"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("change_name", CHANGES)
def test_change_by_another_program_is_detected_and_undone(tmp_path: Path, change_name: str) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    before = as_written(path)
    assert not folder.is_modified("a")
    CHANGES[change_name](path)
    assert folder.is_modified("a")
    assert folder.write("a", spec())
    assert as_written(path) == before
    assert not folder.is_modified("a")


def test_hard_link_is_not_a_change_but_a_new_mtime_may_be(tmp_path: Path) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    path.read_bytes()
    os.link(path, tmp_path / "backup")
    assert not folder.is_modified("a")
    path.touch()
    assert folder.is_modified("a")  # without reading the file, this cannot be distinguished from an edit
    assert not folder.write("a", spec())
    assert not folder.is_modified("a")


def test_file_created_at_a_removed_name_is_modified(tmp_path: Path) -> None:
    folder, path = CdiDirectory(tmp_path, "dra"), tmp_path / "nodeplug-dra~a.json"
    folder.write("a", spec())
    folder.remove("a")
    assert not folder.is_modified("a")
    path.touch()
    assert folder.is_modified("a")
    assert not folder.is_modified("no name/of ours\n")


def test_change_right_after_creation_is_detected(tmp_path: Path) -> None:
    folder, detected = CdiDirectory(tmp_path, "dra"), []

    def change(path: Path, name: str) -> None:
        while not path.exists():
            pass
        path.chmod(0o600)
        detected.append(folder.is_modified(name))

    for number in range(50):
        name = f"a{number}"
        changing = threading.Thread(target=change, args=(tmp_path / f"nodeplug-dra~{name}.json", name))
        changing.start()
        folder.write(name, spec())
        changing.join()
    assert detected == [True] * 50


def test_reader_never_sees_a_partial_file(tmp_path: Path) -> None:
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


def test_spec_forbidden_by_cdi_or_nodeplug_is_not_written(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    with pytest.raises(InvalidSpec, match="no devices"):
        folder.write("a", Spec.of("ab/cd", []))
    hook = ContainerEdits(hooks=(Hook(hook_name="prestart", path="/bin/true"),))
    with pytest.raises(InvalidSpec, match="run as root"):
        folder.write("a", Spec.of("ab/cd", [Device(name="d", container_edits=hook)]))
    assert files(tmp_path) == []


def test_only_files_of_the_owner_are_listed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.5.0")
    (tmp_path / "nodeplug.json").write_text("somebody's")
    mine, other = CdiDirectory(tmp_path, "device-plugin"), CdiDirectory(tmp_path, "dra")
    mine.write("a", spec())
    other.write("b", spec(kind="example.com/claim"))
    assert (mine.own_names(), other.own_names()) == (("a",), ("b",))
    mine.sync(())
    assert files(tmp_path) == ["nodeplug-dra~b.json", "nodeplug.json", "nvidia.yaml"]
    assert not mine.remove("a")
    assert other.remove("b")


def test_sync_writes_missing_and_removes_unwanted_and_temporary_files(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    folder.write("gone", spec())
    folder.write("kept", spec())
    inode = (tmp_path / "nodeplug-dra~kept.json").stat().st_ino
    (tmp_path / ".nodeplug-dra~kept.json.1234abcd.tmp").write_text("{")
    (tmp_path / ".nodeplug-device-plugin~x.json.1234abcd.tmp").write_text("somebody is writing this")
    folder.sync((("kept", spec()), ("new", spec("/dev/new"))))
    assert folder.own_names() == ("kept", "new")
    assert (tmp_path / "nodeplug-dra~kept.json").stat().st_ino == inode
    assert [x for x in files(tmp_path) if x.endswith(".tmp")] == [".nodeplug-device-plugin~x.json.1234abcd.tmp"]


def test_removed_folder_is_empty_and_created_by_the_next_write(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path / "cdi", "dra")
    folder.write("a", spec())
    shutil.rmtree(tmp_path / "cdi")
    assert folder.own_names() == ()
    assert not folder.remove("a")
    folder.sync((("a", spec()),))
    assert folder.own_names() == ("a",)


class Interrupted(bytes):
    """A file's content. At the start of its write something else happens."""

    first: Callable[[], object] | None = None

    def __getitem__(self, key: Any) -> Any:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().__getitem__(key)


@pytest.mark.parametrize("what", ["folder", "temporary file"])
def test_write_is_repeated_when_folder_or_temporary_file_is_removed(tmp_path: Path, what: str) -> None:
    path, data = tmp_path / "cdi/nodeplug-dra~a.json", Interrupted(b"content")
    path.parent.mkdir()
    data.first = partial(shutil.rmtree, path.parent)
    if what == "temporary file":  # another daemon does so at its start
        data.first = partial(CdiDirectory(path.parent, "dra").remove_others, ())
    replace_file(path, data)
    assert path.read_bytes() == b"content"
    assert files(path.parent) == [path.name]


def test_invalid_file_or_symlink_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
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


def test_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    (tmp_path / "nodeplug-dra~a.json").mkdir()  # a rename onto it fails
    with pytest.raises(OSError, match="directory"):
        folder.write("a", spec())
    assert files(tmp_path) == ["nodeplug-dra~a.json"]


def test_repeated_failure_has_the_same_message(tmp_path: Path) -> None:
    """Callers log a message once, and write again until it works: it must not contain a name that varies."""
    path = tmp_path / "spec.json"
    path.mkdir()
    with pytest.raises(OSError, match="Is a directory") as first:
        replace_file(path, b"content")
    with pytest.raises(OSError, match="Is a directory") as second:
        replace_file(path, b"content")
    assert str(first.value) == str(second.value) == f"[Errno 21] Is a directory: '{path}'"


def test_file_names_of_kinds_and_claims_are_unique_and_short() -> None:
    claim = "3f2b0a52-0c1d-4a1e-9a55-000000000001"
    assert file_name("example.com/gpu") == "example.com~gpu"
    assert file_name("gpu.example.com/claim", claim) == f"gpu.example.com~claim~{claim}"
    assert file_name("a-b/c") != file_name("a/b-c")
    long = "a" * 250 + "/gpu"
    assert file_name(long) != file_name(long, claim)
    assert len(file_name(long, claim)) <= 160


@pytest.mark.parametrize("name", ["", "../a", "ab/cd", ".a", "a" * 161, "a\n"])
def test_invalid_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CdiError, match="file_name"):
        CdiDirectory(tmp_path, "dra").write(name, spec())


def test_invalid_owner_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CdiError, match="owner"):
        CdiDirectory(tmp_path, "a~b")


def test_directory_or_fifo_at_a_spec_path_leaks_no_descriptor(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    (tmp_path / "nodeplug-dra~a.json").mkdir()
    os.mkfifo(tmp_path / "nodeplug-dra~b.json")
    since = LeakCheck()
    for _ in range(5):
        with pytest.raises(IsADirectoryError, match=r"nodeplug-dra~a\.json"):
            folder.write("a", spec())
    assert folder.write("b", spec())
    assert since.descriptors() == []
    assert files(tmp_path) == ["nodeplug-dra~a.json", "nodeplug-dra~b.json"]
    assert (tmp_path / "nodeplug-dra~b.json").is_file()


@pytest.mark.parametrize("create", [lambda path: path.write_text(""), os.mkfifo], ids=["a file", "a pipe"])
def test_file_or_fifo_at_the_folder_path_is_refused(tmp_path: Path, create: Callable[[Path], object]) -> None:
    folder = CdiDirectory(tmp_path / "cdi", "dra")
    create(folder.path)
    since = LeakCheck()
    for _ in range(5):
        with pytest.raises(OSError, match="cdi"):
            folder.sync((("a", spec()),))
    assert since.descriptors() == []
    folder.path.unlink()
    folder.sync((("a", spec()),))
    assert folder.own_names() == ("a",)


def test_huge_file_is_replaced_without_being_read(tmp_path: Path) -> None:
    folder = CdiDirectory(tmp_path, "dra")
    with (tmp_path / "nodeplug-dra~a.json").open("wb") as file:
        file.truncate(1 << 40)
    assert folder.write("a", spec())
    assert decode((tmp_path / "nodeplug-dra~a.json").read_bytes()) == spec()


@pytest.mark.parametrize("is_synced", [True, False])
def test_synced_file_is_on_the_disk_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_synced: bool
) -> None:
    path, synced = tmp_path / "file", list[tuple[bytes, bool]]()

    def fsync(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").read_bytes(), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(path, b"content", is_synced=is_synced)
    assert synced == [(b"content", False)] * is_synced
    assert path.read_bytes() == b"content"
