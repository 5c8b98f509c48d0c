"""`vhostNet`: whether the additional device nodes exist.

They belong to no device class: the kernel provides /dev/vhost-net without its module, which the first open loads.
"""

from collections.abc import Iterable

from msgspec import structs

from hostdevices import Host, Inventory
from resources.resource import VHOST_NET, Resource


def with_vhost_net(host: Host, inventory: Inventory, resources: Iterable[Resource]) -> Inventory:
    """Return the inventory; if a resource needs the nodes, its devices have those that are missing."""
    if not any(resource.vhost_net for resource in resources):
        return inventory
    absent = tuple(path for path in VHOST_NET if host.devnode(path) is None)
    if not absent:
        return inventory
    found = {i: structs.replace(x, absent_services=(*x.absent_services, *absent)) for i, x in inventory.devices.items()}
    return Inventory(found, inventory.problems)
