"""The record of unlisted units (`checkpoint.unlisted`) on disk, because a daemon that restarts cannot find them again.

    a change -> `unlisted-units.json` -> the next daemon

From the kubelet's list alone a daemon cannot distinguish a pod that was deleted by force from one that a starting
kubelet has not listed yet, and whose record that kubelet has lost. The latter's unit must stay healthy. The earlier
daemon knew that this kubelet had listed the pod before, and a pod that was deleted does not come back.

Rules:
1. A recorded unit is unlisted again if its lease is of this boot and still of the same pod. Then the rules of
   `checkpoint.unlisted` apply: the unit is listed once the pod has no process, or the kubelet names the unit.
   While the leases cannot be read, the record stays as it is.
2. Without a record, as after a disk error, the unit is healthy, and the guard refuses it. No lease depends on the file.
3. Nothing is synced: no pod survives a power cut.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

import cdi
from checkpoint import Lease, Ledger
from checkpoint.unlisted import is_of_same_pod
from nodeplug.records import InvalidRecord, read_record

FILE_NAME: Final = "unlisted-units.json"
"""The name of the record in the state directory."""

RETRY: Final = 30.0
"""Seconds after which a failed write is repeated."""

log = logging.getLogger("nodeplug.leases")


class _Unit(Struct, frozen=True):
    resource: str
    unit: str
    pods: frozenset[str]


class UnlistedRecord:
    """The record of one ledger. Belongs to the event loop."""

    def __init__(self, ledger: Ledger, state: Path) -> None:
        """Keep the unlisted units of `ledger` in the folder `state`; nothing is read yet."""
        self._ledger = ledger
        self._path = state / FILE_NAME
        self._changed = asyncio.Event()
        self._problem = ""
        self._is_restored = False  # with leases that are known
        ledger.unlisted.observe(lambda _: self._changed.set())
        ledger.observe(self._leases_changed)

    def restore(self) -> None:
        """Restore the units that an earlier daemon recorded, and whose leases are known.

        Call it once the ledger is taken. It is repeated when a ledger that could not be read then is loaded. It can be
        called before, too: an older daemon, which owns the ledger, can end the leases of units until then.
        """
        recorded, self._is_restored = self._recorded(), self._ledger.is_loaded
        known = ((self._ledger.get((x.resource, "device-plugin", x.unit)), x.pods) for x in recorded)
        boot, unlisted = self._ledger.boot_id, self._ledger.unlisted
        unlisted.remove(x for x in unlisted.leases() if not is_of_same_pod(self._ledger.get(x.key), x))
        unlisted.add(
            lease for lease, pods in known if lease is not None and lease.boot_id == boot and lease.pods & pods
        )
        if recorded and self._is_restored:
            self._changed.set()  # the others are removed from the record

    async def run(self) -> None:
        """Record each change until cancelled; repeat failed writes."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY if self._problem else None):
                    await self._changed.wait()
            self._changed.clear()
            units = [_Unit(x.resource, x.unit, x.pods) for x in self._ledger.unlisted.leases()]
            try:
                await asyncio.to_thread(self._write, units)
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread is available
                self._report(f"units of pods that were deleted by force are not remembered for the next start: {error}")
            else:
                self._problem = ""

    def _leases_changed(self, leases: Sequence[Lease] | None) -> None:
        if leases is None and not self._is_restored:  # the ledger is loaded
            self.restore()

    def _recorded(self) -> list[_Unit]:
        try:
            return read_record(self._path, list[_Unit])
        except (OSError, InvalidRecord):
            return []

    def _write(self, units: Sequence[_Unit]) -> None:
        if units:
            cdi.replace_file(self._path, msgspec.json.encode(units))
        else:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("%s", problem, extra={"is_current": lambda: self._problem == problem})
        self._problem = problem
