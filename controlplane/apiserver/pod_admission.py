"""What a new pod is given beside its defaults, and what may not change of it any more.

Source: kube-apiserver's admission plugins Priority and DefaultTolerationSeconds; k8s.io/kubernetes
pkg/registry/core/pod/strategy.go and ValidatePodUpdate; kubernetes.io "Pod Quality of Service Classes".
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pod_rules import check_pod_spec
from controlplane.apiserver.status import ApiError, forbidden
from controlplane.apiserver.store import Store
from resourceapi.objects import ErrorList
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.qos import qos_class

_CLASSES = "priorityclasses.scheduling.k8s.io"
_RUNTIMES = "runtimeclasses.node.k8s.io"
_OF_THE_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPTS = "PreemptLowerPriority"
_UNTIL_EVICTED = 300  # seconds
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def admitted(store: Store, pod: Plain) -> Plain:
    """A new pod with its priority, with tolerations for a node that is away, and as pending.

    Raises ApiError: 403 for a priority class that is not there.
    """
    spec = {**(pod.get("spec") or {})}
    spec |= _priority(store, pod, spec)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations(spec.get("tolerations") or [])]
    name = spec.get("runtimeClassName")
    if name is not None and store.get(_RUNTIMES, ("", name)) is None:
        raise _forbidden(pod, f'pod rejected: RuntimeClass "{name}" not found')
    whole = spec.get("resources")
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())) if not whole else (spec,)
    return {**pod, "spec": spec, "status": {"phase": "Pending", "qosClass": qos_class(map(_resources, containers))}}


def readmitted(pod: Plain, old: Plain) -> Plain:
    """A changed pod, which has its priority and its tolerations even where its author leaves them out."""
    spec, before = {**(pod.get("spec") or {})}, old.get("spec") or {}
    for name in ("priority", "preemptionPolicy"):
        if spec.get(name) is None and before.get(name) is not None:
            spec[name] = before[name]
    if missing := _tolerations(spec.get("tolerations") or []):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *missing]
    return {**pod, "spec": spec}


def _priority(store: Store, pod: Plain, spec: Plain) -> Plain:
    name = spec.get("priorityClassName") or ""
    found: Plain | None = {"value": _OF_THE_SYSTEM[name]} if name in _OF_THE_SYSTEM else None
    if name and found is None:
        found = store.get(_CLASSES, ("", name))
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise _forbidden(pod, why)
    if not name:
        defaults = [each for each in store.objects(_CLASSES) if each.get("globalDefault")]
        found = min(defaults, key=_value, default=None)
        name = found["metadata"]["name"] if found else ""
    found = found or {}
    given = {"priority": _value(found), "preemptionPolicy": found.get("preemptionPolicy") or _PREEMPTS}
    if spec.get("priority") not in (None, given["priority"]):
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec;"
        computed = f"priority admission controller computed {given['priority']} from the given PriorityClass name"
        raise _forbidden(pod, f"{why} {computed}")
    return given | ({"priorityClassName": name} if name else {})


def _forbidden(pod: Plain, why: str) -> ApiError:
    return forbidden("", "pods", pod["metadata"].get("name", ""), why)


def _value(priority_class: Plain) -> int:
    return int(priority_class.get("value") or 0)


def _tolerations(has: list[Plain]) -> list[Plain]:
    missing = [
        key
        for key in _AWAY
        if not any(each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute") for each in has)
    ]
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _UNTIL_EVICTED}
        for key in missing
    ]


def _resources(container: Plain) -> tuple[Plain, Plain]:
    resources = container.get("resources") or {}
    return resources.get("requests") or {}, resources.get("limits") or {}


def check_pod(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """What a pod must be, and that its containers stay what they are."""
    after, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is None or not json_equal(after, before):
        check_pod_spec(errors, after)
    if old is None:
        return
    was, now = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if was is not None and now is None:
        errors.invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif was is not None and now > was:
        errors.invalid("spec.activeDeadlineSeconds", now, "must be less than or equal to previous value")
    for name in ("containers", "initContainers"):
        if len(after.get(name) or ()) != len(before.get(name) or ()):
            errors.forbidden(f"spec.{name}", "pod updates may not add or remove containers")
            return
    if not json_equal(_fixed(after, before), _fixed(before, before)):
        errors.forbidden("spec", _FIXED)


def _fixed(spec: Plain, before: Plain) -> Plain:
    """A spec without what an update may change."""
    free = {*_CHANGEABLE}
    if before.get("schedulingGates"):
        free |= {"nodeSelector", "affinity"}
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        free.add("terminationGracePeriodSeconds")
    fixed = {name: item for name, item in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [{key: item for key, item in each.items() if key != "image"} for each in fixed[name] or ()]
    return fixed
