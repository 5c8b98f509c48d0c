"""The pod resources API: the devices of containers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from grpcunix import Client, RpcError, Status, connect
from kubelet import FakeClock, Node, container, pod
from kubelet.devicemanager import Device
from kubelet.podresources import container_devices
from kubelet.stubs import DevicePluginStub, Gate
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as plugin_api
from kubeletapi.podresources.v1 import api_pb2 as api
from tests.kubelet.scenarios import scenario

R = "example.com/x"
_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


async def ask(node: Node, method: str, request: Any) -> Any:
    async with connect(node.pod_resources_socket) as channel:
        return await Client(channel, _LISTER).call(method, request)


async def listed(node: Node) -> dict[str, dict[str, list[str]]]:
    """Pod -> container -> IDs."""
    response = await ask(node, "List", api.ListPodResourcesRequest())
    return {
        f"{each.namespace}/{each.name}": {
            one.name: [id_ for device in one.devices for id_ in device.device_ids] for one in each.containers
        }
        for each in response.pod_resources
    }


async def offering(node: Node, plugin: DevicePluginStub) -> None:
    await plugin.register(node.kubelet_socket)
    await node.until(lambda: node.capacity().get(R) == len(plugin.devices))


@scenario(100, 101)
async def test_active_pods_are_listed_with_their_devices(node: Node) -> None:
    assert await listed(node) == {}
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device(id_) for id_ in "abcd"]) as plugin:
        await offering(node, plugin)
        await node.admit(pod("plain", container("c"), namespace="other"))
        init = (container("init", {R: 1}), container("side", {R: 1}, sidecar=True))
        await node.admit(pod("p", container("c1", {R: 2}), container("c2"), init=init))
        await node.admit(pod("done", container("c", {R: 1})))
        node.finish("done")
        await node.until(lambda: node.status("done").phase == "Succeeded")
        found = await listed(node)
        assert found == {"other/plain": {"c": []}, "default/p": {"side": ["a"], "c1": ["b", "c"], "c2": []}}


@scenario(102)
async def test_allocatable_devices_include_allocated_healthy_ones(node: Node) -> None:
    empty = await ask(node, "GetAllocatableResources", api.AllocatableResourcesRequest())
    assert not empty.devices
    devices = [Device("a", topology=(0, 1)), Device("b"), Device("c", "Unhealthy"), Device("d", topology=())]
    async with DevicePluginStub(node.device_plugins / "p.sock", R, devices) as plugin:
        await offering(node, plugin)
        await node.admit(pod("p", container("c", {R: 1})))
        found = (await ask(node, "GetAllocatableResources", api.AllocatableResourcesRequest())).devices
    assert [(list(each.device_ids), [one.ID for one in each.topology.nodes]) for each in found] == [
        (["a"], [0]),
        (["a"], [1]),
        (["b"], []),
    ]


@scenario(103)
async def test_get_returns_one_pod_or_not_found(node: Node) -> None:
    await node.admit(pod("p", container("c"), init=(container("i"), container("s", sidecar=True)), namespace="ns"))
    found = await ask(node, "Get", api.GetPodResourcesRequest(pod_name="p", pod_namespace="ns"))
    assert [each.name for each in found.pod_resources.containers] == ["s", "c"]
    with pytest.raises(RpcError) as error:
        await ask(node, "Get", api.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
    assert (error.value.code, error.value.details) == (
        Status.UNKNOWN,
        "pod p in namespace default not found",
    )


@scenario(104)
def test_devices_are_listed_one_by_one_with_topology() -> None:
    elements = container_devices(
        {
            "foo": {"dev-foo1": Device("dev-foo1", topology=(0,)), "dev-foo2": Device("dev-foo2")},
            "bar": {"dev-bar3": Device("dev-bar3", topology=(0,))},
            "baz": {"dev-baz2": Device("dev-baz2")},
        }
    )
    assert [(each.resource_name, *each.device_ids, each.HasField("topology")) for each in elements] == [
        ("foo", "dev-foo1", True),
        ("foo", "dev-foo2", False),
        ("bar", "dev-bar3", True),
        ("baz", "dev-baz2", False),
    ]


@scenario(105)
async def test_v1alpha1_list_is_served(node: Node) -> None:
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a", topology=(0,))]) as plugin:
        await offering(node, plugin)
        await node.admit(pod("p", container("c", {R: 1})))
        async with connect(node.pod_resources_socket) as channel:
            answer = await channel.unary("/v1alpha1.PodResourcesLister/List", b"", seconds=10)
        found = api.ListPodResourcesResponse.FromString(answer)
    (element,) = found.pod_resources[0].containers[0].devices
    assert (element.resource_name, list(element.device_ids), element.HasField("topology")) == (R, ["a"], False)


async def test_v1alpha1_list_omits_sidecars_and_includes_ended_pods(node: Node) -> None:
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a"), Device("b")]) as plugin:
        await offering(node, plugin)
        await node.admit(pod("p", container("c", {R: 1}), init=(container("s", {R: 1}, sidecar=True),)))
        await node.admit(pod("done", container("c")))
        node.finish("done")
        await node.until(lambda: node.status("done").phase == "Succeeded")
        async with connect(node.pod_resources_socket) as channel:
            answer = await channel.unary("/v1alpha1.PodResourcesLister/List", b"", seconds=10)
        found = api.ListPodResourcesResponse.FromString(answer).pod_resources
        assert {each.name: [c.name for c in each.containers] for each in found} == {"p": ["c"], "done": ["c"]}
        assert await listed(node) == {"default/p": {"s": ["a"], "c": ["b"]}}


@scenario(131)
async def test_running_allocation_is_hidden_and_blocks_next_pod(node: Node) -> None:
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")]) as plugin:
        answer = plugin_api.AllocateResponse(container_responses=[plugin_api.ContainerAllocateResponse()])
        gate = plugin.behaviours["Allocate"] = Gate(answer)
        await offering(node, plugin)
        slow = asyncio.create_task(node.admit(pod("slow", container("c", {R: 1}))))
        await plugin.until(lambda: bool(plugin.called("Allocate")))
        plain = asyncio.create_task(node.admit(pod("plain", container("c"))))
        assert await listed(node) == {"default/slow": {"c": []}}, "the other's turn has not come"
        plugin.update([Device("a"), Device("b")])
        await node.until(lambda: node.capacity() == {R: 2})
        assert [node.status(name).phase for name in ("slow", "plain")] == ["Pending", "Pending"]
        gate.open()
        await asyncio.gather(slow, plain)
        assert await listed(node) == {"default/slow": {"c": ["a"]}, "default/plain": {"c": []}}


async def test_requests_over_rate_limit_are_refused(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder, clock=clock) as node:
        for passed, allowed in ((0.0, 10), (0.05, 5), (60.0, 10)):
            await clock.advance(passed)
            for _ in range(allowed):
                await listed(node)
            with pytest.raises(RpcError) as error:
                await listed(node)
            assert (error.value.code, error.value.details) == (
                Status.RESOURCE_EXHAUSTED,
                "rejected by rate limit",
            )
