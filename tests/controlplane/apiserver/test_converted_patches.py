"""Messages for patches and applied configurations with values of wrong types: those of upstream's converters."""

from typing import Any

import pytest

from tests.controlplane.apiserver.random_requests import STRATEGIC
from tests.controlplane.apiserver.running import APPLY, Http

DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
TEMPLATE: Any = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DAEMON_SET: Any = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minReadySeconds": "x"}, "unrecognized type: int32"),
        ({"minReadySeconds": 1.5}, "cannot convert float64 to int32"),
        ({"template": 7}, "cannot restore struct from: int64"),
        ({"template": {"spec": {"dnsPolicy": {}}}}, "unrecognized type: string"),
        ({"template": {"spec": {"dnsPolicy": 7}}}, "cannot convert int64 to v1.DNSPolicy"),
        ({"template": {"spec": {"dnsPolicy": 7.5}}}, "unrecognized type: string"),
        ({"template": {"spec": {"hostNetwork": "x"}}}, "unrecognized type: bool"),
        ({"template": {"spec": {"nodeSelector": [1]}}}, "cannot restore map from slice"),
        ({"template": {"spec": {"tolerations": {}}}}, "cannot restore slice from map"),
        (
            {"template": {"metadata": {"creationTimestamp": {}}}},
            "json: cannot unmarshal object into Go value of type string",
        ),
    ],
)
def test_strategic_patch_with_wrong_type_is_refused_by_converter(api: Http, spec: Any, expected: str) -> None:
    api.ok("POST", DAEMON_SETS, DAEMON_SET)
    answer = api.send("PATCH", f"{DAEMON_SETS}/d", {"spec": spec}, content=STRATEGIC)
    assert (answer.status, answer.message.rpartition('": ')[2]) == (422, expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(7, "cannot convert int64 to string"), (7.5, "unrecognized type: string"), ({}, "unrecognized type: string")],
)
def test_strategic_patch_with_non_string_kind_is_refused(api: Http, kind: Any, expected: str) -> None:
    api.ok("POST", DAEMON_SETS, DAEMON_SET)
    answer = api.send("PATCH", f"{DAEMON_SETS}/d", {"kind": kind}, content=STRATEGIC)
    assert (answer.status, answer.message.rpartition('": ')[2]) == (422, expected)


@pytest.mark.parametrize(("sent", "made"), [(1.0, 1), (2**32 + 5, 5), (1e21, 0)])
def test_strategic_patch_truncates_numbers_to_int32(api: Http, sent: Any, made: int) -> None:
    api.ok("POST", DAEMON_SETS, DAEMON_SET)
    changed = api.ok("PATCH", f"{DAEMON_SETS}/d", {"spec": {"minReadySeconds": sent}}, content=STRATEGIC)
    assert changed["spec"].get("minReadySeconds", 0) == made


def test_unknown_field_warning_omits_map_key(api: Http) -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    counters = [{"name": "a", "counters": {"b": {"value": "1"}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "allNodes": True, "pool": pool, "sharedCounters": counters}
    api.ok("POST", slices, {"metadata": {"name": "s"}, "spec": spec})
    wrong = {"spec": {"sharedCounters": [{"name": "a", "counters": {"b": {"value": "1", "x": 1}}}]}}
    answer = api.send("PATCH", f"{slices}/s", wrong, content=STRATEGIC)
    assert answer.warnings == ['299 - "unknown field \\"spec.sharedCounters[0].counters.x\\""']


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"selector": {"matchLabels": {"a": 1}}},
            ".spec.selector.matchLabels.a: expected string, got &value.valueUnst",
        ),
        (
            {"minReadySeconds": {}},
            ".spec.minReadySeconds: expected numeric (int or float), got map[string]interface {}",
        ),
        ({"nope": 1}, ".spec.nope: field not declared in schema"),
        (
            {"template": {"spec": {"containers": [None]}}},
            ".spec.template.spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            {"template": {"spec": {"containers": ["x"]}}},
            ".spec.template.spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}},
            '.spec.template.spec.containers: duplicate entries for key [name="c"]',
        ),
        (
            {"minReadySeconds": "x", "revisionHistoryLimit": "y"},
            "errors:\n  .spec.minReadySeconds: expected numeric (int or float), got string\n"
            "  .spec.revisionHistoryLimit: expected numeric (int or float), got string",
        ),
        (
            {"template": {"metadata": {"creationTimestamp": {}}}},
            ".spec.template.metadata.creationTimestamp: expected any scalar, got &{map[]}",
        ),
    ],
)
def test_apply_with_wrong_type_is_refused_by_converter(api: Http, spec: Any, expected: str) -> None:
    config = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    answer = api.send("PATCH", f"{DAEMON_SETS}/d", config, content=APPLY, fieldManager="a")
    assert answer.status == 500
    assert f"failed to create typed patch object (/d; apps/v1, Kind=DaemonSet): {expected}" in answer.message


def test_decoding_error_names_embedded_struct(api: Http) -> None:
    volumes = [{"name": "v", "configMap": []}]
    answer = api.send("POST", "/api/v1/namespaces/default/pods", {"spec": {"containers": [], "volumes": volumes}})
    assert answer.message.endswith(
        "json: cannot unmarshal array into Go struct field Volume.spec.volumes.VolumeSource.configMap of type"
        " v1.ConfigMapVolumeSource"
    )


def test_duplicate_condition_is_owned_as_a_whole(api: Http) -> None:
    services = "/api/v1/namespaces/default/services"
    api.ok("POST", services, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    condition = {"type": "a", "status": "True", "reason": "R", "message": "", "lastTransitionTime": None}
    for count in (1, 2):
        status = {"metadata": {"name": "s"}, "status": {"conditions": [condition] * count}}
        made = api.ok("PUT", f"{services}/s/status", status)
    (entry,) = (each for each in made["metadata"]["managedFields"] if each.get("subresource") == "status")
    assert entry["fieldsV1"]["f:status"]["f:conditions"]['k:{"type":"a"}'] == {}


def test_duplicate_owner_reference_is_dropped_with_warning(api: Http) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1", "controller": True}
    body = {**DAEMON_SET, "metadata": {"name": "d", "ownerReferences": [owner, owner, {**owner, "controller": None}]}}
    answer = api.send("POST", DAEMON_SETS, body)
    assert len(answer.body["metadata"]["ownerReferences"]) == 2
    (warning,) = answer.warnings
    assert "contains duplicate entries; API server dedups" in warning
    assert warning.endswith('duplicate UID(s) observed: 1"')
