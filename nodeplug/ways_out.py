"""Default routes that /proc does not tell: those of other tables, and of several ways (ECMP) all but the first.

The network cards that they lead over, themselves or below a bond, bridge or VLAN, are uplinks, too, which nobody is
offered (hostdevices/readers/uplinks.py). The kernel is asked of our own network namespace. Where /sys shows another
one's interfaces nothing is added: readers have said that it cannot be told, or know with hostPID what /proc tells.
"""

import socket
from functools import partial

from msgspec import structs

from hostdevices import Device, Host, Inventory, Problem
from hostdevices.certainty import certainly
from hostdevices.readers.pci import function_above
from hostdevices.readers.uplinks import ROUNDS, shown_interfaces, with_what_is_below
from netlink import ways_out
from netlink.connection import Connection

_NET = "/sys/class/net"


def with_ways_out(host: Host, inventory: Inventory) -> Inventory:
    """Return the inventory, its interfaces and PCI functions over which a default route leads marked as uplinks.

    Raises `HostExhausted` where the kernel does not say that now: an uplink must not pass for an ordinary card.
    """
    try:
        names = certainly(partial(_ways_out, host))
    except OSError as error:  # it never does here, for a sandbox is in between
        problem = Problem("routes", f"default routes of other tables than main are not known: {error}")
        return structs.replace(inventory, problems=(*inventory.problems, problem))
    functions = {function_above(host.resolve(f"{_NET}/{name}") or "") for name in names} - {None}
    found = {
        i: _as_uplink(device)
        for i, device in inventory.devices.items()
        if ((device.kind == "nic" and device.name in names) or (device.kind == "pci" and device.syspath in functions))
        and device.attributes.get("uplink") is not True
    }
    return structs.replace(inventory, devices={**inventory.devices, **found}) if found else inventory


def _ways_out(host: Host) -> frozenset[str]:
    """Return the names of the interfaces that carry default routes. Raises OSError."""
    for _ in range(ROUNDS):
        known = dict(socket.if_nameindex())
        if shown_interfaces(host) == set(known.values()):
            break
    else:
        return frozenset()
    with Connection() as kernel:
        names = {known[index] for index in ways_out(kernel) if index in known}
    return with_what_is_below(host, names)


def _as_uplink(device: Device) -> Device:
    attributes = {name: value for name, value in device.attributes.items() if name != "uplinkUnknown"}
    return structs.replace(device, attributes={**attributes, "uplink": True})
