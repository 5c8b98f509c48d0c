"""The catalogue of device selectors: results, cost estimates, and the environments that accept them.

Each row begins with the numbers of its scenarios. Devices have the form of ResourceSlices. Estimates are exact, and no
evaluation costs more. Estimates and results are those of Kubernetes 1.37.2, where `includes` costs as much as `in` and
has no limit on the number of values: the catalogue's limit of 48 (estimates of 22 to 47, failure of 49) is 1.36's.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from resourceapi.cel import CelCompileError, CelEvalError, DeviceView, Environment, compile_selector, device_environment
from resourceapi.objects import from_dict
from resourceapi.objects.v1 import Device
from tests.cel_scenarios import scenario
from tests.resourceapi.cel.devices import ATTRIBUTES, CAPACITY, DRIVER

Json = dict[str, Any]

EMPTY: Json = {}
WITHOUT_DRIVER: Json = {"driver": ""}
READY: Json = {"attributes": {"ready": {"bool": True}}}
CORES: Json = {"attributes": {"cores": {"int": 1}}}
MODEL: Json = {"attributes": {"model": {"string": "a100"}}}
FIRMWARE: Json = {"attributes": {"firmware": {"version": "1.0.0"}}}
FLAGS: Json = {"attributes": {"flags": {"bools": [True, False]}}}
IDS: Json = {"attributes": {"ids": {"ints": [1, 2]}}}
MODELS: Json = {"attributes": {"models": {"strings": ["a100", "h200"]}}}
RELEASES: Json = {"attributes": {"releases": {"versions": ["1.0.0", "2.0.0"]}}}
MEMORY: Json = {"capacity": {"memory": {"value": "1Mi"}}}
ONE_OF_EACH: Json = {
    "attributes": {
        "bool": {"bool": True},
        "int": {"int": 1},
        "string": {"string": "a100"},
        "version": {"version": "1.0.0"},
    },
    "capacity": {"quantity": {"value": "1Mi"}},
}
TEST_OF_EACH = " && ".join(
    [
        f'{CAPACITY}.quantity.isGreaterThan(quantity("1Ki"))',
        f"{ATTRIBUTES}.bool",
        f"{ATTRIBUTES}.int > 0",
        f'{ATTRIBUTES}.string == "a100"',
        f'{ATTRIBUTES}.version.isGreaterThan(semver("0.0.1"))',
        f'{CAPACITY}["quantity"].isGreaterThan(quantity("1Ki"))',
        f'{ATTRIBUTES}["bool"]',
        f'{ATTRIBUTES}["int"] > 0',
        f'{ATTRIBUTES}["string"] == "a100"',
        f'{ATTRIBUTES}["version"].isGreaterThan(semver("0.0.1"))',
    ]
)


def _models(count: int) -> Json:
    return {"attributes": {"models": {"strings": [f"value-{number}" for number in range(count)]}}}


ALL_ENVIRONMENTS = [
    ((1,), "true", EMPTY, True, 0),
    ((2,), "false", EMPTY, False, 0),
    (
        (5,),
        'device.attributes["no-such-domain"].noSuchName.isGreaterThan(quantity("0"))',
        WITHOUT_DRIVER,
        "no such key: noSuchName",
        6,
    ),
    (
        (6,),
        'device.attributes["no-such-domain"]["noSuchName"].isGreaterThan(quantity("0"))',
        WITHOUT_DRIVER,
        "no such key: noSuchName",
        6,
    ),
    ((7,), '"no-such-domain" in device.attributes', EMPTY, False, 3),
    (
        (8,),
        f'"{DRIVER}" in device.attributes',
        WITHOUT_DRIVER | {"attributes": {f"{DRIVER}/ready": {"bool": True}}},
        True,
        3,
    ),
    ((9,), 'device.driver == ""', WITHOUT_DRIVER, True, 2),
    ((10,), f'device.driver == "{DRIVER}"', EMPTY, True, 4),
    ((11, 15), f"{ATTRIBUTES}.ready", READY, True, 4),
    ((12,), f'{ATTRIBUTES}["ready"]', READY, True, 4),
    ((13,), f"cel.bind(mine, {ATTRIBUTES}, mine.ready)", READY, True, 15),
    (
        (14,),
        'device.attributes["other.example.com"].ready',
        {"attributes": {"other.example.com/ready": {"bool": True}}},
        True,
        4,
    ),
    ((16,), f"{ATTRIBUTES}.cores > 0", CORES, True, 5),
    ((17,), f'{ATTRIBUTES}.model == "a100"', MODEL, True, 5),
    (
        (21,),
        f"{ATTRIBUTES}.models",
        MODELS,
        "CEL result of type list could not be converted to bool: type conversion error from list to 'bool'",
        4,
    ),
    ((23,), f"{ATTRIBUTES}.flags.size() == 2", FLAGS, True, 6),
    ((24,), f"{ATTRIBUTES}.ids.size() == 2", IDS, True, 6),
    ((25,), f"{ATTRIBUTES}.models.size() == 2", MODELS, True, 6),
    ((26,), f"{ATTRIBUTES}.releases.size() == 2", RELEASES, True, 6),
    ((50,), f"1 in {ATTRIBUTES}.ids", {"attributes": {"ids": {"ints": [1, 2, 3]}}}, True, 4 + 64),
    ((51,), f'{ATTRIBUTES}.firmware.isGreaterThan(semver("0.0.1"))', FIRMWARE, True, 6),
    (
        (52,),
        f'{ATTRIBUTES}.firmware.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)',
        FIRMWARE,
        True,
        7,
    ),
    ((54,), f'{CAPACITY}.memory.isGreaterThan(quantity("1Ki"))', MEMORY, True, 6),
    ((55,), f'"memory" in {CAPACITY} && {CAPACITY}.memory.isGreaterThan(quantity("1Ki"))', MEMORY, True, 10),
    (
        (56,),
        f'!("memory" in {CAPACITY}) || {CAPACITY}.memory.isGreaterThan(quantity("1Ki"))',
        WITHOUT_DRIVER,
        True,
        11,
    ),
    ((57,), TEST_OF_EACH, ONE_OF_EACH, True, 52),
    (
        (58,),
        f"{ATTRIBUTES}.a && {ATTRIBUTES}.b && {ATTRIBUTES}.c",
        {"attributes": {"a": {"bool": True}, "b": {"bool": True}, "c": {"bool": True}}},
        True,
        12,
    ),
    ((59,), f'device.attributes.exists_one(domain, domain == "{DRIVER}")', MODEL, True, 164),
    ((60,), f'{ATTRIBUTES}.exists_one(name, name == "model")', MODEL, True, 133),
    (
        (61,),
        f'{ATTRIBUTES}.model.split("without").size() >= 2',
        {"attributes": {"model": {"string": "a100 without ecc"}}},
        True,
        19,
    ),
    ((62,), f'{ATTRIBUTES}.model.matches("[^b]?100")', MODEL, True, 18),
    ((63,), f'device.capacity.exists_one(domain, domain == "{DRIVER}")', MEMORY, True, 164),
    ((64,), f'{CAPACITY}.exists_one(name, name == "memory")', MEMORY, True, 133),
]
"""Numbers, selector, device, result or error text, estimate: the same in every environment."""

LISTS_ITERATED = [
    ((18,), "cores", "exists(x, x > 0)", CORES, "got 'types.Int', expected iterable type", 5 + 6 * 64),
    ((19,), "ready", "exists(x, x == true)", READY, "got 'types.Bool', expected iterable type", 5 + 6 * 64),
    ((20,), "model", 'exists(x, x == "a100")', MODEL, "got 'types.String', expected iterable type", 5 + 6 * 64),
    ((27,), "ids", "exists(x, x > 0)", IDS, True, 5 + 6 * 64),
    ((28,), "models", 'all(x, x != "")', MODELS, True, 5 + 4 * 64),
    ((29,), "releases", 'all(x, x.isGreaterThan(semver("0.0.1")))', RELEASES, True, 5 + 6 * 64),
    (
        (53,),
        "firmware",
        'exists(x, x.isGreaterThan(semver("0.0.1")))',
        FIRMWARE,
        "got 'cel.Semver', expected iterable type",
        5 + 7 * 64,
    ),
]
"""Numbers, attribute, macro, device, result or error text, estimate."""

INCLUDES = [
    ((22, 42), "models", '"a100"', MODELS, True, 4 + 64),
    ((30, 31, 40), "model", '"a100"', MODEL, True, 4 + 64),
    ((32,), "ready", "true", READY, True, 4 + 64),
    ((33,), "ready", "true", {"attributes": {"ready": {"bool": False}}}, False, 4 + 64),
    ((34,), "flags", "true", FLAGS, True, 4 + 64),
    ((35,), "flags", "false", {"attributes": {"flags": {"bools": [True, True]}}}, False, 4 + 64),
    ((36,), "cores", "1", CORES, True, 4 + 64),
    ((37,), "cores", "1", {"attributes": {"cores": {"int": 2}}}, False, 4 + 64),
    ((38,), "ids", "1", IDS, True, 4 + 64),
    ((39,), "ids", "3", IDS, False, 4 + 64),
    ((41,), "model", '"h200"', MODEL, False, 4 + 64),
    ((43,), "models", '"b200"', MODELS, False, 4 + 64),
    ((44,), "firmware", 'semver("1.0.0")', FIRMWARE, True, 5 + 64),
    ((45,), "firmware", 'semver("2.0.0")', FIRMWARE, False, 5 + 64),
    ((46,), "releases", 'semver("1.0.0")', RELEASES, True, 5 + 64),
    ((47,), "releases", 'semver("3.0.0")', RELEASES, False, 5 + 64),
    ((48,), "models", '"value-48"', _models(48), False, 4 + 64),
    ((49,), "models", '"value-49"', _models(49), False, 4 + 64),
]
"""Numbers, attribute, value, device, result, estimate."""

MULTIPLE_ALLOCATIONS = [
    ((66,), "true", {"allowMultipleAllocations": True}, True),
    ((67, 71), "false", EMPTY, True),
    ((68, 69, 70), "false", {"allowMultipleAllocations": False}, True),
]
"""Numbers, the value that `allowMultipleAllocations` is compared with, device, result."""


def _numbers(rows: Any) -> list[int]:
    return [number for row in rows for number in row[0]]


def _ids(rows: Any) -> list[str]:
    return ["-".join(map(str, row[0])) for row in rows]


def _environments(**restriction: bool) -> Iterator[tuple[Json, Environment]]:
    """The environments for stored and new expressions with each gate off and on, restricted by `restriction`."""
    for number in range(8):
        settings = {
            "stored": not number & 4,
            "list_type_attributes": bool(number & 1),
            "consumable_capacity": bool(number & 2),
        }
        if restriction.items() <= settings.items():
            yield settings, device_environment(**settings)


def _assert_result(expression: str, fields: Json, expected: bool | str, estimate: int, **restriction: bool) -> None:
    api = {"name": "device-0"} | fields
    view = DeviceView.of(api.pop("driver", DRIVER), from_dict(Device, api))
    for settings, environment in _environments(**restriction):
        selector = compile_selector(expression, environment)
        answer: bool | str
        try:
            answer, cost = selector.evaluate_device(view)
        except CelEvalError as error:
            answer, cost = str(error), error.cost
        assert (settings, answer, selector.max_cost) == (settings, expected, estimate)
        assert cost <= estimate, settings


def _assert_refused(expression: str, text: str, **restriction: bool) -> None:
    for settings, environment in _environments(**restriction):
        with pytest.raises(CelCompileError) as refused:
            compile_selector(expression, environment)
        assert (settings, str(refused.value)) == (settings, text)


def _issue(expression: str, position: int, text: str) -> str:
    return f"compilation failed: ERROR: <input>:1:{position + 1}: {text}\n | {expression}\n | {'.' * position}^"


@scenario(*_numbers(ALL_ENVIRONMENTS))
@pytest.mark.parametrize(
    ("numbers", "expression", "fields", "expected", "estimate"), ALL_ENVIRONMENTS, ids=_ids(ALL_ENVIRONMENTS)
)
def test_selector_has_same_result_in_every_environment(
    numbers: tuple[int, ...], expression: str, fields: Json, expected: bool | str, estimate: int
) -> None:
    _assert_result(expression, fields, expected, estimate)


@scenario(3)
def test_syntax_error_names_its_position_in_every_environment() -> None:
    for _, environment in _environments():
        with pytest.raises(CelCompileError, match=r"^compilation failed: ERROR: <input>:1:1: Syntax error: "):
            compile_selector("?!", environment)


@scenario(4)
def test_selector_must_evaluate_to_bool() -> None:
    _assert_refused("1", "must evaluate to bool or the unknown type, not int")


@scenario(*_numbers(LISTS_ITERATED))
@pytest.mark.parametrize(
    ("numbers", "attribute", "macro", "fields", "expected", "estimate"), LISTS_ITERATED, ids=_ids(LISTS_ITERATED)
)
def test_new_expression_iterates_attribute_only_with_list_feature(
    numbers: tuple[int, ...], attribute: str, macro: str, fields: Json, expected: bool | str, estimate: int
) -> None:
    expression = f"{ATTRIBUTES}.{attribute}.{macro}"
    _assert_result(expression, fields, expected, estimate, stored=True)
    _assert_result(expression, fields, expected, estimate, list_type_attributes=True)
    text = "expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)"
    refused = _issue(expression, len(ATTRIBUTES), text)
    _assert_refused(expression, refused, stored=False, list_type_attributes=False)


@scenario(*_numbers(INCLUDES))
@pytest.mark.parametrize(
    ("numbers", "attribute", "value", "fields", "expected", "estimate"), INCLUDES, ids=_ids(INCLUDES)
)
def test_new_expression_uses_includes_only_with_list_feature(
    numbers: tuple[int, ...], attribute: str, value: str, fields: Json, expected: bool, estimate: int
) -> None:
    of = f"{ATTRIBUTES}.{attribute}.includes"
    expression = f"{of}({value})"
    _assert_result(expression, fields, expected, estimate, stored=True)
    _assert_result(expression, fields, expected, estimate, list_type_attributes=True)
    refused = _issue(expression, len(of), "undeclared reference to 'includes' (in container '')")
    _assert_refused(expression, refused, stored=False, list_type_attributes=False)


@scenario(*_numbers(MULTIPLE_ALLOCATIONS))
@pytest.mark.parametrize(
    ("numbers", "value", "fields", "expected"), MULTIPLE_ALLOCATIONS, ids=_ids(MULTIPLE_ALLOCATIONS)
)
def test_new_expression_reads_sharing_only_with_capacity_feature(
    numbers: tuple[int, ...], value: str, fields: Json, expected: bool
) -> None:
    expression = f"device.allowMultipleAllocations == {value}"
    _assert_result(expression, fields, expected, 3, stored=True)
    _assert_result(expression, fields, expected, 3, consumable_capacity=True)
    refused = _issue(expression, len("device"), "undefined field 'allowMultipleAllocations'")
    _assert_refused(expression, refused, stored=False, consumable_capacity=False)
