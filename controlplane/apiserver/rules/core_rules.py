"""The rules of ConfigMaps, Secrets, Leases and PriorityClasses.

Source: k8s.io/kubernetes pkg/apis/core/validation, coordination/validation and scheduling/validation.
"""

import base64
import re
from collections.abc import Mapping

import msgspec

from controlplane.apiserver.json_faults import json_fault
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.rules.choices import check_choice
from controlplane.apiserver.status import go_name
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.json_value import json_equal

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NO_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
    " or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_MAX_KEY_LENGTH = 253
_MAX_BYTES = 1024 * 1024  # of all values together
_SET = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"
_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_IN_JSON = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM_CLASSES = {"system-cluster-critical", "system-node-critical"}
_PREEMPTION = ["PreemptLowerPriority", "Never"]
_FIXED = "field is immutable"


def _keys(errors: ErrorList, path: str, data: Plain | None) -> None:
    for key in data or {}:
        config_key(errors, f"{path}[{key}]", key)


def config_key(errors: ErrorList, path: str, key: str) -> None:
    """Check a key of a ConfigMap or a Secret."""
    if len(key) > _MAX_KEY_LENGTH:
        errors.invalid(path, key, f"must be no more than {_MAX_KEY_LENGTH} characters")
    if not _KEY.fullmatch(key):
        errors.invalid(path, key, _NO_KEY)
    if key in (".", ".."):
        errors.invalid(path, key, f"must not be '{key}'")
    elif key.startswith(".."):
        errors.invalid(path, key, "must not start with '..'")


def _check_immutable(errors: ErrorList, new: Plain, old: Plain | None, *members: str) -> None:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        errors.forbidden("immutable", _SET)
    for name in members:
        if not json_equal(new.get(name), old.get(name)):
            errors.forbidden(name, _SET)


def check_config_map(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a ConfigMap."""
    _check_immutable(errors, new, old, "data", "binaryData")
    _keys(errors, "data", new.get("data"))
    for key in new.get("data") or {}:
        if key in (new.get("binaryData") or {}):
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    _keys(errors, "binaryData", new.get("binaryData"))
    texts, bytes_ = (new.get(name) or {} for name in ("data", "binaryData"))
    if sum(len(text.encode()) for text in texts.values()) + _decoded_size(bytes_) > _MAX_BYTES:
        errors.too_long("[]", _MAX_BYTES)  # Go's form of the root path


def _decoded_size(data: Plain) -> int:
    """The decoded size of base64 values, in bytes."""
    return sum(len(text) // 4 * 3 - text[-2:].count("=") for text in data.values())


def check_secret(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a Secret."""
    kind, data = new.get("type"), new.get("data") or {}
    if old is not None and kind != old.get("type"):
        errors.invalid("type", Token(kind or ""), _FIXED)
    _check_immutable(errors, new, old, "data")
    _keys(errors, "data", data)
    if _decoded_size(data) > _MAX_BYTES:
        errors.too_long("data", _MAX_BYTES)
    if kind == "kubernetes.io/service-account-token":
        if not (new["metadata"].get("annotations") or {}).get(_ACCOUNT):
            errors.required(f"metadata.annotations[{_ACCOUNT}]")
    elif kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        errors.required("data[username]")
        errors.required("data[password]")
    for key in _NEEDED.get(str(kind), ()):
        if not data.get(key) and (key not in data or kind == "kubernetes.io/ssh-auth"):
            errors.required(f"data[{key}]")
        elif kind in _IN_JSON and (why := _object_fault(base64.b64decode(data[key]))):
            errors.invalid(f"data[{key}]", "<secret contents redacted>", why)


def _object_fault(data: bytes) -> str:
    """Why data is not a JSON object, with Go's message; empty if it is one."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json_fault(data)
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {go_name(value)} into Go value of type map[string]interface {{}}"


def _lease(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    seconds = new["spec"].get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    not_negative(errors, "spec.leaseTransitions", new["spec"].get("leaseTransitions"))


def _priority_class(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    name, value, policy = new["metadata"].get("name", ""), new.get("value", 0), new.get("preemptionPolicy")
    if old is not None:
        if value != old.get("value", 0):
            errors.forbidden("value", "may not be changed in an update.")
        if policy != old.get("preemptionPolicy"):
            errors.invalid("preemptionPolicy", policy, _FIXED)
        return
    if name.startswith("system-") and name not in _SYSTEM_CLASSES:
        why = "priority class names with 'system-' prefix are reserved for system use only."
        errors.forbidden("metadata.name", f"{why} error: {name} is not a known system priority class")
    elif value > _HIGHEST_PRIORITY and name not in _SYSTEM_CLASSES:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")
    check_choice(errors, "preemptionPolicy", policy, _PREEMPTION)


CHECKS: Mapping[str, Check] = {"Lease": _lease, "PriorityClass": _priority_class}
"""Kind -> rules."""
