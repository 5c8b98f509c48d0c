"""The interfaces of default routes, with their table, for each way of a route with several.

/proc/net/route has only the main table, and of several ways (ECMP) only the first. The ways may be separate objects
that routes refer to (`ip nexthop`); with the sysctl nexthop_compat_mode off, the kernel reports only their number for a
route.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netlink import messages as nl
from netlink.connection import Connection

_INFO = struct.Struct("=BBBBBBBBI")  # struct rtmsg: family, lengths of both addresses, tos, table, ..., type, flags
_NEXTHOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, hops, index
_INTERFACE, _MULTIPATH, _TABLE, _OBJECT = 4, 9, 15, 30
_MAIN = 254  # RT_TABLE_MAIN
_OBJECT_INFO = struct.Struct("=BBBBI")  # struct nhmsg
_OBJECT_ID, _OBJECT_GROUP, _OBJECT_INTERFACE = 1, 2, 5
_MEMBER = struct.Struct("=IBBH")  # struct nexthop_grp: the number of an object, weight
_UNICAST = 1  # RTN_UNICAST: a route to a gateway or link


class DefaultRouteInterfaces(NamedTuple):
    """The indices of interfaces with default routes: those in the main table, and those only in others."""

    main: frozenset[int]
    others: frozenset[int]


def default_route_interfaces(connection: Connection) -> DefaultRouteInterfaces:
    """Return the interfaces that have a default route. Raises `NetlinkError`."""
    found: dict[bool, set[int]] = {True: set(), False: set()}  # the key: whether it is in the main table
    objects: dict[bool, set[int]] = {True: set(), False: set()}
    for family in (socket.AF_INET, socket.AF_INET6):
        # filtered on arrival: a router has a million other routes, which would take too much memory
        for each in connection.dump(nl.GETROUTE, _INFO.pack(family, 0, 0, 0, 0, 0, 0, 0, 0), _is_default):
            if each.type == nl.NEWROUTE and _is_default(each.body):
                values = nl.attributes(each.body[_INFO.size :])
                is_main = nl.number(values, _TABLE) == _MAIN
                found[is_main].update(_interfaces(values))
                objects[is_main].add(nl.number(values, _OBJECT))
    for is_main, numbers in objects.items():
        if numbers - {0}:
            found[is_main].update(_through_objects(connection, numbers))
    main = found[True] - {0}
    return DefaultRouteInterfaces(frozenset(main), frozenset(found[False] - main - {0}))


def _is_default(body: bytes) -> bool:
    _, length, _, _, _, _, _, kind, _ = _INFO.unpack_from(body)
    return (length, kind) == (0, _UNICAST)


def _through_objects(connection: Connection, wanted: set[int]) -> Iterator[int]:
    """Yield the interfaces of these nexthop objects, and of the members of groups."""
    answers = connection.dump(nl.GETNEXTHOP, _OBJECT_INFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
    found = (nl.attributes(each.body[_OBJECT_INFO.size :]) for each in answers if each.type == nl.NEWNEXTHOP)
    objects = {nl.number(each, _OBJECT_ID): each for each in found}
    for each in wanted & objects.keys():
        group = objects[each].get(_OBJECT_GROUP, b"")
        members = [number for number, *_ in _MEMBER.iter_unpack(group[: len(group) // _MEMBER.size * _MEMBER.size])]
        yield from (nl.number(objects.get(member, {}), _OBJECT_INTERFACE) for member in (each, *members))


def _interfaces(values: Mapping[int, bytes]) -> Iterator[int]:
    """Yield the interfaces that a route names."""
    yield nl.number(values, _INTERFACE)
    nexthops = values.get(_MULTIPATH, b"")
    while len(nexthops) >= _NEXTHOP.size:
        size, _, _, index = _NEXTHOP.unpack_from(nexthops)
        yield index
        nexthops = nexthops[max(size, _NEXTHOP.size) :]
