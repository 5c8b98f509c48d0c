"""The defaults of kinds for networks, storage, access and admission.

Source: k8s.io/kubernetes pkg/apis/core/v1, discovery/v1, networking/v1, storage/v1, rbac/v1, autoscaling/v2,
flowcontrol/v1 and admissionregistration/v1, defaults.go; kube-aggregator pkg/apis/apiregistration/v1.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.volume_defaults import with_missing, with_source_defaults
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

_DOUBLE: Plain = {"type": "Percent", "value": 100, "periodSeconds": 15}
_PRECEDENCE = 1000
_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))  # allowed in `dataSource`
_EXEMPT: Plain = {"nominalConcurrencyShares": 0, "lendablePercent": 0}
_LIMITED: Plain = {"nominalConcurrencyShares": 30, "lendablePercent": 0}
_QUEUING: Plain = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}
_BEHAVIOR: Plain = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _DOUBLE],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [_DOUBLE]},
}


def with_claim_defaults(claim: Plain) -> Plain:
    """Return a storage claim with its defaults."""
    return {
        **claim,
        "spec": {"volumeMode": "Filesystem", **claim["spec"]},
        "status": {"phase": "Pending", **claim["status"]},
    }


def with_sources(new: Plain, old: Plain | None) -> Plain:
    """Return a storage claim whose `dataSource` and `dataSourceRef` agree."""
    spec, before = {**new["spec"]}, (old or {}).get("spec") or {}
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if (reference or {}).get("namespace") and not (before.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # cross-namespace sources are disabled in every release
        reference = None
    had_one = "dataSource" in before or "dataSourceRef" in before
    if (
        source is not None
        and reference is None
        and not had_one
        and (source.get("apiGroup") or "", source.get("kind")) not in _SOURCES
    ):
        del spec["dataSource"]  # other kinds are ignored, as they always were
    elif source is not None and reference is None:
        spec["dataSourceRef"] = source
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {name: reference[name] for name in ("apiGroup", "kind", "name") if name in reference}
    return {**new, "spec": spec}


def _service(obj: Plain) -> Plain:
    spec = _with_protocols({**_SERVICE, **obj["spec"]})
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer") or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    config = spec.get("sessionAffinityConfig") or {}
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP" and (config.get("clientIP") or {}).get("timeoutSeconds") is None:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _STICKY_SECONDS}}
    if spec.get("ports"):
        spec["ports"] = [{**each, "targetPort": each.get("targetPort") or each.get("port")} for each in spec["ports"]]
    return {**_balanced(obj), "spec": spec} if spec["type"] == "LoadBalancer" else {**obj, "spec": spec}


def _balanced(service: Plain) -> Plain:
    """A service whose load balancer addresses have an IP mode; the default is VIP."""
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    if not balancer.get("ingress"):
        return service
    ingress = [{"ipMode": "VIP", **each} if each.get("ip") else each for each in balancer["ingress"]]
    return {**service, "status": {**service["status"], "loadBalancer": {**balancer, "ingress": ingress}}}


def _autoscaler(obj: Plain) -> Plain:
    spec = {"minReplicas": 1, "metrics": [_CPU], **obj["spec"]}
    if spec.get("behavior") is not None:  # then both directions have defaults
        spec["behavior"] = {way: {**rules, **(spec["behavior"].get(way) or {})} for way, rules in _BEHAVIOR.items()}
    return {**obj, "spec": spec}


def _put_back_policies(held: Plain, read: Plain) -> None:
    """Restore empty lists of scaling policies: defaults replace only missing lists."""
    ways = (held.get("spec") or {}).get("behavior") or {}
    for name, way in ways.items():
        if way is not None and read["spec"]["behavior"][name].get("policies") == []:
            way["policies"] = []


def _flow_schema(obj: Plain) -> Plain:
    return {**obj, "spec": {**obj["spec"], "matchingPrecedence": obj["spec"].get("matchingPrecedence") or _PRECEDENCE}}


def _priority_level(obj: Plain) -> Plain:
    spec = {**obj["spec"]}
    for name, defaults in (("limited", _LIMITED), ("exempt", _EXEMPT)):
        if spec.get(name) is not None:
            spec[name] = with_missing(defaults, spec[name])
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    if response.get("queuing") is not None:
        filled = {**response["queuing"], **{n: response["queuing"].get(n) or value for n, value in _QUEUING.items()}}
        spec["limited"] = {**spec["limited"], "limitResponse": {**response, "queuing": filled}}
    return {**obj, "spec": spec}


def _api_service(obj: Plain) -> Plain:
    service = obj["spec"].get("service")
    return {**obj, "spec": {**obj["spec"], "service": with_missing({"port": 443}, service)}} if service else obj


def with_availability(new: Plain, old: Plain | None) -> Plain:
    """Return a new APIService; it is available if this server serves it itself."""
    if old is not None or new["spec"].get("service"):
        return new
    condition = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": new["metadata"]["creationTimestamp"],
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {**new, "status": {"conditions": [condition]}}


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
    """An object with ports, each with its protocol."""
    if not holder.get("ports"):
        return holder
    return {**holder, "ports": [{"protocol": "TCP", **port} for port in holder["ports"]]}


def _volume(obj: Plain) -> Plain:
    spec = with_source_defaults(obj["spec"])
    return {
        **obj,
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", **spec},
        "status": {"phase": "Pending", **obj["status"]},
    }


def _attachment(obj: Plain) -> Plain:
    source = obj["spec"].get("source") or {}
    inline = source.get("inlineVolumeSpec")
    if not inline:
        return obj
    return {**obj, "spec": {**obj["spec"], "source": {**source, "inlineVolumeSpec": with_source_defaults(inline)}}}


def _limit_range(obj: Plain) -> Plain:
    limits = obj["spec"].get("limits")
    return {**obj, "spec": {**obj["spec"], "limits": list(map(_limits, limits))}} if limits else obj


def _limits(item: Plain) -> Plain:
    """A limit whose defaults for containers are filled in: the limits from `max`, the requests from the limits."""
    if item.get("type") != "Container":
        return item
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    found = {"default": limits, "defaultRequest": requests}
    return {**item, **{name: amounts for name, amounts in found.items() if amounts}}


def with_node_defaults(obj: Plain) -> Plain:
    """Return a node whose podCIDR is the first of its podCIDRs, and whose capacity is allocatable."""
    spec, status = obj["spec"], obj.get("status") or {}
    one, several = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if one and (not several or several[0] != one):
        obj = {**obj, "spec": {**spec, "podCIDRs": [one]}}
    elif several and not one:
        obj = {**obj, "spec": {**spec, "podCIDR": several[0]}}
    if status.get("capacity") and not status.get("allocatable"):
        obj = {**obj, "status": {**status, "allocatable": status["capacity"]}}
    return obj


def _ingress_class(obj: Plain) -> Plain:
    parameters = obj["spec"].get("parameters")
    if parameters is None or parameters.get("scope") is not None:
        return obj
    return {**obj, "spec": {**obj["spec"], "parameters": {**parameters, "scope": "Cluster"}}}


def _role_binding(obj: Plain) -> Plain:
    filled = {**obj, "roleRef": with_missing(_OF_ROLES, obj["roleRef"])}
    if obj.get("subjects"):
        filled["subjects"] = [
            with_missing(_OF_ROLES, each) if each.get("kind") in ("User", "Group") else each for each in obj["subjects"]
        ]
    return filled


def with_policy_defaults(obj: Plain) -> Plain:
    """Return a ValidatingAdmissionPolicy with its defaults."""
    spec = {"failurePolicy": "Fail", **obj["spec"]}
    if spec.get("matchConstraints") is not None:
        spec["matchConstraints"] = _matched(spec["matchConstraints"])
    return {**obj, "spec": spec}


def with_binding_defaults(obj: Plain) -> Plain:
    """Return a ValidatingAdmissionPolicyBinding with its defaults."""
    spec = obj["spec"]
    if spec.get("matchResources") is None:
        return obj
    return {**obj, "spec": {**spec, "matchResources": _matched(spec["matchResources"])}}


def _webhooks(obj: Plain, *, more: Plain) -> Plain:
    return {**obj, "webhooks": [_webhook({**more, **each}) for each in obj["webhooks"]]} if obj.get("webhooks") else obj


def _webhook(webhook: Plain) -> Plain:
    filled = _matched(with_missing({"failurePolicy": "Fail", "timeoutSeconds": 10}, webhook))
    client = filled.get("clientConfig") or {}
    if isinstance(client.get("service"), dict):
        filled["clientConfig"] = {**client, "service": with_missing({"port": 443}, client["service"])}
    return filled


def _matched(match: Plain) -> Plain:
    """The match rules of a policy or a webhook, with their defaults."""
    filled = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent", **match}
    for name in ("rules", "resourceRules", "excludeResourceRules"):
        if filled.get(name):
            filled[name] = [{"scope": "*", **each} for each in filled[name]]
    return filled


_OF_ROLES = {"apiGroup": "rbac.authorization.k8s.io"}
_FILLS: Mapping[str, Callable[[Plain], Plain]] = {
    "APIService": _api_service,
    "FlowSchema": _flow_schema,
    "PriorityLevelConfiguration": _priority_level,
    "ClusterRoleBinding": _role_binding,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "HorizontalPodAutoscaler": _autoscaler,
    "IngressClass": _ingress_class,
    "LimitRange": _limit_range,
    "MutatingWebhookConfiguration": partial(_webhooks, more={"reinvocationPolicy": "Never"}),
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": with_claim_defaults,
    "PersistentVolume": _volume,
    "PriorityClass": lambda obj: {"preemptionPolicy": "PreemptLowerPriority", **obj},
    "RoleBinding": _role_binding,
    "Service": _service,
    "ValidatingWebhookConfiguration": partial(_webhooks, more={}),
    "VolumeAttachment": _attachment,
    "StorageClass": lambda obj: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **obj},
}


def defaulters(release: Release) -> Mapping[str, Callable[[Plain], Plain]]:
    """Return the functions that fill in defaults, by kind."""
    driver = {**_DRIVER, **({"preventPodSchedulingIfMissing": False} if release.fills_missing_drivers else {})}
    return {**_FILLS, "CSIDriver": lambda obj: {**obj, "spec": {**driver, **obj["spec"]}}}


PUT_BACK: Mapping[str, Callable[[Plain, Plain], None]] = {"HorizontalPodAutoscaler": _put_back_policies}
"""Kind -> function that copies empty members from the body to the decoded object, if defaults distinguish them."""
