"""List attributes: devices match if all share a value, and are distinct if no two share one."""

import pytest

from controlplane.structured import AllocationError, Features
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, device, distinct, match, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import found

OFF = Features(list_type_attributes=False)
ONE_TWO_THREE, TWO_THREE_FOUR = ["1", "2", "3"], ["2", "3", "4"]


def _versions(*versions: str) -> Json:
    return {"versions": list(versions)}


def _allocated_devices(
    values: list[object], count: int, constraint: Json, features: Features | None = None
) -> str | None:
    """The allocated devices among a, b and c, which have these attribute values."""
    devices = [device(name, attributes={"x": value}) for name, value in zip("abc", values, strict=False)]
    wanted = request("r", wants(count, 'device.driver == "drv"'))
    lines = found([slice_("s", devices)], claim(wanted, constraints=[constraint]), features=features)
    return None if lines is None else "".join(line.removeprefix("r=pool/") for line in lines)


@scenario(173, 174, 175, 176, 177, 178, 179, 180, 181, 182)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(["1", "1"], "ab", id="173"),
        pytest.param([ONE_TWO_THREE, TWO_THREE_FOUR], "ab", id="174"),
        pytest.param([["1", "2"], ["2", "3"], ["3", "1"]], None, id="175"),
        pytest.param([["1", "2"], ["3", "4"]], None, id="176"),
        pytest.param(["1", ["1", "2"]], "ab", id="177"),
        pytest.param(["1", ["1", "2"], ["2", "3"]], None, id="178"),
        pytest.param(["1", ["2", "3"]], None, id="179"),
        pytest.param([[0, 1, 2], [1, 2, 3]], "ab", id="180"),
        pytest.param([[True, False], [True]], "ab", id="181"),
        pytest.param([_versions("1.0.0", "1.1.0"), _versions("1.1.0", "2.0.0")], "ab", id="182"),
    ],
)
def test_devices_match_if_all_share_a_value(values: list[object], expected: str | None) -> None:
    assert _allocated_devices(values, len(values), match("x")) == expected


@scenario(176)
def test_requests_of_same_name_still_need_a_common_value() -> None:
    devices = [device("a", attributes={"x": ["1", "2"]}), device("b", attributes={"x": ["3", "4"]})]
    wanted = claim(request("r"), request("r"), constraints=[match("x")])
    assert found([slice_("s", devices)], wanted) is None
    assert found([slice_("s", devices)], claim(request("r"), request("r"))) == ["r=pool/a", "r=pool/b"]


@scenario(185, 186, 187, 188, 189, 190, 191, 192, 193)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(["1", "2"], "ab", id="185"),
        pytest.param(["1", "1"], None, id="186"),
        pytest.param([["1", "2"], ["2", "3"], ["3", "4"]], "ac", id="187"),
        pytest.param([ONE_TWO_THREE, ["2", "4", "5"]], None, id="188"),
        pytest.param(["1", ["1", "2"], ["2", "3"]], "ac", id="189"),
        pytest.param(["1", ["1", "2"]], None, id="190"),
        pytest.param([[0, 1], [1, 2], [2, 3]], "ac", id="191"),
        pytest.param([[True], [True, False], [False]], "ac", id="192"),
        pytest.param(
            [_versions("1.0.0", "1.1.0"), _versions("1.1.0", "2.0.0"), _versions("2.0.0", "2.1.0")], "ac", id="193"
        ),
    ],
)
def test_devices_are_distinct_if_no_two_share_a_value(values: list[object], expected: str | None) -> None:
    assert _allocated_devices(values, 2, distinct("x")) == expected


@scenario(183, 194)
@pytest.mark.parametrize("constraint", [match("x"), distinct("x")])
def test_attribute_without_value_is_an_error_and_empty_list_fails(
    constraint: Json,
) -> None:
    empty: Json = {"strings": []}
    with pytest.raises(AllocationError) as error:
        _allocated_devices([{}, empty], 2, constraint)
    assert str(error.value) == (
        "claim ns/claim: selector #0 on device drv/pool/a: CEL runtime error: attribute x: unsupported attribute value"
    )
    assert _allocated_devices([empty, empty], 2, constraint) is None


@scenario(184, 195)
@pytest.mark.parametrize("constraint", [match("x"), distinct("x")])
def test_lists_satisfy_no_constraint_when_feature_is_off(constraint: Json) -> None:
    assert _allocated_devices([ONE_TWO_THREE, TWO_THREE_FOUR], 2, constraint, OFF) is None
    assert _allocated_devices([["1"], ["2"]], 2, constraint, OFF) is None
