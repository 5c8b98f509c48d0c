"""The formats of strings in a definition's schema.

Source: k8s.io/apiextensions-apiserver supported formats; k8s.io/kube-openapi strfmt. Formats such as ISBN and credit
card numbers are accepted but not checked; e-mail addresses are checked less thoroughly than in Go.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping

from resourceapi.cel.library.formats import FORMATS
from resourceapi.cel.library.times import parse_duration
from resourceapi.cel.re2 import compile_regex
from resourceapi.objects.names import dns_label, dns_subdomain

_HOSTNAME = (
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)"
    r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
)
_MAX_HOSTNAME, _MAX_LABEL = 255, 63
_HEX = "[0-9a-fA-F]"
_MAC = "|".join(
    rf"(?:{_HEX}{{{size}}}{separator}){{{count - 1}}}{_HEX}{{{size}}}"
    for size, separator, counts in ((2, ":", (6, 8, 20)), (2, "-", (6, 8, 20)), (4, r"\.", (3, 4, 10)))
    for count in counts
)
_WORD = r"[\w!#$%&'*+/=?^`{|}~.-]+"
_EMAIL = rf"(?:[^<>@,;:\"]*<{_WORD}@{_WORD}>|{_WORD}@{_WORD})"
_UNITS = (
    ("ns", "nano"),
    ("us", "µs", "micro"),
    ("ms", "milli"),
    ("s", "sec"),
    ("m", "min"),
    ("h", "hr", "hour"),
    ("d", "day"),
    ("w", "wk", "week"),
)
_UNCHECKED = ("bsonobjectid", "creditcard", "isbn", "isbn10", "isbn13", "password", "rgbcolor")
FORMATS_OF_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}
"""Type -> formats that limit its values."""


def is_known(name: str) -> bool:
    """Return whether a format of strings is supported; others are ignored."""
    return _plain(name) in _CHECKS or _plain(name) in _UNCHECKED


def is_formatted(text: str, name: str) -> bool:
    """Return whether a text has a format. True for formats that are not supported or not checked."""
    check = _CHECKS.get(_plain(name))
    return check is None or check(text)


def _plain(name: str) -> str:
    return name.replace("-", "")


def _named(name: str) -> Callable[[str], bool]:
    return lambda text: not FORMATS[name].check(text)


def _like(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    """A check for UUIDs whose third and fourth groups begin with one of these."""
    return _like(rf"{_HEX}{{8}}-?{_HEX}{{4}}-?{third}{_HEX}{{3}}-?{fourth}{_HEX}{{3}}-?{_HEX}{{12}}")


def _is_hostname(text: str) -> bool:
    if not compile_regex(_HOSTNAME).is_match(text) or len(text.encode()) > _MAX_HOSTNAME:
        return False
    return all(len(part.encode()) <= _MAX_LABEL for part in text.split("."))


def _is_address(text: str) -> bool:
    """Return whether Kubernetes accepts an address: decimals can have leading zeros, a zone is not allowed."""
    head, colon, last = text.rpartition(":")
    plain = head + colon + re.sub(r"(^|\.)0+(?=[0-9])", r"\1", last) if "." in last else text
    try:
        ipaddress.ip_address(plain)
    except ValueError:
        return False
    return "%" not in text


def _is_ipv4(text: str) -> bool:
    return "." in text and _is_address(text)


def _is_ipv6(text: str) -> bool:
    return ":" in text and _is_address(text)


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not _is_address(address) or not re.fullmatch("[0-9]{1,3}", bits, re.ASCII):
        return False
    return int(bits) <= (128 if ":" in address else 32)


def _is_duration(text: str) -> bool:
    if parse_duration(text) is not None:
        return True
    found = re.findall(r"[0-9]+[\t\n\f\r ]*([A-Za-zµ]+)", text)
    return any(unit.lower() in names or unit.lower().startswith(names[-1]) for unit in found for names in _UNITS)


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "byte": _named("byte"),
    "cidr": _is_cidr,
    "date": _named("date"),
    "datetime": _named("datetime"),
    "duration": _is_duration,
    "email": _like(_EMAIL),
    "hexcolor": _like("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "k8slongname": lambda text: not dns_subdomain(text),
    "k8sshortname": lambda text: not dns_label(text),
    "mac": _like(_MAC),
    "ssn": _like(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _named("uri"),
    "uuid": _uuid(_HEX, _HEX),
    "uuid3": _uuid("3", _HEX),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
}
