"""format.*: Kubernetes' named formats and their validation. Source: k8s.io/apiserver/pkg/cel/library/format.go."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.library.urls import UrlError, check_request_uri
from resourceapi.cel.values import NONE, Optional, register_type
from resourceapi.objects import names

_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"
_TIME_LENGTH = len(rf"^{_TIME}$")


class NamedFormat:
    """A format with a name; `check` returns the faults of a text."""

    __slots__ = ("check", "max_regex_size", "name")

    def __init__(self, name: str, check: Callable[[str], list[str]], max_regex_size: int) -> None:
        self.name = name
        self.check = check
        self.max_regex_size = max_regex_size


register_type(NamedFormat, "kubernetes.NamedFormat", "cel.Format", lambda left, right: bool(left.name == right.name))


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a name prefix, which can end with a dash."""

    def run(text: str) -> list[str]:
        if len(text.encode()) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        return check(text)

    return run


def _uri(text: str) -> list[str]:
    try:
        check_request_uri(text)
    except UrlError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    year, month, day = (int(part) for part in text.split("-"))
    try:
        date(year or 400, month, day)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = re.fullmatch(_TIME, parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _matching(test: Callable[[str], Any], message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if test(text) else [message]


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")

FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", names.dns_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", names.dns_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", names.dns_1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", names.label_key, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(names.dns_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(names.dns_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(names.dns_1035_label), 30),
    "labelValue": NamedFormat("LabelValue", names.label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat(
        "uuid", _matching(lambda text: re.search(_UUID, text), "does not match the UUID format"), len(_UUID)
    ),
    "byte": NamedFormat("byte", _matching(_BASE64.fullmatch, "invalid base64"), 84),
    "date": NamedFormat("date", _matching(_is_date, "invalid date"), _TIME_LENGTH),
    "datetime": NamedFormat("datetime", _matching(_is_datetime, "invalid datetime"), _TIME_LENGTH),
}


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _validate(named: NamedFormat, text: str) -> Optional:
    problems = named.check(text)
    return Optional(problems) if problems else NONE


def _constant(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


def functions() -> list[Function]:
    """The formats by name, and validate()."""
    return group(
        [
            Overload("format-validate", "Format.validate(string) -> optional(list(string))", _validate),
            Overload("format-named", "format.named(string) -> optional(Format)", _named),
            *(
                Overload(f"format.{name}", f"format.{name}() -> Format", _constant(value))
                for name, value in FORMATS.items()
            ),
        ]
    )
