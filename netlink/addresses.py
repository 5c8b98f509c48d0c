"""The addresses of interfaces: those that stay (no DHCP lease) and are of global scope, as `192.0.2.7/24`."""

import errno
import socket
import struct

from netlink import messages as nl
from netlink.connection import Connection, NetlinkError

_INFO = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, prefix length, flags, scope, index
_ADDRESS, _LOCAL = 1, 2
_PERMANENT, _GLOBAL = 0x80, 0


def addresses(connection: Connection, *, all_of_them: bool = False) -> dict[int, tuple[str, ...]]:
    """Return the addresses of all interfaces here, by their indices. Raises `NetlinkError`.

    `all_of_them`: also those of a DHCP lease, and link-local ones.
    """
    found: dict[int, tuple[str, ...]] = {}
    for each in connection.dump(nl.GETADDR, _INFO.pack(0, 0, 0, 0, 0)):
        if each.type != nl.NEWADDR:
            continue
        family, prefix, flags, scope, index = _INFO.unpack_from(each.body)
        values = nl.attributes(each.body[_INFO.size :])
        value = values.get(_LOCAL) or values.get(_ADDRESS, b"")
        is_meant = all_of_them or (flags & _PERMANENT and scope == _GLOBAL)
        if is_meant and family in (socket.AF_INET, socket.AF_INET6):
            found[index] = (*found.get(index, ()), f"{socket.inet_ntop(family, value)}/{prefix}")
    return found


def add_address(connection: Connection, index: int, address: str) -> None:
    """Give an interface an address; one that it has is fine. Raises `NetlinkError`."""
    try:
        connection.request(nl.NEWADDR, _body(index, address), nl.EXCL_AND_CREATE)
    except NetlinkError as error:
        if error.errno != errno.EEXIST:
            raise


def remove_address(connection: Connection, index: int, address: str) -> None:
    """Take an address from an interface; one that it has not is fine. Raises `NetlinkError`."""
    try:
        connection.request(nl.DELADDR, _body(index, address))
    except NetlinkError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise


def _body(index: int, address: str) -> bytes:
    host, _, prefix = address.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    value = socket.inet_pton(family, host)
    local = nl.attribute(_LOCAL, value) if family == socket.AF_INET else b""
    return _INFO.pack(family, int(prefix), 0, _GLOBAL, index) + local + nl.attribute(_ADDRESS, value)
