"""The network interfaces that carry the node's default routes, themselves or below a bond, bridge, VLAN or tunnel.

No resource offers them, because a pod with one would disconnect the node. They are known only if the visible routes
belong to the visible interfaces:

1. /proc/net is of our own network namespace; a mounted /sys is of the one in which it was mounted, which in a DaemonSet
   is the node's. Where both name other interfaces, the routes of process 1 are asked, which is the node's with hostPID.
2. A way out must end at hardware. Where default routes lead only to virtual interfaces (a container's, a VPN's, Open
   vSwitch's), the hardware behind them is not seen from here.
3. A node without a default route, for a moment (DHCP) or for good (a network of its own), is reached by the networks
   that it is in: what has a route carries it then, and what is part of another interface, such as a VRF. IPv4's
   default routes in other tables than main are not in /proc, and of one with several ways (ECMP) only the first;
   code that offers or moves interfaces also asks the kernel for these (netlink/routes.py).

If they are not known, every interface with hardware, and every interface on top of it, may be an uplink: only a
resource with `dangerous: true` offers those. A virtual function that is down carries nothing, and is not an uplink.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from hostdevices.device import AttributeValue
from hostdevices.host import Host

_NET = "/sys/class/net"
_TABLE_LIMIT = 4 << 20  # bytes; a default route is at the beginning, however many others follow
_ANY_4 = b"00000000"
_ANY_6 = b"0" * 32
_REJECT, _LOCAL = 0x0200, 0x80000000  # RTF_REJECT, linux/route.h; RTF_LOCAL, linux/ipv6_route.h
_IFF_UP = 0x1
MAX_TRIES = 3
"""How often the interfaces of /sys and those of a namespace are compared: some change between the two lists."""

OTHER_NAMESPACE = (
    "the routes that are visible here belong to another network namespace than the interfaces of /sys:"
    " the node's uplink is known only with hostNetwork or hostPID"
)
NO_HARDWARE = (
    "the default routes lead to no hardware that is visible here: it is not known which interface is the node's uplink"
)


class Uplinks(Struct, frozen=True):
    """The interfaces that carry the node, and those that might: `unknown_reason` is the reason why it is unknown."""

    carrying: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    unknown_reason: str = ""

    def mark(self, name: str) -> dict[str, bool]:
        """Return the attributes that an interface gets from this."""
        return {"uplinkUnknown": True} if name in self.possible else {"uplink": name in self.carrying}

    def mark_function(self, facts: Mapping[str, AttributeValue], names: Collection[str]) -> dict[str, bool]:
        """Return the attributes that a PCI function with these `facts` gets from its interfaces `names`."""
        if self.carrying.intersection(names):
            return {"uplink": True}
        if not self.unknown_reason or not str(facts.get("class", "")).startswith("02"):
            return {}
        driver = str(facts.get("driver", ""))
        # Without a driver, or with one for user space, it has no interface in any namespace. With another driver it has
        # one somewhere, even if it is not visible here.
        is_free = not driver or "vfio" in driver or "uio" in driver or (names and self.possible.isdisjoint(names))
        return {} if is_free else {"uplinkUnknown": True}


def uplinks(host: Host) -> Uplinks:
    """Return the known facts about the interfaces that carry the node."""
    routes = _routes_of_shown_interfaces(host)
    if routes is None:
        return Uplinks(possible=_possible_uplinks(host), unknown_reason=OTHER_NAMESPACE)
    with_default_route, others = _routed(host, routes)
    if not with_default_route:
        in_others = {x for x in host.list(_NET) if host.exists(f"{_NET}/{x}/master")}  # a VRF has a table of its own
        stacks = (with_lower_interfaces(host, {name}) for name in others | in_others)
        return Uplinks(frozenset().union(*(stack for stack in stacks if _has_hardware(host, stack))))
    carrying = with_lower_interfaces(host, with_default_route)
    if carrying and not _has_hardware(host, carrying):
        return Uplinks(carrying, _possible_uplinks(host) - carrying, NO_HARDWARE)
    return Uplinks(carrying)


def _routes_of_shown_interfaces(host: Host) -> str | None:
    """Return the folder of /proc with the routes of the interfaces in /sys; None if there is none."""
    for _ in range(MAX_TRIES):
        shown = shown_interfaces(host)
        for folder in ("/proc/net", "/proc/1/net"):
            listed = {_text(line.partition(b":")[0]) for line in _lines(host, f"{folder}/dev")[2:] if line} - {""}
            # A stored tree might have no list; then nothing contradicts its routes.
            if listed == shown or (not listed and not host.is_live() and folder == "/proc/net"):
                return folder
    return None


def shown_interfaces(host: Host) -> set[str]:
    """Return the names of the interfaces in /sys, of whichever network namespace."""
    return {name for name in host.list(_NET) if host.target(f"{_NET}/{name}") is not None}


def _possible_uplinks(host: Host) -> frozenset[str]:
    """Return all possible uplinks: interfaces with hardware, and those that are stacked on them."""
    found: set[str] = set()
    waiting = {x for x in host.list(_NET) if host.exists(f"{_NET}/{x}/device") and not _is_idle_function(host, x)}
    while waiting:
        name = waiting.pop()
        found.add(name)
        above = {x.removeprefix("upper_") for x in host.list(f"{_NET}/{name}") if x.startswith("upper_")}
        waiting |= above - found
    return frozenset(found)


def _is_idle_function(host: Host, name: str) -> bool:
    """Return whether an interface belongs to a virtual function and is down."""
    if not host.exists(f"{_NET}/{name}/device/physfn"):
        return False
    flags = _number(host.read_bytes(f"{_NET}/{name}/flags") or b"")
    return flags is not None and not flags & _IFF_UP


def with_lower_interfaces(host: Host, names: set[str]) -> frozenset[str]:
    """Return interfaces with everything that they are stacked on, and their masters."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        below = (x.removeprefix("lower_") for x in host.list(f"{_NET}/{name}") if x.startswith("lower_"))
        waiting.update(below)
        if master := host.link(f"{_NET}/{name}/master"):
            waiting.add(master)
    return frozenset(found)


def _has_hardware(host: Host, names: Iterable[str]) -> bool:
    return any(host.exists(f"{_NET}/{name}/device") for name in names)


def _routed(host: Host, folder: str) -> tuple[set[str], set[str]]:
    """Return the interfaces with a default route, and those with another one that leads out of the node."""
    with_default_route: set[str] = set()
    others: set[str] = set()
    for fields in map(bytes.split, _lines(host, f"{folder}/route")):
        if len(fields) >= 8 and not _rejects(fields[3]):
            (with_default_route if fields[1] == fields[7] == _ANY_4 else others).add(_text(fields[0]))
    for fields in map(bytes.split, _lines(host, f"{folder}/ipv6_route")):
        if len(fields) >= 10 and not _rejects(fields[8]):
            is_default = fields[0] == _ANY_6 and fields[1] == b"00"
            if is_default or not _is_own(fields):
                (with_default_route if is_default else others).add(_text(fields[9]))
    return with_default_route - {""}, others - {""}


def _is_own(fields: Sequence[bytes]) -> bool:
    """Return whether a route of IPv6 is one that every interface has: to itself, link-local, or multicast."""
    flags = _number(fields[8]) or 0
    return bool(flags & _LOCAL) or fields[0].startswith((b"fe8", b"fe9", b"fea", b"feb", b"ff"))


def _lines(host: Host, path: str) -> list[bytes]:
    # As bytes: an interface's name can contain characters that Python takes for white space or the end of a line.
    return (host.read_bytes(path, _TABLE_LIMIT) or b"").split(b"\n")


def _text(name: bytes) -> str:
    """Return an interface's name; empty if the name is not UTF-8, for which host.py treats it as missing."""
    try:
        return name.strip().decode()
    except UnicodeDecodeError:
        return ""


def _number(digits: bytes) -> int | None:
    try:
        return int(digits, 16)
    except ValueError:
        return None


def _rejects(flags: bytes) -> bool:
    number = _number(flags)
    return number is None or bool(number & _REJECT)
