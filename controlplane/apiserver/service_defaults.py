"""What kinds around pods, of networks and storage, say where their author did not.

Source: k8s.io/kubernetes pkg/apis/core/v1, discovery/v1, networking/v1, storage/v1 and autoscaling/v2, defaults.go. No
address is given to a service.
"""

from collections.abc import Callable, Mapping

from controlplane.apiserver.kinds import Plain

_SERVICE: Plain = {"type": "ClusterIP", "sessionAffinity": "None"}
_DRIVER: Plain = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "storageCapacity": False,
    "volumeLifecycleModes": ["Persistent"],
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_CPU: Plain = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_TCP = {"protocol": "TCP"}


def with_claim_defaults(claim: Plain) -> Plain:
    """A claim for storage."""
    return {
        **claim,
        "spec": {"volumeMode": "Filesystem", **claim["spec"]},
        "status": {"phase": "Pending", **claim["status"]},
    }


def _service(obj: Plain) -> Plain:
    spec = {**_SERVICE, **obj["spec"]}
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("ports"):
        spec["ports"] = [
            {**_TCP, **each, "targetPort": each.get("targetPort") or each.get("port")} for each in spec["ports"]
        ]
    return {**obj, "spec": spec}


def _endpoints(obj: Plain) -> Plain:
    if not obj.get("subsets"):
        return obj
    return {
        **obj,
        "subsets": [
            {**each, "ports": [{**_TCP, **port} for port in each["ports"]]} if each.get("ports") else each
            for each in obj["subsets"]
        ],
    }


def _endpoint_slice(obj: Plain) -> Plain:
    return {**obj, "ports": [{"name": "", **_TCP, **port} for port in obj["ports"]]} if obj.get("ports") else obj


def _network_policy(obj: Plain) -> Plain:
    spec = {**obj["spec"]}
    for way in ("ingress", "egress"):
        if spec.get(way):
            spec[way] = [
                {**rule, "ports": [{**_TCP, **port} for port in rule["ports"]]} if rule.get("ports") else rule
                for rule in spec[way]
            ]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**obj, "spec": spec}


FILLS: Mapping[str, Callable[[Plain], Plain]] = {
    "CSIDriver": lambda obj: {**obj, "spec": {**_DRIVER, **obj["spec"]}},
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "HorizontalPodAutoscaler": lambda obj: {**obj, "spec": {"minReplicas": 1, "metrics": [_CPU], **obj["spec"]}},
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": with_claim_defaults,
    "PriorityClass": lambda obj: {"preemptionPolicy": "PreemptLowerPriority", **obj},
    "Service": _service,
    "StorageClass": lambda obj: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **obj},
}
"""By kind."""
