"""Devices near the NUMA nodes that the topology manager chose, and the plugin's preferences among them."""

from collections import Counter
from pathlib import Path

import pytest

from kubelet.devicemanager import Device
from kubelet.pods import container
from kubelet.stubs import answering
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.kit import R1, FixedAffinity, ManagerKit
from tests.kubelet.scenarios import scenario


def spread(*counts: int) -> list[Device]:
    """Dev0, Dev1, ...: these numbers of devices per NUMA node."""
    nodes = [node for node, count in enumerate(counts) for _ in range(count)]
    return [Device(f"Dev{number}", topology=(node,)) for number, node in enumerate(nodes)]


def two_devices_per_node(nodes: int) -> list[Device]:
    """Two devices on each of `nodes` NUMA nodes."""
    return spread(*[2] * nodes)


def device_names(*numbers: object) -> list[str]:
    return [f"Dev{number}" if isinstance(number, int) else str(number) for number in numbers]


async def choose(
    folder: Path, devices: list[Device], size: int, hint: tuple[int, ...], preferred: list[str]
) -> tuple[set[str], dict[int, int]]:
    """The IDs that a container gets, and their number per NUMA node."""
    async with ManagerKit(folder, affinity=FixedAffinity(*hint), numa_nodes=range(4)) as kit:
        plugin = await kit.plugin(R1, devices, preferred_allocation=bool(preferred))
        preferred_response = api.ContainerPreferredAllocationResponse(deviceIDs=preferred)
        plugin.behaviours["GetPreferredAllocation"] = answering(
            api.PreferredAllocationResponse(container_responses=[preferred_response])
        )
        held = kit.held(await kit.admit("p", container("c", {R1: size})), "c")
    on = {device.id: device.nodes for device in devices}
    return held, Counter(on[id_][0] for id_ in held if on[id_])


@scenario(58, 59, 60, 61, 62, 63, 64, 65, 66)
@pytest.mark.parametrize(
    ("devices", "size", "hint", "alignment"),
    [
        ([Device("Dev1"), Device("Dev2")], 1, (0, 1), {}),
        ([Device("Dev1"), Device("Dev2", topology=(1,))], 1, (1,), {1: 1}),
        (spread(1, 1), 1, (0,), {0: 1}),
        (spread(1, 1), 1, (1,), {1: 1}),
        (spread(2, 2), 2, (0,), {0: 2}),
        (spread(2, 2), 2, (1,), {1: 2}),
        (spread(3, 3), 4, (0,), {0: 3, 1: 1}),
        (spread(3, 3), 4, (1,), {0: 1, 1: 3}),
        (two_devices_per_node(4), 4, (1, 3), {1: 2, 3: 2}),
    ],
)
async def test_devices_of_hinted_nodes_are_chosen_first(
    folder: Path, devices: list[Device], size: int, hint: tuple[int, ...], alignment: dict[int, int]
) -> None:
    held, found = await choose(folder, devices, size, hint, [])
    assert len(held) == size
    assert found == alignment


@scenario(67, 68, 69, 70, 71)
@pytest.mark.parametrize(
    ("devices", "hint", "preferred", "included", "alignment"),
    [
        (spread(100, 100), (0,), device_names(0, 19, 83, 42, 77), device_names(0, 19, 83, 42, 77), {0: 5}),
        (spread(100, 100), (0,), device_names(0, 19, 83, 150, 186), device_names(0, 19, 83), {0: 5}),
        (spread(0, 100), (1,), device_names(0, 19, 83, "bogus0", "bogus1"), device_names(0, 19, 83), {1: 5}),
        (spread(3, 97), (0,), device_names(0, 1, 2, 42, 83), device_names(0, 1, 2, 42, 83), {0: 3, 1: 2}),
        (spread(3, 97), (0,), device_names(0, 1, 2, 42, "bogus0"), device_names(0, 1, 2, 42), {0: 3, 1: 2}),
    ],
)
async def test_plugin_preference_is_followed_within_alignment(
    folder: Path,
    devices: list[Device],
    hint: tuple[int, ...],
    preferred: list[str],
    included: list[str],
    alignment: dict[int, int],
) -> None:
    held, found = await choose(folder, devices, 5, hint, preferred)
    assert len(held) == 5
    assert held >= set(included)
    assert found == alignment


@scenario(72, 73, 74, 75, 76)
@pytest.mark.parametrize(
    ("devices", "size", "allocated", "reusable", "available", "must"),
    [
        (spread(4), 1, [], [], range(4), []),
        (spread(8), 4, [0, 5], [0, 5], range(8), [0, 5]),
        (spread(8), 4, [0, 5, 4, 1], [0, 5], [0, 2, 3, 5, 6, 7], [0, 5]),
        (spread(4, 4), 6, [1, 6], [1, 6], range(8), [0, 1, 2, 3, 6]),
        (spread(4, 4), 6, [0, 1, 6, 7], [1, 6], range(1, 7), [1, 2, 3, 6]),
    ],
)
async def test_preferred_allocation_request_has_available_and_must_include(
    folder: Path,
    devices: list[Device],
    size: int,
    allocated: list[int],
    reusable: list[int],
    available: range | list[int],
    must: list[int],
) -> None:
    async with ManagerKit(folder, affinity=FixedAffinity(0), numa_nodes=(0, 1)) as kit:
        plugin = await kit.plugin(R1, devices, preferred_allocation=True)
        if reusable:
            init = await kit.pod_with_devices("p", device_names(*reusable), container_name="i")
            kit.manager.state.reusable = {"p": {R1: dict.fromkeys(device_names(*reusable))}}
            kit.active.remove(init)
        others = [number for number in allocated if number not in reusable]
        if others:
            await kit.pod_with_devices("other", device_names(*others))
        owner = kit.pod("p", container("c", {R1: size}))
        await kit.manager.allocate_container(owner, owner.container("c"))
        (asked,) = plugin.called("GetPreferredAllocation")[0].container_requests
    assert sorted(asked.available_deviceIDs) == device_names(*available)
    assert sorted(asked.must_include_deviceIDs) == device_names(*must)
    assert asked.allocation_size == size


@scenario(10)
async def test_devices_are_split_by_numa_affinity(folder: Path) -> None:
    devices = [
        Device("dev1", topology=(1,)),
        Device("dev2", topology=(1, 2)),
        Device("dev3", topology=(2,)),
        Device("dev4", topology=(2,)),
        Device("dev5"),
    ]
    async with ManagerKit(folder, affinity=FixedAffinity(2), numa_nodes=(1, 2)) as kit:
        await kit.plugin(R1, devices)
        split = kit.manager._allocator.filter_by_affinity
        assert split("p", "c", R1, ["dev1", "dev2"]) == (["dev2"], ["dev1"], [])
        aligned, unaligned, anywhere = split("p", "c", R1, [device.id for device in devices])
        assert (sorted(aligned), unaligned, anywhere) == (["dev2", "dev3", "dev4"], ["dev1"], ["dev5"])
