"""Restrictions by the operating system of a pod, and by its user namespace.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateOS, validateLinux, validateWindows,
validateWindowsHostProcessPod, validateHostUsers).
"""

from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.containers import containers_of
from resourceapi.objects import ErrorList

_LINUX, _WINDOWS = "linux", "windows"
_NOT_OF_POD_ON_WINDOWS = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser"),
    *("runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"),
)
_NOT_OF_CONTAINER_ON_WINDOWS = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged"),
    *("allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup"),
)
_PLAIN = ("hostPID", "hostIPC")  # no pointers in Go: false is the same as missing
_HOST_USERS = "when `hostUsers` is false"


def check_operating_system(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check that a pod has no fields that its operating system does not support."""
    system = spec.get("os")
    if system is None:
        return
    name = system.get("name") or ""
    if not name:
        errors.required(f"{path}.os.name")
    elif name == _WINDOWS:
        _check_windows(errors, spec, path)
    elif name == _LINUX:
        for where, context in (("", spec.get("securityContext")), *_contexts(spec)):
            if (context or {}).get("windowsOptions") is not None:
                here = f"{path}{where}.securityContext.windowsOptions"
                errors.forbidden(here, "windows options cannot be set for a linux pod")
    else:
        errors.not_supported(f"{path}.os", name, [_LINUX, _WINDOWS])


def _contexts(spec: Plain) -> list[tuple[str, Any]]:
    """The security contexts of all containers, with their paths in the spec."""
    return [(where, each.get("securityContext")) for where, each in containers_of(spec, "")]


def _check_windows(errors: ErrorList, spec: Plain, path: str) -> None:
    why, context = "cannot be set for a windows pod", spec.get("securityContext") or {}
    for name in _NOT_OF_POD_ON_WINDOWS:
        if context.get(name) is not None and (name != "sysctls" or context[name]):
            errors.forbidden(f"{path}.securityContext.{name}", why)
    for name in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(name) is not None and (spec[name] or name not in _PLAIN):
            errors.forbidden(f"{path}.{name}", why)
    for where, each in _contexts(spec):
        for name in _NOT_OF_CONTAINER_ON_WINDOWS:
            if (each or {}).get(name) is not None:
                errors.forbidden(f"{path}{where}.securityContext.{name}", why)


def check_host_users(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check that a pod with its own user namespace shares no other namespace with the host."""
    if spec.get("hostUsers") is not False:
        return
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            errors.forbidden(f"{path}.{shown}", _HOST_USERS)
    for where, each in containers_of(spec, path):
        if each.get("volumeDevices"):
            errors.forbidden(f"{where}.volumeDevices", _HOST_USERS)


def check_host_processes(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check HostProcess containers on Windows: all containers of a pod, or none."""
    whole = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    found = []
    for where, context in _contexts(spec):
        own = ((context or {}).get("windowsOptions") or {}).get("hostProcess")
        if whole is not None and own is not None and own != whole:
            why = f"pod hostProcess value must be identical if both are specified, was {str(whole).lower()}"
            errors.invalid(f"{path}{where}.securityContext.windowsOptions.hostProcess", own, why)
        found.append(bool(whole if own is None else own))
    if not any(found):
        return
    if not all(found):
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.invalid(path, "", why)
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.invalid(f"{path}.hostNetwork", False, why)
