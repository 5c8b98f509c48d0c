"""A scan: all readers on one host, combined to an inventory."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from hostdevices.cached_tree import CachedTree
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.device import Device, Health
from hostdevices.errors import HostExhausted, UnreadableFile
from hostdevices.host import Host
from hostdevices.inventory import Inventory, Problem
from hostdevices.readers import READERS, Finding, Reader, parts_of_other_devices
from hostdevices.readers.previous_scan import PreviousScan
from hostdevices.verify import enumeration

_log = logging.getLogger(__name__)


class Scanner:
    """Reads a host; after events only the classes and devices concerned."""

    def __init__(self, host: Host, readers: Sequence[Reader] = READERS) -> None:
        """Prepare to read `host`; nothing is read yet."""
        self._cache = CachedTree(host.tree)
        self._plain_host = host
        self._host = Host(host.root, self._cache, host.reads)
        self._readers = readers
        self._findings: dict[Reader, list[Finding]] = {}
        self._failed: dict[str, str] = {}  # kinds whose readers have a defect that is in the log
        self.reads = host.reads
        self.subsystems = frozenset[str]().union(*(reader.subsystems for reader in readers))

    def scan(self, subsystems: Iterable[str] | None = None, syspaths: Iterable[str] | None = None) -> Inventory:
        """Run the readers concerned by `subsystems` (default: all) and return the whole inventory.

        With `syspaths`, only the attributes of those devices, of their parents and of new devices are read again.
        Raises `HostExhausted`, and then keeps its state.
        """
        try:
            findings = call_conclusively(partial(self._scan, subsystems, syspaths))
        except HostExhausted:
            self._cache.forget()
            raise
        self._findings = findings
        return _combined(findings)

    def _scan(self, subsystems: Iterable[str] | None, syspaths: Iterable[str] | None) -> dict[Reader, list[Finding]]:
        """Return the findings of all readers: new ones of those concerned, the earlier ones of the others."""
        named = None if subsystems is None or syspaths is None else frozenset(syspaths)
        for syspath in (None,) if named is None else named:
            self._cache.forget(syspath)
        wanted = None if subsystems is None else frozenset(subsystems)
        findings = dict(self._findings)
        for reader in self._readers:
            if wanted is None or reader not in findings or reader.subsystems & wanted:
                before = findings.get(reader, ())
                found = list(self._read(reader, before, named))
                found += self._unreadable_devices(before, found)
                findings[reader] = _sharing(found, before)
        return findings

    def _read(self, reader: Reader, before: Sequence[Finding], named: frozenset[str] | None) -> Iterator[Finding]:
        """Run a reader; `named` are the devices of events, None if no earlier finding can be trusted."""
        try:
            if reader.read_again is None:
                findings = reader.read(self._host)
            else:
                is_trusted = named is not None and not self.reads.stuck
                known = [x for x in before if isinstance(x, Device) and x.health.healthy] if is_trusted else []
                findings = reader.read_again(self._plain_host, PreviousScan(known, named or frozenset()))
            yield from map(self._enumerated, findings)
        except UnreadableFile as error:
            yield Problem.of(f"reader {reader.kind}", error, reader.kind)
        except Exception as error:  # a mistake in one reader must not hide what all the others find
            reason = f"{type(error).__name__}: {error}"
            if self._failed.get(reader.kind) != reason:  # or each scan would say so
                state = {"is_current": lambda: self._failed.get(reader.kind) == reason}
                _log.exception("reader %s failed", reader.kind, extra=state)
            self._failed[reader.kind] = reason
            yield Problem(f"reader {reader.kind}", reason, hidden_kind=reader.kind)
        else:
            self._failed.pop(reader.kind, None)

    def _enumerated(self, finding: Finding) -> Finding:
        """Add the enumeration number: a replug that changes nothing else must be detected too."""
        if not isinstance(finding, Device):
            return finding
        try:
            number = enumeration(self._host, finding.syspath)
        except UnreadableFile as error:
            return Problem.of(finding.syspath, error)
        return replace(finding, enumeration=number) if number else finding

    def _unreadable_devices(self, before: Sequence[Finding], found: Sequence[Finding]) -> list[Device]:
        """Return the devices that still exist and could not be read because a read is stuck: unhealthy."""
        stuck = {x.where: x.reason for x in found if isinstance(x, Problem) and x.is_stuck}
        if not stuck:
            return []
        listed = {x.id for x in found if isinstance(x, Device)}
        return [
            replace(x, health=Health(False, stuck.get(x.syspath) or next(iter(stuck.values()))))
            for x in before
            if isinstance(x, Device) and x.id not in listed and (not x.syspath or self._host.exists(x.syspath))
        ]


def scan(host: Host, readers: Sequence[Reader] = READERS) -> Inventory:
    """Read everything once, in a thread that is given up if a read does not return."""
    return host.reads.run(lambda: Scanner(host, readers).scan())


def _sharing(found: list[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the earlier objects for unchanged devices, so that thousands are not kept twice."""
    known = {x.id: x for x in before if isinstance(x, Device)}
    return [old if isinstance(x, Device) and (old := known.get(x.id)) == x else x for x in found]


def _combined(findings: Mapping[Reader, list[Finding]]) -> Inventory:
    everything = [finding for found in findings.values() for finding in found]
    return Inventory.of(
        parts_of_other_devices(x for x in everything if isinstance(x, Device)),
        (x for x in everything if isinstance(x, Problem)),
    )
