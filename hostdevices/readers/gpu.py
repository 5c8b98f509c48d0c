"""GPUs: a card with its render node, and the nodes that its driver needs besides (nvidia.py, kfd.py).

Cards and render nodes belong together by their parent, never by their numbers. A GPU that is partitioned (MIG, SR-IOV)
stays listed and says so: its parts are what one wants to offer.
"""

from collections.abc import Iterator

from msgspec import structs

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.readers.kfd import AmdGpus
from hostdevices.readers.nvidia import NvidiaGpus
from hostdevices.readers.pci import ADDRESS
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, natural_order


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per GPU with a driver, and one per MIG instance of NVIDIA GPUs."""
    places = Places(host)
    nvidia = NvidiaGpus(host)
    amd = AmdGpus(host)

    def gpu(syspath: str) -> Device | None:
        children = sorted(host.list(f"{syspath}/drm"), key=natural_order)
        minors = [
            f"{syspath}/drm/{name}" for name in children if name.startswith(("card", "renderD")) and "-" not in name
        ]
        place = places.of(next(iter(minors), syspath))
        identity, within = places.identify("gpu", place)
        nodes = tuple(node for minor in minors for node in devnodes(host, minor))
        name = next((x for x in children if x.startswith("card")), syspath.rpartition("/")[2])
        attributes: dict[str, AttributeValue | None] = {
            "name": name,
            "type": "gpu",
            **place.attributes,
            "driver": host.link(f"{syspath}/driver"),
            "render": any("/renderD" in node.path for node in nodes),
            "memory": natural(host, f"{syspath}/lmem_total_bytes"),
            "partitioned": host.exists(f"{syspath}/virtfn0") or None,
        }
        for of_driver in (nvidia.of(syspath), amd.of(syspath, nodes)):
            attributes |= of_driver.attributes
            nodes += of_driver.devnodes
        return Device(
            id=identity,
            kind="gpu",
            name=name,
            syspath=syspath,
            attributes=known(attributes),
            devnodes=nodes,
            numa_nodes=place.numa_nodes,
            within=within,
        )

    for finding in each(_gpus(host), gpu):
        instances = list(nvidia.instances(finding)) if isinstance(finding, Device) else []
        if isinstance(finding, Device) and instances:
            finding = structs.replace(finding, attributes={**finding.attributes, "partitioned": True})
        yield finding
        yield from instances


def _gpus(host: Host) -> Iterator[str]:
    """Yield the syspaths of what has DRM cards or is known to NVIDIA's driver, each once."""
    minors = entries(host, "/sys/class/drm", lambda x: x.startswith(("card", "renderD")) and "-" not in x)
    of_drm = (minor.rpartition("/drm/")[0] for minor in minors if "/virtual/" not in minor)
    held = (
        host.resolve(f"/sys/bus/pci/devices/{x}") for x in host.list("/proc/driver/nvidia/gpus") if ADDRESS.fullmatch(x)
    )
    yield from dict.fromkeys(filter(None, (*of_drm, *held)))


GPU = Reader("gpu", frozenset({"drm", "pci", "kfd"}), read)
