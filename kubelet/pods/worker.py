"""The kubelet's worker for one pod, from its admission until it has terminated.

The order: cgroup, prepare claims, sandbox, containers; at the end containers, unprepare claims, cgroup. Each sync
determines what has to be done now, so it can run at any time and any number of times.
Source: the kubelet's `SyncPod`, `SyncTerminatingPod` and `SyncTerminatedPod`; observations 39-41, 57-67.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from kubelet.clock import Clock
from kubelet.devicemanager import DeviceRunContainerOptions, ManagerImpl
from kubelet.devicemanager.options import CDIDevice
from kubelet.dramanager import DRAManager
from kubelet.errors import AllocationError, ClaimError, PluginCallError
from kubelet.events import Event
from kubelet.pods.builders import stays
from kubelet.pods.cgroups import PodCgroups
from kubelet.pods.lifecycle import Change, State
from kubelet.pods.run import PodRun, resolve_all
from kubelet.topology import TopologyManager
from resourceapi.objects.core import Container

# Seconds until a failed step is retried. Measured with a real kubelet: 12-14, 68-89, 0.8, 10-13.
RETRY_PERIOD = 13.0
PREPARE_RETRY_PERIOD = 80.0
FIRST_UNPREPARE_RETRY = 1.0
UNPREPARE_RETRY_PERIOD = 12.0

_SIGTERM_EXIT_CODE = 143  # exit code of a container that ended on SIGTERM


class Managers(Struct, frozen=True):
    """The managers of the running kubelet."""

    devices: ManagerImpl
    claims: DRAManager
    topology: TopologyManager

    async def run_container_options(self, run: PodRun, container: Container) -> DeviceRunContainerOptions:
        """Return the runtime options for a container's start, claimed devices first. Raises `KubeletError`."""
        claimed = tuple(CDIDevice(id_) for id_ in self.claims.get_resources(run.pod, container))
        options = await self.devices.get_device_run_container_options(run.pod, container)
        return msgspec.structs.replace(options, cdi_devices=(*claimed, *options.cdi_devices))

    def refresh_health(self, run: PodRun) -> None:
        """Update the device health in a pod's status to what this kubelet knows."""
        blank = [msgspec.structs.replace(x, allocated_resources_status=()) for x in run.status.container_statuses]
        updated = msgspec.structs.replace(run.status, container_statuses=tuple(blank))
        updated = self.devices.update_allocated_resources_status(run.pod, updated)
        updated = self.claims.update_allocated_resources_status(run.pod, updated)
        run.set(container_statuses=updated.container_statuses)


class PodWorker:
    """Syncs one admitted pod."""

    def __init__(
        self,
        run: PodRun,
        managers: Managers,
        cgroups: PodCgroups,
        clock: Clock,
        notify: Callable[[Event], None],
        on_terminated: Callable[[PodRun], None],
    ) -> None:
        """`notify` is called for each event, `on_terminated` when the pod has terminated."""
        self._run = run
        self._managers = managers
        self._cgroups = cgroups
        self._clock = clock
        self._notify = notify
        self._on_terminated = on_terminated
        self._unprepare_failures = 0

    async def run(self) -> None:
        """Sync the pod on each request and each due retry, until it has terminated."""
        run = self._run
        while not run.is_terminated:
            waiters = run.take_sync_waiters()
            due: float | None = None
            try:
                if run.state is State.SYNCING:
                    due = await self._sync()
                if run.state is State.TERMINATING:
                    waiters += run.take_end_waiters()
                    due = await self._terminate()
            finally:
                resolve_all(waiters)
            if not run.is_terminated:
                timer = None if due is None else self._clock.call_later(due, run.wake.set)
                await run.wake.wait()
                if timer is not None:
                    timer.cancel()

    async def _sync(self) -> float | None:
        """Start every waiting container in order. Returns the seconds until a retry, or None."""
        run = self._run
        run.restart_ended()
        if run.phase() in ("Succeeded", "Failed"):
            run.transition(Change.ENDED)
            return None
        if not run.has_sandbox:
            run.set_waiting_for_sandbox()
        if not self._make_cgroup():
            return RETRY_PERIOD
        if not run.has_sandbox and not await self._prepare():
            return PREPARE_RETRY_PERIOD
        if run.state is not State.SYNCING:  # changed while the claims were prepared
            return None
        run.has_sandbox = True
        is_failed = False
        for container in run.pod.all_containers:
            if run.is_waiting(container.name):
                is_failed = not await self._start(container) or is_failed
                if run.state is not State.SYNCING:
                    return None
            if run.pod.is_init_container(container) and not self._allows_next_container(container):
                break
        self._managers.refresh_health(run)
        run.set(phase=run.phase())
        return RETRY_PERIOD if is_failed else None

    def _make_cgroup(self) -> bool:
        """Create the pod's cgroup; return whether it exists."""
        try:
            self._cgroups.create(self._run.pod)
        except OSError as error:
            text = f"unable to ensure pod container exists: {error}"
            self._notify(Event("FailedCreatePodContainer", self._run.name, text))
            return False
        return True

    async def _prepare(self) -> bool:
        """Prepare the pod's claims; return whether that succeeded."""
        run = self._run
        try:
            await self._managers.claims.prepare_resources(run.pod)
        except ClaimError as error:
            self._notify(
                Event("FailedPrepareDynamicResources", run.name, f"Failed to prepare dynamic resources: {error}")
            )
            return False
        return True

    async def _start(self, container: Container) -> bool:
        run = self._run
        try:
            await self._managers.run_container_options(run, container)
        except (AllocationError, ClaimError, PluginCallError) as error:
            run.wait_container(container.name, "CreateContainerConfigError", str(error))
            self._notify(Event("Failed", run.name, f"Error: {error}"))
            return False
        run.run_container(container.name)
        if run.pod.is_init_container(container) and not container.is_sidecar and not stays(container):
            run.end_container(container.name, 0)
        self._notify(
            Event("container", run.name, f"{container.name} {run.container_status(container.name).state.name}")
        )
        return True

    def _allows_next_container(self, init: Container) -> bool:
        """Return whether containers after an init container can start: a sidecar must run, others must have ended."""
        state = self._run.container_status(init.name).state
        return (state.running if init.is_sidecar else state.terminated) is not None

    async def _terminate(self) -> float | None:
        """End the containers, unprepare the claims. Returns the seconds until a retry, or None."""
        run = self._run
        run.end_running(_SIGTERM_EXIT_CODE)
        try:
            await self._managers.claims.unprepare_resources(run.pod)
        except ClaimError as error:
            self._notify(Event("unprepare failed", run.name, str(error)))
            self._unprepare_failures += 1
            return FIRST_UNPREPARE_RETRY if self._unprepare_failures == 1 else UNPREPARE_RETRY_PERIOD
        run.transition(Change.UNPREPARED)
        if run.is_in_source:  # otherwise the pod is gone from its source, and its status is not reported
            run.terminate()
        self._on_terminated(run)
        return None
