"""The other network namespaces that have a number in this one: all those into which one of our interfaces was moved."""

import struct

from netlink import messages as nl
from netlink.connection import Connection

_FAMILY = struct.Struct("=Bxxx")  # struct rtgenmsg
_ID = 1


def namespaces(connection: Connection) -> list[int]:
    """Return their numbers, for `links`. A namespace that ends loses its number first. Raises `NetlinkError`."""
    answers = connection.dump(nl.GETNSID, _FAMILY.pack(0))
    found = (nl.attributes(each.body[_FAMILY.size :]) for each in answers if each.type == nl.NEWNSID)
    return sorted(nl.number(each, _ID) for each in found)
