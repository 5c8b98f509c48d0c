"""The scale subresource of custom resources: the answers of a real API server (1.37.1)."""

from typing import Any

import pytest

from controlplane.apiserver.protobuf import MEDIA_TYPE as PROTOBUF
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, TABLE, definition, driver
from tests.controlplane.apiserver.running import APPLY, MERGE, Http

JSON_PATCH = "application/json-patch+json"
SIZE = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}}
SCALE = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.pods"}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCALE_OF_A = f"{DRIVERS}/a/scale"


@pytest.fixture
def sized(api: Http) -> Http:
    """A server with a resource of size 3."""
    made = definition()
    (version,) = made["spec"]["versions"]
    version["subresources"]["scale"] = SCALE
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": SIZE, "status": OPEN}
    api.ok("POST", DEFINITIONS, made)
    api.ok("POST", DRIVERS, driver("a", {"size": 3}))
    api.ok("PATCH", f"{DRIVERS}/a/status", {"status": {"size": 2, "pods": "x=y"}}, content=MERGE)
    return api


def test_scale_has_replicas_selector_and_uid_of_the_object(sized: Http) -> None:
    scale = sized.ok("GET", SCALE_OF_A)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["metadata"]["uid"] == sized.ok("GET", f"{DRIVERS}/a")["metadata"]["uid"]
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "x=y"})
    (row,) = sized.send("GET", SCALE_OF_A, accept=TABLE).body["rows"]
    assert row["cells"][:3] == ["a", 3, 2]
    named = {each["name"]: each["kind"] for each in sized.ok("GET", "/apis/example.com/v1alpha1")["resources"]}
    assert named["drivers/scale"] == "Scale"


def test_scale_requested_as_a_list_is_refused(sized: Http) -> None:
    """The message names the Go type of the scale."""
    refused = sized.send("GET", SCALE_OF_A, accept="application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList")
    assert refused.message.endswith("but the requested object is not a list (*v1.Scale)")


@pytest.mark.parametrize(
    ("patch", "content"),
    [({"spec": {"replicas": 5}}, MERGE), ([{"op": "replace", "path": "/spec/replicas", "value": 5}], JSON_PATCH)],
)
def test_patch_of_scale_changes_the_object(sized: Http, patch: Any, content: str) -> None:
    assert sized.ok("PATCH", SCALE_OF_A, patch, content=content)["spec"] == {"replicas": 5}
    changed = sized.ok("GET", f"{DRIVERS}/a")
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"size": 5}, 2)


def test_put_of_scale_with_old_resource_version_conflicts(sized: Http) -> None:
    scale = sized.ok("GET", SCALE_OF_A)
    scale["spec"]["replicas"] = 4
    assert sized.ok("PUT", SCALE_OF_A, scale)["spec"] == {"replicas": 4}
    assert sized.send("PUT", SCALE_OF_A, scale).status == 409


def test_invalid_scale_request_is_refused(sized: Http) -> None:
    much = sized.send("PATCH", SCALE_OF_A, {"spec": {"replicas": 10}}, content=MERGE)
    assert much.message == (
        'Driver.example.com "a" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or'
        " equal to 9"
    )
    less = sized.send("PATCH", SCALE_OF_A, {"spec": {"replicas": -1}}, content=MERGE)
    assert less.message.endswith(".spec.size: Invalid value: -1: should be a non-negative integer")
    other = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "x"}, "spec": {"replicas": 1}}
    assert sized.send("PUT", f"{DRIVERS}/b/scale", other).message.endswith("(x) does not match the name on the URL (b)")
    faults: list[dict[str, Any]] = [{"spec": 1.5}, {"metadata": [1]}, {"metadata": {"name": {}}}]
    for fault in faults:
        assert sized.send("PUT", SCALE_OF_A, other | {"metadata": {"name": "a"}} | fault).status == 400
    assert sized.send("GET", f"{DRIVERS}/b/scale", accept=PROTOBUF).status == 406
    assert (
        sized.send("DELETE", SCALE_OF_A).message == 'delete is not supported on resources of kind "drivers.example.com"'
    )
    assert sized.send("GET", f"{DRIVERS}/b/scale").status == 404
    sized.ok("POST", DRIVERS, driver("none", {}))
    assert sized.send("GET", f"{DRIVERS}/none/scale").message.endswith(
        'the spec replicas field ".spec.size" does not exist'
    )


def owners(http: Http, name: str = "a") -> dict[tuple[str, str], Any]:
    """The fields that each manager of a resource owns, by manager name and subresource."""
    entries = http.ok("GET", f"{DRIVERS}/{name}")["metadata"]["managedFields"]
    return {(each["manager"], each.get("subresource", "")): each["fieldsV1"] for each in entries}


def test_manager_that_scales_owns_the_replicas_field(sized: Http) -> None:
    """The owner is recorded for the subresource `scale`. A later write to the object takes the ownership."""
    sized.ok("PATCH", SCALE_OF_A, {"spec": {"replicas": 4}}, content=MERGE, fieldManager="scaler")
    assert owners(sized)["scaler", "scale"] == {"f:spec": {"f:size": {}}}
    sized.ok("PATCH", SCALE_OF_A, {"spec": {"replicas": 4}}, content=MERGE, fieldManager="other")
    assert ("other", "scale") not in owners(sized), "nothing changed"
    sized.ok("PATCH", f"{DRIVERS}/a", {"spec": {"size": 5}}, content=MERGE, fieldManager="writer")
    found = owners(sized)
    assert found["writer", ""] == {"f:spec": {"f:size": {}}}
    assert ("scaler", "scale") not in found


def test_object_without_replicas_can_be_scaled(sized: Http) -> None:
    sized.ok("POST", DRIVERS, driver("none", {}))
    path = f"{DRIVERS}/none/scale"
    refused = sized.send("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    assert (refused.status, refused.message) == (400, 'the spec replicas field ".spec.size" cannot be empty')
    assert sized.ok("PATCH", path, {"spec": {"replicas": 4}}, content=MERGE)["spec"] == {"replicas": 4}
    assert sized.ok("GET", f"{DRIVERS}/none")["spec"] == {"size": 4}


def test_unknown_field_of_scale_warns_or_is_refused_if_strict(sized: Http) -> None:
    patch = {"spec": {"replicas": 4}, "x": 1}
    warnings = ['299 - "unknown field \\"x\\""']
    assert sized.send("PATCH", SCALE_OF_A, patch, content=MERGE).warnings == warnings
    strict = sized.send("PATCH", SCALE_OF_A, patch, content=MERGE, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.message.endswith('strict decoding error: unknown field "x"')
    whole = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}} | patch
    assert sized.send("PUT", SCALE_OF_A, whole).warnings == warnings
    strict = sized.send("PUT", SCALE_OF_A, whole, fieldValidation="Strict")
    assert strict.message == 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        ({"spec": "a"}, "json: cannot unmarshal string into Go struct field Scale.spec of type v1.ScaleSpec"),
        ({"kind": "x"}, 'no kind "x" is registered for version "autoscaling/v1"'),
    ],
)
def test_patch_with_invalid_scale_result_is_refused(sized: Http, patch: Any, text: str) -> None:
    refused = sized.send("PATCH", SCALE_OF_A, patch, content=MERGE)
    assert refused.status == 422
    assert text in refused.message


def test_server_side_apply_of_scale_is_refused(sized: Http) -> None:
    config = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 9}}
    refused = sized.send("PATCH", SCALE_OF_A, config, content=APPLY, fieldManager="m")
    assert refused.status == 500
    assert refused.message.endswith("request to convert CR to an invalid group/version: autoscaling/v1")
    other = sized.send("PATCH", SCALE_OF_A, config | {"kind": "Driver"}, content=APPLY, fieldManager="m")
    assert other.message == "invalid object type: autoscaling/v1, Kind=Driver"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        ("3", ".spec.size: Invalid value: 0: .spec.size accessor error: 3 is of the type string, expected int64"),
        (2**31, ".spec.size: Invalid value: 2147483648: should be less than or equal to 2147483647"),
        (-1, ".spec.size: Invalid value: -1: should be a non-negative integer"),
    ],
)
def test_invalid_replicas_value_is_refused(api: Http, count: Any, text: str) -> None:
    made = definition()
    (version,) = made["spec"]["versions"]
    version["subresources"]["scale"] = SCALE
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": OPEN, "status": OPEN}
    api.ok("POST", DEFINITIONS, made)
    refused = api.send("POST", DRIVERS, driver("a", {"size": count}))
    assert refused.message == f'Driver.example.com "a" is invalid: {text}'
    api.ok("POST", DRIVERS, driver("a", {"size": 1}))
    refused = api.send("PATCH", f"{DRIVERS}/a/status", {"status": {"pods": 2}}, content=MERGE)
    text = '.status.pods: Invalid value: "": .status.pods accessor error: 2 is of the type int64, expected string'
    assert refused.message == f'Driver.example.com "a" is invalid: {text}'
    refused = api.send("POST", DRIVERS, driver("b", 1))
    assert ".spec.size accessor error: 1 is of the type int64, expected map[string]interface{}" in refused.message
