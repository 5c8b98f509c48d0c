"""Devices stay in their slices while other devices come and go."""

from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.publishing.slice_layout import SliceLayout

NAMES = st.sets(st.sampled_from([f"d{i}" for i in range(12)]))


def test_slices_are_filled_in_the_order_of_the_names() -> None:
    assert SliceLayout(2).assign(["c", "a", "b"]) == (("a", "b"), ("c",))


def test_what_comes_fills_what_is_free() -> None:
    places = SliceLayout(2)
    places.assign("abcd")
    assert places.assign("bcd") == (("b",), ("c", "d"))
    assert places.assign("bcdxy") == (("b", "x"), ("c", "d"), ("y",))


def test_an_empty_slice_stays_in_the_middle_and_goes_at_the_end() -> None:
    places = SliceLayout(1)
    places.assign("abc")
    assert places.assign("c") == ((), (), ("c",))
    assert places.assign("") == ()


@given(st.lists(NAMES, max_size=8), st.integers(1, 4))
def test_nobody_moves_and_no_slice_overflows(steps: list[set[str]], size: int) -> None:
    places = SliceLayout(size)
    before: dict[str, int] = {}
    for names in steps:
        slices = places.assign(names)
        where = {name: i for i, one in enumerate(slices) for name in one}
        assert where.keys() == names
        assert all(len(one) <= size and list(one) == sorted(one) for one in slices)
        assert all(where[name] == i for name, i in before.items() if name in names)
        assert not slices or slices[-1]
        before = where
