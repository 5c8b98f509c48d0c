"""What kinds around pods, of networks and storage, say where their author did not.

Source: k8s.io/kubernetes pkg/apis/core/v1, discovery/v1, networking/v1, storage/v1 and autoscaling/v2, defaults.go.
"""

from collections.abc import Callable, Mapping

from controlplane.apiserver.kinds import Plain
from resourceapi.objects.release import Release

_SERVICE: Plain = {"type": "ClusterIP", "sessionAffinity": "None"}
_STICKY_SECONDS = 10800
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


def with_claim_defaults(claim: Plain) -> Plain:
    """A claim for storage."""
    return {
        **claim,
        "spec": {"volumeMode": "Filesystem", **claim["spec"]},
        "status": {"phase": "Pending", **claim["status"]},
    }


def _service(obj: Plain) -> Plain:
    spec = _with_protocols({**_SERVICE, **obj["spec"]})
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer") or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": _STICKY_SECONDS}})
    if spec.get("ports"):
        spec["ports"] = [{**each, "targetPort": each.get("targetPort") or each.get("port")} for each in spec["ports"]]
    return {**obj, "spec": spec}


def _endpoints(obj: Plain) -> Plain:
    return {**obj, "subsets": list(map(_with_protocols, obj["subsets"]))} if obj.get("subsets") else obj


def _endpoint_slice(obj: Plain) -> Plain:
    filled = _with_protocols(obj)
    return {**filled, "ports": [{"name": "", **port} for port in filled["ports"]]} if filled.get("ports") else filled


def _network_policy(obj: Plain) -> Plain:
    spec = {**obj["spec"]}
    for way in ("ingress", "egress"):
        if spec.get(way):
            spec[way] = list(map(_with_protocols, spec[way]))
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**obj, "spec": spec}


def _with_protocols(holder: Plain) -> Plain:
    """What holds ports, each with its protocol."""
    if not holder.get("ports"):
        return holder
    return {**holder, "ports": [{"protocol": "TCP", **port} for port in holder["ports"]]}


_FILLS: Mapping[str, Callable[[Plain], Plain]] = {
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "HorizontalPodAutoscaler": lambda obj: {**obj, "spec": {"minReplicas": 1, "metrics": [_CPU], **obj["spec"]}},
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": with_claim_defaults,
    "PriorityClass": lambda obj: {"preemptionPolicy": "PreemptLowerPriority", **obj},
    "Service": _service,
    "StorageClass": lambda obj: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **obj},
}


def fills(release: Release) -> Mapping[str, Callable[[Plain], Plain]]:
    """By kind."""
    driver = {**_DRIVER, **({"preventPodSchedulingIfMissing": False} if release.fills_missing_drivers else {})}
    return {**_FILLS, "CSIDriver": lambda obj: {**obj, "spec": {**driver, **obj["spec"]}}}
