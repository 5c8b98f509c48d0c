"""Literals of protobuf's messages: values, costs and errors. The expected answers are upstream's."""

from typing import Any

import pytest

from resourceapi.cel import compile_expression, compile_selector, device_environment
from resourceapi.cel.environment import CURRENT, build_environment
from resourceapi.cel.library import patches
from tests.cases.cel import evaluate

_P = "google.protobuf."


@pytest.mark.parametrize(
    ("source", "type_", "value", "cost"),
    [
        ("Int64Value{value: 1}", "wrapper(int)", {"int64Value": "1"}, 40),
        ("UInt32Value{}", "wrapper(uint)", {"uint64Value": "0"}, 40),
        ("FloatValue{value: 1.1}", "wrapper(double)", {"doubleValue": 1.100000023841858}, 40),
        ("FloatValue{value: 1e300}", "wrapper(double)", {"doubleValue": "Infinity"}, 40),
        ("BytesValue{value: b'a'}", "wrapper(bytes)", {"bytesValue": "YQ=="}, 40),
        ("Int64Value{?value: optional.none()}", "wrapper(int)", {"int64Value": "0"}, 41),
        ("Int64Value{value: 1} + 1", "int", {"int64Value": "2"}, 41),
        ("StringValue{} == null", "bool", {"boolValue": False}, 40),
        ("Struct{fields: {'a': 1}}.a", "dyn", {"doubleValue": 1}, 42),
        ("ListValue{values: [9007199254740993]}[0]", "dyn", {"stringValue": "9007199254740993"}, 42),
        ("Value{list_value: [duration('1s')]}", "dyn", {"listValue": {"values": [{"stringValue": "1s"}]}}, 40),
        ("Value{number_value: 1.0, string_value: 'a'}", "dyn", {"stringValue": "a"}, 40),
        ("Value{}", "dyn", {"nullValue": None}, 40),
        ("NullValue.NULL_VALUE", "int", {"int64Value": "0"}, 0),
        ("Duration{nanos: 2000000000} == duration('2s')", "bool", {"boolValue": True}, 41),
        ("Timestamp{seconds: 1}.getFullYear()", "int", {"int64Value": "1970"}, 41),
        ("Duration == type(duration('1s'))", "bool", {"boolValue": True}, 1),
    ],
)
def test_message_literal_has_value_type_and_cost(source: str, type_: str, value: Any, cost: int) -> None:
    assert evaluate(_P + source) == {"type": type_, "value": value, "cost": cost}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("Int64Value{value: dyn('a')}", "unsupported native conversion from string to 'int64'"),
        ("Int32Value{value: 3000000000}", "integer overflow"),
        ("UInt32Value{value: dyn(1)}", "unsupported type conversion from 'int' to uint32"),
        ("StringValue{value: dyn(1.5)}", "type conversion error from Double to 'string'"),
        ("BoolValue{value: dyn(optional.none())}", "optional.none() dereference"),
        ("BytesValue{value: dyn(quantity('1'))}", "type conversion error from 'Quantity' to '[]uint8'"),
    ],
)
def test_field_value_of_other_type_is_an_evaluation_error(source: str, reason: str) -> None:
    where = source.partition("{")[0]
    assert (
        evaluate(_P + source)["evalError"] == f"field type conversion error for {_P}{where}.value value type: {reason}"
    )


def test_list_value_with_non_list_is_an_evaluation_error() -> None:
    answer = evaluate(f"{_P}ListValue{{values: dyn(1)}}")
    assert answer["evalError"] == "unsupported field type for google.protobuf.ListValue.values: int"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("Int64Value{value: 'a'}", "expected type of field 'value' is 'int' but provided type is 'string'"),
        ("Int64Value{nope: 1}", "undefined field 'nope'"),
        ("Int64Value{value: 1}.value", "type 'wrapper(int)' does not support field selection"),
        ("Int64Value{?value: 1}", "expected type 'optional_type(int)' but found 'int'"),
        ("Nope{}", "undeclared reference to 'google.protobuf.Nope' (in container '')"),
        ("Int64Value", "program: reference to undefined type: google.protobuf.Int64Value"),
        ("Int64Value{value: 1} == 'a'", "found no matching overload for '_==_' applied to '(wrapper(int), string)'"),
    ],
)
def test_invalid_message_literal_is_a_compile_error(source: str, reason: str) -> None:
    assert reason in evaluate(_P + source)["compileError"]


def test_selector_can_have_type_wrapped_bool() -> None:
    selector = compile_selector(f"{_P}BoolValue{{value: device.driver == 'a'}}", device_environment())
    assert (selector.output_type, selector.max_cost) == ("wrapper(bool)", 43)


def test_expressions_that_change_objects_have_literals_of_parts_and_operations() -> None:
    environment = build_environment(CURRENT, [patches.functions()], find_message=patches.find_message)

    def evaluated(source: str) -> Any:
        return compile_expression(source, environment).evaluate({})[0]

    part = evaluated("Object{spec: Object.spec{replicas: 3, ?absent: optional.none()}}")
    assert part == ("Object", {"spec": ("Object.spec", {"replicas": 3})})
    (operation,) = evaluated("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/~c'), value: [1]}]")
    assert operation == ({"op": "add", "path": "/a/b~1~0c", "value": [1]},)
    assert str(compile_expression("[JSONPatch{}]", environment).type) == "list(JSONPatch)"
