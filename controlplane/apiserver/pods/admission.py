"""What admission sets in a new pod, in addition to its defaults.

Source: kube-apiserver's admission plugins LimitRanger, Priority, RuntimeClass and DefaultTolerationSeconds;
k8s.io/kubernetes pkg/registry/core/pod/strategy.go; kubernetes.io "Pod Quality of Service Classes".
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.limit_ranges import with_limits
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.pods.placement import with_own_labels
from controlplane.apiserver.pods.resources import with_whole_resources
from controlplane.apiserver.rules.resource_rules import quantity
from controlplane.apiserver.status import ApiError, forbidden
from controlplane.apiserver.store import Store
from resourceapi.objects import quoted_text
from resourceapi.objects.qos import qos_class
from resourceapi.objects.release import Release

_CLASSES = "priorityclasses.scheduling.k8s.io"
_RUNTIMES = "runtimeclasses.node.k8s.io"
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPTS = "PreemptLowerPriority"
_FROM_CLASS = {"priority": "integer value of priority", "preemptionPolicy": "string value of PreemptionPolicy"}
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_UNTIL_EVICTED = 300  # seconds
_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admitted(store: Store, pod: Plain, now: str, *, release: Release) -> Plain:
    """Return a new pod after admission, with the phase Pending. `now` is a time in the format of objects.

    It gets the defaults of limit ranges, its priority, what its runtime class sets, tolerations for an unreachable or
    unready node, and the labels for its selectors. Raises ApiError 403 for a class that does not exist, or that
    contradicts the pod.
    """
    pod = with_limits(store, with_own_labels(pod))
    spec = {**(pod.get("spec") or {})}
    spec |= _priority(store, pod, spec)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations(spec.get("tolerations") or [])]
    spec = _with_runtime(store, pod, spec)
    if release.completes_pod_resources:
        spec = with_whole_resources(spec)
    status: Plain = {"phase": "Pending", "qosClass": quality_of(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [_GATED | {"lastProbeTime": None, "lastTransitionTime": now}]
    return {**pod, "spec": spec, "status": status}


def quality_of(spec: Plain) -> str:
    """Return the quality of service class of a pod."""
    whole = spec.get("resources")
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())) if not whole else (spec,)
    return qos_class(map(_resources, containers))


def _with_runtime(store: Store, pod: Plain, spec: Plain) -> Plain:
    """A spec with the overhead and the scheduling constraints of its runtime class."""
    name = spec.get("runtimeClassName")
    if name == "":
        raise ApiError(500, "resource name may not be empty")
    found = None if name is None else store.get(_RUNTIMES, ("", name))
    if name is not None and found is None:
        raise _forbidden(pod, f"pod rejected: RuntimeClass {quoted_text(name)} not found")
    fixed = ((found or {}).get("overhead") or {}).get("podFixed")
    if fixed and spec.get("overhead") and not _same_amounts(fixed, spec["overhead"]):
        raise _forbidden(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    placed = (found or {}).get("scheduling") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in (placed.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            where = "scheduling.nodeSelector", "pod.spec.nodeSelector"
            why = f"conflict: runtimeClass.{where[0]}[{key}] = {value}; {where[1]}[{key}] = {selector[key]}"
            raise _forbidden(pod, why)
    changed = {**spec} | ({"overhead": fixed} if fixed else {})
    if placed.get("nodeSelector"):
        changed["nodeSelector"] = {**selector, **placed["nodeSelector"]}
    if placed.get("tolerations"):
        own = spec.get("tolerations") or []
        there = {frozenset(each.items()) for each in own}
        more = (each for each in placed["tolerations"] if frozenset(each.items()) not in there)
        changed["tolerations"] = [*own, *more]
    return changed


def _same_amounts(one: Plain, other: Plain) -> bool:
    return {name: quantity(x) for name, x in one.items()} == {name: quantity(x) for name, x in other.items()}


def check_admitted(store: Store, kind: str, new: Plain, old: Plain | None) -> None:
    """Refuse an object that is valid by itself but conflicts with others; `kind` is its plural and group.

    Raises ApiError 403 for a pod with an overhead that its runtime class lacks, and for a second default priority
    class.
    """
    spec = new.get("spec") or {}
    if kind == PODS and old is None and spec.get("overhead") is not None:
        found = store.get(_RUNTIMES, ("", spec.get("runtimeClassName") or "")) or {}
        if found.get("overhead") is None:
            raise _forbidden(new, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if kind == _CLASSES and new.get("globalDefault"):
        usual = _default_class(store)
        if usual is not None and (old is None or usual["metadata"]["name"] != new["metadata"]["name"]):
            group, plural = "scheduling.k8s.io", "priorityclasses"
            why = f"PriorityClass {usual['metadata']['name']} is already marked as default. Only one default can exist"
            raise forbidden(group, plural, new["metadata"].get("name", ""), why)


def _default_class(store: Store) -> Plain | None:
    """The priority class of pods that name none."""
    return min((each for each in store.objects(_CLASSES) if each.get("globalDefault")), key=_value, default=None)


def with_priority_and_tolerations(pod: Plain, old: Plain) -> Plain:
    """Return a changed pod with its priority and its tolerations, even if the client left them out."""
    spec, before = {**(pod.get("spec") or {})}, old.get("spec") or {}
    for name in ("priority", "preemptionPolicy"):
        if spec.get(name) is None and before.get(name) is not None:
            spec[name] = before[name]
    if missing := _tolerations(spec.get("tolerations") or []):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *missing]
    return {**pod, "spec": spec}


def _priority(store: Store, pod: Plain, spec: Plain) -> Plain:
    name = spec.get("priorityClassName") or ""
    found: Plain | None = {"value": _SYSTEM_PRIORITIES[name]} if name in _SYSTEM_PRIORITIES else None
    if name and found is None:
        found = store.get(_CLASSES, ("", name))
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise _forbidden(pod, why)
    if not name:
        found = _default_class(store)
        name = found["metadata"]["name"] if found else ""
    found = found or {}
    derived = {"priority": _value(found), "preemptionPolicy": found.get("preemptionPolicy") or _PREEMPTS}
    for member, what in _FROM_CLASS.items():
        if spec.get(member) not in (None, derived[member]):
            why = f"the {what} ({spec[member]}) must not be provided in pod spec;"
            computed = f"priority admission controller computed {derived[member]} from the given PriorityClass name"
            raise _forbidden(pod, f"{why} {computed}")
    return derived | ({"priorityClassName": name} if name else {})


def _forbidden(pod: Plain, why: str) -> ApiError:
    return forbidden("", "pods", pod["metadata"].get("name", ""), why)


def _value(priority_class: Plain) -> int:
    return int(priority_class.get("value") or 0)


def _tolerations(has: list[Plain]) -> list[Plain]:
    missing = [
        key
        for key in _NODE_TAINTS
        if not any(each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute") for each in has)
    ]
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNTIL_EVICTED}
        for key in missing
    ]


def _resources(container: Plain) -> tuple[Plain, Plain]:
    resources = container.get("resources") or {}
    return resources.get("requests") or {}, resources.get("limits") or {}
