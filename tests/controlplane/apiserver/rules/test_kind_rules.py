"""Validation of the kinds that charts, drivers and controllers create, with upstream's messages."""

import copy
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.mutated_objects import find_endpoint, objects
from tests.controlplane.apiserver.running import MERGE, Http, Plain, Running

SEEDS = {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in objects()}


def changed(seed: str, path: str, value: Any) -> Plain:
    """A valid object with one value changed."""
    obj: Any = copy.deepcopy(SEEDS[seed])
    *above, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    holder = obj
    for step in above:
        holder = holder[step]
    holder[last] = value
    made: Plain = obj
    return made


INVALID_VALUES = [
    ("StorageClass/fast", "allowedTopologies.0.matchLabelExpressions.0.values", [], "values: Required value"),
    ("StorageClass/fast", "volumeBindingMode", "x", 'supported values: "Immediate", "WaitForFirstConsumer"'),
    ("CSIDriver/csi.example.com", "spec.tokenRequests.0.expirationSeconds", 5, "a duration less than 10 minutes"),
    ("CSINode/node-1", "spec.drivers.0.nodeID", "", "spec.drivers[0].nodeID: Required value"),
    (
        "CSIStorageCapacity/capacity",
        "capacity",
        "-1",
        '"-1": must be greater than or equal to 0',
    ),
    ("VolumeAttachment/attached", "spec.source", {}, "must specify exactly one of inlineVolumeSpec and"),
    ("VolumeAttributesClass/gold", "parameters", {}, "must contain at least one key/value pair"),
    ("PersistentVolume/local", "spec.nodeAffinity", None, "Local volume requires node affinity"),
    ("PersistentVolume/vol", "spec.nfs", {"server": "s", "path": "/"}, "may not specify more than 1 volume type"),
    (
        "PersistentVolume/vol",
        "spec.capacity",
        {"cpu": "1"},
        '{"cpu":"1"}: supported values: "storage"',
    ),
    ("Ingress/way", "spec.rules.0.http.paths.0.path", "a//b", "must be an absolute path"),
    ("Ingress/way", "spec.rules.0.host", "10.0.0.1", "must be a DNS name, not an IP address"),
    ("Ingress/way", "spec.defaultBackend", {}, "resource or service backend is required"),
    ("IngressClass/nginx", "spec.controller", "x", 'must be a domain-prefixed path (such as \\"acme.io/foo\\")'),
    ("NetworkPolicy/talk", "spec.ingress.0.ports.0.endPort", 1, "must be greater than or equal to `port`"),
    (
        "NetworkPolicy/talk",
        "spec.ingress.0.from.1.ipBlock.except",
        ["11.0.0.0/16"],
        "must be a strict subset of `cidr`",
    ),
    ("NetworkPolicy/talk", "spec.ingress.0.from.1.ipBlock.cidr", "10.0.0.1/8", "must not have bits set beyond"),
    ("IPAddress/10.96.200.7", "metadata.name", "2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
    ("IPAddress/10.96.200.7", "metadata.name", "::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
    ("IPAddress/10.96.200.7", "metadata.name", "10.96.200.07", "must not have leading 0s"),
    ("IPAddress/10.96.200.7", "metadata.name", "10.96.200.0256", "must be a valid IP address"),
    ("IPAddress/10.96.200.7", "spec.parentRef.resource", "", "spec.parentRef.resource: Required value"),
    ("ServiceCIDR/more", "spec.cidrs", ["10.97.0.0/24", "10.98.0.0/24"], "may specify no more than one IP for each IP"),
    ("ServiceCIDR/more", "spec.cidrs.0", "10.97.0.1/24", "must not have bits set beyond the prefix length"),
    ("ServiceCIDR/more", "spec.cidrs.0", "10.97.0.0/024", "must not have leading 0s in IP or prefix length"),
    ("ServiceCIDR/more", "spec.cidrs.1", "::ffff:10.0.0.0/112", "must not have an IPv4-mapped IPv6 address"),
    ("StorageVersionMigration/again", "spec.resource.resource", "A", "a DNS-1035 label must consist of"),
    (
        "ClusterTrustBundle/example.com:signer:all",
        "metadata.name",
        "x",
        "must be named with prefix example.com:signer:",
    ),
    (
        "ClusterTrustBundle/example.com:signer:all",
        "spec.trustBundle",
        "x",
        "at least one trust anchor must be provided",
    ),
    (
        "ClusterTrustBundle/example.com:signer:all",
        "spec.trustBundle",
        "-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n-----BEGIN KEY-----\n-----END KEY-----\n",
        '[spec.trustBundle: Invalid value: "<value omitted>": entry 0 does not parse as X.509, spec.trustBundle:'
        ' Invalid value: "<value omitted>": entry 1 has bad block type: KEY]',
    ),
    ("PodCertificateRequest/request", "spec.stubPKCS10Request", "eA==", "Invalid value: must be a valid PKCS#10 CSR"),
    ("PodCertificateRequest/request", "spec.maxExpirationSeconds", 60, "must be in the range [3600, 7862400]"),
    ("MutatingAdmissionPolicy/change", "spec.mutations.0.patchType", "x", 'values: "ApplyConfiguration", "JSONPatch"'),
    (
        "MutatingAdmissionPolicy/change",
        "spec.mutations.1.jsonPatch.expression",
        "object.x",
        "must evaluate to list(JSONPatch) but got dyn",
    ),
    (
        "MutatingAdmissionPolicy/change",
        "spec.mutations.1.jsonPatch.expression",
        "[JSONPatch{what: 1}]",
        "expected type of field 'what' is '' but provided type is 'int'",
    ),
    ("MutatingAdmissionPolicy/change", "spec.variables", None, "undefined field 'node'"),
    (
        "MutatingAdmissionPolicy/change",
        "spec.variables.0.expression",
        "Object{}",
        "undeclared reference to 'Object' (in container '')",
    ),
    (
        "ClusterTrustBundle/example.com:signer:all",
        "metadata",
        {"generateName": "example.com:signer:"},
        'metadata.generateName: Invalid value: "example.com:signer:": a lowercase RFC 1123 subdomain',
    ),
    ("MutatingAdmissionPolicyBinding/changes", "spec.matchResources.resourceRules.0.operations", ["DELETE"], "DELETE"),
    (
        "ValidatingAdmissionPolicy/policy",
        "spec.validations.0.expression",
        "object.x",
        "must evaluate to bool but got dyn",
    ),
    ("Endpoints/ends", "subsets.0.addresses.0.ip", "127.0.0.1", "may not be in the loopback range"),
    ("EndpointSlice/full", "endpoints.0.addresses", ["::1"], "must be an IPv4 address"),
    ("EndpointSlice/full", "ports.1.name", "http", 'ports[1].name: Duplicate value: "http"'),
    ("ResourceQuota/quota", "spec.hard", {"bananas": "1"}, "must be a standard resource for quota"),
    ("ResourceQuota/quota", "spec.scopes", ["BestEffort", "NotBestEffort"], "conflicting scopes"),
    ("LimitRange/range", "spec.limits.0.min.cpu", "3", "min value 3 is greater than max value 2"),
    ("HorizontalPodAutoscaler/scaler", "spec.metrics.0.resource.target", {"type": "x"}, "must be either Utilization,"),
    ("HorizontalPodAutoscaler/scaler", "spec.scaleTargetRef.apiVersion", "v1", "apiVersion must specify API group"),
    ("HorizontalPodAutoscaler/scaler", "spec.behavior.scaleUp.policies", [], "must specify at least one Policy"),
    ("CronJob/cron", "spec.jobTemplate.spec.parallelism", -1, "spec.jobTemplate.spec.parallelism: Invalid value: -1"),
    ("CronJob/cron", "spec.timeZone", "a/" * 5000 + "a", "unknown time zone"),
    ("Job/job", "spec.podFailurePolicy.rules.0.onExitCodes.values", [3, 2], "must be ordered"),
    ("StatefulSet/states", "spec.volumeClaimTemplates.0.spec.accessModes", [], "at least 1 access mode is required"),
    ("PersistentVolume/azure", "spec.azureDisk.diskURI", "\0", 'diskURI: Unsupported value: "\\x00": supported'),
    ("StatefulSet/states", "spec.serviceName", "A.b", 'spec.serviceName: Invalid value: "A.b": a lowercase RFC 1123'),
    ("StatefulSet/states", "spec.updateStrategy.type", "x", "must be 'RollingUpdate' or 'OnDelete'"),
    ("RuntimeClass/nvidia", "handler", "", "handler: Required value"),
    ("RuntimeClass/nvidia", "handler", "a" * 64, "must be no more than 63 bytes"),
    ("RuntimeClass/nvidia", "scheduling.tolerations", [{"operator": "Exists"}] * 2, "Duplicate value"),
    ("ValidatingWebhookConfiguration/looks", "webhooks.0.sideEffects", "Some", '"None", "NoneOnDryRun"'),
    ("ValidatingWebhookConfiguration/looks", "webhooks.0.name", "a", "a domain with at least three segments"),
    ("ValidatingWebhookConfiguration/looks", "webhooks.1.name", "a.example.com", "webhooks[1].name: Duplicate value"),
    (
        "MutatingWebhookConfiguration/changes",
        "webhooks.0.clientConfig",
        {},
        "exactly one of url or service is required",
    ),
    (
        "MutatingWebhookConfiguration/changes",
        "webhooks.0.clientConfig",
        {"url": "https://[a"},
        """url must be a valid URL: parse "https://[a": missing ']' in host; desired format""",
    ),
    (
        "MutatingWebhookConfiguration/changes",
        "webhooks.0.clientConfig",
        {"url": "http://\u2100.x/"},
        "'https' is the only allowed URL scheme",
    ),
]


@pytest.mark.parametrize(("seed", "path", "value", "why"), INVALID_VALUES, ids=lambda each: str(each)[:60])
def test_invalid_value_is_refused(api: Http, seed: str, path: str, value: Any, why: str) -> None:
    obj = changed(seed, path, value)
    answer = api.send("POST", find_endpoint(api, obj).path, obj, dryRun="All")
    assert answer.status == 422, answer
    assert why in answer.text.replace('\\\\"', '\\"') or why in answer.message, answer.message


RESTRICTED_UPDATES = [
    ("StorageClass/fast", {"parameters": {"a": "c"}}, "parameters: Invalid value: null: field is immutable"),
    ("CSIDriver/csi.example.com", {"spec": {"attachRequired": False}}, "spec.attachedRequired: Invalid value: false"),
    (
        "CSINode/node-1",
        {"spec": {"drivers": [{"name": "csi.example.com", "nodeID": "b"}]}},
        "spec.drivers: Invalid value",
    ),
    (
        "PersistentVolume/share",
        {"spec": {"nfs": {"path": "/other"}}},
        "source is immutable after creation",
    ),
    ("IngressClass/nginx", {"spec": {"controller": "a.b/c"}}, "spec.controller: Invalid value"),
    ("EndpointSlice/full", {"addressType": "FQDN"}, "addressType: Invalid value: null: field is immutable"),
    ("ResourceQuota/quota", {"spec": {"scopes": []}}, "spec.scopes: Invalid value"),
    ("IPAddress/10.96.200.7", {"spec": {"parentRef": {"name": "x"}}}, "spec.parentRef: Invalid value: null: field is"),
    ("ServiceCIDR/more", {"spec": {"cidrs": ["10.97.0.0/24"]}}, "spec.cidrs: Invalid value"),
    (
        "StorageVersionMigration/again",
        {"spec": {"resource": {"group": "x"}}},
        'Invalid value: {"Resource":{"group":"x",',
    ),
    ("ClusterTrustBundle/example.com:signer:all", {"spec": {"signerName": "a.b/c"}}, "spec.signerName: Invalid value"),
    ("PodCertificateRequest/request", {"spec": {"podName": "x"}}, '"PKIXPublicKey":null,"ProofOfPossession":null'),
    ("RuntimeClass/nvidia", {"handler": "other"}, "handler: Invalid value: null: field is immutable"),
    ("RuntimeClass/nvidia", {"handler": "a" * 64}, "must be no more than 63 characters"),
]


@pytest.mark.parametrize(("seed", "patch", "why"), RESTRICTED_UPDATES, ids=lambda each: str(each)[:60])
def test_invalid_update_of_restricted_field_is_refused(api: Http, seed: str, patch: Any, why: str) -> None:
    obj = SEEDS[seed]
    path = find_endpoint(api, obj).path
    api.ok("POST", path, obj)
    answer = api.send("PATCH", f"{path}/{obj['metadata']['name']}", patch, content=MERGE)
    assert (answer.status, why in answer.message) == (422, True), answer


def test_persistent_volume_records_last_phase_transition_time(api: Http) -> None:
    path = "/api/v1/persistentvolumes"
    made = api.ok("POST", path, SEEDS["PersistentVolume/share"])
    assert made["status"] == {"phase": "Pending", "lastPhaseTransitionTime": made["metadata"]["creationTimestamp"]}
    then = {"status": {"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}}
    assert api.ok("PATCH", f"{path}/share/status", then, content=MERGE)["status"] == then["status"]
    released = {"status": {"phase": "Released"}}
    assert api.ok("PATCH", f"{path}/share/status", released, content=MERGE)["status"] != {
        **then["status"],
        **released["status"],
    }


def test_csi_driver_counts_generation_and_warns_about_tokens(api: Http) -> None:
    path, obj = "/apis/storage.k8s.io/v1/csidrivers", SEEDS["CSIDriver/csi.example.com"]
    made = api.send("POST", path, obj)
    assert ["serviceAccountTokenInSecrets is unset" in text for text in made.warnings] == [True]
    assert "generation" not in made.body["metadata"]
    changed = api.send("PATCH", f"{path}/csi.example.com", {"spec": {"podInfoOnMount": False}}, content=MERGE)
    assert (changed.status, changed.warnings, changed.body["metadata"]["generation"]) == (200, [], 1)


def test_list_item_without_its_keys_has_no_owner(api: Http) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{}]}
    path = "/api/v1/namespaces/default/serviceaccounts"
    assert "managedFields" not in api.ok("POST", path, account)["metadata"]
    applied = api.send(
        "PATCH",
        f"{path}/b",
        {**account, "metadata": {"name": "b"}},
        content="application/apply-patch+yaml",
        fieldManager="m",
    )
    assert (applied.status, 'omits all key fields ["name"]' in applied.message) == (500, True)


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_untrackable_update_keeps_managed_fields_since_1_37(release: str) -> None:
    """The update contains an invalid list key. 1.37 keeps the recorded owners, 1.36 drops them."""
    with Running(release=RELEASES[release]) as server, server.http() as api:
        path, account = "/api/v1/namespaces/default/serviceaccounts", SEEDS["ServiceAccount/account"]
        owners = api.ok("POST", path, account)["metadata"]["managedFields"]
        changed = api.ok("PATCH", f"{path}/account", {"secrets": [{}]}, content=MERGE)["metadata"]
        assert changed.get("managedFields") == (owners if release == "1.37" else None)


def test_image_pull_secret_without_name_is_owned_by_empty_key(api: Http) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod |= {"spec": {"containers": [{"name": "c", "image": "i"}], "imagePullSecrets": [{}]}}
    (owner,) = api.ok("POST", "/api/v1/namespaces/default/pods", pod)["metadata"]["managedFields"]
    assert owner["fieldsV1"]["f:spec"]["f:imagePullSecrets"] == {".": {}, 'k:{"name":""}': {}}


def test_missing_status_counts_are_validated_as_zero(api: Http) -> None:
    path, obj = "/apis/apps/v1/namespaces/default/statefulsets", SEEDS["StatefulSet/states"]
    api.ok("POST", path, obj)
    answer = api.send("PATCH", f"{path}/states/status", {"status": {"replicas": -1}}, content=MERGE)
    assert (answer.status, "status.readyReplicas: Invalid value: 0" in answer.message) == (422, True), answer


def test_job_failed_counter_cannot_decrease(api: Http) -> None:
    path, obj = "/apis/batch/v1/namespaces/default/jobs", SEEDS["Job/job"]
    api.ok("POST", path, obj)
    api.ok("PATCH", f"{path}/job/status", {"status": {"failed": 2}}, content=MERGE)
    answer = api.send("PATCH", f"{path}/job/status", {"status": {"failed": 1}}, content=MERGE)
    assert (answer.status, "cannot decrease the failed counter" in answer.message) == (422, True), answer


def test_sender_of_empty_rules_owns_the_list(api: Http) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
    (owner,) = api.ok("POST", path, role)["metadata"]["managedFields"]
    assert owner["fieldsV1"] == {"f:rules": {}}


def test_error_texts_before_1_37() -> None:
    with Running(release=RELEASES["1.36"]) as server, server.http() as api:
        scaler = changed("HorizontalPodAutoscaler/scaler", "spec.minReplicas", 0)
        path = find_endpoint(api, scaler).path
        assert "spec.minReplicas: Invalid value: 0: must be greater than" in api.send("POST", path, scaler).message
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        api.ok("POST", classes, SEEDS["StorageClass/fast"])
        answer = api.send("PATCH", f"{classes}/fast", {"parameters": {"a": "c"}}, content=MERGE)
        assert 'parameters: Invalid value: {"a":"c"}: field is immutable' in answer.message


def test_status_of_service_range_cannot_change_labels(api: Http) -> None:
    path = "/apis/networking.k8s.io/v1/servicecidrs"
    api.ok("POST", path, SEEDS["ServiceCIDR/more"])
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert "labels" not in api.ok("PATCH", f"{path}/more/status", labels, content=MERGE)["metadata"]


def test_migration_cannot_both_succeed_and_fail(api: Http) -> None:
    path = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
    api.ok("POST", path, SEEDS["StorageVersionMigration/again"])
    rest = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"conditions": [{"type": "Succeeded", **rest}, {"type": "Failed", **rest}]}
    refused = api.send("PATCH", f"{path}/again/status", {"status": status}, content=MERGE)
    shown = (
        '[{"type":"Succeeded","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":"m"},'
    )
    assert f"status.conditions: Invalid value: {shown}" in refused.message


@pytest.mark.parametrize("resource", ["clustertrustbundles", "podcertificaterequests", "certificatesigningrequests"])
def test_unknown_field_of_certificates_is_refused_without_the_kind(api: Http, resource: str) -> None:
    refused = api.send("GET", f"/apis/certificates.k8s.io/v1/{resource}?fieldSelector=spec.x%3Dy")
    assert (refused.status, refused.message) == (400, "field label not supported: spec.x")
