"""ResourceSlices are deleted when the kubelet starts, and half a minute after a driver has disconnected."""

import pytest

from kubelet import ClusterError
from kubelet.dramanager.slices import SliceWiper
from resourceapi.objects import v1
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, Kit

NODE = "realnode"


def deletions(kit: Kit) -> list[tuple[str, str | None]]:
    return kit.cluster.deleted_slices


@scenario(158)
async def test_all_slices_of_node_are_deleted_at_start(kit: Kit) -> None:
    await kit.advance_until(0, lambda: deletions(kit))
    assert deletions(kit) == [(NODE, None)]
    await kit.restart()
    await kit.advance_until(0, lambda: len(deletions(kit)) == 2)
    assert deletions(kit) == [(NODE, None), (NODE, None)]


@scenario(158)
async def test_slices_are_deleted_30_seconds_after_deregistration(kit: Kit) -> None:
    stub, other = await kit.driver(), await kit.driver("other.example.com")
    handler = kit.manager.get_watcher_handler()
    await handler.deregister_plugin(DRIVER, str(stub.socket))
    await kit.clock.advance(29)
    assert deletions(kit) == [(NODE, None)]
    await kit.advance_until(1, lambda: len(deletions(kit)) == 2)
    assert deletions(kit) == [(NODE, None), (NODE, DRIVER)]
    assert kit.clock.now() == 30
    assert kit.manager.plugins.is_usable(other.info.name)


@scenario(158)
async def test_driver_that_reconnects_in_time_keeps_its_slices(kit: Kit) -> None:
    stub = await kit.driver()
    await stub.stop()
    await kit.connected(stub, False)
    await kit.clock.advance(29)
    await stub.start()
    await kit.connected(stub)
    await kit.clock.advance(300)
    assert deletions(kit) == [(NODE, None)]


async def test_slices_of_dead_and_never_serving_drivers_are_deleted(kit: Kit) -> None:
    stub = await kit.driver()
    await stub.stop()
    await kit.connected(stub, False)
    await kit.manager.get_watcher_handler().register_plugin("never", str(kit.folder / "nobody"), ["v1.DRAPlugin"])
    await kit.advance_until(10, lambda: len(deletions(kit)) == 3)
    assert deletions(kit) == [(NODE, None), (NODE, DRIVER), (NODE, "never")]
    assert kit.clock.now() == 30


async def test_connected_instance_keeps_slices_of_driver(kit: Kit) -> None:
    old, new = await kit.driver(name="old.sock"), await kit.driver(name="new.sock")
    await new.stop()
    await kit.connected(new, False)
    await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(new.socket))
    await kit.clock.advance(300)
    assert deletions(kit) == [(NODE, None)]
    assert kit.manager.plugins.get(DRIVER).endpoint == str(old.socket)


class FailingCluster:
    """A cluster that refuses the first deletions."""

    def __init__(self, kit: Kit, failures: int) -> None:
        self.times: list[float] = []
        self._kit = kit
        self._failures = failures

    async def get_claim(self, namespace: str, name: str) -> v1.ResourceClaim:
        raise ClusterError("there are none")

    async def delete_slices(self, node: str, driver: str | None = None) -> None:
        self.times.append(self._kit.clock.now())
        if len(self.times) <= self._failures:
            raise ClusterError("not now")


async def test_failed_deletion_is_tried_nine_times(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FailingCluster(kit, 100)
    wiper = SliceWiper(cluster, NODE, kit.clock)
    wiper.wipe_all()
    await kit.clock.advance(3600)
    waits = [after - before for before, after in zip(cluster.times, cluster.times[1:], strict=False)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128]
    assert "not now" in caplog.text
    await wiper.stop()


async def test_reconnected_driver_does_not_stop_running_deletion(kit: Kit) -> None:
    """The retries also delete slices that the driver has published meanwhile."""
    cluster = FailingCluster(kit, 3)
    wiper = SliceWiper(cluster, NODE, kit.clock)
    wiper.driver_disconnected(DRIVER)
    await kit.clock.advance(31)
    wiper.driver_connected(DRIVER)
    await kit.clock.advance(300)
    assert cluster.times == [30, 31, 33, 37]
    wiper.driver_disconnected(DRIVER)
    await kit.clock.advance(30)
    assert len(cluster.times) == 5
    await wiper.stop()
