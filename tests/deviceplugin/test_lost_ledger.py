"""A lost ledger, or one that becomes readable later: pods keep their devices."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from checkpoint import Ledger, LedgerUnavailable
from deviceplugin import Paths
from grpcunix import Status
from tests.checkpoint.build import claimed, opened
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, refusal
from tests.deviceplugin.node import GRACE, leases, node_of, offered, pod, until_ended, wait_for_passes
from tests.witnesses.kubelet import ScriptedKubelet
from tests.witnesses.kubelet import pod as listed_pod

A = ("example.com/fuse", "misc-fuse", "pod/default/a/c")
NewLedger = Callable[[], Awaitable[Ledger]]


@pytest.fixture
async def lost_ledger(ledger: Ledger, tmp_path: Path) -> AsyncIterator[NewLedger]:
    """Delete the ledger, and open a new one in its place."""
    made: list[Ledger] = []

    async def open_new() -> Ledger:
        await ledger.close()
        for path in (tmp_path / "state").glob("ledger.sqlite3*"):
            path.unlink()
        made.append(await opened(tmp_path / "state", "this-boot"))
        return made[-1]

    yield open_new
    for each in made:
        await each.close()


async def test_claims_are_refused_after_ledger_loss_until_the_kubelet_lists_pods(
    start: StartPlugins, lost_ledger: NewLedger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        await side.stop()
        await node.remove("other")  # now the kubelet lists no pod with certainty
        node.sources.hold()
        await node.restart()
        lost = await lost_ledger()
        side = await start([resource(), resource("kvm")], grace=GRACE, on=lost)
        for device in ("misc-fuse", "misc-kvm"):
            with pytest.raises(LedgerUnavailable, match="the kubelet does not know its pods yet"):
                await lost.grant([claimed(device, "u", "example.com/other")])
        node.sources.release()
        await node.until(lambda: len(node.active_pods()) == 1)
        await lost.grant([claimed("misc-kvm", "u", "example.com/other")])
        assert sorted(lease.unit for lease in lost.leases()) == ["misc-fuse", "misc-kvm"]
        await wait_for_passes(side, lost)
        assert leases(lost)[0] == A
        await node.remove("a")
        await until_ended(side, lost, "misc-fuse")


async def test_allocate_is_unavailable_after_ledger_loss_until_pods_are_listed(
    start: StartPlugins, lost_ledger: NewLedger, paths: Paths, socket_dir: Path
) -> None:
    listing = ScriptedKubelet(socket_dir)
    await listing.start()
    lost = await lost_ledger()
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(), resource("kvm")], on=lost)
        for _ in range(2):
            await kubelet.lists.get()
        kubelet.endpoint = kubelet.endpoint_of("example.com/kvm")
        code, text = await refusal(kubelet, "misc-kvm")
        assert (code, "the lease database is new or was lost" in text) == (Status.UNAVAILABLE, True)
        listing.answer = [listed_pod("a", {"example.com/fuse": ["misc-fuse"]})]
        await allocate(kubelet, "misc-kvm")
        assert [lease.unit for lease in lost.leases()] == ["misc-fuse", "misc-kvm"]
    await listing.stop()


async def test_leases_of_a_late_readable_ledger_appear_in_the_list(
    start: StartPlugins, ledger: Ledger, paths: Paths, tmp_path: Path
) -> None:
    await ledger.grant([claimed("misc-fuse", "u", "example.com/fuse")])
    await ledger.close()
    state = tmp_path / "state"
    state.rename(tmp_path / "elsewhere")
    state.write_text("what is mounted here is not yet")
    late = await opened(state, "this-boot")
    async with kubelet_end(paths.device_plugins) as kubelet, asyncio.timeout(30):
        await start([resource()], on=late, interval=0.05)
        assert [x.health for x in await kubelet.lists.get()] == ["Healthy"]
        state.unlink()
        (tmp_path / "elsewhere").rename(state)
        assert [x.health for x in await kubelet.lists.get()] == ["Unhealthy"]
    await late.close()
