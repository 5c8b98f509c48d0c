"""devlink over generic netlink: the firmware that a device runs.

Source: Linux, Documentation/networking/devlink/devlink-info.rst, include/uapi/linux/devlink.h and genetlink.h.
"""

import errno
import struct

from netlink import messages as nl
from netlink.connection import Connection, NetlinkError

GENERIC = 16  # NETLINK_GENERIC
_HEADER = struct.Struct("=BBH")  # struct genlmsghdr: command, version, reserved
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_INFO_GET, _BUS_NAME, _DEVICE_NAME = 51, 1, 2
_RUNNING, _VERSION_NAME, _VERSION_VALUE = 101, 103, 104
_UNSUPPORTED_ERRORS = (errno.ENODEV, errno.EOPNOTSUPP)


def family(connection: Connection, name: str) -> int | None:
    """Return the number of a family of generic netlink; None if this kernel lacks it. Raises `NetlinkError`."""
    try:
        (answer,) = connection.request(_CONTROL, _HEADER.pack(_GET_FAMILY, 1, 0) + nl.attribute(_FAMILY_NAME, name))
    except NetlinkError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    value = nl.attributes(answer.body[_HEADER.size :]).get(_FAMILY_ID, b"")
    return int(struct.unpack_from("=H", value)[0]) if len(value) >= 2 else None


def running_versions(connection: Connection, devlink: int, address: str) -> dict[str, str] | None:
    """Return the versions that the PCI function at an address runs, `{"fw.app.name": "ICE OS Default Package"}`.

    `connection` uses `GENERIC`, `devlink` is the number of that family. None if the function's driver has no devlink,
    or has it in another network namespace. Raises `NetlinkError`, also while the firmware is busy.
    """
    body = _HEADER.pack(_INFO_GET, 1, 0) + nl.attribute(_BUS_NAME, "pci") + nl.attribute(_DEVICE_NAME, address)
    try:
        (answer,) = connection.request(devlink, body)
    except NetlinkError as error:
        if error.errno in _UNSUPPORTED_ERRORS:
            return None
        raise
    return decode(answer.body)


def decode(body: bytes) -> dict[str, str]:
    """Return the running versions in a message."""
    found: dict[str, str] = {}
    for kind, value in nl.each_attribute(body[_HEADER.size :]):
        if kind == _RUNNING:
            version = nl.attributes(value)
            found[nl.text(version, _VERSION_NAME)] = nl.text(version, _VERSION_VALUE)
    return found
