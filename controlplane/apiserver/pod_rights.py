"""With which rights a pod and its containers run.

Not all is looked at: AppArmor, Windows and SELinux are taken as they come. Source: k8s.io/kubernetes
pkg/apis/core/validation/validation.go (ValidateSecurityContext, ValidatePodSecurityContext).
"""

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder

_MOST_ID = 2**31 - 1
_OF_PODS = ("fsGroup", "runAsUser", "runAsGroup")
_PROC_MOUNTS = ["Default", "Unmasked"]
_SECCOMP = ["Localhost", "RuntimeDefault", "Unconfined"]
_SHOWN_CONTEXT = (
    *("Capabilities", "Privileged", "SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot"),
    *("ReadOnlyRootFilesystem", "AllowPrivilegeEscalation", "ProcMount", "SeccompProfile", "AppArmorProfile"),
)


def check_pod_rights(errors: ErrorList, context: Plain, path: str) -> None:
    """The security context of a pod, which all of its containers have."""
    _check_ids(errors, context, path, _OF_PODS)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        name = f"supplementalGroups[{index}]"
        _check_ids(errors, {name: group}, path, (name,))
    _check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")


def check_rights(errors: ErrorList, context: Plain, path: str, *, is_host_user: bool) -> None:
    """The security context of a container; `is_host_user`: its users are those of the host."""
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


def _check_descending(errors: ErrorList, path: str, text: str) -> None:
    """A path that leads down from where it begins."""
    if text.startswith("/"):
        errors.invalid(path, text, "must be a relative path")
    if ".." in text.split("/"):
        errors.invalid(path, text, "must not contain '..'")


def _check_ids(errors: ErrorList, context: Plain, path: str, names: tuple[str, ...]) -> None:
    """Numbers of users and groups."""
    for name in names:
        number = context.get(name)
        if number is not None and not 0 <= number <= _MOST_ID:
            errors.invalid(f"{path}.{name}", number, f"must be between 0 and {_MOST_ID}, inclusive")


def _check_seccomp(errors: ErrorList, profile: Plain | None, path: str) -> None:
    """Which system calls may be made."""
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
            _check_descending(errors, f"{path}.localhostProfile", local)
    elif local is not None:
        why = "can only be set when seccomp type is Localhost"
        errors.invalid(f"{path}.localhostProfile", InOrder({"Type": kind, "LocalhostProfile": local}), why)


def _shown(context: Plain) -> InOrder:
    """As the API server's own struct is printed."""
    members = {name.lower(): item for name, item in context.items()}
    shown: Plain = {name: members.get(name.lower()) for name in _SHOWN_CONTEXT}
    if shown["Capabilities"] is not None:
        shown["Capabilities"] = {name: shown["Capabilities"].get(name.lower()) for name in ("Add", "Drop")}
    return InOrder(shown)
