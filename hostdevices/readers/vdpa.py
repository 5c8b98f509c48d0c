"""vDPA devices that user space drives through vhost: a virtio network card whose data path is in hardware.

Source: Linux, drivers/vdpa, drivers/vhost/vdpa.c: the node's device is a child of the vDPA device, and in no class.
"""

import re
from collections.abc import Iterator

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known

_NODE = re.compile(r"vhost-vdpa-[0-9]+")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per vDPA device with a node."""
    locations = SysfsLocations(host)

    def vdpa(syspath: str) -> Device | None:
        nodes = tuple(n for x in host.list(syspath) if _NODE.fullmatch(x) for n in devnodes(host, f"{syspath}/{x}"))
        if not nodes:
            return None
        location = locations.of(syspath)
        name = syspath.rpartition("/")[2]
        role = () if location.facts == (name,) else (name,)  # several on one function: their creator names them
        identity, parents = locations.identify("vdpa", location, *role)
        return Device(
            id=identity,
            kind="vdpa",
            name=name,
            syspath=syspath,
            attributes=known({**location.attributes, "name": name, "driver": host.link(f"{syspath}/driver")}),
            devnodes=nodes,
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/bus/vdpa/devices"), vdpa)


VDPA = Reader(
    "vdpa",
    frozenset({"vdpa", "pci"}),
    read,
    one_per="vDPA device with a vhost node",
    presets={"vdpa": PresetFacts("vDPA devices for vhost, in user space or in a virtual machine")},
    needs_node=True,
)
READERS = (VDPA,)
