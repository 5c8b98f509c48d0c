"""The interfaces that default routes lead over: of all tables, and each way of a route that has several.

/proc/net/route has the main table alone, and of several ways (ECMP) the first.
"""

import socket
import struct
from collections.abc import Iterator

from netlink import messages as nl
from netlink.connection import Connection

_INFO = struct.Struct("=BBBBBBBBI")  # struct rtmsg: family, lengths of both addresses, tos, table, ..., type, flags
_WAY = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, index
_INTERFACE, _WAYS = 4, 9
_UNICAST = 1  # RTN_UNICAST: one that leads somewhere


def ways_out(connection: Connection) -> frozenset[int]:
    """Return the indices of the interfaces over which a default route leads. Raises `NetlinkError`."""
    found: set[int] = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        for each in connection.dump(nl.GETROUTE, _INFO.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            if each.type == nl.NEWROUTE:
                found.update(_over(each.body))
    return frozenset(found)


def _over(body: bytes) -> Iterator[int]:
    """Yield the interfaces of a route if it is a default route."""
    _, length, _, _, _, _, _, kind, _ = _INFO.unpack_from(body)
    if length != 0 or kind != _UNICAST:
        return
    values = nl.attributes(body[_INFO.size :])
    if index := nl.number(values, _INTERFACE):
        yield index
    ways = values.get(_WAYS, b"")
    while len(ways) >= _WAY.size:
        size, _, _, index = _WAY.unpack_from(ways)
        yield index
        ways = ways[max(size, _WAY.size) :]
