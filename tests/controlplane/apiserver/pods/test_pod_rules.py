"""Validation of pods, pod templates and storage claims, with the exact messages of a real API server 1.37.1."""

import json
from typing import Any

import pytest

from controlplane.apiserver.pods.features import without_disabled
from controlplane.apiserver.rules.image_names import pull_policy
from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.rules.test_rules import BASE, CONTAINER, creation_errors
from tests.controlplane.apiserver.running import MERGE, Http

PODS = f"{BASE}/pods"
EMPTY: Any = {"name": "a", "emptyDir": {}}
CLAIM: Any = {"name": "p", "persistentVolumeClaim": {"claimName": "q"}}
MORE = "may not specify more than 1 volume type"
WINDOWS = "cannot be set for a windows pod"
LATER = "cannot be set for an Ephemeral Container"
TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def pod(name: str, **spec: Any) -> Any:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [CONTAINER], **spec}}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (
            {"emptyDir": {"sizeLimit": "-1"}},
            ["emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
        ),
        ({"hostPath": {"path": "a/../b"}}, ["hostPath.path: Invalid value: \"a/../b\": must not contain '..'"]),
        (
            {"secret": {"defaultMode": 512}},
            [
                "secret.secretName: Required value",
                "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            ],
        ),
        (
            {"configMap": {"name": "m", "items": [{"key": "k", "path": "..x"}]}},
            ["configMap.items[0].path: Invalid value: \"..x\": must not start with '..'"],
        ),
        ({"nfs": {"server": "s", "path": "p"}}, ['nfs.path: Invalid value: "p": must be an absolute path']),
        ({"gcePersistentDisk": {}}, ["persistentDisk.pdName: Required value"]),
        ({"persistentVolumeClaim": {}}, ["persistentVolumeClaim.claimName: Required value"]),
        ({"csi": {"driver": "d", "nodePublishSecretRef": {}}}, ["csi.nodePublishSecretRef.name: Required value"]),
        ({"fc": {"targetWWNs": ["w"]}}, ["fc.lun: Required value: lun is required if targetWWNs is specified"]),
        (
            {"flexVolume": {"driver": "d", "options": {"a.k8s.io/b": ""}}},
            [
                'flexVolume.options[a.k8s.io/b]: Invalid value: "a.k8s.io/b": kubernetes.io and k8s.io namespaces'
                " are reserved"
            ],
        ),
        (
            {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}]}},
            [
                'downwardAPI.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values:'
                ' "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
            ],
        ),
        (
            {"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}},
            ["downwardAPI.resourceFieldRef.containerName: Required value"],
        ),
        (
            {
                "ephemeral": {
                    "volumeClaimTemplate": {"metadata": {"name": "n"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
                }
            },
            [
                "ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                "ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                        {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]
                }
            },
            ['projected: Invalid value: "p": conflicting duplicate paths'],
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 1, "path": "t"}}]}},
            [
                "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a"
                " duration less than 10 minutes"
            ],
        ),
        (
            {"projected": {"sources": [{"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}}]}},
            [
                "projected.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath,"
                " keyPath, and certificateChainPath"
            ],
        ),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}},
            ["projected.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified"],
        ),
        (
            {"emptyDir": {}, "downwardAPI": {}, "cephfs": {"monitors": ["m"]}},
            [f"cephFS: Forbidden: {MORE}", f"downwarAPI: Forbidden: {MORE}"],
        ),
        (
            {"image": {"pullPolicy": "X"}},
            [
                "image.reference: Required value",
                'image.pullPolicy: Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never"',
            ],
        ),
    ],
)
def test_invalid_volume_source_is_refused(api: Http, source: Any, found: list[str]) -> None:
    spec = pod("x", volumes=[{"name": "v", **source}])["spec"]
    assert creation_errors(api, "Pod", PODS, {"spec": spec}) == [f"spec.volumes[0].{text}" for text in found]


@pytest.mark.parametrize(
    ("container", "found"),
    [
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "p", "mountPath": "/a"}]},
            ['volumeMounts[1].mountPath: Invalid value: "/a": must be unique'],
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "/b"}]},
            ['volumeMounts.subPath: Invalid value: "/b": must be a relative path'],
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}]},
            [
                "volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to"
                " privileged containers"
            ],
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]},
            ["volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"],
        ),
        (
            {"volumeDevices": [{"name": "a", "devicePath": "/d"}]},
            [
                'volumeDevices[0].name: Invalid value: "a": can only use volume source type of'
                " PersistentVolumeClaim or Ephemeral for block mode"
            ],
        ),
        (
            {"volumeMounts": [{"name": "p", "mountPath": "/d"}], "volumeDevices": [{"name": "p", "devicePath": "/d"}]},
            [
                'volumeMounts[0].name: Invalid value: "p": must not already exist in volumeDevices',
                'volumeMounts[0].mountPath: Invalid value: "/d": must not already exist as a path in volumeDevices',
                'volumeDevices[0].name: Invalid value: "p": must not already exist in volumeMounts',
                'volumeDevices[0].devicePath: Invalid value: "/d": must not already exist as a path in volumeMounts',
            ],
        ),
        ({"image": " i"}, ['image: Invalid value: " i": must not have leading or trailing whitespace']),
        (
            {"resizePolicy": [{"resourceName": "x", "restartPolicy": "NotRequired"}]},
            ['resizePolicy: Unsupported value: "x": supported values: "cpu", "memory"'],
        ),
        (
            {"restartPolicyRules": [{"action": "Restart"}]},
            [
                "restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                "restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
        ),
        (
            {"resources": {"limits": {"hugepages-2Mi": "3Mi"}}},
            [
                'resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                " hugepages-2Mi",
                'resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                " hugepages-2Mi",
                "resources: Forbidden: HugePages require cpu or memory",
            ],
        ),
        (
            {"resources": {"claims": [{"name": "c"}, {"name": "c", "request": "r"}, {"name": "z"}]}},
            [
                'resources.claims[1]: Duplicate value: "c"',
                'resources.claims[2]: Not found: "z": must be one of the names in pod.spec.resourceClaims: c',
            ],
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Localhost"}}},
            [
                "securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type"
                " is Localhost"
            ],
        ),
        (
            {"securityContext": {"windowsOptions": {"runAsUserName": "a;b"}}},
            [
                'securityContext.windowsOptions.runAsUserName: Invalid value: "a;b": runAsUserName\'s User cannot'
                ' contain the following characters: "/\\:;|=,+*?<>@[]'
            ],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "p", "path": "f"}}}]},
            ['env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "p": referenced volume must be of type emptyDir'],
        ),
    ],
)
def test_invalid_container_is_refused(api: Http, container: Any, found: list[str]) -> None:
    spec = {"containers": [{**CONTAINER, **container}], "volumes": [EMPTY, CLAIM]}
    spec["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    assert creation_errors(api, "Pod", PODS, {"spec": spec}) == [f"spec.containers[0].{text}" for text in found]


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"os": {"name": "x"}}, ['os: Unsupported value: "x": supported values: "linux", "windows"']),
        (
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            ["securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"],
        ),
        (
            {"os": {"name": "windows"}, "hostPID": True, "securityContext": {"runAsUser": 1}},
            [f"securityContext.runAsUser: Forbidden: {WINDOWS}", f"hostPID: Forbidden: {WINDOWS}"],
        ),
        (
            {"hostUsers": False, "hostPID": True, "hostIPC": True},
            ["HostPID: Forbidden: when `hostUsers` is false", "HostIPC: Forbidden: when `hostUsers` is false"],
        ),
        (
            {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net/ipv4/a", "value": "1"}]}},
            [
                'securityContext.sysctls[0].name: Invalid value: "net/ipv4/a": may not be specified when'
                " 'hostNetwork' is true"
            ],
        ),
        (
            {"hostnameOverride": "a", "setHostnameAsFQDN": True},
            ["hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"],
        ),
        (
            {
                "priorityClassName": "system-node-critical",
                "preemptionPolicy": "PreemptLowerPriority",
                "activeDeadlineSeconds": 0,
            },
            ["activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        (
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            ["nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
        (
            {"resources": {"claims": []}, "os": {"name": "windows"}},
            ["resources: Forbidden: may not be set for a windows pod"],
        ),
        (
            {"overhead": {"cpu": "-1"}},
            ['overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]}
                ]
            },
            [
                "topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector"
                " is not set"
            ],
        ),
        (
            {"ephemeralContainers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]},
            [
                'ephemeralContainers[0].name: Duplicate value: "c"',
                f"ephemeralContainers[0].resources: Forbidden: {LATER}",
                "ephemeralContainers: Forbidden: cannot be set on create",
            ],
        ),
    ],
)
def test_invalid_pod_spec_is_refused(api: Http, members: Any, found: list[str]) -> None:
    assert creation_errors(api, "Pod", PODS, {"spec": pod("x", **members)["spec"]}) == [
        f"spec.{text}" for text in found
    ]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"nodeSelector": {"a": "c"}},
            'spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no'
            " mutations or deletions)",
        ),
        (
            {"affinity": None},
            f"{TERMS}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ),
        (
            {"schedulingGates": [{"name": "b"}]},
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'",
        ),
        (
            {"tolerations": [{"operator": "Exists"}]},
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            {"activeDeadlineSeconds": 11},
            "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value",
        ),
        ({"nodeSelector": {"a": "b", "c": "d"}, "schedulingGates": None, "activeDeadlineSeconds": 9}, ""),
    ],
)
def test_update_of_gated_pod_is_restricted(api: Http, change: Any, found: str) -> None:
    term = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    gates, affinity = [{"name": "a"}], {"nodeAffinity": required}
    body = pod("x", schedulingGates=gates, affinity=affinity, nodeSelector={"a": "b"}, activeDeadlineSeconds=10)
    (condition,) = api.ok("POST", PODS, body)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    answer = api.send("PATCH", f"{PODS}/x", {"spec": change}, content=MERGE)
    if found:
        assert answer.message == f'Pod "x" is invalid: {found}'
    else:
        assert answer.status == 200, answer


def test_priority_class_and_runtime_class_are_applied_to_pods(api: Http) -> None:
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body: Any = {"kind": "PriorityClass", "metadata": {"name": "never"}, "value": 7, "preemptionPolicy": "Never"}
    api.ok("POST", group, {**body, "globalDefault": True})
    assert api.ok("POST", PODS, pod("a"))["spec"]["preemptionPolicy"] == "Never"
    other = {**body, "metadata": {"name": "other"}, "globalDefault": True}
    assert api.send("POST", group, other).message == (
        'priorityclasses.scheduling.k8s.io "other" is forbidden: PriorityClass never is already marked as default. Only'
        " one default can exist"
    )
    refusal = api.send("POST", PODS, pod("b", preemptionPolicy="PreemptLowerPriority"))
    assert "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided" in refusal.message
    heavy = {"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"a": "b"}}}
    runtime = {"kind": "RuntimeClass", "metadata": {"name": "heavy"}, "handler": "h", **heavy}
    api.ok("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    made = api.ok("POST", PODS, pod("c", runtimeClassName="heavy", nodeSelector={"c": "d"}))["spec"]
    assert (made["overhead"], made["nodeSelector"]) == ({"cpu": "250m"}, {"a": "b", "c": "d"})
    for members, why in (
        (
            {"runtimeClassName": "heavy", "overhead": {"cpu": "1"}},
            "Pod's Overhead doesn't match RuntimeClass's defined",
        ),
        ({"overhead": {"cpu": "1"}}, "Pod Overhead set without corresponding RuntimeClass defined"),
    ):
        refusal = api.send("POST", PODS, pod("d", **members))
        assert (refusal.status, refusal.message) == (403, f'pods "d" is forbidden: pod rejected: {why} Overhead')


def test_affinity_selector_copies_pod_labels_of_match_label_keys(api: Http) -> None:
    term = {"topologyKey": "k", "labelSelector": {}, "matchLabelKeys": ["a", "b"], "mismatchLabelKeys": ["c"]}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    body = pod("x", affinity=affinity)
    body["metadata"]["labels"] = {"a": "1", "c": "2"}
    (made,) = api.ok("POST", PODS, body)["spec"]["affinity"]["podAffinity"].popitem()[1]
    assert made["labelSelector"]["matchExpressions"] == [
        {"key": "a", "operator": "In", "values": ["1"]},
        {"key": "c", "operator": "NotIn", "values": ["2"]},
    ]


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        (
            "kubernetes.io/config.mirror",
            "h",
            'Invalid value: "h": must set spec.nodeName if mirror pod annotation is set',
        ),
        ("controller.kubernetes.io/pod-deletion-cost", "01", 'Invalid value: "01": must be a 32bit integer'),
        ("container.apparmor.security.beta.kubernetes.io/z", "", 'Invalid value: "z": container not found'),
    ],
)
def test_invalid_pod_annotation_is_refused(api: Http, key: str, value: str, found: str) -> None:
    body = pod("x")
    body["metadata"]["annotations"] = {key: value}
    assert api.send("POST", PODS, body).message == f'Pod "x" is invalid: metadata.annotations[{key}]: {found}'


def test_pod_template_and_replication_controller_are_validated(api: Http) -> None:
    later = {
        "metadata": {"labels": {"a": "b"}},
        "spec": pod("x", ephemeralContainers=[{**CONTAINER, "name": "e"}])["spec"],
    }
    why = "spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"
    assert creation_errors(api, "PodTemplate", f"{BASE}/podtemplates", {"template": later}) == [f"template.{why}"]
    path, selector = f"{BASE}/replicationcontrollers", {"a": "b"}
    found = creation_errors(api, "ReplicationController", path, {"spec": {"selector": selector, "template": later}})
    assert found == [f"spec.template.{why}"]
    spec = {"selector": {"a": "c"}, "template": {**later, "spec": {"containers": [CONTAINER]}}}
    (found_one,) = creation_errors(api, "ReplicationController", path, {"spec": spec})
    assert found_one.endswith("`selector` does not match template `labels`")
    assert "spec.selector: Required value" in creation_errors(api, "ReplicationController", path, {"spec": {}})


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, ["accessModes: Required value: at least 1 access mode is required", "resources[storage]: Required value"]),
        (
            {"accessModes": ["ReadWriteOncePod", "ReadOnlyMany"], "resources": {"requests": {"storage": "0"}}},
            [
                "accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                'resources[storage]: Invalid value: "0": must be greater than zero',
            ],
        ),
    ],
)
def test_invalid_persistent_volume_claim_is_refused(api: Http, spec: Any, found: list[str]) -> None:
    path = f"{BASE}/persistentvolumeclaims"
    assert creation_errors(api, "PersistentVolumeClaim", path, {"spec": spec}) == [f"spec.{text}" for text in found]


def test_overlapping_volume_paths_warn(api: Http) -> None:
    items = [{"key": "k", "path": "a"}, {"key": "l", "path": "a/b"}]
    answer = api.send("POST", PODS, pod("x", volumes=[{"name": "v", "configMap": {"name": "m", "items": items}}]))
    assert answer.warnings == ['299 - "volume \\"v\\" (ConfigMap \\"m\\"): overlapping paths: \\"a/b\\" with \\"a\\""']


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("registry.example.com:80/a/b", "Always"),
        ("[::1]:5000/a", "Always"),
        ("Host/a", "Always"),
        ("a:1", "IfNotPresent"),
        (f"a@sha256:{'0' * 64}", "IfNotPresent"),
        ("Upper", "IfNotPresent"),
        ("a b", "IfNotPresent"),
        ("a//b", "IfNotPresent"),
        ("a:", "IfNotPresent"),
        ("0" * 64, "IfNotPresent"),
        (f"a:{'t' * 129}", "IfNotPresent"),
    ],
)
def test_default_pull_policy_depends_on_image_tag(image: str, policy: str) -> None:
    """A reference that Go's parser rejects has no tag, so it does not have the tag `latest` either."""
    assert pull_policy(image) == policy


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("1.37", {"hostnameOverride", "volumes", "restartPolicyRules", "clusterTrustBundle", "image"}),
        ("1.36", {"hostnameOverride", "volumes", "restartPolicyRules", "image"}),
        ("1.34", {"volumes"}),
    ],
)
def test_fields_unknown_to_the_release_are_dropped(version: str, kept: set[str]) -> None:
    container = {**CONTAINER, "restartPolicyRules": [{}], "lifecycle": {"stopSignal": "SIGINT"}}
    container["volumeMounts"] = [{"name": "i", "mountPath": "/i"}]
    projected = {"sources": [{"clusterTrustBundle": {"path": "p"}, "secret": {"name": "s"}}]}
    spec = {
        "containers": [container],
        "volumes": [{"name": "i", "image": {"reference": "r"}}, {"name": "p", "projected": projected}],
        "hostnameOverride": "h",
        "schedulingGroup": {},
    }
    found = without_disabled(spec, RELEASES[version])
    text = json.dumps(found)
    names = ("hostnameOverride", "volumes", "restartPolicyRules", "clusterTrustBundle", "schedulingGroup", "lifecycle")
    assert {name for name in (*names, "image") if f'"{name}": ' in text.replace('"image": "i"', "")} == kept
    assert bool(found["containers"][0]["volumeMounts"]) == ("image" in kept)
    assert '"secret"' in text


def test_dropped_field_is_owned_by_its_sender(api: Http) -> None:
    made = api.ok("POST", PODS, pod("x", schedulingGroup={"podGroupName": "g"}))
    assert "schedulingGroup" not in made["spec"]
    assert "f:schedulingGroup" in made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
