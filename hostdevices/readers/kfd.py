"""AMD GPUs: what amdgpu and the kernel fusion driver (kfd) say; compute needs /dev/kfd beside the render node."""

from collections.abc import Mapping

from hostdevices.device import AttributeValue, Devnode
from hostdevices.host import Host
from hostdevices.readers.nvidia import OfDriver
from hostdevices.readers.sysfs import natural, natural_order, shared_node, text

_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


class AmdGpus:
    """The GPUs that amdgpu holds."""

    def __init__(self, host: Host) -> None:
        """Read nothing yet."""
        self._host = host
        self._by_render_minor: dict[int, Mapping[str, int]] | None = None

    def of(self, syspath: str, nodes: tuple[Devnode, ...]) -> OfDriver:
        """Return what the driver says about the GPU at `syspath`, whose DRM nodes are `nodes`."""
        host = self._host
        if host.link(f"{syspath}/driver") != "amdgpu":
            return OfDriver()
        compute = next((self._compute_nodes()[n.minor] for n in nodes if n.minor in self._compute_nodes()), None)
        attributes: dict[str, AttributeValue | None] = {
            "model": text(host, f"{syspath}/product_name"),
            "uuid": text(host, f"{syspath}/unique_id"),
            "memory": natural(host, f"{syspath}/mem_info_vram_total"),
            "computePartition": text(host, f"{syspath}/current_compute_partition"),
            "memoryPartition": text(host, f"{syspath}/current_memory_partition"),
        }
        if compute is None:
            return OfDriver(attributes)
        attributes["gfx"] = _target(compute.get("gfx_target_version", 0))
        return OfDriver(attributes, shared_node(host, "/dev/kfd"))

    def _compute_nodes(self) -> Mapping[int, Mapping[str, int]]:
        """Return the properties of kfd's GPU nodes by their render node's minor number."""
        if self._by_render_minor is None:
            self._by_render_minor = {}
            for name in sorted(self._host.list(_TOPOLOGY), key=natural_order):
                properties = self._properties(f"{_TOPOLOGY}/{name}/properties")
                if properties.get("simd_count") and properties.get("drm_render_minor"):
                    self._by_render_minor[properties["drm_render_minor"]] = properties
        return self._by_render_minor

    def _properties(self, path: str) -> dict[str, int]:
        # Not through Host.read: one node's garbage must not hide the other GPUs.
        lines = (self._host.read_bytes(path) or b"").decode(errors="replace").splitlines()
        words = (line.split() for line in lines)
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}


def _target(number: int) -> str | None:
    """Write kfd's 90010 as compilers do: gfx90a."""
    if not number:
        return None
    major, minor, step = number // 10000, number // 100 % 100, number % 100
    return f"gfx{major}{minor:x}{step:x}"
