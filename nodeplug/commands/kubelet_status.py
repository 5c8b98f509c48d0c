"""A pod's and a node's status as an API server has them, from what the stand-in kubelet says.

Times are carried over from the status that was told before, as long as what they stand for did not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resourceapi.objects import to_dict
from resourceapi.objects.core import Container, ContainerState, ContainerStateWaiting, ContainerStatus, Pod, PodStatus
from resourceapi.objects.quantity import Quantity

Json = dict[str, Any]


def pod_status(pod: Pod, status: PodStatus, before: Json, now: str) -> Json:
    """The members of a pod's status that a kubelet writes.

    `before` is what this function returned last for the pod, empty at first; `now` is a time as the API writes it.
    """
    told: Json = {"phase": status.phase, "startTime": before.get("startTime", now)}
    if status.reason:
        told |= {"reason": status.reason, "message": status.message}
    if not status.container_statuses and status.is_terminal:
        return told  # rejected: there is nothing to say of containers
    states = {each.name: each for each in status.all_containers}
    for member, containers in (
        ("initContainerStatuses", pod.spec.init_containers),
        ("containerStatuses", pod.spec.containers),
    ):
        known = {each["name"]: each for each in before.get(member, ())}
        found = [_timed(to_dict(states.get(x.name) or _waiting(x)), known.get(x.name, {}), now) for x in containers]
        if found:
            told[member] = found
    earlier = {each["type"]: each for each in before.get("conditions", ())}
    was_initialized = earlier.get("Initialized", {}).get("status") == "True"
    seen = _conditions(pod, told, was_initialized=was_initialized)
    told["conditions"] = [_stamped(each, earlier.get(each["type"], {}), now) for each in seen]
    return told


def node_status(capacity: Mapping[str, int], allocatable: Mapping[str, int], before: Json, now: str) -> Json:
    """The members of a node's status that a kubelet writes; `before` and `now` as for pods."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    earlier: Json = next(iter(before.get("conditions", ())), {})
    return {
        "capacity": _quantities(capacity),
        "allocatable": _quantities(allocatable),
        "conditions": [_stamped(ready, earlier, now)],
    }


def _quantities(counts: Mapping[str, int]) -> Json:
    """Numbers as the API writes them: 60000 is `60k`."""
    return {name: str(Quantity.of(count)) for name, count in counts.items()}


def _waiting(container: Container) -> ContainerStatus:
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)


def _timed(container: Json, before: Json, now: str) -> Json:
    """A container's status with the time since when it is where it is."""
    for state, since in (("running", "startedAt"), ("terminated", "finishedAt")):
        if state in container["state"]:
            container["state"][state][since] = before.get("state", {}).get(state, {}).get(since, now)
    return container


def _conditions(pod: Pod, told: Json, *, was_initialized: bool) -> Iterator[Json]:
    """In the order of the kubelet; source: its `status/generate.go`."""
    phase: str = told["phase"]
    apps: Sequence[Json] = told.get("containerStatuses", ())
    inits: Sequence[Json] = told.get("initContainerStatuses", ())
    sidecars = {each.name for each in pod.spec.init_containers if each.is_sidecar}
    completed = {"reason": "PodCompleted"} if phase == "Succeeded" else {}
    is_begun = any("waiting" not in each["state"] for each in (*inits, *apps))
    yield _condition("PodReadyToStartContainers", is_begun and phase in ("Pending", "Running"))
    incomplete = [each["name"] for each in inits if not each["started" if each["name"] in sidecars else "ready"]]
    is_initialized = was_initialized or bool(completed) or any("waiting" not in each["state"] for each in apps)
    if incomplete and not is_initialized:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        yield _condition("Initialized", False) | {"reason": "ContainersNotInitialized", "message": message}
    else:
        yield _condition("Initialized", True) | completed
    lasting = (*(each for each in inits if each["name"] in sidecars), *apps)
    unready = [each["name"] for each in lasting if not each["ready"]]
    why: Json = completed
    if phase == "Failed":
        why = {"reason": "PodFailed"}
    elif unready and not completed:
        message = f"containers with unready status: [{' '.join(unready)}]"
        why = {"reason": "ContainersNotReady", "message": message}
    for type_ in ("Ready", "ContainersReady"):
        yield _condition(type_, not why) | why
    yield _condition("PodScheduled", True)


def _condition(type_: str, is_true: bool) -> Json:
    return {"type": type_, "status": "True" if is_true else "False"}


def _stamped(condition: Json, before: Json, now: str) -> Json:
    """The condition with the time since when it has its status; what it does not say any more becomes None."""
    since = before.get("lastTransitionTime", now) if before.get("status") == condition["status"] else now
    unsaid = {key: None for key in ("reason", "message") if before.get(key)}
    return unsaid | condition | {"lastTransitionTime": since}
