"""Events about pods, as a kubelet records them: what it says of a pod again is counted, and no event of its own.

Source: client-go's event correlator. What that does against floods of events is not done here.
"""

import asyncio
from typing import Any

from resourceapi.client import Refused
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta
from resourceapi.objects.events import pod_event

_REMEMBERED = 4_096  # events, as many as client-go's

_Said = tuple[str, str, str, str]  # uid of the pod, type, reason, message


class EventRecorder:
    """Records events at an API server."""

    def __init__(self, client: Client, node_name: str) -> None:
        """`client` stays the caller's to close."""
        self._events = client.raw("v1", "events", namespaced=True)
        self._source = {"component": "kubelet", "host": node_name}
        self._recorded: dict[_Said, dict[str, Any]] = {}  # the latest last

    def forget(self) -> None:
        """Another kubelet starts, and has said nothing yet."""
        self._recorded.clear()

    async def record(self, pod: ObjectMeta, type_: str, reason: str, message: str, at: str) -> None:
        """Say something of a pod; `at` is a time as the API writes it. Raises `ClientError`."""
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
        """Write how often something was said; again, if the server has forgotten the event."""
        meta = event["metadata"]
        change = {key: event[key] for key in ("count", "lastTimestamp")}
        try:
            await asyncio.to_thread(self._events.patch, meta["name"], change, meta["namespace"])
        except Refused as refusal:
            if not refusal.is_missing:
                raise
            await asyncio.to_thread(self._events.create, event)
