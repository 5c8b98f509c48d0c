"""Streams on which drivers report the health of their devices.

1.36 opens v1alpha1 on every registered plugin, whatever that says it serves, and tries again every 5 s for ever. From
1.37 on it is one stream per driver, with the newest instance, of the newest version that it announced, and a plugin
that has no such service is left alone.
Source: DRA specification, sections 1.4 and 4.10; corrections 20-22.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import grpc
import grpc.aio

from grpcunix import Client
from kubelet.clock import Clock
from kubelet.dramanager.health_cache import HEALTHY, UNHEALTHY, UNKNOWN, DeviceHealth
from kubelet.dramanager.plugins import DRAPlugin
from kubeletapi.dra_health.v1 import api_pb2 as v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as v1alpha1

Release: TypeAlias = Literal["1.36", "1.37"]

RETRY = 5.0  # seconds
DEFAULT_TIMEOUT = 30  # seconds
LONGEST_MESSAGE = 1024  # characters

_SERVICES = {"v1.DRAResourceHealth": v1, "v1alpha1.DRAResourceHealth": v1alpha1}  # the preferred first
_WORDS = {v1.HEALTHY: HEALTHY, v1.UNHEALTHY: UNHEALTHY}

log = logging.getLogger(__name__)


def choose_health_service(release: Release, versions: Sequence[str]) -> str | None:
    """The service that a kubelet of `release` calls on a plugin that announced `versions`; None for none."""
    if release == "1.36":
        return "v1alpha1.DRAResourceHealth"
    return next((service for service in _SERVICES if service in versions), None)


class HealthStreams:
    """Keeps the right streams open."""

    def __init__(
        self,
        release: Release,
        clock: Clock,
        on_report: Callable[[str, list[DeviceHealth]], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_report` is told a driver's reports, `on_end` the driver whose stream ended."""
        self._release = release
        self._clock = clock
        self._on_report = on_report
        self._on_end = on_end
        self._streams: dict[DRAPlugin, asyncio.Task[None]] = {}

    async def follow(self, instances: Sequence[DRAPlugin], gone: DRAPlugin | None = None) -> None:
        """A driver's instances are these now, the newest last; `gone` is the one that left."""
        wanted = instances if self._release == "1.36" else instances[-1:]
        superseded = [gone] if gone is not None else []
        superseded += [plugin for plugin in instances if plugin not in wanted]
        for plugin in superseded:
            await self._end(plugin)
        for plugin in wanted:
            service = choose_health_service(self._release, plugin.versions)
            if service is not None and plugin not in self._streams:
                name = f"health {plugin.endpoint}"
                self._streams[plugin] = asyncio.create_task(self._watch(plugin, _SERVICES[service]), name=name)

    async def stop(self) -> None:
        """End all streams."""
        for plugin in list(self._streams):
            await self._end(plugin)

    async def _end(self, plugin: DRAPlugin) -> None:
        task = self._streams.pop(plugin, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._on_end(plugin.driver)

    async def _watch(self, plugin: DRAPlugin, api: Any) -> None:
        service = api.DESCRIPTOR.services_by_name["DRAResourceHealth"]
        while True:
            try:
                stream = Client(plugin.channel, service).stream("NodeWatchResources", api.NodeWatchResourcesRequest())
                async for response in stream:
                    if response is None:  # the library's way to say that the bytes are not this message
                        break
                    self._on_report(plugin.driver, reports(response))
                log.info("driver %s ended its health stream", plugin.driver)
            except grpc.aio.AioRpcError as error:
                log.info("health stream of driver %s: %s", plugin.driver, error.code().name)
                if error.code() is grpc.StatusCode.UNIMPLEMENTED and self._release != "1.36":
                    return
            self._on_end(plugin.driver)
            await self._clock.sleep(RETRY)


def reports(response: Any) -> list[DeviceHealth]:
    """What a message says of each device that it names."""
    return [
        DeviceHealth(
            each.device.pool_name,
            each.device.device_name,
            _WORDS.get(each.health, UNKNOWN),
            _timeout(each),
            shortened(each.message),
        )
        for each in response.devices
        if each.HasField("device")
    ]


def shortened(message: str) -> str:
    """The message, cut where it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."


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
