"""A resource's list as the kubelet gets it, kept encoded.

Building messages is what costs (41 ms for 10,000 devices; joining cached bytes 0.07 ms), so every device is kept as
the bytes of its entry in ListAndWatchResponse, and a health flip encodes one of them again.
"""

from collections.abc import Iterable, Mapping

from deviceplugin.units import Unit
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Advertised:
    """The list of one resource: what it holds, and its encoding."""

    def __init__(self) -> None:
        """Start with an empty list, which a kubelet takes as 0 devices."""
        self._entries: dict[str, tuple[bool, tuple[int, ...], bytes]] = {}
        self.encoded = b""

    def update(self, units: Mapping[str, Unit], leased: Iterable[str], barred: Mapping[str, str]) -> bool:
        """Take over the units that are there; return whether the list differs from the one before.

        A leased unit that is gone stays listed as Unhealthy: a kubelet reads a missing id as healthy (observed, 1.6).
        Devices in `barred` (id -> reason) are listed as Unhealthy.
        """
        entries = {
            unit.id: self._entry(
                unit.id, unit.device.health.healthy and unit.device.id not in barred, unit.device.numa_nodes
            )
            for unit in units.values()
        }
        for unit_id in sorted(leased):
            if unit_id not in entries:
                numa_nodes = self._entries[unit_id][1] if unit_id in self._entries else ()
                entries[unit_id] = self._entry(unit_id, False, numa_nodes)
        encoded = b"".join(encoding for _, _, encoding in entries.values())
        changed = encoded != self.encoded
        self._entries, self.encoded = entries, encoded
        return changed

    def counts(self) -> tuple[int, int]:
        """Return how many units are listed and how many of them are healthy."""
        return len(self._entries), sum(healthy for healthy, _, _ in self._entries.values())

    def health(self) -> dict[str, bool]:
        """Return the health of every listed unit."""
        return {unit_id: healthy for unit_id, (healthy, _, _) in self._entries.items()}

    def _entry(self, unit_id: str, healthy: bool, numa_nodes: tuple[int, ...]) -> tuple[bool, tuple[int, ...], bytes]:
        known = self._entries.get(unit_id)
        if known is not None and known[0] == healthy and known[1] == numa_nodes:
            return known
        device = api.Device(ID=unit_id, health=HEALTHY if healthy else UNHEALTHY)
        if numa_nodes:  # a topology without nodes would make the resource look aligned where it is not
            device.topology.nodes.extend(api.NUMANode(ID=node) for node in numa_nodes)
        return healthy, numa_nodes, api.ListAndWatchResponse(devices=[device]).SerializeToString()
