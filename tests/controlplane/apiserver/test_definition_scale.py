"""The scale of custom resources, as a real API server (1.37.1) answered."""

from typing import Any

import pytest

from controlplane.apiserver.protobuf import MEDIA_TYPE as PROTOBUF
from tests.controlplane.apiserver.running import MERGE, Http
from tests.controlplane.apiserver.test_definitions import DEFINITIONS, DRIVERS, TABLE, definition, driver

JSON_PATCH = "application/json-patch+json"
SIZE = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}}
SCALE = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.pods"}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
OF_A = f"{DRIVERS}/a/scale"


@pytest.fixture
def sized(api: Http) -> Http:
    """A server that has a resource of size 3."""
    made = definition()
    (version,) = made["spec"]["versions"]
    version["subresources"]["scale"] = SCALE
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": SIZE, "status": OPEN}
    api.ok("POST", DEFINITIONS, made)
    api.ok("POST", DRIVERS, driver("a", {"size": 3}))
    api.ok("PATCH", f"{DRIVERS}/a/status", {"status": {"size": 2, "pods": "x=y"}}, content=MERGE)
    return api


def test_what_a_scale_says(sized: Http) -> None:
    scale = sized.ok("GET", OF_A)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["metadata"]["uid"] == sized.ok("GET", f"{DRIVERS}/a")["metadata"]["uid"]
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "x=y"})
    (row,) = sized.send("GET", OF_A, accept=TABLE).body["rows"]
    assert row["cells"][:3] == ["a", 3, 2]
    named = {each["name"]: each["kind"] for each in sized.ok("GET", "/apis/example.com/v1alpha1")["resources"]}
    assert named["drivers/scale"] == "Scale"


@pytest.mark.parametrize(
    ("patch", "content"),
    [({"spec": {"replicas": 5}}, MERGE), ([{"op": "replace", "path": "/spec/replicas", "value": 5}], JSON_PATCH)],
)
def test_a_patch_changes_the_object(sized: Http, patch: Any, content: str) -> None:
    assert sized.ok("PATCH", OF_A, patch, content=content)["spec"] == {"replicas": 5}
    changed = sized.ok("GET", f"{DRIVERS}/a")
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"size": 5}, 2)


def test_a_put_is_about_the_version_that_it_names(sized: Http) -> None:
    scale = sized.ok("GET", OF_A)
    scale["spec"]["replicas"] = 4
    assert sized.ok("PUT", OF_A, scale)["spec"] == {"replicas": 4}
    assert sized.send("PUT", OF_A, scale).status == 409


def test_what_is_refused(sized: Http) -> None:
    much = sized.send("PATCH", OF_A, {"spec": {"replicas": 10}}, content=MERGE)
    assert much.message == (
        'Driver.example.com "a" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or'
        " equal to 9"
    )
    less = sized.send("PATCH", OF_A, {"spec": {"replicas": -1}}, content=MERGE)
    assert less.message.endswith(".spec.size: Invalid value: -1: should be a non-negative integer")
    other = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "x"}, "spec": {"replicas": 1}}
    assert sized.send("PUT", f"{DRIVERS}/b/scale", other).message.endswith("(x) does not match the name on the URL (b)")
    faults: list[dict[str, Any]] = [{"spec": 1.5}, {"metadata": [1]}, {"metadata": {"name": {}}}]
    for fault in faults:
        assert sized.send("PUT", OF_A, other | {"metadata": {"name": "a"}} | fault).status == 400
    assert sized.send("GET", f"{DRIVERS}/b/scale", accept=PROTOBUF).status == 406
    assert sized.send("DELETE", OF_A).message == 'delete is not supported on resources of kind "drivers.example.com"'
    assert sized.send("GET", f"{DRIVERS}/b/scale").status == 404
    sized.ok("POST", DRIVERS, driver("none", {}))
    assert sized.send("GET", f"{DRIVERS}/none/scale").message.endswith(
        'the spec replicas field ".spec.size" does not exist'
    )
