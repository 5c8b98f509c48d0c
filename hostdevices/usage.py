"""Whether the node itself uses a device, so that its driver must not be unbound. Checked right before the unbind.

| device | it is in use while |
|---|---|
| network interface | it carries the node, or might (uplinks.py); it is up; it is below another one; it is not here: |
| | an Ethernet function whose driver has an interface that we do not see has it in a pod |
| | where it is to move into a pod: the node has a TCP connection over an address of it |
| block device | a file system of it is mounted, it is swap, or part of a volume, an array or a cache; |
| | it might be part of a ZFS pool: which disks a pool has cannot be read without opening them |
| display | the firmware has chosen it for the console |
| any device with a node | a visible process has the node open |

Other mount and process namespaces are visible as far as /proc shows them. A daemon that is process 1 of its own
container sees none of the node's mounts, and reports every block device as used.

Sources: Linux, ABI/testing/sysfs-class-net, sysfs-bus-pci (boot_vga); proc(5), mountinfo; drivers/md/bcache/super.c,
fs/bcachefs/super.c; OpenZFS, module/zfs/spa_stats.c.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address, ip_address

from hostdevices.device import Device
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host
from hostdevices.readers.sysfs import hexadecimal, is_up
from hostdevices.readers.uplinks import uplinks

_ETHERNET = "0200"  # PCI class
_NET = "/sys/class/net"
_ESTABLISHED = re.compile(  # tcp_states.h
    rb"^ *[0-9]+: ([0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]+ [0-9A-F]+:[0-9A-F]+ 01 ", re.MULTILINE
)
_BLOCK = "/sys/class/block"
_ZFS, _BCACHEFS = "/proc/spl/kstat/zfs", "/sys/fs/bcachefs"
MAX_TABLE_BYTES = 32 << 20  # bytes of a table of connections (200,000) or mounts


def in_use_reason(host: Host, function: str, parts: Sequence[Device]) -> str:
    """Return why the PCI function at the syspath `function` is in use; empty if no use is visible.

    `parts` are the devices on it. Blocks for as long as /proc takes: use a thread. Raises `UnreadableFile`.
    """
    return next(_reasons(host, function, parts), "")


def connected_addresses(host: Host) -> frozenset[str]:
    """Return the node's addresses with open TCP connections, in this network namespace. Blocks.

    Raises `UnreadableFile`.
    """
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        found.update(x[1].decode() for x in _ESTABLISHED.finditer(_table(host, f"/proc/net/{table}")))
    return frozenset(map(_address, found))


def _table(host: Host, path: str) -> bytes:
    """Return a table; empty if there is none. Raises `UnreadableFile` for one that is too long."""
    found = host.read_bytes(path, MAX_TABLE_BYTES + 1) or b""
    if len(found) > MAX_TABLE_BYTES:
        raise UnreadableFile(f"{path}: more than {MAX_TABLE_BYTES} bytes")
    return found


def _address(digits: str) -> str:
    """Return an address as text, from the kernel's words in the machine's byte order."""
    words = [int(digits[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(digits), 8)]
    address = ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _reasons(host: Host, function: str, parts: Sequence[Device]) -> Iterator[str]:
    if host.link(f"{function}/driver") is not None and host.read(f"{function}/boot_vga") == "1":
        yield "the node's console is on it"
    if host.exists(f"{function}/virtfn0"):
        yield "its virtual functions would end; remove them first (sriov_numvfs)"
    yield from _interfaces(host, function)
    disks = [x for x in parts if x.kind == "block"]
    if disks:
        yield from _disks(host, disks)
    paths = {node.path: x.id for x in parts if x.kind != "block" for node in x.devnodes if not node.target}
    if paths:
        yield from _open_nodes(host, paths)


def _interfaces(host: Host, function: str) -> Iterator[str]:
    names = [x for x in host.list(_NET) if f"{host.resolve(f'{_NET}/{x}') or ''}/".startswith(f"{function}/")]
    if not names:
        if (hexadecimal(host, f"{function}/class", 6) or "").startswith(_ETHERNET) and _has_interface_driver(
            host, function
        ):
            yield "its interface is in another network namespace: a pod has it"
        return
    known = uplinks(host)
    for name in names:
        if host.exists(f"{_NET}/{name}/master") or any(x.startswith("upper_") for x in host.list(f"{_NET}/{name}")):
            yield f"its interface {name} is part of another one"
        if known.mark(name).get("uplink") is not False:
            yield f"its interface {name} carries the node's own traffic, or may carry it"
        if is_up(host, f"{_NET}/{name}"):
            yield f"its interface {name} is up (`ip link set {name} down`)"


def _has_interface_driver(host: Host, function: str) -> bool:
    """Return whether a function has a driver that creates interfaces."""
    driver = host.link(f"{function}/driver") or ""
    return bool(driver) and "vfio" not in driver and "uio" not in driver and driver != "pci-stub"


def _disks(host: Host, disks: Sequence[Device]) -> Iterator[str]:
    if host.link("/proc/self") == "1":
        yield f"it has the disk {disks[0].name}, and the node's mounts are not visible here (hostPID)"
    tables = (_table(host, f"/proc/{x}/mountinfo") for x in ("1", "self"))
    # a mount point can contain any character except blanks and line feeds, carriage returns included
    mounted = {fields[2] for table in tables for x in table.split(b"\n") if len(fields := x.split(b" ")) > 2}
    pool = next(iter(host.folders(_ZFS) or ()), "")
    of_bcachefs = {
        host.link(f"{_BCACHEFS}/{x}/{each}/block")
        for x in host.list(_BCACHEFS)
        for each in host.list(f"{_BCACHEFS}/{x}")
    }
    swaps = {x.partition(b" ")[0] for x in _table(host, "/proc/swaps").split(b"\n")[1:]}
    for disk in disks:
        own = {node.path.encode() for node in disk.devnodes}
        if mounted & {f"{node.major}:{node.minor}".encode() for node in disk.devnodes}:
            yield f"a file system on {disk.name} is mounted"
        # file systems on several disks have a number of their own in the table; here they are listed by name
        if (
            any(host.exists(f"/sys/fs/{kind}/{disk.name}") for kind in ("ext4", "xfs", "f2fs"))
            or any(host.exists(f"/sys/fs/btrfs/{x}/devices/{disk.name}") for x in host.list("/sys/fs/btrfs"))
            or disk.name in of_bcachefs
        ):
            yield f"a file system on {disk.name} is mounted"
        if own.intersection(swaps):
            yield f"{disk.name} is swap"
        if holders := host.list(f"{_BLOCK}/{disk.name}/holders"):
            yield f"{disk.name} is part of {holders[0]}"
        if host.exists(f"{_BLOCK}/{disk.name}/bcache"):
            yield f"{disk.name} is part of a bcache"
    if pool:
        yield f"it has the disk {disks[0].name}, which may be part of the ZFS pool {pool}; give it vfio-pci at boot"


def _open_nodes(host: Host, paths: dict[str, str]) -> Iterator[str]:
    for process in filter(str.isdecimal, host.list("/proc")):
        for number in host.list(f"/proc/{process}/fd"):
            if (path := host.target(f"/proc/{process}/fd/{number}")) in paths:
                name = host.read(f"/proc/{process}/comm") or "a process"
                yield f"{name} (process {process}) has {path} open"
