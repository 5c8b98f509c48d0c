"""Intel's offload engines beside the processor: QAT functions, and the work queues of DSA and IAA.

Sources: Linux, ABI/testing/sysfs-driver-qat and sysfs-driver-dma-idxd.
"""

import re
from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.pci import ADDRESS
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import ErrorCounter, Sample
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural, shared_node, text, text_value
from hostdevices.readers.vfio import group_id

# Virtual functions are identified by their PCI ids, or by the driver of their physical function
# (drivers/crypto/intel/qat).
_QAT_VIRTUAL = frozenset({"0443", "18a1", "19e3", "37c9", "4941", "4943", "4945", "4947", "4949", "6f55"})
_QAT_DRIVERS = frozenset({"4xxx", "420xx", "6xxx", "c3xxx", "c6xx", "dh895xcc", "d15xx", "200xx"})
_FUNCTIONS = "/sys/bus/pci/devices"
_ENGINE_ERRORS = ErrorCounter("fatal errors of the engine", 0)
_QUEUE = re.compile(r"wq[0-9]+\.[0-9]+")


def read_qat(host: Host) -> Iterator[Finding]:
    """Yield one device per QAT function that vfio holds, with the nodes of its group; only those are usable."""
    locations = SysfsLocations(host)

    def function(syspath: str) -> Device | None:
        nodes = _group_nodes(host, syspath)
        if not nodes or not _is_qat(host, syspath):
            return None
        location = locations.of(syspath)
        identity, parents = locations.identify("qat", location)
        # A function that vfio holds is also listed as its group: they have one owner.
        group = group_id(host, syspath)
        facts: dict[str, AttributeValue | None] = {
            "name": syspath.rpartition("/")[2],
            **location.attributes,
            "driver": host.link(f"{syspath}/driver"),
            "services": text(host, f"{syspath}/physfn/qat/cfg_services"),
            "state": text(host, f"{syspath}/physfn/qat/state"),
        }
        return Device(
            id=identity,
            kind="qat",
            name=syspath.rpartition("/")[2],
            syspath=syspath,
            attributes=known(facts),
            devnodes=nodes,
            numa_nodes=location.numa_nodes,
            parents=(*parents, *((group,) if group else ())),
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
    locations = SysfsLocations(host)

    def queue(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        if text(host, f"{syspath}/state") != "enabled" or text(host, f"{syspath}/type") != "user":
            return None
        accelerator = syspath.rpartition("/")[0].rpartition("/")[2]
        location = locations.of(syspath)
        identity, parents = locations.identify("dsa", location, f"wq{name.rpartition('.')[2]}")
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            **location.attributes,
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
            attributes=known(facts),
            devnodes=_queue_nodes(host, syspath, accelerator),
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/bus/dsa/devices", lambda x: _QUEUE.fullmatch(x) is not None), queue)


def _queue_nodes(host: Host, syspath: str, accelerator: str) -> tuple[Devnode, ...]:
    """Return the node of a work queue: by its character device below it, else at idxd's fixed path."""
    for name in host.list(syspath):
        if nodes := devnodes(host, f"{syspath}/{name}") if _QUEUE.fullmatch(name) else ():
            return nodes
    kind = accelerator.rstrip("0123456789")
    return shared_node(host, f"/dev/{kind}/{syspath.rpartition('/')[2]}")


def qat_signals(sample: Sample, syspath: str) -> None:
    """Take the signals of a function's accelerator, which its physical function shows."""
    host = sample.host
    physical = host.resolve(f"{syspath}/physfn") or syspath
    sample.expect(f"{physical}/qat/state", "up")
    sample.count(_ENGINE_ERRORS, f"{physical}/qat_ras/errors_fatal")
    driver, address = host.link(f"{physical}/driver"), physical.rpartition("/")[2]
    if host.read(f"/sys/kernel/debug/qat_{driver}_{address}/heartbeat/status") == "-1":
        sample.faults["heartbeat"] = "its firmware's heartbeat has stopped"


def dsa_signals(sample: Sample, syspath: str) -> None:
    """Take the signals of a work queue and of its accelerator."""
    host = sample.host
    sample.expect(f"{syspath}/state", "enabled")
    accelerator = syspath.rpartition("/")[0]
    state = text(host, f"{accelerator}/state")
    if state and state != "enabled":
        sample.faults["accelerator"] = f"its accelerator's state is {state}, not enabled"
    errors = host.read(f"{accelerator}/errors") or ""
    if any(character not in "0x \n" for character in errors):
        sample.faults["errors"] = f"its accelerator reports errors: {text_value(errors)}"


QAT = Reader(
    "qat",
    frozenset({"pci", "vfio"}),
    read_qat,
    one_per="QAT function that vfio holds",
    attributes=attributes("""
        services  text  of the physical function: "sym;asym", "dc"
        state     text  of the physical function: "up"
    """),
    presets={"qat": PresetFacts("Intel QuickAssist functions")},
    signals=qat_signals,
    is_polled=True,
)
DSA = Reader(
    "dsa",
    frozenset({"dsa"}),
    read_dsa,
    one_per="enabled user work queue of DSA or IAA",
    attributes=attributes("""
        type      text     "dsa", "iax"
        mode      text     "dedicated", "shared"
        size      integer  the number of entries of the queue
        priority  integer
        label     text     the name that the administrator chose
    """),
    presets={
        "dsa": PresetFacts("user work queues of Intel's Data Streaming Accelerator", {"type": "dsa"}),
        "iaa": PresetFacts("user work queues of Intel's Analytics Accelerator", {"type": "iax"}),
    },
    signals=dsa_signals,
    is_polled=True,
    needs_node=True,
)
READERS = (QAT, DSA)
