"""Removes from a bundle the values of the configuration, and everything that looks like a credential."""

import re
from typing import Any, Final

_KEPT_TEMPLATE = re.compile(r"\{[A-Za-z0-9_./]+\}")
_USER_DEFINED: Final = frozenset({"env", "annotations", "additionalInfo", "additional_info"})
"""Fields of a configuration whose values are free text."""
REMOVED: Final = "<removed>"
_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api[-_]?key",
    "access[-_]?key",
    "private[-_]?key",
    "key-data",
    "authorization",
)
_CREDENTIALS: Final = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REMOVED),  # a JSON Web Token
    (re.compile(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(://)[^/\s:@\"']+:[^/\s@\"']+@"), rf"\1{REMOVED}@"),
    # name: value, name=value, "name": "value", also within a JSON string, where quotes are escaped
    (re.compile(rf"""(?i)((?:{"|".join(_NAMES)})[\w-]*\\?["']?\s*[:=]\s*(\\?["']))(?:(?!\2).)*"""), rf"\1{REMOVED}"),
    (re.compile(rf"""(?i)((?:{"|".join(_NAMES)})[\w-]*\s*[:=]\s*)[^\s"'\\,;}}\]{{\[]+"""), rf"\1{REMOVED}"),
)


def without_credentials(text: str) -> str:
    """Return a text without anything that looks like a credential; JSON stays JSON."""
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text


def without_values(configuration: Any) -> Any:
    """Return a configuration, as plain values, in which free-text fields keep only the templates of attributes."""
    if isinstance(configuration, list):
        return [without_values(each) for each in configuration]
    if not isinstance(configuration, dict):
        return configuration
    return {
        key: _emptied(value) if key in _USER_DEFINED else without_values(value) for key, value in configuration.items()
    }


def _emptied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _emptied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_emptied(each) for each in value]
    kept = "".join(_KEPT_TEMPLATE.findall(str(value)))
    return kept if kept == str(value) else f"{kept}{REMOVED}"
