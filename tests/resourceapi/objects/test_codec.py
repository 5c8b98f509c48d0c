"""Decoding and encoding: kept fields, refusals and their paths, and lossless round trips."""

import copy
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from resourceapi.objects import (
    DecodeError,
    ObjectMeta,
    Quantity,
    decode,
    decode_with_problems,
    encode,
    from_dict,
    parse_json,
    read_as,
    read_object,
    read_objects,
    read_with_problems,
    to_dict,
    v1,
    without_unknown,
    write_object,
)
from tests.resourceapi.objects import samples

WRONG_VALUES: list[Any] = [{"x": []}, [{"x": 1}], [[1]], "text\0", -(2**70), 1.5, True, float("inf"), b"bytes", {1: 2}]


@pytest.mark.parametrize("sample", samples.ALL.values(), ids=samples.ALL)
def test_sample_is_read_and_written_without_loss(sample: dict[str, Any]) -> None:
    before = copy.deepcopy(sample)
    obj = read_object(sample)
    written = write_object(obj)
    assert sample == before
    assert read_object(written) == obj
    assert _without_empty(written) == _without_empty(sample)
    assert decode(encode(obj)) == obj


def test_fields_are_omitted_or_written_like_go() -> None:
    claim = v1.ResourceClaim(metadata=ObjectMeta(name="x"))
    assert write_object(claim) == {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": "x"},
        "spec": {"devices": {"requests": None}},
        "status": {},
    }
    device = v1.Device(name="d", all_nodes=False, attributes={"b": v1.DeviceAttribute(int_value=0)}, capacity={})
    assert to_dict(device) == {"name": "d", "attributes": {"b": {"int": 0}}, "allNodes": False}
    assert list(
        to_dict(v1.CapacityRequirements(requests={"b": Quantity.of(1), "a": Quantity.of(2000)}))["requests"]
    ) == [
        "a",
        "b",
    ]
    policy = from_dict(v1.CapacityRequestPolicy, {})
    assert to_dict(policy) == {"default": None}


def test_null_field_is_read_as_absent() -> None:
    spec = {"driver": None, "pool": None, "devices": [None, {"name": "d", "attributes": {"a": None}, "capacity": None}]}
    read = from_dict(v1.ResourceSliceSpec, spec)
    assert read.driver == ""
    assert read.devices[0] == v1.Device()
    assert read.devices[1].attributes == {"a": v1.DeviceAttribute()}


def test_free_form_value_keeps_nulls() -> None:
    parameters = {"a": None, "b": [1, None, {"c": 1.5}], "d": 2**70}
    opaque = from_dict(v1.OpaqueDeviceConfiguration, {"driver": "d", "parameters": parameters})
    assert to_dict(opaque)["parameters"] == parameters


def test_empty_attribute_list_differs_from_absent_list() -> None:
    assert from_dict(v1.DeviceAttribute, {"strings": []}).string_values == ()
    assert from_dict(v1.DeviceAttribute, {}).string_values is None


def test_quantity_is_read_from_text_or_number() -> None:
    counter = {"value": 1}
    assert from_dict(v1.Counter, counter).value == Quantity.parse("1")
    assert from_dict(v1.Counter, {"value": 1.5}).value == Quantity.parse("1500m")
    assert from_dict(v1.Counter, {"value": " 1Gi "}).value == Quantity.parse("1Gi")
    assert from_dict(v1.Counter, {"value": None}).value == Quantity.of(0)
    assert to_dict(from_dict(v1.Counter, {"value": "1024Mi"})) == {"value": "1Gi"}


def test_time_is_written_in_utc_without_fraction() -> None:
    taint = from_dict(v1.DeviceTaint, {"key": "k", "effect": "x", "timeAdded": "2026-01-02T03:04:05.678+02:00"})
    assert taint.time_added == datetime(2026, 1, 2, 1, 4, 5, 678000, tzinfo=UTC)
    assert to_dict(taint)["timeAdded"] == "2026-01-02T01:04:05Z"
    early = from_dict(v1.DeviceTaint, {"timeAdded": "0001-01-01T00:00:00Z"})
    assert to_dict(early)["timeAdded"] == "0001-01-01T00:00:00Z"
    naive = from_dict(v1.DeviceTaint, {"timeAdded": datetime(2026, 1, 2)})
    assert to_dict(naive)["timeAdded"] == "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2026-01-02", 'cannot parse "" as "T"'),
        ("2026-01-01T00:00:00", 'cannot parse "" as "Z07:00"'),
        ("2026-01-01t00:00:00Z", 'cannot parse "t00:00:00Z" as "T"'),
        ("now", 'cannot parse "now" as "2006"'),
        ("2026-1-01T00:00:00Z", 'cannot parse "1-01T00:00:00Z" as "01"'),
        ("2026-01-01T00:00:00Zulu", 'extra text: "ulu"'),
        ("2026-02-30T00:00:00Z", ": out of range"),
        ("2026-01-01T25:00:00Z", ": out of range"),
    ],
)
def test_malformed_time_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(DecodeError) as raised:
        samples.build_object(samples.NODE, "metadata.creationTimestamp", text)
    assert raised.value.path == "metadata.creationTimestamp"
    assert raised.value.reason.startswith(f'parsing time "{text}"')
    assert raised.value.reason.endswith(complaint)


@pytest.mark.parametrize("sample", samples.ALL.values(), ids=samples.ALL)
def test_unknown_members_are_kept_and_reported(sample: dict[str, Any]) -> None:
    with_unknown = _with_unknown(sample)
    decoded = read_with_problems(with_unknown)
    assert _without_empty(write_object(decoded.object)) == _without_empty(with_unknown)
    assert 'unknown field "notThere"' in decoded.problems
    assert 'unknown field "metadata.notThere"' in decoded.problems
    assert len(decoded.problems) > 2
    assert without_unknown(decoded.object) == read_object(sample)


def test_unknown_and_duplicate_fields_are_reported_in_document_order() -> None:
    data = b"""{"kind": "ResourceSlice", "z": 1, "metadata": {"name": "a", "labels": {"x": "1", "x": "2"}, "name": "b"},
        "spec": {"devices": [{"name": "d"}, {"attributes": {"m": {"nope": 1, "nope": 2}}, "name": null}], "driver": "d",
        "driver": "e", "taints": {"a": 1, "a": 2}}, "z": 2, "kind": "ResourceSlice",
        "apiVersion": "resource.k8s.io/v1"}"""
    decoded = decode_with_problems(data)
    assert decoded.problems == (
        'unknown field "z"',
        'duplicate field "metadata.labels.x"',
        'duplicate field "metadata.name"',
        'unknown field "spec.devices[1].attributes.m.nope"',
        'duplicate field "spec.devices[1].attributes.m.nope"',
        'duplicate field "spec.driver"',
        'unknown field "spec.taints"',
        'duplicate field "z"',
        'duplicate field "kind"',
    )
    assert decoded.object == decode(data)
    assert decoded.object.metadata.name == "b"


def test_duplicate_keys_in_free_form_value_are_not_reported() -> None:
    data = b"""{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": 1, "a": {"b": 1, "b": 2}}}}]}}"""
    assert decode_with_problems(data).problems == ()
    with pytest.raises(DecodeError, match="malformed"):
        decode_with_problems(data.replace(b"1", b"NaN"))


def test_unknown_member_can_be_named_like_internal_attribute() -> None:
    sample = samples.changed(samples.NODE, "unknownFields", {"a": 1})
    assert write_object(read_object(sample))["unknownFields"] == {"a": 1}


def test_invalid_quantity_is_reported_before_earlier_type_error() -> None:
    device = {"name": 1, "capacity": {"a": {"value": True}, "b": {"value": "many"}}, "taints": [{"effect": 2}]}
    with pytest.raises(DecodeError, match=r"^spec\.devices\[0\]\.capacity\[a\]\.value: quantities must match"):
        from_dict(v1.ResourceSlice, {"spec": {"driver": 1, "devices": [device]}})
    device["capacity"] = {"c": 1}
    with pytest.raises(DecodeError, match=r"^spec\.driver: .* ResourceSliceSpec\.spec\.driver of type string"):
        from_dict(v1.ResourceSlice, {"spec": {"driver": 1, "devices": [device]}})


@pytest.mark.parametrize(
    ("spec", "go_type"),
    [
        ({"devices": [{"taints": [{"effect": 1}]}]}, "v1.DeviceTaintEffect"),
        ({"skipNodeOperations": ["*", 1]}, "v1.SkipNodeOperation"),
        ({"skipNodeOperations": 1}, "[]v1.SkipNodeOperation"),
        ({"partitionTypeAttribute": 1}, "v1.FullyQualifiedName"),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"operator": 1}]}]}},
            "v1.NodeSelectorOperator",
        ),
    ],
)
def test_type_error_names_go_type_of_string(spec: dict[str, Any], go_type: str) -> None:
    with pytest.raises(DecodeError, match=rf"of type {re.escape(go_type)}$"):
        from_dict(v1.ResourceSlice, {"spec": spec})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "spec",
            "x",
            "spec: json: cannot unmarshal string into Go struct field ResourceSlice.spec of type v1.ResourceSliceSpec",
        ),
        (
            "spec.devices.0.attributes.model.string",
            5,
            "spec.devices[0].attributes[model].string: json: cannot unmarshal number into Go struct field"
            " DeviceAttribute.spec.devices.attributes.string of type string",
        ),
        (
            "spec.devices.0.attributes.healthy.bool",
            "true",
            "spec.devices[0].attributes[healthy].bool: json: cannot unmarshal string into Go struct field"
            " DeviceAttribute.spec.devices.attributes.bool of type bool",
        ),
        (
            "spec.pool.generation",
            2**63,
            "spec.pool.generation: json: cannot unmarshal number 9223372036854775808 into Go struct field"
            " ResourcePool.spec.pool.generation of type int64",
        ),
        (
            "spec.devices.0.bindingConditions",
            {},
            "spec.devices[0].bindingConditions: json: cannot unmarshal object into Go struct field"
            " Device.spec.devices.bindingConditions of type []string",
        ),
        (
            "spec.devices.0.capacity.memory.value",
            "many",
            "spec.devices[0].capacity[memory].value: quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("spec.devices.0.taints.0.timeAdded", 5, None),
        ("metadata.labels", ["a"], None),
        ("metadata.labels", {"a": "\ud800"}, None),
        ("metadata.labels", {"\ud800": "a"}, None),
        ("notThere", {"a": "\ud800"}, None),
    ],
)
def test_first_type_error_is_reported_with_its_path(path: str, value: Any, message: str | None) -> None:
    with pytest.raises(DecodeError) as raised:
        samples.build_object(samples.SLICE, path, value)
    assert raised.value.path
    if message is not None:
        assert str(raised.value) == message


def _paths(value: Any, path: str = "") -> list[str]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if "." not in str(key):
            found += _paths(item, f"{path}.{key}" if path else str(key))
    return found


FIELDS = [
    pytest.param(sample, path, id=f"{name}-{path}") for name, sample in samples.ALL.items() for path in _paths(sample)
]


@pytest.mark.parametrize(("sample", "path"), FIELDS)
def test_malformed_field_is_refused_with_path_or_round_trips(sample: dict[str, Any], path: str) -> None:
    for wrong in WRONG_VALUES:
        try:
            obj = samples.build_object(sample, path, wrong)
        except DecodeError as error:
            refusal = error
        else:
            encoded = msgspec.json.encode(write_object(obj))
            assert write_object(decode(encoded)) == parse_json(encoded)
            continue
        assert refusal.reason
        if path != "apiVersion":  # a wrong apiVersion makes the kind unknown
            assert refusal.path.startswith(path.split(".")[0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "\xff"}}', "(?i)utf-8"),
        (b'{"apiVersion": "v1", "kind": "Node", "spec": NaN}', "malformed"),
        (b'{"apiVersion": "v1", "kind": "Node", "status": {"capacity": {"cpu": 1e999}}}', "out of range"),
        (b'{"apiVersion": "v1", "kind": "Node", "spec": ' + b'{"a":' * 100_000, "exceeded max depth"),
        (b"[" * 1_000_000, "exceeded max depth"),
        (b"[]", "apiVersion and kind"),
        (b"null", "apiVersion and kind"),
        (b"{}", "apiVersion: Object 'apiVersion' is missing"),
        (b'{"apiVersion": "v1"}', "kind: Object 'Kind' is missing"),
        (b'{"apiVersion": "v1", "kind": 5}', "kind: Object 'Kind' is missing"),
        (b'{"apiVersion": "v9", "kind": "Node"}', 'no kind "Node" is registered for version "v9"'),
        (b'{"apiVersion": "v1", "kind": "Node", "metadata": {"generation": 1' + b"0" * 4000 + b"}}", "of type int64"),
    ],
)
def test_malformed_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode(data)


def test_free_form_value_over_depth_limit_is_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(DecodeError, match="max depth"):
        from_dict(v1.OpaqueDeviceConfiguration, {"driver": "d", "parameters": deep})
    while isinstance(deep, dict):  # otherwise its deallocation would overflow the interpreter's stack
        deep = deep["a"]


def test_object_of_known_kind_needs_no_kind_field() -> None:
    assert read_as(v1.DeviceClass, {"metadata": {"name": "x"}}).metadata.name == "x"
    assert read_as(v1.ResourceClaim, samples.CLAIM | {"apiVersion": "resource.k8s.io/v1beta2"}).metadata.name == "claim"
    with pytest.raises(DecodeError, match="expected a DeviceClass, got a Node"):
        read_as(v1.DeviceClass, samples.NODE)
    with pytest.raises(DecodeError, match=r"cannot unmarshal array into Go value of type v1\.DeviceClass"):
        read_as(v1.DeviceClass, [])


def test_list_items_are_read_and_errors_name_their_index() -> None:
    mixed = {"apiVersion": "v1", "kind": "List", "items": [samples.NODE, samples.SLICE]}
    assert [obj.KIND for obj in read_objects(mixed)] == ["Node", "ResourceSlice"]
    without_type = {name: value for name, value in samples.NODE.items() if name not in ("apiVersion", "kind")}
    nodes = {"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [without_type]}
    assert [obj.KIND for obj in read_objects(nodes)] == ["Node"]
    assert [obj.KIND for obj in read_objects(samples.POD)] == ["Pod"]
    bad = {"apiVersion": "v1", "kind": "NodeList", "items": [without_type, {"spec": 1}]}
    with pytest.raises(DecodeError, match=r"items\[1\]\.spec"):
        list(read_objects(bad))
    with pytest.raises(DecodeError, match=r"items\[0\]: "):
        list(read_objects({"apiVersion": "v1", "kind": "List", "items": [5]}))


def _without_empty(value: Any) -> Any:
    """A value without members whose absence means the same."""
    if isinstance(value, dict):
        cleaned = {name: _without_empty(item) for name, item in value.items()}
        return {name: item for name, item in cleaned.items() if item not in (None, "", [], {}, 0) or item is False}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


_MAPS = {"labels", "attributes", "capacity", "counters", "requests", "limits", "consumedCapacity", "parameters", "data"}


def _with_unknown(value: Any, name: str = "") -> Any:
    """A value with an unknown member in each of its objects."""
    if isinstance(value, list):
        return [_with_unknown(item) for item in value]
    if not isinstance(value, dict):
        return value
    extended = {key: _with_unknown(item, key) for key, item in value.items()}
    is_map = name in _MAPS or name == "nodeAllocatableResources"
    return (
        extended if is_map and not isinstance(value.get("name"), str) else extended | {"notThere": {"deep": [None, 1]}}
    )
