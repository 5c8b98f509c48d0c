"""A pod's status as an API server has it, from what the stand-in kubelet says.

Times are carried over from the status that was told before, as long as what they stand for did not change.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kubelet import Release
from kubelet.pods.run import LOST
from resourceapi.objects import to_dict
from resourceapi.objects.core import Container, ContainerState, ContainerStateWaiting, ContainerStatus, Pod, PodStatus

Json = dict[str, Any]


def pod_status(pod: Pod, status: PodStatus, release: Release, before: Json, now: str) -> Json:
    """The members of a pod's status that a kubelet of `release` writes.

    `before` is what this function returned last for the pod, empty at first; `now` is a time as the API writes it.
    """
    seen = {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}
    status_json: Json = {"phase": status.phase, "startTime": before.get("startTime", now)} | seen
    if status.reason:
        status_json |= {"reason": status.reason, "message": status.message}
    if status.reason and not status.container_statuses:  # rejected: there is nothing to say of containers
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
    observed = _conditions(pod, status_json, release, was_initialized=was_initialized)
    status_json["conditions"] = [stamped(each | seen, earlier.get(each["type"], {}), now) for each in observed]
    return status_json


def _waiting(container: Container) -> ContainerStatus:
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)


def _container(container: Container, status: ContainerStatus, before: Json, now: str) -> Json:
    """A container's status with its times, and what it was given, if it was ever started."""
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
    """Note in a container's state since when it is so; `before` is where the same run of the container was."""
    known = before.get("terminated") or before.get("running") or {}
    for name in state.keys() - {"waiting"}:
        state[name]["startedAt"] = known.get("startedAt", now)
    if "terminated" in state:
        state["terminated"]["finishedAt"] = known.get("finishedAt", now)


def _conditions(pod: Pod, status_json: Json, release: Release, *, was_initialized: bool) -> Iterator[Json]:
    """In the order of the kubelet; source: its `status/generate.go`."""
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
    """Whether a pod failed for its deletion alone, with a container yet to start: its conditions stay as they were."""
    codes = {each["state"].get("terminated", {}).get("exitCode", 0) for each in inits}
    if pod.metadata.deletion_timestamp is None or (pod.spec.restart_policy == "Never" and any(codes)):
        return False
    return any("waiting" in each["state"] or each["state"]["terminated"]["reason"] == LOST.reason for each in apps)


def _sandbox_condition(pod: Pod, status_json: Json, release: Release) -> Json:
    """Whether the pod has what its containers run in: from their first start until the pod ends."""
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
    """The condition with the time since when it has its status; what it does not say any more becomes None."""
    since = before.get("lastTransitionTime", now) if before.get("status") == condition["status"] else now
    unsaid = {key: None for key in ("reason", "message") if before.get(key)}
    return unsaid | condition | {"lastTransitionTime": since}
