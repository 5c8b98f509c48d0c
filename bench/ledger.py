"""Leases on disk.

How long one grant takes compared with a bare fdatasync of this disk, and how many grants 8 callers get. The node is
in a steady state: 100 units are leased, and each grant replaces the lease of one of them.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.disk import synced_writes
from bench.quantile import quantile
from bench.table import Table
from checkpoint import Lease, Ledger
from checkpoint.lease import unit_owner

UNITS = 100
GRANTS = 3000
CALLERS = 8
PAGE = 4096  # bytes; a grant writes about three pages


def run() -> Iterator[Table]:
    """Measure; times in microseconds."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on a disk; /tmp can be in memory
        fsync = [1e6 * x for x in synced_writes(Path(folder) / "file", 3 * PAGE, 1000, os.fdatasync)]
        single, together, rate, commits = asyncio.run(_grants(Path(folder) / "state"))
    rows = {"write and fdatasync of 12 KiB": fsync, "one caller": single, f"{CALLERS} callers": together}
    table = ((name, quantile(times, 0.5), quantile(times, 0.99)) for name, times in rows.items())
    note = f"{CALLERS} callers: {rate:,.0f} grants/s, {GRANTS / commits:.1f} per commit."
    yield Table(("", "p50 us", "p99 us"), tuple(table), (note,))


async def _grants(directory: Path) -> tuple[list[float], list[float], float, int]:
    ledger = Ledger(directory, "boot")
    await ledger.take()
    numbers = count()
    for _ in range(UNITS):
        await _grant(ledger, numbers)
    single = [await _grant(ledger, numbers) for _ in range(GRANTS)]
    commits, started = ledger.commits, time.perf_counter()

    async def caller() -> list[float]:
        return [await _grant(ledger, numbers) for _ in range(GRANTS // CALLERS)]

    together = [x for times in await asyncio.gather(*(caller() for _ in range(CALLERS))) for x in times]
    rate = GRANTS / (time.perf_counter() - started)
    commits = ledger.commits - commits
    await ledger.close()
    return single, together, rate, commits


async def _grant(ledger: Ledger, numbers: Iterator[int]) -> float:
    number = next(numbers)
    resource, unit = "example.com/fuse", f"misc-fuse-{number % UNITS}"
    lease = Lease(
        resource=resource,
        unit=unit,
        api="device-plugin",
        owner=unit_owner(resource, unit),
        exclusive=frozenset({unit}),
        record=f"answer {number} ".encode() * 20,
        boot_id=ledger.boot_id,
        granted_at=time.time(),
    )
    started = time.perf_counter()
    await ledger.grant([lease])
    return (time.perf_counter() - started) * 1e6
