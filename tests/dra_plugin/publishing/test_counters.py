"""Shared counters express the same exclusions as leases."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from dra_plugin.publishing.counters import FULL_VALUE, MAX_COUNTERS, MAX_SETS_PER_DEVICE, Counters, exclusion

IDS = st.frozensets(st.sampled_from("abcdefg"), max_size=3)


class Piece(Struct, frozen=True):
    exclusive: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    partition: str = ""


def whole(*ids: str) -> Piece:
    return Piece(frozenset(ids))


def part(own: str, *of: str) -> Piece:
    return Piece(frozenset((own,)), frozenset(of))


def are_combinable(counters: Counters, *names: str) -> bool:
    """Return whether the pool's counters allow all of these devices at once, with the scheduler's sums."""
    total: dict[tuple[str, str], int] = {}
    for consumption in (x for name in names for x in counters.taken.get(name, ())):
        for counter, amount in consumption.counters.items():
            place = (consumption.counter_set, counter)
            total[place] = total.get(place, 0) + amount.value.value()
    return all(amount <= counters.sets[x].counters[y].value.value() for (x, y), amount in total.items())


def test_unrelated_devices_have_no_counters() -> None:
    assert exclusion({"a": whole("a"), "b": part("b", "c"), "d": part("d", "c")}) == Counters()


def test_whole_device_excludes_its_parts_which_fit_together() -> None:
    counters = exclusion({"pf": whole("pf"), "vf-0": part("vf-0", "pf"), "vf-1": part("vf-1", "pf")})
    assert list(counters.sets) == ["shared-pf"]
    assert are_combinable(counters, "vf-0", "vf-1")
    assert not are_combinable(counters, "pf", "vf-0")
    assert not are_combinable(counters, "vf-1", "pf")
    assert counters.sets["shared-pf"].counters["pf"].value.value() == FULL_VALUE


def test_mutual_exclusion_by_many_ids_needs_one_counter() -> None:
    parts = {f"vf-{i}": part(f"vf-{i}", "pf") for i in range(100)}
    counters = exclusion({"pf": Piece(frozenset(("pf",)), frozenset(parts)), **parts})
    assert [list(x.counters) for x in counters.sets.values()] == [["pf"]]


def test_added_device_leaves_other_counters_unchanged() -> None:
    devices = {"pf": whole("pf"), "vf-0": part("vf-0", "pf")}
    before = exclusion(devices)
    after = exclusion({**devices, "vf-1": part("vf-1", "pf")})
    assert after.sets == before.sets
    assert after.taken.items() >= before.taken.items()


def test_unrelated_parents_have_separate_counter_sets() -> None:
    counters = exclusion({"a": whole("a"), "a0": part("a0", "a"), "b": whole("b"), "b0": part("b0", "b")})
    assert sorted(counters.sets) == ["shared-a", "shared-b"]
    assert are_combinable(counters, "a", "b0")


def test_device_beyond_the_limits_is_omitted_with_the_reason() -> None:
    wholes = {f"w{i:02}": whole(f"w{i:02}") for i in range(MAX_COUNTERS * MAX_SETS_PER_DEVICE + 1)}
    counters = exclusion({**wholes, "z": part("z", *wholes)})
    assert counters.left_out == {"z": "it shares counter sets with other devices: 3, and the limit for a device is 2"}


def test_partition_has_room_for_one_more_counter_set() -> None:
    wholes = {f"w{i:02}": whole(f"w{i:02}") for i in range(MAX_COUNTERS + 1)}
    spread = Piece(frozenset("z"), frozenset(wholes), partition="half")
    assert "z" in exclusion({**wholes, "z": spread}).left_out


@given(st.dictionaries(st.sampled_from("uvwxyz"), st.builds(Piece, IDS, IDS), min_size=1))
def test_counters_exclude_the_same_devices_as_leases(devices: dict[str, Piece]) -> None:
    counters = exclusion(devices)
    assert not counters.left_out
    for x, y in combinations(devices, 2):
        a, b = devices[x], devices[y]
        excluded = a.exclusive & (b.exclusive | b.shared) or b.exclusive & a.shared
        assert are_combinable(counters, x, y) is not bool(excluded)
    for x in devices:
        assert are_combinable(counters, x)
        assert len(counters.taken.get(x, ())) <= MAX_SETS_PER_DEVICE
