"""Complete sample objects as plain values, one per kind, with every field that the validation rules read."""

import copy
from functools import partial
from typing import Any

from resourceapi.objects import KubernetesObject, read_object, validate
from resourceapi.objects.release import RELEASES

WRITTEN = RELEASES["1.36"]
"""The release whose validation rules are written as code. For those of 1.37 see test_releases.py."""
validate_create = partial(validate.validate_create, release=WRITTEN)
validate_update = partial(validate.validate_update, release=WRITTEN)
validate_status_update = partial(validate.validate_status_update, release=WRITTEN)

V1 = "resource.k8s.io/v1"

DEVICE_CLASS: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com", "labels": {"tier": "fast"}},
    "spec": {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Shared", "shares": 2}}}],
        "extendedResourceName": "example.com/gpu",
    },
}

CLAIM_SPEC: dict[str, Any] = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "gpu.example.com",
                    "selectors": [{"cel": {"expression": "true"}}],
                    "allocationMode": "ExactCount",
                    "count": 2,
                    "tolerations": [{"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"}],
                    "capacity": {"requests": {"memory": "10Gi"}},
                },
            },
            {
                "name": "nic",
                "firstAvailable": [
                    {"name": "fast", "deviceClassName": "fast", "allocationMode": "ExactCount", "count": 1},
                    {"name": "any", "deviceClassName": "nic", "allocationMode": "All"},
                ],
            },
        ],
        "constraints": [{"requests": ["gpu", "nic/fast"], "matchAttribute": "example.com/numa"}],
        "config": [{"requests": ["gpu"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": None}}}],
    }
}

CLAIM: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "ResourceClaim",
    "metadata": {"name": "claim", "namespace": "default"},
    "spec": CLAIM_SPEC,
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "gpu",
                        "driver": "gpu.example.com",
                        "pool": "node-1",
                        "device": "gpu-0",
                        "shareID": "a1b2c3d4-0000-4000-8000-000000000000",
                        "consumedCapacity": {"memory": "10Gi"},
                    }
                ],
                "config": [
                    {"source": "FromClass", "opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Shared"}}}
                ],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
                ]
            },
            "allocationTimestamp": "2026-01-02T03:04:05Z",
        },
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "1-2-3"}],
        "devices": [
            {
                "driver": "gpu.example.com",
                "pool": "node-1",
                "device": "gpu-0",
                "shareID": "a1b2c3d4-0000-4000-8000-000000000000",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": "2026-01-02T03:04:05Z",
                        "reason": "Prepared",
                        "message": "all is well",
                    }
                ],
                "data": {"serial": "x"},
                "networkData": {"interfaceName": "eth1", "ips": ["10.0.0.1/24"], "hardwareAddress": "aa:bb"},
            }
        ],
    },
}

TEMPLATE: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "template", "namespace": "default"},
    "spec": {"metadata": {"labels": {"from": "template"}}, "spec": CLAIM_SPEC},
}

SLICE: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "ResourceSlice",
    "metadata": {
        "name": "slice",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "4-5-6", "controller": True}],
    },
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "example.com/numa": {"int": 0},
                    "healthy": {"bool": True},
                    "model": {"string": "A100"},
                    "driverVersion": {"version": "1.2.3"},
                    "links": {"strings": ["gpu-1"]},
                },
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "9Gi", "step": "1Gi"}},
                    },
                    "engines": {"value": "7", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
                },
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}],
                "taints": [{"key": "example.com/broken", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}],
                "bindsToNode": True,
                "bindingConditions": ["Attached"],
                "bindingFailureConditions": ["Failed"],
                "allowMultipleAllocations": True,
                "nodeAllocatableResources": {
                    "cpu": {
                        "mapping": {"capacityKey": "memory", "capacityMultiplier": "2"},
                        "overhead": {"perPod": "1"},
                    }
                },
            }
        ],
    },
}

COUNTER_SLICE: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "ResourceSlice",
    "metadata": {"name": "counters"},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 2},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
        },
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
    },
}

TAINT_RULE: dict[str, Any] = {
    "apiVersion": V1,
    "kind": "DeviceTaintRule",
    "metadata": {"name": "rule"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
        "taint": {
            "key": "example.com/maintenance",
            "value": "planned",
            "effect": "NoExecute",
            "timeAdded": "2026-01-02T03:04:05Z",
        },
    },
    "status": {},
}

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"zone": "a"}},
    "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
}

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "main", "resources": {"limits": {"example.com/gpu": "1"}, "claims": [{"name": "gpu"}]}}
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
    },
    "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "claim"}]},
}

NAMESPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default"},
    "status": {"phase": "Active"},
}

ALL = {
    "class": DEVICE_CLASS,
    "claim": CLAIM,
    "template": TEMPLATE,
    "slice": SLICE,
    "counters": COUNTER_SLICE,
    "rule": TAINT_RULE,
    "node": NODE,
    "pod": POD,
    "namespace": NAMESPACE,
}


def changed(sample: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a sample with another value at a path like `spec.devices.requests.0.name`; `...` removes the field."""
    result = copy.deepcopy(sample)
    *steps, last = path.split(".")
    here: Any = result
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here[step]
    if value is ...:
        del here[last]
    elif isinstance(here, list):
        here[int(last)] = value
    else:
        here[last] = value
    return result


def build_object(sample: dict[str, Any], path: str = "", value: Any = None) -> KubernetesObject:
    """The object of a sample, with a changed value if there is a path."""
    return read_object(changed(sample, path, value) if path else sample)


def check_create(sample: dict[str, Any], path: str, value: Any, expected: list[str]) -> None:
    """Check the errors of a changed sample. Expected texts can omit a common ending."""
    check_errors([str(error) for error in validate_create(build_object(sample, path, value))], expected)


def check_errors(found: list[str], expected: list[str]) -> None:
    """Check that each error starts with its expected text."""
    assert len(found) == len(expected), found
    for actual, start in zip(found, expected, strict=True):
        assert actual.startswith(start)
