"""Events about pods, as a kubelet records them: a repetition increases the count of the same event.

Source: client-go's event correlator, without its protection against floods of events.
"""

import asyncio
from typing import Any

from resourceapi.client import Refused
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta
from resourceapi.objects.events import pod_event

_REMEMBERED = 4_096  # the most events, as in client-go

_EventKey = tuple[str, str, str, str]  # uid of the pod, type, reason, message


class EventRecorder:
    """Records events at an API server."""

    def __init__(self, client: Client, node_name: str) -> None:
        """`client` is closed by the caller."""
        self._events = client.raw("v1", "events", namespaced=True)
        self._source = {"component": "kubelet", "host": node_name}
        self._recorded: dict[_EventKey, dict[str, Any]] = {}  # the latest last

    def forget(self) -> None:
        """Forget all events: another kubelet starts."""
        self._recorded.clear()

    async def record(self, pod: ObjectMeta, type_: str, reason: str, message: str, at: str) -> None:
        """Record an event about a pod; `at` is a time as the API writes it. Raises `ClientError`."""
        key = (pod.uid, type_, reason, message)
        event = pod_event(pod, reason, message, type_=type_, source=self._source, at=at)
        before = self._recorded.pop(key, None)
        if before is None:
            await asyncio.to_thread(self._events.create, event)
        else:
            event = before | {"count": before["count"] + 1, "lastTimestamp": at}
            await self._count(event)
        self._recorded[key] = event
        if len(self._recorded) > _REMEMBERED:
            del self._recorded[next(iter(self._recorded))]

    async def _count(self, event: dict[str, Any]) -> None:
        """Write the count of an event; create it again if the server no longer has it."""
        meta = event["metadata"]
        change = {key: event[key] for key in ("count", "lastTimestamp")}
        try:
            await asyncio.to_thread(self._events.patch, meta["name"], change, meta["namespace"])
        except Refused as refusal:
            if not refusal.is_missing:
                raise
            await asyncio.to_thread(self._events.create, event)
