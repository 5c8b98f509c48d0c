"""A pod on the node: the states of its containers, which only pretend, and the phase that follows from them."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from kubelet.pods import Container, ContainerStatus, Pod, PodStatus

_SUCCESS = "Completed"
_FAILURE = "Error"

REMOVED = "removed"


class PodRun:
    """A pod from its admission until it is removed."""

    def __init__(self, pod: Pod, on_change: Callable[["PodRun", PodStatus], None]) -> None:
        """A pod that is being admitted; `on_change` is told the status that it had before each change."""
        self.pod = pod
        self.name = full_name(pod)
        self.status = PodStatus()
        self.has_sandbox = False  # its claims are prepared before
        self.ends_as = ""  # the phase, or REMOVED, that it gets when its claims are unprepared
        self.starting = asyncio.Lock()  # containers are started one after the other
        self.preparing: asyncio.Task[None] | None = None
        self.retry: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self._on_change = on_change

    def containers(self) -> tuple[ContainerStatus, ...]:
        """The containers that have been started or tried."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    def container(self, name: str) -> ContainerStatus:
        """The state of a container; `waiting` until it is started."""
        return next((each for each in self.containers() if each.name == name), ContainerStatus(name))

    def set(self, **changes: Any) -> None:
        """Change fields of the status."""
        before, self.status = self.status, msgspec.structs.replace(self.status, **changes)
        if self.status != before:
            self._on_change(self, before)

    def set_container(self, name: str, **changes: Any) -> None:
        """Change fields of a container's status."""
        is_init = self.pod.is_init_container(self.pod.container(name))
        field = "init_container_statuses" if is_init else "container_statuses"
        known: dict[str, ContainerStatus] = {each.name: each for each in getattr(self.status, field)}
        known[name] = msgspec.structs.replace(self.container(name), **changes)
        self.set(**{field: tuple(known.values())})

    def await_sandbox(self) -> None:
        """The containers have to wait for what the pod needs first."""
        reason = "PodInitializing" if self.pod.spec.init_containers else "ContainerCreating"
        for container in self.pod.all_containers:
            if self.container(container.name).state == "waiting":
                self.set_container(container.name, reason=reason, message="")

    def end_container(self, name: str, code: int) -> None:
        """A container ends with an exit code."""
        self.set_container(name, state="terminated", reason=_SUCCESS if code == 0 else _FAILURE)

    def end_running(self, code: int) -> None:
        """All containers that run end with an exit code."""
        for status in self.containers():
            if status.state == "running":
                self.end_container(status.name, code)

    def finish(self) -> None:
        """All containers end well."""
        for container in self.pod.spec.containers:
            self.end_container(container.name, 0)

    def lose_sandbox(self) -> None:
        """The containers are gone with what they ran in; they will be started in a new one."""
        self.has_sandbox = False
        for status in self.containers():
            if status.state != "waiting":
                self.set_container(status.name, state="waiting", reason="", restart_count=status.restart_count + 1)

    def reject(self, reason: str, text: str) -> None:
        """The pod is refused; containers that ran before a restart of the kubelet are ended."""
        self.end_running(137)
        self.set(phase="Failed", reason=reason, message=f"Pod was rejected: {text}")

    def restart_ended(self) -> None:
        """Let containers that ended wait for their next start, where the pod wants that."""
        for status in self.containers():
            if status.state == "terminated" and self._restarts(self.pod.container(status.name), status):
                self.set_container(status.name, state="waiting", reason="", restart_count=status.restart_count + 1)

    def phase(self) -> str:
        """The phase that follows from the containers."""
        apps = self.status.container_statuses
        if any(status.state == "running" for status in apps):
            return "Running"
        if apps and all(status.state == "terminated" for status in apps):
            return "Succeeded" if all(status.reason == _SUCCESS for status in apps) else "Failed"
        return self.status.phase

    def _restarts(self, container: Container, status: ContainerStatus) -> bool:
        if self.pod.is_init_container(container):
            return container.is_sidecar
        policy = self.pod.spec.restart_policy
        return policy == "Always" or (policy == "OnFailure" and status.reason != _SUCCESS)


def full_name(pod: Pod) -> str:
    """`namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
