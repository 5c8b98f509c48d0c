"""Kinds for which the server has no code of its own, and events in both API groups."""

from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.apiserver import protobuf
from controlplane.apiserver.auxiliary import auxiliary_kinds
from controlplane.apiserver.kinds import Kind
from controlplane.apiserver.patch import STRATEGIC_MERGE_PATCH
from resourceapi.objects.release import LATEST
from tests.controlplane.apiserver.running import APPLY, MERGE, Http

KINDS = list(auxiliary_kinds(LATEST, lambda: datetime.now(UTC)))
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TEMPLATE: Any = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
ENDING_TEMPLATE: Any = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
WORKLOAD: Any = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
ROLE_REF: Any = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}
REQUIRED: Any = {
    "APIService": {
        "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    },
    "ClusterRoleBinding": ROLE_REF,
    "CSIStorageCapacity": {"storageClassName": "fast"},
    "ControllerRevision": {"revision": 1, "data": {"a": 1}},
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ENDING_TEMPLATE}}}},
    "DaemonSet": WORKLOAD,
    "Deployment": WORKLOAD,
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}]},
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "p"}}},
    "HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
    },
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    "IngressClass": {"spec": {"controller": "example.com/ingress"}},
    "Job": {"spec": {"template": ENDING_TEMPLATE}},
    "PersistentVolume": {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    },
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "PodTemplate": {"template": TEMPLATE},
    "PriorityLevelConfiguration": {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
    "ReplicaSet": WORKLOAD,
    "ReplicationController": {"spec": {"template": TEMPLATE}},
    "RoleBinding": ROLE_REF,
    "RuntimeClass": {"handler": "runc"},
    "ServiceCIDR": {"spec": {"cidrs": ["10.97.0.0/16"]}},
    "Service": {"spec": {"clusterIP": "None"}},  # other services would need ports
    "StatefulSet": WORKLOAD,
    "StorageVersionMigration": {"spec": {"resource": {"resource": "widgets", "group": "example.com"}}},
    "StorageClass": {"provisioner": "d.example.com"},
    "VolumeAttachment": {
        "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
    "VolumeAttributesClass": {"driverName": "d.example.com", "parameters": {"iops": "3"}},
}
OLD_EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def collection_path(kind: Kind) -> str:
    base = f"/apis/{kind.group}/{kind.storage}" if kind.group else "/api/v1"
    return f"{base}/namespaces/default/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_object_is_created_patched_applied_listed_and_deleted(api: Http, kind: Kind) -> None:
    path, api_version = collection_path(kind), kind.api_version(kind.storage)
    assert api.ok("GET", path)["kind"] == f"{kind.kind}List"
    listed = api.send("GET", path, accept=protobuf.MEDIA_TYPE)
    assert not protobuf.decode(listed.data, "", "")["items"]
    name = {"APIService": "v1.example.com", "IPAddress": "10.96.200.7"}.get(kind.kind, "one")
    value = {"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": name}, **REQUIRED.get(kind.kind, {})}
    made = api.ok("POST", path, value)
    changed = api.ok("PATCH", f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    applied = api.ok(
        "PATCH",
        f"{path}/{name}?fieldManager=me",
        value | {"metadata": {"name": name, "labels": {"c": "d"}}},
        content=APPLY,
    )
    assert applied["metadata"]["labels"].items() >= {"a": "b", "c": "d"}.items()
    assert api.send("GET", f"{path}/{name}/status").status == (200 if kind.status else 404)
    assert len(api.ok("GET", path, accept=TABLE)["rows"]) == 1
    api.ok("DELETE", f"{path}/{name}")
    assert api.send("GET", f"{path}/{name}").status == 404


def test_lease_is_written_in_protobuf_and_stale_update_conflicts(api: Http) -> None:
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


def test_event_is_served_by_both_api_groups(api: Http) -> None:
    """Events that a scheduler writes through events.k8s.io appear in the core group, which kubectl lists."""
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


def test_event_is_deleted_through_the_other_api_group(api: Http) -> None:
    value = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}}
    api.ok("POST", OLD_EVENTS, value)
    again = {**api.ok("GET", f"{NEW_EVENTS}/e"), "metadata": {"name": "e"}, "type": "Normal"}
    again |= {"eventTime": "2024-01-01T00:00:00.000001Z", "reportingController": "c", "reportingInstance": "i"}
    again |= {"action": "A", "reason": "R", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}}
    assert api.send("POST", NEW_EVENTS, again).status == 409
    api.ok("DELETE", f"{NEW_EVENTS}/e")
    assert api.ok("GET", OLD_EVENTS)["items"] == []


def test_deployment_scale_is_read_and_patched(api: Http) -> None:
    """The requests of `kubectl scale` and of an autoscaler."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    selector = {"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}
    template = {**TEMPLATE, "metadata": {"labels": {"a": "x", "b": "c"}}}
    spec = {"selector": selector, "template": template}
    one = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    api.ok("POST", path, one)
    scale = api.ok("GET", f"{path}/d/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 0, "selector": "a in (x,y),b=c"})
    api.ok("PATCH", f"{path}/d/scale", {"spec": {"replicas": 4}}, content=MERGE)
    assert api.ok("GET", f"{path}/d")["spec"]["replicas"] == 4
    # the request of Kubernetes' Python client
    api.ok("PATCH", f"{path}/d/scale", {"spec": {"replicas": 5}}, content=STRATEGIC_MERGE_PATCH)
    assert api.ok("GET", f"{path}/d")["spec"]["replicas"] == 5
    wrong = {"spec": {"replicas": "x"}, "kind": "X"}
    refused = api.send("PATCH", f"{path}/d/scale", wrong, content=STRATEGIC_MERGE_PATCH)
    assert '"map[kind:X spec:map[replicas:x]]": unrecognized type: int32' in refused.message
    assert api.send("GET", "/apis/apps/v1/namespaces/default/daemonsets/d/scale").status == 404


def test_system_namespace_cannot_be_deleted(api: Http) -> None:
    refused = api.send("DELETE", "/api/v1/namespaces/kube-system")
    assert refused.message == 'namespaces "kube-system" is forbidden: this namespace may not be deleted'


def test_api_extension_kinds_have_a_category(api: Http) -> None:
    """`kubectl get api-extensions` lists these."""
    found = [
        each["name"]
        for group in ("admissionregistration", "apiextensions", "apiregistration")
        for each in api.ok("GET", f"/apis/{group}.k8s.io/v1")["resources"]
        if each.get("categories") == ["api-extensions"]
    ]
    assert sorted(found) == [
        "apiservices",
        "customresourcedefinitions",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    ]


def test_namespaces_are_deleted_one_by_one(api: Http) -> None:
    verbs = {each["name"]: each["verbs"] for each in api.ok("GET", "/api/v1")["resources"]}
    assert ("deletecollection" in verbs["namespaces"], "deletecollection" in verbs["nodes"]) == (False, True)
    assert api.send("DELETE", "/api/v1/namespaces").status == 405
