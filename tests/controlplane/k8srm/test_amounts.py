"""Ways to split amounts over devices."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.k8srm.amounts import Demand, DeviceShape, Supply, splits


def shape(block: int, usable: int) -> DeviceShape:
    return DeviceShape((Supply("m", block, usable),))


def portions(demand: Demand, available: dict[DeviceShape, int]) -> list[list[int]]:
    return [
        sorted((amount for slot in split for _ in range(slot.count) for _, amount in slot.portions), reverse=True)
        for split in splits(demand, available)
    ]


def test_even_splits_precede_uneven_splits_and_more_devices() -> None:
    assert portions(Demand(1, 3, {"m": 100}), {shape(1, 80): 3}) == [[50, 50], [80, 20], [34, 33, 33], [80, 19, 1]]


def test_several_resources_are_split_together() -> None:
    both = DeviceShape((Supply("a", 1, 10), Supply("b", 4, 8)))
    first = next(splits(Demand(1, 32, {"a": 12, "b": 4}), {both: 2}))
    assert first[0].count == 2
    assert first[0].portions == (("a", 6), ("b", 4))


def test_impossible_demand_has_no_split() -> None:
    assert portions(Demand(1, 2, {"m": 100}), {shape(1, 30): 9}) == []
    assert portions(Demand(2, 2, {"m": 3}, {"m": 7}), {shape(4, 8): 2}) == []


def test_split_search_is_short_for_many_unbalanced_shapes() -> None:
    """Each resource alone would be sufficient, and there are millions of device sets."""
    devices = {DeviceShape((Supply("a", 1, n), Supply("b", 1, 41 - n))): 1 for n in range(1, 41)}
    assert list(splits(Demand(20, 20, {"a": 411, "b": 411}), devices)) == []
    (first, *_) = splits(Demand(2, 2, {"a": 41, "b": 41}), devices)
    assert [slot.portions for slot in first] == [(("a", 40), ("b", 1)), (("a", 1), ("b", 40))]
    odd = {DeviceShape((Supply("a", 1, n * n % 89), Supply("b", 1, n * n * n % 97))): 1 for n in range(1, 89)}
    assert list(splits(Demand(1, 32, {"a": 2200, "b": 2800}), odd)) == []


@given(
    st.integers(1, 60),
    st.dictionaries(
        st.builds(lambda block, blocks: shape(block, block * blocks), st.integers(1, 5), st.integers(1, 6)),
        st.integers(1, 3),
        min_size=1,
        max_size=3,
    ),
    st.one_of(st.none(), st.integers(0, 10)),
)
def test_random_splits_satisfy_demand_and_exist_when_possible(
    wanted: int, available: dict[DeviceShape, int], slack: int | None
) -> None:
    limits = {} if slack is None else {"m": wanted + slack}
    found = list(splits(Demand(1, 32, {"m": wanted}, limits), available))
    for split in found:
        amounts = [(slot, dict(slot.portions)["m"]) for slot in split for _ in range(slot.count)]
        assert wanted <= sum(amount for _, amount in amounts) <= limits.get("m", 10**9)
        for slot, amount in amounts:
            assert slot.shape is not None
            supply = slot.shape.supplies[0]
            assert 0 < amount <= supply.usable
            assert amount % supply.block == 0
    for each, number in available.items():
        assert all(sum(slot.count for slot in split if slot.shape == each) <= number for split in found)
    enough = sum(each.supplies[0].usable * number for each, number in available.items()) >= wanted
    if slack is None:
        assert bool(found) == enough
