"""Device lists, health, and the node's capacity."""

from collections.abc import Callable

import pytest

from kubelet.devicemanager import Device, NodeInfo, PodAdmitAttributes
from kubelet.devicemanager.device import to_message
from kubelet.errors import PluginCallError
from kubelet.pods import container
from kubelet.rpc import Timeouts
from kubelet.stubs import DevicePluginStub, failing
from tests.kubelet.kit import R1, R2, ManagerKit, healthy, unhealthy
from tests.kubelet.scenarios import scenario


@scenario(6, 8, 34)
async def test_each_list_replaces_the_previous_one(kit: ManagerKit) -> None:
    devices = [*healthy("Device1", "Device2"), *unhealthy("Device3")]
    plugin = await kit.plugin(R1, devices)
    assert kit.manager.get_capacity() == ({R1: 3}, {R1: 2}, [])
    for listed, capacity, allocatable in (
        (healthy("Device1", "Device2"), 2, 2),
        ([*healthy("Device1"), *unhealthy("Device2", "Device3")], 3, 1),
        (unhealthy("Device2", "Device3"), 2, 0),
        ([*unhealthy("Device2"), *healthy("Device3")], 2, 1),
        ([], 0, 0),
    ):
        plugin.update(listed)
        await kit.listed(R1, listed)
        assert kit.manager.get_capacity() == ({R1: capacity}, {R1: allocatable}, [])
        ids = [device.id for device in listed if device.is_healthy]
        assert list(kit.manager.get_allocatable_devices()[R1]) == ids


@scenario(6, 24, 29)
async def test_stopped_plugin_keeps_capacity_for_five_minutes(kit: ManagerKit) -> None:
    first = await kit.plugin(R1, [*healthy("Device1", "Device2"), *unhealthy("Device3")])
    await kit.plugin(R2, [*healthy("Device1"), *unhealthy("Device2", "Device3")])
    endpoint = kit.manager.state.endpoints[R1]
    await first.stop()
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 3, R2: 3}, {R1: 0, R2: 1}, []))
    assert endpoint.is_stopped
    for call in (endpoint.allocate(["Device1"]), endpoint.pre_start_container(["Device1"])):
        with pytest.raises(PluginCallError, match=r"endpoint .*p1\.sock has been stopped"):
            await call
    await kit.clock.advance(300)
    assert kit.manager.get_capacity()[2] == []
    await kit.clock.advance(1)
    assert kit.manager.get_capacity() == ({R2: 3}, {R2: 1}, [R1])
    assert kit.manager.get_capacity()[2] == [], "each is reported once"
    state = kit.manager.state
    assert R1 not in state.endpoints | state.healthy | state.unhealthy
    await kit.plugin(R1, healthy("Device1"))
    assert kit.manager.get_capacity()[0] == {R1: 1, R2: 3}


@scenario(6)
async def test_capacity_is_zero_after_restart_until_plugin_registers(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a", "b"))
    await kit.restart()
    assert kit.manager.get_capacity() == ({R1: 0}, {R1: 0}, [])
    assert kit.manager.state.is_device_plugin_resource(R1)
    assert kit.manager.state.endpoints[R1].is_stopped
    await kit.clock.advance(301)
    assert kit.manager.get_capacity() == ({}, {}, [R1])


@scenario(7, 41)
async def test_allocatable_devices_are_healthy_devices_of_all_resources(kit: ManagerKit) -> None:
    await kit.plugin(R1, [*healthy("R1Device1", "R1Device2"), *unhealthy("R1Device3")])
    await kit.plugin("other.domain2.org/resource2", healthy("R2Device1"))
    found = kit.manager.get_allocatable_devices()
    assert {name: sorted(devices) for name, devices in found.items()} == {
        R1: ["R1Device1", "R1Device2"],
        "other.domain2.org/resource2": ["R2Device1"],
    }


async def test_only_exact_spelling_of_healthy_counts(kit: ManagerKit) -> None:
    values = ["Healthy", "Unhealthy", "healthy", "", "Unknown"]
    await kit.plugin(R1, [Device(f"d{number}", word) for number, word in enumerate(values)])
    assert kit.manager.get_capacity()[:2] == ({R1: 5}, {R1: 1})


async def test_unusual_device_ids_are_accepted(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("", "x" * 300, "a\nb"))
    assert kit.manager.get_capacity()[:2] == ({R1: 3}, {R1: 3})


async def test_duplicate_id_counts_once_per_health(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1)
    plugin.send(to_message(healthy("a", "a")))
    await kit.until(lambda: kit.manager.get_capacity()[:2] == ({R1: 1}, {R1: 1}))
    plugin.send(to_message([*healthy("a"), *unhealthy("a")]))
    await kit.until(lambda: kit.manager.get_capacity()[:2] == ({R1: 2}, {R1: 1}))


@scenario(123)
async def test_stream_that_ends_before_a_list_leaves_zero_capacity(kit: ManagerKit) -> None:
    async with DevicePluginStub(kit.folder / "p.sock", R1, healthy("a")) as plugin:
        plugin.behaviours["ListAndWatch"] = failing("broken")
        await plugin.register(kit.folder / "kubelet.sock")
        await kit.until(lambda: kit.manager.state.endpoints[R1].is_stopped)
        assert kit.manager.get_capacity() == ({R1: 0}, {}, [])
        assert not kit.manager.state.is_device_plugin_resource(R1)
        assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


@pytest.mark.parametrize(
    "message",
    [
        lambda: b"\x0a\x07\x0a\x01\xff\x12\x02OK",
        lambda: b"\xff\xff",
        lambda: to_message(healthy(*(f"{number:040}" for number in range(90_000)))).SerializeToString(),
    ],
    ids=["invalid UTF-8", "no message", "over 4 MiB"],
)
@scenario(124)
async def test_malformed_list_disconnects_plugin(kit: ManagerKit, message: Callable[[], bytes]) -> None:
    plugin = await kit.plugin(R1, healthy("a", "b"))
    plugin.send(message())
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 2}, {R1: 0}, []))
    assert len(plugin.calls) == 2, "the kubelet never comes back by itself"


async def test_list_of_50000_devices_is_accepted(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1)
    plugin.update(healthy(*(f"{number}" for number in range(50_000))))
    await kit.until(lambda: kit.manager.get_capacity()[0] == {R1: 50_000})


@scenario(17)
async def test_allocated_devices_raise_but_never_lower_allocatable(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a"))
    await kit.plugin(R2, healthy("b", "c"))
    made = await kit.admit("p", container("c", {R1: 1, R2: 1}))
    node = NodeInfo({R2: 2, "cpu": 4})
    before = node.allocatable
    kit.manager.update_plugin_resources(node, PodAdmitAttributes(made))
    assert node.allocatable == {R1: 1, R2: 2, "cpu": 4}
    assert before == {R2: 2, "cpu": 4}, "the node's table is replaced, not changed"
    stranger = NodeInfo({})
    kit.manager.update_plugin_resources(stranger, PodAdmitAttributes(kit.pod("q", container("c"))))
    assert stranger.allocatable == {}


@scenario(19)
async def test_capacity_resets_after_checkpoint_folder_is_emptied(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a"))
    assert not kit.manager.should_reset_extended_resource_capacity()
    await kit.manager.stop()
    for path in kit.folder.iterdir():
        path.unlink()
    (kit.folder / ".hidden").write_text("")
    assert kit.manager.should_reset_extended_resource_capacity()


@scenario(22)
async def test_health_updates_are_dropped_when_queue_is_full(kit: ManagerKit) -> None:
    ids = [f"dev{number}" for number in range(120)]
    await kit.plugin(R1, healthy(*ids))
    for number in range(120):
        await kit.admit(f"pod{number}", container("c", {R1: 1}))
    owners = {id_: owner[0] for id_, owner in kit.manager.state.records.owners(R1).items()}
    queue = kit.manager.updates()
    for _ in range(120):
        await kit.manager.plugin_list_received(R1, healthy("dev0"))
    assert queue.empty(), "the same health, and vanished devices, are no news"
    for id_ in ids:
        await kit.manager.plugin_list_received(R1, unhealthy(id_))
    changed = [queue.get_nowait() for _ in range(queue.qsize())]
    assert len(changed) == 100
    assert changed == [[owners[id_]] for id_ in ids[:100]]


async def test_health_update_names_only_the_owner_pod(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a", "b", "c"))
    await kit.plugin(R2, healthy("a", "b"))
    await kit.admit("p", container("c", {R1: 1}))
    await kit.admit("q", container("c", {R2: 1}))
    for devices in ([*unhealthy("a", "b"), *healthy("c")], healthy("b", "c"), healthy("a", "b", "c")):
        plugin.update(devices)
        await kit.listed(R1, devices)
    queue = kit.manager.updates()
    assert [queue.get_nowait() for _ in range(queue.qsize())] == [["p"], ["p"]], "went bad, then came back"


def test_default_timeouts_equal_upstream() -> None:
    wait = Timeouts()
    assert (wait.dial, wait.pre_start, wait.get_info, wait.notify) == (10, 30, 1, 5)
