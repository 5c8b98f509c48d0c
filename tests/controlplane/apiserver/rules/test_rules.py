"""Validation of built-in kinds, with the exact messages of a real API server 1.37.1."""

from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import MERGE, Http, Running

BASE = "/api/v1/namespaces/default"
CONTAINER: Any = {"name": "c", "image": "i"}
TEMPLATE: Any = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
ENDING: Any = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR: Any = {"matchLabels": {"a": "b"}}
NO_MATCH = "`selector` does not match template `labels`"


def creation_errors(
    api: Http, kind: str, path: str, members: Any, *, api_version: str = "v1", name: str = "x"
) -> list[str]:
    """The errors of creating an object."""
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **members}
    answer = api.send("POST", path, body)
    assert answer.status == 422, answer
    return [f"{each['field']}: {each['message']}" for each in answer.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, ["spec.containers: Required value"]),
        (
            {"containers": [None]},
            ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
        ),
        ({"containers": [CONTAINER, CONTAINER]}, ['spec.containers[1].name: Duplicate value: "c"']),
        (
            {"containers": [{**CONTAINER, "imagePullPolicy": "X"}]},
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "X": supported values: "Always",'
                ' "IfNotPresent", "Never"'
            ],
        ),
        (
            {"containers": [CONTAINER], "restartPolicy": "X"},
            ['spec.restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"'],
        ),
        (
            {"containers": [{**CONTAINER, "env": [{"name": "A=B"}]}]},
            [
                'spec.containers[0].env[0].name: Invalid value: "A=B": a valid environment variable name must consist'
                " only of printable ASCII characters other than '='"
            ],
        ),
        (
            {"containers": [{**CONTAINER, "volumeMounts": [{"name": "x"}]}]},
            [
                'spec.containers[0].volumeMounts[0].name: Not found: "x"',
                "spec.containers[0].volumeMounts[0].mountPath: Required value",
            ],
        ),
        (
            {"containers": [CONTAINER], "volumes": [{"name": "x", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
            ['spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"requests": {"example.com/x": "1"}}}]},
            ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"claims": [{"name": "x"}]}}]},
            [
                'spec.containers[0].resources.claims[0]: Not found: "x": must be one of the names in'
                " pod.spec.resourceClaims which is empty"
            ],
        ),
        (
            {"containers": [CONTAINER], "resourceClaims": [{"name": "x"}]},
            [
                'spec.resourceClaims[0]: Invalid value: {"Name":"x","ResourceClaimName":null,'
                '"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`,'
                " `resourceClaimTemplateName`"
            ],
        ),
        (
            {"containers": [CONTAINER], "tolerations": [{"operator": "Exists", "effect": "X"}]},
            [
                'spec.tolerations[0].effect: Unsupported value: "X": supported values: "NoSchedule",'
                ' "PreferNoSchedule", "NoExecute"'
            ],
        ),
        (
            {
                "containers": [{**CONTAINER, "resources": {"requests": {"cpu": "3"}}}],
                "resources": {"requests": {"cpu": "1"}},
            },
            [
                'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container'
                " requests of 3"
            ],
        ),
        (
            {"containers": [CONTAINER], "activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
    ],
)
def test_invalid_pod_is_refused(api: Http, spec: Any, found: list[str]) -> None:
    assert creation_errors(api, "Pod", f"{BASE}/pods", {"spec": spec}) == found


def test_pod_level_requests_are_defaulted_and_set_qos_class(api: Http) -> None:
    """The sum of the containers' requests, or the limit. The QoS class depends on it."""

    def made(name: str, containers: Any, resources: Any) -> Any:
        spec = {"containers": containers, "resources": resources}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        return api.ok("POST", f"{BASE}/pods", pod)

    asking = {**CONTAINER, "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}}
    found = made("a", [asking], {"limits": {"cpu": "2", "memory": "1Gi"}})
    assert found["spec"]["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}
    assert found["status"]["qosClass"] == "Burstable"
    found = made("b", [CONTAINER], {"limits": {"cpu": "1", "memory": "1Gi"}})
    assert found["spec"]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert found["status"]["qosClass"] == "Guaranteed"


def test_unknown_runtime_class_or_explicit_priority_is_refused(api: Http) -> None:
    for members, why in (
        ({"runtimeClassName": "nope"}, 'pod rejected: RuntimeClass "nope" not found'),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority admission controller"
            " computed 0 from the given PriorityClass name",
        ),
    ):
        spec = {"containers": [CONTAINER], **members}
        answer = api.send("POST", f"{BASE}/pods", {"kind": "Pod", "metadata": {"name": "x"}, "spec": spec})
        assert (answer.status, answer.message) == (403, f'pods "x" is forbidden: {why}')


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_workload_selector_must_match_template_and_is_immutable(api: Http, kind: str) -> None:
    path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s"
    other = {**TEMPLATE, "metadata": {"labels": {"a": "c"}}}
    spec: Any = {"selector": SELECTOR, "template": other}
    found = creation_errors(api, kind, path, {"spec": spec}, api_version="apps/v1")
    assert found == [f'spec.template.metadata.labels: Invalid value: {{"a":"c"}}: {NO_MATCH}']
    spec = {"selector": SELECTOR, "template": {**TEMPLATE, "spec": {"containers": [{"name": "c"}]}}}
    found = creation_errors(api, kind, path, {"spec": spec}, api_version="apps/v1")
    assert found == ["spec.template.spec.containers[0].image: Required value"]
    unread = {"matchExpressions": [{"key": "a", "operator": "X"}]}
    pod = {"containers": [{"name": "c"}], "restartPolicy": "Never"}
    spec = {"selector": unread, "template": {**TEMPLATE, "spec": pod}}
    found = creation_errors(api, kind, path, {"spec": spec}, api_version="apps/v1")
    about_pods = ["containers[0].image", "restartPolicy"] if kind == "DaemonSet" else ["restartPolicy"]
    looked_at = [text.partition(": ")[0] for text in found if "template" in text]
    assert looked_at == [f"spec.template.spec.{name}" for name in about_pods if kind.endswith("Set") and kind[0] != "R"]
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}}
    api.ok("POST", path, {**body, "spec": {"selector": SELECTOR, "template": TEMPLATE}})
    change = {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}}
    answer = api.send("PATCH", f"{path}/x", change, content=MERGE)
    assert answer.status == 422
    assert answer.message == (
        f'{kind}.apps "x" is invalid: spec.selector: Invalid value: {{"matchLabels":{{"a":"c"}}}}: field is immutable'
    )


def test_stateful_set_service_name_is_immutable_before_1_37() -> None:
    path = "/apis/apps/v1/namespaces/default/statefulsets"
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x"}}
    with Running(release=RELEASES["1.36"]) as server, server.http() as api:
        api.ok("POST", path, {**body, "spec": {"selector": SELECTOR, "template": TEMPLATE}})
        api.ok("PATCH", f"{path}/x", {"spec": {"replicas": 2}}, content=MERGE)
        answer = api.send("PATCH", f"{path}/x", {"spec": {"serviceName": "s"}}, content=MERGE)
        assert answer.status == 422
        assert "spec: Forbidden: updates to statefulset spec for fields other than 'replicas'," in answer.message


def test_invalid_node_taints_are_refused(api: Http) -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}, {"key": "b"}]
    assert creation_errors(api, "Node", "/api/v1/nodes", {"spec": {"taints": taints}}) == [
        'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints'
        " must be unique by key and effect pair",
        "metadata.taints[2].effect: Required value",
    ]


def test_invalid_job_is_refused(api: Http) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"

    def found(**spec: Any) -> list[str]:
        return creation_errors(api, "Job", path, {"spec": spec}, api_version="batch/v1")

    valid = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert found(template=TEMPLATE) == [valid]
    assert found(template=ENDING, completionMode="Indexed", parallelism=2) == [
        "spec.completions: Required value: when completion mode is Indexed"
    ]
    assert "spec.selector: Required value" in found(template=ENDING, manualSelector=True)
    other = {"matchLabels": {"a": "c"}}
    no_match = f'spec.template.metadata.labels: Invalid value: {{"a":"b"}}: {NO_MATCH}'
    assert found(template=ENDING, manualSelector=True, selector=other) == [no_match]
    (generated,) = found(template=ENDING, selector=SELECTOR)
    assert generated.startswith('spec.selector: Invalid value: {"matchLabels":{"a":"b","batch.kubernetes.io/')
    assert generated.endswith("`selector` not auto-generated")


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {"ports": [{"port": 1}, {"port": 2}]},
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
        (
            {"ports": [{"port": 70000, "targetPort": 1}]},
            ["spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        (
            {"ports": [{"port": 1, "protocol": "X"}]},
            ['spec.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            {"ports": [{"port": 1, "targetPort": "-x"}]},
            ['spec.ports[0].targetPort: Invalid value: "-x": must not begin or end with a hyphen'],
        ),
        (
            {"ports": [{"port": 1, "nodePort": 30000}]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            {"ports": [{"port": 1}], "sessionAffinity": "X"},
            ['spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"'],
        ),
        (
            {"ports": [{"port": 1}], "externalTrafficPolicy": "Local"},
            ['spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services'],
        ),
        (
            {"ports": [{"port": 1}], "externalIPs": ["127.0.0.1"]},
            [
                'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8,'
                " ::1/128)"
            ],
        ),
    ],
)
def test_invalid_service_is_refused(api: Http, spec: Any, found: list[str]) -> None:
    assert creation_errors(api, "Service", f"{BASE}/services", {"spec": spec}) == found


@pytest.mark.parametrize(
    ("api_version", "kind", "plural", "members", "found"),
    [
        (
            "v1",
            "ConfigMap",
            "configmaps",
            {"data": {"a": "x"}, "binaryData": {"a": "eA=="}},
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
        ),
        (
            "v1",
            "Secret",
            "secrets",
            {"type": "kubernetes.io/tls"},
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            {"spec": {"leaseDurationSeconds": 0}},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            "apps/v1",
            "ControllerRevision",
            "controllerrevisions",
            {"revision": -1, "data": [1]},
            [
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data must be a valid JSON object",
            ],
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            "roles",
            {"rules": [{"verbs": ["get"], "apiGroups": [""]}]},
            ["rules[0].resources: Required value: resource rules must supply at least one resource"],
        ),
    ],
)
def test_invalid_namespaced_object_is_refused(
    api: Http, api_version: str, kind: str, plural: str, members: Any, found: list[str]
) -> None:
    base = f"/apis/{api_version}" if "/" in api_version else "/api/v1"
    path = f"{base}/namespaces/default/{plural}"
    assert creation_errors(api, kind, path, members, api_version=api_version) == found


@pytest.mark.parametrize(
    ("group", "kind", "plural", "members", "found"),
    [
        (
            "storage.k8s.io/v1",
            "VolumeAttributesClass",
            "volumeattributesclasses",
            {},
            ["driverName: Required value", "parameters: Required value: must contain at least one key/value pair"],
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            "flowschemas",
            {},
            ["spec.priorityLevelConfiguration.name: Required value: must reference a priority level"],
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            {"spec": {"type": "Exempt"}},
            ["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"],
        ),
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            {"spec": {"group": "a.b", "version": "v1", "versionPriority": 1}},
            [
                'metadata.name: Invalid value: "x": must be `spec.version+"."+spec.group`: "v1.a.b"',
                "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            ],
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            {"value": 2_000_000_000},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
    ],
)
def test_invalid_cluster_scoped_object_is_refused(
    api: Http, group: str, kind: str, plural: str, members: Any, found: list[str]
) -> None:
    assert creation_errors(api, kind, f"/apis/{group}/{plural}", members, api_version=group) == found


def test_immutable_config_map_cannot_be_changed(api: Http) -> None:
    fixed = {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}, "immutable": True}
    api.ok("POST", f"{BASE}/configmaps", fixed)
    for change, path in (({"data": {"a": "c"}}, "data"), ({"immutable": False}, "immutable")):
        answer = api.send("PATCH", f"{BASE}/configmaps/m", change, content=MERGE)
        assert f"{path}: Forbidden: field is immutable when `immutable` is set" in answer.message
    assert api.send("PATCH", f"{BASE}/configmaps/m", {"metadata": {"labels": {"a": "b"}}}, content=MERGE).status == 200


def test_local_api_service_is_available_and_remote_one_is_not(api: Http) -> None:
    spec: Any = {"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.a.b"}}
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    (condition,) = api.ok("POST", path, {**body, "spec": spec})["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    api.ok("DELETE", f"{path}/v1.a.b")
    far = {**spec, "service": {"name": "s", "namespace": "n"}}
    made = api.ok("POST", path, {**body, "spec": far})
    assert made["spec"]["service"]["port"] == 443
    assert not made["status"]


def test_priority_level_gets_defaults(api: Http) -> None:
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    body: Any = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration"}
    limited = {"limitResponse": {"type": "Queue", "queuing": {}}}
    body |= {"metadata": {"name": "p"}, "spec": {"type": "Limited", "limited": limited}}
    assert api.ok("POST", path, body)["spec"]["limited"] == {
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
    }


@pytest.mark.parametrize(
    ("version", "provisioner", "verbs", "selector"),
    [
        ("1.36", '"b": field is immutable', "Required value: verbs must contain at least one value", 2),
        ("1.37", "null: field is immutable", "Required value", 1),
    ],
)
def test_error_texts_of_1_36_and_1_37(version: str, provisioner: str, verbs: str, selector: int) -> None:
    with Running(release=RELEASES[version]) as server, server.http() as api:
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        api.ok("POST", classes, {"metadata": {"name": "x"}, "provisioner": "a"})
        answer = api.send("PATCH", f"{classes}/x", {"provisioner": "b"}, content=MERGE)
        assert answer.body["message"].endswith(f"provisioner: Invalid value: {provisioner}")
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": []}
        assert creation_errors(
            api, "ClusterRole", roles, {"rules": [rule]}, api_version="rbac.authorization.k8s.io/v1"
        ) == [f"rules[0].verbs: {verbs}"]
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        api.ok("POST", jobs, {"metadata": {"name": "x"}, "spec": {"template": ENDING}})
        answer = api.send("PATCH", f"{jobs}/x", {"spec": {"selector": {"matchLabels": {"a": "c"}}}}, content=MERGE)
        about = [each for each in answer.body["details"]["causes"] if each["field"] == "spec.selector"]
        assert len(about) == selector


@pytest.mark.parametrize(("version", "status"), [("1.35", 422), ("1.36", 201)])
def test_service_name_can_begin_with_a_digit_since_1_36(version: str, status: int) -> None:
    service: Any = {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}}
    with Running(release=RELEASES[version]) as server, server.http() as api:
        assert api.send("POST", f"{BASE}/services", service).status == status
        service["metadata"]["name"] = "a1"
        assert api.send("POST", f"{BASE}/services", service).status == 201
