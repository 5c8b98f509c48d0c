"""Kinds of which the server itself knows nothing, and events under both of their names."""

from typing import Any

import pytest

from controlplane.apiserver import protobuf
from controlplane.apiserver.auxiliary import auxiliary_kinds
from controlplane.apiserver.kinds import Kind
from resourceapi.objects.release import LATEST
from tests.controlplane.apiserver.running import APPLY, MERGE, Http

KINDS = list(auxiliary_kinds(LATEST))
OLD_EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def collection(kind: Kind) -> str:
    base = f"/apis/{kind.group}/{kind.storage}" if kind.group else "/api/v1"
    return f"{base}/namespaces/default/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_objects_come_and_go(api: Http, kind: Kind) -> None:
    path, api_version = collection(kind), kind.api_version(kind.storage)
    assert api.ok("GET", path)["kind"] == f"{kind.kind}List"
    listed = api.send("GET", path, accept=protobuf.MEDIA_TYPE)
    assert not protobuf.decode(listed.data, "", "")["items"]
    value = {"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": "one"}}
    if kind.id == "services":
        value["spec"] = {"clusterIP": "None"}  # or it would need ports
    made = api.ok("POST", path, value)
    changed = api.ok("PATCH", f"{path}/one", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    applied = api.ok(
        "PATCH",
        f"{path}/one?fieldManager=me",
        value | {"metadata": {"name": "one", "labels": {"c": "d"}}},
        content=APPLY,
    )
    assert applied["metadata"]["labels"].items() >= {"a": "b", "c": "d"}.items()
    assert api.send("GET", f"{path}/one/status").status == (200 if kind.status else 404)
    api.ok("DELETE", f"{path}/one")
    assert api.send("GET", f"{path}/one").status == 404


def test_a_lease_in_protobuf_as_a_leader_writes_it(api: Http) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"},
    }
    sent = api.send("POST", LEASES, protobuf.encode(lease), content=protobuf.MEDIA_TYPE, accept=protobuf.MEDIA_TYPE)
    assert sent.status == 201
    made = protobuf.decode(sent.data, "", "")
    assert made["spec"] == lease["spec"]
    made["spec"]["holderIdentity"] = "you"
    api.ok("PUT", f"{LEASES}/kube-scheduler", made)
    assert api.send("PUT", f"{LEASES}/kube-scheduler", made).status == 409
    refused = api.send("POST", LEASES, lease | {"spec": {"leaseDurationSeconds": "15"}})
    assert (refused.status, "LeaseSpec" in refused.message) == (400, True)


def test_events_have_two_names(api: Http) -> None:
    """What a scheduler writes through the new group is what kubectl lists through the old one."""
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    new: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "regarding": about,
        "note": "it was put there",
        "reason": "Scheduled",
        "type": "Normal",
        "action": "Binding",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-1",
    }
    made = api.ok("POST", NEW_EVENTS, new)
    assert made.items() >= {name: item for name, item in new.items() if name != "metadata"}.items()
    (old,) = api.ok("GET", OLD_EVENTS, None, fieldSelector="involvedObject.uid=u")["items"]
    assert (old["involvedObject"], old["message"]) == (about, "it was put there")
    assert old["reportingComponent"] == "default-scheduler"
    assert not {"regarding", "note", "reportingController"} & old.keys()
    assert [each["note"] for each in api.ok("GET", NEW_EVENTS, None, fieldSelector="regarding.uid=u")["items"]] == [
        "it was put there"
    ]
    version = made["metadata"]["resourceVersion"]
    api.ok("PATCH", f"{OLD_EVENTS}/e", {"message": "twice", "count": 2}, content=MERGE)
    with api.watch(NEW_EVENTS, resourceVersion=version, timeoutSeconds="10") as events:
        event = next(events)
    assert (event["type"], event["object"]["note"], event["object"]["deprecatedCount"]) == ("MODIFIED", "twice", 2)
    refused = api.send("POST", NEW_EVENTS, new | {"metadata": {"name": "f"}, "note": 1})
    assert (refused.status, "note" in refused.message) == (400, True)


def test_events_are_deleted_by_either_name(api: Http) -> None:
    value = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}}
    api.ok("POST", OLD_EVENTS, value)
    assert api.send("POST", NEW_EVENTS, {"metadata": {"name": "e"}}).status == 409
    api.ok("DELETE", f"{NEW_EVENTS}/e")
    assert api.ok("GET", OLD_EVENTS)["items"] == []


def test_a_deployment_is_scaled(api: Http) -> None:
    """As kubectl scale and an autoscaler do it."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    selector = {"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}
    one = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": selector}}
    api.ok("POST", path, one)
    scale = api.ok("GET", f"{path}/d/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 0, "selector": "a in (x,y),b=c"})
    api.ok("PATCH", f"{path}/d/scale", {"spec": {"replicas": 4}}, content=MERGE)
    assert api.ok("GET", f"{path}/d")["spec"]["replicas"] == 4
    assert api.send("GET", "/apis/apps/v1/namespaces/default/daemonsets/d/scale").status == 404


def test_some_namespaces_stay(api: Http) -> None:
    refused = api.send("DELETE", "/api/v1/namespaces/kube-system")
    assert refused.message == 'namespaces "kube-system" is forbidden: this namespace may not be deleted'
