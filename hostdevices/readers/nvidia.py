"""What NVIDIA's driver provides in /proc, without its libraries: model, uuid, device minor, and MIG capabilities.

The nodes have no entries in sysfs: their names follow from the minor, and they may be missing until nvidia-modprobe
has run. The package userspace, or NVIDIA's toolkit, adds the user-space libraries.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.inventory import Problem
from hostdevices.readers.reader import Finding
from hostdevices.readers.sysfs import known, shared_node, text_value, version

_GPUS = "/proc/driver/nvidia/gpus"
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_VERSION = re.compile(r"Module.*?\s([0-9]+\.[0-9]+(?:\.[0-9]+)?)\s")
_PLAIN_VERSION = re.compile(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
_GPU_INSTANCE = re.compile(r"gi([0-9]+)")
_COMPUTE_INSTANCE = re.compile(r"ci([0-9]+)")


class DriverFacts(NamedTuple):
    """A driver's additions to a GPU."""

    attributes: Mapping[str, AttributeValue | None] = {}
    devnodes: tuple[Devnode, ...] = ()
    links: tuple[tuple[str, int], ...] = ()  # as in `Device`


def module_version(host: Host) -> str:
    """Return the version of the loaded kernel module, as written; empty if it does not report one."""
    contents = host.read_bytes("/proc/driver/nvidia/version") or host.read_bytes("/sys/module/nvidia/version") or b""
    text = contents.decode(errors="replace")
    found = _VERSION.search(text) or _PLAIN_VERSION.fullmatch(text.strip())
    return found[1] if found else ""


class NvidiaGpus:
    """The GPUs that NVIDIA's driver holds."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host

    def of(self, function: str) -> DriverFacts:
        """Return the driver's facts about the GPU at a PCI function; nothing if the driver does not hold it."""
        host = self._host
        folder = f"{_GPUS}/{function.rpartition('/')[2]}"
        if not host.exists(folder):
            return DriverFacts()
        facts = _table(host, f"{folder}/information")
        minor = facts.get("Device Minor", "")
        uuid = facts.get("GPU UUID", "")
        memory_node = _table(host, f"{folder}/numa_status").get("Node", "")
        attributes: dict[str, AttributeValue | None] = {
            "vendor": "10de",
            "driver": "nvidia",
            "model": text_value(facts.get("Model")),
            "uuid": text_value(uuid) if "?" not in uuid else None,  # question marks until the GPU is first used
            "index": int(minor) if minor.isdecimal() else None,
            "memoryNode": int(memory_node) if memory_node.isdecimal() else None,
            "driverVersion": version(module_version(host) or None),
        }
        nodes = shared_node(host, f"/dev/nvidia{minor}") if minor.isdecimal() else ()
        if nodes:
            nodes += tuple(node for path in _CONTROL for node in shared_node(host, path))
        return DriverFacts(attributes, nodes)

    def instances(self, gpu: Device) -> Iterator[Finding]:
        """Yield the MIG instances of a GPU: one per compute instance, with its capability nodes."""
        index = gpu.attributes.get("index")
        folder = f"{_CAPABILITIES}/gpu{index}/mig"
        if gpu.attributes.get("driver") != "nvidia" or index is None:
            return
        for gi in self._host.list(folder):
            if not _GPU_INSTANCE.fullmatch(gi):
                continue
            for ci in filter(_COMPUTE_INSTANCE.fullmatch, self._host.list(f"{folder}/{gi}")):
                try:
                    yield self._instance(gpu, f"{folder}/{gi}", ci)
                except UnreadableFile as error:
                    yield Problem.of(f"{folder}/{gi}/{ci}", error)

    def _instance(self, gpu: Device, folder: str, ci: str) -> Device:
        gi = folder.rpartition("/")[2]
        capabilities = (self._capability(folder), self._capability(f"{folder}/{ci}"))
        render = {node for node in gpu.devnodes if node.path.startswith("/dev/dri/")}
        return structs.replace(
            gpu,
            id=device_id("gpu", str(gpu.attributes.get("resource.kubernetes.io/pciBusID", gpu.name)), gi, ci),
            name=f"{gpu.name}-{gi}-{ci}",
            attributes=known(
                {
                    **gpu.attributes,
                    "name": f"{gpu.name}-{gi}-{ci}",
                    "type": "mig",
                    "parentUUID": gpu.attributes.get("uuid"),
                    "gpuInstance": int(gi.removeprefix("gi")),
                    "computeInstance": int(ci.removeprefix("ci")),
                    **dict.fromkeys(("render", "uuid", "memory")),  # these belong to the whole GPU
                }
            ),
            devnodes=tuple(x for x in gpu.devnodes if x not in render) + tuple(x for y in capabilities for x in y),
            parents=(gpu.id, *gpu.parents),
        )

    def _capability(self, folder: str) -> tuple[Devnode, ...]:
        minor = _table(self._host, f"{folder}/access").get("DeviceFileMinor", "")
        return shared_node(self._host, f"/dev/nvidia-caps/nvidia-cap{minor}") if minor.isdecimal() else ()


def _table(host: Host, path: str) -> dict[str, str]:
    """Return the `Name: value` lines of a file."""
    lines = (line.partition(":") for line in (host.read(path) or "").split("\n"))
    return {name.strip(): value.strip() for name, colon, value in lines if colon}
