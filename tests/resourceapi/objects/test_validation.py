"""Validation as a whole: recorded answers, valid objects, operations, the Status body."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from resourceapi.objects import KubernetesObject, Quantity, core, read_object, v1
from resourceapi.objects.class_rules import SelectorCheck
from resourceapi.objects.errors import ErrorList, invalid_status, quoted_text
from resourceapi.objects.meta import ObjectMeta
from tests.cases import Case, recorded
from tests.resourceapi.objects import samples
from tests.resourceapi.objects.samples import validate_create, validate_status_update, validate_update

DATA = Path(__file__).parent / "data"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def stored(obj: KubernetesObject) -> KubernetesObject:
    return replace(obj, metadata=replace(obj.metadata, uid="1", resource_version="7", creation_timestamp=NOW))


def messages(errors: ErrorList) -> list[str]:
    return [str(error) for error in errors]


@recorded("rest/cases.json")
def test_recorded_api_server_answers_are_reproduced(case: Case) -> None:
    case.run()


@recorded(*(str(DATA / name) for name in ("validation.jsonl.gz", "validation-1.37.jsonl.gz")))
def test_errors_of_randomly_damaged_objects_equal_upstream(case: Case) -> None:
    """Answers of the code of kube-apiserver 1.36.3 and 1.37.1, recorded for this project.

    The answers exclude CEL syntax errors, whose texts can differ, and dumps that distinguish `{}` from an absent map.
    """
    case.run()


@pytest.mark.parametrize("sample", samples.ALL.values(), ids=samples.ALL)
def test_samples_are_valid_on_create_and_on_unchanged_update(sample: dict[str, Any]) -> None:
    obj = read_object(sample, defaults_at=NOW)
    assert messages(validate_create(obj)) == []
    assert messages(validate_update(stored(obj), stored(obj))) == []
    assert messages(validate_status_update(stored(obj), stored(obj))) == []


def test_invalid_status_lists_one_or_several_causes() -> None:
    claim = samples.build_object(samples.CLAIM, "spec.devices.requests.0.name", "A")
    status = invalid_status(claim, validate_create(claim))
    assert status["code"] == 422
    assert status["message"].startswith(
        'ResourceClaim.resource.k8s.io "claim" is invalid: [spec.devices.requests[0].name:'
    )
    assert status["details"]["causes"][0]["reason"] == "FieldValueInvalid"
    assert status["details"]["causes"][0]["field"] == "spec.devices.requests[0].name"

    errors = ErrorList()
    errors.required("spec.driver")
    errors.required("spec.driver")
    refused = invalid_status(core.Node(), errors)
    assert refused["message"] == 'Node "" is invalid: spec.driver: Required value'
    assert refused["details"] == {
        "kind": "Node",
        "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.driver"}] * 2,
    }


def test_error_messages_format_values_like_upstream() -> None:
    errors = ErrorList()
    values: tuple[Any, ...] = (
        'a"b\n\x01\u00e9\u2028',
        5,
        True,
        None,
        [],
        Quantity.parse("1.5Gi"),
        {"b": 1, "a": "<&>"},
    )
    for value in values:
        errors.invalid("x", value, "")
    errors.not_supported("x", "<\x01>", ["a", "b"])
    errors.duplicate("x", "y")
    errors.not_found("x", "y")
    errors.internal("x", "broken")
    assert [error.message for error in errors] == [
        r'Invalid value: "a\"b\n\x01' + "\u00e9" + r'\u2028"',
        "Invalid value: 5",
        "Invalid value: true",
        "Invalid value: null",
        "Invalid value: []",
        'Invalid value: "1536Mi"',
        'Invalid value: {"b":1,"a":"\\u003c\\u0026\\u003e"}',
        'Unsupported value: "\\u003c\\u0001\\u003e": supported values: "a", "b"',
        'Duplicate value: "y"',
        'Not found: "y"',
        "Internal error: broken",
    ]
    assert quoted_text("\U0001f600\u200b\U000e0001") == '"\U0001f600\\u200b\\U000e0001"'


def test_immutable_claim_spec_error_prints_go_field_names() -> None:
    old = read_object(samples.CLAIM)
    new = samples.build_object(
        samples.CLAIM, "spec", {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": "c"}}]}}
    )
    errors = validate_update(stored(new), stored(old))
    assert messages(errors) == [
        'spec: Invalid value: {"Devices":{"Requests":[{"Name":"x","Exactly":{"DeviceClassName":"c","Selectors":null,'
        '"AllocationMode":"","Count":0,"AdminAccess":null,"Tolerations":null,"Capacity":null},'
        '"FirstAvailable":null}],"Constraints":null,"Config":null}}: field is immutable'
    ]


def test_immutable_claim_spec_error_distinguishes_empty_list_and_null() -> None:
    old = read_object(samples.CLAIM)
    written: list[tuple[dict[str, Any], str]] = [
        ({}, '"Requests":null,"Constraints":null,"Config":null'),
        ({"requests": [], "config": []}, '"Requests":[],"Constraints":null,"Config":[]'),
    ]
    for devices, shown in written:
        for version in ("v1", "v1beta1"):
            sample = samples.changed(samples.CLAIM, "spec.devices", devices) | {
                "apiVersion": f"resource.k8s.io/{version}"
            }
            errors = validate_update(stored(read_object(sample, defaults_at=NOW)), stored(old))
            assert messages(errors) == [f'spec: Invalid value: {{"Devices":{{{shown}}}}}: field is immutable']
    assert samples.build_object(samples.CLAIM, "spec.devices", {"requests": []}) == samples.build_object(
        samples.CLAIM, "spec.devices", {}
    )


def test_template_spec_is_immutable() -> None:
    old = read_object(samples.TEMPLATE)
    new = samples.build_object(samples.TEMPLATE, "spec.metadata.labels.from", "elsewhere")
    (error,) = validate_update(stored(new), stored(old))
    assert error.path == "spec"
    assert error.message.startswith('Invalid value: {"labels":{"from":"elsewhere"},"Spec":{"Devices":')
    assert error.message.endswith("field is immutable")


def test_name_is_required_and_namespace_depends_on_scope() -> None:
    assert messages(validate_create(v1.DeviceClass())) == [
        "metadata.name: Required value: name or generateName is required"
    ]
    claim = v1.ResourceClaim(metadata=ObjectMeta(name="x"))
    assert messages(validate_create(claim)) == ["metadata.namespace: Required value"]
    node = core.Node(metadata=ObjectMeta(name="x", namespace="default"))
    assert messages(validate_create(node)) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_admin_access_needs_label_on_namespace() -> None:
    text = (
        "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the"
        " containing namespace"
    )
    claim = samples.build_object(samples.CLAIM, "spec.devices.requests.0.exactly.adminAccess", True)
    assert messages(validate_create(claim)) == []
    assert messages(validate_create(claim, admin_access_allowed=False)) == [
        f"spec.devices.requests[0].adminAccess: {text}"
    ]
    template = samples.build_object(samples.TEMPLATE, "spec.spec.devices.requests.0.exactly.adminAccess", True)
    assert messages(validate_create(template, admin_access_allowed=False)) == [
        f"spec.devices.requests[0].adminAccess: {text}"
    ]
    without = stored(samples.build_object(samples.CLAIM, "status", {}))
    allocated = stored(samples.build_object(samples.CLAIM, "status.allocation.devices.results.0.adminAccess", True))
    assert messages(validate_status_update(allocated, without, admin_access_allowed=False)) == [
        f"status.allocation.devices.results[0].adminAccess: {text}"
    ]
    assert messages(validate_status_update(allocated, allocated, admin_access_allowed=False)) == []


def test_selector_check_distinguishes_new_and_stored_expressions() -> None:
    checked = []

    def check(expression: str, is_stored: bool) -> SelectorCheck:
        checked.append((expression, is_stored))
        return verdicts[expression]

    verdicts = {"a": SelectorCheck(error="no"), "b": SelectorCheck(cost=1_000_001), "c": SelectorCheck(cost=1_000_000)}
    verdicts["d"] = SelectorCheck(error="trouble", is_internal=True)
    spec = v1.DeviceClassSpec(
        selectors=tuple(v1.DeviceSelector(cel=v1.CELDeviceSelector(expression=expression)) for expression in "abcd")
    )
    obj = v1.DeviceClass(metadata=ObjectMeta(name="x"), spec=spec)
    path = "spec.selectors[{}].cel.expression"
    expected = [
        path.format(0) + ': Invalid value: "a": no',
        path.format(1) + ": Forbidden: too complex, exceeds cost limit",
        path.format(3) + ": Internal error: trouble",
    ]
    assert messages(validate_create(obj, check_selector=check)) == expected
    assert messages(validate_update(stored(obj), stored(obj), check_selector=check)) == expected
    assert checked == [(name, False) for name in "abcd"] + [(name, True) for name in "abcd"]


@pytest.mark.parametrize("sample", samples.ALL.values(), ids=samples.ALL)
def test_validation_of_extreme_values_raises_no_exception(sample: dict[str, Any]) -> None:
    """Every text is replaced by unusual ones and every number by extreme ones: errors, but no exception."""
    for odd in ("", " ", "\0", "A/b/c", "\u00e9" * 300, "a" * 100_000, "-", "."):
        _check_all(_replaced(sample, str, odd))
    for extreme in (0, -1, 2**63 - 1, -(2**63)):
        _check_all(_replaced(sample, int, extreme))


def _check_all(value: Any) -> None:
    try:
        obj = read_object(value)
    except ValueError:
        return
    for errors in (validate_create(obj), validate_update(obj, obj), validate_status_update(obj, obj)):
        invalid_status(obj, errors)


def _replaced(value: Any, kind: type, odd: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, kind, odd, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, kind, odd) for item in value]
    keep = name in ("apiVersion", "kind") or name.startswith(("time", "lastTransition", "allocationTime"))
    return odd if type(value) is kind and not keep else value
