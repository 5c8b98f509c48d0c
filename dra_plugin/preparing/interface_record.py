"""Interfaces that move into pods, as their claim's lease stores them: the state at home and inside the pod.

An interface is identified by the device that it is a port of, which no container can change. A virtual one has none and
is identified by a mark: an alias, which moves with it and states how it was, also for people and for a daemon that has
lost its ledger.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from hostdevices import Device

if TYPE_CHECKING:
    from netlink import Link

MARK = "nodeplug:"
_MAX_NAME = 15  # bytes of an interface's name
_MARK = re.compile(rf"{MARK}([^,/:\s]+),([0-9]{{1,9}}),((?:[0-9a-f]{{2}}(?::[0-9a-f]{{2}})*)?),.*")


class Location(Enum):
    """Where an interface is: here, in the network namespace of a pod, or (for now) not found anywhere."""

    HOME = "home"
    IN_POD = "in-pod"
    LOST = "lost"


class LinkState(Struct, frozen=True):
    """The configuration of an interface. `addresses` are the permanent ones of global scope; only they can move.

    `details` are the properties of those addresses that have any (`netlink.addresses`).
    """

    name: str
    mtu: int
    mac: str
    alias: str = ""
    addresses: tuple[str, ...] = ()
    is_up: bool = False
    details: Mapping[str, bytes] = {}


class Interface(Struct, frozen=True):
    """An interface of a claim: `home` is its state before and afterwards, `inside` its state in the pod.

    `device` is the device as offered, `alias` its alias at that time. `parent` and `permanent` are the kernel's names
    of the hardware, see `netlink.Link`; `kind`, `data` and `lower` (a name) describe a virtual interface.
    """

    device: Device
    home: LinkState
    inside: LinkState
    alias: str = ""
    parent: str = ""
    permanent: str = ""
    kind: str = ""
    data: bytes = b""
    lower: str = ""

    def matches(self, link: "Link") -> bool:
        """Return whether `link`, of any network namespace, is this interface."""
        if self.parent:
            is_same_card = not (self.permanent and link.permanent) or self.permanent == link.permanent
            return link.parent == self.parent and is_same_card
        if link.alias.startswith(MARK):
            return link.alias in (self.inside.alias, self.alias)
        return link.name == self.home.name and link.kind == self.kind and link.mac in (self.home.mac, self.inside.mac)


def mark(name: str, mtu: int, mac: str, uid: str) -> str:
    """Return the alias of a claim's interface: its previous state, and the claim's uid."""
    return f"{MARK}{name},{mtu},{mac},{uid}"


def state_from_mark(alias: str) -> LinkState | None:
    """Return an interface's state before it got this alias; None if the alias is not a mark of nodeplug."""
    found = _MARK.fullmatch(alias)
    if found is None or found[1] in (".", "..") or len(found[1].encode()) > _MAX_NAME:
        return None
    return LinkState(found[1], int(found[2]), found[3])
