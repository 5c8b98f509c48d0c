"""The wall clock is only displayed: no change of it ends a lease, or keeps one that should end."""

import time
from pathlib import Path

import pytest

from checkpoint import LeaseRefused, Ledger
from deviceplugin import Paths
from tests.checkpoint.build import claimed
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end
from tests.deviceplugin.node import GRACE, leases, node_of, offered, pod, until_ended, wait_for_passes
from tests.witnesses.kubelet import ScriptedKubelet
from tests.witnesses.kubelet import pod as listed_pod

HOUR, YEAR = 3600.0, 31_557_600.0


class WallClock:
    """A replacement of time.time() that a test can move."""

    def __init__(self) -> None:
        self.ahead = 0.0  # seconds
        self._real = time.time

    def __call__(self) -> float:
        return self._real() + self.ahead


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.mark.parametrize("jump", [10.0, HOUR, -HOUR])
async def test_clock_jump_before_the_kubelet_records_keeps_the_device_reserved(
    start: StartPlugins, ledger: Ledger, paths: Paths, socket_dir: Path, wall_clock: WallClock, jump: float
) -> None:
    """The kubelet records an answer a moment later, and lists it a moment after that."""
    listing = ScriptedKubelet(socket_dir)
    listing.answer = [listed_pod("other")]
    await listing.start()
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()], grace=5.0)
        await kubelet.lists.get()
        await allocate(kubelet, "misc-fuse")
        wall_clock.ahead = jump
        before = listing.lists
        with pytest.raises(
            LeaseRefused, match="has allocated misc-fuse to a pod that the kubelet has not reported yet"
        ):
            await ledger.grant([claimed("misc-fuse", "u", "example.com/fuse")])
        assert listing.lists > before
    await listing.stop()


@pytest.mark.parametrize(("then", "now"), [(0.0, -HOUR), (0.0, -10 * YEAR), (YEAR, 0.0), (0.0, YEAR)])
async def test_lease_ends_with_its_pod_after_any_clock_change(
    start: StartPlugins,
    ledger: Ledger,
    made_up: MadeUpHost,
    socket_dir: Path,
    wall_clock: WallClock,
    then: float,
    now: float,
) -> None:
    wall_clock.ahead = then
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        wall_clock.ahead = now
        await wait_for_passes(side, ledger)
        assert leases(ledger) == [("example.com/fuse", "misc-fuse", "pod/default/a/c")]
        await node.remove("a")
        await until_ended(side, ledger, "misc-fuse")
