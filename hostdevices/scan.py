"""A scan: all readers over one host, put together to an inventory."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.inventory import Inventory, Problem
from hostdevices.memory import Memory
from hostdevices.readers import READERS, Finding, Reader, parts_of_other_devices
from hostdevices.verify import enumeration

_log = logging.getLogger(__name__)


class Scanner:
    """Reads a host, and again only the classes and devices that an event concerns."""

    def __init__(self, host: Host, readers: Sequence[Reader] = READERS) -> None:
        """Prepare to read `host`; nothing is read yet."""
        self._memory = Memory(host.tree)
        self._host = Host(host.root, self._memory)
        self._readers = readers
        self._findings: dict[Reader, list[Finding]] = {}
        self.subsystems = frozenset[str]().union(*(reader.subsystems for reader in readers))

    def scan(self, subsystems: Iterable[str] | None = None, syspaths: Iterable[str] | None = None) -> Inventory:
        """Run the readers concerned by `subsystems` (all of them without) and return the whole inventory.

        With `syspaths` only the attributes of those devices, of their parents and of new devices are read again.
        """
        if subsystems is None or syspaths is None:
            self._memory.forget()
        else:
            for syspath in syspaths:
                self._memory.forget(syspath)
        wanted = None if subsystems is None else frozenset(subsystems)
        for reader in self._readers:
            if wanted is None or reader not in self._findings or reader.subsystems & wanted:
                self._findings[reader] = list(self._read(reader))
        return _put_together(self._findings)

    def _read(self, reader: Reader) -> Iterator[Finding]:
        try:
            yield from map(self._enumerated, reader.read(self._host))
        except Exception as error:  # a mistake in one reader must not hide what all the others find
            _log.exception("reader %s failed", reader.kind)
            yield Problem(f"reader {reader.kind}", f"{type(error).__name__}: {error}")

    def _enumerated(self, finding: Finding) -> Finding:
        """Say when a device was plugged in: a replug that leaves all else as it was must be seen, too."""
        number = enumeration(self._host, finding.syspath) if isinstance(finding, Device) else ""
        return replace(finding, enumeration=number) if number else finding


def scan(host: Host, readers: Sequence[Reader] = READERS) -> Inventory:
    """Read everything once."""
    return Scanner(host, readers).scan()


def _put_together(findings: Mapping[Reader, list[Finding]]) -> Inventory:
    everything = [finding for found in findings.values() for finding in found]
    return Inventory.of(
        parts_of_other_devices(x for x in everything if isinstance(x, Device)),
        (x for x in everything if isinstance(x, Problem)),
    )
