"""The rules of ingresses and network policies.

Source: k8s.io/kubernetes pkg/apis/networking/validation/validation.go.
"""

import ipaddress
from collections.abc import Mapping
from functools import partial
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.placement import check_address, is_address
from controlplane.apiserver.rules.choices import check_optional_choice
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.rules.network_addresses import check_range, network_of
from controlplane.apiserver.rules.ports import check_port, port_name
from controlplane.apiserver.rules.prefixed_paths import check_prefixed
from controlplane.apiserver.rules.references import check_reference
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_1035_label, dns_label, dns_subdomain, wildcard_subdomain
from resourceapi.objects.release import Release

_CLASS = "kubernetes.io/ingress.class"
_PATHS = ["Exact", "ImplementationSpecific", "Prefix"]
_NEVER_WITHIN, _NEVER_AT_END = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_PROTOCOLS = ["TCP", "UDP", "SCTP"]
_MAX_CONTROLLER_LENGTH = 250
_NO_NAME = "must be a DNS name, not an IP address"


def _ingress(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec, default, rules = new["spec"], new["spec"].get("defaultBackend"), new["spec"].get("rules") or []
    if not rules and default is None:
        errors.invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if default is not None:
        _backend(errors, default, "spec.defaultBackend", release)
    for index, rule in enumerate(rules):
        path, host = f"spec.rules[{index}]", rule.get("host") or ""
        if host:
            if is_address(host):
                errors.invalid(f"{path}.host", host, _NO_NAME)
            _check_host(errors, f"{path}.host", host)
        if rule.get("http") is not None:
            _check_paths(errors, rule["http"].get("paths") or [], f"{path}.http.paths", release)
    for index, each in enumerate(spec.get("tls") or ()):
        for number, host in enumerate(each.get("hosts") or ()):
            _check_host(errors, f"spec.tls[{index}].hosts[{number}]", host)
        if each.get("secretName"):
            name = each["secretName"]
            add_invalid(errors, f"spec.tls[{index}].secretName", name, dns_subdomain(name))
    name = spec.get("ingressClassName")
    if name is not None:
        add_invalid(errors, "spec.ingressClassName", name, dns_subdomain(name))
    by_annotation = (new["metadata"].get("annotations") or {}).get(_CLASS)
    if old is None and name is not None and by_annotation not in (None, name):
        why = "must match `ingressClassName` when both are specified"
        errors.invalid(f"annotations.{_CLASS}", by_annotation, why)


def _check_host(errors: ErrorList, path: str, host: str) -> None:
    add_invalid(errors, path, host, wildcard_subdomain(host) if "*" in host else dns_subdomain(host))


def _check_paths(errors: ErrorList, paths: list[Plain], path: str, release: Release) -> None:
    if not paths:
        errors.required(path)
    for index, each in enumerate(paths):
        here, kind, text = f"{path}[{index}]", each.get("pathType"), each.get("path") or ""
        if kind is None:
            errors.required(f"{here}.pathType", "pathType must be specified")
            continue
        if kind not in _PATHS:
            errors.not_supported(f"{here}.pathType", kind, _PATHS)
        elif (text or kind != "ImplementationSpecific") and not text.startswith("/"):
            errors.invalid(f"{here}.path", text, "must be an absolute path")
        if kind in ("Exact", "Prefix"):
            found = [f"must not contain '{part}'" for part in _NEVER_WITHIN if part in text]
            found += [f"cannot end with '{part}'" for part in _NEVER_AT_END if text.endswith(part)]
            add_invalid(errors, f"{here}.path", text, found)
        _backend(errors, each.get("backend") or {}, f"{here}.backend", release)


def _backend(errors: ErrorList, backend: Plain, path: str, release: Release) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        _reference(errors, resource, f"{path}.resource")
    elif service is None:
        errors.invalid(path, "", "resource or service backend is required")
    else:
        _check_service(errors, service, path, release)


def _check_service(errors: ErrorList, service: Plain, path: str, release: Release) -> None:
    name, port = service.get("name") or "", service.get("port") or {}
    rule = dns_label if release.relaxes_service_names else dns_1035_label
    if name:
        add_invalid(errors, f"{path}.service.name", name, rule(name))
    else:
        errors.required(f"{path}.service.name")
    if port.get("name") and port.get("number"):
        errors.invalid(path, "", "cannot set both port name & port number")
    elif port.get("name"):
        add_invalid(errors, f"{path}.service.port.name", port["name"], port_name(port["name"]))
    elif port.get("number"):
        check_port(errors, f"{path}.service.port.number", port["number"])
    else:
        errors.required(path, "port name or number is required")


def _reference(errors: ErrorList, reference: Plain, path: str) -> None:
    """Check a reference to an object of any kind, with its group."""
    if reference.get("apiGroup") is not None:
        add_invalid(errors, f"{path}.apiGroup", reference["apiGroup"], dns_subdomain(reference["apiGroup"]))
    check_reference(errors, reference, path)


def check_ingress_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the load balancer status of an ingress."""
    known = {each.get("ip") for each in _balanced(old or {})}
    for index, each in enumerate(_balanced(new)):
        path, address, host = f"status.loadBalancer.ingress[{index}]", each.get("ip"), each.get("hostname")
        if address and address not in known:
            check_address(errors, f"{path}.ip", address)
        if host:
            add_invalid(errors, f"{path}.hostname", host, dns_subdomain(host))
            if is_address(host):
                errors.invalid(f"{path}.hostname", host, _NO_NAME)


def _balanced(obj: Plain) -> list[Plain]:
    return ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _class(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec, name = new["spec"], new["spec"].get("controller") or ""
    if old is not None and name != (old["spec"].get("controller") or ""):
        errors.invalid("spec.controller", name, "field is immutable")
    if len(name.encode()) > _MAX_CONTROLLER_LENGTH:
        errors.too_long("spec.controller", _MAX_CONTROLLER_LENGTH)
    check_prefixed(errors, "spec.controller", name)
    parameters, path = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return
    _reference(errors, parameters, path)
    scope, space = parameters.get("scope"), parameters.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        errors.not_supported(f"{path}.scope", scope, ["Cluster", "Namespace"], is_named=False)
    elif scope == "Namespace" and space is None:
        errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        add_invalid(errors, f"{path}.namespace", space, dns_label(space))
    elif space is not None:
        errors.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def _policy(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec, known = new["spec"], set[str]()
    for way, peers in (("ingress", "from"), ("egress", "to")):
        for rule in ((old or {}).get("spec") or {}).get(way) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                known |= {each for each in (block.get("cidr"), *(block.get("except") or ())) if each}
    check_selector(errors, "spec.podSelector", spec.get("podSelector"))
    for way, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(way) or ()):
            path = f"spec.{way}[{index}]"
            for number, port in enumerate(rule.get("ports") or ()):
                _policy_port(errors, port, f"{path}.ports[{number}]", release)
            for number, peer in enumerate(rule.get(peers) or ()):
                _peer(errors, peer, f"{path}.{peers}[{number}]", known, release)
    types = spec.get("policyTypes") or []
    if len(types) > 2:
        errors.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, kind in enumerate(types):
        if kind not in ("Ingress", "Egress"):
            errors.not_supported(f"spec.policyTypes[{index}]", kind, ["Ingress", "Egress"])


def _policy_port(errors: ErrorList, port: Plain, path: str, release: Release) -> None:
    protocol, number, last = port.get("protocol"), port.get("port"), port.get("endPort")
    check_optional_choice(errors, f"{path}.protocol", protocol, _PROTOCOLS)
    if number is None:
        if last is not None:
            errors.invalid(f"{path}.endPort", last, "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        if last is not None:
            errors.invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
        add_invalid(errors, f"{path}.port", number, port_name(number))
    else:
        check_port(errors, f"{path}.port", number)
        if last is not None and last < number:
            shown = last if release.has_declared_rules else number  # a mistake in older upstream rules
            errors.invalid(f"{path}.endPort", shown, "must be greater than or equal to `port`")
        if last is not None:
            check_port(errors, f"{path}.endPort", last)


def _peer(errors: ErrorList, peer: Plain, path: str, known: set[str], release: Release) -> None:
    block, selectors = peer.get("ipBlock"), ("podSelector", "namespaceSelector")
    for member in selectors:
        if peer.get(member) is not None:
            check_selector(errors, f"{path}.{member}", peer[member])
    if block is not None:
        _block(errors, block, f"{path}.ipBlock", known, release)
    has_selector = any(peer.get(member) is not None for member in selectors)
    if block is None and not has_selector:
        errors.required(path, "must specify a peer")
    elif block is not None and has_selector:
        errors.forbidden(path, "may not specify both ipBlock and another peer")


def _block(errors: ErrorList, block: Plain, path: str, known: set[str], release: Release) -> None:
    """`known` are the ranges of the old policy, which are valid in any case."""
    text = block.get("cidr") or ""
    if not text:
        errors.required(f"{path}.cidr")
        return
    if text not in known:
        check_range(errors, f"{path}.cidr", text, release)
    network = network_of(text)
    for index, each in enumerate(block.get("except") or () if network is not None else ()):
        here, other = f"{path}.except[{index}]", network_of(each)
        if each not in known:
            check_range(errors, here, each, release)
        if other is not None and not _is_within(other, network):
            errors.invalid(here, each, "must be a strict subset of `cidr`")


def _is_within(other: Any, network: Any) -> bool:
    is_same = isinstance(other, ipaddress.IPv4Network) == isinstance(network, ipaddress.IPv4Network)
    return is_same and other.prefixlen > network.prefixlen and bool(other.subnet_of(network))


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {
        "Ingress": partial(_ingress, release=release),
        "IngressClass": _class,
        "NetworkPolicy": partial(_policy, release=release),
    }
