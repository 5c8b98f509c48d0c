"""Devices that consume the counters of their pool."""

import pytest

from controlplane.structured import Features
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, consumes, counter_set, device, draw, first_of, request
from tests.controlplane.structured.scenarios.two_drivers import ONE, at_least, found, held_a, sized, slice_a, wants_a

OFF = Features(partitionable_devices=False)
SIX_OR_FOUR = first_of("q", wants_a(1, at_least("6Gi")), wants_a(1, at_least("4Gi")))


def _partition(name: str, memory: str) -> Json:
    return sized(name, memory, **consumes(memory=memory))


def _pool(devices: list[Json], *sets: Json, count: int = 2, pool: str = "pool-1") -> list[ResourceSlice]:
    """A slice with the devices and one with the counters."""
    return [
        slice_a("slice-1", devices, count=count, pool=pool),
        slice_a("slice-2", count=count, pool=pool, sharedCounters=sets),
    ]


EIGHT = counter_set(memory="8Gi")
THREE = [_partition("a1", "4Gi"), _partition("a2", "6Gi"), _partition("a3", "4Gi")]


@scenario(83)
def test_counters_of_another_slice_are_consumed() -> None:
    assert found(_pool([_partition("a1", "4Gi")], EIGHT), ONE) == [["r=pool-1/a1"]]


@scenario(84)
def test_alternative_that_exceeds_counters_falls_back_to_next() -> None:
    wanted = claim(request("r", wants_a()), SIX_OR_FOUR)
    assert found(_pool(THREE, EIGHT), wanted) == [["r=pool-1/a1", "q/s1=pool-1/a3"]]


@scenario(85)
def test_device_that_exceeds_counters_is_skipped() -> None:
    wanted = claim(request("r", wants_a()), request("q", wants_a()))
    assert found(_pool(THREE, EIGHT), wanted) == [["r=pool-1/a1", "q=pool-1/a3"]]


@scenario(86)
def test_smallest_counter_set_limits_devices() -> None:
    devices = [
        sized(f"a{n}", f"{size}Gi", consumesCounters=[draw("m", memory=f"{size}Gi"), draw("c", cpus=str(size))])
        for n, size in enumerate((4, 6, 4), 1)
    ]
    slices = _pool(devices, counter_set("m", memory="18Gi"), counter_set("c", cpus="8"))
    assert found(slices, claim(request("r", wants_a()), SIX_OR_FOUR)) == [["r=pool-1/a1", "q/s1=pool-1/a3"]]


@scenario(87)
def test_search_releases_device_that_blocks_both_others() -> None:
    draws = [
        [draw("slots", slot0="1", slot1="1"), draw("size", memory="4Gi", cpus="2")],
        [draw("slots", slot0="1"), draw("size", memory="4Gi", cpus="2")],
        [draw("slots", slot1="1"), draw("size", memory="4Gi", cpus="2")],
    ]
    devices = [device(f"a{n}", consumesCounters=each) for n, each in enumerate(draws, 1)]
    slices = _pool(devices, counter_set("slots", slot0="1", slot1="1"), counter_set("size", memory="8Gi", cpus="4"))
    assert found(slices, claim(request("r", wants_a()), request("q", wants_a()))) == [["r=pool-1/a2", "q=pool-1/a3"]]


UNEVEN = [_partition("a1", "5Gi"), _partition("a2", "4Gi"), _partition("a3", "4Gi")]
PAIR = claim(request("r", wants_a(2)))


@scenario(88)
def test_counter_sets_of_same_name_in_two_pools_are_separate() -> None:
    """The devices in use consume all of the first pool's counters and nothing of the second's."""
    slices = _pool(THREE, EIGHT) + _pool(UNEVEN, EIGHT, pool="pool-2")
    assert found(slices, PAIR, state=held_a("a1", "a3")) == [["r=pool-2/a2", "r=pool-2/a3"]]


@scenario(89)
def test_unused_counter_changes_nothing() -> None:
    slices = _pool(UNEVEN, counter_set(memory="8Gi", unused="1Gi"))
    assert found(slices, PAIR) == [["r=pool-1/a2", "r=pool-1/a3"]]


@scenario(90, 91)
@pytest.mark.parametrize("in_use", ["16Gi", "20Gi"])
@pytest.mark.parametrize("count", [1, 2])
def test_device_is_refused_if_devices_in_use_exhaust_counters(in_use: str, count: int) -> None:
    """With a count of one, the two slices do not form a valid pool."""
    slices = _pool([_partition("a1", "4Gi"), _partition("a2", in_use)], counter_set(memory="18Gi"), count=count)
    assert found(slices, ONE, state=held_a("a2")) is None


@scenario(92)
def test_device_with_counters_is_skipped_when_feature_is_off() -> None:
    assert found(_pool([_partition("a1", "4Gi")], EIGHT), ONE, features=OFF) is None
