"""The rules of ResourceQuotas and LimitRanges.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go and pkg/apis/core/helper/helpers.go.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.resource_rules import (
    COUNTED,
    HUGE_PAGES,
    check_amount,
    container_resource,
    quantity,
    standard_resource,
)
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList, Quantity
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import REQUESTS_PREFIX, is_native_resource, label_key

_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_OF_QUOTAS = {
    *(*_COMPUTE, *COUNTED, "ephemeral-storage", "requests.storage"),
    *("requests.ephemeral-storage", "limits.ephemeral-storage"),
}
_WITH_PODS = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    "CrossNamespacePodAffinity",
)
_OPPOSED = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_MEASURED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"),
        ("pods", *_COMPUTE),
    ),
    "BestEffort": ("pods",),
    "VolumeAttributesClass": ("persistentvolumeclaims", "requests.storage"),
}
"""Scope -> standard resources that can be used with it. Unknown scopes allow all."""
_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
    " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_NOT_OF_PODS = "may not be specified when `type` is 'Pod'"
_NO_STORAGE = "either minimum or maximum storage value is required, but neither was provided"


def _quota(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec = new["spec"]
    _check_amounts(errors, spec.get("hard") or {}, "spec.hard")
    scopes = spec.get("scopes") or []
    if scopes:
        _check_scopes(errors, scopes, spec, "spec.scopes", scopes)
    if spec.get("scopeSelector") is not None:
        _check_selector(errors, spec, "spec.scopeSelector.matchExpressions")
    if old is not None and {*scopes} != {*(old["spec"].get("scopes") or ())}:
        errors.invalid("spec.scopes", spec.get("scopes"), "field is immutable")


def check_quota_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the status of a quota."""
    del old
    for member in ("hard", "used"):
        _check_amounts(errors, new["status"].get(member) or {}, f"status.{member}")


def _check_amounts(errors: ErrorList, amounts: Plain, path: str) -> None:
    for name, amount in amounts.items():
        here = f"{path}[{name}]"
        standard_resource(errors, here, name)
        if "/" not in name and not _is_of_quotas(name):
            errors.invalid(here, name, "must be a standard resource for quota")
        check_amount(errors, here, name, amount)


def _is_of_quotas(name: str) -> bool:
    return name in _OF_QUOTAS or name.removeprefix(REQUESTS_PREFIX).startswith(HUGE_PAGES)


def _check_scopes(errors: ErrorList, scopes: list[str], spec: Plain, path: str, shown: Any) -> None:
    unmeasured = _unmeasured(spec)
    for scope in scopes:
        if scope not in _MEASURED:
            errors.invalid(path, shown, "unsupported scope")
        for _ in range(0 if errors.is_full else unmeasured.get(scope, 0)):
            errors.invalid(path, shown, "unsupported scope applied to resource")
    for pair in _OPPOSED:
        if pair <= {*scopes}:
            errors.invalid(path, shown, "conflicting scopes")


def _unmeasured(spec: Plain) -> dict[str, int]:
    """Scope -> how many standard resources of the quota cannot be used with it."""
    names = [name for name in spec.get("hard") or () if _is_of_quotas(name)]
    return {scope: sum(name not in known for name in names) for scope, known in _MEASURED.items()}


def _check_selector(errors: ErrorList, spec: Plain, path: str) -> None:
    selector, scopes, unmeasured = spec["scopeSelector"], set[str](), _unmeasured(spec)
    shown = internal_form("core.ScopeSelector", selector)
    for each in selector.get("matchExpressions") or ():
        scope, operator, values = each.get("scopeName") or "", each.get("operator") or "", each.get("values") or []
        if scope not in _MEASURED:
            errors.invalid(f"{path}.scopeName", Token(scope), "unsupported scope")
        for _ in range(0 if errors.is_full else unmeasured.get(scope, 0)):
            errors.invalid(path, shown, "unsupported scope applied to resource")
        if scope in _WITH_PODS and operator != "Exists":
            errors.invalid(f"{path}.operator", Token(operator), _EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.required(f"{path}.values", why)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.invalid(f"{path}.values", values, why)
        else:
            errors.invalid(f"{path}.operator", Token(operator), "not a valid selector operator")
        scopes.add(scope)
    for pair in _OPPOSED:
        if pair <= scopes:
            errors.invalid(path, spec.get("scopes"), "conflicting scopes")


def named_limits(new: Plain, old: Plain | None) -> Plain:
    """Return a LimitRange; a new one gets a name if it has none (pkg/registry/core/limitrange/strategy.go)."""
    if old is not None or new["metadata"].get("name"):
        return new
    return {**new, "metadata": {**new["metadata"], "name": str(uuid.uuid4())}}


def _limits(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    kinds: set[str] = set()
    for index, limit in enumerate(new["spec"].get("limits") or ()):
        path, kind = f"spec.limits[{index}]", limit.get("type") or ""
        found = label_key(kind)
        add_invalid(errors, f"{path}.type", Token(kind), found)
        if not found and "/" not in kind and kind not in _LIMIT_TYPES:
            errors.invalid(f"{path}.type", Token(kind), "must be a standard limit type or fully qualified")
        if kind in kinds:
            errors.duplicate(f"{path}.type", kind)
        kinds.add(kind)
        _check_limit(errors, limit, kind, path)


def _check_limit(errors: ErrorList, limit: Plain, kind: str, path: str) -> None:
    rule = container_resource if kind in ("Pod", "Container") else standard_resource
    amounts: dict[str, dict[str, Quantity]] = {}
    for member in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        given = limit.get(member) or {}
        if kind == "Pod" and member.startswith("default"):
            if given:
                errors.forbidden(f"{path}.{member}", _NOT_OF_PODS)
            given = {}
        for name in given:
            rule(errors, f"{path}.{member}[{name}]", name)
        amounts[member] = {name: quantity(amount) for name, amount in given.items()}
    if kind == "PersistentVolumeClaim" and not any("storage" in amounts[member] for member in ("min", "max")):
        errors.required(f"{path}.limits", _NO_STORAGE)
    for name in sorted({name for each in amounts.values() for name in each}):
        _compare(errors, name, {member: each.get(name) for member, each in amounts.items()}, path)


def _compare(errors: ErrorList, name: str, amounts: Mapping[str, Quantity | None], path: str) -> None:
    """Check the amounts of a resource against each other."""
    for lower, upper, member, shown, labels in _ORDER:
        one, other = amounts[lower], amounts[upper]
        if one is not None and other is not None and one > other:
            text = str(amounts[shown])
            errors.invalid(f"{path}.{member}[{name}]", text, f"{labels[0]} {one} is greater than {labels[1]} {other}")
    ratio, least, most = (amounts[member] for member in ("maxLimitRequestRatio", "min", "max"))
    here = f"{path}.maxLimitRequestRatio[{name}]"
    if ratio is not None and ratio < Quantity.parse("1"):
        errors.invalid(here, str(ratio), f"ratio {ratio} is less than 1")
    if ratio is not None and least is not None and most is not None and least.milli_value():
        widest = most.milli_value() / least.milli_value()
        if ratio.milli_value() / 1000 > widest:
            errors.invalid(here, str(ratio), f"ratio {ratio} is greater than max/min = {widest:f}")
    default, request = amounts["default"], amounts["defaultRequest"]
    is_fixed = not is_native_resource(name) or name.startswith(HUGE_PAGES)
    if is_fixed and default is not None and request is not None and default != request:
        why = f"default value {default} must equal to defaultRequest value {request} in {name}"
        errors.invalid(f"{path}.defaultRequest[{name}]", str(request), why)


_ORDER = (
    ("min", "max", "min", "min", ("min value", "max value")),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", ("min value", "default request value")),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", ("default request value", "max value")),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", ("default request value", "default limit value")),
    ("min", "default", "default", "min", ("min value", "default value")),
    ("default", "max", "default", "max", ("default value", "max value")),
)
"""Lower and upper member, the member whose path is reported, the member whose value is shown, and their names."""

CHECKS: Mapping[str, Check] = {"LimitRange": _limits, "ResourceQuota": _quota}
"""Kind -> rules."""
