"""What the kubelet does with its pods: admits them, prepares their claims, starts their containers, ends them.

The order for one pod: devices at its admission, claims prepared, sandbox, containers. A pod that has claims ends only
when they are unprepared. Pods outlive the kubelet, which comes and goes with `begin` and `end`.
Source: observations 57-67.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from kubelet.clock import Clock
from kubelet.devicemanager import DeviceRunContainerOptions, ManagerImpl, NodeInfo, PodAdmitAttributes
from kubelet.devicemanager.options import CDIDevice
from kubelet.dramanager import DRAManager
from kubelet.dramanager.references import has_claims
from kubelet.errors import AllocationError, ClaimError, NodeError, PluginCallError
from kubelet.events import Event
from kubelet.pod_run import REMOVED, PodRun, full_name
from kubelet.pods import Container, Pod, PodStatus
from kubelet.topology import TopologyAffinityError, TopologyManager

# Seconds until what failed is tried again. Measured of a real kubelet: 12-14, 68-89, 0.8, 10-13.
RETRY_PERIOD = 13.0
PREPARE_RETRY_PERIOD = 80.0
FIRST_UNPREPARE_RETRY = 1.0
UNPREPARE_RETRY_PERIOD = 12.0

_TERMINATED = 143  # exit code of a container that was asked to end


class Managers(Struct, frozen=True):
    """Those of the kubelet that runs."""

    devices: ManagerImpl
    claims: DRAManager
    topology: TopologyManager


class PodWorkers:
    """The pods of a node."""

    def __init__(
        self, clock: Clock, notify: Callable[[Event], None], allocatable: Callable[[], dict[str, int]]
    ) -> None:
        """No pods. `notify` is told what happens to them; `allocatable` is the node's."""
        self._clock = clock
        self._notify = notify
        self._allocatable = allocatable
        self._runs: dict[str, PodRun] = {}
        self._managers: Managers | None = None
        self._admission = asyncio.Lock()  # one pod after the other
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def managers(self) -> Managers:
        """Those of the kubelet that runs. Raises `NodeError`."""
        if self._managers is None:
            raise NodeError("the kubelet is stopped; start it first")
        return self._managers

    @property
    def is_running(self) -> bool:
        """True between `begin` and `end`."""
        return self._managers is not None

    def begin(self, managers: Managers) -> None:
        """A kubelet starts; it has not looked at the pods yet."""
        self._managers = managers

    async def admit_all(self) -> None:
        """Admit again what was on the node."""
        for run in self.active():
            if not run.ends_as:
                await self._admit(run)

    async def start_all(self) -> None:
        """Go on with all pods, in the background where a driver has to be asked first."""
        for run in self.active():
            if run.ends_as:
                run.ending = self._spawn(self._end_until_done(run))
                continue
            run.restart_ended()
            if run.has_sandbox or not has_claims(run.pod):
                await self._start_containers(run)
            else:
                self._spawn(self._start_containers(run))

    async def end(self) -> None:
        """The kubelet stops; pods and their containers stay."""
        self._managers = None
        tasks, self._tasks = self._tasks, set()
        tasks |= {run.preparing for run in self._runs.values() if run.preparing is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in self._runs.values():
            run.retry = run.ending = None

    def find(self, pod: Pod | str) -> PodRun:
        """The pod on the node, the latest where a name was used again. Raises `NodeError`."""
        wanted = {pod.uid or full_name(pod)} if isinstance(pod, Pod) else {pod, f"default/{pod}"}
        for uid, run in reversed(self._runs.items()):
            if uid in wanted or run.name in wanted:
                return run
        raise NodeError(f"pod {full_name(pod) if isinstance(pod, Pod) else pod} is not on the node")

    def all(self) -> list[PodRun]:
        """All pods, in the order of their admission."""
        return list(self._runs.values())

    def active(self) -> list[PodRun]:
        """The pods that run or will run."""
        return [run for run in self._runs.values() if not run.status.is_terminal]

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers; see `Node.admit`."""
        _ = self.managers  # a kubelet that is stopped admits nothing
        known = self._runs.get(pod.uid) if pod.uid else None
        if known is not None:
            return known.status
        for run in self.active():
            if run.name == full_name(pod):
                raise NodeError(f"pod {run.name} is on the node already; remove it first")
        if not pod.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=str(uuid.uuid4())))
        run = self._runs[pod.uid] = PodRun(pod, self._pod_changed)
        await self._admit(run)
        if not run.status.is_terminal:
            await self._start_containers(run)
        return run.status

    async def sync(self, run: PodRun) -> PodStatus:
        """Look after a pod now: start what waits, and read the health of its devices."""
        await self._start_containers(run)
        self.refresh_health(run)
        return run.status

    async def exit_container(self, run: PodRun, name: str, code: int) -> PodStatus:
        """A container ended."""
        run.end_container(name, code)
        if self.is_running:
            run.restart_ended()
            await self._settle(run)
            await self._start_containers(run)
        return run.status

    def finish(self, run: PodRun) -> PodStatus:
        """All containers end well. Without claims the pod is Succeeded at once."""
        run.finish()
        if self._must_unprepare(run):
            run.ends_as = run.ends_as or "Succeeded"
            if self.is_running and run.ending is None:
                run.ending = self._spawn(self._end_until_done(run))
        else:
            run.set(phase="Succeeded")
        return run.status

    async def lose_sandbox(self, run: PodRun) -> PodStatus:
        """The runtime lost a pod's sandbox."""
        run.lose_sandbox()
        if self.is_running:
            await self._start_containers(run)
        return run.status

    async def remove(self, run: PodRun, *, force: bool = False) -> None:
        """Delete a pod; one with claims goes when they are unprepared, the first attempt at which is waited for.

        A driver that is preparing them is left to finish before.
        """
        if run.retry is not None:
            run.retry.cancel()
        run.ends_as = REMOVED
        if force:
            self._forget(run)
        if run.preparing is not None:
            await asyncio.wait([run.preparing])
        if not self._must_unprepare(run):
            self._forget(run)
            return
        run.end_running(_TERMINATED)
        if self.is_running and run.ending is None:
            await self._end(run)

    def refresh_health(self, run: PodRun) -> None:
        """Show the health of a pod's devices in its status."""
        managers = self.managers
        updated = managers.devices.update_allocated_resources_status(run.pod, run.status)
        updated = managers.claims.update_allocated_resources_status(run.pod, updated)
        run.set(container_statuses=updated.container_statuses)

    def refresh_health_of(self, uids: Iterable[str]) -> None:
        """The same for pods that may be gone."""
        for uid in uids:
            if uid in self._runs:
                self.refresh_health(self._runs[uid])

    async def run_container_options(self, run: PodRun, container: Container) -> DeviceRunContainerOptions | None:
        """What the runtime is told when a container starts: claimed devices first. Raises `KubeletError`."""
        claimed = tuple(CDIDevice(id_) for id_ in self.managers.claims.get_resources(run.pod, container))
        options = await self.managers.devices.get_device_run_container_options(run.pod, container)
        if not claimed:
            return options
        options = options or DeviceRunContainerOptions()
        return msgspec.structs.replace(options, cdi_devices=(*claimed, *options.cdi_devices))

    def containers(self) -> tuple[dict[tuple[str, str], str], frozenset[str]]:
        """What a runtime would report: the containers that exist, and those that run."""
        known: dict[tuple[str, str], str] = {}
        running = set()
        for run in self._runs.values():
            for status in run.containers():
                id_ = known[run.pod.uid, status.name] = f"{run.pod.uid}/{status.name}"
                if status.state == "running":
                    running.add(id_)
        return known, frozenset(running)

    async def _admit(self, run: PodRun) -> None:
        devices = self.managers.devices
        async with self._admission:
            try:
                await self.managers.topology.admit(run.pod, devices.allocate_container)
            except TopologyAffinityError as error:
                self._reject(run, "TopologyAffinityError", str(error))
                return
            except (AllocationError, PluginCallError) as error:
                self._reject(run, "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
                return
            devices.update_plugin_resources(NodeInfo(self._allocatable()), PodAdmitAttributes(run.pod))
        self._notify(Event("admitted", run.name))

    def _reject(self, run: PodRun, reason: str, text: str) -> None:
        run.reject(reason, text)
        self._notify(Event(reason, run.name, text))

    async def _start_containers(self, run: PodRun) -> None:
        """Start, in order, every container that waits; init containers end at once."""
        async with run.starting:
            if run.ends_as or run.status.is_terminal:
                return
            if not run.has_sandbox and not await self._prepare(run):
                self._retry_in(run, PREPARE_RETRY_PERIOD)
                return
            if run.ends_as:  # since a moment ago
                return
            run.has_sandbox = True
            failed = False
            for container in run.pod.all_containers:
                if run.container(container.name).state != "waiting":
                    continue
                is_started = await self._start_container(run, container)
                failed = failed or not is_started
                if not is_started and run.pod.is_init_container(container):
                    break
            if run.ends_as or run.status.is_terminal:
                return
            self.refresh_health(run)
            await self._settle(run)
        if failed:
            self._retry_in(run, RETRY_PERIOD)

    async def _prepare(self, run: PodRun) -> bool:
        """Have the pod's claims prepared; tell whether they are."""
        if not has_claims(run.pod):
            return True
        task = run.preparing = asyncio.create_task(self.managers.claims.prepare_resources(run.pod))
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            run.preparing = None
        if task.cancelled():  # the kubelet stops
            return False
        error = task.exception()
        if error is None:
            return True
        if not isinstance(error, ClaimError):
            raise error
        run.await_sandbox()
        text = f"Failed to prepare dynamic resources: {error}"
        self._notify(Event("FailedPrepareDynamicResources", run.name, text))
        return False

    async def _start_container(self, run: PodRun, container: Container) -> bool:
        try:
            await self.run_container_options(run, container)
        except (AllocationError, ClaimError, PluginCallError) as error:
            run.set_container(container.name, reason="CreateContainerConfigError", message=str(error))
            self._notify(Event("Failed", run.name, f"Error: {error}"))
            return False
        run.set_container(container.name, state="running", reason="", message="")
        if run.pod.is_init_container(container) and not container.is_sidecar:
            run.end_container(container.name, 0)
        self._notify(Event("container", run.name, f"{container.name} {run.container(container.name).state}"))
        return True

    async def _settle(self, run: PodRun) -> None:
        """Give the pod the phase that follows from its containers, and unprepare its claims when it ends."""
        phase = run.phase()
        if run.ends_as:
            return
        if phase in ("Succeeded", "Failed") and self._must_unprepare(run):
            run.ends_as = phase
            await self._end(run)
        else:
            run.set(phase=phase)

    def _must_unprepare(self, run: PodRun) -> bool:
        """Tell whether claims keep the pod from ending; a kubelet that is stopped cannot know and looks later."""
        if self._managers is None:
            return has_claims(run.pod) and not run.status.is_terminal
        return self._managers.claims.pod_might_need_to_unprepare_resources(run.pod.uid)

    async def _end(self, run: PodRun) -> None:
        """Unprepare the pod's claims now, and until it works in the background."""
        if not await self._unprepare(run):
            run.ending = self._spawn(self._end_until_done(run, FIRST_UNPREPARE_RETRY))

    async def _end_until_done(self, run: PodRun, wait: float = 0.0) -> None:
        while True:
            if wait:
                await self._clock.sleep(wait)
            if await self._unprepare(run):
                return
            wait = UNPREPARE_RETRY_PERIOD if wait else FIRST_UNPREPARE_RETRY

    async def _unprepare(self, run: PodRun) -> bool:
        try:
            await self.managers.claims.unprepare_resources(run.pod.uid)
        except ClaimError as error:
            self._notify(Event("unprepare failed", run.name, str(error)))
            return False
        if run.ends_as == REMOVED:
            self._forget(run)
        else:
            run.set(phase=run.ends_as)
        return True

    def _forget(self, run: PodRun) -> None:
        if self._runs.pop(run.pod.uid, None) is None:
            return
        if self._managers is not None:
            self._managers.topology.forget(run.pod.uid)
        self._notify(Event("removed", run.name))

    def _retry_in(self, run: PodRun, seconds: float) -> None:
        if run.retry is None and self.is_running and not run.ends_as and run.pod.uid in self._runs:
            run.retry = self._spawn(self._retry(run, seconds))

    async def _retry(self, run: PodRun, seconds: float) -> None:
        await self._clock.sleep(seconds)
        run.retry = None
        await self._start_containers(run)

    def _pod_changed(self, run: PodRun, before: PodStatus) -> None:
        kind = f"phase {run.status.phase}" if run.status.phase != before.phase else "status"
        self._notify(Event(kind, run.name, run.status.message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
