"""rtnetlink: the network interfaces of this network namespace, read, changed and followed.

    Connection -> links, addresses, namespaces        LinkEvents: which interface came, changed or went
    devlink (not imported here): what firmware a PCI function runs

The few messages that are needed, and nothing else: a library for all of rtnetlink takes more memory than the daemon.
Everything blocks (the kernel has one lock for all of this): call from a thread. Source: rtnetlink(7), linux/if_link.h.
"""

from netlink.addresses import add_address, addresses, remove_address
from netlink.connection import Connection, NetlinkError
from netlink.events import LinkEvents
from netlink.links import RECREATABLE_KINDS, Link, LinkChange, add_link, change_link, link, links
from netlink.namespaces import namespaces
from netlink.routes import DefaultRouteInterfaces, default_route_interfaces

__all__ = [
    "RECREATABLE_KINDS",
    "Connection",
    "DefaultRouteInterfaces",
    "Link",
    "LinkChange",
    "LinkEvents",
    "NetlinkError",
    "add_address",
    "add_link",
    "addresses",
    "change_link",
    "default_route_interfaces",
    "link",
    "links",
    "namespaces",
    "remove_address",
]
