"""A pod's status in the API, from the stand-in kubelet's state.

Times are taken from the last reported status as long as the state that they belong to has not changed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kubelet import Release
from kubelet.pods.run import LOST_CONTAINER
from resourceapi.objects import to_dict
from resourceapi.objects.core import Container, ContainerState, ContainerStateWaiting, ContainerStatus, Pod, PodStatus

Json = dict[str, Any]


def pod_status(pod: Pod, status: PodStatus, release: Release, before: Json, now: str) -> Json:
    """Return the fields of a pod's status that a kubelet of `release` writes.

    `before` is the last result of this function for the pod, empty at first; `now` is a time as the API writes it.
    """
    seen = {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}
    status_json: Json = {"phase": status.phase, "startTime": before.get("startTime", now)} | seen
    if status.reason:
        status_json |= {"reason": status.reason, "message": status.message}
    given = status.unknown_fields.get("conditions", ()) if status.unknown_fields is not None else ()
    if status.reason and not status.container_statuses and not given:  # rejected: there are no containers to report
        return status_json | {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]}
    states = {each.name: each for each in status.all_containers}
    for member, containers in (
        ("initContainerStatuses", pod.spec.init_containers),
        ("containerStatuses", pod.spec.containers),
    ):
        known = {each["name"]: each for each in before.get(member, ())}
        found = [_container(x, states.get(x.name) or _waiting(x), known.get(x.name, {}), now) for x in containers]
        if found:
            status_json[member] = found
    earlier = {each["type"]: each for each in before.get("conditions", ())}
    was_initialized = earlier.get("Initialized", {}).get("status") == "True"
    observed = (*given, *_conditions(pod, status_json, release, was_initialized=was_initialized))
    status_json["conditions"] = [stamped(each | seen, earlier.get(each["type"], {}), now) for each in observed]
    return status_json


def _waiting(container: Container) -> ContainerStatus:
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)


def _container(container: Container, status: ContainerStatus, before: Json, now: str) -> Json:
    """Return a container's status with its times, and its resources if it was ever started."""
    status_json = to_dict(status)
    is_same = status_json["restartCount"] == before.get("restartCount", 0)
    earlier = before.get("state", {})
    _stamp(status_json["state"], earlier if is_same else {}, now)
    _stamp(status_json.get("lastState", {}), before.get("lastState", {}) if is_same else earlier, now)
    if "waiting" not in status_json["state"] or status_json["restartCount"]:
        status_json["resources"] = to_dict(container.resources)
        if container.resources.requests:
            status_json["allocatedResources"] = status_json["resources"]["requests"]
    return status_json


def _stamp(state: Json, before: Json, now: str) -> None:
    """Add start and end times to a container's state; `before` is the earlier state of the same run."""
    known = before.get("terminated") or before.get("running") or {}
    for name in state.keys() - {"waiting"}:
        state[name]["startedAt"] = known.get("startedAt", now)
    if "terminated" in state:
        state["terminated"]["finishedAt"] = known.get("finishedAt", now)


def _conditions(pod: Pod, status_json: Json, release: Release, *, was_initialized: bool) -> Iterator[Json]:
    """Yield the conditions in the order of the kubelet; source: its `status/generate.go`."""
    phase: str = status_json["phase"]
    apps: Sequence[Json] = status_json.get("containerStatuses", ())
    inits: Sequence[Json] = status_json.get("initContainerStatuses", ())
    sidecars = {each.name for each in pod.spec.init_containers if each.is_sidecar}
    completed = {"reason": "PodCompleted"} if phase == "Succeeded" else {}
    yield _sandbox_condition(pod, status_json, release)
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
    if phase == "Failed" and not _is_cut_off(pod, apps, inits):
        why = {"reason": "PodFailed"}
    elif unready and not completed:
        message = f"containers with unready status: [{' '.join(unready)}]"
        why = {"reason": "ContainersNotReady", "message": message}
    for type_ in ("Ready", "ContainersReady"):
        yield _condition(type_, not why) | why
    yield _condition("PodScheduled", True)


def _is_cut_off(pod: Pod, apps: Sequence[Json], inits: Sequence[Json]) -> bool:
    """Return whether a pod failed only because of its deletion, before a container started: its conditions stay."""
    codes = {each["state"].get("terminated", {}).get("exitCode", 0) for each in inits}
    if pod.metadata.deletion_timestamp is None or (pod.spec.restart_policy == "Never" and any(codes)):
        return False
    return any(
        "waiting" in each["state"] or each["state"]["terminated"]["reason"] == LOST_CONTAINER.reason for each in apps
    )


def _sandbox_condition(pod: Pod, status_json: Json, release: Release) -> Json:
    """Return the condition of the sandbox: true from the containers' first start until the pod ends."""
    every = (*status_json.get("initContainerStatuses", ()), *status_json.get("containerStatuses", ()))
    is_begun = any("waiting" not in each["state"] for each in every)
    is_ended = pod.metadata.deletion_timestamp is not None and not any("running" in each["state"] for each in every)
    is_there = is_begun and not is_ended and status_json["phase"] in ("Pending", "Running")
    if is_there or not release.reports_sandbox_failure:
        return _condition("PodReadyToStartContainers", is_there)
    message = "pod sandbox is not ready" if is_begun else "no pod sandbox exists"
    return _condition("PodReadyToStartContainers", False) | {"reason": "PodSandboxNotReady", "message": message}


def _condition(type_: str, is_true: bool) -> Json:
    return {"type": type_, "status": "True" if is_true else "False"}


def stamped(condition: Json, before: Json, now: str) -> Json:
    """Return the condition with the time since when it has its status; fields that it no longer has become None."""
    since = before.get("lastTransitionTime", now) if before.get("status") == condition["status"] else now
    cleared = {key: None for key in ("reason", "message") if before.get(key)}
    return cleared | condition | {"lastTransitionTime": since}
