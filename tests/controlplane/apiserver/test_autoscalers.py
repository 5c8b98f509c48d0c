"""HorizontalPodAutoscalers in both versions. Expected values are those of kube-apiserver 1.37.1."""

import json
from typing import Any

import pytest

from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Plain

OLD = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
NEW = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
PREFIX = "autoscaling.alpha.kubernetes.io"
CPU: Plain = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
PODS: Plain = {
    "type": "Pods",
    "pods": {"metric": {"name": "m", "selector": {"matchLabels": {"a": "<b>"}}}, "target": {"averageValue": "1500m"}},
}


def autoscaler(**spec: Any) -> Plain:
    """A valid autoscaler in v1."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target, **spec},
    }


def test_missing_share_of_the_cpu_gets_the_default(api: Http) -> None:
    made = api.ok("POST", OLD, autoscaler())
    assert (made["spec"]["targetCPUUtilizationPercentage"], made["spec"]["minReplicas"]) == (80, 1)
    assert api.ok("GET", f"{NEW}/a")["spec"]["metrics"] == [CPU]


def test_other_metrics_and_behavior_are_in_annotations_of_v1(api: Http) -> None:
    api.ok("POST", OLD, autoscaler(targetCPUUtilizationPercentage=50))
    metrics = [CPU, {**PODS, "pods": {**PODS["pods"], "target": {"type": "AverageValue", "averageValue": "1500m"}}}]
    change = {"spec": {"metrics": metrics, "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3}}}}
    api.ok("PATCH", f"{NEW}/a", change, content=MERGE)
    old = api.ok("GET", f"{OLD}/a")
    assert old["spec"]["targetCPUUtilizationPercentage"] == 80
    assert old["metadata"]["annotations"] == {
        f"{PREFIX}/behavior": '{"ScaleUp":{"StabilizationWindowSeconds":3,"SelectPolicy":"Max","Policies":['
        '{"Type":"Pods","Value":4,"PeriodSeconds":15},{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":'
        '{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,'
        '"PeriodSeconds":15}],"Tolerance":null}}',
        f"{PREFIX}/metrics": '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1500m","selector":'
        '{"matchLabels":{"a":"\\u003cb\\u003e"}}}}]',
    }
    old["metadata"]["labels"] = {"c": "d"}
    api.ok("PUT", f"{OLD}/a", old)
    new = api.ok("GET", f"{NEW}/a")
    assert "annotations" not in new["metadata"]
    assert [each["type"] for each in new["spec"]["metrics"]] == ["Pods", "Resource"]  # the CPU's comes last


def test_status_of_v2_is_in_annotations_of_v1(api: Http) -> None:
    api.ok("POST", OLD, autoscaler())
    current = {
        "type": "Resource",
        "resource": {"name": "cpu", "current": {"averageUtilization": 44, "averageValue": "1"}},
    }
    condition = {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"currentReplicas": 1, "desiredReplicas": 2, "currentMetrics": [current], "conditions": [condition]}
    api.ok("PATCH", f"{NEW}/a/status", {"status": status}, content=MERGE)
    old = api.ok("GET", f"{OLD}/a")
    assert old["status"] == {"currentReplicas": 1, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 44}
    kept = {name.partition("/")[2]: json.loads(text) for name, text in old["metadata"]["annotations"].items()}
    assert kept["conditions"] == [condition]
    resource = {"name": "cpu", "currentAverageUtilization": 44, "currentAverageValue": "1"}
    assert kept["current-metrics"] == [{"type": "Resource", "resource": resource}]


def test_annotations_of_another_type_are_ignored(api: Http) -> None:
    wrong = {"metrics": "{", "behavior": "[1]", "conditions": '[{"type": 1}]', "current-metrics": '"x"'}
    value = autoscaler()
    value["metadata"]["annotations"] = {f"{PREFIX}/{name}": text for name, text in wrong.items()}
    api.ok("POST", OLD, value)
    new = api.ok("GET", f"{NEW}/a")
    assert ("annotations" in new["metadata"], new["spec"]["metrics"], "behavior" in new["spec"]) == (
        False,
        [CPU],
        False,
    )


def test_field_owners_are_those_of_the_version_of_each_write(api: Http) -> None:
    """A share of the CPU that is changed in v2 loses its owner in v1."""
    api.ok("PATCH", f"{OLD}/a?fieldManager=m", autoscaler(targetCPUUtilizationPercentage=30), content=APPLY)
    owned = api.ok("GET", f"{OLD}/a")["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert sorted(owned) == ["f:maxReplicas", "f:scaleTargetRef", "f:targetCPUUtilizationPercentage"]
    changed = api.ok("PATCH", f"{NEW}/a", {"spec": {"metrics": [CPU]}}, content=MERGE)
    first, second = (each["fieldsV1"]["f:spec"] for each in changed["metadata"]["managedFields"])
    assert (sorted(first), sorted(second)) == (["f:maxReplicas", "f:scaleTargetRef"], ["f:metrics"])


@pytest.mark.parametrize(
    "behavior", [{"ScaleUp": {}}, {"ScaleUp": {"Policies": []}}, {"ScaleUp": {"Policies": [None]}}]
)
def test_behavior_in_v1_must_have_policies(api: Http, behavior: Plain) -> None:
    """In v2, missing policies get defaults; v1 has none."""
    value = autoscaler()
    value["metadata"]["annotations"] = {f"{PREFIX}/behavior": json.dumps(behavior)}
    refused = api.send("POST", OLD, value)
    assert (refused.status, "spec.behavior.scaleUp.policies" in refused.message) == (422, True)
    new = {**autoscaler(), "apiVersion": "autoscaling/v2"}
    new["spec"]["behavior"] = {"scaleUp": {}}
    assert len(api.ok("POST", NEW, new)["spec"]["behavior"]["scaleUp"]["policies"]) == 2
