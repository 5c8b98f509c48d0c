"""Device health for the kubelet: DRAResourceHealth, v1 and v1alpha1, which are the same on the wire.

A stream sends all devices at its beginning, after every change, and within the lease if nothing changes. A report is
built when it is sent, so a slow reader gets the newest state and no queue grows. Source: DRA specification, sections
1.4 and 2.9; observations 74-76.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from google.protobuf.message import Message
from msgspec import Struct

from grpcunix import Context
from kubeletapi.dra_health.v1 import api_pb2 as api

REPORT_TIMEOUT = 30  # seconds for which a report is valid
RESEND_INTERVAL = 10.0  # seconds after which an unchanged report is sent again
MAX_MESSAGE = 1024  # characters; the kubelet cuts longer ones


class DeviceHealth(Struct, frozen=True):
    """Health of one published device; `healthy` is None if it is unknown."""

    pool: str
    device: str
    healthy: bool | None = True
    message: str = ""


class HealthPublisher:
    """The current health of all published devices, and the streams that send it.

    Nothing is sent before the first `publish`. Publishing the same list again wakes no stream.
    """

    def __init__(self, clock: Callable[[], float] = time.time, resend: float = RESEND_INTERVAL) -> None:
        """Start without devices. `clock` returns seconds since 1970, `resend` is in seconds."""
        self._clock = clock
        self._resend = resend
        self._devices: tuple[DeviceHealth, ...] | None = None
        self._streams: set[asyncio.Event] = set()
        self._closed = False
        self._ended: Callable[[], object] = lambda: None

    def observe_ends(self, ended: Callable[[], object]) -> None:
        """Call `ended` whenever a stream ends that was not closed here."""
        self._ended = ended

    @property
    def streams(self) -> int:
        """Return how many streams are open."""
        return len(self._streams)

    def publish(self, devices: Sequence[DeviceHealth]) -> None:
        """Store the complete list, in any order; open streams send it if it differs from what they sent last."""
        ordered = tuple(sorted(devices, key=lambda health: (health.pool, health.device)))
        if ordered != self._devices:
            self._devices = ordered
            self._wake()

    def close(self) -> None:
        """End all streams and every later one, without an error."""
        self._closed = True
        self._wake()

    async def node_watch_resources(
        self, request: api.NodeWatchResourcesRequest, context: Context
    ) -> AsyncIterator[Message]:
        """Send all devices at once, after every change, and within the lease."""
        del request, context
        wake = asyncio.Event()
        self._streams.add(wake)
        sent: tuple[DeviceHealth, ...] | None = None
        try:
            while not self._closed:
                if self._devices is not None and self._devices != sent:
                    sent = self._devices
                    yield self._report(sent)
                elif not await self._woken(wake):
                    sent = None
        finally:
            self._streams.discard(wake)
            if not self._closed:
                self._ended()

    async def _woken(self, wake: asyncio.Event) -> bool:
        """Wait for a change; return whether one came before the last report must be sent again."""
        try:
            async with asyncio.timeout(self._resend):
                await wake.wait()
        except TimeoutError:
            return False
        wake.clear()
        return True

    def _wake(self) -> None:
        for wake in self._streams:
            wake.set()

    def _report(self, devices: Sequence[DeviceHealth]) -> Message:
        now = int(self._clock())
        return api.NodeWatchResourcesResponse(devices=[_encode(device, now) for device in devices])


def _encode(health: DeviceHealth, now: int) -> api.DeviceHealth:
    status = {None: api.UNKNOWN, True: api.HEALTHY, False: api.UNHEALTHY}[health.healthy]
    message = health.message
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 3] + "..."
    return api.DeviceHealth(
        device=api.DeviceIdentifier(pool_name=health.pool, device_name=health.device),
        health=status,
        last_updated_time=now,
        health_check_timeout_seconds=REPORT_TIMEOUT,
        message=message,
    )
