"""The probes and lifecycle hooks of containers.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateProbe, validateHandler).
"""

from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.rules.ports import check_port, check_port_or_name
from resourceapi.objects import ErrorList

_SCHEMES = ["HTTP", "HTTPS"]
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_ONCE = "must be 1"
_NO_PROBES = "may not be set for init containers without restartPolicy=Always"


def check_hooks_and_probes(errors: ErrorList, container: Plain, path: str, grace: Any) -> None:
    """Check the hooks and probes of a long-running container; `grace` is the pod's grace period in seconds."""
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


def check_no_hooks_or_probes(errors: ErrorList, container: Plain, path: str) -> None:
    """Check that an init container has neither hooks nor probes."""
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
