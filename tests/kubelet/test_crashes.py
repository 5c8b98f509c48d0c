"""The kubelet stops or crashes and starts again at any moment, and so does the machine."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from grpcunix import is_live
from kubelet import FakeClock, MemoryCluster, Node, NodeError, PodStatus, allocated_claim, container, pod
from kubelet.devicemanager import Device
from kubelet.errors import AllocationError
from kubelet.events import Event
from kubelet.state_file import StateFile
from kubelet.stubs import DevicePluginStub, DRAPluginStub, Gate, claimed, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.dra.v1 import api_pb2 as dra

R, DRIVER = "example.com/device", "driver.example.com"
ALLOCATED = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])


class Machine:
    """A node with a plugin and a driver, which return after each restart before the kubelet gets its pods."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.claims = MemoryCluster()
        self.claims.put(allocated_claim("c1", DRIVER, "r/pool/g0", users=["p"]))
        self.node = Node(folder, clock=self.clock, cluster=self.claims, cgroups=folder / "cgroup")
        self.plugin = DevicePluginStub(
            self.node.device_plugins / "p.sock", R, [Device("a"), Device("b")], pre_start_required=True
        )
        self.driver = DRAPluginStub(
            self.node.plugins_registry, DRIVER, lambda _: [claimed(["r"], "pool", "g0", "vendor.test/g=g0")]
        )
        self.pod = pod("p", container("c", {R: 1}, claims=["g"]), uid="p", claims={"g": "c1"})

    async def offer(self) -> None:
        """Start and register both."""
        await self.plugin.start()
        await self.plugin.register(self.node.kubelet_socket)
        await self.node.until(lambda: self.node.allocatable().get(R) == 2)
        async with asyncio.timeout(30):
            while not self.node.dra_manager.plugins.is_usable(DRIVER):
                await self.clock.advance(1)

    async def restart(self, *, kill: bool) -> None:
        self.node.sources.hold()
        await self.node.restart(kill=kill)
        for stub in (self.plugin, self.driver):
            stub.behaviours.clear()
        await self.offer()
        self.node.sources.release()
        await self.node.until(lambda: self.node.sources.all_ready)


@pytest.fixture
async def machine(folder: Path) -> AsyncIterator[Machine]:
    made = Machine(folder)
    async with made.node, made.plugin, made.driver:
        await made.offer()
        yield made


async def start_admission(machine: Machine) -> "asyncio.Task[PodStatus]":
    return asyncio.create_task(machine.node.admit(machine.pod))


async def while_devices_are_chosen(machine: Machine) -> None:
    machine.plugin.behaviours["Allocate"] = Gate(ALLOCATED)
    await start_admission(machine)
    await machine.plugin.until(lambda: len(machine.plugin.called("Allocate")) == 1)


async def while_claims_are_prepared(machine: Machine) -> None:
    machine.driver.behaviours["NodePrepareResources"] = Gate(dra.NodePrepareResourcesResponse())
    await start_admission(machine)
    await machine.driver.until(lambda: len(machine.driver.called("NodePrepareResources")) == 1)


async def while_a_container_starts(machine: Machine) -> None:
    machine.plugin.behaviours["PreStartContainer"] = Gate(api.PreStartContainerResponse())
    await start_admission(machine)
    await machine.plugin.until(lambda: len(machine.plugin.called("PreStartContainer")) == 1)


async def while_a_start_is_to_be_tried_again(machine: Machine) -> None:
    machine.plugin.behaviours["PreStartContainer"] = failing("not yet")
    assert (await machine.node.admit(machine.pod)).phase == "Pending"


async def while_pod_runs(machine: Machine) -> None:
    assert (await machine.node.admit(machine.pod)).phase == "Running"


MOMENTS = [
    while_devices_are_chosen,
    while_claims_are_prepared,
    while_a_container_starts,
    while_a_start_is_to_be_tried_again,
    while_pod_runs,
]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_pod_runs_after_kubelet_restart_at_any_moment(
    machine: Machine, moment: Callable[[Machine], Awaitable[None]], kill: bool
) -> None:
    await moment(machine)
    await machine.restart(kill=kill)
    node = machine.node
    await node.until(lambda: node.status("p").phase == "Running")
    assert node.claimed_devices("p", "c") == ("vendor.test/g=g0",)
    (id_,) = node.allocations("p", "c")[R]
    assert len(machine.plugin.called("Allocate")) == (2 if moment is while_devices_are_chosen else 1)
    if moment is not while_pod_runs:
        (started,) = machine.plugin.called("PreStartContainer")[-1:]
        assert list(started.devices_ids) == [id_]
    cgroup = node.cgroup("p")
    assert cgroup is not None
    assert cgroup.is_dir()
    await node.remove("p")
    assert machine.driver.claims("NodeUnprepareResources") == [["c1"]]
    assert not cgroup.exists()


@pytest.mark.parametrize("kill", [False, True])
async def test_pod_ends_after_kubelet_restart_during_unprepare(machine: Machine, kill: bool) -> None:
    node = machine.node
    await while_pod_runs(machine)
    machine.driver.behaviours["NodeUnprepareResources"] = Gate(dra.NodeUnprepareResourcesResponse())
    removing = asyncio.create_task(node.remove("p"))
    await machine.driver.until(lambda: len(machine.driver.called("NodeUnprepareResources")) == 1)
    await machine.restart(kill=kill)
    await removing
    await node.until(lambda: node.pods() == [])
    assert machine.driver.claims("NodeUnprepareResources") == [["c1"]] * 2


async def test_kill_cancels_running_registration(machine: Machine) -> None:
    gate = machine.plugin.behaviours["GetDevicePluginOptions"] = Gate(api.DevicePluginOptions())
    other = asyncio.create_task(machine.plugin.register(machine.node.kubelet_socket))
    await machine.plugin.until(lambda: len(machine.plugin.called("GetDevicePluginOptions")) == 2)
    await machine.node.stop(kill=True)
    with pytest.raises(Exception, match=r"UNAVAILABLE|CANCELLED"):
        await other
    gate.open()


async def test_start_can_be_cancelled_by_stop(folder: Path) -> None:
    node = Node(folder)
    starting = asyncio.create_task(node.start())
    await asyncio.sleep(0)
    await node.stop()
    with pytest.raises(NodeError, match="the kubelet was stopped while it started"):
        await starting
    assert not is_live(node.kubelet_socket)
    async with node:
        assert (await node.admit(pod("p", container("c")))).phase == "Running"


async def test_socket_files_stay_after_stop(node: Node) -> None:
    for kill in (False, True):
        await node.stop(kill=kill)
        for socket in (node.kubelet_socket, node.pod_resources_socket):
            assert socket.is_socket()
            assert not is_live(socket)
        await node.start()


class WithoutEntropy(random.Random):
    """A random generator without entropy."""

    def shuffle(self, x: object) -> None:
        raise OSError(f"no entropy for {x}")


async def test_kubelet_death_is_reported(folder: Path) -> None:
    """For any cause; here it cannot choose a device."""
    node = Node(folder, shuffle=WithoutEntropy())
    events = node.events()
    await node.start()
    listening = asyncio.create_task(_until_failed(events))
    async with DevicePluginStub(node.device_plugins / "p.sock", R, [Device("a"), Device("b")]) as plugin:
        await plugin.register(node.kubelet_socket)
        await node.until(lambda: node.allocatable().get(R) == 2)
        assert (await node.admit(pod("p", container("c", {R: 1})))).phase == "Pending"
        await listening
    assert not node.is_running
    with pytest.raises(NodeError, match="the kubelet is stopped"):
        await node.admit(pod("q", container("c")))
    with pytest.raises(ExceptionGroup) as error:
        await node.stop()
    assert error.value.subgroup(OSError) is not None
    async with node:
        assert node.status("p").reason == "UnexpectedAdmissionError", "its plugin is gone"
        assert (await node.admit(pod("q", container("c")))).phase == "Running"


async def _until_failed(events: AsyncIterator[Event]) -> None:
    async for event in events:
        if event.kind == "failed":
            return


async def test_pending_state_write_is_lost_on_discard(tmp_path: Path) -> None:
    for discard in (True, False):
        file = StateFile(tmp_path / "state", AllocationError)
        written = file.write(b"new")
        await file.close(discard=discard)
        assert (written.cancelled(), file.path.exists()) == (discard, not discard)
    await file.close(discard=True)


async def test_reboot_restarts_pods_with_their_devices(machine: Machine) -> None:
    node = machine.node
    await while_pod_runs(machine)
    await node.admit(pod("once", container("c"), restart_policy="Never"))
    await node.admit(pod("plain", container("c"), init=(container("i"),)))
    (folder,) = {path.parent for path in (node.cgroup("once"), node.cgroup("plain")) if path is not None}
    assert len(list(folder.iterdir())) == 3
    node.sources.hold()
    await node.reboot()
    assert list(folder.iterdir()) == []
    await machine.offer()
    node.sources.release()
    for name in ("p", "plain"):
        await node.until(lambda: node.status(name).container_statuses[0].state.running is not None)  # noqa: B023
    await node.until(lambda: node.status("once").phase == "Failed")
    plain = node.status("plain")
    assert [each.restart_count for each in (*plain.init_container_statuses, *plain.container_statuses)] == [1, 1]
    assert node.allocations("p", "c") == {R: ["a"]}
    assert machine.driver.claims("NodePrepareResources") == [["c1"]] * 2
    assert len(machine.plugin.called("Allocate")) == 1
    assert len(list(folder.iterdir())) == 2


async def test_completed_pods_and_containers_stay_completed_after_reboot(machine: Machine) -> None:
    node = machine.node
    once = await node.admit(pod("once", container("c"), container("d"), restart_policy="OnFailure"))
    await node.exit_container("once", "c")
    await node.exit_container("once", "d")
    await node.until(lambda: node.status("once").phase == "Succeeded")
    half = pod("half", container("c"), container("d"), init=(container("i"),), restart_policy="OnFailure")
    await node.admit(half)
    await node.exit_container("half", "c")
    await node.admit(pod("done", container("c")))
    node.finish("done")
    await node.until(lambda: node.status("done").phase == "Succeeded")
    refused = await node.admit(pod("refused", container("c", {R: 9})))
    before = {name: node.status(name) for name in ("once", "done", "refused")}
    assert (once.phase, refused.phase) == ("Running", "Failed")
    await node.reboot()
    assert {name: node.status(name) for name in before} == before
    await node.until(lambda: node.status("half").container_statuses[1].state.running is not None)
    statuses = (*node.status("half").init_container_statuses, *node.status("half").container_statuses)
    assert [(each.name, each.state.name, each.restart_count) for each in statuses] == [
        ("i", "terminated", 1),
        ("c", "terminated", 0),
        ("d", "running", 1),
    ]


async def test_pod_is_rejected_after_reboot_without_plugin(machine: Machine) -> None:
    await while_pod_runs(machine)
    await machine.node.reboot()
    assert machine.node.status("p").reason == "UnexpectedAdmissionError"
    cgroup = machine.node.cgroup("p")
    assert cgroup is not None
    assert not cgroup.exists()
