"""The firmware versions of a PCI function, read with devlink over generic netlink."""

import struct

from netlink.connection import Connection
from netlink.devlink import GENERIC, decode, family, running_versions
from netlink.messages import attribute

_RUNNING, _STORED, _NAME, _VALUE = 101, 102, 103, 104


def version(kind: int, name: str, value: str) -> bytes:
    return attribute(kind | 0x8000, attribute(_NAME, name) + attribute(_VALUE, value))


def test_generic_netlink_family_is_resolved() -> None:
    with Connection(GENERIC) as connection:
        assert family(connection, "nlctrl") == 16  # GENL_ID_CTRL
        assert family(connection, "no-such-family") is None
        # The kernel's configuration decides about devlink. No machine has this function.
        devlink = family(connection, "devlink")
        assert devlink is None or running_versions(connection, devlink, "ffff:ff:1f.7") is None


def test_only_running_firmware_versions_are_decoded() -> None:
    """The kernel's format: an attribute of the same type for each version (devlink_info_version_put)."""
    body = (
        struct.pack("=BBH", 51, 1, 0)
        + attribute(1, "pci")
        + attribute(2, "0000:3b:00.0")
        + attribute(98, "ice")
        + version(_RUNNING, "fw.mgmt", "6.0.7")
        + version(_RUNNING, "fw.app.name", "ICE COMMS Package")
        + version(_RUNNING, "fw.app", "1.3.35.0")
        + version(_STORED, "fw.app.name", "ICE OS Default Package")
    )
    assert decode(body) == {"fw.mgmt": "6.0.7", "fw.app.name": "ICE COMMS Package", "fw.app": "1.3.35.0"}
    assert decode(body[:50]) == {}
    assert decode(b"") == {}
