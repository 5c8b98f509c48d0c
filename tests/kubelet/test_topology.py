"""The topology manager: merged hints, and pods that it refuses."""

from pathlib import Path

import pytest

from kubelet import Node, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub
from kubelet.topology import ANYWHERE, Hint, Policy, Scope, TopologyManager

GPU, NIC = "example.com/gpu", "example.com/nic"


def hint(*nodes: int, preferred: bool = True) -> Hint:
    return Hint(frozenset(nodes), preferred)


@pytest.mark.parametrize(
    ("hints", "best"),
    [
        ([], hint(0, 1)),
        ([None], hint(0, 1)),
        ([[]], hint(0, 1, preferred=False)),
        ([[hint(0), hint(1), hint(0, 1, preferred=False)]], hint(0)),
        ([[hint(0), hint(0, 1, preferred=False)], [hint(1), hint(0, 1, preferred=False)]], hint(0, preferred=False)),
        ([[hint(1), hint(0, 1, preferred=False)], [hint(0), hint(1)]], hint(1)),
        ([[hint(0)], [hint(1)]], hint(0, 1, preferred=False)),
        ([[hint(0, 1, preferred=False)]], hint(0, 1, preferred=False)),
        ([[hint(0, 1)], None], hint(0, 1)),
    ],
)
def test_narrowest_common_affinity_is_best(hints: list[list[Hint] | None], best: Hint) -> None:
    provided = {f"r{number}": each for number, each in enumerate(hints)}
    assert TopologyManager((0, 1), "best-effort").merge([provided]) == best


def test_single_numa_node_policy_merges_only_single_nodes() -> None:
    manager = TopologyManager((0, 1), "single-numa-node")
    assert manager.merge([{"r": [hint(0), hint(0, 1, preferred=False)]}]) == hint(0)
    assert manager.merge([{"r": [hint(0, 1)]}]) == Hint(None, False)
    assert manager.merge([{"r": None}]) == ANYWHERE


async def until_capacity(node: Node, resource: str, count: int) -> None:
    """Wait until the node has this number of devices."""
    await node.until(lambda: node.capacity().get(resource) == count)


async def offer(node: Node, *, gpus: list[int], nics: list[int]) -> list[DevicePluginStub]:
    """Plugins whose devices are on these NUMA nodes."""
    plugins = []
    for resource, places in ((GPU, gpus), (NIC, nics)):
        devices = [Device(f"{resource[-3:]}{number}", topology=(place,)) for number, place in enumerate(places)]
        plugin = DevicePluginStub(node.device_plugins / f"{resource[-3:]}.sock", resource, devices)
        await plugin.start()
        await plugin.register(node.kubelet_socket)
        await until_capacity(node, resource, len(places))
        plugins.append(plugin)
    return plugins


REFUSED = "Pod was rejected: Resources cannot be allocated with Topology locality"


@pytest.mark.parametrize(
    ("policy", "refused"),
    [("none", False), ("best-effort", False), ("restricted", True), ("single-numa-node", True)],
)
async def test_pod_without_common_numa_node_follows_policy(folder: Path, policy: Policy, refused: bool) -> None:
    async with Node(folder, numa_nodes=(0, 1), topology_policy=policy) as node:
        plugins = await offer(node, gpus=[0, 0], nics=[1, 1])
        status = await node.admit(pod("p", container("c", {GPU: 1, NIC: 1})))
        if refused:
            assert (status.phase, status.reason, status.message) == ("Failed", "TopologyAffinityError", REFUSED)
        else:
            assert status.phase == "Running"
        for plugin in plugins:
            await plugin.stop()


async def test_container_devices_come_from_one_numa_node(folder: Path) -> None:
    async with Node(folder, numa_nodes=(0, 1), topology_policy="single-numa-node") as node:
        plugins = await offer(node, gpus=[1, 0, 1], nics=[0, 1])
        assert (await node.admit(pod("p", container("c", {GPU: 2, NIC: 1})))).phase == "Running"
        assert node.allocations("p", "c") == {GPU: ["gpu0", "gpu2"], NIC: ["nic1"]}
        assert (await node.admit(pod("q", container("c", {GPU: 1, NIC: 1})))).phase == "Running"
        assert node.allocations("q", "c") == {GPU: ["gpu1"], NIC: ["nic0"]}
        for plugin in plugins:
            await plugin.stop()


@pytest.mark.parametrize(("scope", "refused"), [("container", False), ("pod", True)])
async def test_scope_decides_alignment_of_pod_or_container(folder: Path, scope: Scope, refused: bool) -> None:
    async with Node(folder, numa_nodes=(0, 1), topology_policy="single-numa-node", topology_scope=scope) as node:
        plugins = await offer(node, gpus=[0], nics=[1])
        status = await node.admit(pod("p", container("gpu", {GPU: 1}), container("nic", {NIC: 1})))
        assert status.reason == ("TopologyAffinityError" if refused else "")
        for plugin in plugins:
            await plugin.stop()
