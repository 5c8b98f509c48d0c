"""A pod on the node: its life-cycle state, its simulated containers, and the phase that results from them.

Containers, sandbox and status belong to the node and outlive the kubelet; the state belongs to the running kubelet.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kubelet.errors import NodeError
from kubelet.events import Event
from kubelet.pods.lifecycle import ACTIVE_STATES, Change, State, next_state
from kubelet.pods.node_fit import Taken
from kubelet.pods.sources import Source
from resourceapi.objects.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodStatus,
)
from resourceapi.objects.meta import Unknown

UNREPORTED_STATUS = PodStatus(phase="Pending")
"""The status of a pod before the kubelet reports one."""

_COMPLETED = "Completed"
_ERROR = "Error"
_KILLED_EXIT_CODE = 137  # exit code of a container that was killed
LOST_CONTAINER = ContainerStateTerminated(
    exit_code=_KILLED_EXIT_CODE,
    reason="ContainerStatusUnknown",
    message="The container could not be located when the pod was terminated",
)
"""The state that the kubelet reports for a container that was waiting when its pod was terminated."""


class Preemption(NamedTuple):
    """What the status of a pod that was ended for another one contains at last: reason, message and condition."""

    reason: str
    message: str
    condition: Mapping[str, str]


class PodRun:
    """A pod from when it is bound to the node until it is removed."""

    def __init__(self, pod: Pod, source: Source, notify: Callable[[Event], None]) -> None:
        """A pod that no kubelet knows yet; `notify` is called for each change of its status."""
        self.pod = pod
        self.name = full_name(pod)
        self.source: Source = source
        self.state = State.UNKNOWN
        self.is_deleted = False  # deletion was requested
        self.is_in_source = True  # its source has it; False after a forced deletion
        self.is_finished = False  # its containers ended and are not restarted, whatever the restart policy
        self.preemption: Preemption | None = None  # it was ended for another pod
        self.has_sandbox = False  # claims are prepared before the sandbox is created
        self.wake = asyncio.Event()  # requests a sync by the kubelet
        self._notify = notify
        self._status = UNREPORTED_STATUS  # as of the last read of `status`
        self._containers: dict[str, ContainerStatus] = {}  # in the order of their first status
        self._is_stale = False  # whether containers changed since the last read of `status`
        self._sync_waiters: list[asyncio.Future[None]] = []
        self._end_waiters: list[asyncio.Future[None]] = []

    @property
    def status(self) -> PodStatus:
        """The pod's status."""
        if self._is_stale:
            init: list[ContainerStatus] = []
            regular: list[ContainerStatus] = []
            for name, status in self._containers.items():
                (init if self.pod.is_init_container(self.container(name)) else regular).append(status)
            self._status = msgspec.structs.replace(
                self._status, init_container_statuses=tuple(init), container_statuses=tuple(regular)
            )
            self._is_stale = False
        return self._status

    @property
    def is_active(self) -> bool:
        """Whether the pod is one of the kubelet's active pods."""
        return self.is_in_source and self.state in ACTIVE_STATES

    @functools.cached_property
    def taken(self) -> Taken:
        """What the pod takes of its node."""
        return Taken.by(self.pod)

    @property
    def is_static(self) -> bool:
        """Whether the pod comes from a manifest on the node."""
        return self.source == "file"

    @property
    def is_terminated(self) -> bool:
        """Whether the kubelet has finished with the pod."""
        return self.state is State.TERMINATED

    def transition(self, change: Change) -> None:
        """Change to the next state. Raises KeyError if the change is impossible now."""
        self.state = next_state(self.state, change)

    def request_sync(self) -> "asyncio.Future[None]":
        """Request a sync of the pod; the future is done when it has run, or when the kubelet has stopped."""
        self.wake.set()
        return _add_future(self._sync_waiters)

    def request_end(self) -> "asyncio.Future[None]":
        """Return a future that is done when the kubelet has tried to end the pod, or has stopped."""
        if self.state is State.TERMINATING:
            self.wake.set()
        return _add_future(self._end_waiters)

    def take_sync_waiters(self) -> "list[asyncio.Future[None]]":
        """Remove and return the waiters for a sync, to resolve after it; clear `wake`."""
        self.wake.clear()
        waiters, self._sync_waiters = self._sync_waiters, []
        return waiters

    def take_end_waiters(self) -> "list[asyncio.Future[None]]":
        """Remove and return the waiters for the end, to resolve after the attempt."""
        waiters, self._end_waiters = self._end_waiters, []
        return waiters

    def container(self, name: str) -> Container:
        """Return a container of the pod. Raises `NodeError`."""
        try:
            return self.pod.container(name)
        except KeyError:
            raise NodeError(f"pod {self.name} has no container {name}") from None

    def container_status(self, name: str) -> ContainerStatus:
        """Return the status of a container; it is waiting until it is started. Raises `NodeError`."""
        known = self._containers.get(name)
        if known is not None:
            return known
        waiting = ContainerState(waiting=ContainerStateWaiting())
        return ContainerStatus(name=name, image=self.container(name).image, state=waiting, started=False)

    def set(self, **changes: Any) -> None:
        """Change fields of the status."""
        before, self._status = self.status, msgspec.structs.replace(self.status, **changes)
        if self._status != before:
            self._containers = {each.name: each for each in self._status.all_containers}
            is_same_phase = self._status.phase == before.phase
            self._changed("status" if is_same_phase else f"phase {self._status.phase}")

    def _changed(self, kind: str = "status") -> None:
        self._notify(Event(kind, self.name, self._status.message))

    def is_waiting(self, name: str) -> bool:
        """Return whether a container waits to be started. Raises `NodeError`."""
        return self.container_status(name).state.waiting is not None

    def wait_container(self, name: str, reason: str = "", message: str = "") -> None:
        """Set a container to waiting. Raises `NodeError`."""
        waiting = ContainerStateWaiting(reason=reason, message=message)
        self._set_container(name, ContainerState(waiting=waiting))

    def run_container(self, name: str) -> None:
        """Set a container to running; an init container is ready only after its end. Raises `NodeError`."""
        running = ContainerState(running=ContainerStateRunning())
        self._set_container(name, running, ready=not self._blocks_later_containers(name), started=True)

    def _blocks_later_containers(self, name: str) -> bool:
        """Return whether later containers wait for the container's end: an init container that is no sidecar."""
        container = self.container(name)
        return self.pod.is_init_container(container) and not container.is_sidecar

    def _set_container(self, name: str, state: ContainerState, **changes: Any) -> None:
        changes = {"ready": False, "started": False, **changes}
        before = self.container_status(name)
        after = msgspec.structs.replace(before, state=state, **changes)
        if after != before or name not in self._containers:
            self._containers[name], self._is_stale = after, True
            self._changed()

    def set_waiting_for_sandbox(self) -> None:
        """Set the waiting reason of containers that wait for the sandbox."""
        reason = "PodInitializing" if self.pod.spec.init_containers else "ContainerCreating"
        for container in self.pod.all_containers:
            if self.is_waiting(container.name):
                self.wait_container(container.name, reason)

    def end_container(self, name: str, code: int) -> None:
        """End a container with an exit code; an init container that succeeded is ready. Raises `NodeError`."""
        self._set_container(name, _terminated(code), ready=code == 0 and self._blocks_later_containers(name))

    def end_running(self, code: int) -> None:
        """End all running containers with an exit code."""
        for status in self.status.all_containers:
            if status.state.running is not None:
                self.end_container(status.name, code)

    def finish(self) -> None:
        """End all containers with exit code 0; they are not restarted."""
        self.is_finished = True
        self.wake.set()
        for container in self.pod.spec.containers:
            self.end_container(container.name, 0)

    def lose_sandbox(self) -> None:
        """Lose the sandbox and its containers. With the restart policy Never they fail; otherwise they restart.

        Not restarted are containers of a pod that has ended or is ending, and app containers that succeeded under the
        restart policy OnFailure.
        """
        policy = self.pod.spec.restart_policy
        if self.is_terminated or self.is_deleted or self.is_finished or policy == "Never":
            self.end_running(_KILLED_EXIT_CODE)
            return
        self.has_sandbox = False
        for status in self.status.all_containers:
            is_app = not self.pod.is_init_container(self.container(status.name))
            is_done = is_app and policy == "OnFailure" and _has_succeeded(status)
            if status.state.waiting is None and not is_done:
                self._restart_container(status)

    def reject(self, reason: str, text: str) -> None:
        """Set the pod to Failed because it was refused; end containers that ran before the kubelet's restart."""
        self.end_running(_KILLED_EXIT_CODE)
        self.set(phase="Failed", reason=reason, message=f"Pod was rejected: {text}")

    def restart_ended(self) -> None:
        """Set ended containers to waiting for a restart, if the restart policy requires it."""
        for status in self.status.all_containers:
            if _has_ended(status) and self._restarts(self.container(status.name), status):
                self._restart_container(status)

    def phase(self) -> str:
        """Return the phase that results from the containers, like the kubelet's `getPhase`.

        A container that waits for its first start keeps the pod Pending, whatever the others do.
        """
        known = self._containers
        apps = [known.get(each.name) for each in self.pod.spec.containers]
        if apps and all(each is not None and self._is_finished(each) for each in apps):
            return "Succeeded" if all(each is not None and _has_succeeded(each) for each in apps) else "Failed"
        long_running = apps + [known.get(each.name) for each in self.pod.spec.init_containers if each.is_sidecar]
        init = [known.get(each.name) for each in self.pod.spec.init_containers if not each.is_sidecar]
        if any(each is not None and self._is_finished(each) and not _has_succeeded(each) for each in init):
            return "Failed"
        if any(map(_is_before_first_start, [*init, *long_running])) or any(
            each and each.state.running for each in init
        ):
            return "Pending"
        return "Running"

    def terminate(self) -> None:
        """Set the final phase after all containers ended, and the final state of app containers that were waiting.

        The reason and condition of a preemption appear only now, when no container runs any more.
        Source: the kubelet's `getPhase` with `podIsTerminal`, `TerminatePod` and `mergePodStatus`.
        """
        apps = [self.container_status(each.name) for each in self.pod.spec.containers]
        if self._is_initialized(apps):
            for each in apps:
                if not _has_ended(each):
                    lost = ContainerState(terminated=LOST_CONTAINER)
                    self._set_container(each.name, each.last_state if each.restart_count else lost)
        ended = (self.container_status(each.name) for each in apps)
        changes: dict[str, Any] = {"phase": "Succeeded" if all(map(_has_succeeded, ended)) else "Failed"}
        if self.preemption is not None:
            changes["unknown_fields"] = Unknown({"conditions": [dict(self.preemption.condition)]})
            if changes["phase"] == "Failed":
                changes |= {"reason": self.preemption.reason, "message": self.preemption.message}
        self.set(**changes)

    def _is_initialized(self, apps: Sequence[ContainerStatus]) -> bool:
        """Return whether app containers could start: the last init container succeeded, or an app container ran."""
        init = self.pod.spec.init_containers
        if not init or any(_has_ended(each) or each.restart_count for each in apps):
            return True
        return _has_succeeded(self.container_status(init[-1].name))

    def _restart_container(self, status: ContainerStatus) -> None:
        waiting = ContainerState(waiting=ContainerStateWaiting())
        ended = status.state if status.state.terminated is not None else _terminated(_KILLED_EXIT_CODE)
        self._set_container(status.name, waiting, restart_count=status.restart_count + 1, last_state=ended)

    def _is_finished(self, status: ContainerStatus) -> bool:
        return _has_ended(status) and not self._restarts(self.container(status.name), status)

    def _restarts(self, container: Container, status: ContainerStatus) -> bool:
        policy = "Never" if self.is_finished else self.pod.spec.restart_policy
        if self.pod.is_init_container(container):
            return (container.is_sidecar and not self.is_finished) or (policy != "Never" and not _has_succeeded(status))
        return policy == "Always" or (policy == "OnFailure" and not _has_succeeded(status))


def _terminated(code: int) -> ContainerState:
    reason = _COMPLETED if code == 0 else _ERROR
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason=reason))


def _is_before_first_start(status: ContainerStatus | None) -> bool:
    return status is None or (status.state.waiting is not None and not status.restart_count)


def _has_ended(status: ContainerStatus) -> bool:
    return status.state.terminated is not None


def _has_succeeded(status: ContainerStatus) -> bool:
    return status.state.terminated is not None and status.state.terminated.exit_code == 0


def _add_future(waiters: "list[asyncio.Future[None]]") -> "asyncio.Future[None]":
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(future)
    return future


def resolve_all(waiters: "Iterable[asyncio.Future[None]]") -> None:
    """Wake all waiters."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def full_name(pod: Pod) -> str:
    """Return `namespace/name`."""
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
