"""Warnings with the exact text of a real API server, and validation of budgets, schedules and addresses."""

from typing import Any

import pytest

from tests.controlplane.apiserver.rules.test_rules import BASE, CONTAINER, ENDING, SELECTOR, TEMPLATE, creation_errors
from tests.controlplane.apiserver.running import MERGE, Answer, Http

APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
CONTAINER_WITH_DUPLICATE_VARIABLE: Any = {
    **CONTAINER,
    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
}
HIDDEN_VARIABLE = 'hides previous definition of "A", which may be dropped when using apply'


def warnings_of(answer: Answer) -> list[str]:
    """The warnings of a successful answer."""
    assert answer.status < 300, answer
    return [text.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for text in answer.warnings]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {"nodeSelector": {"beta.kubernetes.io/arch": "x", "a": "b"}},
            ['spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead'],
        ),
        (
            {"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
            [
                'spec.imagePullSecrets[1].name: duplicate name "a"',
                'spec.imagePullSecrets[2].name: invalid empty name ""',
            ],
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"limits": {"memory": "1500m"}}}]},
            [
                f"spec.containers[0].resources.{name}[memory]: fractional byte value"
                ' "1500m" is invalid, must be an integer'
                for name in ("limits", "requests")
            ],
        ),
        (
            {
                "containers": [
                    {**CONTAINER, "env": [*CONTAINER_WITH_DUPLICATE_VARIABLE["env"], {"name": "A", "value": "$(A)3"}]}
                ]
            },
            [f"spec.containers[0].env[1]: {HIDDEN_VARIABLE}"],
        ),
        (
            {"containers": [{**CONTAINER, "ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 8}]}]},
            ["spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"],
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}},
            [
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector:"
                " a null labelSelector results in matching no pod"
            ],
        ),
    ],
)
def test_pod_field_warns_on_create_but_not_on_label_patch(api: Http, spec: Any, found: list[str]) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER], **spec}}
    assert warnings_of(api.send("POST", f"{BASE}/pods", pod)) == found
    assert warnings_of(api.send("PATCH", f"{BASE}/pods/p", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)) == []


def test_pod_name_with_dot_warns_about_hostname(api: Http) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "a.b"}, "spec": {"containers": [CONTAINER]}}
    (text,) = warnings_of(api.send("POST", f"{BASE}/pods", pod))
    assert text == (
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is"
        " recommended: [must not contain dots]"
    )


def test_deployment_template_warns_on_create_and_on_spec_change(api: Http) -> None:
    spec = {"selector": SELECTOR, "template": {**TEMPLATE, "spec": {"containers": [CONTAINER_WITH_DUPLICATE_VARIABLE]}}}
    path, warning = f"{APPS}/deployments", f"spec.template.spec.containers[0].env[1]: {HIDDEN_VARIABLE}"
    assert warnings_of(api.send("POST", path, {"kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})) == [
        warning
    ]
    for change, found in (({"metadata": {"labels": {"x": "y"}}}, []), ({"spec": {"minReadySeconds": 1}}, [warning])):
        assert warnings_of(api.send("PATCH", f"{path}/d", change, content=MERGE)) == found


@pytest.mark.parametrize(
    ("kind", "path", "members", "found"),
    [
        (
            "Service",
            f"{BASE}/services",
            {"spec": {"ports": [{"port": 1}], "externalName": "a.b"}},
            'spec.externalName is ignored when spec.type is not "ExternalName"',
        ),
        (
            "PersistentVolumeClaim",
            f"{BASE}/persistentvolumeclaims",
            {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}},
            'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer',
        ),
        (
            "PersistentVolume",
            "/api/v1/persistentvolumes",
            {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "persistentVolumeReclaimPolicy": "Recycle",
                    "hostPath": {"path": "/a"},
                }
            },
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended"
            " approach is to use dynamic provisioning.",
        ),
        (
            "Ingress",
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            {
                "metadata": {"name": "x", "annotations": {"kubernetes.io/ingress.class": "a"}},
                "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
            },
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
        ),
    ],
)
def test_service_storage_and_ingress_fields_warn_on_create(
    api: Http, kind: str, path: str, members: Any, found: str
) -> None:
    assert warnings_of(api.send("POST", path, {"kind": kind, "metadata": {"name": "x"}, **members})) == [found]


def test_job_delete_orphans_dependents_with_warning_unless_policy_is_set(api: Http) -> None:
    path = f"{BATCH}/jobs"
    for name, query, finalizers, warnings in (
        ("a", {}, ["orphan"], 1),
        ("b", {"propagationPolicy": "Background"}, None, 0),
        ("c", {"orphanDependents": "false"}, None, 0),
    ):
        api.ok("POST", path, {"kind": "Job", "metadata": {"name": name}, "spec": {"template": ENDING}})
        answer = api.send("DELETE", f"{path}/{name}", **query)
        assert len(warnings_of(answer)) == warnings
        assert answer.body.get("metadata", {}).get("finalizers") == finalizers


def test_disruption_budget_amounts_are_validated(api: Http) -> None:
    def found(**spec: Any) -> list[str]:
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        return creation_errors(api, "PodDisruptionBudget", path, {"spec": spec}, api_version="policy/v1")

    assert found(minAvailable=1, maxUnavailable="1%") == [
        'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"1%","UnhealthyPodEvictionPolicy":null'
        "}: minAvailable and maxUnavailable cannot be both set"
    ]
    assert found(maxUnavailable="101%") == ['spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%']
    assert found(minAvailable="x%") == [
        'spec.minAvailable: Invalid value: "x%": a valid percent string must be a numeric string followed by an ending'
        " '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
    ]
    assert found(minAvailable=-1) == ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"schedule": "61 * * * *"}, 'schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61'),
        ({"schedule": "* * * 13-x *"}, 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ({"schedule": "@every x"}, 'failed to parse duration @every x: time: invalid duration "x"'),
        ({"schedule": "1 2"}, "expected exactly 5 fields, found 2: [1 2]"),
        ({"schedule": "TZ=UTC 1 * * * *"}, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ({"timeZone": "X/Y"}, 'spec.timeZone: Invalid value: "X/Y": unknown time zone X/Y'),
        ({"timeZone": ""}, 'spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string'),
    ],
)
def test_cron_job_schedule_and_time_zone_are_validated(api: Http, spec: Any, found: str) -> None:
    members = {"spec": {"schedule": "1 * * * *", "jobTemplate": {"spec": {"template": ENDING}}, **spec}}
    (text,) = creation_errors(api, "CronJob", f"{BATCH}/cronjobs", members, api_version="batch/v1")
    assert found in text


@pytest.mark.parametrize(
    ("strategy", "found"),
    [
        ({"maxSurge": 1}, ["maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"]),
        ({"maxUnavailable": 0}, ["maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]),
    ],
)
def test_daemon_set_rolling_update_is_validated(api: Http, strategy: Any, found: list[str]) -> None:
    spec = {"selector": SELECTOR, "template": TEMPLATE, "updateStrategy": {"rollingUpdate": strategy}}
    texts = creation_errors(api, "DaemonSet", f"{APPS}/daemonsets", {"spec": spec}, api_version="apps/v1")
    assert texts == [f"spec.updateStrategy.rollingUpdate.{text}" for text in found]


def test_node_capacity_allocatable_and_addresses_are_validated(api: Http) -> None:
    capacity = {"example.com/a": "1500m", "cpu": "1500m", "pods": "-1"}
    body = {"status": {"capacity": capacity, "allocatable": {"cpu": "1"}}}
    assert creation_errors(api, "Node", "/api/v1/nodes", body) == [
        'status.capacity.example.com/a: Invalid value: "1500m": must be an integer',
        'status.capacity.pods: Invalid value: "-1": must be greater than or equal to 0',
    ]
    api.ok("POST", "/api/v1/nodes", {"kind": "Node", "metadata": {"name": "has"}})
    change = {
        "status": {"allocatable": {"example.com/a": "500m"}, "addresses": [{"type": "Hostname", "address": "x"}] * 2}
    }
    answer = api.send("PATCH", "/api/v1/nodes/has/status", change, content=MERGE)
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [
        "status.allocatable.example.com/a",
        "status.addresses[1]",
    ]


def test_node_pod_cidr_is_validated_and_immutable(api: Http) -> None:
    bad = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    assert creation_errors(api, "Node", "/api/v1/nodes", {"spec": {"podCIDR": "x"}}) == [
        f'spec.podCIDRs[0]: Invalid value: "x": {bad}'
    ]
    api.ok("POST", "/api/v1/nodes", {"kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}})
    change = {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}
    answer = api.send("PATCH", "/api/v1/nodes/n", change, content=MERGE)
    assert 'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid' in answer.message


def test_config_map_and_secret_over_one_mebibyte_are_refused(api: Http) -> None:
    half = "x" * 600_000
    assert creation_errors(api, "ConfigMap", f"{BASE}/configmaps", {"data": {"a": half, "b": half}}) == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]
    assert creation_errors(api, "Secret", f"{BASE}/secrets", {"stringData": {"a": half, "b": half}}) == [
        "data: Too long: may not be more than 1048576 bytes"
    ]


def test_docker_config_secret_must_be_a_json_object(api: Http) -> None:
    def found(text: str) -> list[str]:
        members = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": text}}
        return creation_errors(api, "Secret", f"{BASE}/secrets", members)

    path = 'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"'
    assert found("{") == [f"{path}: unexpected end of JSON input"]
    assert found("[]") == [f"{path}: json: cannot unmarshal array into Go value of type map[string]interface {{}}"]


def test_pod_is_assigned_to_node_only_by_binding(api: Http) -> None:
    api.ok("POST", f"{BASE}/pods", {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}})
    assert api.send("PATCH", f"{BASE}/pods/p", {"spec": {"nodeName": "n"}}, content=MERGE).status == 422
    managers = api.ok("GET", f"{BASE}/pods/p")["metadata"]["managedFields"]

    def bind(metadata: Any, where: Any) -> Answer:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": where}
        return api.send("POST", f"{BASE}/pods/p/binding", body)

    assert bind({"name": "q"}, {"name": "n"}).message == "name in URL does not match name in Binding object"
    assert bind({"name": "p"}, {}).message == "target.name: Required value"
    assert bind({"name": "p", "labels": {"l": "m"}}, {"name": "n"}).status == 201
    bound = api.ok("GET", f"{BASE}/pods/p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["labels"]) == ("n", {"l": "m"})
    assert (bound["metadata"]["generation"], bound["metadata"]["managedFields"]) == (1, managers)
    assert [each["type"] for each in bound["status"]["conditions"]] == ["PodScheduled"]


REQUIREMENT_WITH_INVALID_OPERATOR = {"key": "a", "operator": "X"}
EMPTY_LABEL_SELECTOR: Any = {"labelSelector": {}}


@pytest.mark.parametrize(
    ("container", "found"),
    [
        (
            {"livenessProbe": {"httpGet": {"port": "A b", "scheme": "X"}, "successThreshold": 2}},
            [
                'livenessProbe.httpGet.port: Invalid value: "A b": must contain only alpha-numeric characters (a-z,'
                " 0-9), and hyphens (-)",
                'livenessProbe.httpGet.scheme: Unsupported value: "X": supported values: "HTTP", "HTTPS"',
                "livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            {"readinessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}, "timeoutSeconds": -1}},
            [
                "readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                "readinessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 100}}}},
            [
                "lifecycle.preStop.sleep: Invalid value: 100: must be non-negative and less than"
                " terminationGracePeriodSeconds (30)"
            ],
        ),
        (
            {"securityContext": {"runAsUser": -1, "seccompProfile": {"type": "Localhost"}}},
            [
                "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is"
                " Localhost",
            ],
        ),
    ],
)
def test_probes_hooks_and_security_contexts_are_validated(api: Http, container: Any, found: list[str]) -> None:
    spec = {"containers": [{**CONTAINER, **container}]}
    assert creation_errors(api, "Pod", f"{BASE}/pods", {"spec": spec}) == [
        f"spec.containers[0].{text}" for text in found
    ]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 0, "preference": {"matchExpressions": [REQUIREMENT_WITH_INVALID_OPERATOR]}}
                        ]
                    }
                }
            },
            [
                f"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].{text}"
                for text in (
                    "weight: Invalid value: 0: must be in the range 1-100",
                    'preference.matchExpressions[0].operator: Invalid value: "X": not a valid selector operator',
                )
            ],
        ),
        (
            {"topologySpreadConstraints": [{**EMPTY_LABEL_SELECTOR, "topologyKey": "a", "whenUnsatisfiable": "X"}]},
            [
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "X": supported values:'
                ' "DoNotSchedule", "ScheduleAnyway"',
            ],
        ),
        ({"dnsPolicy": "None"}, ["dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
        (
            {"hostAliases": [{"ip": "x"}]},
            [
                'hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
            ],
        ),
        (
            {"initContainers": [{"name": "i", "image": "i", "startupProbe": {"exec": {"command": ["a"]}}}]},
            [
                "initContainers[0].startupProbe: Forbidden: may not be set for init containers without"
                " restartPolicy=Always"
            ],
        ),
    ],
)
def test_pod_scheduling_and_dns_fields_are_validated(api: Http, spec: Any, found: list[str]) -> None:
    texts = creation_errors(api, "Pod", f"{BASE}/pods", {"spec": {"containers": [CONTAINER], **spec}})
    assert texts == [f"spec.{text}" for text in found]


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        ({}, ["name: Required value"]),
        (
            {"name": "a=b"},
            [
                'name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII'
                " characters other than '='"
            ],
        ),
        (
            {"name": "a", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ['valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
        ),
        (
            {"name": "a", "valueFrom": {"configMapKeyRef": {"name": "m"}}},
            ["valueFrom.configMapKeyRef.key: Required value"],
        ),
        (
            {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}},
            [
                'valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not'
                " supported: spec.x"
            ],
        ),
        (
            {"name": "a", "valueFrom": {"resourceFieldRef": {}}},
            ["valueFrom.resourceFieldRef.resource: Required value"],
        ),
    ],
)
def test_environment_variables_are_validated(api: Http, variable: Any, found: list[str]) -> None:
    spec = {"containers": [{**CONTAINER, "env": [variable]}]}
    texts = creation_errors(api, "Pod", f"{BASE}/pods", {"spec": spec})
    assert texts == [f"spec.containers[0].env[0].{text}" for text in found]


def test_env_from_sources_are_validated(api: Http) -> None:
    spec = {"containers": [{**CONTAINER, "envFrom": [{"configMapRef": {}}, {}]}]}
    assert creation_errors(api, "Pod", f"{BASE}/pods", {"spec": spec}) == [
        "spec.containers[0].envFrom[0].configMapRef.name: Required value",
        'spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
    ]


def test_host_path_type_is_validated(api: Http) -> None:
    spec = {"containers": [CONTAINER], "volumes": [{"name": "v", "hostPath": {"path": "/a", "type": "x"}}]}
    (text,) = creation_errors(api, "Pod", f"{BASE}/pods", {"spec": spec})
    assert text.startswith('spec.volumes[0].hostPath.type: Unsupported value: "x": supported values: ')
