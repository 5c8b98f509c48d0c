"""Defaults of built-in kinds, as in a real server's answers."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import MERGE, Http

TEMPLATE: Any = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
DEFAULTED_POD_SPEC = {
    "containers": [
        {
            "name": "c",
            "image": "i:1",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
    ],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
MATCH_ALL_RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
SELECTOR = {"matchLabels": {"app": "a"}}
CLAIM_SPEC: Any = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME_SPEC: Any = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
SCALE_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


def _create(api: Http, group: str, kind: str, plural: str, spec: Any) -> Any:
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    return api.ok("POST", f"{base}/namespaces/default/{plural}", body)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (
            "Deployment",
            {
                "replicas": 1,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
        ),
        (
            "DaemonSet",
            {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                "revisionHistoryLimit": 10,
            },
        ),
        ("ReplicaSet", {"replicas": 1}),
        (
            "StatefulSet",
            {
                "replicas": 1,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}},
                "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "serviceName": "",
            },
        ),
    ],
)
def test_workload_defaults_are_set(api: Http, kind: str, more: Any) -> None:
    found = _create(api, "apps/v1", kind, f"{kind.lower()}s", {"selector": SELECTOR, "template": TEMPLATE})
    assert found["spec"] == {"selector": SELECTOR, "template": {**TEMPLATE, "spec": DEFAULTED_POD_SPEC}, **more}


def test_explicit_deployment_strategy_is_kept(api: Http) -> None:
    spec = {"selector": SELECTOR, "template": TEMPLATE, "strategy": {"type": "Recreate"}}
    assert _create(api, "apps/v1", "Deployment", "deployments", spec)["spec"]["strategy"] == {"type": "Recreate"}


def test_stateful_set_claim_template_gets_claim_defaults(api: Http) -> None:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "q"}, "spec": storage}
    spec = {"selector": SELECTOR, "template": TEMPLATE, "volumeClaimTemplates": [claim]}
    (found,) = _create(api, "apps/v1", "StatefulSet", "statefulsets", spec)["spec"]["volumeClaimTemplates"]
    assert (found["apiVersion"], found["kind"], found["status"]) == (
        "v1",
        "PersistentVolumeClaim",
        {"phase": "Pending"},
    )
    assert found["spec"]["volumeMode"] == "Filesystem"


def test_daemon_set_template_generation_counts_template_changes(api: Http) -> None:
    path = "/apis/apps/v1/namespaces/default/daemonsets/x"

    def count(obj: Any) -> str:
        return str(obj["metadata"]["annotations"]["deprecated.daemonset.template.generation"])

    made = _create(api, "apps/v1", "DaemonSet", "daemonsets", {"selector": SELECTOR, "template": TEMPLATE})
    assert count(made) == "1"
    other = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    assert count(api.ok("PATCH", path, other, content=MERGE)) == "2"
    assert count(api.ok("PATCH", path, {"spec": {"minReadySeconds": 3}}, content=MERGE)) == "2"


@pytest.mark.parametrize("annotation", ["x", "\u00b2", "9" * 5_000])
def test_invalid_daemon_set_template_generation_restarts_at_one(api: Http, annotation: str) -> None:
    path, name = "/apis/apps/v1/namespaces/default/daemonsets/x", "deprecated.daemonset.template.generation"
    _create(api, "apps/v1", "DaemonSet", "daemonsets", {"selector": SELECTOR, "template": TEMPLATE})
    api.ok("PATCH", f"{path}/status", {"metadata": {"annotations": {name: annotation}}}, content=MERGE)
    changed = api.ok("PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, content=MERGE)
    assert changed["metadata"]["annotations"][name] == "1"


def test_job_and_cron_job_defaults_are_set(api: Http) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    job = _create(api, "batch/v1", "Job", "jobs", {"template": template})
    generated = {"batch.kubernetes.io/job-name": "x", "job-name": "x"}
    generated |= dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"), job["metadata"]["uid"])
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"] == {"app": "a"} | generated
    assert {name: item for name, item in job["spec"].items() if name not in ("template", "selector")} == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    }
    cron = _create(
        api, "batch/v1", "CronJob", "cronjobs", {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
    )
    assert cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["schedulerName"] == "default-scheduler"
    assert (cron["spec"]["concurrencyPolicy"], cron["spec"]["failedJobsHistoryLimit"]) == ("Allow", 1)


def test_job_selector_is_generated_from_uid_unless_manual(api: Http) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"containers": TEMPLATE["spec"]["containers"], "restartPolicy": "Never"}}
    job = _create(api, "batch/v1", "Job", "jobs", {"template": template})
    uid = job["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "x",
        "controller-uid": uid,
        "job-name": "x",
    }
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert (job["spec"]["template"]["metadata"]["labels"], job["metadata"]["labels"]) == (labels, labels)
    changed = api.ok("PATCH", f"{path}/x", {"spec": {"suspend": True}}, content=MERGE)
    assert changed["spec"]["selector"] == job["spec"]["selector"]
    own = {"selector": SELECTOR, "manualSelector": True, "template": {**TEMPLATE, **template}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "y"}, "spec": own}
    manual = api.ok("POST", path, body)
    assert (manual["spec"]["selector"], manual["metadata"]["labels"]) == (SELECTOR, {"app": "a"})


def test_service_and_network_policy_defaults_are_set(api: Http) -> None:
    service = _create(api, "v1", "Service", "services", {"ports": [{"port": 1}]})
    addresses = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")  # see test_service_addresses
    assert {name: item for name, item in service["spec"].items() if name not in addresses} == {
        "ports": [{"protocol": "TCP", "port": 1, "targetPort": 1}],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    policy = _create(
        api,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        {"podSelector": {}, "egress": [{"ports": [{"port": 1}]}]},
    )
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 1}]}]


def test_daemon_set_and_claim_status_are_set_on_create(api: Http) -> None:
    made = _create(api, "apps/v1", "DaemonSet", "daemonsets", {"selector": SELECTOR, "template": TEMPLATE})
    assert made["status"] == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    claim = _create(api, "v1", "PersistentVolumeClaim", "persistentvolumeclaims", CLAIM_SPEC)
    assert claim["status"] == {"phase": "Pending"}


def test_daemon_set_status_write_can_change_labels(api: Http) -> None:
    _create(api, "apps/v1", "DaemonSet", "daemonsets", {"selector": SELECTOR, "template": TEMPLATE})
    path, change = "/apis/apps/v1/namespaces/default/daemonsets/x/status", {"metadata": {"labels": {"a": "b"}}}
    assert api.ok("PATCH", path, change, content=MERGE)["metadata"]["labels"] == {"a": "b"}


def test_pod_phase_starts_as_pending_and_can_be_removed(api: Http) -> None:
    pod = _create(api, "v1", "Pod", "pods", TEMPLATE["spec"])
    assert pod["status"]["phase"] == "Pending"
    changed = api.ok("PATCH", "/api/v1/namespaces/default/pods/x/status", {"status": None}, content=MERGE)
    assert "phase" not in changed["status"]


@pytest.mark.parametrize(
    ("volume", "more"),
    [
        (
            {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "eui.0123456789abcdef", "lun": 0}},
            {"iscsiInterface": "default"},
        ),
        ({"rbd": {"monitors": ["a"], "image": "i"}}, {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}),
        (
            {"azureDisk": {"diskName": "a", "diskURI": "https://b"}},
            {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
        ),
        (
            {"scaleIO": {"gateway": "a", "system": "b", "volumeName": "c", "secretRef": {"name": "x"}}},
            {"storageMode": "ThinProvisioned", "fsType": "xfs"},
        ),
        ({"image": {"reference": "q"}}, {"pullPolicy": "Always"}),
        ({"image": {"reference": "q:1"}}, {"pullPolicy": "IfNotPresent"}),
    ],
)
def test_volume_source_defaults_are_set(api: Http, volume: Any, more: Any) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "volumes": [{"name": "v", **volume}]}}
    made = _create(api, "apps/v1", "Deployment", "deployments", {"selector": SELECTOR, "template": template})
    ((kind, source),) = volume.items()
    assert made["spec"]["template"]["spec"]["volumes"] == [{"name": "v", kind: source | more}]


def test_projected_downward_and_ephemeral_volume_defaults_are_set(api: Http) -> None:
    field = {"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [
        {
            "name": "p",
            "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [field]}}]},
        },
        {"name": "d", "downwardAPI": {"items": [field]}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": claim}},
    ]
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "volumes": volumes}}
    made = _create(api, "apps/v1", "Deployment", "deployments", {"selector": SELECTOR, "template": template})
    projected, downward, ephemeral = made["spec"]["template"]["spec"]["volumes"]
    token, fields = projected["projected"]["sources"]
    assert token["serviceAccountToken"] == {"path": "t", "expirationSeconds": 3600}
    for items in (fields["downwardAPI"]["items"], downward["downwardAPI"]["items"]):
        assert items == [{"path": "n", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]
    assert ephemeral["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == "Filesystem"


def test_probe_and_hook_defaults_are_set(api: Http) -> None:
    container = {
        **TEMPLATE["spec"]["containers"][0],
        "readinessProbe": {"grpc": {"port": 2}},
        "lifecycle": {"postStart": {"httpGet": {"port": 5}}, "preStop": {"sleep": {"seconds": 1}}},
    }
    template = {**TEMPLATE, "spec": {"containers": [container]}}
    made = _create(api, "apps/v1", "Deployment", "deployments", {"selector": SELECTOR, "template": template})
    (found,) = made["spec"]["template"]["spec"]["containers"]
    assert found["readinessProbe"]["grpc"] == {"port": 2, "service": ""}
    assert found["lifecycle"] == {
        "postStart": {"httpGet": {"path": "/", "port": 5, "scheme": "HTTP"}},
        "preStop": {"sleep": {"seconds": 1}},
    }


def test_job_failure_policy_defaults_are_set(api: Http) -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "x"}]}]
    spec = {"template": template, "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": rules}}
    spec |= {"completionMode": "Indexed", "completions": 1}
    made = _create(api, "batch/v1", "Job", "jobs", spec)["spec"]
    assert made["backoffLimit"] == 2**31 - 1
    assert made["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "x", "status": "True"}]


def test_limit_range_defaults_are_set_for_containers_only(api: Http) -> None:
    most = {"max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}, "default": {"memory": "2Mi"}}
    limits = [{"type": "Container", **most}, {"type": "Pod", "max": {"cpu": "3"}}]
    of_containers, of_pods = _create(api, "v1", "LimitRange", "limitranges", {"limits": limits})["spec"]["limits"]
    assert of_containers["default"] == of_containers["defaultRequest"] == {"cpu": "2", "memory": "2Mi"}
    assert of_pods == limits[1]


@pytest.mark.parametrize(("one", "other"), [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")])
def test_claim_data_source_is_copied_to_the_other_source_field(api: Http, one: str, other: str) -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "x"}
    made = _create(api, "v1", "PersistentVolumeClaim", "persistentvolumeclaims", {**CLAIM_SPEC, one: source})["spec"]
    assert made[one] == made[other] == {"apiGroup": None, **source}


@pytest.mark.parametrize(
    ("group", "kind", "plural", "members", "filled"),
    [
        (
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            {"spec": {**VOLUME_SPEC, "hostPath": {"path": "/x"}}},
            {
                "spec": {
                    **VOLUME_SPEC,
                    "hostPath": {"path": "/x", "type": ""},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "volumeMode": "Filesystem",
                }
            },
        ),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            "ingressclasses",
            {"spec": {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n"}}},
            {"spec": {"controller": "a.b/c", "parameters": {"scope": "Cluster", "kind": "K", "name": "n"}}},
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            {
                "roleRef": {"kind": "ClusterRole", "name": "x"},
                "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
            },
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"},
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                ],
            },
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            {
                "spec": {
                    "policyName": "x",
                    "validationActions": ["Deny"],
                    "matchResources": {"resourceRules": [MATCH_ALL_RULE]},
                }
            },
            {
                "spec": {
                    "policyName": "x",
                    "validationActions": ["Deny"],
                    "matchResources": {
                        "namespaceSelector": {},
                        "objectSelector": {},
                        "matchPolicy": "Equivalent",
                        "resourceRules": [{**MATCH_ALL_RULE, "scope": "*"}],
                    },
                }
            },
        ),
    ],
)
def test_cluster_scoped_kind_defaults_are_set(
    api: Http, group: str, kind: str, plural: str, members: Any, filled: Any
) -> None:
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, **members}
    made = api.ok("POST", f"{base}/{plural}", body)
    assert {name: made[name] for name in filled} == filled


def test_admission_policy_defaults_are_set(api: Http) -> None:
    rules = [{"apiGroups": ["x"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "x"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]},
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    spec = api.ok("POST", path, body)["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"] == {
        "namespaceSelector": {},
        "objectSelector": {},
        "matchPolicy": "Equivalent",
        "resourceRules": [{**rules[0], "scope": "*"}],
    }
    refused = api.send("PUT", f"{path}/x", body)
    assert refused.status == 422
    assert "must be specified for an update" in refused.body["message"]


def test_pod_update_keeps_omitted_priority_and_tolerations(api: Http) -> None:
    path = "/api/v1/namespaces/default/pods"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": TEMPLATE["spec"]}
    made = api.ok("POST", path, body)
    put = api.ok("PUT", f"{path}/p", body)
    assert put["spec"] == made["spec"]
    assert put["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("ValidatingWebhookConfiguration", {}), ("MutatingWebhookConfiguration", {"reinvocationPolicy": "Never"})],
)
def test_webhook_configuration_defaults_are_set(api: Http, kind: str, more: Any) -> None:
    rule = {"operations": ["*"], "apiGroups": ["a"], "apiVersions": ["v1"], "resources": ["b"]}
    hook = {
        "name": "a.b.c",
        "clientConfig": {"service": {"name": "s", "namespace": "n"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    version = "admissionregistration.k8s.io/v1"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "webhooks": [hook]}
    (made,) = api.ok("POST", f"/apis/{version}/{kind.lower()}s", body)["webhooks"]
    assert made == {
        **hook,
        "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
        "rules": [{**rule, "scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        **more,
    }


def test_partial_autoscaler_behavior_is_completed(api: Http) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 3}, "scaleDown": {}}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "behavior": behavior}
    made = _create(api, "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", spec)["spec"]
    double = {"type": "Percent", "value": 100, "periodSeconds": 15}
    assert made["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 3,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, double],
        },
        "scaleDown": {"selectPolicy": "Max", "policies": [double]},
    }


def test_host_network_pod_gets_host_ports(api: Http) -> None:
    container = {"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}
    made = _create(api, "v1", "Pod", "pods", {"hostNetwork": True, "containers": [container]})
    assert made["spec"]["containers"][0]["ports"] == [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("group", "kind", "plural", "spec", "found"),
    [
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            {"maxReplicas": 2, "scaleTargetRef": SCALE_TARGET, "behavior": {}},
            {
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 0,
                        "selectPolicy": "Max",
                        "policies": [
                            {"type": "Pods", "value": 4, "periodSeconds": 15},
                            {"type": "Percent", "value": 100, "periodSeconds": 15},
                        ],
                    },
                    "scaleDown": {
                        "selectPolicy": "Max",
                        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                    },
                }
            },
        ),
        (
            "v1",
            "Service",
            "services",
            {"ports": [{"port": 1}], "sessionAffinity": "ClientIP"},
            {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}},
        ),
        ("v1", "LimitRange", "limitranges", {}, {"limits": None}),
        (
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1m", "x.dev/a": "1u"}}},
            {"resources": {"requests": {"storage": "1m", "x.dev/a": "1m"}}},
        ),
        (
            "v1",
            "Pod",
            "pods",
            {"containers": [{"name": "c", "image": "i"}], "serviceAccount": "a"},
            {"serviceAccount": "a", "serviceAccountName": "a"},
        ),
    ],
)
def test_other_spec_defaults_are_set(api: Http, group: str, kind: str, plural: str, spec: Any, found: Any) -> None:
    made = _create(api, group, kind, plural, spec)["spec"]
    assert {name: made.get(name) for name in found} == found


def test_node_pod_cidrs_and_allocatable_defaults_are_set(api: Http) -> None:
    body = {"kind": "Node", "metadata": {"name": "filled"}, "spec": {"podCIDR": "10.0.0.0/24"}}
    made = api.ok("POST", "/api/v1/nodes", body | {"status": {"capacity": {"cpu": "1"}}})
    assert made["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    assert made["status"]["allocatable"] == {"cpu": "1"}
