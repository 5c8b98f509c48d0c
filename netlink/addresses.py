"""The addresses of interfaces that are permanent (no DHCP lease) and of global scope, as `192.0.2.7/24`."""

import errno
import socket
import struct
from collections.abc import Mapping

from netlink import messages as nl
from netlink.connection import Connection, NetlinkError

_INFO = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, prefix length, flags, scope, index
_ADDRESS, _LOCAL, _LABEL, _BROADCAST, _FLAGS = 1, 2, 3, 4, 8
_COPIED_ATTRIBUTES = (_BROADCAST, 9, 11)  # also the route's metric, and the address's origin
_PERMANENT, _GLOBAL = 0x80, 0
# flags that only the program that adds an address sets: nodad, home, mngtmpaddr, noprefixroute, autojoin
_COPIED_FLAGS = 0x712


def addresses(connection: Connection, *, include_all: bool = False) -> dict[int, dict[str, bytes]]:
    """Return the addresses of all interfaces here, by index, each with its details. Raises `NetlinkError`.

    Details are the properties with which an address was added, for `add_address`: its peer, broadcast address, label,
    flags, the metric of its route; empty for none. Of two addresses that differ only in these, the last one is
    returned. `include_all`: also those of a DHCP lease, and link-local ones.
    """
    found: dict[int, dict[str, bytes]] = {}
    for each in connection.dump(nl.GETADDR, _INFO.pack(0, 0, 0, 0, 0)):
        if each.type != nl.NEWADDR:
            continue
        family, prefix, flags, scope, index = _INFO.unpack_from(each.body)
        values = nl.attributes(each.body[_INFO.size :])
        value = values.get(_LOCAL) or values.get(_ADDRESS, b"")
        is_included = include_all or (flags & _PERMANENT and scope == _GLOBAL)
        if is_included and family in (socket.AF_INET, socket.AF_INET6):
            text = f"{socket.inet_ntop(family, value)}/{prefix}"
            found.setdefault(index, {})[text] = _details(value, values)
    return found


def add_address(connection: Connection, index: int, address: str, details: bytes = b"") -> None:
    """Add an address to an interface; an existing one is no error. Raises `NetlinkError`."""
    try:
        connection.request(nl.NEWADDR, _body(index, address, details), nl.EXCL_AND_CREATE)
    except NetlinkError as error:
        if error.errno != errno.EEXIST:
            raise


def remove_address(connection: Connection, index: int, address: str, details: bytes = b"") -> None:
    """Remove an address from an interface; a missing one is no error. Raises `NetlinkError`."""
    try:
        connection.request(nl.DELADDR, _body(index, address, details))
    except NetlinkError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _details(address: bytes, values: Mapping[int, bytes]) -> bytes:
    parts = [nl.attribute(x, values[x]) for x in _COPIED_ATTRIBUTES if x in values]
    if (peer := values.get(_ADDRESS, address)) != address:
        parts.append(nl.attribute(_ADDRESS, peer))
    if b":" in (label := values.get(_LABEL, b"")):  # otherwise it is the interface's name
        parts.append(nl.attribute(_LABEL, label))
    if flags_set := nl.number(values, _FLAGS) & _COPIED_FLAGS:
        parts.append(nl.attribute(_FLAGS, flags_set))
    return b"".join(parts)


def _body(index: int, address: str, details: bytes) -> bytes:
    host, _, prefix = address.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    value = socket.inet_pton(family, host)
    peer = b"" if _ADDRESS in nl.attributes(details) else nl.attribute(_ADDRESS, value)
    return _INFO.pack(family, int(prefix), 0, _GLOBAL, index) + nl.attribute(_LOCAL, value) + peer + details
