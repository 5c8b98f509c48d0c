"""Conditions in a pod's status, and in that of a disruption budget."""

from datetime import datetime

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import format_time


def is_ready(pod: Plain) -> bool:
    """Return whether a pod's condition Ready is true."""
    return (condition(pod.get("status") or {}, "Ready") or {}).get("status") == "True"


def condition(status: Plain, type_: str) -> Plain | None:
    """Return the condition of a type; None if there is none."""
    return next((each for each in status.get("conditions") or () if each.get("type") == type_), None)


def with_condition(status: Plain, new: Plain, now: datetime) -> Plain:
    """Return a status with a condition in place of that of its type, whose time changes only with its status."""
    conditions, old = list(status.get("conditions") or ()), condition(status, new["type"])
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == new["status"] else None
    made = {**new, "lastTransitionTime": since or format_time(now)}
    kept = [made if each is old else each for each in conditions]
    return {**status, "conditions": kept if old is not None else [*kept, made]}
