"""A resource's list as sent to the kubelet, stored encoded.

Building messages is expensive (41 ms for 10,000 devices; searching their bytes takes 0.05 ms), so the list is stored as
one message, in which the bytes of changed units are replaced. For each unit only its listed state is stored, and equal
states share one object.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_MAX_SPLICED = 64  # units whose bytes are replaced one by one; each replacement copies the list


class Entry(Struct, frozen=True, gc=False):
    """The listed state of a unit: whether it is healthy, and the NUMA nodes of its device."""

    is_healthy: bool
    numa_nodes: tuple[int, ...]


class Advertised:
    """The list of one resource: its content and its encoding."""

    def __init__(self) -> None:
        """Start with an empty list, which a kubelet takes as 0 devices."""
        self._entries: dict[str, Entry] = {}
        self._encoded = b""

    @property
    def encoded(self) -> bytes:
        """Return the list as a ListAndWatchResponse; the same object until something changes."""
        return self._encoded

    def replace(self, units: Mapping[str, tuple[bool, tuple[int, ...]]]) -> bool:
        """Replace the whole list: health and NUMA nodes by unit. Returns whether anything changed."""
        new_entries: dict[tuple[bool, tuple[int, ...]], Entry] = {}
        current = self._entries
        entries: dict[str, Entry] = {}
        for unit, state in units.items():
            entry = current.get(unit)
            if entry is None or (entry.is_healthy, entry.numa_nodes) != state:
                entry = new_entries.setdefault(state, Entry(*state))
            entries[unit] = entry
        if entries == current and list(entries) == list(current):
            return False
        self._set_entries(entries)
        return True

    def set_health(self, units: Iterable[str], is_healthy: bool) -> bool:
        """Change the health of listed units. Returns whether anything changed."""
        changed = [unit for unit in units if self._entries[unit].is_healthy != is_healthy]
        if changed:
            new_entries = {nodes: Entry(is_healthy, nodes) for nodes in map(self.numa_nodes, changed)}
            self._set_entries(self._entries | {unit: new_entries[self.numa_nodes(unit)] for unit in changed})
        return bool(changed)

    def numa_nodes(self, unit: str) -> tuple[int, ...]:
        """Return the NUMA nodes with which a unit is listed, or none."""
        return self._entries[unit].numa_nodes if unit in self._entries else ()

    def is_healthy(self, unit: str) -> bool | None:
        """Return whether a unit is listed as healthy; None if it is not listed."""
        return self._entries[unit].is_healthy if unit in self._entries else None

    def health(self) -> dict[str, bool]:
        """Return whether each listed unit is healthy."""
        return {unit: entry.is_healthy for unit, entry in self._entries.items()}

    def counts(self) -> tuple[int, int]:
        """Return how many units are listed and how many of them are healthy."""
        entries = tuple(self._entries.values())  # called from other threads, too
        return len(entries), sum(entry.is_healthy for entry in entries)

    def _set_entries(self, entries: dict[str, Entry]) -> None:
        """Store another list, which differs from the current one."""
        spliced = _spliced(self._encoded, self._entries, entries)
        self._encoded = b"".join([_encode(*each) for each in entries.items()]) if spliced is None else spliced
        self._entries = entries


def _spliced(encoded: bytes, before: Mapping[str, Entry], now: Mapping[str, Entry]) -> bytes | None:
    """Return the encoding of a list derived from the previous one; None if the change is too large.

    The bytes of a unit are found by a search. They begin with a newline (a field's tag), a length that is not a
    newline, and another newline. Only the beginning of a unit can look so, as long as no id contains a newline.
    """
    gone = [unit for unit in before if unit not in now]
    changed = [unit for unit, entry in now.items() if before.get(unit, entry) != entry]
    added = {unit for unit in now if unit not in before}
    if len(gone) + len(changed) + len(added) > _MAX_SPLICED or any("\n" in unit for unit in now):
        return None
    order = list(now)
    if [unit for unit in order if unit not in added] != [unit for unit in before if unit in now]:
        return None
    for unit in gone:
        encoded = _replaced(encoded, _encode(unit, before[unit]), b"")
    for unit in changed:
        encoded = _replaced(encoded, _encode(unit, before[unit]), _encode(unit, now[unit]))
    for at in reversed([at for at, unit in enumerate(order) if unit in added]):
        new = _encode(order[at], now[order[at]])
        if at + 1 < len(order):
            following = _encode(order[at + 1], now[order[at + 1]])
            encoded = _replaced(encoded, following, new + following)
        else:
            encoded += new
    return encoded


def _replaced(encoded: bytes, old: bytes, new: bytes) -> bytes:
    at = encoded.index(old)
    return b"".join((encoded[:at], new, encoded[at + len(old) :]))


def _encode(unit: str, entry: Entry) -> bytes:
    """Return the bytes of one unit in a ListAndWatchResponse."""
    device = api.Device(ID=unit, health=HEALTHY if entry.is_healthy else UNHEALTHY)
    if entry.numa_nodes:  # a topology without nodes would make the resource look aligned
        device.topology.nodes.extend(api.NUMANode(ID=node) for node in entry.numa_nodes)
    return api.ListAndWatchResponse(devices=[device]).SerializeToString()
