"""A pod keeps its devices for as long as it can run, whatever its kubelet knows, and not one pass longer."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import LeaseRefused, Ledger
from kubelet.node import Node
from kubelet.pods import container
from kubelet.pods import pod as a_pod
from tests.checkpoint.build import claimed, lease
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.node import GRACE, leases, node_of, offered, pod, until_ended, wait_for_passes
from tests.running import until

A = [("example.com/fuse", "misc-fuse", "pod/default/a/c")]


async def claim_is_refused(ledger: Ledger) -> bool:
    """Return whether a claim for the device is refused."""
    try:
        await ledger.grant([claimed("misc-fuse", "u", "example.com/fuse")])
    except LeaseRefused:
        return True
    return False


async def test_reason_names_the_holder_as_soon_as_it_is_known(start: StartPlugins, ledger: Ledger) -> None:
    """The kubelet's list does not change."""
    side = await start([resource()])
    await ledger.grant([granted := lease("misc-fuse", "example.com/other")])

    def reason() -> str:
        (device,) = side.plugins.devices()["example.com/fuse"]
        return device.reason

    await until(lambda: reason().endswith("a pod that the kubelet has not reported yet"))
    await ledger.update([replace(granted, holder="pod/default/a/c")])
    assert reason() == "example.com/other (device-plugin) has allocated misc-fuse to pod/default/a/c"


@pytest.mark.parametrize("cgroups", [True, False])
async def test_leases_survive_a_kubelet_restart_without_api_server(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path, cgroups: bool
) -> None:
    async with node_of(made_up, socket_dir, cgroups=cgroups) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        node.sources.hold()
        await node.restart()
        await offered(node)
        assert node.active_pods() == []  # therefore pod-resources lists no pod
        await wait_for_passes(side, ledger)
        assert leases(ledger) == A
        assert await claim_is_refused(ledger)
        node.sources.release()
        await node.until(lambda: len(node.active_pods()) == 2)
        await wait_for_passes(side, ledger)
        assert leases(ledger) == A
        await node.remove("a")
        await until_ended(side, ledger, "misc-fuse")


async def test_lease_ends_with_its_pod_after_the_kubelet_listed_no_pods(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], interval=0.05, grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        await until(lambda: leases(ledger) == A)
        node.sources.hold()
        await node.restart()
        await wait_for_passes(side, ledger)
        node.sources.release()
        await node.until(lambda: len(node.active_pods()) == 2)
        assert leases(ledger) == A
        await node.remove("a")
        await until(lambda: leases(ledger) == [])


@pytest.mark.parametrize("cgroups", [True, False])
async def test_running_init_container_keeps_its_unlisted_device(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path, cgroups: bool
) -> None:
    flashing = a_pod("a", container("c"), init=(container("flash", {"example.com/fuse": 1}, stays=True),))
    async with node_of(made_up, socket_dir, cgroups=cgroups) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        node.bind(flashing)
        await node.until(lambda: [x.state.name for x in node.status("a").init_container_statuses] == ["running"])
        await wait_for_passes(side, ledger)
        assert [lease.unit for lease in ledger.leases()] == ["misc-fuse"]
        assert await claim_is_refused(ledger)
        await node.exit_container("a", "flash")
        await node.until(lambda: node.status("a").phase == "Running")
        await node.remove("a")
        await until_ended(side, ledger, "misc-fuse")


async def test_pod_without_kubelet_keeps_its_device_until_its_cgroup_is_removed(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        cgroup = node.cgroup("a")
        assert cgroup is not None
        await node.stop(kill=True)
        await wait_for_passes(side, ledger)
        assert leases(ledger) == A
        cgroup.rmdir()
        await until_ended(side, ledger, "misc-fuse")
        cgroup.mkdir()


async def test_force_deleted_pod_keeps_its_device_while_it_runs(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    """A kubelet that starts does not know such a pod, and ends it once all sources are ready."""
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE)
        await offered(node)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        await node.stop()
        node.sources.hold()
        cgroup = node.cgroup("a")
        assert cgroup is not None
        await node.remove("a", force=True)
        await node.start()
        await offered(node)
        await wait_for_passes(side, ledger)
        assert leases(ledger) == A
        node.sources.release()
        await until(lambda: not cgroup.exists())
        await until_ended(side, ledger, "misc-fuse")


def show_processes(cgroup: Path | None) -> Path:
    """Show processes in a pod's cgroup, until the returned file is gone."""
    assert cgroup is not None
    cgroup.mkdir(exist_ok=True)
    (cgroup / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return cgroup / "cgroup.events"


async def delete_by_force(node: Node, name: str) -> Path:
    """Delete a pod whose processes do not end; return the file that shows them."""
    cgroup = node.cgroup(name)
    await node.remove(name, force=True)
    return show_processes(cgroup)  # the stand-in for the kubelet has ended it


async def restart_without_checkpoint(node: Node, kubelet_root: Path, running: str) -> None:
    """Restart a kubelet that has lost its checkpoint, while the processes of a pod run."""
    show_processes(node.cgroup(running))
    await node.stop()
    (kubelet_root / "device-plugins/kubelet_internal_checkpoint").unlink()
    await node.start()


async def test_kubelet_without_checkpoint_cannot_reallocate_a_running_pods_device(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    """The kubelet considers the device free, as after an administrator removed a damaged file."""
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE, max_wait=0.2)
        await offered(node)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        assert leases(ledger) == A
        await restart_without_checkpoint(node, socket_dir, running="a")
        await node.until(lambda: node.devices() and len(node.active_pods()) == 2)  # its old status
        assert node.allocations("a", "c") == {}
        refused = await node.admit(pod("b"))
        assert refused.phase == "Failed"
        assert "device misc-fuse: pod default/a still runs with it" in refused.message
        assert leases(ledger) == A
        await wait_for_passes(side, ledger)
        assert node.allocatable()["example.com/fuse"] == 1  # the scheduler counts the pod
        await node.remove("a")
        assert (await node.admit(pod("c"))).phase == "Running"
        assert [x.unit for x in ledger.leases()] == ["misc-fuse"]


async def test_kubelet_without_checkpoint_allocates_another_share(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    """As after a deletion by force, or without its file; with no other free share Allocate refuses."""
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource(shares=2)], grace=GRACE, max_wait=0.2)
        await offered(node, count=2)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        await restart_without_checkpoint(node, socket_dir, running="a")
        await node.until(lambda: node.devices() and len(node.active_pods()) == 2)
        assert (await node.admit(pod("b"))).phase == "Running"
        assert len(ledger.leases()) == 2
        assert (await node.admit(pod("c"))).phase == "Failed"


async def test_device_of_force_deleted_pod_is_unavailable_until_its_processes_end(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    """The scheduler and the kubelet have forgotten the pod. A kubelet that starts has the same list at once."""
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource()], grace=GRACE, max_wait=0.2)
        await offered(node)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        processes = await delete_by_force(node, "a")
        refused = await node.admit(pod("b"))
        assert (refused.phase, "pod default/a still runs with it" in refused.message) == ("Failed", True)
        await offered(node, count=0)
        (device,) = side.plugins.devices()["example.com/fuse"]
        assert device.health == "unavailable"
        assert device.reason.startswith("pod default/a still runs with misc-fuse, although the kubelet does not list")
        await node.restart()
        await node.until(lambda: node.capacity().get("example.com/fuse") == 1)
        assert node.allocatable()["example.com/fuse"] == 0
        assert leases(ledger) == A
        processes.unlink()
        await offered(node)
        assert (await node.admit(pod("c"))).phase == "Running"


async def test_only_the_share_of_a_force_deleted_pod_is_unhealthy(
    start: StartPlugins, ledger: Ledger, made_up: MadeUpHost, socket_dir: Path
) -> None:
    async with node_of(made_up, socket_dir) as node:
        side = await start([resource(shares=2)], grace=GRACE)
        await offered(node, count=2)
        await node.admit(pod("a"))
        await wait_for_passes(side, ledger)
        await delete_by_force(node, "a")
        await wait_for_passes(side, ledger)
        await offered(node, count=1)
        assert (await node.admit(pod("b"))).phase == "Running"
        assert sorted(lease.unit for lease in ledger.leases()) == ["misc-fuse.0", "misc-fuse.1"]
