"""A node over time: pods, containers, health and restarts, with the kubelet's reasons and messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grpcunix import is_live
from kubelet import AllocationError, FakeClock, Node, NodeError, container, pod
from kubelet.devicemanager import Device, Manager, ManagerImpl, ManagerStub, NodeInfo, PodAdmitAttributes
from kubelet.events import Event
from kubelet.stubs import DevicePluginStub, Gate, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import Container, Pod, PodSpec, ResourceHealth, ResourceStatus
from tests.kubelet.kit import state_details
from tests.kubelet.scenarios import scenario

R = "example.com/device"
NO_HEALTHY = (
    f"Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {R},"
    " which is unexpected"
)


@pytest.fixture
async def plugin(node: Node) -> AsyncIterator[DevicePluginStub]:
    """A registered plugin with two devices."""
    stub = DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a"), Device("b")])
    async with stub:
        await offer(node, stub)
        yield stub


async def offer(node: Node, stub: DevicePluginStub) -> None:
    await stub.start()
    await stub.register(node.kubelet_socket)
    devices = {device.id: device for device in stub.devices}
    await node.until(lambda: node.devices().get(R) == devices)


def node_counts(node: Node) -> tuple[int | None, int | None]:
    """Allocatable and capacity of R."""
    return node.allocatable().get(R), node.capacity().get(R)


async def until_counts(node: Node, allocatable: int, capacity: int) -> None:
    """Wait until the node has these numbers."""
    await node.until(lambda: node_counts(node) == (allocatable, capacity))


@scenario(105, 107)
async def test_restarted_container_keeps_its_device(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    before = node.allocations("p", "c")
    status = await node.exit_container("p", "c", code=1)
    assert (status.container_statuses[0].state.name, status.container_statuses[0].restart_count) == ("running", 1)
    assert node.allocations("p", "c") == before == {R: ["a"]}
    await node.admit(pod("q", container("c", {R: 1})))
    assert node.allocations("q", "c") == {R: ["b"]}
    assert len(plugin.called("Allocate")) == 2


@scenario(108, 112)
async def test_pod_keeps_device_after_kubelet_restart(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    await node.restart()
    assert node_counts(node) == (0, 0)
    assert node.status("p").phase == "Running"
    assert node.allocations("p", "c") == {R: ["a"]}
    await offer(node, plugin)
    assert node_counts(node) == (2, 2)
    await node.admit(pod("q", container("c", {R: 1})))
    assert node.allocations("q", "c") == {R: ["b"]}


@scenario(109)
async def test_container_restarted_without_plugin_keeps_its_device(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    await node.restart()
    assert (await node.exit_container("p", "c")).container_statuses[0].state.running is not None
    assert node.allocations("p", "c") == {R: ["a"]}


@scenario(110)
async def test_ended_pod_is_not_admitted_again(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1}), restart_policy="Never"))
    assert (await node.exit_container("p", "c")).phase == "Succeeded"
    await plugin.stop()
    await node.until(lambda: node_counts(node) == (0, 2))
    await node.restart()
    assert node.status("p").phase == "Succeeded"
    await offer(node, plugin)
    await node.admit(pod("q", container("c", {R: 2})))
    assert node.status("q").phase == "Running"


@scenario(111)
async def test_running_pod_keeps_device_when_plugin_restarts(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    await plugin.stop()
    await node.until(lambda: node_counts(node) == (0, 2))
    await offer(node, plugin)
    assert node_counts(node) == (2, 2)
    assert node.allocations("p", "c") == {R: ["a"]}


@scenario(113)
async def test_pod_deleted_while_kubelet_is_down_frees_its_devices(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 2})))
    await node.stop()
    await node.remove("p")
    await node.start()
    await offer(node, plugin)
    assert (await node.admit(pod("q", container("c", {R: 2})))).phase == "Running"


@scenario(114)
async def test_sidecar_reuses_device_of_init_container(node: Node, plugin: DevicePluginStub) -> None:
    init = (container("init-1", {R: 1}), container("side", {R: 1}, sidecar=True))
    status = await node.admit(pod("p", container("app", {R: 1}), init=init))
    assert [(each.name, each.state.name) for each in status.init_container_statuses] == [
        ("init-1", "terminated"),
        ("side", "running"),
    ]
    assert node.allocations("p", "init-1") == node.allocations("p", "side") == {R: ["a"]}
    assert node.allocations("p", "app") == {R: ["b"]}
    restarted = await node.exit_container("p", "side")
    assert [(each.state.name, each.restart_count) for each in restarted.init_container_statuses][1] == ("running", 1)


@scenario(115, 118)
async def test_ended_container_needs_plugin_after_kubelet_restart(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    await node.stop()
    await node.exit_container("p", "c", code=137)
    await node.start()
    status = node.status("p")
    assert (status.phase, status.reason, status.message) == ("Failed", "UnexpectedAdmissionError", NO_HEALTHY)
    assert node_counts(node) == (0, 0)


@scenario(116)
async def test_checkpoint_of_old_form_is_ignored_and_kept(folder: Path) -> None:
    old = (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"domain1.com/resource1",'
        '"DeviceIDs":["dev1","dev2"],"AllocResp":""}],"RegisteredDevices":{"domain1.com/resource1":["dev1","dev2"]}},'
        '"Checksum":2622669051}'
    )
    (folder / "device-plugins").mkdir()
    file = folder / "device-plugins" / "kubelet_internal_checkpoint"
    for content in (old, old.replace("2622669051", "1"), "{", ""):
        file.write_text(content)
        async with Node(folder) as node:
            assert node.capacity() == {}
            status = await node.admit(pod("new", container("c", {"domain1.com/resource1": 1})))
            assert status.phase == "Running", "an unknown resource is ignored"
        assert file.read_text() == content, "it stays as it is until there is something to write"


@scenario(119)
async def test_plugin_with_failing_options_is_not_in_capacity(node: Node) -> None:
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")]) as stub:
        stub.behaviours["GetDevicePluginOptions"] = failing("options broken")
        with pytest.raises(Exception, match="failed to get device plugin options"):
            await stub.register(node.kubelet_socket)
        assert node_counts(node) == (None, None)


@scenario(120, 121, 122)
async def test_health_changes_update_allocatable(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    for health, allocatable in (("Unhealthy", 1), ("Healthy", 2), ("Unhealthy", 1)):
        plugin.update([Device("a", health), Device("b")])
        await until_counts(node, allocatable, 2)
        assert node.status("p").phase == "Running"
    await node.remove("p")
    assert node_counts(node) == (1, 2)


@scenario(125)
async def test_stopped_plugin_leaves_zero_capacity_after_five_minutes(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder, clock=clock) as node:
        async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a"), Device("b")]) as stub:
            assert node_counts(node) == (None, None)
            await offer(node, stub)
            assert node_counts(node) == (2, 2)
        await node.until(lambda: node_counts(node) == (0, 2))
        await clock.advance(299)
        assert node_counts(node) == (0, 2)
        events = node.events()
        await clock.advance(11)
        assert await anext(events) == Event("capacity", R, "0 allocatable 0")
        assert node_counts(node) == (0, 0)


async def test_lost_checkpoint_keeps_node_capacity(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))
    await node.stop()
    (node.device_plugins / "kubelet_internal_checkpoint").unlink()
    await node.start()
    assert node_counts(node) == (2, 2), "the lost checkpoint contains no capacity"
    assert node.status("p").phase == "Running"
    assert node.allocations("p", "c") == {}
    assert node.status("p").container_statuses[0].allocated_resources_status == ()


def health(*devices: tuple[str, str]) -> tuple[ResourceStatus, ...]:
    return (ResourceStatus(R, tuple(ResourceHealth(*device) for device in devices)),)


@scenario(126)
async def test_container_status_follows_device_health(node: Node, plugin: DevicePluginStub) -> None:
    await node.admit(pod("p", container("c", {R: 1})))

    def shown() -> tuple[ResourceStatus, ...]:
        return node.status("p").container_statuses[0].allocated_resources_status

    assert shown() == health(("a", "Healthy"))
    plugin.update([Device("a", "Unhealthy"), Device("b")])
    await node.until(lambda: shown() == health(("a", "Unhealthy")))
    plugin.update([Device("b")])
    await node.until(lambda: node_counts(node) == (1, 1))
    assert shown() == health(("a", "Unhealthy")), "nothing is pushed for a device that vanished"
    assert (await node.sync("p")).container_statuses[0].allocated_resources_status == health(("a", "Healthy"))
    plugin.update([Device("a", "Unhealthy"), Device("b")])
    await node.until(lambda: shown() == health(("a", "Unhealthy")))
    await plugin.stop()
    await node.until(lambda: node_counts(node)[0] == 0)
    assert shown() == health(("a", "Unhealthy")), "the loss of the plugin says nothing about a device"


@scenario(127)
async def test_waiting_container_status_follows_device_health(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder, clock=clock) as node:
        stub = DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")], pre_start_required=True)
        async with stub:
            stub.behaviours["PreStartContainer"] = failing("prestart broken")
            await offer(node, stub)
            status = await node.admit(pod("p", container("c", {R: 1})))
            (waiting,) = status.container_statuses
            assert (status.phase, waiting.state.name) == ("Pending", "waiting")
            error = "rpc error: code = Internal desc = prestart broken"
            text = f"device plugin PreStartContainer rpc failed with err: {error}"
            assert state_details(waiting) == ("CreateContainerConfigError", text)
            assert waiting.allocated_resources_status == health(("a", "Healthy"))
            stub.update([Device("a", "Unhealthy")])
            await node.until(
                lambda: node.status("p").container_statuses[0].allocated_resources_status == health(("a", "Unhealthy"))
            )
            stub.update([Device("a")])
            await node.until(lambda: node_counts(node) == (1, 1))
            del stub.behaviours["PreStartContainer"]
            await clock.advance(13)
            await node.until(lambda: node.status("p").phase == "Running")
            assert len(stub.called("PreStartContainer")) == 2


async def test_container_ended_while_kubelet_is_down_follows_restart_policy(node: Node) -> None:
    await node.admit(pod("always", container("c")))
    await node.admit(pod("never", container("c"), restart_policy="Never"))
    await node.stop()
    for name in ("always", "never"):
        await node.exit_container(name, "c", code=1)
    await node.start()
    (status,) = node.status("always").container_statuses
    assert (status.state.name, status.restart_count) == ("running", 1)
    assert node.status("never").phase == "Failed"


async def test_failed_start_leaves_no_running_server(folder: Path) -> None:
    node = Node(folder)
    (folder / "pod-resources").write_text("in the way")
    with pytest.raises(OSError, match="pod-resources"):
        await node.start()
    assert not node.is_running
    (folder / "pod-resources").unlink()
    (folder / "pod-resources" / "kubelet.sock").mkdir(parents=True)
    with pytest.raises(OSError, match=r"kubelet\.sock"):
        await node.start()
    assert not is_live(node.kubelet_socket)
    assert not node.is_running


async def test_variable_of_two_resources_is_set_once(node: Node) -> None:
    async with (
        DevicePluginStub(node.device_plugins / "1.sock", f"{R}1", [Device("a")]) as one,
        DevicePluginStub(node.device_plugins / "2.sock", f"{R}2", [Device("b")]) as two,
    ):
        for stub in (one, two):
            await stub.register(node.kubelet_socket)
        await node.until(lambda: len(node.capacity()) == 2)
        status = await node.admit(pod("p", container("c", {f"{R}1": 1, f"{R}2": 1})))
        assert status.phase == "Running"
        options = await node.run_container_options("p", "c")
    assert [env.value for env in options.envs] in (["a"], ["b"])


async def test_second_node_and_calls_to_stopped_node_are_refused(node: Node) -> None:
    with pytest.raises(NodeError, match="a kubelet serves here"):
        await Node(node.directory).start()
    assert is_live(node.kubelet_socket)
    await node.stop()
    for call in (node.admit(pod("p")), node.run_container_options("p", "c")):
        with pytest.raises(NodeError):
            await call
    assert not is_live(node.kubelet_socket)
    await node.stop()


async def test_expired_capacity_becomes_zero_without_a_read(folder: Path) -> None:
    clock = FakeClock()
    async with Node(folder, clock=clock) as node:
        async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")]) as stub:
            await offer(node, stub)
        await node.until(lambda: node_counts(node) == (0, 1))
        before = node.changes
        assert (node_counts(node), node.changes) == ((0, 1), before)
        await clock.advance(311)  # five minutes of grace, and the next status period
        assert node.changes > before
        before = node.changes
        assert (node_counts(node), node.changes) == ((0, 0), before)
        await node.restart()
        assert node_counts(node) == (0, 0)


async def test_unknown_container_name_is_refused(node: Node) -> None:
    await node.admit(pod("p", container("c")))
    text = "pod default/p has no container other"
    for call in (node.exit_container("p", "other"), node.run_container_options("p", "other")):
        with pytest.raises(NodeError, match=text):
            await call
    with pytest.raises(NodeError, match=text):
        node.claimed_devices("p", "other")


async def test_pod_without_defaults_gets_api_defaults(node: Node) -> None:
    bare = Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=(Container(name="c"),)))
    assert (await node.admit(bare)).phase == "Running"
    assert node.status(bare) == node.status("default/p")
    assert (await node.exit_container(bare, "c", 1)).container_statuses[0].state.running is not None


def test_invalid_quantity_of_container_is_refused() -> None:
    text = rf"container c: resources.limits\[{R}\]: quantities must match"
    with pytest.raises(NodeError, match=text):
        container("c", {R: "some"})


async def test_pod_name_is_unique_until_removed(node: Node) -> None:
    first = pod("p", container("c"), uid="1")
    await node.admit(first)
    assert await node.admit(first) == node.status("1") == node.status("default/p")
    with pytest.raises(NodeError, match="default/p is on the node already; remove it first"):
        await node.admit(pod("p", container("c")))
    await node.remove("p")
    with pytest.raises(NodeError, match="pod p is not on the node"):
        node.status("p")
    await node.admit(pod("p", container("c")))


async def test_stop_abandons_running_allocation(node: Node, plugin: DevicePluginStub) -> None:
    gate = plugin.behaviours["Allocate"] = Gate(
        api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])
    )
    admitted = asyncio.create_task(node.admit(pod("p", container("c", {R: 1}))))
    await plugin.until(lambda: bool(plugin.called("Allocate")))
    await node.stop()
    assert (await admitted).phase == "Pending", "the next kubelet admits it again"
    gate.open()


async def test_registration_hook_can_refuse_plugin(node: Node) -> None:
    async def refuse(request: api.RegisterRequest) -> None:
        raise AllocationError(f"{request.resource_name}: not today")

    node.before_registration(refuse)
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a")]) as stub:
        with pytest.raises(Exception, match="not today"):
            await stub.register(node.kubelet_socket)
        node.before_registration(None)
        await offer(node, stub)
        await node.cut_stream(R)
        assert node_counts(node) == (0, 1)
        await stub.until(lambda: stub.streams == 0)


async def test_unusual_variables_reach_runtime_unchanged(node: Node, plugin: DevicePluginStub) -> None:
    response = api.ContainerAllocateResponse(envs={"": "empty name", "Ü": "ü\n"}, annotations={"a/b": ""})
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=[response]))
    await node.admit(pod("p", container("c", {R: 1})))
    options = await node.run_container_options("p", "c")
    assert {(env.name, env.value) for env in options.envs} == {("", "empty name"), ("Ü", "ü\n")}


async def test_stub_manager_does_nothing() -> None:
    stub: Manager = ManagerStub()
    whole: Manager = ManagerImpl(Path("/nowhere/kubelet.sock"))
    del whole  # the assignments check that both implement the interface
    made = pod("p", container("c"))
    await stub.start(tuple, lambda: True)
    await stub.allocate(NodeInfo({}), PodAdmitAttributes(made))
    await stub.allocate_container(made, made.container("c"))
    stub.update_plugin_resources(NodeInfo({}), PodAdmitAttributes(made))
    stub.update_allocated_devices()
    assert await stub.get_device_run_container_options(made, made.container("c")) is None
    assert stub.get_capacity() == (None, None, [])
    assert stub.get_watcher_handler() is None
    stub.check_health()
    assert (stub.get_devices("p", "c"), stub.get_allocatable_devices(), stub.updates()) == (None, None, None)
    assert stub.get_topology_hints(made, made.container("c")) == stub.get_pod_topology_hints(made) == {}
    assert not stub.should_reset_extended_resource_capacity()
    assert stub.update_allocated_resources_status(made, made.status) is made.status
    await stub.stop()


async def test_pod_of_30000_containers_is_admitted(node: Node) -> None:
    """The time per container is constant. A search through all containers for each one takes minutes."""
    init = tuple(container(f"i{number}") for number in range(15_000))
    big = pod("p", *(container(f"c{number}") for number in range(15_000)), init=init)
    status = await node.admit(big)
    assert (status.phase, len(status.init_container_statuses), len(status.container_statuses)) == (
        "Running",
        15_000,
        15_000,
    )
    await node.lose_sandbox("p")
    assert {each.restart_count for each in node.status("p").all_containers} == {1}
    await node.remove("p")
    assert not node.pods()
