"""What all readers read from sysfs: a device's uevent variables, nodes, NUMA node, PCIe root, and attributes of known
form.

`None` or an empty result means that the host provides no value; content of another form raises `UnreadableFile`.
"""

import re
from collections import Counter
from collections.abc import Mapping

from hostdevices.device import AttributeValue, Devnode, Version
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host

TEXT_LIMIT = 64  # bytes of a text attribute in DRA

_LEAST, _MOST = -(2**63), 2**63 - 1  # the range of a number in DRA
_LAST_NUMA_NODE = 1023  # the kernel's limit, and DRA's
_PCIE_ROOT = re.compile(r"/(pci[0-9a-f]{4,}:[0-9a-f]{2})(?=/|$)")
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]+)")
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+)?|p[0-9]+pf[0-9]+vf[0-9]+")
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")


def uevent(host: Host, syspath: str) -> dict[str, str]:
    """Return the KEY=VALUE lines of a device's uevent file; empty if it has none. Raises `UnreadableFile`.

    A key that occurs twice is left out: a device whose name contains a line break can add lines of its own.
    """
    lines = [line.partition("=") for line in (host.read(f"{syspath}/uevent") or "").split("\n")]
    times = Counter(key for key, _, _ in lines)
    return {key: value for key, separator, value in lines if separator and times[key] == 1}


def devnodes(host: Host, syspath: str) -> tuple[Devnode, ...]:
    """Return the node of one class device, by the kernel's DEVNAME and only if it has the kernel's numbers."""
    name = uevent(host, syspath).get("DEVNAME", "").removeprefix("/dev/")
    numbers = host.read(f"{syspath}/dev")
    if not name or not numbers or ".." in name:
        return ()
    node = host.devnode(f"/dev/{name}")
    return (node,) if node and f"{node.major}:{node.minor}" == numbers else ()


def shared_node(host: Host, path: str) -> tuple[Devnode, ...]:
    """Return the node at a fixed path (/dev/vfio/vfio) that many devices share."""
    node = host.devnode(path)
    return (node,) if node else ()


def numa_nodes(host: Host, syspath: str) -> tuple[int, ...]:
    """Return the NUMA node of a device or of its nearest parent that has one; empty if none reports it (-1)."""
    while syspath.startswith(("/sys/devices/", "/sys/bus/")):
        node = number(host, f"{syspath}/numa_node")
        if node is not None and 0 <= node <= _LAST_NUMA_NODE:
            return (node,)
        syspath = syspath.rpartition("/")[0]
    return ()


def pcie_root(syspath: str) -> str | None:
    """Return the PCIe root complex above a device, `pci0000:3a`; it can be below a platform device."""
    found = _PCIE_ROOT.search(syspath)
    return found[1] if found else None


def represented(host: Host, interface: str) -> str | None:
    """Return the function, `pf0vf3`, for which the interface at a syspath is a port of its card's switch (switchdev).

    None for an ordinary interface. Source: Linux, net/core/devlink.c and, with the port first,
    drivers/net/ethernet/sfc/ef100_rep.c.
    """
    label = text(host, f"{interface}/phys_port_name") or ""
    return label if _REPRESENTOR.fullmatch(label) else None


def interfaces(host: Host, function: str) -> list[str]:
    """Return the names of a PCI function's own interfaces, without those that its driver creates there for others."""
    return [name for name in host.list(f"{function}/net") if not represented(host, f"{function}/net/{name}")]


def number(host: Host, path: str) -> int | None:
    """Return the decimal number in a file. Raises `UnreadableFile` for other content."""
    text = host.read(path)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise UnreadableFile(f"{path}: {text[:32]!r} is not a number")
    return int(text)


def natural(host: Host, path: str) -> int | None:
    """Return the number in a file; None if it is negative, the kernel's "unknown"."""
    value = number(host, path)
    return value if value is not None and value >= 0 else None


def hexadecimal(host: Host, path: str, digits: int) -> str | None:
    """Return the hexadecimal id in a file in lower case, padded to `digits`. Raises `UnreadableFile` otherwise."""
    text = host.read(path)
    if not text:
        return None
    found = _HEX.fullmatch(text)
    if found is None or len(found[1]) > digits:
        raise UnreadableFile(f"{path}: {text[:32]!r} is not an id of {digits} hexadecimal digits")
    return found[1].lower().rjust(digits, "0")


_IFF_UP = 0x1  # linux/if.h
LINK_TYPES = {1: "ethernet", 32: "infiniband", 280: "can", 772: "loopback", 65534: "none"}
"""The values of an interface's `type`, linux/if_arp.h."""


def link_type(host: Host, interface: str) -> str | None:
    """Return the type of the network interface at a syspath; None if it has none. Raises `UnreadableFile`."""
    value = number(host, f"{interface}/type")
    return None if value is None else LINK_TYPES.get(value, str(value))


def is_up(host: Host, interface: str) -> bool:
    """Return whether the network interface at a syspath is up. Raises `UnreadableFile`."""
    return bool(int(hexadecimal(host, f"{interface}/flags", 8) or "0", 16) & _IFF_UP)


def text_value(value: str | None) -> str | None:
    """Return a text in the form of an attribute: one printable line of at most 64 bytes, cut with an ellipsis."""
    if not value:
        return None
    line = " ".join("".join(x if x.isprintable() else " " for x in value).split())
    if len(line.encode()) > TEXT_LIMIT:
        line = line.encode()[: TEXT_LIMIT - len("…".encode())].decode(errors="ignore").rstrip() + "…"
    return line or None


def text(host: Host, path: str) -> str | None:
    """Return the text in a file in the form of an attribute."""
    return text_value(host.read(path))


def version(value: str | None) -> Version | None:
    """Return the version at the start of a text in DRA's form: three numbers without leading zeros."""
    found = _VERSION.match(value or "")
    return Version(".".join(str(int(part or 0)) for part in found.groups())) if found else None


def known(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Return the attributes whose values DRA allows: not empty, and numbers of 64 bits."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and value != "" and (not isinstance(value, int) or _LEAST <= value <= _MOST)
    }


_MAX_DIGITS = 255  # digits of a number in a file's name, which is not longer


def natural_order(name: str) -> tuple[str, int, str]:
    """Order names by the kernel's count: renderD9 before renderD128."""
    digits = re.search(r"[0-9]+", name)
    return (name[: digits.start()], int(digits[0][:_MAX_DIGITS]), name[digits.end() :]) if digits else (name, -1, "")
