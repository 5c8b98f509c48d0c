"""rtnetlink: the network interfaces of this network namespace, read, changed and followed.

    Connection -> links, addresses, namespaces        LinkEvents: which interface came, changed or went
    devlink (not imported here): what firmware a PCI function runs

The few messages that are needed, and nothing else: a library for all of rtnetlink takes more memory than the daemon.
Everything blocks (the kernel has one lock for all of this): call from a thread. Source: rtnetlink(7), linux/if_link.h.
"""

from netlink.addresses import add_address, addresses, remove_address
from netlink.connection import Connection, NetlinkError
from netlink.events import LinkEvents
from netlink.links import REMADE, Link, LinkChange, add_link, change_link, link, links
from netlink.namespaces import namespaces
from netlink.routes import WaysOut, ways_out

__all__ = [
    "REMADE",
    "Connection",
    "Link",
    "LinkChange",
    "LinkEvents",
    "NetlinkError",
    "WaysOut",
    "add_address",
    "add_link",
    "addresses",
    "change_link",
    "link",
    "links",
    "namespaces",
    "remove_address",
    "ways_out",
]
