"""Devices stay in their slices while other devices come and go."""

from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.publishing.slice_layout import SliceLayout

NAMES = st.sets(st.sampled_from([f"d{i}" for i in range(12)]))


def test_slices_are_filled_in_name_order() -> None:
    assert SliceLayout(2).assign(["c", "a", "b"]) == (("a", "b"), ("c",))


def test_new_devices_fill_free_places() -> None:
    layout = SliceLayout(2)
    layout.assign("abcd")
    assert layout.assign("bcd") == (("b",), ("c", "d"))
    assert layout.assign("bcdxy") == (("b", "x"), ("c", "d"), ("y",))


def test_empty_slice_is_kept_in_the_middle_and_dropped_at_the_end() -> None:
    layout = SliceLayout(1)
    layout.assign("abc")
    assert layout.assign("c") == ((), (), ("c",))
    assert layout.assign("") == ()


@given(st.lists(NAMES, max_size=8), st.integers(1, 4))
def test_devices_keep_their_slices_and_no_slice_overflows(steps: list[set[str]], size: int) -> None:
    layout = SliceLayout(size)
    before: dict[str, int] = {}
    for names in steps:
        slices = layout.assign(names)
        where = {name: i for i, one in enumerate(slices) for name in one}
        assert where.keys() == names
        assert all(len(one) <= size and list(one) == sorted(one) for one in slices)
        assert all(where[name] == i for name, i in before.items() if name in names)
        assert not slices or slices[-1]
        before = where
