"""Disks, partitions, loop devices, and NVMe controllers: offered only by a resource with `dangerous: true`.

They are listed so that a configuration can select them by attributes, and so that `discover` shows the whole host.

With native multipath, a disk that several NVMe controllers can share lies below their subsystem in sysfs. It is a part
of each of these controllers. Source: Linux, drivers/nvme/host/core.c and multipath.c.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.location import SysfsLocation, SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import state
from hostdevices.readers.sysfs import devnodes, known, natural, natural_order, text

_SECTOR = 512  # bytes; the unit of `size`, whatever the disk's own sectors are
_SCSI = re.compile(r"/[0-9]+:([0-9]+:[0-9]+:[0-9]+)/block/")  # host, channel, target, unit
_ATA = re.compile(r".*/(ata[0-9]+)(?=/)")  # a port, by a number that is counted up over all controllers
_CONTROLLER = re.compile(r"nvme[0-9]+")
_SUBSYSTEM = re.compile(r"/nvme-subsystem/nvme-subsys[0-9]+$")


class _Disk(NamedTuple):
    """A whole disk, as its partitions need it."""

    id: str
    parents: tuple[str, ...]
    location: SysfsLocation
    wwid: str | None = None


class _Disks:
    """The whole disks, in the order of their listing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._locations = SysfsLocations(host)
        self._found: dict[str, _Disk] = {}

    def at(self, syspath: str) -> _Disk:
        """Return the disk at `syspath`. Raises `UnreadableFile`."""
        if syspath not in self._found:
            paths = list(_controllers_of_subsystem(self._host, syspath)) or [syspath]
            places = [self._locations.of(path) for path in paths]
            location = places[0] if len(places) == 1 else self._locations.of(syspath)
            identity, own = self._locations.identify("block", location, *_place_on_controller(self._host, syspath))
            wholes = (x for path, place in zip(paths, places, strict=True) for x in _wholes(path, place))
            self._found[syspath] = _Disk(identity, tuple(dict.fromkeys((*wholes, *own))), location)
        disk = self._found[syspath]
        named = (text(self._host, f"{syspath}/{x}") for x in ("wwid", "device/wwid", "dm/uuid", "md/uuid"))
        wwid = next(filter(None, named), None)
        return disk._replace(id=device_id("block", wwid), wwid=wwid) if wwid else disk


def _controllers_of_subsystem(host: Host, syspath: str) -> Iterator[str]:
    """Yield the syspaths of the NVMe controllers of a disk that is below their subsystem in sysfs."""
    subsystem = syspath.rpartition("/")[0]
    if _SUBSYSTEM.search(subsystem):
        names = sorted(filter(_CONTROLLER.fullmatch, host.list(subsystem)), key=natural_order)
        yield from filter(None, (host.resolve(f"{subsystem}/{name}") for name in names))


def _wholes(path: str, place: SysfsLocation) -> tuple[str, ...]:
    """Return the ids of the wholes of a disk along one path to it."""
    controller = (device_id("nvme", *place.facts),) if place.function and "/nvme/nvme" in path else ()
    return (*controller, *place.parents)


def _place_on_controller(host: Host, syspath: str) -> tuple[str, ...]:
    """Return the place of a SCSI disk on its controller, `0:1:0`, without the host's number; empty for the first.

    At a SATA controller each port is a separate host: `ata2`, by its number there. Disks without a name of their own
    (in virtual machines and card readers, optical drives) are identified by this, not by their order.
    """
    found, port = _SCSI.search(syspath), _ATA.match(syspath)
    number = natural(host, f"{port[0]}/ata_port/{port[1]}/port_no") if port else None
    place = (found[1],) if found and found[1] != "0:0:0" else ()
    return (f"ata{number}", *place) if number is not None and number > 1 else place


def read_block(host: Host) -> Iterator[Finding]:
    """Yield one device per block device that has a node."""
    disks = _Disks(host)

    def block(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        is_partition = host.exists(f"{syspath}/partition")
        whole = syspath.rpartition("/")[0] if is_partition else syspath
        disk = disks.at(whole)
        partition = natural(host, f"{syspath}/partition")
        nodes = devnodes(host, syspath)
        if not nodes:
            return None
        sectors = natural(host, f"{syspath}/size")
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            **disk.location.attributes,
            "size": sectors * _SECTOR if sectors is not None else None,
            "readOnly": host.read(f"{syspath}/ro") == "1",
            "removable": host.read(f"{whole}/removable") == "1",
            "model": text(host, f"{whole}/device/model"),
            "serial": text(host, f"{whole}/serial") or text(host, f"{whole}/device/serial"),
            "wwid": disk.wwid,
            "partition": partition,
        }
        return Device(
            id=device_id(disk.id, f"part{partition}") if is_partition else disk.id,
            kind="block",
            name=name,
            syspath=syspath,
            attributes=known(facts),
            devnodes=nodes,
            numa_nodes=disk.location.numa_nodes,
            parents=(disk.id, *disk.parents) if is_partition else disk.parents,
        )

    yield from each(entries(host, "/sys/class/block"), block)


def read_nvme(host: Host) -> Iterator[Finding]:
    """Yield one device per NVMe controller."""
    locations = SysfsLocations(host)

    def controller(syspath: str) -> Device:
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        identity, parents = locations.identify("nvme", location)
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            **location.attributes,
            "model": text(host, f"{syspath}/model"),
            "serial": text(host, f"{syspath}/serial"),
            "firmwareRevision": text(host, f"{syspath}/firmware_rev"),
            "transport": text(host, f"{syspath}/transport"),
            "state": text(host, f"{syspath}/state"),
        }
        return Device(
            id=identity,
            kind="nvme",
            name=name,
            syspath=syspath,
            attributes=known(facts),
            devnodes=devnodes(host, syspath),
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/class/nvme", lambda x: _CONTROLLER.fullmatch(x) is not None), controller)


BLOCK = Reader(
    "block",
    frozenset({"block", "nvme"}),  # a controller that joins a subsystem adds no new disk
    read_block,
    one_per="disk, partition, loop device",
    attributes=attributes("""
        size       integer  in bytes
        readOnly   boolean
        removable  boolean
        model      text
        serial     text
        wwid       text     the world-wide identifier
        partition  integer  of a partition: its number
    """),
    presets={
        "block": PresetFacts("disks, partitions and loop devices", is_dangerous=True),
        "loop": PresetFacts("loop devices", {"name": "loop*"}, is_dangerous=True),
    },
    signals=state("device/state", "running", "live"),
)
NVME = Reader(
    "nvme",
    frozenset({"nvme"}),
    read_nvme,
    one_per="NVMe controller",
    attributes=attributes("""
        model             text
        serial            text
        firmwareRevision  text
        transport         text  "pcie", "tcp", "rdma", "fc"
        state             text  "live" if it works
    """),
    presets={"nvme": PresetFacts("NVMe controllers", is_dangerous=True)},
    signals=state("state", "live"),
    is_polled=True,
    needs_node=True,
)
READERS = (BLOCK, NVME)
