"""A scan: all readers over one host, put together to an inventory."""

from collections.abc import Iterable, Mapping, Sequence

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.inventory import Inventory, Problem
from hostdevices.readers import READERS, Finding, Reader


class Scanner:
    """Reads a host, and again only the classes that an event concerns."""

    def __init__(self, host: Host, readers: Sequence[Reader] = READERS) -> None:
        """Prepare to read `host`; nothing is read yet."""
        self._host = host
        self._readers = readers
        self._findings: dict[str, list[Finding]] = {}

    def scan(self, subsystems: Iterable[str] | None = None) -> Inventory:
        """Run the readers concerned by `subsystems` (all of them without) and return the whole inventory."""
        wanted = None if subsystems is None else frozenset(subsystems)
        for reader in self._readers:
            if wanted is None or reader.kind not in self._findings or reader.subsystems & wanted:
                self._findings[reader.kind] = list(reader.read(self._host))
        return _put_together(self._findings)


def scan(host: Host, readers: Sequence[Reader] = READERS) -> Inventory:
    """Read everything once."""
    return Scanner(host, readers).scan()


def _put_together(findings: Mapping[str, list[Finding]]) -> Inventory:
    everything = [finding for found in findings.values() for finding in found]
    return Inventory.of(
        (x for x in everything if isinstance(x, Device)), (x for x in everything if isinstance(x, Problem))
    )
