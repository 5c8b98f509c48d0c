"""GetPreferredAllocation's choice, against every possible choice."""

from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.preferred import cost_of, prefer
from deviceplugin.units import Unit, units_of
from hostdevices import Device
from hostdevices.resource import PreferredPolicy, Resource
from hostdevices.selector import Kinds

POLICIES: tuple[PreferredPolicy, ...] = get_args(PreferredPolicy)


def gpu(number: int, numa: int | None = None, root: str = "", bridge: str = "") -> Device:
    return Device(
        id=f"gpu-{number}",
        kind="gpu",
        name=f"card{number}",
        syspath=f"/sys/devices/{root}/{bridge}/{number}" if root else "",
        attributes={"resource.kubernetes.io/pcieRoot": root} if root else {},
        numa_nodes=() if numa is None else (numa,),
    )


def units(*devices: Device, shares: int = 1) -> dict[str, Unit]:
    return units_of(Resource("example.com/gpu", Kinds(("gpu",)), shares=shares), devices)


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Unit], list[str], list[str], int]:
    shares = draw(st.integers(1, 3))
    devices = [
        gpu(
            i,
            draw(st.sampled_from([None, 0, 1])),
            draw(st.sampled_from(["", "pci0000:00", "pci0000:80"])),
            draw(st.sampled_from("ab")),
        )
        for i in range(draw(st.integers(1, 12 // shares)))
    ]
    everything = units(*devices, shares=shares)
    available = draw(st.lists(st.sampled_from(sorted(everything)), unique=True, min_size=1))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=3))
    return everything, available, must, draw(st.integers(max(len(must), 1), len(available)))


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems())
@settings(max_examples=150, deadline=None)
def test_no_choice_is_cheaper(
    policy: PreferredPolicy, problem: tuple[dict[str, Unit], list[str], list[str], int]
) -> None:
    everything, available, must, size = problem
    chosen = prefer(policy, everything, available, must, size)
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= set(available)
    others = [x for x in combinations(available, size) if set(must) <= set(x)]
    assert cost_of(policy, everything, available, chosen) == min(
        cost_of(policy, everything, available, x) for x in others
    )


def test_devices_of_one_numa_node_and_bridge_go_together() -> None:
    machine = units(
        gpu(0, 0, "pci0000:00", "a"),
        gpu(1, 1, "pci0000:80", "a"),
        gpu(2, 0, "pci0000:00", "b"),
        gpu(3, 0, "pci0000:00", "b"),
    )
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-2", "gpu-3"]
    assert prefer("numa", machine, list(machine), ["gpu-0"], 2) == ["gpu-0", "gpu-2"]


def test_shares_are_spread_over_devices_unless_packed() -> None:
    machine = units(gpu(0), gpu(1), shares=3)
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-0.0", "gpu-1.0"]
    assert prefer("packed", machine, list(machine), [], 2) == ["gpu-0.0", "gpu-0.1"]


def test_use_decides_between_devices_that_are_equally_close() -> None:
    machine = units(gpu(0), gpu(1), gpu(2), shares=2)
    free = ["gpu-0.0", "gpu-0.1", "gpu-1.1", "gpu-2.0", "gpu-2.1"]
    assert prefer("packed", machine, free, [], 1) == ["gpu-1.1"]
    assert prefer("spread", machine, free, [], 2) == ["gpu-0.0", "gpu-2.0"]


def test_natural_order_decides_a_tie() -> None:
    machine = units(gpu(0), shares=12)
    assert prefer("numa", machine, sorted(machine), [], 3) == ["gpu-0.0", "gpu-0.1", "gpu-0.2"]


def test_units_that_are_gone_are_passed_over() -> None:
    machine = units(gpu(0), gpu(1))
    assert prefer("numa", machine, ["gpu-9", "gpu-1"], ["gpu-8"], 2) == ["gpu-1"]
    assert prefer("numa", {}, ["gpu-9"], [], 1) == []


def test_ten_thousand_devices() -> None:
    machine = units(*(gpu(i, i % 2) for i in range(10_000)))
    chosen = prefer("numa", machine, list(machine), [], 4)
    assert {machine[u].device.numa_nodes for u in chosen} == {(0,)}
