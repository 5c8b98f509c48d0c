"""Plans the move of an interface into a pod from the kernel's data of all interfaces, without changing any.

Refused is what would take the node or another user off the network: the uplink, an interface that is part of another
one or carries others, an address that the node itself has.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.interface_config import (
    InterfaceConfig,
    InterfaceRefused,
    check_allowed,
    interface_name_problem,
    is_unicast,
)
from dra_plugin.preparing.interface_record import Interface, LinkState, mark, state_from_mark
from hostdevices import HEALTHY, Device
from hostdevices.readers.uplinks import Uplinks
from netlink import Link
from resources.resource import InterfaceMoves

_ETHERNET = len("00:00:00:00:00:00")
_IMMOVABLE_TYPES = ("bridge", "wlan")  # Linux, net/bridge/br_device.c, net/wireless/core.c: netns_immutable
_MAX_OWN_ADDRESSES = 16  # of an interface's own addresses, which its claim's lease stores


class Links(Struct, frozen=True):
    """All interfaces at one moment: by name, the permanent addresses (with details) by index, the indices in /sys.

    `all_addresses`: all addresses, also by DHCP, by index. `connected`: those over which the node has connections.
    `default_route_interfaces`: the indices of interfaces with a default route, also one of several routes, or in
    another table.
    `claimed_uppers`: the names of interfaces on which a claim's interface is made, each with that interface's name: it
    can be in its pod, where it is not visible here.
    """

    links: Mapping[str, Link]
    addresses: Mapping[int, Mapping[str, bytes]]
    sysfs_indices: Mapping[str, str]
    uplinks: Uplinks = Uplinks()
    all_addresses: Mapping[int, tuple[str, ...]] = {}
    connected: Mapping[int, tuple[str, ...]] = {}
    default_route_interfaces: frozenset[int] = frozenset()
    claimed_uppers: Mapping[str, str] = {}


def plan_interface(
    nic: Device, config: InterfaceConfig, moves: InterfaceMoves, links: Links, uid: str, where: str
) -> Interface:
    """Return how the interface of `nic` moves for the claim `uid`. Raises `InterfaceRefused`, which names `where`."""
    check_allowed(config, moves, where)
    link = links.links.get(nic.name)
    if link is None or links.sysfs_indices.get(nic.name) != str(link.index):
        raise InterfaceRefused(
            f"{where}: the interface {nic.name} of /sys is not in the daemon's network namespace; run the daemon"
            " in the node's (hostNetwork)"
        )
    _check_movable(nic, link, links, where)
    addresses = links.addresses.get(link.index, {})
    if len(addresses) > _MAX_OWN_ADDRESSES:
        raise InterfaceRefused(
            f"{where}: {nic.name} has {len(addresses)} addresses; at most {_MAX_OWN_ADDRESSES} can move"
        )
    # An interface left behind by a claim states in its alias how it was before; its addresses are that claim's.
    leftover = state_from_mark(link.alias)
    if leftover is not None and not _is_plausible(leftover, link):
        leftover = None  # a pod has written the alias
    if leftover is not None and leftover.name != link.name and leftover.name in links.links:
        leftover = structs.replace(leftover, name=link.name)  # another interface has that name now
    details = {text: x for text, x in addresses.items() if x}
    home = leftover or LinkState(link.name, link.mtu, link.mac, link.alias, tuple(addresses), link.is_up, details)
    inside = LinkState(
        name=config.name or home.name,
        mtu=config.mtu or home.mtu,
        mac=config.mac or home.mac,
        alias=mark(home.name, home.mtu, home.mac, uid),
        addresses=config.addresses or home.addresses,
        details={} if config.addresses else home.details,
    )
    _check_pod_state(inside, link, links, where)
    lower = next((x.name for x in links.links.values() if x.index == link.lower), "")
    return Interface(
        device=structs.replace(nic, name=home.name, health=HEALTHY),
        home=home,
        inside=inside,
        alias=link.alias,
        parent=link.parent,
        permanent=link.permanent,
        kind=link.kind,
        data=link.data,
        lower=lower if link.lower_namespace is None else "",
    )


def _is_plausible(state: LinkState, link: Link) -> bool:
    """Return whether an interface could have been so: a pod with permission to change interfaces can write any mark."""
    is_address = len(state.mac) == len(link.mac) and (len(state.mac) != _ETHERNET or is_unicast(state.mac))
    return is_address and link.min_mtu <= state.mtu <= (link.max_mtu or state.mtu)


def check_names(record: Record, others: Sequence[Record]) -> None:
    """Raise `InterfaceRefused` if two interfaces had the same name in a pod; `others` are the pod's other claims."""
    seen: dict[str, str] = {}
    for each in (*others, record):
        for moved in (x.interface for x in each.allocated if x.interface is not None):
            name = moved.inside.name
            described = f"{moved.device.name} of the claim {each.claim.namespace}/{each.claim.name}"
            if (owner := seen.setdefault(name, described)) != described:
                raise InterfaceRefused(
                    f"device {moved.device.id}: the pod would have two interfaces named {name}, the other one is"
                    f" {owner}; choose names (interface.name), in a request of its own for each"
                )


def _check_movable(nic: Device, link: Link, links: Links, where: str) -> None:
    """Refuse what the kernel keeps here, and what carries the node or something of it."""
    if (kind := nic.attributes.get("devType")) in _IMMOVABLE_TYPES:
        raise InterfaceRefused(f"{where}: {nic.name} is a {kind} interface, which leaves no network namespace")
    is_uplink = any(x.get("uplink") is not False for x in (nic.attributes, links.uplinks.mark(nic.name)))
    if is_uplink or link.index in links.default_route_interfaces:
        raise InterfaceRefused(
            f"{where}: {nic.name} carries the node's own traffic, or may carry it; such an interface is never moved"
        )
    if connected := links.connected.get(link.index):
        raise InterfaceRefused(
            f"{where}: the node has connections over {connected[0]}, an address of {nic.name}; end them first"
            " (`ss -t state established`)"
        )
    if link.master:
        master = next((x.name for x in links.links.values() if x.index == link.master), "another interface")
        raise InterfaceRefused(f"{where}: {nic.name} is a part of {master}; take it out first")
    for other in links.links.values():
        is_upper = other.lower == link.index and other.lower_namespace is None and other.kind != "veth"
        if other.master == link.index or (is_upper and other.index != link.index):
            raise InterfaceRefused(f"{where}: {nic.name} carries {other.name} of the node; remove that first")
    if claimed := links.claimed_uppers.get(link.name):
        raise InterfaceRefused(f"{where}: {nic.name} carries {claimed}, which a claim has; wait until that has ended")


def _check_pod_state(inside: LinkState, link: Link, links: Links, where: str) -> None:
    if why := interface_name_problem(inside.name):
        raise InterfaceRefused(f"{where}: {why}")
    if not link.min_mtu <= inside.mtu <= (link.max_mtu or inside.mtu):
        between = f"{link.min_mtu} to {link.max_mtu}"
        raise InterfaceRefused(f"{where}: {link.name} cannot have the MTU {inside.mtu}; it can have {between}")
    if len(inside.mac) == _ETHERNET and not is_unicast(inside.mac):
        raise InterfaceRefused(f"{where}: {link.name} has no address ({inside.mac}); give it one (interface.mac)")
    taken = {x: index for index, each in links.all_addresses.items() if index != link.index for x in each}
    for text in inside.addresses:
        if (index := taken.get(text.partition("/")[0])) is not None:
            name = next((x.name for x in links.links.values() if x.index == index), "another interface")
            raise InterfaceRefused(f"{where}: the node itself has the address {text}, at {name}; choose another one")
