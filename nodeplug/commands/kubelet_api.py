"""The stand-in kubelet as a node of a cluster: it runs the pods that an API server binds to it, and reports on them.

Level-triggered: after every change of the pods on either side, both sides are compared. Threads write; all decisions
are made on the event loop.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

from kubelet import KubeletError, Node
from kubelet.pods.run import UNREPORTED_STATUS, full_name
from nodeplug.commands.kubelet_events import EventRecorder
from nodeplug.commands.kubelet_lease import NodeLease
from nodeplug.commands.kubelet_node_sync import NodeSync
from nodeplug.commands.kubelet_node_watch import NodeWatch
from nodeplug.commands.kubelet_status import pod_status
from resourceapi.client import ClientError, Event, Informer, Refused
from resourceapi.client.backoff import delay
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, format_time
from resourceapi.objects.core import Pod, PodStatus

log = logging.getLogger(__name__)
Json = dict[str, Any]

_STRATEGIC = "application/strategic-merge-patch+json"


class ClusterNode:
    """Runs the pods that the server binds to the node, and reports on them; other pods of the node stay untouched.

    A kubelet that starts learns of its pods when the server has listed them.
    """

    def __init__(self, node: Node, client: Client) -> None:
        """`client` is closed by the caller."""
        self._node, self._client = node, client
        self._pods = client.resource(Pod)
        self._events = EventRecorder(client, node.node_name)
        self._lease = NodeLease(node, client)
        self._node_sync = NodeSync(node, client)
        self._node_watch = NodeWatch(node, client)
        self._bound: dict[str, Pod] = {}  # uid -> the server's pod
        self._admitted: dict[str, Pod] = {}  # uid -> the pod as the kubelet admitted it
        self._ending: dict[str, PodStatus | None] = {}  # uid of a pod being removed -> its last status, once it is gone
        self._pod_statuses: dict[str, Json] = {}  # uid -> the status that the server has
        self._to_remove: deque[Pod] = deque()
        self._unsent_events: deque[tuple[str, str, str, str]] = deque()  # events: pod, type, reason, message
        self._group: asyncio.TaskGroup  # of all tasks; while it runs
        self._changed = asyncio.Event()
        self._is_listed = False
        self._has_admitted = asyncio.Event()
        self._failures = 0
        self._informer_task: asyncio.Task[None] | None = None
        node.sources.api_server = self._list_again

    async def run(self) -> None:
        """Act as a node until cancelled; a write that has begun is finished."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._listen())
                self._group.create_task(self._keep_lease())
                self._group.create_task(self._node_sync.run(self._changed.set))
                self._group.create_task(self._node_watch.run(self._changed.set))
                self._group.create_task(self._keep_comparing())
                self._start_informer()
        finally:
            self._informer_task = None

    async def _keep_comparing(self) -> None:
        while True:
            self._changed.clear()
            comparing = asyncio.create_task(self._compare())
            try:
                await asyncio.shield(comparing)
            finally:
                await comparing  # else a thread would still use the client
            while self._to_remove:  # not earlier: the group might be ending meanwhile
                self._group.create_task(self._remove(self._to_remove.popleft()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), delay(self._failures) if self._failures else None)

    def _start_informer(self) -> None:
        selector = f"spec.nodeName={self._node.node_name}"
        informer = Informer(self._client.aio.resource(Pod), self._on_pod_event, self._failed, field_selector=selector)
        self._informer_task = self._group.create_task(informer.run())

    async def _stop_informer(self) -> None:
        task, self._informer_task = self._informer_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _list_again(self) -> None:
        """Let a starting kubelet list its pods; return when the node has them."""
        self._events.forget()
        if self._informer_task is not None and not self._informer_task.done():  # else the whole node ends
            self._is_listed = False
            self._has_admitted.clear()
            await self._stop_informer()
            self._start_informer()
        await self._has_admitted.wait()

    def _on_pod_event(self, event: Event[Pod]) -> None:
        if event.type == "LISTED":
            self._bound = {pod.uid: pod for pod in sorted(event.items, key=_created)}
            self._is_listed = True
        elif event.type == "DELETED":
            self._bound.pop(event.object.uid, None)
        else:
            self._bound[event.object.uid] = event.object
        self._changed.set()

    def _failed(self, error: Exception) -> None:
        log.error("cannot follow the pods of node %s: %s", self._node.node_name, error)

    async def _listen(self) -> None:
        """Compare after every change, and keep the events that users need."""
        async for event in self._node.events():
            self._changed.set()
            if event.kind[0].isupper():
                self._unsent_events.append((event.about, "Warning", event.kind, event.text))
            elif event.kind == "container" and event.text.endswith(" running"):
                self._unsent_events.append((event.about, "Normal", "Started", "Container started"))

    async def _keep_lease(self) -> None:
        await self._node_sync.is_registered.wait()
        await self._lease.run()

    async def _compare(self) -> None:
        """Synchronise both sides. What the server refuses is tried again, and delays nothing else."""
        failed = False
        for step in self._steps():
            try:
                await step
            except (ClientError, DecodeError) as error:
                failed = True
                log.warning("cannot write the pod's status to the API server: %s", error)
                if not isinstance(error, Refused):  # the server does not answer
                    break
        self._failures = self._failures + 1 if failed else 0

    def _steps(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._node_sync.sync()
        if self._is_listed and self._node_watch.is_synced:
            for uid, pod in list(self._bound.items()):
                self._admit(uid, pod)
            self._has_admitted.set()
            for uid in list(self._admitted):
                yield self._sync_pod(uid)
            for uid, pod in list(self._bound.items()):
                if uid not in self._admitted and _is_deleted(pod):  # it never ran here
                    yield self._delete(pod)
            while self._unsent_events:
                yield self._record(*self._unsent_events.popleft())

    def _admit(self, uid: str, pod: Pod) -> None:
        """Make the kubelet admit a pod that is new here."""
        if uid in self._admitted or _is_deleted(pod) or pod.status.is_terminal or not _has_its_claims(pod):
            return
        try:
            self._node.bind(pod)
        except KubeletError as error:  # a pod with this name is still ending
            log.info("pod %s waits: %s", full_name(pod), error)
        else:
            self._admitted[uid] = pod

    async def _sync_pod(self, uid: str) -> None:
        """Report the status of a pod, or end it if it is deleted or missing."""
        pod, last = self._bound.get(uid), self._ending.get(uid)
        status = last or next((status for found, status in self._node.pods() if found.uid == uid), UNREPORTED_STATUS)
        if pod is not None and status != UNREPORTED_STATUS:  # else the kubelet has no status of it yet
            await self._patch_pod_status(pod, status)
        if pod is not None and not _is_deleted(pod):
            return
        if uid not in self._ending:
            self._ending[uid] = None
            self._to_remove.append(self._admitted[uid])
        elif last is not None:
            if pod is not None:
                await self._delete(pod)
            del self._ending[uid], self._admitted[uid]
            self._pod_statuses.pop(uid, None)

    async def _remove(self, pod: Pod) -> None:
        try:
            self._ending[pod.uid] = await self._node.remove(pod, until_gone=True)
        except KubeletError:  # it is gone already
            self._ending[pod.uid] = UNREPORTED_STATUS
        self._changed.set()

    async def _patch_pod_status(self, pod: Pod, status: PodStatus) -> None:
        uid, before = pod.uid, self._pod_statuses.get(pod.uid, {})
        reported = pod_status(pod, status, self._node.release, before, _now())
        if reported == before:
            return
        patch = {"metadata": {"uid": uid}, "status": reported}
        try:
            await asyncio.to_thread(
                self._pods.patch,
                pod.metadata.name,
                patch,
                pod.metadata.namespace,
                content_type=_STRATEGIC,
                subresource="status",
            )
        except Refused as refusal:
            if refusal.code not in (404, 409):  # it is gone, which the watch will report
                raise
        self._pod_statuses[uid] = reported

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod that has ended from the server, which has waited for that."""
        path = self._pods.path(pod.metadata.namespace, pod.metadata.name)
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        try:
            await asyncio.to_thread(self._client.request, "DELETE", path, options)
        except Refused as refusal:
            if refusal.code not in (404, 409):
                raise

    async def _record(self, about_pod: str, type_: str, reason: str, message: str) -> None:
        """Record an event about a pod. A failure is only logged."""
        pod = next((each for each in self._bound.values() if full_name(each) == about_pod), None)
        if pod is None:
            return
        try:
            await self._events.record(pod.metadata, type_, reason, message, _now())
        except (ClientError, DecodeError) as error:
            log.info("event %s of pod %s: %s", reason, about_pod, error)


def _created(pod: Pod) -> datetime:
    """Return when a pod was created. A kubelet admits those of a list in this order: older ones keep their place."""
    return pod.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)


def _is_deleted(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _has_its_claims(pod: Pod) -> bool:
    """Return whether the claims that were created for the pod's templates are known."""
    made = {each.name for each in pod.status.resource_claim_statuses}
    return all(each.name in made for each in pod.spec.resource_claims if each.resource_claim_template_name)


def _now() -> str:
    return format_time(datetime.now(UTC))
