"""The operations of DeviceClass v1beta1 from its reference page, with every parameter and answer."""

import pytest

from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Running, device_class
from tests.dra_scenarios import scenario

PATH = "/apis/resource.k8s.io/v1beta1/deviceclasses"
BETA = device_class("gpu") | {"apiVersion": "resource.k8s.io/v1beta1"}
WRITE = {"fieldManager": "me", "fieldValidation": "Strict", "pretty": "true"}

# operation, method, path, query, content type, body, status code on an empty server, and with the object, answered kind
OPERATIONS = [
    ("get", "GET", "/gpu", {"pretty": "true"}, "", None, 404, 200, "DeviceClass"),
    ("list", "GET", "", {}, "", None, 200, 200, "DeviceClassList"),
    ("list limit", "GET", "", {"limit": "1", "pretty": "true"}, "", None, 200, 200, "DeviceClassList"),
    ("list selectors", "GET", "", {"fieldSelector": "metadata.name=gpu"}, "", None, 200, 200, "DeviceClassList"),
    ("list labels", "GET", "", {"labelSelector": "a!=b"}, "", None, 200, 200, "DeviceClassList"),
    ("list version", "GET", "", {"resourceVersion": "0"}, "", None, 200, 200, "DeviceClassList"),
    (
        "list match",
        "GET",
        "",
        {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
        "",
        None,
        200,
        200,
        "DeviceClassList",
    ),
    ("create", "POST", "", {}, "", BETA, 201, 409, "DeviceClass"),
    ("create options", "POST", "", WRITE | {"dryRun": "All"}, "", BETA, 201, 409, "DeviceClass"),
    ("update", "PUT", "/gpu", {}, "", BETA, 404, 200, "DeviceClass"),
    ("update options", "PUT", "/gpu", WRITE | {"dryRun": "All"}, "", BETA, 404, 200, "DeviceClass"),
    ("patch", "PATCH", "/gpu", {}, MERGE, {"metadata": {"labels": {"a": "b"}}}, 404, 200, "DeviceClass"),
    ("patch options", "PATCH", "/gpu", WRITE | {"dryRun": "All"}, MERGE, {}, 404, 200, "DeviceClass"),
    ("patch force", "PATCH", "/gpu", WRITE | {"force": "true"}, APPLY, BETA, 201, 200, "DeviceClass"),
    ("delete", "DELETE", "/gpu", {}, "", None, 404, 200, "DeviceClass"),
    (
        "delete options",
        "DELETE",
        "/gpu",
        {"dryRun": "All", "gracePeriodSeconds": "0", "propagationPolicy": "Background", "pretty": "true"},
        "",
        None,
        404,
        200,
        "DeviceClass",
    ),
    ("delete body", "DELETE", "/gpu", {}, "", {"kind": "DeleteOptions", "apiVersion": "v1"}, 404, 200, "DeviceClass"),
    ("deletecollection", "DELETE", "", {}, "", None, 200, 200, "DeviceClassList"),
    (
        "deletecollection options",
        "DELETE",
        "",
        {"dryRun": "All", "labelSelector": "a!=b", "propagationPolicy": "Background"},
        "",
        None,
        200,
        200,
        "DeviceClassList",
    ),
]


@scenario(195)
@pytest.mark.parametrize("exists", [False, True], ids=["empty server", "existing object"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation[0])
def test_operation_returns_documented_status_and_kind(
    api: Http, operation: tuple[str, str, str, dict[str, str], str, object, int, int, str], exists: bool
) -> None:
    """Status code and kind of the answer; every answer warns that the version is deprecated."""
    _, method, path, query, content, body, without, with_object, kind = operation
    if exists:
        api.ok("POST", PATH, BETA)
    answer = api.send(method, PATH + path, body, content=content or "application/json", **query)
    code = with_object if exists else without
    assert answer.status == code, answer.text
    assert answer.body["kind"] == (kind if code < 300 else "Status")
    assert answer.text.startswith("{\n") == (query.get("pretty") == "true")
    assert answer.warnings == [
        '299 - "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+"'
    ]
    found = api.send("GET", PATH + "/gpu").status == 200
    writes = method in ("POST", "PATCH") and code == 201
    deletes = method == "DELETE" and exists
    is_dry = "dryRun" in query
    assert found == (exists if is_dry or not (writes or deletes) else writes)


def test_watch_sends_initial_objects_and_ends_at_timeout(api: Http) -> None:
    """The list operation with watch: initial objects, then changes; it ends at its timeout."""
    api.ok("POST", PATH, BETA)
    with api.watch(PATH, timeoutSeconds="1", allowWatchBookmarks="true") as events:
        found = list(events)
    assert [(event["type"], event["object"]["apiVersion"]) for event in found] == [
        ("ADDED", "resource.k8s.io/v1beta1"),
        ("BOOKMARK", "resource.k8s.io/v1beta1"),
    ]


def test_request_with_wrong_token_is_unauthorized(api: Http, server: Running) -> None:
    """401 for every operation, with a Status."""
    with server.http("wrong") as stranger:
        for _, method, path, query, content, body, *_ in OPERATIONS:
            answer = stranger.send(method, PATH + path, body, content=content or "application/json", **query)
            assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")
        assert stranger.send("GET", "/readyz").text == "ok"


def test_suitable_nodes_field_is_stored(api: Http) -> None:
    """The server stores and returns the field that the page documents."""
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    nodes = {"nodeSelectorTerms": [term]}
    made = api.ok("POST", PATH, BETA | {"spec": {"suitableNodes": nodes}})
    assert made["spec"] == {"suitableNodes": nodes}
