"""The sources of pods: static pods are known at once, others when the API server answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkpoint.kubelet_devices import load
from grpcunix import Client, connect, is_live
from kubelet import FakeClock, MemoryCluster, Node, NodeError, allocated_claim, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub, DRAPluginStub, Gate
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as plugin_api
from kubeletapi.podresources.v1 import api_pb2 as api

R = "example.com/device"
_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[Node]:
    """A node with cgroups."""
    async with Node(folder, cgroups=folder / "cgroup") as running:
        yield running


@pytest.fixture
async def plugin(node: Node) -> AsyncIterator[DevicePluginStub]:
    """A registered plugin with three devices."""
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device(id_) for id_ in "abc"]) as stub:
        await offer(node, stub)
        yield stub


async def offer(node: Node, stub: DevicePluginStub) -> None:
    await stub.start()
    await stub.register(node.kubelet_socket)
    await node.until(lambda: node.allocatable().get(R) == len(stub.devices))


async def listed(node: Node) -> dict[str, list[str]]:
    """Pod -> IDs of its containers."""
    async with connect(node.pod_resources_socket) as channel:
        response = await Client(channel, _LISTER).call("List", api.ListPodResourcesRequest())
    return {
        each.name: [id_ for one in each.containers for device in one.devices for id_ in device.device_ids]
        for each in response.pod_resources
    }


def cgroups(node: Node) -> int:
    return len([path for path in (node.directory / "cgroup").rglob("*pod*-pod*.slice") if path.is_dir()])


async def release_sources(node: Node) -> None:
    node.sources.release()
    await node.until(lambda: node.sources.all_ready)


def in_file(node: Node) -> list[str]:
    found = load((node.device_plugins / "kubelet_internal_checkpoint").read_bytes())
    return sorted(id_ for entry in found.entries or () for id_ in entry.device_ids)


async def test_start_without_api_server_keeps_devices_and_cgroups(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    node.sources.hold()
    assert await listed(node) == {"p": ["a"]}, "one that runs knows what it knows"
    for _ in range(2):
        await node.restart()
        assert await listed(node) == {}
        assert node.active_pods() == []
        assert (node.status("p").phase, cgroups(node), in_file(node)) == ("Running", 1, ["a"])
    await offer(node, plugin)
    assert await listed(node) == {}
    assert in_file(node) == ["a"], "the checkpoint was written with all allocations"
    await release_sources(node)
    assert await listed(node) == {"p": ["a"]}
    await node.admit(pod("q", container("c", {R: 2})))
    assert await listed(node) == {"p": ["a"], "q": ["b", "c"]}


async def test_api_source_is_ready_only_after_its_pods_are_added(node: Node, plugin: DevicePluginStub) -> None:
    """The source counts as ready after its pods have been added, not at its first answer."""
    for name in "pq":
        await node.admit(pod(name, container("c", {R: 1})))
    node.sources.hold()
    await node.restart()
    await offer(node, plugin)
    gate = plugin.behaviours["Allocate"] = Gate(
        plugin_api.AllocateResponse(container_responses=[plugin_api.ContainerAllocateResponse()])
    )
    static = asyncio.create_task(node.run_static_pod(pod("s", container("c", {R: 1}))))
    await plugin.until(lambda: len(plugin.called("Allocate")) == 3)
    node.sources.release()
    gate.open()
    assert (await static).phase == "Running"
    await node.until(lambda: node.sources.all_ready)
    assert await listed(node) == {"s-node": ["c"], "p": ["a"], "q": ["b"]}
    assert len(plugin.called("Allocate")) == 3


async def test_waiter_for_sources_wakes_without_other_events(folder: Path) -> None:
    async with Node(folder, clock=FakeClock()) as node:
        node.sources.hold()
        await node.restart()
        assert not node.sources.all_ready
        node.sources.release()
        await node.until(lambda: node.sources.all_ready, 5)


async def test_stopping_kubelet_keeps_active_pods_until_sockets_close(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    stopping = asyncio.create_task(node.stop())
    while is_live(node.pod_resources_socket):
        assert len(node.active_pods()) == 1, "otherwise pod resources would list no devices"
        await asyncio.sleep(0)
    await stopping
    assert in_file(node) == ["a"]


async def test_container_that_ends_without_api_server_restarts_later(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    node.sources.hold()
    await node.restart()
    await offer(node, plugin)
    assert (await node.exit_container("p", "c", 1)).container_statuses[0].state.terminated is not None
    await release_sources(node)
    await node.until(lambda: node.status("p").container_statuses[0].state.running is not None)
    assert await listed(node) == {"p": ["a"]}
    assert len(plugin.called("Allocate")) == 1


async def test_pods_cannot_be_admitted_without_api_server(node: Node) -> None:
    node.sources.hold()
    with pytest.raises(NodeError, match="the API server is disconnected"):
        await node.admit(pod("p", container("c")))
    node.bind(pod("q", container("c")))  # the API server has the pod, but the kubelet does not know it yet
    assert (node.status("q").phase, node.active_pods()) == ("Pending", [])
    node.sources.release()
    await node.until(lambda: node.status("q").phase == "Running")


async def test_pods_deleted_without_api_server_end_when_it_returns(node: Node, plugin: DevicePluginStub) -> None:
    for name in "pq":
        await node.admit(pod(name, container("c", {R: 1})))
    node.sources.hold()
    await node.restart()
    await offer(node, plugin)
    await node.remove("p")
    await node.remove("q", force=True)
    assert [each.metadata.name for each, _ in node.pods()] == ["p"]
    assert (cgroups(node), in_file(node)) == (2, ["a", "b"]), "both run on"
    await release_sources(node)
    await node.until(lambda: node.pods() == [])
    assert (await listed(node), cgroups(node)) == ({}, 0)
    await node.admit(pod("r", container("c", {R: 3})))
    assert await listed(node) == {"r": ["a", "b", "c"]}


async def test_deletion_takes_effect_when_api_server_returns(node: Node) -> None:
    await node.admit(pod("p", container("c")))
    node.sources.hold()
    await node.remove("p")
    assert (node.status("p").phase, cgroups(node)) == ("Running", 1), "the kubelet knows it, and cannot hear of that"
    node.sources.release()
    await node.until(lambda: node.pods() == [])


async def test_api_delay_postpones_delivery_of_pods(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder, clock=clock, api_delay=1.0) as node:
        node.bind(pod("p", container("c")))
        await clock.advance(0.9)
        assert node.active_pods() == []
        await clock.advance(0.1)
        await node.until(lambda: node.status("p").phase == "Running")
        await node.restart()
        assert node.active_pods() == []
        await clock.advance(1)
        await node.until(lambda: len(node.active_pods()) == 1)


async def test_claims_of_undelivered_pods_are_not_unprepared(folder: Path) -> None:
    clock, claims = FakeClock(), MemoryCluster()
    claims.put(allocated_claim("c1", "driver.example.com", "r/pool/g0", users=["p"]))
    async with Node(folder, clock=clock, cluster=claims) as node:
        stub = DRAPluginStub(node.plugins_registry)
        async with stub:
            await clock.advance(1)
            await node.until(lambda: node.dra_manager.plugins.is_usable("driver.example.com"))
            await node.admit(pod("p", container("c", claims=["g"]), uid="p", claims={"g": "c1"}))
            node.sources.hold()
            await node.restart()
            await clock.advance(1)
            await node.until(lambda: node.dra_manager.plugins.is_usable("driver.example.com"))
            await clock.advance(300)
            assert stub.called("NodeUnprepareResources") == []
            await release_sources(node)
            await clock.advance(60)
            assert stub.called("NodeUnprepareResources") == []
            assert await listed(node) == {"p": []}


async def test_static_pods_run_without_api_server(folder: Path) -> None:
    manifest = pod("s", container("c", {R: 1}))
    node = Node(folder, node_name="Node-1", static_pods=[pod("early", container("c"))], cgroups=folder / "cgroup")
    async with node, DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")]) as plugin:
        assert await listed(node) == {"early-node-1": []}
        await offer(node, plugin)
        node.sources.hold()
        assert (await node.run_static_pod(manifest)).phase == "Running"
        (uid,) = [each.uid for each, _ in node.pods() if each.metadata.name == "s-node-1"]
        assert len(uid) == 32
        assert int(uid, 16)
        await node.restart()
        assert await listed(node) == {"early-node-1": [], "s-node-1": ["a"]}
        assert not node.sources.all_ready
        await node.remove_static_pod("s")
        assert await listed(node) == {"early-node-1": []}
        assert (cgroups(node), in_file(node)) == (2, ["a"]), "it runs on, and keeps its device"
        await release_sources(node)
        await node.until(lambda: cgroups(node) == 1)
        await offer(node, plugin)
        await node.run_static_pod(manifest)
        assert [each.uid for each in node.active_pods()][-1] == uid, "the same manifest is the same pod"
        with pytest.raises(NodeError, match="static pods may not use ResourceClaims"):
            await node.run_static_pod(pod("t", container("c"), claims={"g": "c1"}))
        with pytest.raises(NodeError, match="pod default/u-node-1 is not on the node"):
            await node.remove_static_pod("u")
