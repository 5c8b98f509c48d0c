"""Release: there is no Deallocate call, so leases end when the kubelet's pod-resources API no longer names them.

Only devices of running pods are listed there. An answer of ours that the kubelet has not recorded yet is not in it
either; `Ledger.reconcile` leaves leases alone that are younger than the look.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

import grpc.aio

from checkpoint import Ledger, LedgerUnavailable
from deviceplugin.units import API
from grpcunix import Client, connect
from kubeletapi.podresources.v1 import api_pb2 as podresources

INTERVAL = 30.0  # seconds between looks while something is leased
TIMEOUT = 5.0  # seconds
log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]


class Releaser:
    """Ends the leases of pods that are gone."""

    def __init__(self, ledger: Ledger, socket: Path, resources: Collection[str], released: Callable[[], None]) -> None:
        """Prepare. `socket` is pod-resources' own; `released` is called after leases of `resources` ended."""
        self._ledger = ledger
        self._socket = socket
        self._resources = resources
        self._released = released
        self._missing: frozenset[tuple[str, str]] = frozenset()
        self._leased = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._periodic: asyncio.Task[None] | None = None
        self.last_error = ""

    def start(self) -> None:
        """Look now, and every `INTERVAL` while there are leases."""
        self._periodic = asyncio.ensure_future(self._repeat())

    async def stop(self) -> None:
        """Stop looking. Idempotent."""
        for task in (self._periodic, self._running):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def leased(self) -> None:
        """Take note that there is something to release one day: without leases nobody wakes up to look."""
        self._leased.set()

    async def reconcile(self) -> None:
        """Look once; callers that come while a look is under way share the next one's result."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._look())
        await asyncio.shield(self._running)

    async def _repeat(self) -> None:
        while True:
            if any(lease.api == API for lease in self._ledger.leases()):
                await self.reconcile()
                await asyncio.sleep(INTERVAL)
            else:
                self._leased.clear()
                await self._leased.wait()
                await asyncio.sleep(INTERVAL)

    async def _look(self) -> None:
        began = time.time()
        if not self._socket.exists():
            self._failed(
                f"no pod-resources socket at {self._socket}: leases end only when the kubelet gives the devices anew"
            )
            return
        try:
            async with connect(self._socket) as channel:
                request = podresources.ListPodResourcesRequest()
                listed: podresources.ListPodResourcesResponse = await Client(channel, _SERVICE).call(
                    "List", request, timeout=TIMEOUT
                )
            done = await self._ledger.reconcile(API, held_units(listed, self._resources), began)
        except grpc.aio.AioRpcError as error:
            self._failed(f"pod-resources: {error.details()}")
            return
        except LedgerUnavailable as error:
            self._failed(str(error))
            return
        self.last_error = ""
        for lease in done.ended:
            log.info(
                "released, its pod is gone",
                extra={"resource": lease.resource, "device": lease.unit, "holder": lease.holder},
            )
        for resource, unit in sorted(done.missing - self._missing):
            log.warning(
                "the kubelet holds a device without a lease of ours: given by somebody else, or the state was lost",
                extra={"resource": resource, "device": unit},
            )
        self._missing = done.missing
        if done.ended:
            self._released()

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            log.warning("%s", reason)
        self.last_error = reason


def held_units(listed: podresources.ListPodResourcesResponse, resources: Collection[str]) -> dict[tuple[str, str], str]:
    """Return who holds what: (resource, unit) -> `pod/<namespace>/<name>/<container>`."""
    return {
        (devices.resource_name, unit): f"pod/{pod.namespace}/{pod.name}/{container.name}"
        for pod in listed.pod_resources
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name in resources
        for unit in devices.device_ids
    }
