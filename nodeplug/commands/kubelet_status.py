"""A pod's and a node's status as an API server has them, from what the stand-in kubelet says.

Times are carried over from the status that was told before, as long as what they stand for did not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resourceapi.objects import to_dict
from resourceapi.objects.core import Container, ContainerState, ContainerStateWaiting, ContainerStatus, Pod, PodStatus

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
    told["conditions"] = [_stamped(each, earlier.get(each["type"], {}), now) for each in _conditions(told)]
    return told


def node_status(capacity: Mapping[str, int], allocatable: Mapping[str, int], before: Json, now: str) -> Json:
    """The members of a node's status that a kubelet writes; `before` and `now` as for pods."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    earlier: Json = next(iter(before.get("conditions", ())), {})
    return {
        "capacity": {name: str(count) for name, count in capacity.items()},
        "allocatable": {name: str(count) for name, count in allocatable.items()},
        "conditions": [_stamped(ready, earlier, now)],
    }


def _waiting(container: Container) -> ContainerStatus:
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)


def _timed(container: Json, before: Json, now: str) -> Json:
    """A container's status with the time since when it is where it is."""
    for state, since in (("running", "startedAt"), ("terminated", "finishedAt")):
        if state in container["state"]:
            container["state"][state][since] = before.get("state", {}).get(state, {}).get(since, now)
    return container


def _conditions(told: Json) -> Iterator[Json]:
    """In the order of the kubelet."""
    apps: Sequence[Json] = told.get("containerStatuses", ())
    inits: Sequence[Json] = told.get("initContainerStatuses", ())
    is_begun = any("waiting" not in each["state"] for each in (*inits, *apps))
    is_initialized = all("waiting" not in each["state"] for each in inits)
    unready = [each["name"] for each in apps if not each["ready"]]
    yield _condition("PodReadyToStartContainers", is_begun and told["phase"] in ("Pending", "Running"))
    yield _condition("Initialized", is_initialized)
    why: Json = {}
    if told["phase"] == "Succeeded":
        why = {"reason": "PodCompleted"}
    elif unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        why = {"reason": "ContainersNotReady", "message": message}
    for type_ in ("Ready", "ContainersReady"):
        yield _condition(type_, not unready) | why
    yield _condition("PodScheduled", True)


def _condition(type_: str, is_true: bool) -> Json:
    return {"type": type_, "status": "True" if is_true else "False"}


def _stamped(condition: Json, before: Json, now: str) -> Json:
    """The condition with the time since when it has its status; what it does not say any more becomes None."""
    since = before.get("lastTransitionTime", now) if before.get("status") == condition["status"] else now
    unsaid = {key: None for key in ("reason", "message") if before.get(key)}
    return unsaid | condition | {"lastTransitionTime": since}
