"""The rules of EndpointSlices and Endpoints.

Source: k8s.io/kubernetes pkg/apis/discovery/validation/validation.go, and pkg/apis/core/validation for Endpoints.
"""

import ipaddress
from collections.abc import Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.placement import NO_ADDRESS, is_address
from controlplane.apiserver.rules.label_rules import check_labels
from controlplane.apiserver.rules.network_addresses import check_reachable
from controlplane.apiserver.rules.ports import check_port
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid, dns_label
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain, label_key, label_value
from resourceapi.objects.release import Release

_TYPES = ["FQDN", "IPv4", "IPv6"]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_PORTS, _MAX_HINTS, _MAX_LABELS = 1000, 100, 20_000, 8, 16


def _slice(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    kind = new.get("addressType") or ""
    if not kind:
        errors.required("addressType")
    elif kind not in _TYPES:
        errors.not_supported("addressType", kind, _TYPES)
    _check_ports(errors, new.get("ports") or [])
    endpoints, found = new.get("endpoints") or [], ErrorList()
    if len(endpoints) > _MAX_ENDPOINTS:
        found.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)
    else:
        for index, endpoint in enumerate(endpoints):
            _check_endpoint(found, endpoint, f"endpoints[{index}]", kind, release)
    if old is None or not json_equal(endpoints, old.get("endpoints") or []):
        errors.extend(found)
    if old is not None and kind != (old.get("addressType") or ""):
        errors.invalid("addressType", None if release.has_declared_rules else kind, "field is immutable")


def _check_ports(errors: ErrorList, ports: list[Plain]) -> None:
    if len(ports) > _MAX_PORTS:
        errors.too_many("ports", len(ports), _MAX_PORTS)
        return
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name, protocol = f"ports[{index}]", port.get("name") or "", port.get("protocol")
        if name:
            dns_label(errors, f"{path}.name", name)
        if name in names:
            errors.duplicate(f"{path}.name", name)
        names.add(name)
        _check_protocol(errors, f"{path}.protocol", protocol)
        if port.get("appProtocol") is not None:
            add_invalid(errors, f"{path}.appProtocol", port["appProtocol"], label_key(port["appProtocol"]))


def _check_protocol(errors: ErrorList, path: str, protocol: str | None) -> None:
    if protocol not in _PROTOCOLS:
        errors.not_supported(path, protocol or "", _PROTOCOLS)


def _check_endpoint(errors: ErrorList, endpoint: Plain, path: str, kind: str, release: Release) -> None:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        errors.required(f"{path}.addresses", "" if release.has_declared_rules else "must contain at least 1 address")
    elif len(addresses) > _MAX_ADDRESSES:
        errors.too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES)
    for index, text in enumerate(addresses):
        _check_address(errors, f"{path}.addresses", index, text or "", kind)
    if endpoint.get("nodeName") is not None:
        add_invalid(errors, f"{path}.nodeName", endpoint["nodeName"], dns_subdomain(endpoint["nodeName"]))
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > _MAX_LABELS:
        errors.too_many(f"{path}.deprecatedTopology", len(topology), _MAX_LABELS)
    check_labels(errors, f"{path}.deprecatedTopology", topology)
    if endpoint.get("hostname") is not None:
        dns_label(errors, f"{path}.hostname", endpoint["hostname"])
    for member, rule in (("forZones", label_value), ("forNodes", dns_subdomain)):
        hints, here, seen = (endpoint.get("hints") or {}).get(member) or [], f"{path}.hints.{member}", set[str]()
        if len(hints) > _MAX_HINTS:
            errors.too_many(here, len(hints), _MAX_HINTS)
            return
        for index, each in enumerate(hints):
            name = each.get("name") or ""
            if name in seen:
                errors.duplicate(f"{here}[{index}].name", name)
            seen.add(name)
            add_invalid(errors, f"{here}[{index}].name", name, rule(name))


def _check_address(errors: ErrorList, path: str, index: int, text: str, kind: str) -> None:
    here = f"{path}[{index}]"
    if kind == "FQDN":
        _check_domain(errors, here, text)
    elif kind in ("IPv4", "IPv6"):
        if not is_address(text):
            errors.invalid(here, text, NO_ADDRESS)
            return
        address = ipaddress.ip_address(text)
        if kind == "IPv6" and text != str(address):
            errors.invalid(here, text, f'must be in canonical form ("{address}")')
            return
        if f"IPv{address.version}" != kind:
            errors.invalid(path, text, f"must be an {kind} address")
        check_reachable(errors, here, text)


def _check_domain(errors: ErrorList, path: str, text: str) -> None:
    """Check a fully qualified domain name, which can end with a dot."""
    name = text.removesuffix(".")
    if not text:
        errors.required(path)
    elif found := dns_subdomain(name):
        add_invalid(errors, path, name, found)
    elif "." not in name:
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        for label in name.split("."):
            dns_label(errors, path, label)


def _endpoints(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    if old is not None and json_equal(new.get("subsets") or [], old.get("subsets") or []):
        return
    for index, subset in enumerate(new.get("subsets") or ()):
        path, ports = f"subsets[{index}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.required(path, "must specify `addresses` or `notReadyAddresses`")
        for member in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(member) or ()):
                _check_place(errors, address, f"{path}.{member}[{number}]")
        for number, port in enumerate(ports):
            _check_port(errors, port, f"{path}.ports[{number}]", is_alone=len(ports) == 1)


def _check_place(errors: ErrorList, address: Plain, path: str) -> None:
    text, name = address.get("ip") or "", address.get("nodeName")
    if not is_address(text):
        errors.invalid(f"{path}.ip", text, NO_ADDRESS)
    if address.get("hostname"):
        dns_label(errors, f"{path}.hostname", address["hostname"])
    if name is not None:
        add_invalid(errors, f"{path}.nodeName", name, dns_subdomain(name))
    if is_address(text):
        check_reachable(errors, f"{path}.ip", text)
    else:
        errors.invalid(f"{path}.ip", text, "must be a valid IP address")


def _check_port(errors: ErrorList, port: Plain, path: str, *, is_alone: bool) -> None:
    if port.get("name"):
        dns_label(errors, f"{path}.name", port["name"])
    elif not is_alone:
        errors.required(f"{path}.name")
    check_port(errors, f"{path}.port", port.get("port") or 0)
    if not port.get("protocol"):
        errors.required(f"{path}.protocol")
    else:
        _check_protocol(errors, f"{path}.protocol", port["protocol"])
    if port.get("appProtocol") is not None:
        add_invalid(errors, f"{path}.appProtocol", port["appProtocol"], label_key(port["appProtocol"]))


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {"EndpointSlice": partial(_slice, release=release), "Endpoints": _endpoints}
