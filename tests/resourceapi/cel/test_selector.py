"""Device selectors: the variable `device`, valid result types, and the environments in which they compile."""

from typing import Any

import pytest

from resourceapi.cel import (
    CelCompileError,
    CelEvalError,
    CelInterrupted,
    CostLimitExceeded,
    DeviceView,
    compile_selector,
    device_environment,
    enhance_runtime_error,
)
from resourceapi.cel.device import MAX_ATTRIBUTES, MAX_ID
from resourceapi.objects import from_dict
from resourceapi.objects.v1 import Device
from tests.cel_scenarios import scenario
from tests.resourceapi.cel.devices import ATTRIBUTES, CAPACITY, DRIVER, device, matches, versions

DEVICE = device({"int": 1, "string": "fish", "ids": [1, 2, 3]})


@pytest.mark.parametrize(
    ("expression", "expected", "estimate"),
    [
        ("device.allowMultipleAllocations == true", False, 3),
        (f"{ATTRIBUTES}.ids.exists(x, x > 2)", True, 5 + 6 * 64),
        (f'{ATTRIBUTES}.?nothing.orValue("none") == "none"', True, 6),
        (f"has({ATTRIBUTES}.nothing)", False, 3),
    ],
)
def test_selector_matches_within_its_estimate(expression: str, expected: bool, estimate: int) -> None:
    selector = compile_selector(expression, device_environment())
    matched, cost = selector.evaluate_device(DEVICE)
    assert matched is expected
    assert selector.max_cost == estimate
    assert cost <= estimate


@pytest.mark.parametrize(
    ("expression", "estimate", "cost"),
    [
        ("device == device", 2, 3),
        ("dyn(device) == 1", 2, 3),
        (f"{ATTRIBUTES}.string == device", 5, 6),
    ],
)
def test_comparison_of_device_costs_more_than_its_estimate(expression: str, estimate: int, cost: int) -> None:
    """Upstream estimates a size of zero for a device, but charges one at run time."""
    selector = compile_selector(expression, device_environment())
    assert (selector.max_cost, selector.evaluate_device(DEVICE)[1]) == (estimate, cost)


@pytest.mark.parametrize("name", ["attributes", "capacity"])
def test_map_of_domains_cannot_be_an_index(name: str) -> None:
    with pytest.raises(CelEvalError, match=r"^invalid qualifier type: cel\.mapper$"):
        matches(f"dyn({{'a': 1}})[device.{name}] == 1")


@pytest.mark.parametrize("wrapper", ["{}", "{} || true", "[1].exists(x, {})", "({}) ? true : true"])
def test_version_in_list_of_strings_is_a_panic_that_nothing_absorbs(wrapper: str) -> None:
    versioned = device({"v": versions("1.2.0")[0]})
    with pytest.raises(CelEvalError, match=r"^internal error: runtime error: hash of unhashable type cel\.Semver$"):
        matches(wrapper.format(f'{ATTRIBUTES}.v in ["1.2.0"]'), versioned)
    assert matches(f'true || {ATTRIBUTES}.v in ["1.2.0"]', versioned)
    assert matches(f'{ATTRIBUTES}.v in [semver("1.2.0")]', versioned)
    assert not matches(f'{ATTRIBUTES}.v in ["1.2.0", device.driver]', versioned)


@pytest.mark.parametrize(
    ("value", "kind"), [('b"a"', "types.Bytes"), ('semver("1.0.0")', "cel.Semver"), ("format.uri()", "cel.Format")]
)
def test_unhashable_value_in_constant_list_is_an_error(value: str, kind: str) -> None:
    with pytest.raises(CelEvalError, match=rf"hash of unhashable type {kind}$"):
        matches(f'dyn({value}) in ["a"]')


@pytest.mark.parametrize(
    "expression", ["{v} in {{'1.2.0': true}}", "{v} in {{'x': device.driver}}", "{{dyn({v}): 1}}.size() == 1"]
)
@pytest.mark.parametrize("wrapper", ["{}", "{} || true"])
def test_unhashable_value_as_map_key_is_an_error(expression: str, wrapper: str) -> None:
    versioned = device({"v": versions("1.2.0")[0]})
    with pytest.raises(CelEvalError, match=r"^internal error: runtime error: hash of unhashable type cel\.Semver$"):
        matches(wrapper.format(expression.format(v=f"{ATTRIBUTES}.v")), versioned)
    for allowed_expression in (f"{ATTRIBUTES}.v in {{}}", f"{ATTRIBUTES}.v in {ATTRIBUTES}"):
        assert not matches(allowed_expression, versioned)


def test_type_variables_are_numbered_like_upstream() -> None:
    with pytest.raises(CelCompileError, match=r"expression of type 'optional_type\(_var4\)' cannot be range"):
        compile_selector("((null)[?(2u)]).exists(x, true)", device_environment())


def test_qualified_attribute_overrides_unqualified_name_of_driver() -> None:
    assert matches(f"{ATTRIBUTES}.count == 2", device({"count": 2}))
    assert matches(f"{ATTRIBUTES}.count == 2", device({f"{DRIVER}/count": 2, "count": 1}))
    assert matches(f"{ATTRIBUTES}.count == 2", device({"count": 1, f"{DRIVER}/count": 2}))
    assert matches('device.attributes[""].count == 1', device({"count": 1}, driver=""))
    assert matches('device.attributes["a"]["b/c"] == 1', device({"a/b/c": 1}))


def test_device_view_is_built_from_api_device() -> None:
    fields = {
        "name": "gpu-0",
        "attributes": {"model": {"string": "a100"}, "cuda": {"version": "12.4.0"}, "ids": {"ints": [1, 2]}},
        "capacity": {"memory": {"value": "40Gi"}},
        "allowMultipleAllocations": True,
    }
    view = DeviceView.of(DRIVER, from_dict(Device, fields))
    assert matches(f'{ATTRIBUTES}.model == "a100" && {ATTRIBUTES}.cuda.major() == 12', view)
    assert matches(f'{ATTRIBUTES}.ids == [1, 2] && {CAPACITY}.memory.compareTo(quantity("41943040Ki")) == 0', view)
    assert matches("device.allowMultipleAllocations", view)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ({}, "attribute a: unsupported attribute value"),
        ({"version": "1.0"}, "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
        ({"versions": ["1.0.0", ""]}, "attribute a: parse semantic version: Version string empty"),
    ],
)
def test_invalid_attribute_fails_the_whole_device(attribute: dict[str, Any], text: str) -> None:
    api = from_dict(Device, {"name": "d", "attributes": {"a": attribute, "good": {"bool": True}}})
    with pytest.raises(CelEvalError) as raised:
        DeviceView.of(DRIVER, api)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ('device.attributes["no-such-domain"]["noSuchAttr"] == 1', "no such key: noSuchAttr"),
        (f"{CAPACITY}.cores.compareTo(quantity('1')) == 0", "no such key: cores"),
        (f"{ATTRIBUTES}.string && true", "no such overload"),
        (f"{ATTRIBUTES}.string > 1", "no such overload"),
        (f"{ATTRIBUTES}.ids[7] == 1", "index out of bounds: 7"),
        (f"{ATTRIBUTES}.ids.reverse()[0].getHours() == 1", "no such overload: getHours(int)"),
        ('quantity("10Mo").isInteger()', "quantities must match the regular expression"),
        ('semver("v1.0").major() == 1', "No Major.Minor.Patch elements found"),
        (
            f"{ATTRIBUTES}.string",
            "CEL result of type string could not be converted to bool:"
            " unsupported native conversion from string to 'bool'",
        ),
    ],
)
def test_evaluation_error_has_upstream_text(expression: str, text: str) -> None:
    with pytest.raises(CelEvalError) as raised:
        matches(expression, DEVICE)
    assert text in str(raised.value)


def test_error_is_absorbed_if_other_operand_decides() -> None:
    assert matches(f"{ATTRIBUTES}.nothing || true")
    assert matches(f"true || {ATTRIBUTES}.nothing")
    assert not matches(f"{ATTRIBUTES}.nothing && false")
    assert matches(f"[1, 2].exists(x, x == 2 || {ATTRIBUTES}.nothing)")
    with pytest.raises(CelEvalError, match="no such key: nothing"):
        matches(f"{ATTRIBUTES}.nothing && true")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
        (
            "noSuchVar",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'noSuchVar' (in container '')"
            "\n | noSuchVar\n | ^",
        ),
        (
            "device.nothing",
            "compilation failed: ERROR: <input>:1:7: undefined field 'nothing'\n | device.nothing\n | ......^",
        ),
        (
            "isSemver([1, 2, 3])",
            "compilation failed: ERROR: <input>:1:9: found no matching overload for 'isSemver' applied to '(list(int))'"
            "\n | isSemver([1, 2, 3])\n | ........^",
        ),
        ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"),
    ],
)
def test_invalid_selector_is_a_compile_error(expression: str, text: str) -> None:
    with pytest.raises(CelCompileError) as raised:
        compile_selector(expression, device_environment())
    assert str(raised.value) == text


@scenario(72)
@pytest.mark.parametrize("consumable_capacity", [False, True])
@pytest.mark.parametrize("list_type_attributes", [False, True])
def test_new_expression_uses_only_enabled_features(consumable_capacity: bool, list_type_attributes: bool) -> None:
    view = device({"ready": True, "ids": [1, 2], "name": "fish"}, allow_multiple_allocations=True)
    needs = {
        f"{ATTRIBUTES}.ready": True,
        "device.allowMultipleAllocations": consumable_capacity,
        f"{ATTRIBUTES}.ids.exists(id, id == 1)": list_type_attributes,
        f'{ATTRIBUTES}.name.includes("fish")': list_type_attributes,
        f"device.allowMultipleAllocations && {ATTRIBUTES}.ids.exists(id, id == 1)": consumable_capacity
        and list_type_attributes,
    }
    switches = {"consumable_capacity": consumable_capacity, "list_type_attributes": list_type_attributes}
    new, stored = device_environment(stored=False, **switches), device_environment(stored=True, **switches)
    for expression, allowed in needs.items():
        assert compile_selector(expression, stored).matches(view)
        if allowed:
            assert compile_selector(expression, new).matches(view)
        else:
            with pytest.raises(CelCompileError):
                compile_selector(expression, new)


@pytest.mark.parametrize(
    ("expression", "since"),
    [
        ('device.driver.startsWith("a") || true', (1, 31)),
        ('semver("1.0.0").major() == 1', (1, 31)),
        ('semver("v1", true).major() == 1', (1, 33)),
        ("[1, 2].all(i, v, i < v)", (1, 32)),
        ("[3, 1].sort()[0] == 1", (1, 34)),
        ("device.allowMultipleAllocations || true", (1, 34)),
        (f"[1].includes(1) || {ATTRIBUTES}.ready", (1, 36)),
    ],
)
def test_new_expression_uses_only_functions_of_its_release(expression: str, since: tuple[int, int]) -> None:
    for version in ((1, minor) for minor in range(31, 38)):
        environment = device_environment(version, stored=False)
        if version >= since:
            compile_selector(expression, environment)
        else:
            with pytest.raises(CelCompileError):
                compile_selector(expression, environment)
    compile_selector(expression, device_environment())


@scenario(65)
@pytest.mark.parametrize("list_type_attributes", [False, True])
def test_cost_limit_stops_evaluation(list_type_attributes: bool) -> None:
    largest = device({f"{DRIVER}/{number:x>{MAX_ID}}": "abc" for number in range(MAX_ATTRIBUTES)})
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    expression = "".join(f"{ten}.all(x{n}, " for n in range(7)) + "int('1'.find('[0-9]*')) < 100" + ")" * 7
    selector = compile_selector(expression, device_environment(list_type_attributes=list_type_attributes))
    assert selector.max_cost == 85555551
    with pytest.raises(CostLimitExceeded, match="operation cancelled: actual cost limit exceeded") as raised:
        selector.matches(largest)
    assert raised.value.cost == 1_000_001


def test_cost_limit_error_cannot_be_absorbed() -> None:
    selector = compile_selector("lists.range(1000).all(x, x >= 0) || true", device_environment())
    assert selector.matches(device())
    with pytest.raises(CostLimitExceeded):
        selector.matches(device(), limit=1000)


@scenario(73)
@pytest.mark.parametrize("cause", ["context canceled", "context deadline exceeded"])
def test_caller_can_interrupt_evaluation_of_loop(cause: str) -> None:
    """An elapsed timeout and a passed deadline have the same cause."""
    expression = f"{ATTRIBUTES}.map(key, {ATTRIBUTES}[key] * 20).filter(e, e > 50).exists(e, e == 60)"
    selector = compile_selector(expression, device_environment())
    view = device({f"{DRIVER}/attr{i}": i for i in range(1000)})
    assert selector.matches(view, interrupt=lambda: None)
    with pytest.raises(CelInterrupted) as raised:
        selector.matches(view, interrupt=lambda: cause)
    assert str(raised.value) == f"operation interrupted: {cause}"


@scenario(74)
@pytest.mark.parametrize(
    "text",
    [
        "no such key: sharingStrategy",
        "device x: no such key: sharingStrategy",
        "no such key: sharingStrategy. consider using CEL optional chaining",
    ],
)
def test_no_such_key_error_gets_hint_in_any_text(text: str) -> None:
    enhanced = enhance_runtime_error(CelEvalError(text))
    assert str(enhanced) == (
        f"{text}. consider using CEL optional chaining (.? followed by orValue())"
        " or guarding the check with has() for optional fields"
    )


@scenario(74)
def test_other_evaluation_error_gets_no_hint() -> None:
    error = CelEvalError("division by zero")
    assert enhance_runtime_error(error) is error


@scenario(75)
def test_no_such_key_hint_is_added_once() -> None:
    enhanced = enhance_runtime_error(CelEvalError("no such key: sharingStrategy"))
    assert enhance_runtime_error(enhanced) is enhanced
