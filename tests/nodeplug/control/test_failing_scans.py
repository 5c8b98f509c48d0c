"""A defect in each scan, or in each reconciler pass: the daemon reports it in every place."""

import asyncio
import json
from collections.abc import Sequence

from hostdevices import Host
from hostdevices.tree import Folder
from hostdevices.tree import Node as DeviceNode
from kubelet.node import Node
from nodeplug.probe import ask
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest

MISC = "devices of kind misc cannot be read: ZeroDivisionError: no such luck"
SCAN = "the scan failed: ZeroDivisionError: no such luck; what was found before is offered"


class Defective(Folder):
    """A tree in which some paths raise an error."""

    defects: Sequence[str] = ()

    def names(self, path: str) -> list[str]:
        self._check(path)
        return super().names(path)

    def folders(self, path: str) -> list[str] | None:
        self._check(path)
        return super().folders(path)

    def node(self, path: str) -> DeviceNode | None:
        self._check(path)
        return super().node(path)

    def _check(self, path: str) -> None:
        if path in self.defects:
            raise ZeroDivisionError("no such luck")


async def problems_of(daemon: DaemonUnderTest) -> Sequence[str]:
    found: Sequence[str] = json.loads((await daemon.run("status", "-o", "json")).stdout)["problems"]
    return found


async def until_reported(daemon: DaemonUnderTest, *problems: str) -> None:
    """Wait until /readyz, the metrics, `status` and `doctor` report these problems and no others."""
    address, words = str(daemon.state.parent / "http"), "".join(f"not ready: {problem}\n" for problem in problems)
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(ask, address, "/readyz")) != (not problems, words or "ok\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # there is no event, and requests without a pause take a whole core
    _, metrics = await asyncio.to_thread(ask, address, "/metrics")
    assert f"\nnodeplug_last_scan_successful {0 if problems else 1}.0\n" in metrics
    known = (MISC, SCAN)
    assert [x for x in await problems_of(daemon) if x in known] == list(problems)
    examined = await daemon.run_as_is("doctor", "--config", str(daemon.path), "--root", str(daemon.root), "-o", "json")
    found = [x["message"] for x in json.loads(examined.stdout)["findings"] if x["subject"] == "daemon"]
    assert [x for x in found if x in known] == list(problems)


async def test_failing_reader_is_reported_until_it_recovers(daemon: DaemonUnderTest, node: Node) -> None:
    """The kubelet's list is empty, and only these reports explain it. Devices without a resource are not reported."""
    daemon.host = Host(daemon.root, tree := Defective(str(daemon.root)))
    tree.defects = ("/sys/class/misc", "/sys/class/net")
    await daemon.start(FUSE, KVM, statusSocket=str(daemon.state.parent / "http"))
    await until_reported(daemon, MISC)
    tree.defects = ()
    await until_reported(daemon)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_failing_scan_is_reported_and_keeps_devices(daemon: DaemonUnderTest, node: Node) -> None:
    daemon.host = Host(daemon.root, tree := Defective(str(daemon.root)))
    await daemon.start(FUSE, KVM | {"vhostNet": True}, statusSocket=str(daemon.state.parent / "http"))
    await until_reported(daemon)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    tree.defects = ("/dev/vhost-net",)
    await until_reported(daemon, SCAN)
    assert node.allocatable().get("example.com/fuse") == 2


async def test_failing_lease_check_is_reported(daemon: DaemonUnderTest, node: Node) -> None:
    """Otherwise leases of ended pods would stay without an explanation."""
    (daemon.root / "sys/fs/cgroup").mkdir(parents=True)
    daemon.host = Host(daemon.root, tree := Defective(str(daemon.root)))
    tree.defects = ("/sys/fs/cgroup",)
    await daemon.start(FUSE, statusSocket=str(daemon.state.parent / "http"))
    words = "leases of ended pods are kept, because checking them failed: ZeroDivisionError: no such luck"
    async with asyncio.timeout(30):
        while words not in await problems_of(daemon):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
    _, metrics = await asyncio.to_thread(ask, str(daemon.state.parent / "http"), "/metrics")
    assert "\nnodeplug_last_lease_check_successful 0.0\n" in metrics
