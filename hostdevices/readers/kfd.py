"""AMD GPUs: the facts of amdgpu and of the kernel fusion driver (kfd); compute needs /dev/kfd beside the render node.

A GPU in a compute partition mode (MI300X: DPX, QPX, CPX) is several devices: the PCI function has the nodes of the
first partition, and a platform device amdgpu_xcp_N those of each other one. Nothing in sysfs leads from there to the
GPU, and amdgpu creates more of them than there are partitions: kfd's topology reports which are real, and of which GPU.
GPUs that xGMI connects are one hive; kfd's links report the width of each direct connection.

Source: Linux, drivers/gpu/drm/amd/amdkfd (kfd_crat.c and .h, kfd_topology.c).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from hostdevices.device import AttributeValue, Devnode
from hostdevices.host import Host
from hostdevices.readers.nvidia import DriverFacts
from hostdevices.readers.sysfs import natural, natural_order, shared_node, text

_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_PCI = "/sys/bus/pci/devices"
_XGMI, _ONE_HOP = 11, 15  # a link's type and weight: 15 for each hop
_MAX_LINKS = 16  # between two GPUs
_PARTITION = re.compile(r"amdgpu_xcp[._][0-9]+")


class Partition(NamedTuple):
    """A compute partition with nodes of its own: the syspath of its GPU's PCI function, and its number there."""

    function: str
    number: int


class AmdGpus:
    """The GPUs that amdgpu holds."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._by_render_minor: dict[int, Mapping[str, int]] | None = None
        self._numbers: dict[int, int] = {}  # of kfd's nodes, by render minor

    def of(self, function: str, nodes: tuple[Devnode, ...]) -> DriverFacts:
        """Return the driver's facts about the GPU at a PCI function; `nodes` are its DRM nodes, or a partition's."""
        host = self._host
        if host.link(f"{function}/driver") != "amdgpu":
            return DriverFacts()
        compute = self._compute_node(nodes)
        mode = text(host, f"{function}/current_compute_partition")
        is_whole = mode in (None, "SPX")
        attributes: dict[str, AttributeValue | None] = {
            "model": text(host, f"{function}/product_name"),
            "uuid": text(host, f"{function}/unique_id"),
            "memory": natural(host, f"{function}/mem_info_vram_total"),
            "computePartition": mode,
            "memoryPartition": text(host, f"{function}/current_memory_partition"),
        }
        if not is_whole:
            # these belong to the whole GPU
            attributes |= {
                "parentUUID": attributes["uuid"],
                "uuid": None,
                "memory": None,
                "partition": _number(compute),
            }
        if not compute:
            return DriverFacts(attributes)
        attributes["gfx"] = _target(compute.get("gfx_target_version", 0))
        if hive := compute.get("hive_id"):
            attributes["hive"] = f"{hive:x}"
        links = self._links(compute) if hive and is_whole else {}
        return DriverFacts(attributes, shared_node(host, "/dev/kfd"), tuple(sorted(links.items())))

    def is_partition(self, syspath: str) -> bool:
        """Return whether the device with DRM nodes at `syspath` is a platform device for a partition."""
        return _PARTITION.fullmatch(syspath.rpartition("/")[2]) is not None

    def has_topology(self) -> bool:
        """Return whether kfd reports the existing GPUs and partitions."""
        return bool(self._compute_nodes())

    def partition(self, nodes: tuple[Devnode, ...]) -> Partition | None:
        """Return the partition that has the DRM nodes `nodes`; None if kfd reports none."""
        compute = self._compute_node(nodes)
        function = self._host.resolve(f"{_PCI}/{_address(compute)}") if compute else None
        return Partition(function, _number(compute)) if function else None

    def _links(self, compute: Mapping[str, int]) -> dict[str, int]:
        """Return the addresses of GPUs that xGMI connects directly with this one, with the number of links."""
        number = self._numbers[compute["drm_render_minor"]]
        addresses = {self._numbers[minor]: _address(node) for minor, node in self._compute_nodes().items()}
        found: dict[str, int] = {}
        for name in self._host.list(f"{_TOPOLOGY}/{number}/io_links"):
            link = self._properties(f"{_TOPOLOGY}/{number}/io_links/{name}/properties")
            end = addresses.get(link.get("node_to", -1))
            if end is not None and link.get("type") == _XGMI and link.get("weight", 0) <= _ONE_HOP:
                # The least bandwidth is that of one link; older kernels report neither.
                count = link.get("max_bandwidth", 0) // (link.get("min_bandwidth", 0) or 1)
                found[end] = min(max(count, 1), _MAX_LINKS)
        return found

    def _compute_node(self, nodes: tuple[Devnode, ...]) -> Mapping[str, int]:
        """Return kfd's properties of the GPU or partition that has a render node among `nodes`; empty without one."""
        return next((self._compute_nodes()[x.minor] for x in nodes if x.minor in self._compute_nodes()), {})

    def _compute_nodes(self) -> Mapping[int, Mapping[str, int]]:
        """Return the properties of kfd's GPU nodes by their render node's minor number."""
        if self._by_render_minor is None:
            self._by_render_minor = {}
            for name in filter(str.isdecimal, sorted(self._host.list(_TOPOLOGY), key=natural_order)):
                properties = self._properties(f"{_TOPOLOGY}/{name}/properties")
                if properties.get("simd_count") and properties.get("drm_render_minor"):
                    self._by_render_minor[properties["drm_render_minor"]] = properties
                    self._numbers[properties["drm_render_minor"]] = int(name)
        return self._by_render_minor

    def _properties(self, path: str) -> dict[str, int]:
        # Not through Host.read: one node's garbage must not hide the other GPUs.
        lines = (self._host.read_bytes(path) or b"").decode(errors="replace").split("\n")
        words = (line.split() for line in lines)
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _address(compute: Mapping[str, int]) -> str:
    """Return the address of a node's PCI function, which has number 0.

    That digit of `location_id` is the partition's number, or was before Linux used the upper bits for it.
    """
    location = compute.get("location_id", 0)
    return f"{compute.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"


def _number(compute: Mapping[str, int]) -> int:
    location = compute.get("location_id", 0)
    return location >> 28 & 0xF or location & 0x7


def _target(number: int) -> str | None:
    """Return kfd's 90010 in the compilers' notation: gfx90a."""
    if not number:
        return None
    major, minor, step = number // 10000, number // 100 % 100, number % 100
    return f"gfx{major}{minor:x}{step:x}"
