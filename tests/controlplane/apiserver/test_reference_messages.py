"""Messages that differed from a real API server under random requests: one test for each."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import APPLY, CLAIMS, CLASSES, MERGE, Http, Running, device_class

VIEW = "application/json;g=meta.k8s.io;v=v1;as="
NAMESPACES = "/api/v1/namespaces"
TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
SLICES = CLASSES.replace("deviceclasses", "resourceslices")
CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
SPECS: dict[str, dict[str, Any]] = {
    CLASSES: {},
    CLAIMS: CLAIM,
    TEMPLATES: {"spec": CLAIM},
    SLICES: {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
}


@pytest.fixture(scope="module")
def api() -> Iterator[Http]:
    with Running(collect_after=None) as running, running.http() as http:
        yield http


def test_unsuitable_view_is_refused_after_object_lookup(api: Http) -> None:
    """An absent object is reported first. The refusal names the Go type."""
    one, many = f"{VIEW}PartialObjectMetadata", f"{VIEW}PartialObjectMetadataList"
    assert api.send("GET", f"{CLASSES}/none", accept=many).status == 404
    answer = api.send("GET", CLASSES, accept=one)
    assert (answer.status, answer.message) == (
        406,
        "you requested PartialObjectMetadata, but the requested object is a list (*resource.DeviceClassList)",
    )
    answer = api.send("GET", f"{NAMESPACES}/default", accept=many)
    assert answer.message.endswith("but the requested object is not a list (*core.Namespace)")


def test_terminating_namespace_refuses_new_objects_and_recreation(api: Http) -> None:
    api.ok("POST", NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
    marked = api.ok("DELETE", f"{NAMESPACES}/ending")
    assert "deletionGracePeriodSeconds" not in marked["metadata"]
    answer = api.send("POST", f"{NAMESPACES}/ending/configmaps", {"metadata": {"name": "m"}})
    assert answer.message.startswith('configmaps "m" is forbidden: unable to create new content in namespace ending')
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    again = api.send("POST", NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
    assert again.message == 'object is being deleted: namespaces "ending" already exists'
    assert api.send("DELETE", NAMESPACES).status == 405


def test_refused_request_has_warnings(api: Http) -> None:
    """The warning about the version is first. An unknown route has no warning."""
    beta = CLASSES.replace("/v1/", "/v1beta1/")
    wrong = device_class("Bad_Name") | {"apiVersion": "resource.k8s.io/v1beta1", "extra": 1}
    answer = api.send("POST", beta, wrong)
    assert answer.status == 422
    assert ["deprecated" in text for text in answer.warnings] == [True, False]
    assert answer.warnings[1] == '299 - "unknown field \\"extra\\""'
    assert api.send("DELETE", f"{beta}/x/status").warnings == []


def test_apply_of_null_labels_keeps_labels_of_other_manager(api: Http) -> None:
    """Server-side apply of `labels: null` neither conflicts with the owner of labels nor removes them."""
    labelled = device_class("g", labels={"x": "1"})
    api.ok("PATCH", f"{CLASSES}/g", labelled, content=APPLY, fieldManager="m")
    mine = device_class("g", labels=None)
    assert api.ok("PATCH", f"{CLASSES}/g", mine, content=APPLY, fieldManager="n")["metadata"]["labels"] == {"x": "1"}


def test_status_update_of_node_changes_metadata(api: Http) -> None:
    """Network plugins set node annotations in this way."""
    node = api.ok("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    node["metadata"]["annotations"] = {"a": "b"}
    assert api.ok("PUT", "/api/v1/nodes/n/status", node)["metadata"]["annotations"] == {"a": "b"}


def test_yaml_answer_quotes_boolean_words(api: Http) -> None:
    api.ok("POST", CLASSES, device_class("y", labels={"x": "n"}))
    assert b'x: "n"' in api.send("GET", f"{CLASSES}/y", accept="application/yaml").data


def test_non_string_kind_is_refused(api: Http) -> None:
    answer = api.send("POST", CLASSES, {**device_class(), "kind": 3})
    assert "json: cannot unmarshal number into Go struct field .kind of type string" in answer.message


def test_services_are_selectable_by_cluster_ip(api: Http) -> None:
    for name, address in (("one", "10.96.0.9"), ("headless", "None")):
        spec = {"clusterIP": address, "ports": [{"port": 80}]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        api.ok("POST", f"{NAMESPACES}/default/services", service)
    listed = api.ok("GET", "/api/v1/services", fieldSelector="spec.clusterIP!=None")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["one"]


def test_dry_run_delete_of_pod_shows_deletion_mark(api: Http) -> None:
    """The answer shows the deletion mark, and the pod stays unchanged."""
    pods = "/api/v1/namespaces/default/pods"
    api.ok("POST", pods, {"metadata": {"name": "dry"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    shown = api.ok("DELETE", f"{pods}/dry", dryRun="All")["metadata"]
    assert (shown["deletionGracePeriodSeconds"], shown["generation"]) == (0, 2)
    assert "deletionTimestamp" in shown
    assert api.ok("GET", f"{pods}/dry")["metadata"]["generation"] == 1


def test_wrong_attributes_type_is_refused_with_go_map_type(api: Http) -> None:
    device: dict[str, Any] = {"name": "d", "attributes": []}
    refused = api.send("POST", "/apis/resource.k8s.io/v1beta2/resourceslices", {"spec": {"devices": [device]}})
    assert refused.message.endswith("of type map[v1beta2.QualifiedName]v1beta2.DeviceAttribute")
    device["attributes"] = {"a": 1}
    refused = api.send("POST", "/apis/resource.k8s.io/v1/resourceslices", {"spec": {"devices": [device]}})
    assert refused.message.endswith("of type v1.DeviceAttribute")


def test_list_by_name_has_no_continue_token(api: Http) -> None:
    for name in "ab":
        api.ok("POST", CLASSES, device_class(f"one-{name}"))
    assert "continue" not in api.ok("GET", CLASSES, fieldSelector="metadata.name=one-a", limit="1")["metadata"]


def test_delete_options_in_body_override_query(api: Http) -> None:
    """An empty body means no options, and the query is ignored."""
    api.ok("POST", CLASSES, {"kind": "DeviceClass", "metadata": {"name": "c"}})
    assert api.send("DELETE", f"{CLASSES}/c", dryRun="All").status == 200
    assert api.send("GET", f"{CLASSES}/c").status == 200
    assert api.send("DELETE", f"{CLASSES}/c", {}, dryRun="All").status == 200
    assert api.send("GET", f"{CLASSES}/c").status == 404


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"v": "x", "rv": 1, "start": "a"}, ": server does not recognize this encoded version x"),
        ({"v": "meta.k8s.io/v1", "start": "a"}, ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ({"v": "meta.k8s.io/v1", "rv": 1}, ": encoded start key empty (version meta.k8s.io/v1)"),
        ({"v": "meta.k8s.io/v1", "rv": 1, "start": "../a"}, ": ../a"),
        (
            {"rv": "x"},
            ": json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        ),
    ],
)
def test_malformed_continue_token_is_refused(api: Http, document: Any, why: str) -> None:
    token = base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
    answer = api.send("GET", CLASSES, **{"continue": token})
    assert (answer.status, answer.message) == (400, f"invalid continue token: continue key is not valid{why}")


def test_continue_token_with_invalid_base64_is_refused(api: Http) -> None:
    for token, at in (("x", 0), ("ab=c", 2)):
        answer = api.send("GET", CLASSES, **{"continue": token})
        assert answer.message.endswith(f"not valid: illegal base64 data at input byte {at}")


def test_watch_with_continue_token_is_refused(api: Http) -> None:
    answer = api.send("GET", CLASSES, **{"watch": "1", "continue": "x"})
    why = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
    assert (answer.status, answer.message) == (422, f'ListOptions.meta.k8s.io "" is invalid: {why}')


def test_root_version_and_health_paths_answer_as_reference(api: Http) -> None:
    assert "/apis/resource.k8s.io/v1" in api.ok("GET", "/")["paths"]
    assert api.send("POST", "/version", {}).status == 405
    assert api.send("GET", "/version", accept="text/html").message.startswith("406: Not Acceptable")
    assert api.send("POST", "/apis", {}).body["kind"] == "APIGroupList"
    assert api.send("GET", "/healthz/nope").text == "404 page not found\n"


def test_duplicate_list_items_are_owned_as_a_whole(api: Http) -> None:
    twice = {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [twice]}}
    made = api.ok("POST", "/api/v1/namespaces/default/pods", pod)
    fields = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]
    assert fields['k:{"name":"c"}']["f:env"] == {".": {}, 'k:{"name":"A"}': {}}


def test_refusal_names_go_struct_of_embedded_configuration(api: Http) -> None:
    """The message names the Go struct that contains the configuration."""
    wrong = device_class("x") | {"spec": {"config": [{"opaque": {"driver": 1}}]}}
    path = "spec.config.DeviceConfiguration.opaque"
    assert f"struct field OpaqueDeviceConfiguration.{path}.driver of type" in api.send("POST", CLASSES, wrong).message
    wrong["spec"] = {"config": [{"opaque": "x"}]}
    assert f"struct field DeviceClassConfiguration.{path} of type" in api.send("POST", CLASSES, wrong).message


@pytest.mark.parametrize("value", [{"a": None}, [1], True])
def test_non_string_quantity_is_refused(api: Http, value: Any) -> None:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"capacity": {"requests": {"memory": value}}}}]}}
    answer = api.send("POST", CLAIMS, {"metadata": {"name": "x"}, "spec": spec})
    assert "cannot be handled as a ResourceClaim: quantities must match the regular expression" in answer.message


def test_unsupported_media_type_is_reported_before_invalid_options(api: Http) -> None:
    assert api.send("POST", CLASSES, {}, content=APPLY, fieldValidation="x").status == 415
    assert api.send("POST", CLASSES, {}, fieldValidation="x").status == 422


@pytest.mark.parametrize(("collection", "times"), [(CLASSES, 4), (CLAIMS, 4), (TEMPLATES, 4), (SLICES, 3)])
def test_invalid_label_update_is_reported_as_often_as_by_reference(collection: str, times: int) -> None:
    with Running(collect_after=None, release=RELEASES["1.36"]) as running, running.http() as http:
        http.ok("POST", collection, {"metadata": {"name": "x"}, "spec": SPECS[collection]})
        answer = http.send("PATCH", f"{collection}/x", {"metadata": {"labels": {"é": "v"}}}, content=MERGE)
        assert [each["field"] for each in answer.body["details"]["causes"]] == ["metadata.labels"] * times


def test_yaml_answer_has_line_width_and_quotes_of_go(api: Http) -> None:
    """Lines of 80 columns, double quotes around text that looks like a number, multi-line text as block."""
    data = {"a": "1e3", "b": "1:20", "c": "x\ny\n", "d": "_1", "e": "word: " + " ".join(["word"] * 18)}
    answer = api.send(
        "POST", f"{NAMESPACES}/default/configmaps", {"metadata": {"name": "y"}, "data": data}, accept="application/yaml"
    )
    long = "'word: word word word word word word word word word word word word word word\n"
    long += "    word word word word'"
    assert f'  a: "1e3"\n  b: "1:20"\n  c: |\n    x\n    y\n  d: _1\n  e: {long}\n' in answer.text


def test_v1beta1_request_with_only_v1_fields_is_refused(api: Http) -> None:
    """The request has v1 fields in v1beta1."""
    claim = {"metadata": {"name": "x"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"count": 1}}]}}}
    answer = api.send("POST", CLAIMS.replace("/v1/", "/v1beta1/"), claim)
    assert answer.message.endswith("Required value: exactly one of `exactly` or `firstAvailable` is required")
