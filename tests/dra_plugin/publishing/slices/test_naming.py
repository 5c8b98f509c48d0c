"""Slice indices in generated names."""

import pytest

from dra_plugin.publishing.slices.naming import NoIndex, generate_name, index_length, index_of
from tests.dra_scenarios import scenario


@scenario(101)
@pytest.mark.parametrize(
    ("count", "length"),
    [(-1, 5), (0, 5), (1, 5), (16, 5), (0x10000, 5), (0x100000, 5), (0x100001, 6), (0x1000000, 6)],
)
def test_index_length_fits_the_largest_index(count: int, length: int) -> None:
    assert index_length(count) == length


@scenario(101)
@pytest.mark.parametrize(
    ("index", "length", "digits"), [(0, 5, "00000"), (26, 5, "0001a"), (100000, 5, "186a0"), (1048576, 6, "100000")]
)
def test_generated_name_yields_its_index(index: int, length: int, digits: str) -> None:
    assert generate_name(index, length, "driver", "owner") == f"{digits}-driver-owner-"
    assert generate_name(index, length, "driver") == f"{digits}-driver-"
    assert index_of(f"{digits}-driver-owner-x7k2p", length) == index


@scenario(101)
@pytest.mark.parametrize(
    ("name", "length", "index"),
    [
        ("00000-", 5, 0),
        ("00009-", 5, 9),
        ("0000a-", 5, 10),
        ("0001a-", 5, 26),
        ("00023-", 5, 35),
        ("186a0-", 5, 100000),
        ("100000-", 6, 1048576),
        ("00001-driver-owner-suffix", 5, 1),
    ],
)
def test_index_is_read_from_a_valid_name(name: str, length: int, index: int) -> None:
    assert index_of(name, length) == index


@scenario(101)
@pytest.mark.parametrize(
    ("name", "length", "complaint"),
    [
        ("00000", 5, "invalid index length or missing separator"),
        ("-0001-", 5, "invalid index length or missing separator"),
        ("000000-", 5, "invalid index length or missing separator"),
        ("00000-", 6, "invalid index length or missing separator"),
        ("", 5, "invalid index length or missing separator"),
        ("0000g-", 5, "failed to parse index"),
        ("+0001-", 5, "failed to parse index"),
        ("0_001-", 5, "failed to parse index"),
        ("ffffffffffffffff-", 16, "failed to parse index"),
    ],
)
def test_name_without_a_valid_index_is_refused(name: str, length: int, complaint: str) -> None:
    with pytest.raises(NoIndex, match=complaint):
        index_of(name, length)
