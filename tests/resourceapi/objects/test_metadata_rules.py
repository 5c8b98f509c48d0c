"""Rules for metadata, on create and on update."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from resourceapi.objects import from_dict
from resourceapi.objects.errors import ErrorList
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.metadata_rules import metadata_on_create, metadata_on_update, template_metadata
from resourceapi.objects.release import RELEASES, Version

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def create_errors(release: Version = "1.36", **members: Any) -> list[str]:
    errors = ErrorList()
    metadata_on_create(errors, from_dict(ObjectMeta, {"name": "x"} | members), RELEASES[release], namespaced=False)
    return [str(error) for error in errors]


def update_errors(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    errors = ErrorList()
    base = {"name": "x", "uid": "1", "resourceVersion": "1"}
    metadata_on_update(
        errors, from_dict(ObjectMeta, base | after), from_dict(ObjectMeta, base | before), RELEASES["1.36"]
    )
    return [str(error) for error in errors]


def test_name_and_generate_name_are_validated() -> None:
    assert create_errors() == []
    assert create_errors(name="a.b-c.0") == []
    assert create_errors(name="A") == [f'metadata.name: Invalid value: "A": {SUBDOMAIN}']
    assert create_errors(name="a" * 254) == [
        f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 characters',
    ]
    assert create_errors(generateName="gen-") == []
    assert create_errors(generateName="Gen-") == [f'metadata.generateName: Invalid value: "Gen-": {SUBDOMAIN}']
    assert create_errors(generateName="-") == [f'metadata.generateName: Invalid value: "-": {SUBDOMAIN}']


def test_annotation_keys_and_total_size_are_validated() -> None:
    assert create_errors(annotations={"Example.COM/Key": "anything at all \n"}) == []
    assert create_errors(annotations={"a b": ""})[0].startswith(
        'metadata.annotations: Invalid value: "a b": name part must'
    )
    assert create_errors(annotations={"a": "x" * (256 * 1024 - 1)}) == []
    assert create_errors(annotations={"a": "x" * (256 * 1024)}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_owner_references_are_validated() -> None:
    assert create_errors(ownerReferences=[OWNER | {"controller": True}, OWNER | {"uid": "2"}]) == []
    assert create_errors(ownerReferences=[{"apiVersion": "apps/"}]) == [
        'metadata.ownerReferences.apiVersion: Invalid value: "apps/": version must not be empty',
        'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
        'metadata.ownerReferences.name: Invalid value: "": must not be empty',
        'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
    ]
    (two,) = create_errors(ownerReferences=[OWNER | {"controller": True}, OWNER | {"name": "m", "controller": True}])
    assert two.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for Node/n and Node/m'
    )
    (event,) = create_errors(ownerReferences=[OWNER | {"kind": "Event"}])
    assert event.endswith("/v1, Kind=Event is disallowed from being an owner")


def test_finalizers_and_managed_fields_are_validated() -> None:
    assert create_errors(finalizers=["example.com/a", "orphan"]) == []
    assert create_errors(finalizers=["no good"])[0].startswith(
        'metadata.finalizers: Invalid value: "no good": name part'
    )
    assert create_errors(finalizers=["orphan", "foregroundDeletion"]) == [
        'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion'
        " cannot be both set"
    ]
    entry = {"manager": "a\x07", "operation": "Replace", "fieldsType": "FieldsV2", "subresource": "s" * 257}
    assert create_errors(managedFields=[entry, {"manager": "m" * 129, "operation": "Apply"}]) == [
        'metadata.managedFields[0].operation: Invalid value: "Replace": must be `Apply` or `Update`',
        'metadata.managedFields[0].fieldsType: Invalid value: "FieldsV2": must be `FieldsV1`',
        r'metadata.managedFields[0].manager: Invalid value: "a\a": invalid character U+0007 (at position 1)',
        "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
        "metadata.managedFields[1].manager: Too long: may not be more than 128 bytes",
    ]


def test_generation_must_not_be_negative_or_decrease() -> None:
    assert create_errors(generation=-1) == [
        "metadata.generation: Invalid value: -1: must be greater than or equal to 0"
    ]
    assert update_errors({"generation": 3}, {"generation": 2}) == [
        "metadata.generation: Invalid value: 2: must not be decremented"
    ]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("name", "y", '"y"'),
        ("namespace", "y", '"y"'),
        ("uid", "y", '"y"'),
        ("creationTimestamp", "2026-01-02T03:04:05Z", '"2026-01-02T03:04:05Z"'),
        ("deletionTimestamp", "2026-01-02T03:04:05Z", '"2026-01-02T03:04:05Z"'),
        ("deletionGracePeriodSeconds", 5, "5"),
    ],
)
def test_immutable_metadata_field_cannot_be_changed(name: str, value: Any, shown: str) -> None:
    assert update_errors({}, {name: value}) == [f"metadata.{name}: Invalid value: {shown}: field is immutable"]


def test_update_needs_resource_version() -> None:
    assert update_errors({}, {"resourceVersion": ""}) == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update'
    ]


def test_deleting_object_accepts_no_new_finalizers() -> None:
    deleted = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    assert update_errors(deleted | {"finalizers": ["a", "b"]}, deleted | {"finalizers": ["b"]}) == []
    assert update_errors(deleted | {"finalizers": ["a"]}, deleted | {"finalizers": ["a", "c", "b"]}) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new"
        ' finalizers []string{"b", "c"}'
    ]


def test_template_metadata_allows_only_labels_and_annotations() -> None:
    meta = from_dict(ObjectMeta, {"labels": {"a": "b"}, "annotations": {"c": "d"}})
    errors = ErrorList()
    template_metadata(errors, meta, "spec.metadata")
    assert errors == []
    template_metadata(errors, replace(meta, name="x", uid="1", creation_timestamp=datetime.now(UTC)), "m")
    assert [str(error) for error in errors] == [
        "m.name: Forbidden: cannot be set",
        "m.uID: Forbidden: cannot be set",
        "m.creationTimestamp: Forbidden: cannot be set",
    ]
