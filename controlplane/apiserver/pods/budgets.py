"""Disruption budgets: the pods that one is for, and the status that a cluster's disruption controller writes.

Source: k8s.io/kubernetes pkg/controller/disruption; kubernetes.io "Disruptions", "Specifying a
Disruption Budget for your Application".
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from controlplane.apiserver.kinds import Plain, Registry
from controlplane.apiserver.labels import compile_selector, is_selected
from controlplane.apiserver.pods.conditions import condition, is_ready, with_condition
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.rules.auxiliary_rules import percent
from controlplane.apiserver.scale import scale_of
from controlplane.apiserver.status import qualified
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target
from resourceapi.objects import quoted_text

BUDGETS = "poddisruptionbudgets.policy"
_GROUP, _VERSION, _PLURAL, _KIND = "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
_ALLOWED, _FAILED = "DisruptionAllowed", "SyncFailed"
_CONFIRMED_WITHIN = timedelta(minutes=2)
"""How long an evicted pod that still exists counts as disrupted."""


class _UncountableError(Exception):
    """The number of pods that a budget expects is unknown."""


def is_for(budget: Plain, pod: Plain) -> bool:
    """Return whether a budget of the pod's namespace is for the pod. Without a selector it is for none."""
    selector = budget["spec"].get("selector")
    return selector is not None and is_selected(selector, pod["metadata"].get("labels"))


def status_target(registry: Registry, budget: Plain) -> Target:
    """Return the target of a write to a budget's status."""
    kind = registry.find(_GROUP, _VERSION, _PLURAL)
    assert kind is not None, "it is built in"
    return Target(kind, _VERSION, budget["metadata"]["namespace"], budget["metadata"]["name"], "status")


def typed(budget: Plain) -> Plain:
    """Return a stored budget as a body."""
    return {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": _KIND, **budget}


def sync_failure(status: Plain) -> str | None:
    """Return why a budget's pods could not be counted; None if they were."""
    found = condition(status, _ALLOWED) or {}
    return found.get("message", "") if found.get("reason") == _FAILED else None


def with_verdict(status: Plain, now: datetime, failure: str | None = None) -> Plain:
    """Return a status with the condition for its number of allowed disruptions, or for a failure to count."""
    is_allowed = (status.get("disruptionsAllowed") or 0) > 0
    reason = "SufficientPods" if is_allowed else "InsufficientPods"
    made: Plain = {
        "type": _ALLOWED,
        "status": "True" if is_allowed else "False",
        "reason": reason if failure is None else _FAILED,
        "message": failure or "",
    }
    if status.get("observedGeneration"):
        made["observedGeneration"] = status["observedGeneration"]
    return with_condition(status, made, now)


def counted(store: Store, registry: Registry, budget: Plain, now: datetime) -> Plain | None:
    """Return a budget with its current status; None if that is correct already."""
    before = budget.get("status") or {}
    pods = _pods_of(store, budget)
    try:
        expected, desired = _expected(store, registry, budget["spec"], pods)
    except _UncountableError as error:
        after = with_verdict({**before, "disruptionsAllowed": 0}, now, str(error))
    else:
        disrupted = _unconfirmed(before, pods, now)
        healthy = sum(is_ready(each) and not _is_going(each, disrupted) for each in pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        after = {
            "observedGeneration": budget["metadata"].get("generation") or 0,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            **({"disruptedPods": disrupted} if disrupted else {}),
            **({"conditions": before["conditions"]} if before.get("conditions") else {}),
        }
        after = with_verdict(after, now)
    return None if after == before else {**budget, "status": after}


def _pods_of(store: Store, budget: Plain) -> list[Plain]:
    """Return the pods that a budget is for."""
    selector = budget["spec"].get("selector")
    compiled = None if selector is None else compile_selector(selector)
    if compiled is None:
        return []
    pods = store.objects(PODS, budget["metadata"]["namespace"])
    return [each for each in pods if compiled.matches(each["metadata"].get("labels") or {})]


def _expected(store: Store, registry: Registry, spec: Plain, pods: list[Plain]) -> tuple[int, int]:
    """Return how many pods there should be, and how many of them must stay healthy. Raises _UncountableError."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is not None:
        expected = sum(_wanted_by_owners(store, registry, pods))
        return expected, max(0, expected - _part(most, expected))
    if isinstance(least, str):
        expected = sum(_wanted_by_owners(store, registry, pods))
        return expected, _part(least, expected)
    return len(pods), int(least or 0)


def _part(amount: int | str, total: int) -> int:
    """The amount, or that percentage of a total, rounded up."""
    return -(-percent(amount) * total // 100) if isinstance(amount, str) else amount


def _wanted_by_owners(store: Store, registry: Registry, pods: list[Plain]) -> Iterator[int]:
    """Yield the number of replicas of each controller of the pods. Pods without a controller do not count."""
    seen: set[str] = set()
    for pod in pods:
        owner = _owner(pod)
        if owner is not None and owner["uid"] not in seen:
            seen.add(owner["uid"])
            yield from _replicas(store, registry, pod, owner, seen)


def _replicas(store: Store, registry: Registry, pod: Plain, owner: Plain, seen: set[str]) -> Iterator[int]:
    """Yield the replicas of a pod's controller: for a replica set of a Deployment, those of the Deployment."""
    found = _object_of(store, registry, pod, owner)
    above = _owner(found) if found is not None and owner["kind"] == "ReplicaSet" else None
    if above is not None and above["kind"] == "Deployment":
        if above["uid"] in seen:
            return
        seen.add(above["uid"])
        owner, found = above, _object_of(store, registry, pod, above)
    kind = registry.by_kind(owner["apiVersion"], owner["kind"])
    served = kind.served(owner["apiVersion"].rpartition("/")[2]) if kind is not None else None
    if kind is None or served is None:
        why = f"no matches for kind {quoted_text(owner['kind'])} in version {quoted_text(owner['apiVersion'])}"
        raise _UncountableError(why)
    if served.scale is None:
        raise _UncountableError(f"{qualified(kind.plural, kind.group)} does not implement the scale subresource")
    if found is None:
        raise _UncountableError(f"found no controllers for pod {quoted_text(pod['metadata']['name'])}")
    yield int(scale_of(found, served.scale)["spec"].get("replicas", 0))


def _object_of(store: Store, registry: Registry, pod: Plain, owner: Plain) -> Plain | None:
    """The object of an owner reference; None if it does not exist."""
    kind = registry.by_kind(owner["apiVersion"], owner["kind"])
    found = store.get(kind.table, (pod["metadata"]["namespace"], owner["name"])) if kind is not None else None
    return found if found is not None and found["metadata"]["uid"] == owner["uid"] else None


def _owner(obj: Plain) -> Plain | None:
    references = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def _unconfirmed(status: Plain, pods: list[Plain], now: datetime) -> dict[str, str]:
    """The evicted pods whose deletion is not seen yet, with the time of their eviction."""
    there = {each["metadata"]["name"] for each in pods if not each["metadata"].get("deletionTimestamp")}
    times = (status.get("disruptedPods") or {}).items()
    return {
        name: time for name, time in times if name in there and datetime.fromisoformat(time) + _CONFIRMED_WITHIN > now
    }


def _is_going(pod: Plain, disrupted: dict[str, str]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["metadata"]["name"] in disrupted
