"""Evicting pods, as far as their disruption budget allows it.

Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go; kubernetes.io "API-initiated Eviction".
"""

from typing import Any

import msgspec

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.options import WriteOptions, delete_options
from controlplane.apiserver.pods import budgets
from controlplane.apiserver.pods.conditions import is_ready, with_condition
from controlplane.apiserver.preconditions import check_preconditions
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.status import ApiError, bad_request, forbidden
from controlplane.apiserver.target import Target
from resourceapi.objects import format_time

SEVERAL_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MANAGER = "kube-apiserver"  # of budgets' statuses that evictions change
_DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_UNGUARDED = ("Pending", "Succeeded", "Failed")  # phases in which an eviction disrupts nothing
_MAX_UNCONFIRMED = 2000
_RETRY = 10  # seconds


def evict(rest: Rest, target: Target, eviction: Plain, options: WriteOptions) -> Outcome:
    """Delete a pod as an Eviction requests, after charging its budget and setting its condition.

    Policies for the creation of `pods/eviction` apply, those for the deletion of pods do not.
    Raises ApiError: 429 if the budget does not allow it now, 500 if the pod has several budgets, 409 if the pod does
    not match the Eviction's preconditions.
    """
    one = target._replace(subresource="")
    if _object(eviction.get("metadata")).get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    sent = {**eviction, "apiVersion": "policy/v1", "kind": "Eviction"}
    warnings = rest.admit_sent(target, sent, is_dry_run=options.dry_run)
    pod = rest.get(one)
    asked = delete_options({}, [], _object(eviction.get("deleteOptions")))
    is_dry_run = options.dry_run or asked.dry_run  # `kubectl drain` sets it there
    status = pod.get("status") or {}
    if status.get("phase") not in _UNGUARDED and not pod["metadata"].get("deletionTimestamp"):
        _charge(rest, pod, is_dry_run=is_dry_run)
    if is_dry_run:
        evicted = rest.delete(one, msgspec.structs.replace(asked, dry_run=True), is_admitted=True)
        return evicted._replace(warnings=warnings)
    check_preconditions(one, pod, asked)
    marked = with_condition(status, _DISRUPTED, rest.clock())
    if marked != status:
        rest.put(one.kind, one.key, {**pod, "status": marked})
    asked = msgspec.structs.replace(asked, resource_version="")  # of the pod before its condition
    return rest.delete(one, asked, is_admitted=True)._replace(warnings=warnings)


def _charge(rest: Rest, pod: Plain, *, is_dry_run: bool) -> None:
    """Take a disruption from the pod's budget, if it has one and the pod counts as healthy. Raises ApiError."""
    every = rest.store.objects(budgets.BUDGETS, pod["metadata"]["namespace"])
    found = [each for each in every if budgets.is_for(each, pod)]
    if len(found) > 1:
        raise ApiError(500, SEVERAL_BUDGETS)
    if not found:
        return
    target = budgets.status_target(rest.registry, found[0])
    budget = rest.get(target)  # a write that is worked out apart has to notice its changes
    name, status = target.name, budget.get("status") or {}
    if not is_ready(pod) and _may_go_unhealthy(budget):
        return
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise _refusal(f"The disruption budget {name} is still being processed by the server.", _RETRY)
    if len(status.get("disruptedPods") or {}) > _MAX_UNCONFIRMED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed <= 0:
        raise _refusal(_blocked_reason(name, status))
    now = rest.clock()
    changed = {**status, "disruptionsAllowed": allowed - 1}
    if allowed == 1:
        changed = budgets.with_verdict(changed, now)
    if not is_dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: format_time(now)}
        rest.update(
            target,
            budgets.typed({**budget, "status": {**changed, "disruptedPods": disrupted}}),
            WriteOptions(),
            _MANAGER,
        )


def _may_go_unhealthy(budget: Plain) -> bool:
    """Return whether a budget lets a pod go that is not ready, which it does not count."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    wanted = status.get("desiredHealthy") or 0
    return wanted > 0 and (status.get("currentHealthy") or 0) >= wanted


def _blocked_reason(name: str, status: Plain) -> str:
    failed = budgets.sync_failure(status)
    if failed is not None:
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {failed}"
    wanted, now = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    return f"The disruption budget {name} needs {wanted} healthy pods and has {now} currently"


def _refusal(why: str, retry: int = 0) -> ApiError:
    details: Plain = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry:
        details["retryAfterSeconds"] = retry
    return ApiError(
        429, "Cannot evict pod as it would violate the pod's disruption budget.", "TooManyRequests", details
    )


def _object(value: Any) -> Plain:
    return value if isinstance(value, dict) else {}
