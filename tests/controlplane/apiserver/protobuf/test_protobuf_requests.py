"""Requests as client-go sends them: protobuf in bodies, answers, lists, watches and refusals."""

from typing import Any

import pytest

from controlplane.apiserver.protobuf import MEDIA_TYPE, decode, encode
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition, driver
from tests.controlplane.apiserver.running import APPLY, CLASSES, MERGE, Answer, Http, Running, device_class

GO = f"{MEDIA_TYPE},application/json"  # the Accept header of client-go
ONLY = MEDIA_TYPE
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
PARTIAL = f"{MEDIA_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def type_of(answer: Answer) -> str:
    return dict(answer.headers)["content-type"]


def body_of(answer: Answer, *, code: int = 200) -> dict[str, Any]:
    """The object in a protobuf answer."""
    assert (answer.status, type_of(answer)) == (code, MEDIA_TYPE), answer
    return decode(answer.data, "", "")


def send(api: Http, method: str, path: str, body: dict[str, Any] | None = None, **options: str) -> Answer:
    """Send a request whose body and answer are protobuf."""
    options = {"content": MEDIA_TYPE, "accept": GO} | options
    return api.send(method, path, None if body is None else encode(body), **options)


def test_object_is_created_updated_and_deleted_in_protobuf(api: Http) -> None:
    """Create, read, replace, patch and delete; each answer agrees with JSON."""
    created = body_of(send(api, "POST", CLASSES, device_class()), code=201)
    assert created["spec"] == device_class()["spec"]
    assert created == api.ok("GET", f"{CLASSES}/gpu")
    assert body_of(send(api, "GET", f"{CLASSES}/gpu", accept=ONLY)) == created
    for version in ("v1beta1", "v1beta2"):
        path = CLASSES.replace("v1", version)
        older = body_of(send(api, "GET", f"{path}/gpu"))
        assert older == api.ok("GET", f"{path}/gpu")
        assert older["apiVersion"] == f"resource.k8s.io/{version}"
    created["metadata"]["labels"] = {"b": "2", "a": "1"}
    assert body_of(send(api, "PUT", f"{CLASSES}/gpu", created))["metadata"]["labels"] == {"a": "1", "b": "2"}
    patched = api.send("PATCH", f"{CLASSES}/gpu", {"metadata": {"labels": {"a": None}}}, content=MERGE, accept=GO)
    assert body_of(patched)["metadata"]["labels"] == {"b": "2"}
    applied = device_class("new")
    answer = api.send("PATCH", f"{CLASSES}/new", applied, content=APPLY, accept=GO, fieldManager="me")
    assert body_of(answer, code=201) == api.ok("GET", f"{CLASSES}/new")
    wrong = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}}
    refused = body_of(send(api, "DELETE", f"{CLASSES}/gpu", wrong), code=409)
    assert (refused["kind"], refused["reason"], refused["details"]["name"]) == ("Status", "Conflict", "gpu")
    right = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}
    assert body_of(send(api, "DELETE", f"{CLASSES}/gpu", right))["kind"] == "DeviceClass"
    assert body_of(send(api, "GET", f"{CLASSES}/gpu"), code=404) == api.send("GET", f"{CLASSES}/gpu").body


def test_core_kinds_are_written_in_protobuf(api: Http) -> None:
    """Maps of bytes, kinds whose deletion returns a Status, bindings, a pod's status."""
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "binaryData": {"b": "AP8="}}
    assert body_of(send(api, "POST", MAPS, value), code=201)["binaryData"] == {"b": "AP8="}
    deleted = body_of(send(api, "DELETE", f"{MAPS}/m"))
    assert (deleted["kind"], deleted["status"], deleted["details"]["kind"]) == ("Status", "Success", "configmaps")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}}
    stored = body_of(send(api, "POST", MAPS.replace("configmaps", "secrets"), secret), code=201)
    assert (stored["data"], stored["type"]) == ({"a": "MQ=="}, "Opaque")
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    body_of(send(api, "POST", PODS, pod), code=201)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    assert body_of(send(api, "POST", f"{PODS}/p/binding", binding), code=201)["status"] == "Success"
    bound = body_of(send(api, "GET", f"{PODS}/p"))
    assert (bound["spec"]["nodeName"], bound["status"]["conditions"][0]["type"]) == ("n", "PodScheduled")


def test_list_and_page_are_returned_in_protobuf(api: Http) -> None:
    for name in "abc":
        body_of(send(api, "POST", CLASSES, device_class(name)), code=201)
    page = body_of(send(api, "GET", CLASSES, limit="2"))
    assert [item["metadata"]["name"] for item in page["items"]] == ["a", "b"]
    assert (page["kind"], page["metadata"]["remainingItemCount"]) == ("DeviceClassList", 1)
    assert page["items"] == api.ok("GET", CLASSES, limit="2")["items"]
    some = body_of(api.send("GET", CLASSES, accept=PARTIAL.replace("Metadata;", "MetadataList;")))
    assert [item["metadata"]["name"] for item in some["items"]] == ["a", "b", "c"]
    assert body_of(send(api, "DELETE", CLASSES))["kind"] == "DeviceClassList"


def test_watch_sends_protobuf_frames(server: Running, api: Http) -> None:
    """Frames: earlier objects, the bookmark after them, later changes, and the final error."""
    api.ok("POST", CLASSES, device_class("first"))
    with server.http() as watcher:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        with watcher.watch_protobuf(CLASSES, GO, **query) as frames:
            assert next(frames) == ("ADDED", api.ok("GET", f"{CLASSES}/first"))
            kind, bookmark = next(frames)
            assert (kind, bookmark["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
            body_of(send(api, "DELETE", f"{CLASSES}/first"))
            assert next(frames)[0] == "DELETED"
        with watcher.watch_protobuf(CLASSES, f"{PARTIAL},{GO}") as frames:
            api.ok("POST", CLASSES, device_class("second"))
            kind, found = next(frames)
            assert (kind, found["kind"], found["metadata"]["name"]) == ("ADDED", "PartialObjectMetadata", "second")
        with watcher.watch_protobuf(CLASSES, GO, resourceVersion="1") as frames:
            kind, found = next(frames)
            assert (kind, found["kind"], found["reason"], found["code"]) == ("ERROR", "Status", "Expired", 410)


@pytest.mark.parametrize(
    ("accept", "query", "message"),
    [
        (f"{MEDIA_TYPE};as=Table;g=meta.k8s.io;v=v1", {}, "application/json, application/yaml, " + MEDIA_TYPE),
        (f"{MEDIA_TYPE};stream=other", {}, "application/json, application/yaml, " + MEDIA_TYPE),
        ("application/yaml", {"watch": "1"}, f"application/json;stream=watch, {MEDIA_TYPE};stream=watch"),
    ],
)
def test_unsupported_protobuf_media_type_is_refused(
    api: Http, accept: str, query: dict[str, str], message: str
) -> None:
    answer = api.send("GET", CLASSES, accept=accept, **query)
    assert answer.status == 406
    assert f"only the following media types are accepted: {message}" in answer.text.replace("\n ", "")


def test_table_is_json_if_client_accepts_protobuf_and_json(api: Http) -> None:
    table = "as=Table;g=meta.k8s.io;v=v1"
    answer = api.send("GET", CLASSES, accept=f"{MEDIA_TYPE};{table},application/json;{table}")
    assert (type_of(answer), answer.body["kind"]) == ("application/json", "Table")


def test_custom_resource_is_protobuf_only_as_partial_metadata(api: Http) -> None:
    created = body_of(send(api, "POST", DEFINITIONS, definition()), code=201)
    assert created["spec"] == api.ok("GET", f"{DEFINITIONS}/drivers.example.com")["spec"]
    api.ok("POST", DRIVERS, driver("a", {"type": "gpu"}))
    assert type_of(api.send("GET", f"{DRIVERS}/a", accept=GO)) == "application/json"
    refused = api.send("GET", f"{DRIVERS}/a", accept=ONLY)
    assert "only the following media types" in body_of(refused, code=406)["message"]
    partial = body_of(api.send("GET", f"{DRIVERS}/a", accept=PARTIAL))
    assert (partial["kind"], partial["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    answer = api.send("POST", DRIVERS, encode({"apiVersion": "v1", "kind": "Status"}), content=MEDIA_TYPE)
    assert (answer.status, "does not implement the protobuf marshalling interface" in answer.message) == (400, True)


def test_invalid_protobuf_body_is_refused(api: Http) -> None:
    answer = api.send("POST", CLASSES, b"{}", content=MEDIA_TYPE)
    text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)"
    assert answer.message == f"the object provided is unrecognized (must be of type DeviceClass): {text}"
    answer = api.send("DELETE", f"{CLASSES}/gpu", b"{}", content=MEDIA_TYPE)
    assert (answer.status, text.removesuffix(" (7b7d)") in answer.message) == (400, True)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    answer = send(api, "POST", CLASSES, other, accept="application/json")
    assert (answer.status, "cannot be handled as a DeviceClass" in answer.message) == (400, True)


def test_discovery_and_access_review_are_returned_in_protobuf(api: Http) -> None:
    for path in ("/api", "/apis", "/apis/resource.k8s.io", "/apis/resource.k8s.io/v1"):
        found = body_of(api.send("GET", path, accept=ONLY))
        for name, item in api.ok("GET", path).items():
            assert found.get(name) == item or name in ("resources", "groups", "versions", "preferredVersion")
    discovery = f"{MEDIA_TYPE};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = api.send("GET", "/apis", accept=discovery)
    assert (type_of(answer), decode(answer.data, "", "")["kind"]) == (discovery, "APIGroupDiscoveryList")
    question: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    question["spec"] = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    answer = send(api, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question)
    assert body_of(answer, code=201)["status"]["allowed"] is True


def test_core_object_with_wrong_field_type_is_refused(api: Http) -> None:
    """The write is refused, because otherwise no protobuf list could contain the object."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": "high"}}
    text = "json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32"
    answer = api.send("POST", PODS, pod)
    assert answer.message == f'Pod in version "v1" cannot be handled as a Pod: {text}'
