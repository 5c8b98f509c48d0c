"""ip() and cidr(): addresses and networks. Source: k8s.io/apiserver/pkg/cel/library (ip, cidr), Go's net/netip."""

from __future__ import annotations

import operator
import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.values import no_such_overload, register_type
from resourceapi.objects.errors import quoted_text

_PREFIX_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class Address:
    """An IPv4 or IPv6 address without a zone."""

    __slots__ = ("value",)

    def __init__(self, value: IPv4Address | IPv6Address) -> None:
        self.value = value

    @property
    def byte_size(self) -> int:
        """The size of the address in bytes, 4 or 16."""
        return self.value.max_prefixlen // 8

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("ip", self.value))

    def __str__(self) -> str:
        return str(self.value)


class Prefix:
    """An address with a prefix length; the bits after the prefix are kept."""

    __slots__ = ("address", "length")

    def __init__(self, address: IPv4Address | IPv6Address, length: int) -> None:
        self.address = address
        self.length = length

    @property
    def byte_size(self) -> int:
        """The number of bytes that contain the prefix."""
        return -(-self.length // 8)

    @property
    def network(self) -> IPv4Network | IPv6Network:
        """The network of all addresses with this prefix."""
        if isinstance(self.address, IPv4Address):
            return IPv4Network((self.address, self.length), strict=False)
        return IPv6Network((self.address, self.length), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prefix) and (self.address, self.length) == (other.address, other.length)

    def __hash__(self) -> int:
        return hash(("cidr", self.address, self.length))

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


register_type(Address, "net.IP", "cel.IP", operator.eq)
register_type(Prefix, "net.CIDR", "cel.CIDR", operator.eq)


class AddressError(Exception):
    """The text is not an address; the message is Go's."""


def _ipv4_problem(text: str) -> str | None:
    """Return Go's message for the leftmost fault of an IPv4 address, or None."""
    dots, field = 0, ""
    for at, char in enumerate(text):
        if "0" <= char <= "9":
            if field == "0":
                return "IPv4 field has octet with leading zero"
            field += char
            if int(field) > 255:
                return "IPv4 field has value >255"
        elif char != ".":
            return f"unexpected character (at {quoted_text(text[at:])})"
        elif not field or at == len(text) - 1:
            return f"IPv4 field must have at least one digit (at {quoted_text(text[at:])})"
        elif dots == 3:
            return "IPv4 address too long"
        else:
            dots, field = dots + 1, ""
    return "IPv4 address too short" if dots < 3 else None


def parse_address(text: str) -> tuple[IPv4Address | IPv6Address, str]:
    """Return the address and its zone like Go's netip.ParseAddr. Raises AddressError."""
    for char in text:
        if char == ".":
            problem = _ipv4_problem(text)
            if problem is not None:
                raise AddressError(f"ParseAddr({quoted_text(text)}): {problem}")
            return IPv4Address(text), ""
        if char == ":":
            body, percent, zone = text.partition("%")
            if percent and not zone:
                raise AddressError(f"ParseAddr({quoted_text(text)}): zone must be a non-empty string")
            try:
                return IPv6Address(body), zone
            except AddressValueError:
                raise AddressError(f"ParseAddr({quoted_text(text)}): {_ipv6_problem(body)}") from None
        if char == "%":
            raise AddressError(f"ParseAddr({quoted_text(text)}): missing IPv6 address")
    raise AddressError(f"ParseAddr({quoted_text(text)}): unable to parse IP")


def _ipv6_problem(body: str) -> str:
    """Return Go's message for the fault of an IPv6 address."""
    rest, groups, has_ellipsis = body, 0, False
    if rest.startswith("::"):
        has_ellipsis, rest = True, rest[2:]
        if not rest:
            return "unable to parse IP"
    while groups < 16:
        match = re.match(r"[0-9a-fA-F]*", rest)
        digits = match.group() if match else ""
        if len(digits) > 4:
            return f"each group must have 4 or less digits (at {quoted_text(rest)})"
        if not digits:
            return f"each colon-separated field must have at least one digit (at {quoted_text(rest)})"
        after = rest[len(digits) :]
        if after.startswith("."):
            if not has_ellipsis and groups != 12:
                return f"embedded IPv4 address must replace the final 2 fields of the address (at {quoted_text(rest)})"
            return _ipv4_problem(rest) or "address string too short"
        groups += 2
        rest = after
        if not rest:
            break
        if rest[0] != ":":
            return f"unexpected character, want colon (at {quoted_text(rest)})"
        if len(rest) == 1:
            return f"colon must be followed by more characters (at {quoted_text(rest)})"
        rest = rest[1:]
        if rest[0] == ":":
            if has_ellipsis:
                return f"multiple :: in address (at {quoted_text(rest)})"
            has_ellipsis, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        return f"trailing garbage after address (at {quoted_text(rest)})"
    return "the :: must expand to at least one field of zeros" if groups >= 16 else "address string too short"


def _is_mapped(value: IPv4Address | IPv6Address) -> bool:
    return isinstance(value, IPv6Address) and value.ipv4_mapped is not None


def _ip(text: str) -> Address:
    quoted = quoted_text(text)
    try:
        value, zone = parse_address(text)
    except AddressError as error:
        raise CelEvalError(f"IP Address {quoted} parse error during conversion from string: {error}") from None
    if zone:
        raise CelEvalError(f"IP address {quoted} with zone value is not allowed")
    if _is_mapped(value):
        raise CelEvalError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return Address(value)


def _is_ip(text: str) -> bool:
    try:
        _ip(text)
    except CelEvalError:
        return False
    return True


def _parse_prefix(text: str) -> Prefix:
    quoted = quoted_text(text)
    address, slash, length = text.rpartition("/")
    if not slash:
        raise AddressError(f"netip.ParsePrefix({quoted}): no '/'")
    try:
        value, zone = parse_address(address)
    except AddressError as error:
        raise AddressError(f"netip.ParsePrefix({quoted}): {error}") from None
    if zone:
        raise AddressError(f"netip.ParsePrefix({quoted}): IPv6 zones cannot be present in a prefix")
    if not _PREFIX_LENGTH.fullmatch(length):
        raise AddressError(f"netip.ParsePrefix({quoted}): bad bits after slash: {quoted_text(length)}")
    if int(length) > value.max_prefixlen:
        raise AddressError(f"netip.ParsePrefix({quoted}): prefix length out of range")
    return Prefix(value, int(length))


def _cidr(text: str) -> Prefix:
    failed = "network address parse error during conversion from string: "
    try:
        prefix = _parse_prefix(text)
    except AddressError as error:
        raise CelEvalError(f"{failed}{failed}{error}") from None
    if _is_mapped(prefix.address):
        raise CelEvalError(f"{failed}IPv4-mapped IPv6 address {quoted_text(text)} is not allowed")
    return prefix


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except CelEvalError:
        return False
    return True


def _contains_ip(prefix: Prefix, other: Address | str) -> bool:
    try:
        address = other if isinstance(other, Address) else _ip(other)
    except CelEvalError:
        # Upstream drops the reason here, but not in containsCIDR.
        raise no_such_overload() from None
    return address.value in prefix.network


def _contains_cidr(prefix: Prefix, other: Prefix | str) -> bool:
    inner = other if isinstance(other, Prefix) else _cidr(other)
    return inner.address in prefix.network and prefix.length <= inner.length


def _is_global_unicast(address: Address) -> bool:
    value = address.value
    if isinstance(value, IPv4Address) and str(value) == "255.255.255.255":
        return False
    return not (value.is_unspecified or value.is_loopback or value.is_multicast or value.is_link_local)


def _is_link_local_multicast(address: Address) -> bool:
    value = address.value
    if isinstance(value, IPv4Address):
        return value in IPv4Network("224.0.0.0/24")
    return int(value) >> 112 & 0xFF0F == 0xFF02


def _masked(prefix: Prefix) -> Prefix:
    return Prefix(prefix.network.network_address, prefix.length)


def _flag(name: str) -> Any:
    read = operator.attrgetter(f"value.{name}")
    return lambda address: bool(read(address))


def functions() -> list[Function]:
    """The functions of addresses and of networks."""
    return group(
        [
            Overload("string_to_ip", "ip(string) -> IP", _ip),
            Overload("cidr_ip", "CIDR.ip() -> IP", lambda prefix: Address(prefix.address)),
            Overload("ip_family", "IP.family() -> int", lambda address: address.value.version),
            Overload("ip_is_canonical", "ip.isCanonical(string) -> bool", lambda text: str(_ip(text)) == text),
            Overload("ip_is_unspecified", "IP.isUnspecified() -> bool", _flag("is_unspecified")),
            Overload("ip_is_loopback", "IP.isLoopback() -> bool", _flag("is_loopback")),
            Overload("ip_is_link_local_multicast", "IP.isLinkLocalMulticast() -> bool", _is_link_local_multicast),
            Overload("ip_is_link_local_unicast", "IP.isLinkLocalUnicast() -> bool", _flag("is_link_local")),
            Overload("ip_is_global_unicast", "IP.isGlobalUnicast() -> bool", _is_global_unicast),
            Overload("is_ip", "isIP(string) -> bool", _is_ip),
            Overload("ip_to_string", "string(IP) -> string", str),
            Overload("string_to_cidr", "cidr(string) -> CIDR", _cidr),
            Overload("cidr_contains_ip_string", "CIDR.containsIP(string) -> bool", _contains_ip),
            Overload("cidr_contains_ip_ip", "CIDR.containsIP(IP) -> bool", _contains_ip),
            Overload("cidr_contains_cidr_string", "CIDR.containsCIDR(string) -> bool", _contains_cidr),
            Overload("cidr_contains_cidr", "CIDR.containsCIDR(CIDR) -> bool", _contains_cidr),
            Overload("cidr_prefix_length", "CIDR.prefixLength() -> int", lambda prefix: prefix.length),
            Overload("cidr_masked", "CIDR.masked() -> CIDR", _masked),
            Overload("is_cidr", "isCIDR(string) -> bool", _is_cidr),
            Overload("cidr_to_string", "string(CIDR) -> string", str),
        ]
    )
