"""The environment variables of containers, and their sources.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidateEnv, ValidateEnvFrom).
"""

import re

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.core_rules import config_key
from controlplane.apiserver.rules.paths import check_no_parent_steps
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid, dns_label, label_name
from resourceapi.objects.names import dns_subdomain

_NAME = re.compile(r"[ -<>-~]+")
_NO_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ONE = "may not have more than one field specified at a time"
_SUBSCRIPTED = re.compile(r"(.+?)\['(.*)'\]")
_SUBSCRIPTS = ("metadata.annotations", "metadata.labels")
_FIELDS = [
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
]
_ALL_FIELDS = (*_FIELDS, *_SUBSCRIPTS, "spec.restartPolicy", "spec.schedulerName", "status.phase")
_AMOUNTS = [f"{which}.{name}" for which in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")]
_PAGES = ("limits.hugepages-", "requests.hugepages-")
_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVIDED = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral-storage": "local ephemeral storage",
    "hugepages": "hugepages",
}


def check_variables(errors: ErrorList, container: Plain, path: str) -> None:
    """Check a container's `env` and `envFrom`."""
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
                add_invalid(errors, f"{here}.{member}.name", name, dns_subdomain(name))
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
            check_pod_field(errors, each, here, _FIELDS)
        elif name == "resourceFieldRef":
            check_container_amount(errors, each, here)
        elif name == "fileKeyRef":
            _file(errors, each, here)
        else:
            add_invalid(errors, f"{here}.name", each.get("name") or "", dns_subdomain(each.get("name") or ""))
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


def _file(errors: ErrorList, source: Plain, path: str) -> None:
    """Check the reference to a key in a file of a volume."""
    key, volume, where = (source.get(name) or "" for name in ("key", "volumeName", "path"))
    if not key:
        errors.required(f"{path}.key")
    elif not _NAME.fullmatch(key):
        errors.invalid(f"{path}.key", key, _NO_NAME)
    if volume:
        dns_label(errors, f"{path}.volumeName", volume)
    else:
        errors.required(f"{path}.volumeName")
    if where:
        check_no_parent_steps(errors, f"{path}.path", where)
    else:
        errors.required(f"{path}.path")


def check_files_of_variables(errors: ErrorList, container: Plain, path: str, volumes: dict[str, Plain]) -> None:
    """Check that files with variables are in emptyDir volumes of the pod."""
    for index, variable in enumerate(container.get("env") or ()):
        source = (variable.get("valueFrom") or {}).get("fileKeyRef")
        if source is None:
            continue
        here, name = f"{path}.env[{index}].valueFrom.fileKeyRef.volumeName", source.get("volumeName") or ""
        if name not in volumes:
            errors.not_found(here, name)
        elif volumes[name].get("emptyDir") is None:
            errors.invalid(here, name, "referenced volume must be of type emptyDir")


def check_pod_field(errors: ErrorList, source: Plain, path: str, known: list[str]) -> None:
    """Check the reference to a field of the pod; `known` are the fields that are allowed here."""
    version, field = source.get("apiVersion") or "", source.get("fieldPath") or ""
    subscripted = _SUBSCRIPTED.fullmatch(field)
    why = ""
    if not version:
        errors.required(f"{path}.apiVersion")
    elif not field:
        errors.required(f"{path}.fieldPath")
    elif version != "v1":
        why = f"unsupported pod version: {version}"
    elif subscripted and subscripted[1] not in _SUBSCRIPTS:
        why = f"field label does not support subscript: {field}"
    elif subscripted:
        key = subscripted[2].lower() if subscripted[1] == _SUBSCRIPTS[0] else subscripted[2]
        label_name(errors, path, key)
    elif field not in known and field in _ALL_FIELDS:
        errors.not_supported(f"{path}.fieldPath", field, known)
    elif field not in known:
        why = f"field label not supported: {field}"
    if why:
        errors.invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {why}")


def check_container_amount(errors: ErrorList, source: Plain, path: str, *, is_named: bool = False) -> None:
    """Check the reference to a request or limit of a container; `is_named`: the reference names the container."""
    resource = source.get("resource") or ""
    if is_named and not source.get("containerName"):
        errors.required(f"{path}.containerName")
    elif not resource:
        errors.required(f"{path}.resource")
    elif resource not in _AMOUNTS and not resource.startswith(_PAGES):
        errors.not_supported(f"{path}.resource", resource, _AMOUNTS)
    unit = str(source.get("divisor") or "0")
    kind = "hugepages" if resource.startswith(_PAGES) else resource.rpartition(".")[2]
    units = ("1m", "1") if kind == "cpu" else _UNITS
    if unit != "0" and kind in _DIVIDED and unit not in units:
        listed = " and ".join(units) if kind == "cpu" else ", ".join(units)
        why = f"only divisor's values {listed} are supported with the {_DIVIDED[kind]} resource"
        errors.invalid(f"{path}.divisor", resource, why)
