"""Release: there is no Deallocate call, so leases end when the kubelet's pod-resources API no longer names them.

Only devices of running pods are listed there. An answer of ours that the kubelet has not recorded yet is not in it
either; `Ledger.reconcile` leaves leases alone that are younger than the look.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeAlias

import grpc.aio

from checkpoint import Lease, LeaseRefused, Ledger, LedgerUnavailable
from deviceplugin.lifecycle import Timings
from deviceplugin.units import API
from grpcunix import Client, connect
from kubeletapi.podresources.v1 import api_pb2 as podresources

INTERVAL = 30.0  # seconds between looks while something is leased
TIMEOUT = 5.0  # seconds
log = logging.getLogger("nodeplug.deviceplugin")
LeaseOf: TypeAlias = Callable[[str, str, str], Lease | None]
_SERVICE = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]


class Releaser:
    """Ends the leases of pods that are gone."""

    def __init__(
        self,
        ledger: Ledger,
        socket: Path,
        resources: Collection[str],
        released: Callable[[], None],
        lease_of: LeaseOf,
        timings: Timings,
    ) -> None:
        """Prepare. `socket` is pod-resources' own; `released` is called after leases of `resources` ended.

        `lease_of(resource, unit, holder)` makes the lease of a holder whose lease was lost; None for an unknown unit.
        """
        self._ledger = ledger
        self._socket = socket
        self._resources = resources
        self._released = released
        self._lease_of = lease_of
        self._timings = timings
        self._unadopted: frozenset[tuple[str, str]] = frozenset()
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
        """Look once. A look that is under way began before we were asked: callers wait for it and share the next."""
        if self._running is not None and not self._running.done():
            await asyncio.shield(self._running)
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._look())
        await asyncio.shield(self._running)

    async def _repeat(self) -> None:
        while True:
            await self.reconcile()
            if not any(lease.api == API for lease in self._ledger.leases()):
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
            held = held_units(listed, self._resources)
            done = await self._ledger.reconcile(API, held, began, self._timings.record)
            await self._adopt({key: held[key] for key in done.missing})
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
        if done.ended:
            self._released()

    async def _adopt(self, holders: Mapping[tuple[str, str], str]) -> None:
        """Give leases to the holders that have none, because the state was lost: nobody else must get their devices."""
        for (resource, unit), holder in sorted(holders.items()):
            extra = {"resource": resource, "device": unit, "holder": holder}
            lease = self._lease_of(resource, unit, holder)
            try:
                if lease is None:
                    raise LeaseRefused("it is not offered here any more", unit)
                await self._ledger.grant([lease], afresh=False)  # this is the fresh look
            except LeaseRefused as refusal:
                if (resource, unit) not in self._unadopted:
                    log.warning("the kubelet holds a device without a lease of ours: %s", refusal, extra=extra)
            else:
                log.warning("lease made anew: the kubelet holds the device, our record was lost", extra=extra)
        self._unadopted = frozenset(holders)

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
