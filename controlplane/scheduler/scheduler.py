"""The scheduler as a whole: makes a pass over the cluster whenever something changes, and does what is due.

Level, not edge: a pass starts from the objects' state, never from events. Passes and their writes are sequential, so no
two decisions conflict.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Self, TypeVar

from msgspec.structs import replace

from controlplane.scheduler.binding import Binder, BindingFailed
from controlplane.scheduler.claims import ClaimController
from controlplane.scheduler.cluster_cache import Cache, ClusterCache, Key, key_of
from controlplane.scheduler.cluster_writer import ClusterWriter, Outdated
from controlplane.scheduler.eviction import Evictor
from controlplane.scheduler.placement import Snapshot, Unschedulable, claims_of, place, take_snapshot
from controlplane.scheduler.pods import is_done, is_gated
from controlplane.structured import AllocationError, Features, SliceIndex, patched
from resourceapi.client import ClientError, Refused
from resourceapi.client.backoff import delay
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, KubernetesObject
from resourceapi.objects.core import Pod
from resourceapi.objects.v1 import ResourceClaimStatus, ResourceSlice

log = logging.getLogger(__name__)
K = TypeVar("K", bound=KubernetesObject)

DEFAULT_NAME = "default-scheduler"
BINDING_TIMEOUT = 600.0
"""The longest time, in seconds, to wait for binding conditions."""


def _now() -> datetime:
    return datetime.now(UTC)


class Scheduler:
    """Does what kube-scheduler and the claim and taint controllers do for devices, on the event loop that starts it.

    `client` connects to any API server; its `timeout` and `wait` bound the time that `stop` takes. Only pods with
    `schedulerName` `name` (or without one) are bound. With `with_controllers` off, the cluster's own controllers handle
    claims and evictions. `now` returns the current time; after changing it, call `wake`.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str = DEFAULT_NAME,
        features: Features | None = None,
        with_controllers: bool = True,
        binding_timeout: float = BINDING_TIMEOUT,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._name = name
        self._features = features or Features()
        self._with_controllers = with_controllers
        self._now = now
        self._index = SliceIndex()
        self._changed = asyncio.Event()
        self._cluster = ClusterCache(client, self.wake)
        self._writer = ClusterWriter(client, self._cluster, name, now)
        self._claims = ClaimController(self._cluster, self._writer)
        self._binder = Binder(self._cluster, self._writer, binding_timeout, now, self._wake_at)
        self._evictor = Evictor(self._cluster, self._writer, now, self._wake_at)
        self._patched_slices: tuple[tuple[int, int], tuple[ResourceSlice, ...]] = (-1, -1), ()
        self._last_snapshot: tuple[tuple[int, ...], Snapshot | None] = (), None
        self._next_pass_at: datetime | None = None  # when the next pass is due without a change
        self._failures = 0  # successive passes that the server interrupted with errors
        self._has_failed_request = False  # of the current pass
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Start. Returns when the cluster has been read once. Raises Refused if it cannot be read."""
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.stop()
            raise
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, after the current write. Idempotent."""
        self._stopping = True
        self.wake()
        task, self._task = self._task, None
        if task is not None:
            await task
        await self._cluster.stop()

    def wake(self) -> None:
        """Start another pass, even if nothing changed."""
        self._changed.set()

    async def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            self._next_pass_at, self._has_failed_request = None, False
            before = self._writer.count
            try:
                await self._run_pass()
            except (ClientError, DecodeError) as error:
                self._has_failed_request = True
                log.warning("cannot go on: %s", error)
            except Exception:  # a bug: it ends the scheduler, and must be logged
                log.exception("nothing is scheduled any more")
                raise
            self._failures = self._failures + 1 if self._has_failed_request else 0
            is_quiet = self._writer.count == before  # otherwise the writes may have made more possible
            if is_quiet or self._has_failed_request:
                await self._until_woken()

    async def _until_woken(self) -> None:
        delays = [(self._next_pass_at - self._now()).total_seconds()] if self._next_pass_at is not None else []
        if self._has_failed_request:
            delays.append(delay(self._failures))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, min(delays)) if delays else None)

    def _wake_at(self, when: datetime) -> None:
        self._next_pass_at = when if self._next_pass_at is None else min(when, self._next_pass_at)

    async def _run_pass(self) -> None:
        await self._writer.resend_unanswered()
        cluster = self._cluster
        if self._with_controllers:
            for key in list(cluster.pods.objects):
                await self._process(cluster.pods, key, self._claims.sync_pod)
            for key in list(cluster.claims.objects):
                await self._process(cluster.claims, key, self._claims.sync_claim)
            for pod in self._evictor.pods_to_evict():
                await self._process(cluster.pods, key_of(pod), self._evictor.evict)
        pending = [pod for pod in cluster.pods.objects.values() if self._is_pending(pod)]
        for pod in sorted(pending, key=_queue_order):
            await self._process(cluster.pods, key_of(pod), self._schedule)

    async def _process(self, cache: Cache[K], key: Key, work: Callable[[K], Awaitable[None]]) -> None:
        """Process the current state of an object. Raises ClientError if the pass cannot go on."""
        obj = cache.objects.get(key)
        if obj is None or self._stopping:
            return
        try:
            await work(obj)
        except Outdated as error:
            log.debug("%s %s: %s", obj.KIND, "/".join(key), error)
        except Refused as refusal:
            if refusal.code >= 500:
                raise
            self._has_failed_request = True
            log.warning("%s %s: %s", obj.KIND, "/".join(key), refusal)

    async def _schedule(self, pod: Pod) -> None:
        if not self._is_pending(pod):
            return
        cluster = self._cluster
        try:
            try:
                claims = claims_of(pod, cluster)
            except Unschedulable as error:
                raise Unschedulable(f"0/{len(cluster.nodes.objects)} nodes are available: {error}.") from error
            placement = await asyncio.to_thread(place, pod, claims, self._snapshot())
            await self._binder.bind(pod, placement)
        except Unschedulable as error:
            await self._report_refusal(pod, "Unschedulable", str(error))
            if error.blocking_claim is not None:
                await self._writer.set_claim_status(
                    replace(error.blocking_claim, status=ResourceClaimStatus())
                )  # a change that starts another pass, which tries the pod again
        except AllocationError as error:
            await self._report_refusal(pod, "SchedulerError", f'running "DynamicResources" filter plugin: {error}')
        except BindingFailed as error:
            await self._report_refusal(pod, "SchedulerError", f'running PreBind plugin "DynamicResources": {error}')

    async def _report_refusal(self, pod: Pod, reason: str, text: str) -> None:
        if await self._writer.set_pod_condition(pod, "PodScheduled", "False", reason, text):
            await self._writer.record_event(pod, "FailedScheduling", text)

    def _is_pending(self, pod: Pod) -> bool:
        is_open = not pod.spec.node_name and not is_done(pod) and not is_gated(pod)
        return is_open and pod.spec.scheduler_name in ("", self._name)

    def _snapshot(self) -> Snapshot:
        """The cluster's current state: the last snapshot, or a new one if anything has changed."""
        revisions = self._cluster.revisions
        known, snapshot = self._last_snapshot
        if snapshot is None or known != revisions:
            snapshot = take_snapshot(self._cluster, self._slices(), self._index, self._features)
            self._last_snapshot = revisions, snapshot
        return snapshot

    def _slices(self) -> Sequence[ResourceSlice]:
        """The slices in the order of their names, with the taints of DeviceTaintRules."""
        slices, rules = self._cluster.slices, self._cluster.rules
        revisions = (slices.revision, rules.revision)
        if revisions != self._patched_slices[0]:
            in_order = sorted(slices.objects.values(), key=lambda slice_: slice_.metadata.name)
            self._patched_slices = revisions, tuple(patched(in_order, rules.objects.values()))
        return self._patched_slices[1]


def _queue_order(pod: Pod) -> tuple[datetime, Key]:
    return pod.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC), key_of(pod)
