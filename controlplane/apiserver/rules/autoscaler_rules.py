"""The rules of HorizontalPodAutoscalers.

Source: k8s.io/kubernetes pkg/apis/autoscaling/validation/validation.go.
"""

from collections.abc import Callable, Mapping

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.rules.choices import check_optional_choice
from controlplane.apiserver.rules.quantity_rules import not_below_zero, positive
from controlplane.apiserver.rules.references import check_reference
from controlplane.apiserver.rules.resource_rules import container_resource
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid, dns_label
from resourceapi.objects.names import path_segment
from resourceapi.objects.release import Release

_SELECTIONS = ["Disabled", "Max", "Min"]
_POLICIES = ["Percent", "Pods"]
_TARGETS = ("Utilization", "Value", "AverageValue")
_MAX_WINDOW, _MAX_PERIOD = 3600, 1800
_NO_UTILIZATION = "must set either a target raw value or a target utilization"
_BOTH_UTILIZATIONS = "may not set both a target raw value and a target utilization"


def check_autoscaler(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check an autoscaler."""
    spec, before, path = new["spec"], (old or {}).get("spec") or {}, "spec"
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    fewest = 0 if release.scales_to_zero or before.get("minReplicas") == 0 else 1
    if least is not None and least < fewest:
        errors.invalid(f"{path}.minReplicas", least, f"must be greater than or equal to {fewest}")
    if not most:
        errors.required(f"{path}.maxReplicas", "" if release.has_declared_rules else "must be set and greater than 0")
    elif most < 0:
        errors.invalid(f"{path}.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        errors.invalid(f"{path}.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    scaled = spec.get("scaleTargetRef") or {}
    check_reference(errors, scaled, f"{path}.scaleTargetRef")
    was = before.get("scaleTargetRef") or {}
    if old is None or any(scaled.get(member) != was.get(member) for member in ("apiVersion", "kind")):
        needs_group = scaled.get("kind") != "ReplicationController"
        _check_version(errors, scaled, f"{path}.scaleTargetRef.apiVersion", needs_group=needs_group)
    metrics = spec.get("metrics") or []
    for index, metric in enumerate(metrics):
        _metric(errors, metric, f"{path}.metrics[{index}]")
    if least == 0 and not {each.get("type") for each in metrics} & {"Object", "External"}:
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.forbidden(f"{path}.metrics", why)
    for way in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(way)
        if rules is not None:
            _rules(errors, rules, f"{path}.behavior.{way}")


def check_autoscaler_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the status of an autoscaler."""
    del old
    status = new["status"]
    for index, condition in enumerate(status.get("conditions") or ()):
        not_negative(errors, f"status.conditions[{index}].observedGeneration", condition.get("observedGeneration"))
    for name in ("currentReplicas", "desiredReplicas"):
        not_negative(errors, f"status.{name}", status.get(name))


def _check_version(errors: ErrorList, reference: Plain, path: str, *, needs_group: bool) -> None:
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        errors.invalid(path, version, f"unexpected GroupVersion string: {version}")
    elif needs_group and not version.rpartition("/")[0]:
        errors.invalid(path, version, "apiVersion must specify API group")


def _rules(errors: ErrorList, rules: Plain, path: str) -> None:
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies") or []
    if window is not None and window < 0:
        errors.invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _MAX_WINDOW:
        why = f"must be less than or equal to {_MAX_WINDOW}"
        errors.invalid(f"{path}.stabilizationWindowSeconds", window, why)
    check_optional_choice(errors, f"{path}.selectPolicy", rules.get("selectPolicy"), _SELECTIONS)
    if not policies:
        errors.required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        here, value, period = f"{path}.policies[{index}]", policy.get("value", 0), policy.get("periodSeconds", 0)
        if policy.get("type") not in _POLICIES:
            errors.not_supported(f"{here}.type", policy.get("type") or "", _POLICIES)
        if value <= 0:
            errors.invalid(f"{here}.value", value, "must be greater than zero")
        if period <= 0:
            errors.invalid(f"{here}.periodSeconds", period, "must be greater than zero")
        if period > _MAX_PERIOD:
            errors.invalid(f"{here}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}")
    not_below_zero(errors, f"{path}.tolerance", rules.get("tolerance"))


def _metric(errors: ErrorList, metric: Plain, path: str) -> None:
    kind = metric.get("type") or ""
    if not kind:
        errors.required(f"{path}.type", "must specify a metric source type")
    if kind not in _KINDS:
        errors.not_supported(f"{path}.type", kind, [*_KINDS])
    there = [member for member in _SOURCES if metric.get(member) is not None]
    for member in there[:1]:
        _SOURCES[member](errors, metric[member], f"{path}.{member}")
    expected = _KINDS.get(kind, "")
    if expected and expected not in there:
        errors.required(f"{path}.{expected}", "must populate information for the given metric source")
    elif not expected:
        errors.not_supported(f"{path}.type", kind, [*_KINDS])
    for member in there if len(there) != 1 else ():
        if member != expected:
            errors.forbidden(f"{path}.{member}", "must populate the given metric source only")


def _identifier(errors: ErrorList, source: Plain, path: str) -> None:
    name = (source.get("metric") or {}).get("name") or ""
    if name:
        add_invalid(errors, f"{path}.metric.name", name, path_segment(name))
    else:
        errors.required(f"{path}.metric.name", "must specify a metric name")


def _target(errors: ErrorList, source: Plain, path: str) -> Plain:
    target, here = source.get("target") or {}, f"{path}.target"
    kind, share = target.get("type") or "", target.get("averageUtilization")
    if not kind:
        errors.required(f"{here}.type", "must specify a metric target type")
    if kind not in _TARGETS:
        errors.invalid(f"{here}.type", Token(kind), "must be either Utilization, Value, or AverageValue")
    for member in ("value", "averageValue"):
        positive(errors, f"{here}.{member}", target.get(member), "must be positive")
    if share is not None and share < 1:
        errors.invalid(f"{here}.averageUtilization", share, "must be greater than 0")
    return target


def _object(errors: ErrorList, source: Plain, path: str) -> None:
    described = source.get("describedObject") or {}
    check_reference(errors, described, f"{path}.describedObject")
    _check_version(errors, described, f"{path}.describedObject.apiVersion", needs_group=False)
    _identifier(errors, source, path)
    target = _target(errors, source, path)
    if target.get("value") is None and target.get("averageValue") is None:
        errors.required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _external(errors: ErrorList, source: Plain, path: str) -> None:
    _identifier(errors, source, path)
    target = _target(errors, source, path)
    there = [target.get(member) is not None for member in ("value", "averageValue")]
    if not any(there):
        why = "must set either a target value for metric or a per-pod target"
        errors.required(f"{path}.target.averageValue", why)
    if all(there):
        errors.forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _pods(errors: ErrorList, source: Plain, path: str) -> None:
    _identifier(errors, source, path)
    if _target(errors, source, path).get("averageValue") is None:
        errors.required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _resource(errors: ErrorList, source: Plain, path: str) -> None:
    if not source.get("name"):
        errors.required(f"{path}.name", "must specify a resource name")
    target = _target(errors, source, path)
    there = [target.get(member) is not None for member in ("averageUtilization", "averageValue")]
    if not any(there):
        errors.required(f"{path}.target.averageUtilization", _NO_UTILIZATION)
    if all(there):
        errors.forbidden(f"{path}.target.averageValue", _BOTH_UTILIZATIONS)


def _container_resource(errors: ErrorList, source: Plain, path: str) -> None:
    if source.get("name"):
        container_resource(errors, f"{path}.name", source["name"])
    if source.get("container"):
        dns_label(errors, f"{path}.container", source["container"])
    else:
        errors.required(f"{path}.container", "must specify a container")
    _resource(errors, source, path)


_SOURCES: Mapping[str, Callable[[ErrorList, Plain, str], None]] = {
    "object": _object,
    "external": _external,
    "pods": _pods,
    "resource": _resource,
    "containerResource": _container_resource,
}
_KINDS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
