"""Default routes that /proc does not show: those of other tables, and of several ways (ECMP) all but the first.

Network cards of such routes in the main table, themselves or below a bond, bridge or VLAN, are also uplinks, which are
never offered (hostdevices/readers/uplinks.py). A card that has only a route of another table may be one to offer,
because a cloud's agent makes a table for each card: only a resource with `dangerous: true` offers it.

The kernel reports the routes of our own network namespace. If /sys shows the interfaces of another one, nothing is
added: the readers have reported that the uplink is unknown, or know it from /proc with hostPID.
"""

import socket
from collections.abc import Iterator
from functools import partial

from msgspec import structs

from hostdevices import Device, Host, Inventory, Problem
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.readers.pci import function_above
from hostdevices.readers.uplinks import MAX_TRIES, shown_interfaces, with_lower_interfaces
from netlink import default_route_interfaces
from netlink.connection import Connection

_NET = "/sys/class/net"


def with_default_routes(host: Host, inventory: Inventory) -> Inventory:
    """Return the inventory; interfaces and PCI functions that carry a default route are marked.

    Raises `HostExhausted` if the kernel does not answer now: an uplink must not pass for an ordinary card.
    """
    try:
        uplinks, others = call_conclusively(partial(_default_route_interfaces, host))
    except OSError as error:  # permanent here: a sandbox is in between
        problem = Problem("routes", f"default routes of other tables than main are not known: {error}")
        return structs.replace(inventory, problems=(*inventory.problems, problem))
    found = {i: _as_other(device) for i, device in _carriers(host, inventory, others)}
    found |= {i: _as_uplink(device) for i, device in _carriers(host, inventory, uplinks)}
    return structs.replace(inventory, devices={**inventory.devices, **found}) if found else inventory


def _carriers(host: Host, inventory: Inventory, names: frozenset[str]) -> Iterator[tuple[str, Device]]:
    """Yield the devices, with their ids, that are or carry these interfaces, and that are not marked as uplinks."""
    functions = {function_above(host.resolve(f"{_NET}/{name}") or "") for name in names} - {None}
    for i, device in inventory.devices.items():
        is_carrier = device.name in names if device.kind == "nic" else device.syspath in functions
        if device.kind in ("nic", "pci") and is_carrier and device.attributes.get("uplink") is not True:
            yield i, device


def _default_route_interfaces(host: Host) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the interfaces that carry default routes: of the main table, and of others.

    Raises OSError.
    """
    for _ in range(MAX_TRIES):
        known = dict(socket.if_nameindex())
        if shown_interfaces(host) == set(known.values()):
            break
    else:
        return frozenset(), frozenset()
    with Connection() as kernel:
        main, others = (
            {known[index] for index in found if index in known} for found in default_route_interfaces(kernel)
        )
    return with_lower_interfaces(host, main), with_lower_interfaces(host, others)


def _as_uplink(device: Device) -> Device:
    attributes = {name: value for name, value in device.attributes.items() if name != "uplinkUnknown"}
    return structs.replace(device, attributes={**attributes, "uplink": True})


def _as_other(device: Device) -> Device:
    return structs.replace(device, attributes={**device.attributes, "otherDefaultRoute": True})
