"""The rules of services: ports, names, addresses and their families, and the fields of each type.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go, ValidateServiceCreate and ValidateServiceUpdate.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.containers import PROTOCOLS
from controlplane.apiserver.pods.placement import NO_ADDRESS, is_address
from controlplane.apiserver.pods.spec_rules import NO_NETWORK, is_network
from controlplane.apiserver.rules.choices import check_choice
from controlplane.apiserver.rules.label_rules import check_labels
from controlplane.apiserver.rules.network_addresses import check_reachable
from controlplane.apiserver.rules.ports import check_port, check_port_or_name
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid, dns_label, label_name
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain

NO_CLUSTER_IP = "None"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_AFFINITIES = ["ClientIP", "None"]
_POLICIES = ["Cluster", "Local"]
_FAMILIES = ["IPv4", "IPv6"]
_MODES = ["Proxy", "VIP"]
_FAMILY_POLICIES = [PREFER, REQUIRE, SINGLE]
_DISTRIBUTIONS = ["PreferClose", "PreferSameZone", "PreferSameNode"]
_DAY = 86400
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_NOT_FOR_EXTERNAL_NAME = "may not be set for ExternalName services"
_FIXED_ONCE_SET = "may not change once set"


def check_service(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a new or changed service that has its addresses."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if old is not None:
        _check_changes(errors, spec, before)
    _check_annotations(errors, new["metadata"].get("annotations") or {})
    if not spec.get("ports") and not is_headless(spec) and spec.get("type") != "ExternalName":
        errors.required("spec.ports")
    if is_headless(spec) and spec.get("type") in ("LoadBalancer", "NodePort"):
        why = f"may not be set to 'None' for {spec['type']} services"
        errors.invalid("spec.clusterIPs[0]", NO_CLUSTER_IP, why)
    if spec.get("type") == "ExternalName":
        _check_external_name(errors, spec)
    _check_ports(errors, spec)
    check_labels(errors, "spec.selector", spec.get("selector"))
    _check_affinity(errors, spec)
    check_addresses(errors, spec, before)
    _check_external(errors, spec, before)
    check_choice(errors, "spec.type", spec.get("type"), _TYPES)
    _check_repeated_ports(errors, spec)
    _check_ranges(errors, new, old)
    if spec.get("allocateLoadBalancerNodePorts") is not None and spec.get("type") != "LoadBalancer":
        errors.forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCED)
    _check_class(errors, spec, {})
    _check_traffic(errors, spec)


def check_service_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the load balancer status of a service (ValidateLoadBalancerStatus)."""
    before = {each.get("ip") for each in _ingress(old or {})}
    path = "status.loadBalancer.ingress"
    if _ingress(new) and new["spec"].get("type") != "LoadBalancer":
        errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return
    for index, each in enumerate(_ingress(new)):
        here, address, mode, name = f"{path}[{index}]", each.get("ip"), each.get("ipMode"), each.get("hostname")
        if address and address not in before and not is_address(address):
            errors.invalid(f"{here}.ip", address, NO_ADDRESS)
        if mode is None and address:
            errors.required(f"{here}.ipMode", "must be specified when `ip` is set")
        elif mode is not None and not address:
            errors.forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set")
        elif mode is not None and mode not in _MODES:
            errors.not_supported(f"{here}.ipMode", mode, _MODES)
        if name:
            add_invalid(errors, f"{here}.hostname", name, dns_subdomain(name))
            if is_address(name):
                errors.invalid(f"{here}.hostname", name, "must be a DNS name, not an IP address")


def _ingress(service: Plain) -> Sequence[Plain]:
    return ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()


def is_headless(spec: Plain) -> bool:
    """Return whether a service is headless."""
    return spec.get("clusterIPs") == [NO_CLUSTER_IP]


def is_externally_reachable(spec: Plain) -> bool:
    """Return whether a service can be reached from outside of the cluster."""
    is_addressed = spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    return spec.get("type") in ("NodePort", "LoadBalancer") or is_addressed


def needs_health_check_port(spec: Plain) -> bool:
    """Return whether a load balancer checks on each node whether it has pods of the service."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def check_addresses(errors: ErrorList, spec: Plain, before: Plain) -> None:
    """Check the cluster IPs, their families, and their number (ValidateServiceClusterIPsRelatedFields)."""
    if spec.get("type") == "ExternalName":
        return
    address, addresses, path = spec.get("clusterIP") or "", spec.get("clusterIPs") or [], "spec.clusterIPs"
    if address and not addresses:
        errors.required(path)
    elif address and addresses[0] != address:
        errors.invalid(path, addresses, "first value must match `clusterIP`")
    elif addresses and not address:
        errors.invalid(path, addresses, "must be empty when `clusterIP` is not specified")
    families, seen = spec.get("ipFamilies") or [], set[str]()
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            errors.not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in seen:
            errors.duplicate(f"spec.ipFamilies[{index}]", family)
        seen.add(family)
    if spec.get("ipFamilyPolicy") is not None and spec["ipFamilyPolicy"] not in _FAMILY_POLICIES:
        errors.not_supported("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], _FAMILY_POLICIES)
    if not _are_addresses(errors, addresses, before.get("clusterIPs") or []):
        return
    if len(addresses) > 1 and len({":" in each for each in addresses}) < len(addresses):
        errors.invalid(path, addresses, "may specify no more than one IP for each IP family")
    if is_headless(spec):
        return
    for index, (each, family) in enumerate(zip(addresses, families, strict=False)):
        if family in _FAMILIES and family != family_of(each):
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            errors.invalid(f"{path}[{index}]", each, why)


def family_of(address: str) -> str:
    """Return the family of an address."""
    return "IPv6" if ":" in address else "IPv4"


def _are_addresses(errors: ErrorList, addresses: Sequence[str], were: Sequence[str]) -> bool:
    path, are_wrong = "spec.clusterIPs", False
    for index, each in enumerate(addresses):
        if index == 0 and each == NO_CLUSTER_IP:
            if len(addresses) > 1:
                errors.invalid(path, addresses, "'None' must be the first and only value")
                are_wrong = True
        elif each not in were and not is_address(each):
            errors.invalid(f"{path}[{index}]", each, NO_ADDRESS)
            are_wrong = True
    if len(addresses) > 2:
        errors.invalid(path, addresses, "may only hold up to 2 values")
    return not are_wrong


def _check_changes(errors: ErrorList, spec: Plain, before: Plain) -> None:
    """Check the immutable fields of a service that keeps its addresses."""
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        if not (is_headless(spec) and is_headless(before)):
            _check_changed_addresses(errors, spec, before)
        if not is_headless(spec) and not is_headless(before):
            _check_changed_families(errors, spec, before)
    _check_class(errors, spec, before)
    was, now = (each.get("healthCheckNodePort") or 0 for each in (before, spec))
    if needs_health_check_port(before) and needs_health_check_port(spec) and now != was:
        errors.forbidden("spec.healthCheckNodePort", "field is immutable")


def _check_changed_addresses(errors: ErrorList, spec: Plain, before: Plain) -> None:
    now, was, path = spec.get("clusterIPs") or [], before.get("clusterIPs") or [], "spec.clusterIPs"
    if len(now) == len(was):
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            if one != other:
                errors.invalid(f"{path}[{index}]", now, _FIXED_ONCE_SET)
        return
    if not now:
        errors.invalid(f"{path}[0]", now or None, "primary clusterIP can not be unset")
    elif was and now[0] != was[0]:
        errors.invalid(f"{path}[0]", now, _FIXED_ONCE_SET)
    if len(now) == 1 < len(was) and spec.get("ipFamilyPolicy") != SINGLE:
        why = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        errors.invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)


def _check_changed_families(errors: ErrorList, spec: Plain, before: Plain) -> None:
    now, was, path = spec.get("ipFamilies") or [], before.get("ipFamilies") or [], "spec.ipFamilies[0]"
    if len(now) == len(was):
        for one, other in zip(now, was, strict=True):
            if one != other:
                errors.invalid(path, now, _FIXED_ONCE_SET)
        return
    if now and was and now[0] != was[0]:
        errors.invalid(path, spec.get("clusterIPs"), _FIXED_ONCE_SET)
    if len(now) == 1 < len(was) and spec.get("ipFamilyPolicy") != SINGLE:
        why = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)


def _check_class(errors: ErrorList, spec: Plain, before: Plain) -> None:
    found, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if spec.get("type") == before.get("type") == "LoadBalancer" and found != before.get("loadBalancerClass"):
        errors.invalid(path, found, _FIXED_ONCE_SET)
    if found is None:
        return
    if spec.get("type") == "LoadBalancer":
        label_name(errors, path, found)
    else:
        errors.forbidden(path, _ONLY_BALANCED)


def _check_annotations(errors: ErrorList, annotations: Plain) -> None:
    if {_HINTS, _MODE} <= annotations.keys() and annotations[_HINTS] != annotations[_MODE]:
        why = f"must match annotations[{_HINTS}] when both are specified"
        errors.invalid(f"metadata.annotations[{_MODE}]", annotations[_MODE], why)


def _check_external_name(errors: ErrorList, spec: Plain) -> None:
    """Check a service of type ExternalName."""
    for member in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(member):
            errors.forbidden(f"spec.{member}", _NOT_FOR_EXTERNAL_NAME)
    name = (spec.get("externalName") or "").removesuffix(".")
    if name:
        add_invalid(errors, "spec.externalName", name, dns_subdomain(name))
    else:
        errors.required("spec.externalName")


def _check_ports(errors: ErrorList, spec: Plain) -> None:
    ports, names = spec.get("ports") or (), set[str]()
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
        check_choice(errors, f"{path}.protocol", port.get("protocol"), PROTOCOLS)
        check_port_or_name(errors, f"{path}.targetPort", port.get("targetPort"))
        if port.get("appProtocol") is not None:
            label_name(errors, f"{path}.appProtocol", port["appProtocol"])


def _check_affinity(errors: ErrorList, spec: Plain) -> None:
    check_choice(errors, "spec.sessionAffinity", spec.get("sessionAffinity"), _AFFINITIES)
    config, path = spec.get("sessionAffinityConfig"), "spec.sessionAffinityConfig"
    if spec.get("sessionAffinity") == "None" and config is not None:
        errors.forbidden(path, "must not be set when session affinity is None")
    if spec.get("sessionAffinity") != "ClientIP":
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= _DAY:
        errors.invalid(f"{path}.clientIP.timeoutSeconds", seconds, f"must be greater than 0 and less than {_DAY}")


def _check_external(errors: ErrorList, spec: Plain, before: Plain) -> None:
    for index, text in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        if not is_address(text):
            if text not in (before.get("externalIPs") or ()):
                errors.invalid(path, text, NO_ADDRESS)
            continue
        check_reachable(errors, path, text)


def _check_repeated_ports(errors: ErrorList, spec: Plain) -> None:
    ports = spec.get("ports") or ()
    for index, port in enumerate(ports if spec.get("type") == "ClusterIP" else ()):
        if port.get("nodePort"):
            errors.forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    for member in ("nodePort", "port"):
        seen: set[tuple[Any, Any]] = set()
        for index, port in enumerate(ports):
            key = (port.get("protocol"), port.get(member) or 0)
            if member == "nodePort" and key[1] and key in seen:
                errors.duplicate(f"spec.ports[{index}].nodePort", key[1])
            elif member == "port" and key in seen:
                shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1]}
                errors.duplicate(f"spec.ports[{index}]", {**shown, "TargetPort": 0, "NodePort": 0})
            seen.add(key)


def _check_ranges(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec, annotation = new["spec"], (new["metadata"].get("annotations") or {}).get(_RANGES)
    ranges, path = spec.get("loadBalancerSourceRanges") or (), "spec.LoadBalancerSourceRanges"
    if ranges:
        if spec.get("type") != "LoadBalancer":
            errors.forbidden(path, _ONLY_BALANCED)
        were = {text.strip() for text in ((old or {}).get("spec") or {}).get("loadBalancerSourceRanges") or ()}
        for index, text in enumerate(ranges):
            if text.strip() not in were:
                _check_range(errors, f"{path}[{index}]", text.strip())
    elif annotation is not None:
        path = f"metadata.annotations[{_RANGES}]"
        if spec.get("type") != "LoadBalancer":
            errors.forbidden(path, _ONLY_BALANCED)
        was = ((old or {"metadata": {}})["metadata"].get("annotations") or {}).get(_RANGES)
        for text in annotation.split(",") if annotation.strip() and annotation != was else ():
            _check_range(errors, path, text.strip())


def _check_range(errors: ErrorList, path: str, text: str) -> None:
    if not is_network(text):
        errors.invalid(path, text, NO_NETWORK)


def _check_traffic(errors: ErrorList, spec: Plain) -> None:
    policy, path = spec.get("externalTrafficPolicy"), "spec.externalTrafficPolicy"
    if is_externally_reachable(spec):
        check_choice(errors, path, policy, _POLICIES)
    elif policy:
        errors.invalid(path, Token(policy), "may only be set for externally-accessible services")
    port, path = spec.get("healthCheckNodePort") or 0, "spec.healthCheckNodePort"
    if port and not needs_health_check_port(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.invalid(path, port, why)
    elif port:
        check_port(errors, path, port)
    inside = spec.get("internalTrafficPolicy")
    if inside is not None and inside not in _POLICIES:
        errors.not_supported("spec.internalTrafficPolicy", inside, _POLICIES)
    wanted = spec.get("trafficDistribution")
    if wanted is not None and wanted not in _DISTRIBUTIONS:
        errors.not_supported("spec.trafficDistribution", wanted, _DISTRIBUTIONS)


def without_other_types_fields(new: Plain, old: Plain | None) -> Plain:
    """Return a changed service without fields that only its old type uses, unless the client changed them."""
    before = (old or {}).get("spec") or {}
    if not before:
        return new
    spec = {**new["spec"]}
    had, has = (each.get("type") != "ExternalName" for each in (before, spec))
    gone: list[str] = []
    if had and not has:
        addresses = ("clusterIP", "clusterIPs")
        gone += addresses if all(json_equal(spec.get(name), before.get(name)) for name in addresses) else ()
        gone += [name for name in ("ipFamilies", "ipFamilyPolicy") if json_equal(spec.get(name), before.get(name))]
    for member, needs in (
        ("healthCheckNodePort", needs_health_check_port),
        ("allocateLoadBalancerNodePorts", _is_balanced),
        ("loadBalancerClass", _is_balanced),
        ("externalTrafficPolicy", is_externally_reachable),
    ):
        if needs(before) and not needs(spec) and spec.get(member) == before.get(member):
            gone.append(member)
    if _has_node_ports(before) and not _has_node_ports(spec):
        known, node_ports = ({port.get("nodePort") for port in each.get("ports") or ()} for each in (before, spec))
        if node_ports - {None, 0} <= known:
            spec["ports"] = [
                {key: x for key, x in port.items() if key != "nodePort"} for port in spec.get("ports") or ()
            ]
    kept = {name: item for name, item in spec.items() if name not in gone}
    if not kept.get("ports"):
        kept.pop("ports", None)
    return {**new, "spec": kept}


def _is_balanced(spec: Plain) -> bool:
    return spec.get("type") == "LoadBalancer"


def _has_node_ports(spec: Plain) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")
