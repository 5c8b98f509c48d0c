"""How a container is asked whether it is well, what is done around its life, and with which rights it runs.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateProbe, validateHandler,
ValidateSecurityContext). Of rights not all is looked at: AppArmor, Windows and SELinux are taken as they come.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.auxiliary_rules import not_negative
from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import complaints

_SCHEMES = ["HTTP", "HTTPS"]
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_ONCE = "must be 1"
_NO_PROBES = "may not be set for init containers without restartPolicy=Always"
_MOST_ID = 2**31 - 1
_PROC_MOUNTS = ["Default", "Unmasked"]
_SECCOMP = ["Localhost", "RuntimeDefault", "Unconfined"]
_SHOWN_CONTEXT = (
    *("Capabilities", "Privileged", "SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot"),
    *("ReadOnlyRootFilesystem", "AllowPrivilegeEscalation", "ProcMount", "SeccompProfile", "AppArmorProfile"),
)


def check_port(errors: ErrorList, path: str, port: Any) -> None:
    """A number of a port."""
    if not isinstance(port, int) or not 0 < port < 65536:
        errors.invalid(path, port, "must be between 1 and 65535, inclusive")


def check_port_or_name(errors: ErrorList, path: str, port: Any) -> None:
    """A number of a port, or the name that a container has for one."""
    if isinstance(port, str):
        complaints(errors, path, port, _port_name(port))
    else:
        check_port(errors, path, port or 0)


def check_life(errors: ErrorList, container: Plain, path: str, grace: Any) -> None:
    """The hooks and probes of a container that lives as long as its pod; `grace`: seconds that the pod has to end."""
    for hook in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(hook)
        if handler is not None:
            _handler(errors, handler, f"{path}.lifecycle.{hook}", ("exec", "httpGet", "tcpSocket", "sleep"), grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe, here = container.get(name), f"{path}.{name}"
        if probe is None:
            continue
        _handler(errors, probe, here, ("exec", "httpGet", "tcpSocket", "grpc"), grace)
        for number in _NUMBERS:
            not_negative(errors, f"{here}.{number}", probe.get(number))
        seconds = probe.get("terminationGracePeriodSeconds")
        if seconds is not None and seconds <= 0:
            errors.invalid(f"{here}.terminationGracePeriodSeconds", seconds, "must be greater than 0")
        if name == "readinessProbe":
            if seconds is not None:
                text = "must not be set for readinessProbes"
                errors.invalid(f"{here}.terminationGracePeriodSeconds", seconds, text)
        elif probe.get("successThreshold") != 1:
            errors.invalid(f"{here}.successThreshold", probe.get("successThreshold") or 0, _ONCE)


def check_no_life(errors: ErrorList, container: Plain, path: str) -> None:
    """That a container which runs before the others has neither hooks nor probes."""
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            errors.forbidden(f"{path}.{name}", _NO_PROBES)


def _handler(errors: ErrorList, holder: Plain, path: str, kinds: tuple[str, ...], grace: Any) -> None:
    found = [kind for kind in kinds if holder.get(kind) is not None]
    for kind in found[:1]:
        here, action = f"{path}.{kind}", holder[kind]
        if kind == "sleep":
            seconds = action.get("seconds", 0)
            if isinstance(grace, int) and not 0 <= seconds <= grace:
                text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                errors.invalid(here, seconds, text)
        else:
            _ACTIONS[kind](errors, action, here)
    for kind in found[1:]:
        errors.forbidden(f"{path}.{kind}", "may not specify more than 1 handler type")
    if not found:
        errors.required(path, "must specify a handler type")


def _exec(errors: ErrorList, action: Plain, path: str) -> None:
    if not action.get("command"):
        errors.required(f"{path}.command")


def _http(errors: ErrorList, action: Plain, path: str) -> None:
    if not action.get("path"):
        errors.required(f"{path}.path")
    check_port_or_name(errors, f"{path}.port", action.get("port"))
    if action.get("scheme") not in _SCHEMES:
        errors.not_supported(f"{path}.scheme", action.get("scheme") or "", _SCHEMES)


def _tcp(errors: ErrorList, action: Plain, path: str) -> None:
    check_port_or_name(errors, f"{path}.port", action.get("port"))


def _grpc(errors: ErrorList, action: Plain, path: str) -> None:
    check_port(errors, f"{path}.port", action.get("port") or 0)


_ACTIONS: Mapping[str, Callable[[ErrorList, Plain, str], None]] = {
    "exec": _exec,
    "httpGet": _http,
    "tcpSocket": _tcp,
    "grpc": _grpc,
}


def _port_name(name: str) -> list[str]:
    found = []
    if len(name.encode()) > 15:
        found.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def check_rights(errors: ErrorList, context: Plain, path: str, *, is_host_user: bool) -> None:
    """The security context of a container; `is_host_user`: its users are those of the host."""
    check_ids(errors, context, path, ("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None:
        if mount not in _PROC_MOUNTS:
            errors.not_supported(f"{path}.procMount", mount, _PROC_MOUNTS)
        elif mount == "Unmasked" and is_host_user:
            errors.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    check_seccomp(errors, context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.invalid(path, _shown(context), why)
        for _ in (name for name in (context.get("capabilities") or {}).get("add") or () if name == "CAP_SYS_ADMIN"):
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.invalid(path, _shown(context), why)


def check_descending(errors: ErrorList, path: str, text: str) -> None:
    """A path that leads down from where it begins."""
    if text.startswith("/"):
        errors.invalid(path, text, "must be a relative path")
    if ".." in text.split("/"):
        errors.invalid(path, text, "must not contain '..'")


def check_ids(errors: ErrorList, context: Plain, path: str, names: tuple[str, ...]) -> None:
    """Numbers of users and groups."""
    for name in names:
        number = context.get(name)
        if number is not None and not 0 <= number <= _MOST_ID:
            errors.invalid(f"{path}.{name}", number, f"must be between 0 and {_MOST_ID}, inclusive")


def check_seccomp(errors: ErrorList, profile: Plain | None, path: str) -> None:
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
            check_descending(errors, f"{path}.localhostProfile", local)
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
