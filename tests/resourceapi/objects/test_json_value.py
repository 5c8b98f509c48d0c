"""Equality of JSON values."""

from typing import Any

import pytest

from resourceapi.objects.json_value import MAX_DEPTH, TooDeep, check_depth, json_equal
from resourceapi.objects.v1 import AllocatedDeviceStatus, OpaqueDeviceConfiguration


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": [x]}}])
def test_python_takes_for_the_same_what_json_tells_apart(wrap: Any) -> None:
    for one, other in ((1, True), (0, False), (1, 1.0), (True, 1.0)):
        assert wrap(one) == wrap(other)
        assert not json_equal(wrap(one), wrap(other))
    assert json_equal(wrap({"a": 1, "b": 2}), wrap({"b": 2, "a": 1}))
    assert not json_equal(wrap([1, 2]), wrap([2, 1]))


def test_values_of_drivers() -> None:
    """Structs with free-form values use the same equality."""
    for made in (
        lambda value, driver="d": OpaqueDeviceConfiguration(driver=driver, parameters={"n": value}),
        lambda value, driver="d": AllocatedDeviceStatus(driver=driver, data={"n": value}),
    ):
        assert made(1) == made(1)
        assert made(1) != made(True)
        assert made(1) != made(1, "e")


def test_depth() -> None:
    value: Any = {}
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    check_depth([1])
    check_depth(value)
    with pytest.raises(TooDeep):
        check_depth([value])
