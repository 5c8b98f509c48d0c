"""Which devices the node itself uses, according to /proc."""

from pathlib import Path

import pytest

from hostdevices import Device, Devnode, Host, UnreadableFile
from hostdevices.usage import MAX_TABLE_BYTES, connected_addresses, in_use_reason
from tests.hostdevices.tree import Tree

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def entry(local: str, state: str) -> str:
    """A line of /proc/net/tcp with the kernel's length."""
    return f"   0: {local}:0050 0100007F:9C40 {state} 00000000:00000000 00:00000000 00000000     0        0 0 1".ljust(
        149
    )


def host(folder: Path, *lines: str) -> Host:
    tree = Tree(folder)
    tree.file("/proc/net/tcp", "\n".join([HEADER, *lines]) + "\n")
    return tree.host


def test_connection_is_found_among_very_many(tmp_path: Path) -> None:
    """A load balancer has a hundred thousand connections, most of which have ended."""
    many = [entry("0100007F", "06")] * 100_000
    assert connected_addresses(host(tmp_path, *many, entry("070200C0", "01"))) == {"192.0.2.7"}


def test_ipv4_ipv6_and_mapped_addresses_are_read(tmp_path: Path) -> None:
    made = host(tmp_path, entry("070200C0", "01"))
    six = [entry(x, "01") for x in ("B80D0120000000000000000007000000", "0000000000000000FFFF0000090200C0")]
    Tree(tmp_path).file("/proc/net/tcp6", "\n".join([HEADER, *six, entry("0" * 32, "0A")]) + "\n")
    assert connected_addresses(made) == {"192.0.2.7", "2001:db8::7", "192.0.2.9"}


def test_oversized_connection_table_raises_error(tmp_path: Path) -> None:
    made = host(tmp_path)
    with open(tmp_path / "proc/net/tcp", "r+b") as table:
        table.truncate(MAX_TABLE_BYTES + 1)
    with pytest.raises(UnreadableFile, match="/proc/net/tcp: more than"):
        connected_addresses(made)


@pytest.mark.parametrize(
    ("table", "content", "unassigned_reason"),
    [
        ("self/mountinfo", b"36 35 8:0 / /a\r37\x0b35\x0b\xff rw - ext4 x rw\n", "a file system on a is mounted"),
        ("1/mountinfo", b"36 35 0:5 / /a\r37\x0b35\x0b8:0 rw - tmpfs x rw\n", ""),
        (
            "spl/kstat/zfs/tank/state",
            b"ONLINE\n",
            "it has the disk a, which may be part of the ZFS pool tank; give it vfio-pci at boot",
        ),
        ("spl/kstat/zfs/arcstats", b"1 2 3\n", ""),
        ("swaps", b"Filename  Type\n/dev/a  partition\t1\t0\t-2\n", "a is swap"),
        ("swaps", b"Filename  Type\n/dev/ab  partition\t1\t0\t-2\n", ""),
    ],
)
def test_disk_is_in_use_only_if_mounted_swap_or_in_a_zfs_pool(
    tmp_path: Path, table: str, content: bytes, unassigned_reason: str
) -> None:
    """A user who can mount something can choose any name for the mount point."""
    tree = Tree(tmp_path)
    tree.file(f"/proc/{table}", content)
    disk = Device("disk-a", "block", "a", devnodes=(Devnode("/dev/a", "b", 8, 0),))
    assert in_use_reason(tree.host, "/sys/devices/x", [disk]) == unassigned_reason


@pytest.mark.parametrize(
    ("path", "unassigned_reason"),
    [
        ("/sys/class/block/a/bcache", "a is part of a bcache"),
        ("/sys/fs/bcachefs/6f0e/dev-0/block", "a file system on a is mounted"),
    ],
)
def test_bcache_or_bcachefs_disk_is_in_use(tmp_path: Path, path: str, unassigned_reason: str) -> None:
    """They are not in `holders`, and a file system on several disks is mounted under a device number of its own."""
    tree = Tree(tmp_path)
    tree.link(path, "/sys/block/a")
    tree.file("/sys/block/a/size", 8)
    disk = Device("disk-a", "block", "a", devnodes=(Devnode("/dev/a", "b", 8, 0),))
    assert in_use_reason(tree.host, "/sys/devices/x", [disk]) == unassigned_reason
