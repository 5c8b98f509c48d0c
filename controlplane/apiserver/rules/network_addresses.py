"""IP addresses and ranges in fields that existed before validation became strict.

Source: k8s.io/apimachinery pkg/util/validation/ip.go; k8s.io/kubernetes pkg/apis/core/validation (ValidateEndpointIP).
"""

import ipaddress
import re

from controlplane.apiserver.pods.spec_rules import NO_NETWORK
from resourceapi.objects import ErrorList
from resourceapi.objects.release import Release

_LINK_LOCAL = {4: ipaddress.ip_network("169.254.0.0/16"), 6: ipaddress.ip_network("fe80::/10")}
_LINK_LOCAL_GROUPS = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}
_LEADING_ZEROS = re.compile(r"(?:^(?=[0-9]+\.)|(?<=[./]))0+(?=[0-9])")
EXTRA_BITS = "must not have bits set beyond the prefix length"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network_of(text: str) -> Network | None:
    """Return the range of a text; None if it is not valid in Go, where netmasks and zones are not allowed."""
    address, _, bits = text.partition("/")
    if not (bits.isdecimal() and bits.isascii()) or "%" in address:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is an IPv4 address that is written as an IPv6 one."""
    return address.version == 6 and address.ipv4_mapped is not None


def without_leading_zeros(text: str) -> str:
    """Return an address or range without leading zeros in the parts of IPv4 addresses and in the length of a prefix."""
    return _LEADING_ZEROS.sub("", text)


def check_range(errors: ErrorList, path: str, text: str, release: Release) -> None:
    """Check an address range."""
    network = network_of(text)
    if network is None:
        errors.invalid(path, text, NO_NETWORK)
    elif release.is_strict_about_ranges and ipaddress.ip_address(text.partition("/")[0]) != network.network_address:
        errors.invalid(path, text, EXTRA_BITS)


def check_reachable(errors: ErrorList, path: str, text: str) -> None:
    """Check that an address can be reached from other hosts; `text` is a valid address."""
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        errors.invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address in _LINK_LOCAL[address.version]:
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address in _LINK_LOCAL_GROUPS[address.version]:
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
