"""Intel's offload engines beside the processor: QAT functions, and the work queues of DSA and IAA."""

import re
from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.pci import ADDRESS
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural, shared_node, text
from hostdevices.readers.vfio import group_id

# Virtual functions are known by their PCI ids, or by the driver of their physical function (drivers/crypto/intel/qat).
_QAT_VIRTUAL = frozenset({"0443", "18a1", "19e3", "37c9", "4941", "4943", "4945", "4947", "4949", "6f55"})
_QAT_DRIVERS = frozenset({"4xxx", "420xx", "6xxx", "c3xxx", "c6xx", "dh895xcc", "d15xx", "200xx"})
_FUNCTIONS = "/sys/bus/pci/devices"
_QUEUE = re.compile(r"wq[0-9]+\.[0-9]+")


def read_qat(host: Host) -> Iterator[Finding]:
    """Yield one device per QAT function that vfio holds, with the nodes of its group; nothing else can use one."""
    places = Places(host)

    def function(syspath: str) -> Device | None:
        nodes = _group_nodes(host, syspath)
        if not nodes or not _is_qat(host, syspath):
            return None
        place = places.of(syspath)
        identity, within = places.identify("qat", place)
        # A function that vfio holds is listed as its group, too: they have one owner.
        group = group_id(host, syspath)
        attributes: dict[str, AttributeValue | None] = {
            "name": syspath.rpartition("/")[2],
            **place.attributes,
            "driver": host.link(f"{syspath}/driver"),
            "services": text(host, f"{syspath}/physfn/qat/cfg_services"),
            "state": text(host, f"{syspath}/physfn/qat/state"),
        }
        return Device(
            id=identity,
            kind="qat",
            name=syspath.rpartition("/")[2],
            syspath=syspath,
            attributes=known(attributes),
            devnodes=nodes,
            numa_nodes=place.numa_nodes,
            within=(*within, *((group,) if group else ())),
        )

    def is_held(name: str) -> bool:
        return ADDRESS.fullmatch(name) is not None and "vfio" in (host.link(f"{_FUNCTIONS}/{name}/driver") or "")

    yield from each(entries(host, _FUNCTIONS, is_held), function)


def _is_qat(host: Host, syspath: str) -> bool:
    if hexadecimal(host, f"{syspath}/vendor", 4) != "8086":
        return False
    return (
        hexadecimal(host, f"{syspath}/device", 4) in _QAT_VIRTUAL
        or host.link(f"{syspath}/physfn/driver") in _QAT_DRIVERS
    )


def _group_nodes(host: Host, syspath: str) -> tuple[Devnode, ...]:
    group = host.link(f"{syspath}/iommu_group") or ""
    node = shared_node(host, f"/dev/vfio/{group}") or shared_node(host, f"/dev/vfio/noiommu-{group}")
    return node + shared_node(host, "/dev/vfio/vfio") if node else ()


def read_dsa(host: Host) -> Iterator[Finding]:
    """Yield one device per work queue of DSA and IAA that is enabled and meant for user space."""
    places = Places(host)

    def queue(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        if text(host, f"{syspath}/state") != "enabled" or text(host, f"{syspath}/type") != "user":
            return None
        accelerator = syspath.rpartition("/")[0].rpartition("/")[2]
        place = places.of(syspath)
        identity, within = places.identify("dsa", place, f"wq{name.rpartition('.')[2]}")
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            **place.attributes,
            "type": accelerator.rstrip("0123456789"),
            "mode": text(host, f"{syspath}/mode"),
            "size": natural(host, f"{syspath}/size"),
            "priority": natural(host, f"{syspath}/priority"),
            "label": text(host, f"{syspath}/name"),
        }
        return Device(
            id=identity,
            kind="dsa",
            name=name,
            syspath=syspath,
            attributes=known(attributes),
            devnodes=_queue_nodes(host, syspath, accelerator),
            numa_nodes=place.numa_nodes,
            within=within,
        )

    yield from each(entries(host, "/sys/bus/dsa/devices", lambda x: _QUEUE.fullmatch(x) is not None), queue)


def _queue_nodes(host: Host, syspath: str, accelerator: str) -> tuple[Devnode, ...]:
    """Return the node of a work queue: by its character device below it, else where idxd puts it."""
    for name in host.list(syspath):
        if nodes := devnodes(host, f"{syspath}/{name}") if _QUEUE.fullmatch(name) else ():
            return nodes
    kind = accelerator.rstrip("0123456789")
    return shared_node(host, f"/dev/{kind}/{syspath.rpartition('/')[2]}")


QAT = Reader("qat", frozenset({"pci", "vfio"}), read_qat)
DSA = Reader("dsa", frozenset({"dsa"}), read_dsa)
