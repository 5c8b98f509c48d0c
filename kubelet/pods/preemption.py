"""Which pods the kubelet ends to make room for a critical pod. Pure.

Critical are static pods and those with a priority of the system's classes. Pods of a lower quality-of-service class
are ended first; of one class as few as possible, and those with the smallest requests.
Source: the kubelet's `preemption/preemption.go`; compared with 1.36 and 1.37.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubelet.errors import KubeletError
from kubelet.pods.node_fit import Shortage
from kubelet.pods.run import PodRun, Preemption
from resourceapi.objects.qos import QosClass, pod_qos

PREEMPTION = Preemption(
    "Preempting",
    "Preempted in order to admit critical pod",
    {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": "Pod was preempted by Kubelet to accommodate a critical pod.",
    },
)

_SYSTEM_CRITICAL = 2_000_000_000  # the lowest priority of the system's classes
_CLASSES: tuple[QosClass, ...] = ("BestEffort", "Burstable", "Guaranteed")


class PreemptionError(KubeletError):
    """Ending all pods that may be ended would not free enough."""


def is_critical(run: PodRun) -> bool:
    """Return whether other pods are ended to make room for the pod."""
    return run.is_static or (run.pod.spec.priority or 0) >= _SYSTEM_CRITICAL


def victims(run: PodRun, others: Sequence[PodRun], shortages: Iterable[Shortage]) -> list[PodRun]:
    """Return the pods to end so that a critical pod fits. Raises `PreemptionError`."""
    needed = {each.resource: each.missing for each in shortages}
    of_class: dict[QosClass, list[PodRun]] = {each: [] for each in _CLASSES}
    for other in others:
        if _is_preemptable(run, other):
            of_class[pod_qos(other.pod)].append(other)
    lower = [each for found in of_class.values() for each in found]
    if remaining := _without(needed, lower):
        amounts = "".join(f"(res: {name}, q: {amount}), " for name, amount in remaining.items())
        raise PreemptionError(f"no set of running pods found to reclaim resources: [{amounts}]")
    chosen: list[PodRun] = []
    for qos in reversed(_CLASSES):  # of each class, what remains when all pods of lower classes are ended, too
        lower = [each for each in lower if each not in of_class[qos]]
        chosen = _closest(of_class[qos], _without(needed, [*lower, *chosen])) + chosen
    return chosen


def _is_preemptable(run: PodRun, other: PodRun) -> bool:
    if not is_critical(other):
        return True
    mine, theirs = run.pod.spec.priority, other.pod.spec.priority
    return mine is not None and theirs is not None and mine > theirs


def _closest(runs: Sequence[PodRun], needed: Mapping[str, int]) -> list[PodRun]:
    """Return the pods that free what is needed, at each step the one that leaves least of it."""
    left, chosen = list(runs), []
    while needed:
        best = min(reversed(left), key=lambda run: (_distance(needed, run), *_size(run)))  # the last of equal ones
        left.remove(best)
        chosen.append(best)
        needed = _without(needed, [best])
    return chosen


def _distance(needed: Mapping[str, int], run: PodRun) -> float:
    """Return how much of the needed amounts would still be missing; each resource has the same weight."""
    freed = _freed(run)
    return sum((max(0, amount - freed.get(name, 0)) / amount) ** 2 for name, amount in needed.items())


def _size(run: PodRun) -> tuple[int, int]:
    freed = _freed(run)
    return freed.get("memory", 0), freed.get("cpu", 0)


def _without(needed: Mapping[str, int], runs: Iterable[PodRun]) -> dict[str, int]:
    """Return what is still needed after pods have ended."""
    left = dict(needed)
    for run in runs:
        freed = _freed(run)
        left = {name: amount - freed.get(name, 0) for name, amount in left.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _freed(run: PodRun) -> dict[str, int]:
    return {**run.taken.requests, "pods": 1}
