"""What all readers ask sysfs: a device's uevent variables, nodes, NUMA nodes and PCIe root."""

import re

from hostdevices.device import Devnode
from hostdevices.host import Host

_PCIE_ROOT = re.compile(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2})(?=/|$)")


def uevent(host: Host, syspath: str) -> dict[str, str]:
    """Return the KEY=VALUE lines of a device's uevent file; empty where it has none. Raises `UnreadableFile`."""
    lines = (host.read(f"{syspath}/uevent") or "").splitlines()
    return {key: value for key, separator, value in (line.partition("=") for line in lines) if separator}


def devnodes(host: Host, syspath: str) -> tuple[Devnode, ...]:
    """Return the node of one class device, by the kernel's DEVNAME and only if it has the kernel's numbers."""
    name = uevent(host, syspath).get("DEVNAME")
    numbers = host.read(f"{syspath}/dev")
    if not name or not numbers:
        return ()
    node = host.devnode(f"/dev/{name}")
    return (node,) if node and f"{node.major}:{node.minor}" == numbers else ()


def numa_nodes(host: Host, syspath: str) -> tuple[int, ...]:
    """Return the NUMA node of a device or of its nearest parent that has one; empty where none says (-1)."""
    while syspath.startswith("/sys/devices/"):
        text = host.read(f"{syspath}/numa_node")
        if text is not None and text.isdecimal():
            return (int(text),)
        syspath = syspath.rpartition("/")[0]
    return ()


def pcie_root(syspath: str) -> str | None:
    """Return the PCIe root complex above a device, `pci0000:3a`; it may lie below a platform device."""
    found = _PCIE_ROOT.search(syspath)
    return found[1] if found else None
