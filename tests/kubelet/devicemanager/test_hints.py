"""Topology hints per container and per pod, and the total demand of a pod."""

import asyncio
from collections.abc import Sequence

import pytest

from kubelet.devicemanager import Device
from kubelet.pods import container, pod
from kubelet.topology import Hint
from resourceapi.objects.core import Container
from resourceapi.objects.pod_requests import container_limits, peak
from tests.kubelet.kit import R1, R2, ManagerKit, healthy
from tests.kubelet.scenarios import scenario


def devices_at(**nodes: Sequence[int] | None) -> list[Device]:
    """Devices by name with their NUMA nodes."""
    return [Device(name, topology=None if where is None else tuple(where)) for name, where in nodes.items()]


def as_text(hints: list[Hint] | None) -> str | None:
    """Hints as text, `(0)P (01)`: sets of NUMA nodes, P for preferred."""
    if hints is None:
        return None
    return " ".join(
        f"({''.join(map(str, sorted(hint.affinity or ())))}){'P' if hint.preferred else ''}" for hint in hints
    )


TWO = devices_at(Dev1=[0], Dev2=[1])
FOUR = devices_at(Dev1=[0], Dev2=[1], Dev3=[0], Dev4=[1])


@scenario(44, 45, 46, 47, 48, 51)
@pytest.mark.parametrize(
    ("devices", "request_", "expected"),
    [
        (devices_at(Dev1=None, Dev2=None, Dev3=[], Dev4=None), 1, None),
        (devices_at(Dev1=None, Dev2=[1]), 1, "(1)P"),
        (TWO, 1, "(0)P (1)P (01)"),
        (TWO, 2, "(01)P"),
        (FOUR, 2, "(0)P (1)P (01)"),
        (FOUR, 6, ""),
    ],
)
async def test_hints_of_unallocated_devices(
    kit: ManagerKit, devices: list[Device], request_: int, expected: str | None
) -> None:
    await kit.plugin(R1, devices)
    owner = kit.pod("p", container("c", {R1: request_, "other.com/x": 1, "cpu": 1}))
    by_container = kit.manager.get_topology_hints(owner, owner.container("c"))
    assert {name: as_text(hints) for name, hints in by_container.items()} == {R1: expected}
    assert kit.manager.get_pod_topology_hints(owner) == by_container


@scenario(45)
@pytest.mark.parametrize("kubernetes", ["1.34", "1.35"])
async def test_hints_include_nodes_without_devices_before_1_36(kit: ManagerKit) -> None:
    await kit.plugin(R1, devices_at(Dev1=None, Dev2=[1]))
    owner = kit.pod("p", container("c", {R1: 1}))
    assert as_text(kit.manager.get_topology_hints(owner, owner.container("c"))[R1]) == "(1)P (01)"


async def test_numa_nodes_absent_from_machine_are_not_hinted(kit: ManagerKit) -> None:
    owner = kit.pod("p", container("c", {R1: 1, R2: 1}))
    await kit.plugin(R1, devices_at(Dev1=[1, 7]))
    await kit.plugin(R2, devices_at(Dev1=[7]))
    hints = kit.manager.get_topology_hints(owner, owner.container("c"))
    assert {name: as_text(each) for name, each in hints.items()} == {R1: "(1)P", R2: ""}


@scenario(49)
async def test_devices_of_another_container_are_not_hinted(kit: ManagerKit) -> None:
    await kit.plugin(R1, FOUR)
    made = kit.pod("p", container("c1", {R1: 2}), container("c2", {R1: 2}))
    records = kit.manager.state.records
    await kit.pod_with_devices("p", ["Dev1", "Dev2"], container_name="c1")
    kit.active[:] = [made]
    hints = kit.manager.get_topology_hints(made, made.container("c2"))
    assert as_text(hints[R1]) == "(01)"
    assert records.pod_devices("p", R1).keys() == {"Dev1", "Dev2"}
    alone = pod("p", container("c1", {R1: 2}), uid="p")
    assert as_text(kit.manager.get_pod_topology_hints(alone)[R1]) == "(01)"


@scenario(50)
async def test_each_resource_has_separate_hints(kit: ManagerKit) -> None:
    await kit.plugin(R1, FOUR)
    await kit.plugin(R2, devices_at(Dev1=[0]))
    owner = kit.pod("p", container("c", {R1: 2, R2: 1}))
    hints = kit.manager.get_topology_hints(owner, owner.container("c"))
    assert {name: as_text(each) for name, each in hints.items()} == {R1: "(0)P (1)P (01)", R2: "(0)P"}


@scenario(52, 53, 54)
@pytest.mark.parametrize(
    ("devices", "held", "request_", "expected"),
    [
        (devices_at(Dev1=[0], Dev2=[0]), ["Dev1", "Dev2"], 2, "(0)P"),
        (FOUR, ["Dev1", "Dev2"], 4, ""),
        (FOUR, ["Dev1", "Dev2", "Dev3", "Dev4"], 2, ""),
    ],
)
async def test_allocated_container_is_hinted_only_its_devices(
    kit: ManagerKit, devices: list[Device], held: list[str], request_: int, expected: str
) -> None:
    await kit.plugin(R1, devices)
    await kit.pod_with_devices("p", held)
    owner = pod("p", container("c", {R1: request_}), uid="p")
    for hints in (
        kit.manager.get_topology_hints(owner, owner.container("c")),
        kit.manager.get_pod_topology_hints(owner),
    ):
        assert as_text(hints[R1]) == expected


@scenario(55, 56)
@pytest.mark.parametrize(
    ("init", "apps"),
    [
        ([], [{R1: 2}, {R2: 2}, {"not.registered/x": 2}]),
        ([{R1: 1, R2: 1}, {R1: 1, R2: 2}], [{R1: 1, R2: 1}, {R1: 1, R2: 1}, {"not.registered/x": 1}]),
    ],
)
async def test_pod_hints_use_the_pods_total_demand(
    kit: ManagerKit, init: list[dict[str, int]], apps: list[dict[str, int]]
) -> None:
    for resource in (R1, R2):
        await kit.plugin(resource, devices_at(Dev1=[0], Dev2=[0], Dev3=[1], Dev4=[1]))
    owner = kit.pod("p", *containers_named("c", apps), init=containers_named("i", init))
    hints = kit.manager.get_pod_topology_hints(owner)
    assert {name: as_text(each) for name, each in hints.items()} == {R1: "(0)P (1)P (01)", R2: "(0)P (1)P (01)"}


@scenario(57)
async def test_devices_of_another_pod_are_not_hinted(kit: ManagerKit) -> None:
    for resource in (R1, R2):
        await kit.plugin(resource, devices_at(Dev1=[0], Dev2=[0], Dev3=[1], Dev4=[1]))
        await kit.pod_with_devices(f"other-{resource}", ["Dev1", "Dev3"], resource)
    owner = kit.pod("p", container("c1", {R1: 1, R2: 1}), container("c2", {R1: 1, R2: 1}))
    hints = kit.manager.get_pod_topology_hints(owner)
    assert {name: as_text(each) for name, each in hints.items()} == {R1: "(01)", R2: "(01)"}


@scenario(20)
async def test_hints_are_stable_while_lists_change(kit: ManagerKit) -> None:
    ids = [f"d{number}" for number in range(1000)]
    plugin = await kit.plugin(R1, healthy(*ids, node=0))
    owner = kit.pod("p", container("c", {R1: 1}))
    for count in range(1, 11):
        plugin.update(healthy(*ids[:-count], node=0))
        while len(kit.manager.state.all[R1]) != 1000 - count:
            assert as_text(kit.manager.get_topology_hints(owner, owner.container("c"))[R1]) == "(0)P"
            assert as_text(kit.manager.get_pod_topology_hints(owner)[R1]) == "(0)P"
            await asyncio.sleep(0)


def containers_named(prefix: str, limits: list[dict[str, int]]) -> list[Container]:
    return [container(f"{prefix}{number}", each) for number, each in enumerate(limits)]


@scenario(77, 78, 79, 80, 81, 82, 83)
@pytest.mark.parametrize(
    ("init", "apps", "expected"),
    [
        ([], [], {}),
        ([{"gpu": 2}], [], {"gpu": 2}),
        ([{"gpu": 2}, {"gpu": 4}], [], {"gpu": 4}),
        ([], [{"gpu": 2}], {"gpu": 2}),
        ([{"gpu": 2, "nic": 2}] * 2, [{"gpu": 1, "nic": 1}] * 2, {"gpu": 2, "nic": 2}),
        ([{"gpu": 2, "nic": 1}, {"gpu": 3, "nic": 2}], [{"gpu": 1, "nic": 1}, {"gpu": 1}], {"gpu": 3, "nic": 2}),
        ([{"gpu": 2, "nic": 1}], [{"gpu": 3, "nic": 2}] * 2, {"gpu": 6, "nic": 4}),
    ],
)
def test_peak_demand_of_pod_counts_init_and_app_containers(
    init: list[dict[str, int]], apps: list[dict[str, int]], expected: dict[str, int]
) -> None:
    owner = pod("p", *containers_named("c", apps), init=tuple(containers_named("i", init)))
    assert peak(owner, container_limits) == expected


def test_peak_demand_adds_sidecars_to_later_containers() -> None:
    init = (container("i1", {"g": 2}), container("s", {"g": 1}, sidecar=True), container("i2", {"g": 3}))
    assert peak(pod("p", container("c", {"g": 2}), init=init), container_limits) == {"g": 4}
