"""Disks, partitions, loop devices, and NVMe controllers: offered only where a resource names them as dangerous.

They are listed so that a configuration can name them by what they are, and so that `discover` shows all of the host.
"""

import re
from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, text

_SECTOR = 512  # bytes; what `size` counts, whatever the disk's own sectors are
_CONTROLLER = re.compile(r"nvme[0-9]+")


def read_block(host: Host) -> Iterator[Finding]:
    """Yield one device per block device that has a node."""
    places = Places(host)

    def disk(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        partition = natural(host, f"{syspath}/partition")
        whole = syspath if partition is None else syspath.rpartition("/")[0]
        role = () if partition is None else (f"part{partition}",)
        place = places.of(whole)
        identity, within = places.identify("block", place, *role)
        if place.function and "/nvme/nvme" in whole:
            within = (device_id("nvme", *place.facts), *within)
        named = (text(host, f"{whole}/{file}") for file in ("wwid", "device/wwid", "dm/uuid", "md/uuid"))
        wwid = next(filter(None, named), None)
        disk_id = device_id("block", wwid) if wwid else device_id("block", *place.facts)
        if wwid:
            identity = device_id("block", wwid, *role)
        if role:
            within = (disk_id, *within)
        nodes = devnodes(host, syspath)
        if not nodes:
            return None
        sectors = natural(host, f"{syspath}/size")
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            **place.attributes,
            "size": sectors * _SECTOR if sectors is not None else None,
            "readOnly": host.read(f"{syspath}/ro") == "1",
            "removable": host.read(f"{whole}/removable") == "1",
            "model": text(host, f"{whole}/device/model"),
            "serial": text(host, f"{whole}/serial") or text(host, f"{whole}/device/serial"),
            "wwid": wwid,
            "partition": partition,
        }
        return Device(
            id=identity,
            kind="block",
            name=name,
            syspath=syspath,
            attributes=known(attributes),
            devnodes=nodes,
            numa_nodes=place.numa_nodes,
            within=within,
        )

    yield from each(entries(host, "/sys/class/block"), disk)


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
