"""Network interfaces in the kernel, in this network namespace or in one that has a number here."""

import errno
import struct

from msgspec import Struct

from netlink import messages as nl
from netlink.connection import Connection, NetlinkError

_INFO = struct.Struct("=BBHiII")  # struct ifinfomsg: family, padding, type, index, flags, change
_ADDRESS, _NAME, _MTU, _LINK, _MASTER, _LINKINFO, _ALIAS = 1, 3, 4, 5, 10, 18, 20
_INFO_KIND, _INFO_DATA = 1, 2  # of LINKINFO
_LINK_NAMESPACE, _NAMESPACE, _MIN_MTU, _MAX_MTU, _PERMANENT = 37, 46, 50, 51, 54
_PARENT, _PARENT_BUS = 56, 57
_EXT_MASK, _SKIP_STATISTICS = 29, 1 << 3
_UP = 0x1
_OPTIONS = {"dummy": (), "ifb": (), "ipvlan": (1, 2), "macvlan": (1, 2), "macvtap": (1, 2), "vlan": (1, 2, 5)}
RECREATABLE_KINDS = frozenset(_OPTIONS)
"""The kinds that can be replaced by a new interface with the same options on the same lower interface."""


class Link(Struct, frozen=True):
    """An interface.

    `kind` is the kind of a virtual interface (`veth`, `macvlan`), `data` the options with which it can be made again
    (`RECREATABLE_KINDS`); both are empty for hardware. `lower` is the index of the interface that it is made on,
    `lower_namespace` the number of that one's network namespace if it differs. `parent` is the device that it is a port
    of, `pci/0000:3b:00.0`, and `permanent` the hardware's own address: older kernels report neither.
    """

    index: int
    name: str
    is_up: bool = False
    mtu: int = 0
    mac: str = ""
    alias: str = ""
    kind: str = ""
    data: bytes = b""
    lower: int = 0
    lower_namespace: int | None = None
    master: int = 0
    parent: str = ""
    permanent: str = ""
    min_mtu: int = 0
    max_mtu: int = 0


class LinkChange(Struct, frozen=True):
    """Changes of an interface; None leaves a property unchanged."""

    name: str | None = None
    mtu: int | None = None
    mac: str | None = None
    alias: str | None = None
    is_up: bool | None = None


def links(connection: Connection, namespace: int | None = None) -> list[Link]:
    """Return all interfaces here, or of the network namespace with this number. Raises `NetlinkError`."""
    body = _INFO.pack(0, 0, 0, 0, 0, 0) + _namespace_attribute(namespace) + nl.attribute(_EXT_MASK, _SKIP_STATISTICS)
    return [decode(each.body) for each in connection.dump(nl.GETLINK, body) if each.type == nl.NEWLINK]


def link(connection: Connection, of: str | int, namespace: int | None = None) -> Link | None:
    """Return the interface with this name or index; None if it or the namespace does not exist."""
    index, name = (of, b"") if isinstance(of, int) else (0, nl.attribute(_NAME, of))
    body = (
        _INFO.pack(0, 0, 0, index, 0, 0)
        + name
        + _namespace_attribute(namespace)
        + nl.attribute(_EXT_MASK, _SKIP_STATISTICS)
    )
    try:
        (answer,) = connection.request(nl.GETLINK, body)
    except NetlinkError as error:
        if error.errno in (errno.ENODEV, errno.EINVAL):
            return None
        raise
    return decode(answer.body)


def change_link(connection: Connection, index: int, change: LinkChange) -> None:
    """Change the interface with this index, atomically as far as the kernel can. Raises `NetlinkError`."""
    flags = 0 if change.is_up is None else _UP
    body = _INFO.pack(0, 0, 0, index, _UP if change.is_up else 0, flags) + _attributes(change)
    connection.request(nl.SETLINK, body)


def add_link(connection: Connection, change: LinkChange, kind: str, data: bytes = b"", lower: int = 0) -> None:
    """Create a virtual interface of a kind, with its options, on top of another one. Raises `NetlinkError`."""
    info = nl.attribute(_INFO_KIND, kind) + (nl.attribute(_INFO_DATA, data) if data else b"")
    body = _INFO.pack(0, 0, 0, 0, 0, 0) + _attributes(change) + nl.attribute(_LINKINFO, info)
    connection.request(nl.NEWLINK, body + (nl.attribute(_LINK, lower) if lower else b""), nl.EXCL_AND_CREATE)


def decode(body: bytes) -> Link:
    """Return the interface in a message."""
    _, _, _, index, flags, _ = _INFO.unpack_from(body.ljust(_INFO.size, b"\0"))
    found = nl.attributes(body[_INFO.size :])
    info = nl.attributes(found.get(_LINKINFO, b""))
    kind, options = nl.text(info, _INFO_KIND), nl.attributes(info.get(_INFO_DATA, b""))
    bus, parent = nl.text(found, _PARENT_BUS), nl.text(found, _PARENT)
    return Link(
        index=index,
        name=nl.text(found, _NAME),
        is_up=bool(flags & _UP),
        mtu=nl.number(found, _MTU),
        mac=found.get(_ADDRESS, b"").hex(":"),
        alias=nl.text(found, _ALIAS),
        kind=kind,
        data=b"".join(nl.attribute(x, options[x]) for x in _OPTIONS.get(kind, ()) if x in options),
        lower=nl.number(found, _LINK),
        lower_namespace=nl.number(found, _LINK_NAMESPACE) if _LINK_NAMESPACE in found else None,
        master=nl.number(found, _MASTER),
        parent=f"{bus}/{parent}" if parent else "",
        permanent=found.get(_PERMANENT, b"").hex(":"),
        min_mtu=nl.number(found, _MIN_MTU),
        max_mtu=nl.number(found, _MAX_MTU),
    )


def _attributes(change: LinkChange) -> bytes:
    parts = [
        b"" if change.name is None else nl.attribute(_NAME, change.name),
        b"" if change.mtu is None else nl.attribute(_MTU, change.mtu),
        b"" if change.mac is None else nl.attribute(_ADDRESS, bytes.fromhex(change.mac.replace(":", ""))),
        b"" if change.alias is None else nl.attribute(_ALIAS, change.alias.encode()),
    ]
    return b"".join(parts)


def _namespace_attribute(namespace: int | None) -> bytes:
    return b"" if namespace is None else nl.attribute(_NAMESPACE, namespace)
