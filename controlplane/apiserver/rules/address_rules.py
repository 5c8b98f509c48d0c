"""The rules of IPAddresses and ServiceCIDRs: which addresses services have, and from which ranges.

Source: k8s.io/kubernetes pkg/apis/networking/validation/validation.go.
"""

import ipaddress
from collections.abc import Mapping
from functools import partial

from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.placement import NO_ADDRESS, is_address
from controlplane.apiserver.pods.spec_rules import NO_NETWORK
from controlplane.apiserver.rules.network_addresses import EXTRA_BITS, is_mapped, network_of, without_leading_zeros
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain, path_segment
from resourceapi.objects.release import Release

_IMMUTABLE = "field is immutable"
_MAX_RANGES = 2
_ONE_FAMILY = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def address_name(name: str) -> list[str]:
    """Return what is wrong with the name of an IPAddress, which is the address in its canonical form."""
    if not is_address(name):
        return ["must not have leading 0s" if is_address(without_leading_zeros(name)) else NO_ADDRESS]
    address = ipaddress.ip_address(name)
    if is_mapped(address):
        return ["must not be an IPv4-mapped IPv6 address"]
    return [] if name == str(address) else [f'must be in canonical form ("{address}")']


def _check_address(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    parent, path = new["spec"].get("parentRef"), "spec.parentRef"
    if parent is None:
        errors.required(path)
    else:
        _check_parent(errors, parent, path)
    if old is not None and not json_equal(parent, old["spec"].get("parentRef")):
        is_shown = parent is not None and not release.has_declared_rules
        shown = internal_form("networking.ParentReference", parent, release) if is_shown else None
        errors.invalid(path, shown, _IMMUTABLE)


def _check_parent(errors: ErrorList, parent: Plain, path: str) -> None:
    group = parent.get("group") or ""
    if group:
        add_invalid(errors, f"{path}.group", group, dns_subdomain(group))
    for member in ("resource", "name", "namespace"):
        value = parent.get(member) or ""
        if value:
            add_invalid(errors, f"{path}.{member}", value, path_segment(value))
        elif member != "namespace":
            errors.required(f"{path}.{member}")


def _check_ranges(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    after, path = new["spec"].get("cidrs") or [], "spec.cidrs"
    if old is None:
        _check_new_ranges(errors, new["spec"], path)
        return
    before = old["spec"].get("cidrs") or []
    is_extended = (len(before), len(after)) == (1, _MAX_RANGES)
    if len(before) != len(after) and not is_extended:
        errors.invalid(path, new["spec"].get("cidrs"), _IMMUTABLE)
        return
    for index, text in enumerate(before):
        if text != after[index]:
            errors.invalid(f"{path}[{index}]", after[index], _IMMUTABLE)
    if is_extended:
        _check_new_ranges(errors, new["spec"], path)


def _check_new_ranges(errors: ErrorList, spec: Plain, path: str) -> None:
    ranges = spec.get("cidrs") or []
    if not ranges:
        errors.required(path, "at least one CIDR required")
        return
    if len(ranges) > _MAX_RANGES:
        errors.invalid(path, {"CIDRs": ranges}, f"may only hold up to {_MAX_RANGES} values")
        return
    found = [network_of(without_leading_zeros(text)) for text in ranges]
    for index, network in enumerate(found):
        if network is None:
            errors.invalid(f"{path}[{index}]", ranges[index], NO_NETWORK)
        elif is_mapped(network.network_address):
            errors.invalid(f"{path}[{index}]", ranges[index], "must not have an IPv4-mapped IPv6 address")
        elif ranges[index] != without_leading_zeros(ranges[index]):
            errors.invalid(f"{path}[{index}]", ranges[index], "must not have leading 0s in IP or prefix length")
        elif ipaddress.ip_address(ranges[index].partition("/")[0]) != network.network_address:
            errors.invalid(f"{path}[{index}]", ranges[index], EXTRA_BITS)
        elif ranges[index] != str(network):
            errors.invalid(f"{path}[{index}]", ranges[index], f'must be in canonical form ("{network}")')
    families = [network.version for network in found if network is not None]
    if len(families) == _MAX_RANGES and len({*families}) == 1:
        errors.invalid(path, ranges, _ONE_FAMILY)


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {"IPAddress": partial(_check_address, release=release), "ServiceCIDR": _check_ranges}
