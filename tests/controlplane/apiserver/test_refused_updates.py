"""Refused updates show the API server's structs and the lines that would have changed."""

from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import MERGE, Http, Running

PODS, CLAIMS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/persistentvolumeclaims"
POD: Any = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}]}]},
}
CLAIM: Any = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
FORBIDDEN_POD_UPDATE = (
    'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,'
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
    " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)


def refused_patch_message(api: Http, path: str, patch: Any) -> str:
    answer = api.send("PATCH", path, patch, content=MERGE)
    assert answer.status == 422
    return answer.message


def test_refused_pod_update_shows_diff_of_spec(api: Http) -> None:
    api.ok("POST", PODS, POD)
    message = refused_patch_message(api, f"{PODS}/p", {"spec": {"nodeName": "n"}})
    assert message == FORBIDDEN_POD_UPDATE + (
        '@@ -51,7 +51,7 @@\n  "ServiceAccountName": "",\n  "DeprecatedServiceAccount": "",\n'
        '  "AutomountServiceAccountToken": null,\n- "NodeName": "",\n+ "NodeName": "n",\n  "HostNetwork": false,\n'
        '  "HostPID": false,\n  "HostIPC": false,\n'
    )


def test_refused_pod_update_shows_structs_of_release() -> None:
    """In 1.36 the security context contains fields that are beside it in 1.37."""
    with Running(release=RELEASES["1.36"], definitions=()) as server, server.http() as api:
        api.ok("POST", PODS, POD)
        message = refused_patch_message(api, f"{PODS}/p", {"spec": {"hostNetwork": True}})
        assert '  "SecurityContext": {\n-  "HostNetwork": false,\n+  "HostNetwork": true,\n' in message


def test_refused_pod_update_distinguishes_empty_list_from_null(api: Http) -> None:
    api.ok("POST", PODS, POD)
    container = POD["spec"]["containers"][0]
    for ports, shown in (([], "[]"), (None, "null")):
        message = refused_patch_message(api, f"{PODS}/p", {"spec": {"containers": [{**container, "ports": ports}]}})
        assert f'\n+   "Ports": {shown},\n' in message
    assert "ports" in api.ok("GET", f"{PODS}/p")["spec"]["containers"][0]


def test_stored_pod_omits_empty_lists(api: Http) -> None:
    spec = {"containers": [{"name": "c", "image": "i", "ports": []}], "tolerations": []}
    made = api.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert "ports" not in made["spec"]["containers"][0]
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert "f:ports" not in owned


def test_refused_pod_update_diff_omits_allowed_image_change(api: Http) -> None:
    api.ok("POST", PODS, POD)
    container = {**POD["spec"]["containers"][0], "image": "other"}
    assert api.ok("PATCH", f"{PODS}/p", {"spec": {"containers": [container]}}, content=MERGE)
    message = refused_patch_message(
        api, f"{PODS}/p", {"spec": {"containers": [{**container, "image": "third", "workingDir": "/w"}]}}
    )
    assert '"Image"' not in message.partition("@@")[2].replace('   "Image": "other",\n', "")
    assert '-   "WorkingDir": "",\n+   "WorkingDir": "/w",\n' in message


def test_refused_volume_claim_update_shows_diff_of_spec(api: Http) -> None:
    api.ok("POST", CLAIMS, CLAIM)
    message = refused_patch_message(api, f"{CLAIMS}/c", {"spec": {"accessModes": ["ReadOnlyMany"]}})
    assert message == (
        'PersistentVolumeClaim "c" is invalid: spec: Forbidden: spec is immutable after creation except'
        " resources.requests and volumeAttributesClassName for bound claims\n@@ -1,6 +1,6 @@\n {\n"
        '  "AccessModes": [\n-  "ReadWriteOnce"\n+  "ReadOnlyMany"\n  ],\n  "Selector": null,\n  "Resources": {\n'
    )


@pytest.mark.parametrize(
    ("phase", "size", "expected"),
    [
        ("Bound", "2Gi", ""),
        ("Bound", "1", "field can not be less than status.capacity"),
        ("Pending", "2Gi", "spec is immutable after creation"),
    ],
)
def test_volume_claim_can_grow_only_when_bound(api: Http, phase: str, size: str, expected: str) -> None:
    api.ok("POST", CLAIMS, CLAIM)
    status = {"status": {"phase": phase, "capacity": {"storage": "1Gi"}}}
    api.ok("PATCH", f"{CLAIMS}/c/status", status, content=MERGE)
    answer = api.send("PATCH", f"{CLAIMS}/c", {"spec": {"resources": {"requests": {"storage": size}}}}, content=MERGE)
    assert (answer.status, expected in answer.text) == (422 if expected else 200, True)
