"""GPUs: a card with its render node, and the nodes that its driver needs besides (nvidia.py, kfd.py).

Cards and render nodes belong together by their parent, never by their numbers. A partitioned GPU (MIG, SR-IOV)
stays listed with an attribute for it, because usually its parts are offered. Devices that only drive a screen (a
server's BMC, a firmware frame buffer, the screen of a virtual machine) are DRM cards, too; their type is `display`.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.kfd import AmdGpus
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.nvidia import NvidiaGpus
from hostdevices.readers.pci import ADDRESS
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import AWAKE, ErrorCounter, Sample
from hostdevices.readers.sysfs import devnodes, known, natural, natural_order

_TILE = re.compile(r"tile[0-9]+")
_UNCORRECTABLE = re.compile(r"ue: *([0-9]+)")
_MEMORY_ERRORS = ErrorCounter("uncorrectable memory errors", 0)  # events of GPU memory protection (RAS)
_REPLAYS = ErrorCounter("PCIe replays", 1000)
_OTHERS = {"RKNPU": "npu", "xocl": "fpga"}  # what drivers of Rockchip and of Alveo cards put among the GPUs
_SCREENS = frozenset({"virtio_gpu", "vmwgfx"})  # of virtual machines; they have render nodes also without 3D


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per GPU with a driver, and one per MIG instance of NVIDIA GPUs."""
    locations = SysfsLocations(host)
    nvidia = NvidiaGpus(host)
    amd = AmdGpus(host)

    def gpu(syspath: str) -> Device | None:
        children = sorted(host.list(f"{syspath}/drm"), key=natural_order)
        minors = [
            f"{syspath}/drm/{name}" for name in children if name.startswith(("card", "renderD")) and "-" not in name
        ]
        nodes = tuple(node for minor in minors for node in devnodes(host, minor))
        role: tuple[str, ...] = ()
        function = syspath
        if amd.is_partition(syspath):
            if partition := amd.partition(nodes):
                function, role = partition.function, (f"xcp{partition.number}",)
            elif amd.has_topology():
                return None  # amdgpu creates nodes for the highest possible number
        location = locations.of(next(iter(minors), syspath) if function == syspath else function)
        identity, parents = locations.identify("gpu", location, *role)
        name = next((x for x in children if x.startswith("card")), syspath.rpartition("/")[2])
        facts: dict[str, AttributeValue | None] = {
            "name": name,
            "type": "gpu",
            "vendor": "1002" if amd.is_partition(syspath) else None,
            **location.attributes,
            "driver": host.link(f"{function}/driver"),
            "render": any("/renderD" in node.path for node in nodes),
            "memory": _intel_memory(host, syspath, children),
            "partitioned": host.exists(f"{syspath}/virtfn0") or None,
        }
        links: tuple[tuple[str, int], ...] = ()
        for of_driver in (nvidia.of(syspath), amd.of(function, nodes)):
            facts |= of_driver.attributes
            nodes += of_driver.devnodes
            links += of_driver.links
        if (other := _OTHERS.get(str(facts["driver"]))) is not None:
            facts["type"] = other
        elif _is_display(host, syspath, children, facts["driver"]):
            facts["type"] = "display"
        return Device(
            id=identity,
            kind="gpu",
            name=name,
            syspath=syspath,
            attributes=known(facts),
            devnodes=nodes,
            numa_nodes=location.numa_nodes,
            parents=parents,
            links=links,
        )

    for finding in each(_gpus(host), gpu):
        instances = list(nvidia.instances(finding)) if isinstance(finding, Device) else []
        if isinstance(finding, Device) and instances:
            finding = structs.replace(finding, attributes={**finding.attributes, "partitioned": True})
        yield finding
        yield from instances


def _is_display(host: Host, syspath: str, children: Sequence[str], driver: AttributeValue | None) -> bool:
    """Return whether a card cannot compute; NVIDIA's cards need no render node for computing.

    A render node of the kernel counts, even if it is missing in /dev: then the GPU is unhealthy, and no display.
    """
    if driver == "nvidia":
        return False
    is_tegra = host.link(f"{syspath}/subsystem") == "host1x"  # its render node is for video; CUDA has other nodes
    return is_tegra or driver in _SCREENS or not any(name.startswith("renderD") for name in children)


def _intel_memory(host: Host, syspath: str, minors: Sequence[str]) -> int | None:
    """Return the bytes of a card's own memory: by its tiles (xe), or of the card (i915 of Intel's packages)."""
    driver = host.link(f"{syspath}/driver")
    if driver == "xe":
        tiles = (name for name in host.list(syspath) if _TILE.fullmatch(name))
        return sum(natural(host, f"{syspath}/{tile}/physical_vram_size_bytes") or 0 for tile in tiles) or None
    if driver != "i915":
        return None
    places = (*(f"{syspath}/drm/{name}" for name in minors if name.startswith("card") and "-" not in name), syspath)
    return next((found for x in places if (found := natural(host, f"{x}/lmem_total_bytes"))), None)


def _gpus(host: Host) -> Iterator[str]:
    """Yield the syspaths of functions that have DRM cards or are known to NVIDIA's driver, each once."""
    minors = entries(host, "/sys/class/drm", lambda x: x.startswith(("card", "renderD")) and "-" not in x)
    of_drm = (minor.rpartition("/drm/")[0] for minor in minors if "/virtual/" not in minor)
    held = (
        host.resolve(f"/sys/bus/pci/devices/{x}") for x in host.list("/proc/driver/nvidia/gpus") if ADDRESS.fullmatch(x)
    )
    yield from dict.fromkeys(filter(None, (*of_drm, *held)))


def signals(sample: Sample, syspath: str) -> None:
    """Take the counters of amdgpu; other drivers have none in sysfs."""
    host = sample.host
    if host.read(f"{syspath}/power/runtime_status") not in AWAKE:
        return
    blocks = [x for x in host.list(f"{syspath}/ras") if x.endswith("_err_count")]
    found = (_UNCORRECTABLE.search(host.read(f"{syspath}/ras/{x}") or "") for x in blocks)
    if blocks:
        sample.counters[_MEMORY_ERRORS] = sum(int(x[1]) for x in found if x)
    sample.count(_REPLAYS, f"{syspath}/pcie_replay_count")


def _preset(text: str, **having: str) -> PresetFacts:
    return PresetFacts(text, {**having, "type": "gpu"}, lacking={"partitioned": True})


GPU = Reader(
    "gpu",
    frozenset({"drm", "pci", "kfd"}),
    read,
    one_per="GPU, partition of an AMD GPU, or MIG instance",
    attributes=attributes("""
        type              text         "gpu", "mig" (a MIG instance), "display" (no computing), "npu", "fpga"
        vendor            hexadecimal
        model             text         the name of the product
        uuid              text
        index             integer      the minor number of NVIDIA's device node
        driverVersion     version
        memory            integer      in bytes; of NVIDIA's GPUs with `settings.nvml`
        memoryNode        integer      the NUMA node of its memory
        gfx               text         the target name of AMD's compilers
        hive              text         the same value for GPUs that xGMI joins, or NVLink with `settings.nvml`
        computePartition  text         of an AMD GPU: the compute partition mode, "SPX", "CPX"
        memoryPartition   text         of an AMD GPU: the memory partition mode, "NPS1", "NPS4"
        partition         integer      of a partition of an AMD GPU: its number
        render            boolean      it has a render node
        partitioned       boolean      true if its MIG instances or virtual functions are offered in its place
        parentUUID        text         of partitions and MIG instances: the UUID of the GPU
        gpuInstance       integer      of MIG instances: the number of the GPU instance
        computeInstance   integer      of MIG instances: the number of the compute instance
        profile           text         of MIG instances, with `settings.nvml`: "1g.10gb"
        placement         text         of MIG instances, with `settings.nvml`: the first slice and how many, "4:1"
    """),
    presets={
        "gpu": _preset(
            "GPUs of every vendor, without displays; those that are partitioned (MIG, SR-IOV) are not offered whole"
        ),
        "amd-gpu": _preset("GPUs of AMD, each with /dev/kfd; every partition where one is several", vendor="1002"),
        "intel-gpu": _preset("GPUs of Intel", vendor="8086"),
        "nvidia-gpu": _preset("GPUs of NVIDIA that its own driver holds", vendor="10de", driver="nvidia"),
        "mig": PresetFacts("MIG instances of NVIDIA's GPUs", {"type": "mig"}),
    },
    signals=signals,
    is_polled=True,
    needs_node=True,
)
READERS = (GPU,)
