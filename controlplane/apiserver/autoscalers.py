"""HorizontalPodAutoscalers in autoscaling/v1, whose only metric is the CPU: the rest of v2 is in annotations.

Objects are stored as v2. Source: k8s.io/kubernetes pkg/apis/autoscaling/v1/conversion.go and annotations.go.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from controlplane.apiserver import protobuf
from controlplane.apiserver.kinds import Decoded, Kind, Plain, Rules, Served, WriteContext
from controlplane.apiserver.message_schemas import kind_schema
from controlplane.apiserver.unstructured_rules import UnstructuredRules
from resourceapi.objects import DecodeError, Quantity, QuantityError
from resourceapi.objects.errors import JSON_ESCAPES

GROUP, _KIND, _OLD = "autoscaling", "HorizontalPodAutoscaler", "v1"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT_METRICS = f"{_PREFIX}metrics", f"{_PREFIX}current-metrics"
_BEHAVIOR, _CONDITIONS = f"{_PREFIX}behavior", f"{_PREFIX}conditions"
_OURS = (
    *(_METRICS, _CURRENT_METRICS, _BEHAVIOR, _CONDITIONS),
    *(f"{_PREFIX}scale-{way}-tolerance" for way in ("down", "up")),
)
_DEFAULT_UTILIZATION = 80
_SAME_SPEC = ("scaleTargetRef", "minReplicas", "maxReplicas")
_SAME_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_TYPE = ("apiVersion", "kind", "metadata")
_DIRECTIONS = ("ScaleUp", "ScaleDown")
_RULES = ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance")
_POLICY = ("Type", "Value", "PeriodSeconds")


def with_first_version(kind: Kind, fill: Callable[[Plain], Plain]) -> Kind:
    """Return the kind, which has only v2, with v1 beside it. `fill` fills in the defaults of v2."""
    assert isinstance(kind.rules, UnstructuredRules)
    schema = kind_schema(f"{GROUP}/{_OLD}", _KIND, "How many copies a load of the CPU needs.")
    old = UnstructuredRules(GROUP, _KIND, _OLD, {_OLD: schema}, namespaced=True, fill=_with_minimum)
    rules = _Rules(kind.rules, old, fill)
    return msgspec.structs.replace(kind, versions=(*kind.versions, Served(_OLD, schema)), rules=rules, converts=True)


class _Rules(Rules):
    """The rules of both versions: those of v2, which is stored, with a conversion.

    `fill` fills in the defaults of v2. An object that is written as v1 gets them when it is read back from the store,
    so that its rules are checked without them.
    """

    def __init__(self, new: UnstructuredRules, old: UnstructuredRules, fill: Callable[[Plain], Plain]) -> None:
        self._new, self._old, self._fill = new, old, fill
        self.takes_metadata_with_status = new.takes_metadata_with_status

    def decode(self, value: Plain, version: str) -> Decoded:
        if version != _OLD:
            decoded = self._new.decode(value, version)
            return decoded._replace(object=self._fill(decoded.object))
        decoded = self._old.decode(value, version)
        return Decoded(_as_new(decoded.object), decoded.problems)

    def decode_applied(self, value: Plain, version: str) -> Decoded:
        return self.decode(value, version)

    def encode(self, obj: Plain, version: str) -> Plain:
        if version != _OLD:
            return self._new.encode(obj, version)
        return self._old.encode(_as_old(obj), version)

    def in_order(self, obj: Plain) -> Plain:
        return (self._old if obj.get("apiVersion") == f"{GROUP}/{_OLD}" else self._new).in_order(obj)

    def empty(self, version: str) -> Plain:
        return (self._old if version == _OLD else self._new).empty(version)

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        return self._fill(self._new.create(obj, context))

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        return self._fill(self._new.update(new, old, context))

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        return self._fill(self._new.update_status(new, old, context))

    def warnings(self, obj: Plain) -> list[str]:
        return self._new.warnings(obj)


def _with_minimum(obj: Plain) -> Plain:
    return {**obj, "spec": {"minReplicas": 1, **obj["spec"]}}


def _as_old(obj: Plain) -> Plain:
    spec, status, metadata = obj["spec"], obj.get("status") or {}, obj["metadata"]
    annotations = _others(metadata.get("annotations") or {})
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    shares = [each["resource"]["target"]["averageUtilization"] for each in metrics if _is_share(each)]
    others = [_old_metric(each) for each in metrics if not _is_share(each)]
    if others:
        annotations[_METRICS] = _text("MetricSpec", others)
    if current:
        annotations[_CURRENT_METRICS] = _text("MetricStatus", [_old_metric(each, "current") for each in current])
    if spec.get("behavior") is not None:
        annotations[_BEHAVIOR] = _json(_behavior_as_go(spec["behavior"]))
    if status.get("conditions"):
        annotations[_CONDITIONS] = _text(f"{_KIND}Condition", status["conditions"])
    old_spec = {name: spec[name] for name in _SAME_SPEC if name in spec}
    old_status = {name: status[name] for name in _SAME_STATUS if name in status}
    if shares:
        old_spec["targetCPUUtilizationPercentage"] = shares[0]
    for each in current:
        share = ((each.get("resource") or {}).get("current") or {}).get("averageUtilization")
        if _is_of_cpu(each) and share is not None:
            old_status["currentCPUUtilizationPercentage"] = share
    return _typed(_OLD, {**obj, "spec": old_spec, "status": old_status}, annotations)


def _as_new(obj: Plain) -> Plain:
    spec, status = obj["spec"], obj.get("status") or {}
    annotations = obj["metadata"].get("annotations") or {}
    new_spec = {name: spec[name] for name in _SAME_SPEC if name in spec}
    new_status = {name: status[name] for name in _SAME_STATUS if name in status}
    share = spec.get("targetCPUUtilizationPercentage")
    metrics = [] if share is None else [_share(share)]
    others = _read("MetricSpec", annotations.get(_METRICS))
    if others is not None:
        metrics = [*map(_new_metric, others), *metrics]
    new_spec["metrics"] = metrics or [_share(_DEFAULT_UTILIZATION)]
    behavior = _read_behavior(annotations.get(_BEHAVIOR))
    if behavior:
        new_spec["behavior"] = behavior
    if status.get("currentCPUUtilizationPercentage") is not None:
        now = {"averageUtilization": status["currentCPUUtilizationPercentage"]}
        new_status["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": now}}]
    current = _read("MetricStatus", annotations.get(_CURRENT_METRICS))
    if current is not None:
        new_status["currentMetrics"] = list(map(_new_current, current))
    conditions = _read(f"{_KIND}Condition", annotations.get(_CONDITIONS))
    if conditions is not None:
        new_status["conditions"] = conditions
    return _typed("v2", {**obj, "spec": new_spec, "status": new_status}, _others(annotations))


def _typed(version: str, obj: Plain, annotations: Plain) -> Plain:
    """An object of a version in the form of its type, with these annotations."""
    metadata = {name: item for name, item in obj["metadata"].items() if name != "annotations"}
    if annotations:
        metadata["annotations"] = dict(sorted(annotations.items()))
    message = f"{GROUP}/{version}.{_KIND}"
    held = protobuf.without_omitted_members(message, {name: obj[name] for name in obj if name not in _TYPE})
    held.pop("metadata", None)
    return {"kind": _KIND, "apiVersion": f"{GROUP}/{version}", "metadata": metadata, **held}


def _others(annotations: Plain) -> Plain:
    return {name: text for name, text in annotations.items() if name not in _OURS}


def _is_of_cpu(metric: Plain) -> bool:
    return metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"


def _is_share(metric: Plain) -> bool:
    """Whether v1 has a field for a metric: the share of the CPU that is used."""
    return _is_of_cpu(metric) and (metric["resource"].get("target") or {}).get("averageUtilization") is not None


def _share(percent: int) -> Plain:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _old_metric(metric: Plain, side: str = "target") -> Plain:
    """The metric of a v2 spec in v1; with the side `current`, that of a status."""
    found: Plain = {"type": metric.get("type")}
    for member, source in _sources(metric):
        amounts, named = source.get(side) or {}, source.get("metric") or {}
        if member == "object":
            old = {"target": source.get("describedObject"), "metricName": named.get("name")}
            old |= {f"{side}Value": amounts.get("value"), "selector": named.get("selector")}
            old["averageValue"] = amounts.get("averageValue")
        elif member == "pods":
            old = {"metricName": named.get("name"), "selector": named.get("selector")}
            old[f"{side}AverageValue"] = amounts.get("averageValue")
        elif member == "external":
            old = {"metricName": named.get("name"), "metricSelector": named.get("selector")}
            old |= {f"{side}Value": amounts.get("value"), f"{side}AverageValue": amounts.get("averageValue")}
        else:
            old = {"name": source.get("name"), "container": source.get("container")}
            old[f"{side}AverageUtilization"] = amounts.get("averageUtilization")
            old[f"{side}AverageValue"] = amounts.get("averageValue")
        found[member] = _without_nulls(old)
    return found


def _new_metric(metric: Plain) -> Plain:
    found: Plain = {"type": metric.get("type")}
    for member, source in _sources(metric):
        average = source.get("averageValue" if member == "object" else "targetAverageValue")
        value, share = source.get("targetValue"), source.get("targetAverageUtilization")
        if member in ("resource", "containerResource"):
            kind = "AverageValue" if share is None else "Utilization"
            target = {"type": kind, "averageValue": average, "averageUtilization": share}
            new = {"name": source.get("name"), "container": source.get("container")}
        else:
            new = _named(member, source)
            is_value = average is None if member == "object" else member == "external" and value is not None
            if member == "object" and not is_value and _is_zero(value):
                value = None  # v1 cannot leave it out
            target = {"type": "Value" if is_value else "AverageValue", "value": value, "averageValue": average}
        found[member] = _without_nulls({**new, "target": _without_nulls(target)})
    return found


def _new_current(metric: Plain) -> Plain:
    found: Plain = {"type": metric.get("type")}
    for member, source in _sources(metric):
        if member in ("resource", "containerResource"):
            new = {"name": source.get("name"), "container": source.get("container")}
        else:
            new = _named(member, source)
        average = source.get("averageValue" if member == "object" else "currentAverageValue")
        current = {"value": source.get("currentValue"), "averageValue": average}
        current["averageUtilization"] = source.get("currentAverageUtilization")
        found[member] = _without_nulls({**new, "current": _without_nulls(current)})
    return found


def _named(member: str, source: Plain) -> Plain:
    """The metric of a source in v2, and the object that it describes."""
    selector = source.get("metricSelector" if member == "external" else "selector")
    described = {"describedObject": source.get("target")} if member == "object" else {}
    return {**described, "metric": _without_nulls({"name": source.get("metricName"), "selector": selector})}


def _sources(metric: Plain) -> list[tuple[str, Plain]]:
    members = ("object", "pods", "resource", "containerResource", "external")
    return [(member, metric[member]) for member in members if metric.get(member) is not None]


def _without_nulls(value: Plain) -> Plain:
    return {name: item for name, item in value.items() if item is not None}


def _is_zero(amount: Any) -> bool:
    try:
        return not Quantity.parse(str(amount or "0")).value()
    except QuantityError:
        return False


def _text(message: str, values: list[Plain]) -> str:
    return _json([protobuf.without_omitted_members(f"{GROUP}/{_OLD}.{message}", each) for each in values])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(JSON_ESCAPES)


def _read(message: str, text: str | None) -> list[Plain] | None:
    """The values in an annotation; None if there are none of this type."""
    if text is None:
        return None
    name = f"{GROUP}/{_OLD}.{message}"
    try:
        values = json.loads(text) or []
        return [protobuf.without_omitted_members(name, protobuf.known_members(name, each or {}, [])) for each in values]
    except (ValueError, TypeError, RecursionError, DecodeError):
        return None


def _behavior_as_go(behavior: Plain) -> Plain:
    """The rules of scaling in the form of upstream's internal type, whose members have Go's names."""
    found: Plain = {}
    for way in _DIRECTIONS:
        rules = behavior.get(_published(way))
        found[way] = None if rules is None else {name: rules.get(_published(name)) for name in _RULES}
        if rules is not None and rules.get("policies") is not None:
            found[way]["Policies"] = [
                {name: each.get(_published(name), "" if name == "Type" else 0) for name in _POLICY}
                for each in rules["policies"]
            ]
    return found


def _read_behavior(text: str | None) -> Plain:
    """The rules of scaling in an annotation; empty if there are none."""
    if text is None:
        return {}
    try:
        read = _in_lower_case(json.loads(text) or {})
        behavior = _without_nulls({_published(way): read.get(way.lower()) for way in _DIRECTIONS})
        for way, rules in behavior.items():
            named = {_published(name): rules.get(name.lower()) for name in _RULES}
            if named["policies"] is not None:
                named["policies"] = [
                    _without_nulls({_published(name): (each or {}).get(name.lower()) for name in _POLICY})
                    for each in named["policies"]
                ]
            behavior[way] = _without_nulls(named)
        protobuf.without_omitted_members(f"{GROUP}/v2.{_KIND}", {"spec": {"behavior": behavior}})
    except (ValueError, TypeError, AttributeError, RecursionError, DecodeError):
        return {}
    return behavior


def _in_lower_case(value: Any) -> Any:
    """A value with the names of all members in lower case: Go reads members without regard to case."""
    if isinstance(value, dict):
        return {name.lower(): _in_lower_case(item) for name, item in value.items()}
    return list(map(_in_lower_case, value)) if isinstance(value, list) else value


def _published(name: str) -> str:
    return name[:1].lower() + name[1:]
