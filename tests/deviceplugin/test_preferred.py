"""GetPreferredAllocation, compared with every possible choice; and the cost of the largest requests."""

import functools
import random
import statistics
import tracemalloc
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deviceplugin.preferred import cost_of, prefer
from deviceplugin.units import Units, units_of
from hostdevices import AttributeValue, Device
from hostdevices.device import PCI_BUS_ID
from resources.resource import PreferredPolicy, Resource
from resources.selector import Kinds

TOGETHER = 1 << 20
POLICIES: tuple[PreferredPolicy, ...] = get_args(PreferredPolicy)


def gpu(number: int, numa: int | None = None, root: str = "", bridge: str = "", **more: AttributeValue) -> Device:
    return Device(
        id=f"gpu-{number}",
        kind="gpu",
        name=f"card{number}",
        syspath=f"/sys/devices/{root}/{bridge}/{number}" if root else "",
        attributes={**({"resource.kubernetes.io/pcieRoot": root} if root else {}), **more},
        numa_nodes=() if numa is None else (numa,),
    )


def linked(links: Mapping[tuple[int, int], int], *devices: Device) -> list[Device]:
    """The devices, by number, with so many links between each pair."""

    def of(number: int) -> tuple[tuple[str, int], ...]:
        ends = [(y if x == number else x, n) for (x, y), n in links.items() if number in (x, y)]
        return tuple((f"0000:{end:02x}:00.0", n) for end, n in ends)

    return [
        structs.replace(device, links=of(i), attributes={**device.attributes, PCI_BUS_ID: f"0000:{i:02x}:00.0"})
        for i, device in enumerate(devices)
    ]


def board(rows: Sequence[Sequence[int]], *, bridges: int = 2, sockets: int = 2) -> Units:
    """GPUs with numbers of links as `nvidia-smi topo -m` shows them, distributed over so many bridges."""
    count = len(rows)
    links = {(i, j): rows[i][j] for i, j in combinations(range(count), 2) if rows[i][j]}
    hive = {"hive": "a"} if links else {}
    gpus = (
        gpu(i, i * sockets // count, f"pci{i * sockets // count}", f"b{i // bridges}", **hive) for i in range(count)
    )
    return units(*linked(links, *gpus))


def units(*devices: Device, shares: int = 1) -> Units:
    return units_of(Resource("example.com/gpu", Kinds(("gpu",)), shares=shares), devices)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Units, list[str], list[str], int]:
    shares = draw(st.integers(1, 3))
    devices = [
        gpu(
            i,
            draw(st.sampled_from([None, 0, 1])),
            draw(st.sampled_from(["", "pci0000:00", "pci0000:80"])),
            draw(st.sampled_from("ab")),
            **draw(st.sampled_from([{}, {"hive": "a"}, {"hive": "b"}])),
        )
        for i in range(draw(st.integers(1, 12 // shares)))
    ]
    ends = st.integers(0, len(devices) - 1)
    links = {(i, j): n for i, j, n in draw(st.lists(st.tuples(ends, ends, st.integers(1, 3)))) if i < j}
    everything = units(*linked(links, *devices), shares=shares)
    available = draw(st.lists(st.sampled_from(sorted(everything)), unique=True, min_size=1))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=3))
    return everything, available, must, draw(st.integers(max(len(must), 1), len(available)))


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems())
def test_exact_choice_has_the_lowest_cost(
    policy: PreferredPolicy, problem: tuple[Units, list[str], list[str], int]
) -> None:
    everything, available, must, size = problem
    chosen = prefer(policy, everything, available, must, size)
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= set(available)
    others = [x for x in combinations(available, size) if set(must) <= set(x)]
    assert cost_of(policy, everything, available, chosen) == min(
        cost_of(policy, everything, available, x) for x in others
    )


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems())
def test_quick_choice_shares_devices_no_more_than_the_exact_choice(
    policy: PreferredPolicy, problem: tuple[Units, list[str], list[str], int]
) -> None:
    """Rule 4 shares devices as the exact choice does, and `spread` is exact. Only distances can be larger."""
    everything, available, must, size = problem
    chosen = prefer(policy, everything, available, must, size, steps=0)
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= set(available)
    exact = prefer(policy, everything, available, must, size)
    cost, least = (cost_of(policy, everything, available, each) for each in (chosen, exact))
    assert cost >= least
    if policy == "spread":
        assert cost == least
    elif policy != "packed":  # packed: two units of one device cost nothing
        assert cost // TOGETHER == least // TOGETHER


@pytest.mark.parametrize("policy", ["numa", "packed"])
def test_quick_choice_costs_at_most_four_times_the_optimum(policy: PreferredPolicy) -> None:
    """Measured with 60 devices: half of the choices are optimal, and all cost less than four times the optimum."""
    chance, ratios = random.Random(3), []
    for _ in range(60):
        shares = chance.choice([1, 1, 3])
        devices = (gpu(i, i % 2, f"pci{chance.randrange(3)}", f"b{chance.randrange(4)}") for i in range(60))
        everything = units(*devices, shares=shares)
        available = chance.sample(list(everything), chance.randrange(50, len(everything) + 1))
        must = chance.sample(available, chance.choice([0, 0, 2]))
        size = chance.randrange(10, 50)
        exact, quick = (prefer(policy, everything, available, must, size, steps=steps) for steps in (10**9, 0))
        least, cost = (cost_of(policy, everything, available, each) for each in (exact, quick))
        shared = 0 if policy == "packed" else least // TOGETHER * TOGETHER
        ratios.append((cost - shared) / max(least - shared, 1))
    assert min(ratios) >= 1
    assert max(ratios) < 4
    assert statistics.median(ratios) < 1.1


def test_devices_of_one_numa_node_and_bridge_are_chosen_together() -> None:
    machine = units(
        gpu(0, 0, "pci0000:00", "a"),
        gpu(1, 1, "pci0000:80", "a"),
        gpu(2, 0, "pci0000:00", "b"),
        gpu(3, 0, "pci0000:00", "b"),
    )
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-2", "gpu-3"]
    assert prefer("numa", machine, list(machine), ["gpu-0"], 2) == ["gpu-0", "gpu-2"]


def test_gpus_of_one_hive_are_chosen_together_across_numa_nodes() -> None:
    hives = "abab"
    machine = units(*(gpu(i, i // 2, f"pci0000:{i}0", hive=hive) for i, hive in enumerate(hives)))
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-0", "gpu-2"]
    assert prefer("numa", machine, list(machine), ["gpu-3"], 2) == ["gpu-3", "gpu-1"]
    eight = units(*(gpu(i, i % 2, f"pci0000:{i}0", hive="a") for i in range(8)))
    assert prefer("numa", eight, list(eight), [], 4) == ["gpu-0", "gpu-2", "gpu-4", "gpu-6"]


# The topology of a DGX-1 with V100: each GPU has six links, to four others.
CUBE = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
]


@pytest.mark.parametrize(
    ("free", "must", "size", "best"),
    [
        ("01234567", "", 2, "23"),  # two links, and a common bridge
        ("01234567", "0", 2, "03"),  # two links; 4 has as many, but is on the other socket
        ("01234567", "6", 2, "67"),
        ("014567", "0", 2, "04"),  # two links across the sockets are better than one on the same
        ("01234567", "", 4, "0123"),  # nine links
        ("1234567", "", 4, "4567"),
        ("01234567", "4", 4, "4567"),
        ("012567", "", 3, "567"),  # five links; 0, 1 and 2 have only four
        ("0257", "", 2, "02"),  # 5 and 7 also have only one link
        ("0156", "", 4, "0156"),
        ("07", "", 1, "0"),
    ],
)
def test_gpus_of_a_hybrid_cube_mesh_are_chosen_by_their_links(free: str, must: str, size: int, best: str) -> None:
    machine = board(CUBE)
    chosen = prefer("numa", machine, [f"gpu-{i}" for i in free], [f"gpu-{i}" for i in must], size)
    assert sorted(chosen) == [f"gpu-{i}" for i in best]


def test_bridged_pairs_are_chosen_together_across_sockets() -> None:
    machine = board([[0, 0, 4, 0], [0, 0, 0, 4], [4, 0, 0, 0], [0, 4, 0, 0]], bridges=1)
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-0", "gpu-2"]
    assert prefer("numa", machine, ["gpu-0", "gpu-1", "gpu-3"], [], 2) == ["gpu-1", "gpu-3"]
    assert prefer("numa", machine, ["gpu-0", "gpu-1"], [], 2) == ["gpu-0", "gpu-1"]


def test_bridge_with_links_down_is_chosen_after_a_complete_bridge() -> None:
    machine = board([[0, 3, 0, 0], [3, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]], bridges=1, sockets=1)
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-2", "gpu-3"]


def test_gpu_with_links_down_is_avoided_among_gpus_at_switches() -> None:
    def rows(*less: int) -> list[list[int]]:
        return [[0 if i == j else 12 if {i, j} & {*less} else 18 for j in range(8)] for i in range(8)]

    machine = board(rows(), bridges=1, sockets=1)
    assert prefer("numa", machine, list(machine), [], 4) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    machine = board(rows(1), bridges=1, sockets=1)
    assert prefer("numa", machine, list(machine), [], 4) == ["gpu-0", "gpu-2", "gpu-3", "gpu-4"]


def test_shares_of_the_gpus_with_most_links_are_chosen_together() -> None:
    links = {(0, 1): 1, (1, 2): 2}
    machine = units(*linked(links, gpu(0), gpu(1), gpu(2)), shares=2)
    assert prefer("packed", machine, list(machine), [], 3) == ["gpu-1.0", "gpu-1.1", "gpu-2.0"]
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-1.0", "gpu-2.0"]
    assert "gpu-0.1" not in prefer("numa", machine, list(machine), [], 5)


@pytest.mark.parametrize(("count", "shares", "size"), [(16, 1, 8), (17, 1, 8), (1000, 1, 8), (16, 100, 800)])
def test_search_among_many_linked_gpus_is_bounded(count: int, shares: int, size: int) -> None:
    """The search is bounded: 10 ms of CPU time for 16 GPUs, 40 ms if shares make the search too large."""
    chance = random.Random(4)
    links = {(j, i): chance.randrange(1, 9) for i in range(min(count, 64)) for j in range(i)}
    machine = units(*linked(links, *(gpu(i, hive="a") for i in range(count))), shares=shares)
    for policy in POLICIES:
        chosen = prefer(policy, machine, list(machine), [next(iter(machine))], size)
        assert len(set(chosen)) == size
        if (count, shares) == (16, 1):
            others = prefer(policy, machine, list(machine), [next(iter(machine))], size, steps=0)
            costs = [cost_of(policy, machine, list(machine), each) for each in (chosen, others)]
            assert (costs[0] < costs[1]) == (policy != "spread")


def test_partitions_of_one_gpu_are_chosen_together() -> None:
    def partition(number: int, of: int) -> Device:
        where: dict[str, AttributeValue] = {
            "partition": number % 2,
            "resource.kubernetes.io/pciBusID": f"0000:0{of}:00.0",
        }
        return gpu(number, 0, "pci0000:00", ("bridge", "platform")[number % 2], **where)

    machine = units(*(partition(number, of) for number, of in enumerate((1, 1, 2, 2))))
    assert prefer("numa", machine, list(machine), ["gpu-1"], 2) == ["gpu-1", "gpu-0"]
    assert prefer("numa", machine, ["gpu-1", "gpu-2", "gpu-3"], [], 2) == ["gpu-2", "gpu-3"]


def test_shares_are_spread_over_devices_unless_packed() -> None:
    machine = units(gpu(0), gpu(1), shares=3)
    assert prefer("numa", machine, list(machine), [], 2) == ["gpu-0.0", "gpu-1.0"]
    assert prefer("packed", machine, list(machine), [], 2) == ["gpu-0.0", "gpu-0.1"]


def test_units_in_use_decide_between_equally_close_devices() -> None:
    machine = units(gpu(0), gpu(1), gpu(2), shares=2)
    free = ["gpu-0.0", "gpu-0.1", "gpu-1.1", "gpu-2.0", "gpu-2.1"]
    assert prefer("packed", machine, free, [], 1) == ["gpu-1.1"]
    assert prefer("spread", machine, free, [], 2) == ["gpu-0.0", "gpu-2.0"]


def test_natural_order_decides_a_tie() -> None:
    machine = units(gpu(0), shares=12)
    assert prefer("numa", machine, sorted(machine), [], 3) == ["gpu-0.0", "gpu-0.1", "gpu-0.2"]


def test_removed_units_are_not_chosen() -> None:
    machine = units(gpu(0), gpu(1))
    assert prefer("numa", machine, ["gpu-9", "gpu-1"], ["gpu-8"], 2) == ["gpu-1"]
    assert prefer("numa", {}, ["gpu-9"], [], 1) == []


def test_choice_among_ten_thousand_devices_stays_on_one_numa_node() -> None:
    machine = units(*(gpu(i, i % 2) for i in range(10_000)))
    chosen = prefer("numa", machine, list(machine), [], 4)
    assert {machine[u].numa_nodes for u in chosen} == {(0,)}


LARGE = {  # devices, bridges, shares, size
    "one device": (1, 1, 40_000, 40_000),
    "half of its shares": (1, 1, 40_000, 20_000),
    "8 devices": (8, 1, 5_000, 20_001),
    "400 devices": (400, 8, 100, 20_000),
    "10,000 bridges": (10_000, 10_000, 1, 5_000),
    "40,000 devices": (40_000, 8, 1, 20_000),
}


@functools.lru_cache(maxsize=1)
def large(name: str) -> Units:
    count, bridges, shares, _ = LARGE[name]
    devices = (gpu(i, i % 2, f"pci{i % 4}", f"b{i % bridges}") for i in range(count))
    return units(*devices, shares=shares)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LARGE)  # must vary last, because `large` keeps one
def test_largest_requests_take_little_memory(policy: PreferredPolicy, name: str) -> None:
    """A regression test: they took 5 GB and 85 s. Now they take 30 to 100 ms of CPU time."""
    everything, size = large(name), LARGE[name][-1]
    available = [str(u.encode(), "ascii") for u in everything]
    tracemalloc.start()
    try:
        chosen = prefer(policy, everything, available, available[: size // 2], size)
        assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert len(set(chosen)) == size
