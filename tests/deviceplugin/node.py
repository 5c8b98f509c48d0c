"""A node with a faithful kubelet for the plugin side of a test, and its pods.

Start the reconciler with `GRACE`: a faithful kubelet needs a moment to record an answer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from checkpoint import Ledger
from kubelet.node import Node
from kubelet.pods import container
from kubelet.pods import pod as a_pod
from resourceapi.objects.core import Pod
from tests.deviceplugin.conftest import Side
from tests.deviceplugin.host import MadeUpHost
from tests.running import until

GRACE = 0.5  # seconds


@asynccontextmanager
async def node_of(made_up: MadeUpHost, folder: Path, *, cgroups: bool = True) -> AsyncIterator[Node]:
    """A node with a second pod, which shows that its kubelet knows its pods; `cgroups`: whether cgroups can be seen."""
    root = made_up.root / "sys/fs/cgroup"
    root.mkdir(parents=True)
    (root / "cgroup.controllers").touch()
    async with Node(folder, cgroups=root if cgroups else None) as node:
        await node.admit(a_pod("other"))
        yield node


def pod(name: str, resource: str = "example.com/fuse", count: int = 1) -> Pod:
    """A pod with one container `c` that requests units."""
    return a_pod(name, container("c", {resource: count}))


async def offered(node: Node, resource: str = "example.com/fuse", count: int = 1) -> None:
    """Wait until the kubelet has so many allocatable units."""
    await node.until(lambda: node.allocatable().get(resource) == count, 30)


def leases(ledger: Ledger) -> list[tuple[str, str, str]]:
    """Resource, unit and holder of each lease."""
    return sorted((lease.resource, lease.unit, lease.holder) for lease in ledger.leases())


async def wait_for_passes(side: Side, ledger: Ledger, passes: int = 2) -> None:
    """Run enough passes of the reconciler to end any lease of now."""
    await until(lambda: all(ledger.age(lease) > GRACE for lease in ledger.leases()))
    for _ in range(passes):
        await side.reconciler.refresh()


async def until_ended(side: Side, ledger: Ledger, *units: str) -> None:
    """Run passes of the reconciler until these units have no lease."""
    async with asyncio.timeout(30):
        while any(lease.unit in units for lease in ledger.leases()):
            await side.reconciler.refresh()
