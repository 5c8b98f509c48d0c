"""Recorded data of a real kubelet, compared with the stand-in's after the same stimulus."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from checkpoint.kubelet_devices import load
from grpcunix import Client, RpcError, connect
from kubelet import Node, Pod, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as plugin_api
from kubeletapi.podresources.v1 import api_pb2 as api
from resourceapi.objects import to_dict
from tests.cases import recorded_at

FOLDER = recorded_at("kubelet")
_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded cases at {FOLDER}")


def recorded(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def asking(resource: str, count: int) -> Pod:
    return pod("p", container("c", {resource: count}))


async def offer(node: Node, plugin: DevicePluginStub) -> None:
    await plugin.start()
    await plugin.register(node.kubelet_socket)
    await node.until(lambda: node.capacity().get(plugin.resource) == len(plugin.devices))


async def fails(node: Node, plugin: DevicePluginStub) -> None:
    plugin.behaviours["Allocate"] = failing("cannot give d0")


async def answers_nothing(node: Node, plugin: DevicePluginStub) -> None:
    plugin.behaviours["Allocate"] = answering(plugin_api.AllocateResponse())


async def stays_unchanged(node: Node, plugin: DevicePluginStub) -> None:
    """No fault."""


async def stops(node: Node, plugin: DevicePluginStub) -> None:
    await plugin.stop()
    await node.until(lambda: node.allocatable()[plugin.resource] == 0)


async def restarts(node: Node, plugin: DevicePluginStub) -> None:
    await node.restart()


@pytest.mark.parametrize(
    ("name", "resource", "count", "stimulus"),
    [
        ("allocate-err", "example.com/al", 1, fails),
        ("allocate-zero", "example.com/al", 1, answers_nothing),
        ("out-of", "example.com/al", 9, stays_unchanged),
        ("plugin-gone", "example.com/al", 1, stops),
        ("plugin-not-registered-after-restart", "example.com/rk", 1, restarts),
    ],
)
async def test_pod_rejection_is_as_recorded(
    node: Node, name: str, resource: str, count: int, stimulus: Callable[[Node, DevicePluginStub], Awaitable[None]]
) -> None:
    wanted = recorded(f"pod-status-{name}")
    wanted = wanted.get("status", wanted)
    plugin = DevicePluginStub(node.device_plugins / "p.sock", resource, [Device(f"d{n}") for n in range(4)])
    async with plugin:
        await offer(node, plugin)
        await stimulus(node, plugin)
        status = await node.admit(asking(resource, count))
    assert (status.phase, status.reason, status.message) == (wanted["phase"], wanted["reason"], wanted["message"])


async def test_failed_pre_start_status_is_as_recorded(node: Node) -> None:
    (wanted,) = recorded("pod-status-prestart-error")["status"]["containerStatuses"]
    plugin = DevicePluginStub(
        node.device_plugins / "p.sock", "example.com/k", [Device("k3"), Device("k4")], pre_start_required=True
    )
    plugin.behaviours["PreStartContainer"] = failing("prestart broken")
    async with plugin:
        await offer(node, plugin)
        (status,) = (await node.admit(asking("example.com/k", 2))).container_statuses
    assert to_dict(status.state) == wanted["state"]
    assert [
        (each.name, [(d.resource_id, d.health) for d in each.resources]) for each in status.allocated_resources_status
    ] == [
        (each["name"], [(d["resourceID"], d["health"]) for d in each["resources"]])
        for each in wanted["allocatedResourcesStatus"]
    ]


async def test_pod_resources_with_topology_are_as_recorded(node: Node) -> None:
    devices = [Device("t0", topology=(0,)), Device("t01", topology=(0, 1)), Device("tE", topology=()), Device("tN")]
    async with DevicePluginStub(node.device_plugins / "p.sock", "example.com/topo", devices) as plugin:
        await offer(node, plugin)
        await node.admit(pod("topo", container("c", {"example.com/topo": 4})))
        assert await get_pod_resources(node, "topo") == in_order(recorded("podresources-get-numa")["podResources"])
    entry = entry_of((node.device_plugins / "kubelet_internal_checkpoint").read_bytes())
    assert entry == entry_of((FOLDER / "checkpoint-device-numa.json").read_bytes().rstrip())


async def test_pod_resources_of_init_containers_are_as_recorded(node: Node) -> None:
    devices = [Device(f"k{number}") for number in (7, 6, 5)]
    k = "example.com/k"
    async with DevicePluginStub(node.device_plugins / "p.sock", k, devices) as plugin:
        await offer(node, plugin)
        init = (container("i1", {k: 2}), container("i2", {k: 3}), container("side", {k: 1}, sidecar=True))
        await node.admit(pod("ini", container("a1", {k: 1}), container("a2", {k: 1}), init=init))
        assert await get_pod_resources(node, "ini") == in_order(
            recorded("podresources-get-init-and-sidecar")["podResources"]
        )
    wanted = load((FOLDER / "checkpoint-device-init-containers.json").read_bytes().rstrip())
    found = load((node.device_plugins / "kubelet_internal_checkpoint").read_bytes())
    assert [(e.container, sorted(e.device_ids)) for e in found.entries or ()] == [
        (e.container, sorted(e.device_ids)) for e in wanted.entries or ()
    ]


def entry_of(raw: bytes) -> tuple[str, str, dict[int, list[str]]]:
    """The only entry of a checkpoint, with the IDs sorted."""
    (entry,) = load(raw).entries or ()
    return entry.container, entry.resource, {n: sorted(ids or ()) for n, ids in (entry.by_node or {}).items()}


async def get_pod_resources(node: Node, name: str) -> Any:
    async with connect(node.pod_resources_socket) as channel:
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
        response = await Client(channel, _LISTER).call("Get", request)
    return in_order(MessageToDict(response.pod_resources))


def in_order(resources: Any) -> Any:
    """The elements, sorted."""
    for each in resources["containers"]:
        each["devices"].sort(key=json.dumps)
    return resources


async def test_pod_resources_of_ended_pod_are_not_found(node: Node) -> None:
    await node.admit(pod("fin9", container("c")))
    node.finish("fin9")
    await node.until(lambda: node.status("fin9").phase == "Succeeded")
    with pytest.raises(RpcError) as error:
        await get_pod_resources(node, "fin9")
    assert error.value.details == "pod fin9 in namespace default not found"
