"""Several plugins of one resource, distinguished by their socket paths, as in kubelets since 1.37."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpcunix import RpcError
from kubelet import FakeClock
from kubelet.devicemanager import Device
from kubelet.devicemanager.clients import ClientTable
from kubelet.devicemanager.endpoint import Endpoint
from kubelet.devicemanager.state import DeviceState
from kubelet.errors import PluginCallError, RegistrationError
from kubelet.pods import container
from kubelet.rpc import Timeouts
from kubelet.stubs import DevicePluginStub, Gate
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.kit import R1, ManagerKit, healthy
from tests.kubelet.scenarios import scenario
from tests.running import until

ONE, OTHER = Path("/one.sock"), Path("/other.sock")


def numbers(kit: ManagerKit) -> tuple[int | None, int | None]:
    """Capacity and allocatable of R1."""
    capacity, allocatable, _ = kit.manager.get_capacity()
    return capacity.get(R1), allocatable.get(R1)


async def offers(kit: ManagerKit, capacity: int, allocatable: int) -> None:
    await kit.until(lambda: numbers(kit) == (capacity, allocatable))


async def refused(plugin: DevicePluginStub, kit: ManagerKit) -> str:
    with pytest.raises(RpcError) as error:
        await plugin.register(kit.folder / "kubelet.sock")
    return error.value.details


def watchers() -> list[str]:
    """The names of the tasks that read plugins' lists."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("ListAndWatch")]


async def plugin_with_stuck_path(kit: ManagerKit, devices: Sequence[Device]) -> DevicePluginStub:
    """A plugin that registered a second time at its path. No later plugin can use this path."""
    plugin = await kit.plugin(R1, devices)
    assert await refused(plugin, kit) == f"device plugin already connected: {plugin.socket}"
    return plugin


@scenario(128)
async def test_rolling_update_keeps_capacity(kit: ManagerKit) -> None:
    old = await kit.plugin(R1, healthy("a", "b"))
    await kit.admit("pod1", container("c", {R1: 1}))
    new = await kit.plugin(R1, healthy("a", "b"))
    assert numbers(kit) == (2, 2)
    await kit.admit("pod2", container("c", {R1: 1}))
    assert [len(each.called("Allocate")) for each in (old, new)] == [1, 1]
    await old.stop()
    await kit.until(lambda: len(kit.manager.state.instances[R1]) == 1)
    assert numbers(kit) == (2, 2)
    assert new.streams == 1
    kit.active.clear()
    await kit.admit("pod3", container("c", {R1: 2}))
    assert len(new.called("Allocate")) == 2


@scenario(130, 28)
async def test_older_plugin_serves_after_newer_one_stops(kit: ManagerKit) -> None:
    old = await kit.plugin(R1, healthy("a", "b"))
    new = await kit.plugin(R1, healthy("a"))
    await new.stop()
    await kit.until(lambda: len(kit.manager.state.instances[R1]) == 1)
    assert numbers(kit) == (1, 1), "the last list stays until the next one"
    await kit.admit("pod", container("c", {R1: 1}))
    assert len(old.called("Allocate")) == 1
    old.update(healthy("a", "b"))
    await offers(kit, 2, 2)
    await old.stop()
    await offers(kit, 2, 0)


@scenario(86, 129)
async def test_refused_newer_plugin_changes_nothing(kit: ManagerKit) -> None:
    first = await kit.plugin(R1, healthy("a", "b"))
    broken = DevicePluginStub(kit.folder / "broken.sock", R1)
    gate = broken.behaviours["GetDevicePluginOptions"] = Gate(b"\xff")
    gate.open()
    async with broken:
        assert "failed to get device plugin options" in await refused(broken, kit)
    await kit.admit("pod", container("c", {R1: 1}))
    assert len(first.called("Allocate")) == 1
    await first.stop()
    await offers(kit, 2, 0)


@scenario(32)
async def test_refused_second_registration_blocks_path_until_restart(kit: ManagerKit) -> None:
    plugin = await plugin_with_stuck_path(kit, healthy("a", "b"))
    assert len(plugin.called("GetDevicePluginOptions")) == 2, "it is dialled and asked before"
    for _ in range(3):
        await refused(plugin, kit)
    plugin.update(healthy("a", "b", "c"))
    await offers(kit, 3, 3)
    await plugin.stop()
    await plugin.until(lambda: plugin.streams == 0)
    await plugin.start()
    await refused(plugin, kit)
    assert numbers(kit) == (3, 3), "its end is not noticed"
    await kit.admit("pod", container("c", {R1: 1}))
    assert [method for method, _ in plugin.calls[-2:]] == ["GetDevicePluginOptions", "Allocate"]
    assert plugin.streams == 0
    await plugin.stop()
    with pytest.raises(PluginCallError, match=r"Error while dialing: dial unix .*: connect: no such file or directory"):
        await kit.admit("other", container("c", {R1: 1}))
    await kit.restart()
    await plugin.start()
    await plugin.register(kit.folder / "kubelet.sock")
    await offers(kit, 3, 3)


async def test_stuck_endpoint_takes_over_after_last_plugin_stops(kit: ManagerKit) -> None:
    stuck = await plugin_with_stuck_path(kit, healthy("a"))
    await stuck.stop()
    other = await kit.plugin(R1, healthy("a", "b"))
    await other.stop()
    await kit.until(lambda: kit.manager.state.endpoints[R1].socket == stuck.socket)
    await kit.clock.advance(301)
    assert numbers(kit) == (2, 2), "it never drops to zero again"


@scenario(31)
async def test_path_is_free_after_plugin_end_is_processed(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a"))
    await plugin.stop()
    await offers(kit, 1, 0)
    await plugin.start()
    await plugin.register(kit.folder / "kubelet.sock")
    await offers(kit, 1, 1)
    assert plugin.streams == 1


@scenario(30, 88)
async def test_late_end_of_old_plugin_blocks_path_of_newer_one(kit: ManagerKit) -> None:
    """The old plugin's end removes the newcomer's record before it is connected. Then the newcomer cannot register."""
    plugin = await kit.plugin(R1, healthy("a"))
    gate = plugin.behaviours["GetDevicePluginOptions"] = Gate(api.DevicePluginOptions())
    registering = asyncio.create_task(plugin.register(kit.folder / "kubelet.sock"))
    await plugin.until(lambda: len(plugin.called("GetDevicePluginOptions")) == 2)
    plugin.end_streams()
    await offers(kit, 1, 0)
    gate.open()
    await registering
    await offers(kit, 1, 1)
    plugin.end_streams()
    await until(lambda: not watchers())  # a Register before the end is noticed would be accepted
    await refused(plugin, kit)
    assert numbers(kit) == (1, 1)


async def test_deregistration_disconnects_only_plugin_at_that_endpoint(kit: ManagerKit) -> None:
    one, other = await kit.plugin(R1, healthy("a")), await kit.plugin(R1, healthy("a", "b"))
    await kit.manager.deregister_plugin(R1, str(kit.folder / "nobody.sock"))
    await kit.manager.deregister_plugin(R1, str(other.socket))
    await other.until(lambda: other.streams == 0)
    assert (one.streams, numbers(kit)) == (1, (2, 2))
    await kit.manager.deregister_plugin(R1, str(one.socket))
    assert numbers(kit) == (2, 0)


def connected(state: DeviceState, *paths: Path) -> list[Endpoint]:
    clock = FakeClock()
    endpoints = [Endpoint(path, None, None, clock, Timeouts()) for path in paths]
    for each in endpoints:
        each.stopped_at = None
        state.connect(R1, each)
    return endpoints


@scenario(25, 26, 27, 29)
def test_device_state_connects_and_disconnects_instances_by_path() -> None:
    state = DeviceState()
    state.update(R1, healthy("a", "b"))
    one, other = connected(state, ONE, OTHER)
    assert state.endpoints[R1] is other
    with pytest.raises(RegistrationError, match=r"device plugin already connected: /one\.sock"):
        connected(state, ONE)
    assert state.instances == {R1: {ONE: one, OTHER: other}}
    assert not state.disconnect(R1, Path("/third.sock"))
    assert not state.disconnect("unknown", ONE)
    assert list(state.healthy[R1]) == ["a", "b"]
    assert state.disconnect(R1, OTHER)
    assert (state.endpoints[R1], one.is_stopped, other.is_stopped) == (one, False, True)
    assert list(state.healthy[R1]) == ["a", "b"]
    assert state.disconnect(R1, ONE)
    assert (state.instances, list(state.healthy[R1]), list(state.unhealthy[R1])) == ({}, [], ["a", "b"])
    assert one.is_stopped


def test_random_remaining_instance_takes_over() -> None:
    taken = set()
    for seed in range(20):
        state = DeviceState(choose=random.Random(seed).choice)
        connected(state, *(Path(f"/{name}.sock") for name in "abc"))
        state.disconnect(R1, Path("/c.sock"))
        taken.add(state.endpoints[R1].socket)
    assert taken == {Path("/a.sock"), Path("/b.sock")}


class FakeClient:
    def __init__(self, socket: Path) -> None:
        self.resource, self.socket = R1, socket


@scenario(85, 88, 89)
def test_client_table_keeps_clients_by_path() -> None:
    table: ClientTable[FakeClient] = ClientTable(by_path=True)
    one, other = FakeClient(ONE), FakeClient(OTHER)
    for each in (one, other):
        table.add(each)
    table.remove(R1, Path("/third.sock"))
    assert [table.find(R1, path) for path in (ONE, OTHER)] == [one, other]
    table.remove(R1, ONE)
    assert [table.find(R1, path) for path in (ONE, OTHER)] == [None, other]
    table.add(one)
    table.remove(R1, OTHER)
    assert list(table) == [one]


def test_client_table_keeps_one_client_per_resource_before_1_37() -> None:
    table: ClientTable[FakeClient] = ClientTable(by_path=False)
    one, other = FakeClient(ONE), FakeClient(OTHER)
    table.add(one)
    table.add(other)
    assert table.find(R1, ONE) is other, "the name is the newest's"
    table.remove(R1, ONE)
    assert list(table) == []
