"""status.devices of a claim: that its devices are ready, what they are, and where a NIC is on the network.

Written by server-side apply, so that each driver owns its own entries and nobody's are lost; the server removes them
when the claim is deallocated. In the background: people look at it, pods do not wait for it. Source: DRA
specification 5.5.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Any

import msgspec

from dra_plugin.driver import ClaimRef
from dra_plugin.edits import Given
from resourceapi.client import AnyVersion, ClientError, Refused
from resourceapi.client.patience import pause
from resourceapi.objects import Condition, DecodeError, to_dict, v1

READY, REASON = "Ready", "Prepared"
MOST_BYTES = 10 * 1024  # of an entry's data
LATER = 0.5  # seconds; what waits for its claims comes first, and a claim that is over by then needs no status
ATTEMPTS = 8
_NOT_OURS_TO_CHANGE = (403, 404, 409, 422)  # asking again gives the same answer
log = logging.getLogger("nodeplug.dra")


def device_status(driver: str, pool: str, given: Sequence[Given], now: float) -> tuple[dict[str, Any], ...]:
    """Return the entries for a claim's devices, one for each device and share. `now` in seconds of the Unix clock."""
    moment = datetime.fromtimestamp(now, UTC)
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for each in given:
        ready = Condition(
            type=READY,
            status="True",
            last_transition_time=moment,
            reason=REASON,
            message="the device is ready for containers",
        )
        status = v1.AllocatedDeviceStatus(
            driver=driver,
            pool=pool,
            device=each.result.device,
            share_id=each.result.share_id,
            conditions=(ready,),
            data=_data(each),
            network_data=network_data(each),
        )
        found[each.result.device, each.result.share_id] = to_dict(status)
    return tuple(found.values())


def network_data(given: Given) -> v1.NetworkDeviceData | None:
    """Return how a NIC is known on the network; None for other devices."""
    device = given.offered.device
    if device.kind != "nic":
        return None
    return v1.NetworkDeviceData(interface_name=device.name, hardware_address=str(device.attributes.get("mac", "")))


class StatusWriter:
    """Writes status.devices in the background, a claim at a time."""

    def __init__(
        self,
        driver: str,
        claims: AnyVersion[v1.ResourceClaim],
        threads: Executor,
        wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Prepare. `driver` owns what is written; `claims` are asked in `threads`; `wait` lets seconds pass."""
        self._driver = driver
        self._claims = claims
        self._threads = threads
        self._wait = wait
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._tried: set[str] = set()  # uids of claims, also of those that the server did not want to know about

    def write(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        """Begin to write the entries of a claim's devices."""
        self.forget(claim.uid)
        self._tried.add(claim.uid)
        task = self._writing[claim.uid] = asyncio.ensure_future(self._write(claim, devices))
        task.add_done_callback(lambda done: self._ended(claim.uid, done))

    def write_missing(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        """Begin to write what the server does not have, if this is the first time that we try: a crash came between."""
        if claim.uid not in self._tried:
            self.write(claim, devices)

    def forget(self, uid: str) -> None:
        """Give up what is not written yet of a claim."""
        self._tried.discard(uid)
        task = self._writing.pop(uid, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Give up what is not written yet. Idempotent."""
        tasks = list(self._writing.values())
        for uid in list(self._writing):
            self.forget(uid)
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, uid: str, task: "asyncio.Task[None]") -> None:
        if self._writing.get(uid) is task:
            del self._writing[uid]

    async def _write(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        await asyncio.sleep(LATER)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._apply, claim, devices)
                return
            except (ClientError, DecodeError) as error:
                last = isinstance(error, Refused) and error.code in _NOT_OURS_TO_CHANGE
                if last or attempt == ATTEMPTS:
                    log.warning("status.devices was not written: %s", error, extra={"claim": str(claim)})
                    return
            await self._wait(pause(attempt))

    def _apply(self, claim: ClaimRef, devices: Sequence[Mapping[str, Any]]) -> None:
        value = {
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},  # no later one
            "status": {"devices": [dict(each) for each in devices]},
        }
        self._claims.apply(value, self._driver, force=True, subresource="status")


def _data(given: Given) -> dict[str, Any]:
    offered = given.offered
    data: dict[str, Any] = {
        "resource": offered.resource.name,
        "kind": offered.device.kind,
        "id": offered.device.id,
        "name": offered.device.name,
    }
    if offered.partition:
        data["partition"] = offered.partition
    full = data | {"nodes": [node.path for node in offered.device.devnodes]}
    return full if len(msgspec.json.encode(full)) <= MOST_BYTES else data
