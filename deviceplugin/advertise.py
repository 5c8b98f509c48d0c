"""A resource's list as the kubelet gets it, kept encoded.

Building messages is what costs (41 ms for 10,000 devices; joining cached bytes 0.07 ms), so every unit is kept as the
bytes of its entry in ListAndWatchResponse, and a health flip encodes one of them again.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Entry(Struct, frozen=True, gc=False):
    """One unit in the list: whether it can be had, the NUMA nodes of its device, and its encoding."""

    is_healthy: bool
    numa_nodes: tuple[int, ...]
    encoded: bytes


class Advertised:
    """The list of one resource: what it holds, and its encoding."""

    def __init__(self) -> None:
        """Start with an empty list, which a kubelet takes as 0 devices."""
        self._entries: dict[str, Entry] = {}
        self._encoded: bytes | None = b""

    @property
    def encoded(self) -> bytes:
        """The list as a ListAndWatchResponse; the same object until something changes."""
        if self._encoded is None:
            self._encoded = b"".join([entry.encoded for entry in self._entries.values()])
        return self._encoded

    def replace(self, units: Mapping[str, tuple[bool, tuple[int, ...]]]) -> bool:
        """Take over the whole list: health and NUMA nodes by unit. Returns whether anything changed."""
        entries = {unit: self._entry(unit, *what) for unit, what in units.items()}
        changed = list(entries.values()) != list(self._entries.values())
        if changed:
            self._entries, self._encoded = entries, None
        return changed

    def set_health(self, units: Iterable[str], is_healthy: bool) -> bool:
        """Change the health of units that are listed. Returns whether anything changed."""
        changed = False
        for unit in units:
            entry = self._entries[unit]
            if entry.is_healthy != is_healthy:
                self._entries[unit] = self._entry(unit, is_healthy, entry.numa_nodes)
                changed, self._encoded = True, None
        return changed

    def numa_nodes(self, unit: str) -> tuple[int, ...]:
        """Return the NUMA nodes with which a unit is listed, or none."""
        return self._entries[unit].numa_nodes if unit in self._entries else ()

    def is_healthy(self, unit: str) -> bool | None:
        """Tell whether a unit is listed as healthy; None where it is not listed."""
        return self._entries[unit].is_healthy if unit in self._entries else None

    def health(self) -> dict[str, bool]:
        """Return of each unit that is listed whether it is healthy."""
        return {unit: entry.is_healthy for unit, entry in self._entries.items()}

    def counts(self) -> tuple[int, int]:
        """Return how many units are listed and how many of them are healthy."""
        entries = tuple(self._entries.values())  # another thread may ask
        return len(entries), sum(entry.is_healthy for entry in entries)

    def _entry(self, unit: str, is_healthy: bool, numa_nodes: tuple[int, ...]) -> Entry:
        known = self._entries.get(unit)
        if known is not None and known.is_healthy == is_healthy and known.numa_nodes == numa_nodes:
            return known
        device = api.Device(ID=unit, health=HEALTHY if is_healthy else UNHEALTHY)
        if numa_nodes:  # a topology without nodes would make the resource look aligned where it is not
            device.topology.nodes.extend(api.NUMANode(ID=node) for node in numa_nodes)
        return Entry(is_healthy, numa_nodes, api.ListAndWatchResponse(devices=[device]).SerializeToString())
