"""Disks, partitions, loop devices, and NVMe controllers: offered only where a resource names them as dangerous.

They are listed so that a configuration can name them by what they are, and so that `discover` shows all of the host.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.place import Place, Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, text

_SECTOR = 512  # bytes; what `size` counts, whatever the disk's own sectors are
_CONTROLLER = re.compile(r"nvme[0-9]+")


class _Disk(NamedTuple):
    """A whole disk, as its partitions need it."""

    id: str
    within: tuple[str, ...]
    place: Place
    wwid: str | None = None


class _Disks:
    """The whole disks, in the order in which they are listed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._places = Places(host)
        self._found: dict[str, _Disk] = {}

    def at(self, syspath: str) -> _Disk:
        """Return the disk at `syspath`. Raises `UnreadableFile`."""
        if syspath not in self._found:
            place = self._places.of(syspath)
            identity, within = self._places.identify("block", place)
            if place.function and "/nvme/nvme" in syspath:
                within = (device_id("nvme", *place.facts), *within)
            self._found[syspath] = _Disk(identity, within, place)
        disk = self._found[syspath]
        named = (text(self._host, f"{syspath}/{x}") for x in ("wwid", "device/wwid", "dm/uuid", "md/uuid"))
        wwid = next(filter(None, named), None)
        return disk._replace(id=device_id("block", wwid), wwid=wwid) if wwid else disk


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
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            **disk.place.attributes,
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
            attributes=known(attributes),
            devnodes=nodes,
            numa_nodes=disk.place.numa_nodes,
            within=(disk.id, *disk.within) if is_partition else disk.within,
        )

    yield from each(entries(host, "/sys/class/block"), block)


def read_nvme(host: Host) -> Iterator[Finding]:
    """Yield one device per NVMe controller."""
    places = Places(host)

    def controller(syspath: str) -> Device:
        name = syspath.rpartition("/")[2]
        place = places.of(syspath)
        identity, within = places.identify("nvme", place)
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            **place.attributes,
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
            attributes=known(attributes),
            devnodes=devnodes(host, syspath),
            numa_nodes=place.numa_nodes,
            within=within,
        )

    yield from each(entries(host, "/sys/class/nvme", lambda x: _CONTROLLER.fullmatch(x) is not None), controller)


BLOCK = Reader("block", frozenset({"block"}), read_block)
NVME = Reader("nvme", frozenset({"nvme"}), read_nvme)
