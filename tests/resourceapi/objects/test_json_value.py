"""Equality of JSON values."""

from typing import Any

import pytest

from resourceapi.objects.json_value import MAX_DEPTH, TooDeep, check_depth, json_equal
from resourceapi.objects.v1 import AllocatedDeviceStatus, OpaqueDeviceConfiguration


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": [x]}}])
def test_json_equality_distinguishes_numbers_and_booleans(wrap: Any) -> None:
    for one, other in ((1, True), (0, False), (1, 1.0), (True, 1.0)):
        assert wrap(one) == wrap(other)
        assert not json_equal(wrap(one), wrap(other))
    assert json_equal(wrap({"a": 1, "b": 2}), wrap({"b": 2, "a": 1}))
    assert not json_equal(wrap([1, 2]), wrap([2, 1]))


def test_free_form_values_of_structs_use_json_equality() -> None:
    """Structs with free-form values use the same equality."""
    for build in (
        lambda value, driver="d": OpaqueDeviceConfiguration(driver=driver, parameters={"n": value}),
        lambda value, driver="d": AllocatedDeviceStatus(driver=driver, data={"n": value}),
    ):
        assert build(1) == build(1)
        assert build(1) != build(True)
        assert build(1) != build(1, "e")


def test_value_deeper_than_limit_is_refused() -> None:
    value: Any = {}
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    check_depth([1])
    check_depth(value)
    with pytest.raises(TooDeep):
        check_depth([value])
