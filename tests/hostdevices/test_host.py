"""The host: which files can be read through it, and what a recorded tree cannot make it do."""

import os
import stat
from pathlib import Path

import pytest

from hostdevices import Devnode, Host, HostDevicesError, UnreadableFile
from hostdevices.recording import Entry, packed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "sys/class").mkdir(parents=True)
    (top / "dev").mkdir()
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/inside").write_text("outside")
    return top


def write(root: Path, path: str, data: bytes) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
    return f"/{path}"


def test_device_numbers_of_this_machine_resolve_as_in_kernel() -> None:
    host = Host()
    for folder in ("/sys/dev/char", "/sys/dev/block"):
        assert host.resolve(folder) == folder
        for name in host.list(folder):
            assert host.resolve(f"{folder}/{name}") == os.path.realpath(f"{folder}/{name}")
        assert host.resolve(f"{folder}/999:999") is None


def test_class_links_of_this_machine_resolve_as_in_kernel() -> None:
    host = Host()
    for each in host.list("/sys/class"):
        for name in host.list(f"/sys/class/{each}"):
            assert host.resolve(f"/sys/class/{each}/{name}") == os.path.realpath(f"/sys/class/{each}/{name}")
            below = f"/sys/class/{each}/{name}/subsystem"
            assert host.resolve(below) in (os.path.realpath(below), None)


class TestContent:
    """Contents of files."""

    def test_text_is_stripped(self, root: Path) -> None:
        assert Host(root).read(write(root, "sys/vendor", b"0x8086\n")) == "0x8086"
        assert Host(root).read(write(root, "sys/empty", b"")) == ""

    def test_missing_file_is_none_or_empty(self, root: Path) -> None:
        host = Host(root)
        assert host.read("/sys/nothing") is None
        assert host.list("/sys/nothing") == []
        assert host.link("/sys/nothing") is None
        assert host.resolve("/sys/nothing") is None
        assert host.devnode("/dev/nothing") is None
        assert not host.exists("/sys/nothing")

    @pytest.mark.parametrize(
        ("data", "reason"),
        [(b"x" * 4097, "more than 4096 bytes"), (b"a\0b", "binary content"), (b"\xff\xfe", "not UTF-8")],
    )
    def test_unexpected_content_raises_error_with_path(self, root: Path, data: bytes, reason: str) -> None:
        path = write(root, "sys/odd", data)
        with pytest.raises(UnreadableFile, match=f"^/sys/odd: {reason}$"):
            Host(root).read(path)

    def test_large_file_is_read_up_to_explicit_limit(self, root: Path) -> None:
        assert Host(root).read(write(root, "proc/large", b"x" * 100_000), 1 << 20) == "x" * 100_000

    def test_proc_file_read_in_pages_is_complete(self) -> None:
        with open("/proc/kallsyms", "rb") as file:
            beginning = file.read(1 << 16)
        assert Host().read_bytes("/proc/kallsyms", 1 << 16) == beginning

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable_file_is_none(self, root: Path) -> None:
        path = write(root, "sys/secret", b"x")
        (root / "sys/secret").chmod(0)
        (root / "sys/class").chmod(0)
        assert Host(root).read(path) is None
        assert Host(root).list("/sys/class") == []


class TestLinks:
    """Links are followed only inside the root."""

    def test_relative_link_resolves_to_syspath(self, root: Path) -> None:
        write(root, "sys/devices/virtual/misc/fuse/dev", b"10:229\n")
        (root / "sys/class/misc").mkdir()
        (root / "sys/class/misc/fuse").symlink_to("../../devices/virtual/misc/fuse")
        host = Host(root)
        assert host.resolve("/sys/class/misc/fuse") == "/sys/devices/virtual/misc/fuse"
        assert host.read("/sys/class/misc/fuse/dev") == "10:229"
        assert host.link("/sys/class/misc/fuse") == "fuse"
        assert host.target("/sys/class/misc/fuse") == "../../devices/virtual/misc/fuse"
        assert host.list("/sys/class/misc/fuse") == ["dev"]

    @pytest.mark.parametrize("target", ["{outside}/secret", "../../secret", "../../../../../../../../{outside}/secret"])
    def test_link_out_of_root_is_not_followed(self, root: Path, target: str) -> None:
        (root / "sys/way-out").symlink_to(target.format(outside=root.parent))
        host = Host(root)
        assert host.read("/sys/way-out") is None
        assert host.resolve("/sys/way-out") is None
        assert not host.exists("/sys/way-out")

    def test_linked_folder_out_of_root_is_not_followed(self, root: Path) -> None:
        (root / "sys/way-out").symlink_to(root.parent / "folder")
        host = Host(root)
        assert host.read("/sys/way-out/inside") is None
        assert host.list("/sys/way-out") == []
        assert host.link("/sys/way-out/inside") is None

    def test_parent_path_stays_inside_root(self, root: Path) -> None:
        assert Host(root).read("/../secret") is None
        assert Host(root).list("/..") == ["dev", "sys"]

    def test_absolute_link_starts_at_root(self, root: Path) -> None:
        write(root, "sys/devices/x/vendor", b"0x1\n")
        (root / "sys/x").symlink_to("/sys/devices/x")
        assert Host(root).read("/sys/x/vendor") == "0x1"
        assert Host(root).resolve("/sys/x") == "/sys/devices/x"

    def test_link_loop_does_not_resolve(self, root: Path) -> None:
        (root / "sys/a").symlink_to("b")
        (root / "sys/b").symlink_to("a")
        (root / "sys/self").symlink_to("self/self")
        host = Host(root)
        for path in ("/sys/a", "/sys/self", "/sys/self/x"):
            assert host.read(path) is None
            assert host.resolve(path) is None
            assert host.list(path) == []

    def test_name_of_dangling_links_target_is_returned(self, root: Path) -> None:
        (root / "sys/driver").symlink_to("../bus/pci/drivers/nvme")
        assert Host(root).link("/sys/driver") == "nvme"
        assert not Host(root).exists("/sys/driver")


class TestOddFiles:
    """Files that block, files with side effects, and file names that are no text."""

    def test_fifo_does_not_block(self, root: Path) -> None:
        os.mkfifo(root / "sys/fifo")
        assert Host(root).read("/sys/fifo") is None
        assert Host(root).devnode("/sys/fifo") is None

    def test_folder_is_not_read_and_file_is_not_listed(self, root: Path) -> None:
        write(root, "sys/file", b"x")
        assert Host(root).read("/sys/class") is None
        assert Host(root).list("/sys/file") == []

    def test_device_node_is_not_read(self) -> None:
        assert Host().read("/dev/null") is None

    @pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")
    def test_device_node_in_stored_tree_is_not_read(self, root: Path) -> None:
        try:
            os.mknod(root / "sys/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except OSError as error:
            pytest.skip(f"no device nodes can be made here: {error}")
        assert Host(root).read("/sys/zero") is None

    def test_non_utf8_names_are_omitted(self, root: Path) -> None:
        os.mkdir(os.fsencode(root / "sys/class/good"))
        os.mkdir(os.fsencode(root) + b"/sys/class/\xff")
        os.symlink(b"\xff", os.fsencode(root) + b"/sys/odd")
        os.symlink(b"class/\xff", os.fsencode(root) + b"/sys/odd-folder")
        host = Host(root)
        assert host.list("/sys/class") == ["good"]
        assert host.link("/sys/odd") is None
        assert host.resolve("/sys/odd-folder") is None

    def test_path_with_nul_does_not_exist(self, root: Path) -> None:
        for host in (Host(), Host(root)):
            assert host.read("/sys/a\0b") is None
            assert host.list("/sys/a\0b") == []
            assert host.resolve("/sys/a\0b") is None
            assert host.devnode("/dev/a\0b") is None


class TestDevnodes:
    """Device nodes, real and recorded."""

    def test_dev_null_has_its_numbers(self) -> None:
        assert Host().devnode("/dev/null") == Devnode("/dev/null", "c", 1, 3)

    def test_linked_node_keeps_path_of_link(self, root: Path) -> None:
        write(root, "dev/nodes/1", b"c 10:229\n")
        (root / "dev/fuse").symlink_to("nodes/1")
        assert Host(root).devnode("/dev/fuse") == Devnode("/dev/fuse", "c", 10, 229)

    @pytest.mark.parametrize("text", [b"", b"x 1:2", b"c 1", b"c a:b", b"c 1:", b"\xff", b"c " + b"9" * 5000])
    def test_malformed_node_text_is_no_node(self, root: Path, text: bytes) -> None:
        assert Host(root).devnode(write(root, "dev/odd", text)) is None


class TestRoots:
    """Valid and invalid roots of a host."""

    def test_default_root_is_live(self) -> None:
        assert Host().is_live()
        assert Host("/.").is_live()

    def test_folder_is_a_root_that_is_not_live(self, root: Path) -> None:
        assert not Host(root).is_live()
        (root.parent / "link").symlink_to(root)
        assert Host(root.parent / "link").list("/") == ["dev", "sys"]

    def test_capture_file_is_a_root_that_is_not_live(self, tmp_path: Path) -> None:
        file = tmp_path / "node.jsonl.gz"
        file.write_bytes(
            packed([Entry("/sys/a/vendor", "text", "0x1\n"), Entry("/dev/x", "node", "b 7:0")], masked=False)
        )
        host = Host(file)
        assert not host.is_live()
        assert host.list("/") == ["dev", "sys"]
        assert host.read("/sys/a/vendor") == "0x1"
        assert host.devnode("/dev/x") == Devnode("/dev/x", "b", 7, 0)

    @pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
    def test_unreadable_folder_is_refused_with_user_id(self, tmp_path: Path) -> None:
        root = tmp_path / "closed" / "root"
        (root / "sys").mkdir(parents=True)
        root.parent.chmod(0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(HostDevicesError, match=f"^{root}: Permission denied; make it readable for user 65534$"):
                Host(root)
        finally:
            os.seteuid(0)

    def test_invalid_root_is_refused_with_path(self, tmp_path: Path) -> None:
        for path, unassigned_reason in (
            (tmp_path, "no folder sys/ here"),
            (tmp_path / "missing", "there is no such file or folder"),
        ):
            with pytest.raises(HostDevicesError, match=f"^{path}: {unassigned_reason}; give a folder"):
                Host(path)
