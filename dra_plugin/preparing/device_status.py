"""status.devices of a claim: that its devices are ready, what they are, and a NIC's network data.

Written by server-side apply, so that each driver owns only its own entries; the server removes them when the claim is
deallocated. Written in the background, because pods do not wait for it. Source: DRA specification 5.5.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from dra_plugin.driver import ClaimRef
from dra_plugin.preparing.edits import ClaimDevice
from dra_plugin.preparing.interface_record import Interface
from hostdevices import Device
from resourceapi.client import AsyncAnyVersion, ClientError, Refused
from resourceapi.client.backoff import delay
from resourceapi.objects import Condition, DecodeError, to_dict, v1

CONDITION_TYPE, CONDITION_REASON = "Ready", "Prepared"
MAX_DATA_BYTES = 10 * 1024  # of an entry's data
WRITE_DELAY = 0.5  # seconds: preparing claims comes first, and a claim that has ended by then needs no status
MAX_ATTEMPTS = 8
_MAX_CONCURRENT = 2  # requests: preparing claims has priority
_PERMANENT_ERRORS = (403, 404, 409, 422)  # repeating the request gives the same answer
log = logging.getLogger("nodeplug.dra")


def device_status(driver: str, pool: str, devices: Sequence[ClaimDevice], now: float) -> tuple[dict[str, Any], ...]:
    """Return the entries for a claim's devices, one for each device and share.

    `now` is in seconds of the Unix clock.
    """
    moment = datetime.fromtimestamp(now, UTC)
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for each in devices:
        allocated = each.allocated
        ready = Condition(
            type=CONDITION_TYPE,
            status="True",
            last_transition_time=moment,
            reason=CONDITION_REASON,
            message="the device is ready for containers",
        )
        status = v1.AllocatedDeviceStatus(
            driver=driver,
            pool=pool,
            device=allocated.name,
            share_id=allocated.share_id,
            conditions=(ready,),
            data=_data(each),
            network_data=network_data(each.device, allocated.interface),
        )
        found[allocated.name, allocated.share_id] = to_dict(status)
    return tuple(found.values())


def network_data(device: Device | None, interface: Interface | None = None) -> v1.NetworkDeviceData | None:
    """Return a NIC's network data, as the pod sees it if the interface moves there; None for other devices."""
    if interface is not None:
        inside = interface.inside
        return v1.NetworkDeviceData(interface_name=inside.name, ips=inside.addresses, hardware_address=inside.mac)
    if device is None or device.kind != "nic":
        return None
    return v1.NetworkDeviceData(interface_name=device.name, hardware_address=str(device.attributes.get("mac", "")))


class StatusWriter:
    """Writes status.devices in the background while `run` runs."""

    def __init__(
        self,
        driver: str,
        claims: AsyncAnyVersion[v1.ResourceClaim],
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        The field manager is `driver`, and claims are written through `claims`; `wait` waits some seconds.
        """
        self._driver = driver
        self._claims = claims
        self._wait = wait
        self._queued: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}  # queued before `run`
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(self) -> None:
        """Write queued entries. Entries not written at the cancellation are written by the next instance."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for uid, work in self._queued.items():
                    self._start(uid, work)
                self._queued.clear()
                await asyncio.Event().wait()
        finally:
            self._group = None

    def write(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        """Start writing the entries of a claim's devices."""
        self._enqueue(claim, partial(self._write, claim, devices))

    def write_missing(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        """Start writing them if the server has no entry of this driver: a crash prevented the write."""
        if devices:
            self._enqueue(claim, partial(self._write_missing, claim, devices))

    def forget(self, uid: str) -> None:
        """Cancel writing the entries of a claim."""
        self._queued.pop(uid, None)
        task = self._writing.pop(uid, None)
        if task is not None:
            task.cancel()

    def _enqueue(self, claim: ClaimRef, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.forget(claim.uid)
        if self._group is None:
            self._queued[claim.uid] = work
        else:
            self._start(claim.uid, work)

    def _start(self, uid: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._group is not None
        task = self._writing[uid] = self._group.create_task(work(), name=f"status of claim {uid}")
        task.add_done_callback(lambda done: self._on_done(uid, done))

    def _on_done(self, uid: str, task: "asyncio.Task[None]") -> None:
        if self._writing.get(uid) is task:
            del self._writing[uid]

    async def _write_missing(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        try:
            async with self._slots:
                found = await self._claims.get(claim.name, claim.namespace)
        except (ClientError, DecodeError) as error:
            log.debug("status.devices is not known: %s", error, extra={"claim": str(claim)})
            return
        if found.metadata.uid == claim.uid and all(status.driver != self._driver for status in found.status.devices):
            await self._write(claim, devices)

    async def _write(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        await self._wait(WRITE_DELAY)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                async with self._slots:
                    await self._apply(claim, devices)
                return
            except (ClientError, DecodeError) as error:
                is_permanent = isinstance(error, Refused) and error.code in _PERMANENT_ERRORS
                if is_permanent or attempt == MAX_ATTEMPTS:
                    log.warning("status.devices was not written: %s", error, extra={"claim": str(claim)})
                    return
            await self._wait(delay(attempt))

    async def _apply(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        value = {
            # uid: never a later claim of the same name
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": [dict(each) for each in devices]},
        }
        await self._claims.apply(value, self._driver, force=True, subresource="status")


def _data(each: ClaimDevice) -> dict[str, Any]:
    device, allocated = each.device or each.allocated.seen.device, each.allocated
    data: dict[str, Any] = {
        "resource": allocated.resource,
        "kind": device.kind,
        "id": device.id,
        "name": device.name,
    }
    if allocated.partition:
        data["partition"] = allocated.partition
    full = data | {"nodes": [node.path for node in device.devnodes]}
    return full if len(msgspec.json.encode(full)) <= MAX_DATA_BYTES else data
