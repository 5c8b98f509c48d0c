"""The security contexts of a pod and its containers.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidateSecurityContext,
validatePodSpecSecurityContext); kubernetes.io "Using sysctls in a Kubernetes Cluster".
"""

import re
from collections.abc import Sequence

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.windows_options import check_windows_options
from controlplane.apiserver.rules.choices import check_optional_choice
from controlplane.apiserver.rules.paths import check_relative_path
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder

_MAX_ID = 2**31 - 1
_OF_PODS = ("fsGroup", "runAsUser", "runAsGroup")
_PROC_MOUNTS = ["Default", "Unmasked"]
_SECCOMP = ["Localhost", "RuntimeDefault", "Unconfined"]
_CHANGES = ["Always", "OnRootMismatch"]
_GROUPS = ["Merge", "Strict"]
_RELABELLING = ["MountOption", "Recursive"]
_MAX_PROFILE_LENGTH = 4095  # bytes of a path on Linux
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_IS_SYSCTL = re.compile(_SYSCTL)
_MAX_SYSCTL_LENGTH = 253
_NO_SYSCTL = f"must have at most {_MAX_SYSCTL_LENGTH} characters and match regex ^{_SYSCTL}$"
_SWAPPED = str.maketrans("./", "/.")
_OF_IPC = {
    *("kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"),
    *("kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni"),
}
_SHOWN_CONTEXT = (
    *("Capabilities", "Privileged", "SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot"),
    *("ReadOnlyRootFilesystem", "AllowPrivilegeEscalation", "ProcMount", "SeccompProfile", "AppArmorProfile"),
)


def check_pod_security_context(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the security context of a pod, which applies to all of its containers."""
    context: Plain = spec.get("securityContext") or {}
    _check_ids(errors, context, path, _OF_PODS)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        name = f"supplementalGroups[{index}]"
        _check_ids(errors, {name: group}, path, (name,))
    _check_sysctls(errors, spec, context.get("sysctls") or (), f"{path}.sysctls")
    check_optional_choice(errors, f"{path}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), _CHANGES)
    _check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")
    check_windows_options(errors, context.get("windowsOptions"), f"{path}.windowsOptions")
    check_armor(errors, context.get("appArmorProfile"), f"{path}.appArmorProfile")
    check_optional_choice(errors, f"{path}.supplementalGroupsPolicy", context.get("supplementalGroupsPolicy"), _GROUPS)
    check_optional_choice(errors, f"{path}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), _RELABELLING)


def _check_sysctls(errors: ErrorList, spec: Plain, sysctls: Sequence[Plain], path: str) -> None:
    """Check the sysctls, which have to be namespaced."""
    seen: set[str] = set()
    for index, each in enumerate(sysctls):
        here, name = f"{path}[{index}].name", each.get("name") or ""
        if not name:
            errors.required(here)
        elif len(name) > _MAX_SYSCTL_LENGTH or not _IS_SYSCTL.fullmatch(name):
            errors.invalid(here, name, _NO_SYSCTL)
        elif name in seen:
            errors.duplicate(here, name)
        seen.add(name)
        first = re.search("[./]", name)
        dotted = name.translate(_SWAPPED) if first and first[0] == "/" else name
        is_of_ipc = dotted in _OF_IPC or dotted.startswith("fs.mqueue.")
        for member, is_of_host in (("hostNetwork", dotted.startswith("net.")), ("hostIPC", is_of_ipc)):
            if spec.get(member) and is_of_host:
                errors.invalid(here, name, f"may not be specified when '{member}' is true")


def check_armor(errors: ErrorList, profile: Plain | None, path: str) -> None:
    """Check an AppArmor profile."""
    if profile is None:
        return
    kind, local, here = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is not None and local != local.strip():
            errors.invalid(here, local, "must not be padded with whitespace")
        elif not local:
            errors.required(here, "must be set when AppArmor type is Localhost")
        if len((local or "").encode()) > _MAX_PROFILE_LENGTH:
            errors.too_long(here, _MAX_PROFILE_LENGTH)
    elif not kind:
        errors.required(f"{path}.type", "type is required when appArmorProfile is set")
    elif kind not in _SECCOMP:
        errors.not_supported(f"{path}.type", kind, _SECCOMP)
    elif local is not None:
        errors.invalid(here, local, "can only be set when AppArmor type is Localhost")


def check_security_context(errors: ErrorList, context: Plain, path: str, *, is_host_user: bool) -> None:
    """Check the security context of a container; `is_host_user`: the pod is in the host's user namespace."""
    _check_ids(errors, context, path, ("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None:
        if mount not in _PROC_MOUNTS:
            errors.not_supported(f"{path}.procMount", mount, _PROC_MOUNTS)
        elif mount == "Unmasked" and is_host_user:
            errors.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    _check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.invalid(path, _shown(context), why)
        for _ in (name for name in (context.get("capabilities") or {}).get("add") or () if name == "CAP_SYS_ADMIN"):
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.invalid(path, _shown(context), why)
    check_windows_options(errors, context.get("windowsOptions"), f"{path}.windowsOptions")
    check_armor(errors, context.get("appArmorProfile"), f"{path}.appArmorProfile")


def _check_ids(errors: ErrorList, context: Plain, path: str, names: tuple[str, ...]) -> None:
    """Check ids of users and groups."""
    for name in names:
        number = context.get(name)
        if number is not None and not 0 <= number <= _MAX_ID:
            errors.invalid(f"{path}.{name}", number, f"must be between 0 and {_MAX_ID}, inclusive")


def _check_seccomp(errors: ErrorList, profile: Plain | None, path: str) -> None:
    """Check a seccomp profile."""
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        errors.required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in _SECCOMP:
        errors.not_supported(f"{path}.type", kind, _SECCOMP)
    if kind == "Localhost":
        if local is None:
            errors.required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            check_relative_path(errors, f"{path}.localhostProfile", local)
    elif local is not None:
        why = "can only be set when seccomp type is Localhost"
        errors.invalid(f"{path}.localhostProfile", InOrder({"Type": kind, "LocalhostProfile": local}), why)


def _shown(context: Plain) -> InOrder:
    """A security context as Go prints the API server's internal struct."""
    members = {name.lower(): item for name, item in context.items()}
    shown: Plain = {name: members.get(name.lower()) for name in _SHOWN_CONTEXT}
    if shown["Capabilities"] is not None:
        shown["Capabilities"] = {name: shown["Capabilities"].get(name.lower()) for name in ("Add", "Drop")}
    return InOrder(shown)
