"""The pods of a node, and the kubelet's sync loop, which admits them when their sources deliver them.

Pods outlive the kubelet. The loop is level-triggered: after any change, it compares the pods of the sources with those
of the kubelet. It admits one pod after the other, and adds and deletes no other pods meanwhile.
Source: the kubelet's `syncLoopIteration`, `HandlePodAdditions` and `HandlePodCleanups`; observation 42.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

import msgspec

from kubelet.clock import Clock
from kubelet.dramanager.references import has_claims
from kubelet.errors import NodeError
from kubelet.events import Event
from kubelet.node_object import NodeObject
from kubelet.pods.admission import Admission
from kubelet.pods.cgroups import PodCgroups
from kubelet.pods.lifecycle import Change, State
from kubelet.pods.manifests import for_admission
from kubelet.pods.node_fit import Rejection
from kubelet.pods.preemption import PREEMPTION
from kubelet.pods.run import PodRun, full_name, resolve_all
from kubelet.pods.sources import PodSources, Source
from kubelet.pods.worker import Managers, PodWorker
from kubelet.release import Release
from resourceapi.objects.core import Pod, PodStatus

log = logging.getLogger(__name__)


class PodWorkers:
    """The pods of a node."""

    def __init__(
        self,
        clock: Clock,
        notify: Callable[[Event], None],
        node: NodeObject,
        cgroups: PodCgroups,
        release: Release,
    ) -> None:
        """Start without pods. `notify` is called for their events; `node` is where they must fit."""
        self.sources = PodSources(self._sources_changed)
        self._clock = clock
        self._notify = notify
        self._admission = Admission(node, release, self._others, self._preempt)
        self._cgroups = cgroups
        self._runs: dict[str, PodRun] = {}
        self._managers: Managers | None = None
        self._wake = asyncio.Event()
        self._has_admitted = asyncio.Event()
        self._first_syncs: list[asyncio.Future[None]] = []

    async def run(self, managers: Managers) -> None:
        """Run the sync loop of a kubelet until cancelled; the caller must then call `stopped`."""
        self._managers = managers
        self._has_admitted.clear()
        self._first_syncs.clear()
        async with asyncio.TaskGroup() as workers:
            while True:
                self._wake.clear()
                sources = self.sources.deliverable_sources()  # one that becomes available later is handled next time
                for run in list(self._runs.values()):
                    if run.state is State.UNKNOWN and run.is_in_source and run.source in sources:
                        await self._add(run, managers, workers)
                was_ready = self.sources.all_ready
                self.sources.mark_delivered(sources)
                if self.sources.all_ready and not was_ready:
                    self._notify(Event("sources", "all"))
                self._end_deleted()
                self._has_admitted.set()
                await self._wake.wait()

    def stopped(self) -> None:
        """Record that the kubelet has stopped, after its sockets; pods and their containers stay unchanged."""
        self._managers = None
        for run in self._runs.values():
            run.transition(Change.KUBELET_STOPPED)
            run.preemption = None
            resolve_all([*run.take_sync_waiters(), *run.take_end_waiters()])

    async def wait_admitted(self) -> None:
        """Wait until the pods delivered at the start are admitted, and those without claims have been synced once."""
        await self._has_admitted.wait()
        await asyncio.gather(*self._first_syncs)

    def find(self, pod: Pod | str) -> PodRun:
        """Return the pod on the node; if a name was reused, the latest. Raises `NodeError`."""
        names = {pod.uid or full_name(pod)} if isinstance(pod, Pod) else {pod, f"default/{pod}"}
        for run in reversed(self.all()):
            if run.pod.uid in names or run.name in names:
                return run
        raise NodeError(f"pod {full_name(pod) if isinstance(pod, Pod) else pod} is not on the node")

    def all(self) -> list[PodRun]:
        """Return all pods that a source has, in the order in which they were added."""
        return [run for run in self._runs.values() if run.is_in_source]

    def known(self) -> list[PodRun]:
        """Return the pods that the kubelet knows and that a source has, including those that have ended."""
        return [run for run in self.all() if run.state is not State.UNKNOWN]

    def active(self) -> list[PodRun]:
        """Return the kubelet's active pods."""
        return [run for run in self._runs.values() if run.is_active]

    def bind(self, pod: Pod, source: Source = "api") -> PodRun:
        """Add a pod to a source. Raises `NodeError` if its name is taken or its uid is no valid folder name."""
        pod = for_admission(pod)
        if {"/", "\0"} & set(pod.uid):
            raise NodeError(
                f"pod {full_name(pod)}: metadata.uid {pod.uid!r}: cgroups are named by it, so no / may be in it"
            )
        for run in self.all():
            if run.name == full_name(pod) and not run.is_terminated:
                raise NodeError(f"pod {run.name} is on the node already; remove it first")
        if not pod.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=str(uuid.uuid4())))
        run = self._runs[pod.uid] = PodRun(pod, source, self._notify)
        self._wake.set()
        return run

    async def admit(self, pod: Pod, source: Source = "api") -> PodStatus:
        """Add a pod to a source, wait for its first sync, and return its status; see `Node.admit`."""
        if self._managers is None:
            raise NodeError("the kubelet is stopped; start it first")
        if source == "api" and self.sources.is_held:
            raise NodeError("the API server is disconnected, so the kubelet does not get its pods; run `release` first")
        known = self._runs.get(pod.uid) if pod.uid else None
        if known is not None:
            return known.status
        run = self.bind(pod, source)
        await run.request_sync()
        return run.status

    async def sync(self, run: PodRun) -> PodStatus:
        """Sync a pod now, if the kubelet has admitted it."""
        if run.state is State.SYNCING:
            await run.request_sync()
            if self._managers is not None:
                self._managers.refresh_health(run)
        return run.status

    async def remove(self, run: PodRun, *, force: bool = False) -> None:
        """Delete a pod, and wait for the first attempt to end it. With `force` it leaves its source at once.

        If the kubelet is stopped or the API server is unavailable, the pod ends later. A running sync of the pod is not
        interrupted.
        """
        run.is_deleted = True
        if force:
            self._remove_from_source(run)
        if run.is_terminated:
            self._forget(run)
        elif self._managers is not None and not (
            self.sources.is_held and (run.source == "api" or not run.is_in_source)
        ):
            end = run.request_end()
            self._wake.set()
            await end

    def refresh_health_of(self, uids: Iterable[str]) -> None:
        """Update the device health in the status of pods; pods that are gone are skipped."""
        for uid in uids:
            if uid in self._runs and self._managers is not None:
                self._managers.refresh_health(self._runs[uid])

    def lose_sandboxes(self) -> None:
        """Lose the sandboxes of all pods, like a reboot."""
        for run in self._runs.values():
            run.lose_sandbox()

    def containers(self) -> tuple[dict[tuple[str, str], str], frozenset[str]]:
        """Return what a runtime would report: (pod uid, container name) -> container id, and the ids that run."""
        known: dict[tuple[str, str], str] = {}
        running = set()
        for run in self._runs.values():
            for status in run.status.all_containers:
                id_ = known[run.pod.uid, status.name] = f"{run.pod.uid}/{status.name}"
                if status.state.running is not None:
                    running.add(id_)
        return known, frozenset(running)

    async def _add(self, run: PodRun, managers: Managers, workers: asyncio.TaskGroup) -> None:
        run.transition(Change.DELIVERED)
        rejection = await self._admission.rejection(run, managers)
        if rejection is not None:
            self._reject(run, rejection)
            return
        self._notify(Event("admitted", run.name))
        run.transition(Change.ADMITTED)
        if run.is_deleted:
            run.transition(Change.ENDED)
        if not self._has_admitted.is_set() and not has_claims(run.pod):
            self._first_syncs.append(run.request_sync())
        worker = PodWorker(run, managers, self._cgroups, self._clock, self._notify, self._terminated)
        workers.create_task(worker.run(), name=f"pod {run.name}")

    def _reject(self, run: PodRun, rejection: Rejection) -> None:
        run.reject(*rejection)
        run.transition(Change.REJECTED)
        self._notify(Event(rejection.reason, run.name, rejection.message))
        self._terminated(run)

    def _others(self, run: PodRun) -> list[PodRun]:
        return [each for each in self._runs.values() if each.is_active and each is not run]

    async def _preempt(self, run: PodRun) -> None:
        self._notify(Event(PREEMPTION.reason, run.name, PREEMPTION.message))
        if run.is_terminated:  # meanwhile, so nobody would wake those that wait for its end
            return
        run.preemption = PREEMPTION
        if run.state is State.SYNCING:
            run.transition(Change.ENDED)
            run.wake.set()
        await run.request_end()

    def _end_deleted(self) -> None:
        """End deleted pods, and the containers of unknown pods that no source has.

        The DRA manager unprepares the claims of the latter.
        """
        for run in list(self._runs.values()):
            if not (run.source in self.sources.deliverable_sources() if run.is_in_source else self.sources.all_ready):
                continue
            if run.state is State.SYNCING and run.is_deleted:
                run.transition(Change.ENDED)
                run.wake.set()
            elif run.state is State.UNKNOWN and not run.is_in_source:
                run.transition(Change.ORPHANED)
                self._terminated(run)

    def _terminated(self, run: PodRun) -> None:
        try:
            self._cgroups.remove(run.pod)
        except OSError as error:  # not a reason to keep the pod
            log.warning("cgroup of pod %s stays: %s", run.name, error)
        if self._managers is not None:
            self._managers.topology.forget(run.pod.uid)
        self._notify(Event("terminated", run.name))
        if run.is_deleted:
            self._forget(run)
        resolve_all([*run.take_sync_waiters(), *run.take_end_waiters()])

    def _forget(self, run: PodRun) -> None:
        self._runs.pop(run.pod.uid, None)
        self._remove_from_source(run)

    def _remove_from_source(self, run: PodRun) -> None:
        if run.is_in_source:
            run.is_in_source = False
            self._notify(Event("removed", run.name))

    def _sources_changed(self) -> None:
        self._wake.set()
        self._notify(Event("sources", "api"))
