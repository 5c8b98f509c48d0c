"""Kubernetes Events for administrators of the cluster: a pod's device is gone or unhealthy, a request was refused.

    device changes, the daemon's own events -> a queue -> events.k8s.io/v1, on the Pod and on the Node

Rules:
1. Nothing waits for this. An Event that the API server does not accept at once is dropped and counted; the daemon's own
   events and its log have it.
2. A repetition within `SERIES` seconds is the same Event, with a count that is written at most every `REWRITE` seconds.
   At most `BURST` Events are written at once, and one every `REFILL` seconds in the long run.
3. An Event on a claim's device is on each pod that the claim is reserved for.
Source: KEP-383; validation of k8s.io/kubernetes, pkg/apis/core/validation/events.go.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec import Struct

from checkpoint import Lease
from hostdevices.printable import printable
from nodeplug.events.devices import DeviceChange
from nodeplug.events.leases import holder_in_words
from resourceapi.client import AsyncClient, ClientError
from resourceapi.objects import DecodeError, v1
from telemetry import Event, Telemetry

API_VERSION: Final = "events.k8s.io/v1"
CONTROLLER: Final = "nodeplug.dev/nodeplug"
SERIES: Final = 600.0
REWRITE: Final = 60.0
BURST: Final = 20
REFILL: Final = 6.0
MAX_WAITING: Final = 100
MAX_REMEMBERED: Final = 200  # the most Events to which a repetition is added as a series
_MAX_PODS = 16  # the most pods of a claim
_MAX_NOTE_LENGTH, _MAX_NAME_LENGTH, _MAX_INSTANCE_LENGTH = 1024, 230, 128  # the most characters
_NODES_NAMESPACE = "default"  # for Events about objects without a namespace
_REASONS = {
    "unplugged": ("DeviceUnplugged", "Watch"),
    "unhealthy": ("DeviceUnhealthy", "Watch"),
    "refused": ("DeviceRefused", "Allocate"),
    "set-aside": ("LeasesSetAside", "Restore"),
    "reload-refused": ("ConfigurationRefused", "Reload"),
}
_FAILURES = (ClientError, DecodeError)
log = logging.getLogger("nodeplug")


class InvolvedObject(Struct, frozen=True):
    """The object that an Event is about; the `uid` of a pod can be unknown."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class EventContent(Struct, frozen=True):
    """A text about an object. For a claim it concerns its pods, which only the API server knows."""

    reason: str
    action: str
    note: str
    about: InvolvedObject


class _RecordedEvent(Struct):
    """An Event on the server, and the count of its repetitions."""

    name: str
    namespace: str
    first: float
    count: int = 1
    written_at: float = 0.0


class ClusterEvents:
    """Writes Events while `run` runs. Belongs to the event loop; `run` closes the client."""

    def __init__(
        self, client: AsyncClient, node: str, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare for a node. The outcome of each Event is counted in `telemetry`. `clock` returns seconds."""
        self._clock = clock
        self._events = client.raw(API_VERSION, "events", namespaced=True)
        self._claims = client.any_version(v1.ResourceClaim)
        self._client = client
        self._node = node
        self._telemetry = telemetry
        self._waiting: deque[EventContent] = deque()
        self._arrived = asyncio.Event()
        self._written: dict[EventContent, _RecordedEvent] = {}  # the least recently repeated first
        self._tokens, self._refilled_at = float(BURST), clock()
        self._problem = ""

    async def run(self) -> None:
        """Write the waiting notices, until cancelled. Handles all errors of the API server."""
        unsubscribe = self._telemetry.events.subscribe(self._on_event)
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    await self._publish(self._waiting.popleft())
        finally:
            unsubscribe()
            self._client.close()

    def devices_changed(self, changes: Iterable[DeviceChange]) -> None:
        """Report on pods and on the node the changes of devices that pods have."""
        for change in changes:
            if change.kind not in _REASONS or not change.leases:
                continue
            words = "is gone" if change.kind == "unplugged" else f"is unhealthy: {change.reason}"
            holders = {lease.holder: lease for lease in change.leases if lease.holder}
            for lease in holders.values():
                if (about := _holder(lease)) is not None:
                    holder = holder_in_words(lease.holder)
                    note = f"Device {change.device} of {change.resource}, which {holder} has, {words}"
                    self._add(change.kind, note, about)
            users = ", ".join(map(holder_in_words, holders)) or holder_in_words("")
            note = f"Device {change.device} of {change.resource} {words}; with {users}"
            self._add(change.kind, note, self._node_object)

    def _on_event(self, event: Event) -> None:
        if event.kind in ("refused", "set-aside", "reload-refused"):
            about = " ".join(filter(None, (event.resource, event.device)))
            self._add(event.kind, f"{about}: {event.message}" if about else event.message, self._node_object)

    @property
    def _node_object(self) -> InvolvedObject:
        # the uid as the kubelet does: `kubectl describe node` searches for it
        return InvolvedObject("Node", self._node, uid=self._node)

    def _add(self, kind: str, note: str, about: InvolvedObject) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._telemetry.cluster_events["limited"] += 1
            return
        reason, action = _REASONS[kind]
        self._waiting.append(EventContent(reason, action, printable(note, _MAX_NOTE_LENGTH - 3), about))
        self._arrived.set()

    async def _publish(self, content: EventContent) -> None:
        try:
            for each in await self._of_pods(content):
                await self._publish_one(each)
        except _FAILURES as error:
            self._failed(str(error))
        except Exception:  # a defect of ours must end nothing else
            self._telemetry.cluster_events["failed"] += 1
            log.exception("an Event could not be written")

    async def _publish_one(self, content: EventContent) -> None:
        try:
            if outcome := await self._write(content):
                self._telemetry.cluster_events[outcome] += 1
        except _FAILURES as error:
            self._written.pop(content, None)  # the server might no longer have it
            self._failed(str(error))
        else:
            self._problem = ""

    async def _of_pods(self, content: EventContent) -> list[EventContent]:
        """Return a notice for each pod of a claim; for other objects the notice itself."""
        about = content.about
        if about.kind != "ResourceClaim" or not self._has_token():
            return [content]
        claim = await self._claims.get(about.name, about.namespace)
        if claim.metadata.uid != about.uid:  # another claim has the name by now, and its pods have other devices
            return []
        users = [x for x in claim.status.reserved_for if x.resource == "pods" and not x.api_group][:_MAX_PODS]
        pods = (InvolvedObject("Pod", user.name, about.namespace, user.uid) for user in users)
        return [EventContent(content.reason, content.action, content.note, pod) for pod in pods]

    async def _write(self, content: EventContent) -> Literal["written", "limited"] | None:
        """Create an Event, or count it in an existing one. Return the outcome; None if it is only counted in memory."""
        now = self._clock()
        written = self._written.pop(content, None)
        if written is not None and now - written.first < SERIES:
            self._written[content] = written
            written.count += 1
            if now - written.written_at < REWRITE:
                return None
            if not self._take_token(now):
                return "limited"
            written.written_at = now
            series = {"series": {"count": written.count, "lastObservedTime": _micro_time()}}
            await self._events.patch(written.name, series, written.namespace)
            return "written"
        if not self._take_token(now):
            return "limited"
        made = event(content, self._node)
        await self._events.create(made)
        metadata = made["metadata"]
        self._written[content] = _RecordedEvent(metadata["name"], metadata["namespace"], now, written_at=now)
        if len(self._written) > MAX_REMEMBERED:
            del self._written[next(iter(self._written))]
        return "written"

    def _has_token(self) -> bool:
        return self._tokens + (self._clock() - self._refilled_at) / REFILL >= 1.0

    def _take_token(self, now: float) -> bool:
        self._tokens = min(float(BURST), self._tokens + (now - self._refilled_at) / REFILL)
        self._refilled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _failed(self, problem: str) -> None:
        """Count an Event that is not written, and log the reason once."""
        self._telemetry.cluster_events["failed"] += 1
        if not self._problem:
            extra = {"is_current": lambda: bool(self._problem)}
            log.warning("Events are not written: %s; they are dropped", problem, extra=extra)
        self._problem = problem


def event(content: EventContent, node: str) -> dict[str, Any]:
    """Return the Event with this content, and with a unique name."""
    about = content.about
    api_version = "resource.k8s.io/v1" if about.kind == "ResourceClaim" else "v1"
    regarding = {"apiVersion": api_version, "kind": about.kind, "name": about.name}
    regarding |= {"namespace": about.namespace} if about.namespace else {}
    regarding |= {"uid": about.uid} if about.uid else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Event",
        "metadata": {
            "name": f"{about.name[:_MAX_NAME_LENGTH].rstrip('-.')}.{os.urandom(8).hex()}",
            "namespace": about.namespace or _NODES_NAMESPACE,
        },
        "eventTime": _micro_time(),
        "reportingController": CONTROLLER,
        "reportingInstance": node[:_MAX_INSTANCE_LENGTH],
        "type": "Warning",
        "reason": content.reason,
        "action": content.action,
        "note": content.note,
        "regarding": regarding,
    }


def _holder(lease: Lease) -> InvolvedObject | None:
    """Return the pod or the claim that has a lease; None if the kubelet has not named it."""
    match lease.holder.split("/"):
        case ["pod", namespace, pod, _]:
            return InvolvedObject("Pod", pod, namespace, min(lease.pods) if len(lease.pods) == 1 else "")
        case ["claim", namespace, claim, uid]:
            return InvolvedObject("ResourceClaim", claim, namespace, uid)
    return None


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
