"""What a container's variables are, and from where.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidateEnv, ValidateEnvFrom).
"""

import re

from controlplane.apiserver.core_rules import config_key
from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import complaints, label_name
from resourceapi.objects.names import dns_subdomain

_NAME = re.compile(r"[ -<>-~]+")
_NO_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ONE = "may not have more than one field specified at a time"
_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]")
_FIELDS = [
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
]
_OTHER_FIELDS = ("metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase")
_AMOUNTS = [f"{which}.{name}" for which in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")]
_PAGES = ("limits.hugepages-", "requests.hugepages-")


def check_variables(errors: ErrorList, container: Plain, path: str) -> None:
    """Those that it names, and those that it takes over."""
    for index, variable in enumerate(container.get("env") or ()):
        here, name, source = f"{path}.env[{index}]", variable.get("name") or "", variable.get("valueFrom")
        if not name:
            errors.required(f"{here}.name")
        elif not _NAME.fullmatch(name):
            errors.invalid(f"{here}.name", name, _NO_NAME)
        if source is not None:
            _source(errors, source, f"{here}.valueFrom", has_value=bool(variable.get("value")))
    for index, each in enumerate(container.get("envFrom") or ()):
        here, prefix = f"{path}.envFrom[{index}]", each.get("prefix") or ""
        if prefix and not _NAME.fullmatch(prefix):
            errors.invalid(f"{here}.prefix", prefix, _NO_NAME)
        found = [name for name in ("configMapRef", "secretRef") if each.get(name) is not None]
        for member in found:
            name = each[member].get("name") or ""
            if name:
                complaints(errors, f"{here}.{member}.name", name, dns_subdomain(name))
            else:
                errors.required(f"{here}.{member}.name")
        if len(found) != 1:
            why = _ONE if found else "must specify one of: `configMapRef` or `secretRef`"
            errors.invalid(f"{path}.envFrom", "", why)


def _source(errors: ErrorList, source: Plain, path: str, *, has_value: bool) -> None:
    found = [name for name in _SOURCES if source.get(name) is not None]
    for name in found:
        here, each = f"{path}.{name}", source[name]
        if name == "fieldRef":
            _field(errors, each.get("fieldPath") or "", here)
        elif name == "resourceFieldRef":
            _amount(errors, each.get("resource") or "", here)
        elif name != "fileKeyRef":
            complaints(errors, f"{here}.name", each.get("name") or "", dns_subdomain(each.get("name") or ""))
            if each.get("key"):
                config_key(errors, f"{here}.key", each["key"])
            else:
                errors.required(f"{here}.key")
    if has_value:
        if found:
            errors.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(found) > 1:
        errors.invalid(path, "", _ONE)
    elif not found:
        *others, last = (f"`{name}`" for name in _SOURCES)
        errors.invalid(path, "", f"must specify one of: {', '.join(others)} or {last}")


def _field(errors: ErrorList, field: str, path: str) -> None:
    """A field of the pod."""
    subscripted = _SUBSCRIPTED.fullmatch(field)
    if not field:
        errors.required(f"{path}.fieldPath")
    elif subscripted:
        label_name(errors, path, subscripted[2].lower() if subscripted[1].endswith("annotations") else subscripted[2])
    elif field in _OTHER_FIELDS:
        errors.not_supported(f"{path}.fieldPath", field, _FIELDS)
    elif field not in _FIELDS:
        errors.invalid(f"{path}.fieldPath", field, f"error converting fieldPath: field label not supported: {field}")


def _amount(errors: ErrorList, resource: str, path: str) -> None:
    """What the container asks for."""
    if not resource:
        errors.required(f"{path}.resource")
    elif resource not in _AMOUNTS and not resource.startswith(_PAGES):
        errors.not_supported(f"{path}.resource", resource, _AMOUNTS)
