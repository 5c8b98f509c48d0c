"""Which pods fit a node, where the scenarios for both kubelets do not reach."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubelet import RELEASES, FakeClock, Node, NodeError, Pod, container, decode_pod, pod
from kubelet.devicemanager import Device
from kubelet.pods.node_fit import Shortage, Taken, misfits, shortages
from kubelet.release import LATEST
from kubelet.stubs import DevicePluginStub
from resourceapi.objects import ObjectMeta, Quantity, core

RESOURCE = "example.com/x"


def node_with(**allocatable: str) -> core.Node:
    amounts = {"pods": "110"} | {name.replace("_", "-"): amount for name, amount in allocatable.items()}
    status = core.NodeStatus(allocatable={name: Quantity.parse(amount) for name, amount in amounts.items()})
    return core.Node(metadata=ObjectMeta(name="n"), status=status)


def asking(of_container: Any = None, **spec: Any) -> Pod:
    members = {"containers": [{"name": "c", "resources": of_container or {}}]} | spec
    return decode_pod({"metadata": {"name": "p"}, "spec": members}, "p")


@pytest.mark.parametrize(
    ("of_pod", "milli"),
    [
        (asking({"requests": {"cpu": "1"}}, overhead={"cpu": "250m"}), 1250),
        (asking({"requests": {"cpu": "1"}}, resources={"limits": {"cpu": "4"}}), 1000),
        (asking(resources={"limits": {"cpu": "4"}}), 4000),
        (asking({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"}), 5000),
    ],
)
def test_overhead_and_limits_of_the_pod_count(of_pod: Pod, milli: int) -> None:
    assert shortages(of_pod, node_with(cpu="100m"), (), LATEST) == [Shortage("cpu", milli, 0, 100)]
    assert shortages(asking(), node_with(cpu="100m"), (Taken.by(of_pod),), LATEST) == []


@pytest.mark.parametrize(("release", "is_checked"), [("1.35", True), ("1.36", False)])
@pytest.mark.parametrize("resource", [RESOURCE, "deviceclass.resource.kubernetes.io/gpu"])
def test_extended_resource_of_a_claim_is_not_checked(resource: str, release: Any, is_checked: bool) -> None:
    of_pod = asking({"limits": {resource: "3"}})
    mapping = core.ContainerExtendedResourceRequest(container_name="c", resource_name=resource, request_name="r")
    claimed = core.PodExtendedResourceClaimStatus(request_mappings=(mapping,), resource_claim_name="e")
    of_pod = replace(of_pod, status=core.PodStatus(extended_resource_claim_status=claimed))
    found = shortages(of_pod, node_with(**{RESOURCE: "0"}), (), RELEASES[release])
    assert found == ([Shortage(resource, 3, 0, 0)] if is_checked else [])


def test_ports_of_a_pod_in_the_host_network_are_host_ports() -> None:
    open_port = {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}
    other = asking(hostNetwork=True, **open_port)
    assert [x.reason for x in misfits(other, node_with(), (Taken.by(other),), is_static=False)] == ["NodePorts"]
    assert misfits(asking(**open_port), node_with(), (Taken.by(other),), is_static=False) == []


async def test_pod_for_another_node_is_rejected(node: Node) -> None:
    status = await node.admit(asking(nodeName="other"))
    text = "Pod was rejected: Predicate NodeName failed: node(s) didn't match the requested node name"
    assert (status.phase, status.reason, status.message) == ("Failed", "NodeName", text)


async def test_number_of_pods_is_limited(folder: Path) -> None:
    async with Node(folder, capacity={"pods": 1}) as node:
        await node.admit(pod("a", container("c")))
        rejected = await node.admit(pod("b", container("c")))
        text = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
        assert (rejected.reason, rejected.message) == ("OutOfpods", text)
        node.finish("a")
        await node.until(lambda: node.status("a").is_terminal)
        assert (await node.admit(pod("c", container("c")))).phase == "Running"


async def test_resource_that_left_the_node_stays_as_zero(folder: Path) -> None:
    """After five minutes the device manager forgets it, but the node has it with zero devices."""
    async with Node(folder, clock=(clock := FakeClock())) as node:
        async with DevicePluginStub(node.device_plugins / "p.sock", RESOURCE, [Device("a")]) as plugin:
            await plugin.register(node.kubelet_socket)
            await node.until(lambda: node.allocatable().get(RESOURCE) == 1)
        await node.until(lambda: node.allocatable().get(RESOURCE) == 0)
        await clock.advance(301)
        await node.until(lambda: node.capacity().get(RESOURCE) == 0)
        await clock.advance(10)  # the period of the node status
        rejected = await node.admit(pod("p", container("c", {RESOURCE: 1})))
    text = f"Pod was rejected: Node didn't have enough resource: {RESOURCE}, requested: 1, used: 0, capacity: 0"
    assert (rejected.reason, rejected.message) == (f"OutOf{RESOURCE}", text)


async def test_pod_selects_a_label_of_the_node(folder: Path) -> None:
    async with Node(folder, labels={"example.com/gpu": "true"}) as node:
        selecting = asking(nodeSelector={"example.com/gpu": "true", "kubernetes.io/os": "linux"})
        assert (await node.admit(selecting)).phase == "Running"


def test_invalid_label_is_refused(folder: Path) -> None:
    with pytest.raises(NodeError, match="label gpu=a b: a valid label must"):
        Node(folder, labels={"gpu": "a b"})


@pytest.mark.parametrize("amount", ["lots", "-1"])
def test_invalid_capacity_is_refused(folder: Path, amount: str) -> None:
    with pytest.raises(NodeError, match=f"capacity cpu: '{amount}'"):
        Node(folder, capacity={"cpu": amount})
