"""The rules of the pod counts in workloads' statuses.

Source: k8s.io/kubernetes pkg/apis/apps/validation/validation.go and policy/validation.
"""

from collections.abc import Mapping, Sequence

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList

_REPLICAS = "cannot be greater than status.replicas"


class _Counts:
    """The counts of a kind: none is negative, some do not exceed the replicas, available ones the ready ones."""

    def __init__(self, counts: Sequence[str], parts: Sequence[str] = (), of_ready: str = "") -> None:
        self._counts, self._parts, self._of_ready = counts, parts, of_ready

    def check(self, errors: ErrorList, new: Plain, old: Plain | None) -> None:
        """Check the status of an object."""
        status, before = new.get("status") or {}, (old or {}).get("status") or {}
        for name in self._counts:
            not_negative(errors, f"status.{name}", status.get(name))
        for name in self._parts:
            if status.get(name, 0) > status.get("replicas", 0):
                errors.invalid(f"status.{name}", status.get(name, 0), _REPLICAS)
        available = status.get("availableReplicas", 0)
        if self._of_ready and available > status.get("readyReplicas", 0):
            errors.invalid("status.availableReplicas", available, f"cannot be greater than {self._of_ready}")
        was, now = (each.get("collisionCount") for each in (before, status))
        if "collisionCount" in self._counts and was is not None and (now is None or now < was):
            errors.invalid("status.collisionCount", now or 0, "cannot be decremented")


_COUNTS = {
    "DaemonSet": _Counts(
        (
            *("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
            *("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"),
            "collisionCount",
        )
    ),
    "Deployment": _Counts(
        (
            *("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
            *("unavailableReplicas", "terminatingReplicas", "collisionCount"),
        ),
        ("updatedReplicas", "readyReplicas", "availableReplicas"),
        "readyReplicas",
    ),
    "PodDisruptionBudget": _Counts(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")),
    "ReplicaSet": _Counts(
        (
            *("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
            "terminatingReplicas",
        ),
        ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
        "readyReplicas",
    ),
    "StatefulSet": _Counts(
        (
            *("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
            *("observedGeneration", "collisionCount"),
        ),
        ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
        "status.readyReplicas",
    ),
}

CHECKS: Mapping[str, Check] = {kind: counts.check for kind, counts in _COUNTS.items()}
"""Kind -> rules."""
