"""Device nodes with which a container can harm the node or read what is not its own.

They are offered only by a resource that says `dangerous: true`, and the node's uplink by none. Numbers decide where the
kernel has fixed them (Documentation/admin-guide/devices.txt), because a node can be given any name; names decide for
dynamic numbers.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from typing import Final

from hostdevices.device import Device, Devnode

DANGEROUS: Final = "`dangerous: true`"
"""What a resource says to get them."""

_MEMORY = "gives the kernel's memory or I/O ports"
_LOG = "gives the kernel's log"
_CONSOLE = "gives the node's console"
_STORAGE = "gives storage behind the back of its file systems"
_POWER = "can reset or power off the node"
_INPUT = "can forge the node's keyboard"
_CLOCK = "sets the node's clock"
_PROCESSOR = "writes processor registers"
_FIRMWARE = "replaces the node's firmware"
_TRAFFIC = "gives what all USB devices of the node say, its keyboard among them"

# (major, minors, what it does)
_NUMBERS: tuple[tuple[int, Iterable[int], str], ...] = (
    (1, (1, 2, 4), _MEMORY),
    (1, (11,), _LOG),
    (4, range(64), _CONSOLE),
    (5, (0, 1, 2), _CONSOLE),
    (7, range(256), _CONSOLE),
    (10, (130,), _POWER),
    (10, (135,), _CLOCK),
    (10, (144, 231), _MEMORY),
    (10, (220, 221), _STORAGE),  # mptctl, mpt2ctl: any command to what is behind an LSI controller
    (10, (223, 239), _INPUT),
    (10, (234, 235, 236, 237), _STORAGE),
    (21, range(256), _STORAGE),
    (90, range(1 << 20), _STORAGE),  # mtd: raw flash, where firmware lies
    (162, range(1 << 20), _STORAGE),  # raw, until Linux 5.13
    (202, range(4096), _PROCESSOR),
)

_NAMES: tuple[tuple[str, str], ...] = (
    ("/dev/bsg/*", _STORAGE),
    ("/dev/efi_capsule_loader", _FIRMWARE),
    ("/dev/hpilo/*", _POWER),
    ("/dev/ipmi*", _POWER),
    ("/dev/mcelog", _MEMORY),
    ("/dev/megaraid_sas_ioctl_node", _STORAGE),
    ("/dev/mmcblk*rpmb", _STORAGE),  # a character device, whose key is written once for ever
    ("/dev/mpt*ctl", _STORAGE),
    ("/dev/ndctl[0-9]*", _STORAGE),
    ("/dev/nmem[0-9]*", _STORAGE),
    ("/dev/nvme*", _STORAGE),
    ("/dev/ng[0-9]*", _STORAGE),
    ("/dev/rtc*", _CLOCK),
    ("/dev/ubi*", _STORAGE),
    ("/dev/usbmon*", _TRAFFIC),
    ("/dev/watchdog*", _POWER),
    ("/dev/zfs", _STORAGE),
)


_BY_MAJOR: Final = {  # few devices have such a number or name: what most are asked for is one look at each
    major: tuple(each for each in _NUMBERS if each[0] == major) for major, *_ in _NUMBERS
}
_ANY_NAME: Final = re.compile("|".join(translate(glob) for glob, _ in _NAMES))


def why_dangerous(device: Device) -> str:
    """Return what a container could do with `device` to the node, in words; empty where it is an ordinary device."""
    for node in device.devnodes:
        if reason := _why_node(node):
            return f"{node.path} {reason}"
    if device.attributes.get("console") is True:
        return f"it {_CONSOLE}"
    if device.attributes.get("uplinkUnknown") is True:
        return "it cannot be told from the node's uplink, whose routes are not seen here (see `nodeplug discover`)"
    if device.attributes.get("otherDefaultRoute") is True:
        return "a default route of another table than main leads over it (`ip route show table all default`)"
    return ""


def why_never(device: Device) -> str:
    """Return why nobody may have `device`, whatever a resource says; empty where somebody may."""
    if device.attributes.get("uplink") is True:
        return "it carries a default route (or, on a node without one, another route); an uplink is never offered"
    return ""


def _why_node(node: Devnode) -> str:
    if node.kind == "b":
        return f"is a block device and {_STORAGE}"
    for _, minors, reason in _BY_MAJOR.get(node.major, ()):
        if node.minor in minors:
            return reason
    names = [name for name in (node.path, node.target) if _ANY_NAME.match(name)]
    if not names:
        return ""
    return next((reason for glob, reason in _NAMES if any(fnmatchcase(name, glob) for name in names)), "")
