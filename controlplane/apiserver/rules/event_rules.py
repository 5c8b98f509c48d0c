"""The rules of events and of their changes: few in core/v1, for historical reasons, more in events.k8s.io.

Objects have core's member names; paths in errors have the names of each group.
Source: k8s.io/kubernetes pkg/apis/core/validation/events.go.
"""

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import label_name
from resourceapi.objects.json_value import json_equal

_MAX_BYTES = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}  # bytes
_TYPES = ("Normal", "Warning")
_UNSET = ("firstTimestamp", "lastTimestamp", "count")
_REFERENCE_MEMBERS = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
_FIXED = (  # in upstream's order, with `reason` twice
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
_EVENTS_V1_NAMES = {"reportingComponent": "reportingController"}
_MIN_SERIES_COUNT = 2
_NAMESPACE_MISMATCH = "does not match event.namespace"


def check_event(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check an event that is written through core/v1."""
    del old
    _check_old_rules(errors, new, "reportingComponent")


def check_strict_event(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check an event that is written through events.k8s.io."""
    _check_old_rules(errors, new, "reportingController")
    if old is not None:
        if not json_equal(new.get("series"), old.get("series")):
            _check_series(errors, new)
        for name in _FIXED:
            if not json_equal(new.get(name), old.get(name)):
                errors.invalid(_EVENTS_V1_NAMES.get(name, name), _shown(name, new.get(name)), "field is immutable")
        return
    _check_series(errors, new)
    if not new.get("eventTime"):
        errors.required("eventTime")
    if new.get("type") not in _TYPES:
        errors.invalid("type", "", f"has invalid value: {new.get('type') or ''}")
    for name in _UNSET:
        if new.get(name):
            errors.invalid(name, "", "needs to be unset")
    if any((new.get("source") or {}).values()):
        errors.invalid("source", "", "needs to be unset")


def _check_old_rules(errors: ErrorList, event: Plain, reporter: str) -> None:
    namespace = event["metadata"].get("namespace") or ""
    of = (event.get("involvedObject") or {}).get("namespace") or ""
    if not event.get("eventTime"):
        if of != namespace and (of or namespace != "default"):
            errors.invalid("involvedObject.namespace", of, _NAMESPACE_MISMATCH)
        return
    if not of and namespace not in ("default", "kube-system"):
        errors.invalid("involvedObject.namespace", of, _NAMESPACE_MISMATCH)
    controller = event.get("reportingComponent") or ""
    if not controller:
        errors.required(reporter)
    label_name(errors, reporter, controller)
    for name, most in _MAX_BYTES.items():
        text = event.get(name) or ""
        if not text and name != "message":
            errors.required(name)
        if len(text.encode()) > most:
            errors.invalid(name, "", f"can have at most {most} characters")


def _check_series(errors: ErrorList, event: Plain) -> None:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < _MIN_SERIES_COUNT:
        errors.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        errors.required("series.lastObservedTime")


def _shown(name: str, value: object) -> object:
    """A value in the form of upstream's internal type."""
    if not isinstance(value, dict):
        return "" if value is None and name not in ("related", "eventTime") else value
    names = ("Component", "Host") if name == "source" else _REFERENCE_MEMBERS
    by_name = {each.lower(): item for each, item in value.items()}
    return InOrder({each: by_name.get(each.lower(), "") for each in names})
