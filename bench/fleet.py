"""A fleet of nodes.

The load that the ResourceSlices of many nodes put on an API server (nodeplug's stand-in, in another process). The
controllers of all nodes run in one process; each has its own client and connections, 8 devices and one slice. All
nodes start at once. Then one device of one node changes its health, and after that one device of every node.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bench.process import resident
from bench.quantile import quantile
from bench.slices import device, with_health
from bench.table import Cell, Table, show
from dra_plugin.publishing.slices import Controller, DriverResources, Limits, Owner, Pool, Slice
from resourceapi.client import AsyncClient, Credentials, from_kubeconfig
from resourceapi.client.transport import Answer
from resourceapi.objects import ObjectMeta, core

DRIVER = "nodeplug.dev"
SIZES = (500, 5_000)
DEVICES = 8
CHANGES = 20
_MAKING = 16  # Node objects that are created or deleted in parallel, outside of measurements


def run() -> Iterator[Table]:
    """Measure."""
    gc.freeze()
    found = [_with_server(size) for size in SIZES]
    yield _table(SIZES, found)


def _table(sizes: Sequence[int], found: Sequence[Mapping[str, float]]) -> Table:
    figures = (
        ("start of all nodes until all slices are stored", "s", "start"),
        ("requests per node at its start", "", "start_requests"),
        ("one health change stored, p50", "ms", "change_p50"),
        ("one health change stored, longest", "ms", "change_longest"),
        ("requests per health change", "", "change_requests"),
        ("one health change on every node until all are stored", "s", "all_changes"),
        ("requests per node meanwhile", "", "all_changes_requests"),
        ("failed requests", "", "failures"),
        ("resident memory of the server, empty", "MiB", "resident_empty"),
        ("resident memory of the server, with all nodes", "MiB", "resident_started"),
        ("resident memory of the server, after the changes", "MiB", "resident_all_changes"),
    )
    rows: list[tuple[Cell, ...]] = [(what, unit, *(each[name] for each in found)) for what, unit, name in figures]
    return Table(("", "unit", *(f"{size:,} nodes" for size in sizes)), tuple(rows))


def _with_server(size: int) -> dict[str, float]:
    command = [sys.executable, "-m", "nodeplug", "apiserver", "--no-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        try:
            return asyncio.run(_measure(lambda: Credentials(server=url), server.pid, size))
        finally:
            server.terminate()


class _CountingClient(AsyncClient):
    """A client that counts its requests; `asked` is the sum of all clients."""

    asked: ClassVar[Counter[str]] = Counter()

    async def send(self, method: str, *arguments: Any, **options: Any) -> Answer:
        self.asked[method] += 1
        return await super().send(method, *arguments, **options)

    @contextlib.asynccontextmanager
    async def lines(self, path: str, query: Mapping[str, str], seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked["watch"] += 1
        async with super().lines(path, query, seconds) as lines:
            yield lines


class _Node:
    """The part of a daemon that publishes its slices."""

    def __init__(self, credentials: Callable[[], Credentials], number: int, failures: list[str]) -> None:
        self.name = f"worker-{number}"
        self._devices = [device(number) for number in range(DEVICES)]
        self.client = _CountingClient(credentials)
        self.controller = Controller(
            self.client,
            DRIVER,
            Owner.node(self.name),
            resources=self._resources(),
            limits=Limits(),
            on_error=lambda error, message: failures.append(f"{self.name}: {message}: {error}"),
        )

    def change(self) -> None:
        """Make the first device unhealthy, or healthy again."""
        first = self._devices[0]
        self._devices[0] = with_health(first, is_healthy=bool(first.taints))
        self.controller.update(self._resources())

    def _resources(self) -> DriverResources:
        return DriverResources({self.name: Pool(slices=(Slice(devices=tuple(self._devices)),))})


async def _measure(credentials: Callable[[], Credentials], server: int, size: int) -> dict[str, float]:
    found: dict[str, float] = {"resident_empty": resident(server)}
    failures: list[str] = []
    nodes = [_Node(credentials, number, failures) for number in range(size)]
    await _make(nodes)
    asked = _CountingClient.asked
    asked.clear()

    begin = time.perf_counter()
    running = [asyncio.create_task(node.controller.run()) for node in nodes]
    await _stored(nodes)
    found |= {"start": time.perf_counter() - begin, "start_requests": asked.total() / size}
    found["resident_started"] = resident(server)
    while asked["watch"] < size:  # noqa: ASYNC110 - a count is no event
        await asyncio.sleep(0.01)

    asked.clear()
    took = []
    for node in itertools.islice(itertools.cycle(nodes), CHANGES):
        begin = time.perf_counter()
        node.change()
        await node.controller.wait_synced()
        took.append(1e3 * (time.perf_counter() - begin))
    found |= {"change_p50": quantile(took, 0.5), "change_longest": max(took)}
    found["change_requests"] = asked.total() / CHANGES

    asked.clear()
    begin = time.perf_counter()
    for node in nodes:
        node.change()
    await _stored(nodes)
    found |= {"all_changes": time.perf_counter() - begin, "all_changes_requests": asked.total() / size}
    found |= {"resident_all_changes": resident(server), "failures": len(failures)}
    print(*failures[:10], sep="\n", file=sys.stderr)

    for task in running:
        task.cancel()
    await asyncio.wait(running)
    await _each(nodes, lambda node: node.client.resource(core.Node).delete(node.name))
    for node in nodes:
        node.client.close()
    return found


async def _make(nodes: list[_Node]) -> None:
    """Create the Node objects, as kubelets do."""
    objects = nodes[0].client.resource(core.Node)
    await _each(nodes, lambda node: objects.create(core.Node(metadata=ObjectMeta(name=node.name))))


async def _each(nodes: list[_Node], act: Callable[[_Node], Awaitable[object]]) -> None:
    """Call `act` for all nodes, `_MAKING` at a time."""
    for some in range(0, len(nodes), _MAKING):
        await asyncio.gather(*map(act, nodes[some : some + _MAKING]))


async def _stored(nodes: list[_Node]) -> None:
    """Wait until the slices of every node are stored, after any number of attempts."""
    for node in nodes:
        while not node.controller.is_stored:
            await node.controller.wait_synced()
            await asyncio.sleep(0.01)  # the controller repeats a failed sync


def main() -> None:
    """Measure a real API server on this machine: `python -m bench.fleet KUBECONFIG --server PID [--nodes N...]`."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("kubeconfig", type=Path, help="of an account that can create and delete nodes and slices")
    parser.add_argument("--nodes", type=int, nargs="+", default=[SIZES[0]])
    parser.add_argument("--server", type=int, required=True, help="the server's process")
    options = parser.parse_args()
    gc.freeze()
    source = from_kubeconfig(options.kubeconfig)
    show(_table(options.nodes, [asyncio.run(_measure(source, options.server, size)) for size in options.nodes]))


if __name__ == "__main__":
    main()
