"""The rules of some other kinds. Most kinds without rules here are stored as they are sent.

Source: k8s.io/kubernetes pkg/apis/apps/validation, policy/validation and flowcontrol/validation;
kube-aggregator pkg/apis/apiregistration/validation.
"""

import base64
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain
from resourceapi.objects.release import Release

_EXEMPT = "Exempt"
_MAX_PRECEDENCE = 10000
_MAX_GROUP_PRIORITY, _MAX_VERSION_PRIORITY = 20000, 1000
_PORTS = range(1, 65536)
_EVICTION = ["AlwaysAllow", "IfHealthyBudget"]
_DIGITS = 18  # of a percentage that are read; one with more digits exceeds 100% anyway
_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_NO_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for"
    " validation is '[0-9]+%')"
)
_BY_USER = ["ByNamespace", "ByUser"]


def not_negative(errors: ErrorList, path: str, value: Any) -> None:
    """Check that a number is at least 0."""
    if isinstance(value, int) and value < 0:
        errors.invalid(path, value, "must be greater than or equal to 0")


def int_or_percent(errors: ErrorList, path: str, value: Any) -> None:
    """Check a number that is at least 0, or a percentage."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        errors.invalid(path, Token(value), _NO_PERCENT)
    not_negative(errors, path, value)


def not_above_all(errors: ErrorList, path: str, value: Any) -> None:
    """Check that a percentage is at most 100%."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and percent(value) > 100:
        errors.invalid(path, value, "must not be greater than 100%")


def percent(value: Any) -> int:
    """Return the value of an int or a percentage; 0 for any other value."""
    if isinstance(value, str):
        return int(value[:-1][:_DIGITS]) if _PERCENT.fullmatch(value) else 0
    return int(value or 0)


def _budget(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    spec, path = new["spec"], "spec"
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if least is not None and most is not None:
        shown = {"MinAvailable": least, "Selector": spec.get("selector"), "MaxUnavailable": most}
        shown["UnhealthyPodEvictionPolicy"] = policy
        errors.invalid(path, shown, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            int_or_percent(errors, f"{path}.{name}", value)
            not_above_all(errors, f"{path}.{name}", value)
    check_selector(errors, f"{path}.selector", spec.get("selector"))
    if policy is not None and policy not in _EVICTION:
        errors.not_supported(f"{path}.unhealthyPodEvictionPolicy", policy, _EVICTION)
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        not_negative(errors, f"status.{name}", (new.get("status") or {}).get(name))


def _revision(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    not_negative(errors, "revision", new.get("revision"))
    data = new.get("data")
    if old is not None:
        if not json_equal(data, old.get("data")):
            errors.invalid("data", data, "field is immutable")
    elif data is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(data, dict):
        errors.required("data", "data must be a valid JSON object")


def _api_service(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    spec = new["spec"]
    group, version, service = spec.get("group") or "", spec.get("version") or "", spec.get("service")
    name, wanted = new["metadata"].get("name", ""), f"{version}.{group}"
    if name != wanted:
        errors.invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if group:
        add_invalid(errors, "spec.group", group, dns_subdomain(group))
    elif version != "v1":
        errors.required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    for field, most in (("groupPriorityMinimum", _MAX_GROUP_PRIORITY), ("versionPriority", _MAX_VERSION_PRIORITY)):
        if not 0 < spec.get(field, 0) <= most:
            errors.invalid(f"spec.{field}", spec.get(field, 0), f"must be positive and less than {most}")
    is_unchecked, authority = bool(spec.get("insecureSkipTLSVerify")), spec.get("caBundle")
    if not service:
        if authority:
            size = f"{len(base64.b64decode(authority))} bytes"
            errors.invalid("spec.caBundle", size, "local APIServices may not have a caBundle")
        if is_unchecked:
            errors.invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            errors.required(f"spec.service.{field}")
    if service.get("port") not in _PORTS:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        errors.invalid("spec.service.port", service.get("port"), text)
    if is_unchecked and authority:
        errors.invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


def _flow_schema(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    spec = new["spec"]
    precedence, path = spec.get("matchingPrecedence", 0), "spec.matchingPrecedence"
    if precedence <= 0:
        errors.invalid(path, precedence, "must be a positive value")
    if precedence > _MAX_PRECEDENCE:
        errors.invalid(path, precedence, f"must not be greater than {_MAX_PRECEDENCE}")
    if precedence == 1 and new["metadata"].get("name") != "exempt":
        errors.invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _BY_USER:
        errors.not_supported("spec.distinguisherMethod.type", method.get("type") or "", _BY_USER)
    level = (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
    path = "spec.priorityLevelConfiguration.name"
    if level:
        add_invalid(errors, path, level, dns_subdomain(level))
    else:
        errors.required(path, "must reference a priority level")


def _priority_level(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    del old
    spec, name = new["spec"], new["metadata"].get("name")
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    if (name == "exempt") != (kind == _EXEMPT):
        errors.invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    if kind == _EXEMPT and limited is not None:
        errors.forbidden("spec.limited", "must be nil if the type is not Limited")
    elif kind == "Limited":
        if exempt is not None:
            errors.forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            errors.required("spec.limited", "must not be empty when type is Limited")
        else:
            _limited(errors, limited, release)
    elif not kind and release.has_uniform_messages:
        errors.required("spec.type")
    elif kind != _EXEMPT:
        errors.not_supported("spec.type", kind, [_EXEMPT, "Limited"])


def _limited(errors: ErrorList, limited: Plain, release: Release) -> None:
    path, response = "spec.limited.limitResponse", limited.get("limitResponse") or {}
    kind, queuing = response.get("type") or "", response.get("queuing")
    if limited.get("nominalConcurrencyShares", 0) < 0:
        shares = limited["nominalConcurrencyShares"]
        errors.invalid("spec.limited.nominalConcurrencyShares", shares, "must be a non-negative integer")
    if kind == "Reject" and queuing is not None:
        errors.forbidden(f"{path}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue" and queuing is None:
        errors.required(f"{path}.queuing", "must not be empty if limited.limitResponse.type is Limited")
    elif not kind and release.has_uniform_messages:
        errors.required(f"{path}.type")
    elif kind not in ("Queue", "Reject"):
        errors.not_supported(f"{path}.type", kind, ["Queue", "Reject"])


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {
        "APIService": _api_service,
        "ControllerRevision": _revision,
        "FlowSchema": _flow_schema,
        "PodDisruptionBudget": _budget,
        "PriorityLevelConfiguration": partial(_priority_level, release=release),
    }
