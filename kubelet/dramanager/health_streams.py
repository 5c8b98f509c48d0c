"""The streams on which drivers report the health of their devices: one for each instance of a plugin.

Up to 1.36 the kubelet calls v1alpha1 on every plugin, whatever it announced, and retries every 5 s without end. Since
1.37 it calls the newest version that the plugin announced, and gives up if the plugin answers that it is unimplemented.
Source: DRA specification, sections 1.4 and 4.10; corrections 20-22; changes-1.37, section 2.1.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from grpcunix import Client, RpcError, Status
from kubelet.clock import Clock
from kubelet.dramanager.health_cache import HEALTHY, UNHEALTHY, UNKNOWN, DeviceHealth
from kubelet.dramanager.plugins import DRAPlugin
from kubelet.release import RESOURCE_HEALTH_STATUS, Release
from kubeletapi.dra_health.v1 import api_pb2 as v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as v1alpha1

RETRY_PERIOD = 5.0  # seconds
DEFAULT_TIMEOUT = 30  # seconds
MAX_MESSAGE = 1024  # bytes

_SERVICES = {"v1.DRAResourceHealth": v1, "v1alpha1.DRAResourceHealth": v1alpha1}  # the preferred first
_HEALTH_NAMES = {v1.HEALTHY: HEALTHY, v1.UNHEALTHY: UNHEALTHY}

log = logging.getLogger(__name__)


def choose_health_service(release: Release, versions: Sequence[str]) -> str | None:
    """Return the service that a kubelet of `release` calls on a plugin that announced `versions`; None for none."""
    if not release.has(RESOURCE_HEALTH_STATUS):
        return None
    if not release.calls_announced_health:
        return "v1alpha1.DRAResourceHealth"
    return next((service for service in _SERVICES if service in versions), None)


class HealthStreams:
    """Keeps the health streams of all registered instances open."""

    def __init__(
        self,
        release: Release,
        clock: Clock,
        on_report: Callable[[str, list[DeviceHealth]], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_report` is called with a driver and its reports, `on_end` with the driver whose open stream ended."""
        self._release = release
        self._clock = clock
        self._on_report = on_report
        self._on_end = on_end
        self._streams: dict[DRAPlugin, asyncio.Task[None]] = {}

    def open(self, plugin: DRAPlugin) -> None:
        """Open the stream of an instance that was registered."""
        service = choose_health_service(self._release, plugin.versions)
        if service is not None:
            watching = self._watch(plugin, _SERVICES[service])
            self._streams[plugin] = asyncio.create_task(watching, name=f"health {plugin.endpoint}")

    async def close(self, plugin: DRAPlugin) -> None:
        """Close the stream of an instance that was deregistered."""
        task = self._streams.pop(plugin, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        """End all streams."""
        for plugin in list(self._streams):
            await self.close(plugin)

    async def _watch(self, plugin: DRAPlugin, api: Any) -> None:
        service = api.DESCRIPTOR.services_by_name["DRAResourceHealth"]
        is_given_up = False
        while not is_given_up:
            connections = plugin.connections - plugin.is_connected
            is_open = True
            try:
                stream = Client(plugin.channel, service).stream("NodeWatchResources", api.NodeWatchResourcesRequest())
                async for response in stream:
                    self._on_report(plugin.driver, parse_reports(response))
                log.info("driver %s ended its health stream", plugin.driver)
            except RpcError as error:
                log.info("health stream of driver %s: %s", plugin.driver, error)
                is_open = error.code is not Status.UNAVAILABLE or plugin.connections > connections
                is_given_up = error.code is Status.UNIMPLEMENTED and self._release.calls_announced_health
            except asyncio.CancelledError:  # the instance was deregistered
                is_open = plugin.connections > connections
                raise
            finally:
                if is_open:  # a stream that never opened must not clear the reports of another instance
                    self._on_end(plugin.driver)
            if not is_given_up:
                await self._clock.sleep(RETRY_PERIOD)


def parse_reports(response: Any) -> list[DeviceHealth]:
    """Return the reports of a message; an entry without a device is about the device with empty names."""
    return [
        DeviceHealth(
            each.device.pool_name,
            each.device.device_name,
            _HEALTH_NAMES.get(each.health, UNKNOWN),
            _timeout(each),
            truncate_message(each.message),
        )
        for each in response.devices
    ]


def truncate_message(message: str) -> str:
    """Return the message, truncated if it is too long; a partial character becomes a replacement character."""
    encoded = message.encode()
    if len(encoded) <= MAX_MESSAGE:
        return message
    return encoded[: MAX_MESSAGE - 3].decode(errors="replace") + "..."


def _timeout(each: Any) -> int:
    seconds = int(each.health_check_timeout_seconds)
    if seconds < 0:
        log.warning(
            "device %s/%s: health_check_timeout_seconds is %d; %d s are taken",
            each.device.pool_name,
            each.device.device_name,
            seconds,
            DEFAULT_TIMEOUT,
        )
    return seconds if seconds > 0 else DEFAULT_TIMEOUT
