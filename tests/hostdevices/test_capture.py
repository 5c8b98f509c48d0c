"""Captures: what is recorded, what is never read, and that a scan of a capture finds the same devices."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostdevices import Host, HostDevicesError, Inventory, recording, scan
from hostdevices.capture import capture
from hostdevices.readers import Finding, Reader
from hostdevices.recording import Entry, packed
from tests.hostdevices.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "root")
    made.device(
        "/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229", note="for tomorrow"
    )
    function = made.pci("0000:3b:00.0", bridges=("0000:3a:00.0",), vendor="15b3", driver="mlx5_core", numa_node=1)
    made.file("/sys/devices/pci0000:00/0000:3a:00.0/secondary_bus_number", "59")
    made.child(function, "net/eth0", group="class/net", address="02:00:00:00:00:01", type="1")
    return made


def replayed(entries: list[Entry], file: Path) -> Inventory:
    file.write_bytes(packed(entries, masked=False))
    return scan(Host(file))


def contents(entries: list[Entry]) -> dict[str, str]:
    return {entry.path: entry.content for entry in entries if entry.what in ("text", "bytes")}


def test_scan_of_capture_finds_same_devices(tree: Tree, tmp_path: Path) -> None:
    found = scan(tree.host)
    assert {device.kind for device in found.devices.values()} == {"misc", "pci", "nic"}
    assert replayed(capture(tree.host), tmp_path / "node.jsonl.gz") == found


def test_scan_of_this_machines_capture_finds_same_devices(tmp_path: Path) -> None:
    found = scan(Host())
    again = replayed(capture(Host()), tmp_path / "node.jsonl.gz")
    for device in found.devices.values():
        if device.kind in ("misc", "pci"):  # other devices appear and disappear while tests run
            assert again.devices[device.id] == device


def test_proc_paths_contain_no_process_id() -> None:
    entries = capture(Host())
    assert not [entry for entry in entries if re.match(r"/proc/(\d|self$)", entry.path)]
    assert any(entry.path == "/proc/self/net/route" for entry in entries)
    assert Entry("/proc/net", "link", "self/net") in entries


def test_capture_of_a_capture_is_identical(tree: Tree, tmp_path: Path) -> None:
    entries = capture(tree.host)
    (tmp_path / "one.jsonl.gz").write_bytes(packed(entries, masked=False))
    again = capture(Host(tmp_path / "one.jsonl.gz"))
    assert again == entries
    (tmp_path / "two.jsonl.gz").write_bytes(packed(again, masked=False))
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


def test_unread_attributes_of_devices_and_ancestors_are_recorded(tree: Tree) -> None:
    recorded = contents(capture(tree.host))
    assert recorded["/sys/devices/virtual/misc/fuse/note"] == "for tomorrow\n"
    assert recorded["/sys/devices/pci0000:00/0000:3a:00.0/secondary_bus_number"] == "59\n"


@pytest.mark.parametrize(
    "name", ["rom", "remove", "rescan", "reset", "d3cold_reset", "resource0", "vpd", "sriov_numvfs"]
)
def test_attribute_with_side_effects_is_not_read(tree: Tree, name: str) -> None:
    path = f"/sys/devices/pci0000:00/0000:3a:00.0/0000:3b:00.0/{name}"
    tree.file(path, "danger")
    assert path not in contents(capture(tree.host))


def test_private_file_is_recorded_only_if_a_reader_reads_it(tree: Tree) -> None:
    secret = "/sys/devices/virtual/misc/fuse/secret"
    tree.file(secret, "x")
    tree.path(secret).chmod(0o600)
    assert secret not in contents(capture(tree.host))

    def read_secret(host: Host) -> Iterator[Finding]:
        host.read(secret)
        yield from ()

    reader = Reader("reader", frozenset(), read_secret)
    assert contents(capture(tree.host, readers=[reader]))[secret] == "x\n"


def test_large_file_is_truncated_and_binary_file_is_base64(tree: Tree) -> None:
    tree.file("/sys/devices/virtual/misc/fuse/large", b"x" * 100_000)
    tree.file("/sys/devices/virtual/misc/fuse/binary", bytes(range(256)))
    recorded = contents(capture(tree.host))
    assert len(recorded["/sys/devices/virtual/misc/fuse/large"]) <= 4096
    assert recorded["/sys/devices/virtual/misc/fuse/binary"].startswith("AAECAwQ")


def test_capture_file_is_text_sorted_by_path(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "node.jsonl.gz").write_bytes(packed(capture(tree.host), masked=False))
    header, *lines = gzip.decompress((tmp_path / "node.jsonl.gz").read_bytes()).decode().splitlines()
    assert header == '{"format":"nodeplug-capture","version":1,"masked":false}'
    assert lines == sorted(lines)
    assert '["/dev/fuse","node","c 10:229"]' in lines
    assert '["/sys/class/misc/fuse","link","../../devices/virtual/misc/fuse"]' in lines
    assert '["/sys/devices/virtual/misc/fuse/dev","text","10:229\\n"]' in lines


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r":1: not a capture of nodeplug: .*"),
        (b"not gzip", r": not a capture of nodeplug \(not gzip\); make one on the node with `nodeplug capture`.*"),
        (gzip.compress(b"[]\n"), r":1: not a capture of nodeplug: .*"),
        (gzip.compress(b'{"format":"nodeplug-capture","version":2}\n'), r":1: not a capture of nodeplug: .*version.*"),
        (gzip.compress(b'{"format":"nodeplug-capture","version":1}\n["/a","odd"]\n'), r":2: not a capture .*odd.*"),
        (gzip.compress(b'{"format":"nodeplug-capture","version":1}\n["/a"')[:-9], r": cut short after line 1"),
    ],
    ids=[
        "empty",
        "no gzip",
        "no header",
        "version",
        "entry",
        "cut short",
    ],  # the compressed bytes contain the time
)
def test_invalid_capture_is_refused_with_file_and_line(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "odd.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(HostDevicesError, match=f"^{file}{reason}$"):
        Host(file)


def test_capture_larger_than_limit_unpacked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MAX_UNPACKED", 1 << 20)
    file = tmp_path / "large.jsonl.gz"
    file.write_bytes(packed([Entry(f"/sys/{number}", "text", "x" * 10_000) for number in range(200)], masked=False))
    assert file.stat().st_size < 20_000
    with pytest.raises(HostDevicesError, match=f"^{file}: more than 1 MiB unpacked$"):
        Host(file)


def test_capture_with_very_deep_path_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.jsonl.gz"
    file.write_bytes(packed([Entry("/a" * 100_000, "there")], masked=False))
    with pytest.raises(HostDevicesError, match=f"^{file}: more than 256 MiB of folders' paths$"):
        Host(file)


def test_malformed_entries_yield_no_devices(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl.gz"
    entries = [
        Entry("/sys/class/misc/a", "link", "a"),
        Entry("/sys/class/misc/b", "link", "../../../../../../etc"),
        Entry("/sys/class/misc/c", "text", "a file where a folder should be"),
        Entry("/sys/class/misc/d/dev", "bytes", "not base64"),
        Entry("no/slash", "there"),
        Entry("/sys/class/misc/e/uevent", "text", "DEVNAME=../../etc/passwd\nMAJOR=1\nMINOR=3\n"),
        Entry("/sys/class/misc/e/dev", "text", "1:3\n"),
        Entry("/dev/e", "node", "c x:y"),
        Entry("/sys/class/misc/f/uevent", "text", "DEVNAME=f\n"),
        Entry("/sys/class/misc/f/dev", "text", "1:4\n"),
        Entry("/dev/f", "node", f"c {'9' * 5_000}:1"),
        Entry(f"/sys/class/tty/ttyS{'9' * 5_000}/dev", "text", "4:64\n"),
        Entry("/sys/class/tty/ttyS1/dev", "text", "4:65\n"),
    ]
    file.write_bytes(packed(entries, masked=False))
    found = scan(Host(file))
    assert found.devices == {}
    assert not [problem for problem in found.problems if "digits" in str(problem)]
