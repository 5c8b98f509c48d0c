"""format.*: Kubernetes' named formats and their validation. Source: k8s.io/apiserver/pkg/cel/library/format.go."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.library.urls import Url, UrlError
from resourceapi.cel.values import NONE, Optional, register_type

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))"
_TIME_LENGTH = len(rf"^{_TIME}$")


class NamedFormat:
    """A format with a name; `check` returns what is wrong with a text."""

    __slots__ = ("check", "max_regex_size", "name")

    def __init__(self, name: str, check: Callable[[str], list[str]], max_regex_size: int) -> None:
        self.name = name
        self.check = check
        self.max_regex_size = max_regex_size


register_type(NamedFormat, "kubernetes.NamedFormat", "cel.Format", lambda left, right: bool(left.name == right.name))


def _example(message: str, pattern: str, *examples: str) -> str:
    quoted = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {quoted}regex used for validation is '{pattern}')"


_LABEL_ERROR = _example(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_ERROR = _example(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_LABEL_1035_ERROR = _example(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_KEY_ERROR = _example(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character",
    _KEY,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_ERROR = _example(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def _label(text: str) -> list[str]:
    problems = _too_long(text, 63, "bytes")
    if not re.fullmatch(_LABEL, text):
        problems.append("must not contain dots" if re.fullmatch(_SUBDOMAIN, text) else _LABEL_ERROR)
    return problems


def _subdomain(text: str) -> list[str]:
    problems = _too_long(text, 253, "bytes")
    if not re.fullmatch(_SUBDOMAIN, text):
        problems.append(_SUBDOMAIN_ERROR)
    return problems


def _label_1035(text: str) -> list[str]:
    problems = _too_long(text, 63, "bytes")
    if not re.fullmatch(_LABEL_1035, text):
        problems.append(_LABEL_1035_ERROR)
    return problems


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    problems: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in _subdomain(parts[0])]
    elif len(parts) > 2:
        message = _KEY_ERROR.removeprefix("name part must consist").strip()
        return [
            f"a valid label key must consist {message} with an optional DNS subdomain prefix and '/'"
            " (e.g. 'example.com/MyName')"
        ]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    else:
        problems += [f"name part {problem}" for problem in _too_long(name, 63, "bytes")]
    if not re.fullmatch(_KEY, name):
        problems.append(_KEY_ERROR)
    return problems


def _label_value(text: str) -> list[str]:
    problems = _too_long(text, 63, "bytes")
    if not re.fullmatch(_VALUE, text):
        problems.append(_VALUE_ERROR)
    return problems


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """The check of a prefix, which may end with a dash."""

    def run(text: str) -> list[str]:
        if len(text.encode()) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        return check(text)

    return run


def _uri(text: str) -> list[str]:
    try:
        Url(text)
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
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
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
