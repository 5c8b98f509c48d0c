"""What a service must be beside its addresses: ports, names of its kind, and what belongs to which type.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go, ValidateService.
"""

import ipaddress
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.label_rules import check_labels
from controlplane.apiserver.pod_containers import PROTOCOLS
from controlplane.apiserver.pod_placement import NO_ADDRESS
from controlplane.apiserver.pod_rules import NO_NETWORK, is_network
from controlplane.apiserver.ports import check_port, check_port_or_name
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import complaints, dns_label, label_name
from resourceapi.objects.names import dns_subdomain

_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_AFFINITIES = ["ClientIP", "None"]
_POLICIES = ["Cluster", "Local"]
_DISTRIBUTIONS = ["PreferClose", "PreferSameZone", "PreferSameNode"]
_DAY = 86400


def check_service(errors: ErrorList, spec: Plain) -> None:
    """The spec of a service with its defaults; its addresses are looked at where they are given."""
    _ports(errors, spec)
    check_labels(errors, "spec.selector", spec.get("selector"))
    _known(errors, "spec.sessionAffinity", spec.get("sessionAffinity"), _AFFINITIES)
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if spec.get("sessionAffinity") == "ClientIP" and seconds is not None and not 0 < seconds <= _DAY:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        errors.invalid(path, seconds, f"must be greater than 0 and less than {_DAY}")
    _outside(errors, spec)
    _known(errors, "spec.type", spec.get("type"), _TYPES)
    if spec.get("type") == "ExternalName" and spec.get("externalName"):
        name = spec["externalName"].removesuffix(".")
        complaints(errors, "spec.externalName", name, dns_subdomain(name))
    if spec.get("internalTrafficPolicy") is not None:
        _known(errors, "spec.internalTrafficPolicy", spec["internalTrafficPolicy"], _POLICIES)
    if spec.get("trafficDistribution") is not None:
        _known(errors, "spec.trafficDistribution", spec["trafficDistribution"], _DISTRIBUTIONS)


def _known(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    if value not in words:
        errors.not_supported(path, value or "", words)


def _ports(errors: ErrorList, spec: Plain) -> None:
    ports, names, seen = spec.get("ports") or (), set[str](), set[tuple[Any, Any]]()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name") or ""
        if name:
            dns_label(errors, f"{path}.name", name)
            if name in names:
                errors.duplicate(f"{path}.name", name)
        elif len(ports) > 1:
            errors.required(f"{path}.name")
        names.add(name)
        check_port(errors, f"{path}.port", port.get("port", 0))
        _known(errors, f"{path}.protocol", port.get("protocol"), PROTOCOLS)
        check_port_or_name(errors, f"{path}.targetPort", port.get("targetPort"))
        if port.get("appProtocol") is not None:
            label_name(errors, f"{path}.appProtocol", port["appProtocol"])
    for index, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1]}
            errors.duplicate(f"spec.ports[{index}]", {**shown, "TargetPort": 0, "NodePort": 0})
        seen.add(key)


def _outside(errors: ErrorList, spec: Plain) -> None:
    for index, text in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            errors.invalid(path, text, NO_ADDRESS)
            continue
        if address.is_loopback:
            errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and spec.get("type") != "LoadBalancer":
        errors.forbidden("spec.LoadBalancerSourceRanges", "may only be used when `type` is 'LoadBalancer'")
    for index, text in enumerate(ranges):
        if not is_network(text.strip()):
            errors.invalid(f"spec.LoadBalancerSourceRanges[{index}]", text, NO_NETWORK)
    policy = spec.get("externalTrafficPolicy")
    is_outside = spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
    if policy and not is_outside:
        why = "may only be set for externally-accessible services"
        errors.invalid("spec.externalTrafficPolicy", policy, why)
    elif policy:
        _known(errors, "spec.externalTrafficPolicy", policy, _POLICIES)
