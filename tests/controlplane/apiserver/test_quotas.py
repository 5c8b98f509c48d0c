"""Quotas and limit ranges: refusals, the defaults that pods get, and the recorded usage."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.controlplane.apiserver.running import CLAIMS, MERGE, Http, Plain, Running, device_class
from tests.dra_scenarios import scenario

CORE = "/api/v1/namespaces/default"
QUOTAS, PODS, RANGES = f"{CORE}/resourcequotas", f"{CORE}/pods", f"{CORE}/limitranges"


def _object(kind: str, name: str, spec: Plain | None = None, version: str = "v1") -> Plain:
    made: Plain = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    return made if spec is None else made | {"spec": spec}


def _pod(name: str, requests: Plain | None = None, limits: Plain | None = None, **spec: Any) -> Plain:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return _object("Pod", name, {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec})


def _claim(name: str, *requests: Plain) -> Plain:
    named = [{"name": f"r{index}", **each} for index, each in enumerate(requests)]
    return _object("ResourceClaim", name, {"devices": {"requests": named}}, "resource.k8s.io/v1")


def _wait_until_used(api: Http, used: Mapping[str, str], name: str = "q") -> None:
    with api.watch(QUOTAS, fieldSelector=f"metadata.name={name}", timeoutSeconds="60") as events:
        last: Plain = {}
        for event in events:
            last = event["object"].get("status", {}).get("used")
            if last == used:
                return
    raise AssertionError(last)


def _create_quota(api: Http, hard: Mapping[str, str], **spec: Any) -> None:
    """Create a quota, and wait until its usage is recorded."""
    api.ok("POST", QUOTAS, _object("ResourceQuota", "q", {"hard": {**hard}, **spec}))
    _wait_until_used(api, dict.fromkeys(hard, "0"))


def test_pod_over_quota_is_refused_until_usage_is_released(api: Http) -> None:
    _create_quota(api, {"pods": "2", "requests.cpu": "1", "requests.example.com/gpu": "3"})
    api.ok("POST", PODS, _pod("a", {"cpu": "500m"}, {"example.com/gpu": "2"}))
    used = api.ok("GET", f"{QUOTAS}/q")["status"]["used"]
    assert used == {"pods": "1", "requests.cpu": "500m", "requests.example.com/gpu": "2"}, "before it was counted again"
    for options in ({}, {"dryRun": "All"}):
        refused = api.send("POST", PODS, _pod("b", {"cpu": "600m"}, {"example.com/gpu": "2"}), **options)
        assert refused.status == 403
        assert refused.message == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m,requests.example.com/gpu=2,'
            " used: requests.cpu=500m,requests.example.com/gpu=2, limited: requests.cpu=1,requests.example.com/gpu=3"
        )
    silent = api.send("POST", PODS, _pod("b"))
    assert silent.message == 'pods "b" is forbidden: failed quota: q: must specify requests.cpu for: c'
    api.ok("PATCH", f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, content=MERGE)
    _wait_until_used(api, dict.fromkeys(used, "0"))
    api.ok("POST", PODS, _pod("b", {"cpu": "600m"}, {"example.com/gpu": "2"}))


def test_dry_run_and_duplicate_name_are_not_charged(api: Http) -> None:
    _create_quota(api, {"count/configmaps": "2"})
    maps = f"{CORE}/configmaps"
    api.ok("POST", maps, _object("ConfigMap", "a"))
    api.ok("POST", maps, _object("ConfigMap", "b"), dryRun="All")
    assert api.send("POST", maps, _object("ConfigMap", "a")).status == 409
    assert api.ok("GET", f"{QUOTAS}/q")["status"]["used"] == {"count/configmaps": "1"}


@scenario(243)
@pytest.mark.parametrize(
    ("requests", "name", "used"),
    [
        ([{"exactly": {"deviceClassName": "gpu"}}] * 2, "gpu.deviceclass.resource.k8s.io/devices", "2"),
        ([{"exactly": {"deviceClassName": "gpu", "count": 4}}], "requests.example.com/gpu", "4"),
        (
            [{"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}],
            "requests.deviceclass.resource.kubernetes.io/gpu",
            "32",
        ),
        (
            [
                {
                    "firstAvailable": [
                        {"name": "few", "deviceClassName": "gpu", "count": 2},
                        {"name": "many", "deviceClassName": "gpu", "count": 3},
                        {"name": "other", "deviceClassName": "nic", "count": 9},
                    ]
                }
            ],
            "gpu.deviceclass.resource.k8s.io/devices",
            "3",
        ),
        ([], "count/resourceclaims.resource.k8s.io", "1"),
    ],
)
def test_claim_is_charged_by_device_class(api: Http, requests: list[Plain], name: str, used: str) -> None:
    made = device_class("gpu")
    made["spec"]["extendedResourceName"] = "example.com/gpu"
    api.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", made)
    _create_quota(api, {name: used})
    api.ok("POST", CLAIMS, _claim("a", *requests))
    _wait_until_used(api, {name: used})
    refused = api.send("POST", CLAIMS, _claim("b", *requests))
    assert (
        f"exceeded quota: q, requested: {name}={used}, used: {name}={used}, limited: {name}={used}" in refused.message
    )


def test_extended_resource_claim_is_charged_only_beyond_its_pod(api: Http) -> None:
    """A claim that a scheduler created for the pod's extended resources."""
    made = device_class("gpu")
    made["spec"]["extendedResourceName"] = "example.com/gpu"
    api.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", made)
    name = "requests.example.com/gpu"
    _create_quota(api, {name: "3"})
    pod = api.ok("POST", PODS, _pod("a", limits={"example.com/gpu": "2"}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod["metadata"]["uid"], "controller": True}
    claim = _claim("a", {"exactly": {"deviceClassName": "gpu", "count": 3}})
    claim["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    api.ok("POST", CLAIMS, claim)
    _wait_until_used(api, {name: "3"})


def test_quota_selects_pods_by_priority_class(api: Http) -> None:
    wanted = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    _create_quota(api, {"pods": "0"}, scopeSelector={"matchExpressions": [wanted]})
    api.ok("POST", PODS, _pod("a"))
    refused = api.send("POST", PODS, _pod("b", priorityClassName="system-node-critical"))
    assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in refused.message


def test_quota_selects_pods_by_scope(api: Http) -> None:
    _create_quota(api, {"pods": "1"}, scopes=["Terminating"])
    api.ok("POST", PODS, _pod("a"))
    api.ok("POST", PODS, _pod("b", activeDeadlineSeconds=60))
    _wait_until_used(api, {"pods": "1"})
    refused = api.send("PATCH", f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 60}}, content=MERGE)
    assert "exceeded quota: q" in refused.message, "it comes under the quota by that"


def test_service_update_is_charged_for_node_ports(api: Http) -> None:
    _create_quota(api, {"services.nodeports": "1"})
    services = f"{CORE}/services"
    api.ok("POST", services, _object("Service", "a", {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}))
    refused = api.send("PATCH", f"{services}/a", {"spec": {"type": "NodePort"}}, content=MERGE)
    assert "requested: services.nodeports=2, used: services.nodeports=0" in refused.message


def test_quota_usage_stays_unknown_without_controllers() -> None:
    """A real server enforces a quota only after a controller has recorded its usage."""
    with Running(collect_after=None) as server, server.http() as alone:
        quota = _object("ResourceQuota", "q", {"hard": {"pods": "0"}})
        alone.ok("POST", QUOTAS, quota)
        alone.ok("POST", PODS, _pod("a"))
        alone.ok("PATCH", f"{QUOTAS}/q/status", {"status": {"hard": {"pods": "0"}}}, content=MERGE)
        refused = alone.send("POST", PODS, _pod("b"))
        assert refused.message == 'pods "b" is forbidden: status unknown for quota: q, resources: pods'


def test_limit_range_sets_default_requests_and_limits(api: Http) -> None:
    limit = {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    api.ok("POST", RANGES, _object("LimitRange", "usual", {"limits": [limit]}))
    made = api.ok("POST", PODS, _pod("a", {"memory": "64Mi"}))
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c; cpu, memory limit for"
        " container c"
    }
    assert made["status"]["qosClass"] == "Burstable"
    nameless = api.send("POST", PODS, _object("Pod", "b", {"containers": [{"image": "i"}]}))
    assert nameless.message == 'Pod "b" is invalid: spec.containers[0].name: Required value'


@pytest.mark.parametrize(
    ("limit", "requests", "limits", "expected"),
    [
        ({"min": {"cpu": "1"}}, {"memory": "1"}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"min": {"cpu": "1"}}, {"cpu": "500m"}, {}, "minimum cpu usage per Pod is 1, but request is 500m"),
        ({"max": {"cpu": "1"}}, {"cpu": "500m"}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"cpu": "500m"}, {"cpu": "2"}, "maximum cpu usage per Pod is 1, but limit is 2"),
        (
            {"maxLimitRequestRatio": {"cpu": "1500m"}},
            {"cpu": "500m"},
            {"cpu": "1"},
            "cpu max limit to request ratio per Pod is 1500m, but provided ratio is 2.000000",
        ),
        (
            {"min": {"cpu": "1"}, "max": {"memory": "1Ki"}},
            {"cpu": "500m"},
            {},
            "[minimum cpu usage per Pod is 1, but request is 500m,"
            " maximum memory usage per Pod is 1Ki.  No limit is specified]",
        ),
    ],
)
def test_pod_outside_limit_range_is_refused(
    api: Http, limit: Plain, requests: Plain, limits: Plain, expected: str
) -> None:
    api.ok("POST", RANGES, _object("LimitRange", "bounds", {"limits": [{"type": "Pod", **limit}]}))
    refused = api.send("POST", PODS, _pod("a", requests, limits))
    assert refused.status == 403
    assert refused.message == f'pods "a" is forbidden: {expected}'


def test_volume_claim_outside_limit_range_is_refused(api: Http) -> None:
    limit = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    api.ok("POST", RANGES, _object("LimitRange", "bounds", {"limits": [limit]}))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    refused = api.send("POST", f"{CORE}/persistentvolumeclaims", _object("PersistentVolumeClaim", "a", spec))
    assert "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi" in refused.message


def test_limit_range_without_name_gets_generated_name(api: Http) -> None:
    """The server generates a name for this kind only."""
    made = api.ok("POST", RANGES, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {}, "spec": {"limits": []}})
    assert len(made["metadata"]["name"]) == 36
    assert api.ok("GET", f"{RANGES}/{made['metadata']['name']}") == made
