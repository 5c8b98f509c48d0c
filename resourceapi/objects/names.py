"""The rules for names, labels and identifiers, with the API server's messages.

Each function returns the problems about a value, none if it is valid. Lengths are in bytes of UTF-8.
"""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_WITH_UNDERSCORES = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_WITH_UNDERSCORES = rf"{_LABEL_WITH_UNDERSCORES}(\.{_LABEL_WITH_UNDERSCORES})*"
_LABEL_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_LABEL_KEY})?"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_CONDITION_REASON = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"

_IS_LABEL = re.compile(_LABEL)
_IS_LABEL_WITH_UNDERSCORES = re.compile(_LABEL_WITH_UNDERSCORES)
_IS_LABEL_1035 = re.compile(_LABEL_1035)
_IS_LABEL_KEY = re.compile(_LABEL_KEY)
_IS_LABEL_VALUE = re.compile(_LABEL_VALUE)
_IS_IDENTIFIER = re.compile(_IDENTIFIER)
_IS_CONDITION_REASON = re.compile(_CONDITION_REASON)

_KEY_CHARACTERS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
REQUESTS_PREFIX = "requests."


def size(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def dns_label(name: str, unit: str = "characters") -> list[str]:
    """Complaints about an RFC 1123 label: names of devices, requests, namespaces. See `dns_subdomain` for `unit`."""
    problems = _too_long(name, MAX_LABEL, unit)
    if not _IS_LABEL.fullmatch(name):
        if _is_subdomain(name):
            problems.append("must not contain dots")
        else:
            rule = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
                " and must start and end with an alphanumeric character"
            )
            problems.append(_for_example(rule, _LABEL, "my-name", "123-abc"))
    return problems


def dns_1035_label(name: str, unit: str = "characters") -> list[str]:
    """Complaints about an RFC 1035 label: names of kinds, of services before 1.36. See `dns_subdomain` for `unit`."""
    problems = _too_long(name, MAX_LABEL, unit)
    if not _IS_LABEL_1035.fullmatch(name):
        rule = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-',"
            " start with an alphabetic character, and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, _LABEL_1035, "my-name", "abc-123"))
    return problems


def dns_subdomain(name: str, unit: str = "characters") -> list[str]:
    """Complaints about an RFC 1123 subdomain: names of objects, nodes, classes.

    The limit is in bytes, but the reference's older code calls them characters, which is why there is `unit`.
    """
    problems = _too_long(name, MAX_SUBDOMAIN, unit)
    if not _is_subdomain(name):
        rule = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
            " and must start and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, _SUBDOMAIN, "example.com"))
    return problems


def dns_subdomain_in_any_case(name: str) -> list[str]:
    """Complaints about an RFC 1123 subdomain that can have capitals: names of drivers, in 1.37's words."""
    problems = _too_long(name, MAX_SUBDOMAIN, "bytes")
    if not _is_subdomain(_lower(name)):
        rule = (
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.',"
            " and must start and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, _SUBDOMAIN, "Example.com"))
    return problems


def dns_subdomain_with_underscores(name: str) -> list[str]:
    """Complaints about a DNS search domain, which can have underscores."""
    problems = _too_long(name, MAX_SUBDOMAIN, "characters")
    if not all(_IS_LABEL_WITH_UNDERSCORES.fullmatch(label) for label in name.split(".")):
        rule = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.',"
            " and must start and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, _SUBDOMAIN_WITH_UNDERSCORES, "example.com"))
    return problems


def wildcard_subdomain(name: str) -> list[str]:
    """Complaints about a wildcard domain such as `*.example.com`: hosts of Ingresses."""
    problems = _too_long(name, MAX_SUBDOMAIN, "characters")
    if not (name.startswith("*.") and _is_subdomain(name.removeprefix("*."))):
        rule = (
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist"
            " of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, rf"\*\.{_SUBDOMAIN}", "*.example.com"))
    return problems


def path_segment(name: str) -> list[str]:
    """Complaints about a name that can be any URL path segment: names of roles."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def label_key(key: str) -> list[str]:
    """Complaints about a label's key (`name` or `domain/name`); also for taints, finalizers, condition types."""
    problems = []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        text = _for_example(f"a valid label key {_KEY_CHARACTERS}", _LABEL_KEY, "MyName", "my.name", "123-abc")
        return [f"{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if slash:
        about = dns_subdomain(prefix, "bytes") if prefix else ["must be non-empty"]
        problems = [f"prefix part {problem}" for problem in about]
    if not name:
        problems.append("name part must be non-empty")
    elif size(name) > MAX_LABEL:
        problems.append(f"name part must be no more than {MAX_LABEL} bytes")
    if not _IS_LABEL_KEY.fullmatch(name):
        problems.append("name part " + _for_example(_KEY_CHARACTERS, _LABEL_KEY, "MyName", "my.name", "123-abc"))
    return problems


def label_value(value: str) -> list[str]:
    """Complaints about a label's value; also for taints and tolerations."""
    problems = _too_long(value, MAX_LABEL, "bytes")
    if not _IS_LABEL_VALUE.fullmatch(value):
        rule = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
            " and must start and end with an alphanumeric character"
        )
        problems.append(_for_example(rule, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def c_identifier(name: str) -> list[str]:
    """Complaints about an identifier: the last part of attribute and capacity names."""
    if _IS_IDENTIFIER.fullmatch(name):
        return []
    rule = (
        "a valid C identifier must start with alphabetic character or '_',"
        " followed by a string of alphanumeric characters or '_'"
    )
    return [_for_example(rule, _IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def condition_reason(reason: str) -> list[str]:
    """Complaints about a condition's reason."""
    if _IS_CONDITION_REASON.fullmatch(reason):
        return []
    rule = (
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric"
        " characters or '_,:', and must end with an alphanumeric character or '_'"
    )
    return [_for_example(rule, _CONDITION_REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")]


def is_extended_resource(name: str) -> bool:
    """Return whether a resource name is outside of kubernetes.io and can be requested."""
    if is_native_resource(name) or name.startswith(REQUESTS_PREFIX):
        return False
    return not label_key(REQUESTS_PREFIX + name)


def is_native_resource(name: str) -> bool:
    """Return whether a resource belongs to Kubernetes itself, as cpu does."""
    return "/" not in name or "kubernetes.io/" in name


def _is_subdomain(name: str) -> bool:
    # Match label by label: a single expression for the whole name backtracks endlessly on long hostile names.
    return all(_IS_LABEL.fullmatch(label) for label in name.split("."))


def _lower(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if size(text) > limit else []


def _for_example(rule: str, expression: str, *examples: str) -> str:
    shown = "".join(f"'{example}',  or " for example in examples).removesuffix(" or ").rstrip()
    return f"{rule} (e.g. {shown} regex used for validation is '{expression}')"
