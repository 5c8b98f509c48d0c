"""A node, a plugin and pods, on sockets."""

from kubelet import Node, container, pod
from kubelet.devicemanager import Device
from kubelet.plugin import DevicePluginStub

R = "example.com/device"


async def test_a_pod_gets_its_device(node: Node) -> None:
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a"), Device("b")]) as plugin:
        await plugin.register(node.kubelet_socket)
        await node.until(lambda: node.allocatable().get(R) == 2)
        status = await node.admit(pod("p", container("c", {R: 1})))
        assert status.phase == "Running"
        assert node.allocations("p", "c") == {R: ["a"]}
        options = await node.run_container_options("p", "c")
        assert options is not None
        assert [(e.name, e.value) for e in options.envs] == [("DEVICES", "a")]
        refused = await node.admit(pod("q", container("c", {R: 2})))
        assert refused.message == (
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for"
            " example.com/device. Requested: 2, Available: 1, which is unexpected"
        )
        await node.restart()
        assert node.capacity() == {R: 0}
        assert node.status("p").phase == "Running"
        await plugin.start()
        await plugin.register(node.kubelet_socket)
        await node.until(lambda: node.allocatable()[R] == 2)
        assert node.allocations("p", "c") == {R: ["a"]}
    await node.until(lambda: node.allocatable()[R] == 0)
    assert node.capacity()[R] == 2
