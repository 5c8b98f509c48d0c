"""Claims in the driver alone.

How long one NodePrepareResources takes without gRPC and API server, and 64 at once. The node is in a steady state:
100 devices, with metadata, and each claim is prepared and unprepared. The ledger and the metadata are on a disk. The
CDI specs are in memory, like /var/run/cdi on nodes, and in a second row on the disk. CPU is that of the process for
one claim; unlike the times, it is also meaningful on a busy machine.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.disk import synced_writes
from bench.quantile import quantile
from bench.table import Cell, Table
from checkpoint import Ledger
from dra_plugin.driver import ClaimFailed, ClaimRef
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.preparing.prepare import Paths, Preparer
from dra_plugin.publishing.offers import Offers
from hostdevices import Device, Devnode, Host
from hostdevices.presence import Presence
from resourceapi.objects import ObjectMeta, v1
from resources.resource import Resource
from resources.selector import Kinds

DEVICES = 100
ONE_BY_ONE = 500
TOGETHER = 64
ROUNDS = 20
DRIVER, NODE = "nodeplug.dev", "worker-1"


def run() -> Iterator[Table]:
    """Measure; times in milliseconds."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as disk,  # /tmp can be in memory
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        rows = {"write and fsync of 4 KiB": [(1e3 * x, 0.0) for x in synced_writes(Path(disk) / "file", 4096, 500)]}
        rows |= asyncio.run(_measure(Path(disk) / "a", Path(memory)))
        on_disk = asyncio.run(_measure(Path(disk) / "b", Path(disk) / "cdi"))
        rows |= {f"{name}, CDI on disk": times for name, times in on_disk.items() if "prepare" in name}
    table: list[tuple[Cell, ...]] = [(name, *_figures(times).values()) for name, times in rows.items()]
    yield Table(("", "p50 ms", "p99 ms", "CPU ms per claim"), tuple(table))


async def _measure(folder: Path, cdi: Path) -> dict[str, list[tuple[float, float]]]:
    ledger = Ledger(folder / "state", "boot")
    await ledger.take()
    resource = Resource("example.com/null", Kinds(("bench",)), api="dra")
    node = Devnode("/dev/null", "c", 1, 3)
    devices = tuple(Device(f"bench-{n}", "bench", f"bench{n}", devnodes=(node,)) for n in range(DEVICES))
    host = Host("/")
    presence, offers = Presence(host), Offers([resource])
    presence.update({device.id: device for device in devices}, devices)
    offers.update({resource.name: devices})
    paths = Paths(cdi=cdi, metadata=folder / "metadata")
    preparer = Preparer(DRIVER, NODE, host, presence, ledger, paths, offers.find, offers.attributes, ClaimLocks())
    await preparer.repair()

    async def prepare(number: int) -> None:
        ((_, outcome),) = (await preparer.prepare([_claim(number)])).items()
        assert not isinstance(outcome, ClaimFailed), outcome.reason

    async def unprepare(number: int) -> None:
        await preparer.unprepare([ClaimRef("default", f"claim-{number}", _uid(number))])

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("prepare", "prepare again", "unprepare")}
    for number in range(ONE_BY_ONE):
        for name, call in (("prepare", prepare), ("prepare again", prepare), ("unprepare", unprepare)):
            found[name].append(await _timed(call, [number]))
    together: dict[str, list[tuple[float, float]]] = {
        f"{TOGETHER} in parallel: {name}": [] for name in ("prepare", "unprepare")
    }
    for _ in range(ROUNDS):
        for name, call in zip(together, (prepare, unprepare), strict=True):
            together[name].append(await _timed(call, range(TOGETHER)))
    await preparer.close()
    await ledger.close()
    return found | together


async def _timed(call: Callable[[int], Awaitable[None]], numbers: "range | list[int]") -> tuple[float, float]:
    """Run the calls in parallel; return the total time, and the CPU time for each, in milliseconds."""
    cpu, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(call(number) for number in numbers))
    return (time.perf_counter() - started) * 1e3, (time.process_time() - cpu) * 1e3 / len(numbers)


def _claim(number: int) -> v1.ResourceClaim:
    result = v1.DeviceRequestAllocationResult(
        request="gpu", driver=DRIVER, pool=NODE, device=f"bench-{number % DEVICES}"
    )
    allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=(result,)))
    metadata = ObjectMeta(namespace="default", name=f"claim-{number}", uid=_uid(number))
    return v1.ResourceClaim(metadata=metadata, status=v1.ResourceClaimStatus(allocation=allocation))


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _figures(times: list[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = (sorted(each) for each in zip(*times, strict=True))
    return {"p50": quantile(wall, 0.5), "p99": quantile(wall, 0.99), "cpu": quantile(cpu, 0.5)}
