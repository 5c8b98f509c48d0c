"""Eviction of pods whose device is gone, of resources that ask for it (`evictAfterSeconds`).

    scans -> leases whose device is nowhere -> gone for long enough -> the pod, by its uid -> the eviction API

The device plugin API cannot report that a device is gone while a container has it; claims have taints.

Rules:
1. Level, not edge: missing devices follow from the last scan and the present leases, so nothing is missed or repeated
   after a restart; the time starts again then.
2. A device is gone if a scan finds no part of it. A scan that could not read a class of devices is no evidence.
3. The pod must be on this node and have no deletionTimestamp. It is evicted by its uid, which the kubelet's file has:
   before that no pod is evicted, because another pod may have the name by now. A PodDisruptionBudget can prevent it;
   the eviction is then tried again.
4. No more than `BURST` pods are evicted, then one every `REFILL` seconds.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from checkpoint import Lease
from deviceplugin import container_record
from deviceplugin.units import API
from hostdevices import Inventory
from hostdevices.presence import Presence
from nodeplug.events.leases import holder_in_words
from resourceapi.client import AsyncClient, ClientError, Refused
from resourceapi.objects import DecodeError
from resources.resource import Resource
from telemetry import Telemetry

RETRY: Final = 30.0  # seconds
BURST: Final = 5
REFILL: Final = 6.0
_MIN_WAIT = 0.1
_NOT_ALLOWED = 403
_FAILURES = (ClientError, DecodeError)
log = logging.getLogger("nodeplug")


class Leases(Protocol):
    """The present leases; the ledger has them."""

    def leases(self) -> Iterable[Lease]:
        """Return all leases."""
        ...


class _MissingDevice(Struct):
    """A lease whose device is gone, and when its pod is evicted, by our clock; None after the eviction."""

    lease: Lease
    due: float | None


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(Struct, rename="camel"):
    node_name: str = ""


class _Status(Struct):
    phase: str = ""


class _Pod(Struct):
    """The fields that are read of a pod."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class Evictions:
    """Evicts while `run` runs. Belongs to the loop; `run` closes the client."""

    def __init__(
        self, client: AsyncClient, node: str, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare for the pods of `node`. `clock` returns seconds."""
        self._client = client
        self._pods = client.raw("v1", "pods", namespaced=True)
        self._node = node
        self._telemetry = telemetry
        self._clock = clock
        self._gone: dict[tuple[str, ...], _MissingDevice] = {}
        self._patience: Mapping[str, int] = {}  # seconds, by resource
        self._is_blind = False
        self._presence: Presence | None = None
        self._ledger: Leases | None = None
        self._changed = asyncio.Event()
        self._tokens, self._refilled_at = float(BURST), clock()
        self._problem = ""

    def note_scan(
        self, inventory: Inventory, presence: Presence, resources: Iterable[Resource], ledger: Leases
    ) -> None:
        """Record a scan that `presence` has applied already. `ledger` returns the leases of each moment."""
        self._patience = {x.name: x.evict_after_seconds for x in resources if x.evict_after_seconds and x.api != "dra"}
        self._is_blind = any(x.hidden_kind for x in inventory.problems)
        self._presence, self._ledger = presence, ledger
        self._changed.set()

    async def run(self) -> None:
        """Evict the pods that are due, until cancelled. What the API server refuses is tried again."""
        try:
            while True:
                self._changed.clear()
                await self.evict_due()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next()):
                        await self._changed.wait()
        finally:
            self._client.close()

    async def evict_due(self) -> None:
        """Evict the pods whose devices have been gone for long enough."""
        self._refresh()
        done: dict[str, float | None] = {}
        for key, gone in list(self._gone.items()):
            holder = gone.lease.holder
            if gone.due is None or gone.due > self._clock() or not holder:  # the kubelet names the holder later
                continue
            if holder not in done and not self._take_token():
                done[holder] = self._clock() + REFILL
            elif holder not in done and self._gone.get(key) is gone:
                done[holder] = await self._evict(gone.lease)
                self._refresh()  # the answer may have taken long: some devices can be back
            gone.due = done.get(holder, gone.due)

    def _refresh(self) -> None:
        """Compute again which leases have lost their devices. Those that had before keep their time."""
        devices_in = cache(_devices_in)  # a container's leases have one record
        found: dict[tuple[str, ...], _MissingDevice] = {}
        for lease in self._ledger.leases() if self._ledger and self._patience and not self._is_blind else ():
            if lease.api != API or lease.resource not in self._patience or not self._is_gone(lease, devices_in):
                continue
            known = self._gone.get(lease.key)
            if known is None or known.lease.holder not in ("", lease.holder):
                known = _MissingDevice(lease, self._clock() + self._patience[lease.resource])
            known.lease = lease
            found[lease.key] = known
        self._gone = found

    def _until_next(self) -> float | None:
        """Return how long there is nothing to do unless a scan arrives, in seconds; None: for ever."""
        if not self._patience:
            return None
        due = (x.due - self._clock() for x in self._gone.values() if x.due is not None)
        return min(RETRY, max(_MIN_WAIT, min(due, default=RETRY)))

    def _is_gone(self, lease: Lease, devices_in: Callable[[bytes], Set[str]]) -> bool:
        """Return whether no part of a leased device is on the host, including the devices that it consists of.

        `devices_in` returns the devices in a record (`_devices_in`).
        """
        presence = self._presence
        ids = devices_in(lease.record) & lease.exclusive or lease.exclusive
        return presence is not None and bool(ids) and not any(map(presence.has_device, ids))

    async def _evict(self, lease: Lease) -> float | None:
        """Evict the pod that has a lease. Return when to try again; None if nothing is left to do."""
        match lease.holder.split("/"):
            case ["pod", namespace, name, _]:
                pass
            case _:
                return None
        if not lease.pods:
            return self._retry_at("the kubelet's file does not say which pod of that name it is", lease)
        try:
            uid = _to_evict(await self._pods.get(name, namespace), self._node, lease)
            if uid and (self._is_blind or not self._is_gone(lease, _devices_in)):
                return self._clock()  # the next check decides
            if uid:
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": name, "namespace": namespace},
                    "deleteOptions": {"preconditions": {"uid": uid}},
                }
                await self._client.request("POST", f"{self._pods.path(namespace, name)}/eviction", body)
        except Refused as error:
            if error.is_missing:  # and the answer is not the page of a proxy that has no server now
                return None
            hint = "; the overlay `eviction` adds the right" if error.code == _NOT_ALLOWED else ""
            return self._retry_at(f"{error}{hint}", lease)  # also a conflict: the next read of the pod shows its state
        except _FAILURES as error:
            return self._retry_at(str(error), lease)
        self._problem = ""
        if uid:
            text = f"evicted {holder_in_words(lease.holder)}: its device is gone"
            log.warning("%s", text, extra={"resource": lease.resource, "device": lease.unit})
            self._telemetry.events.record(
                "evicted", text, resource=lease.resource, device=lease.unit, holder=lease.holder
            )
        return None

    def _retry_at(self, problem: str, lease: Lease) -> float:
        if problem != self._problem:
            log.warning(
                "%s, whose device is gone, is not evicted: %s; nodeplug tries again",
                holder_in_words(lease.holder),
                problem,
                extra={"is_current": lambda: self._problem == problem and lease.key in self._gone},
            )
        self._problem = problem
        return self._clock() + RETRY

    def _take_token(self) -> bool:
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._refilled_at) / REFILL)
        self._refilled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def _devices_in(record: bytes) -> Set[str]:
    """Return the ids of all devices that a container has, from the record of its leases."""
    found = container_record.decode(record)
    return frozenset(i for seen in found.devices for i in seen.device.ids) if found else frozenset()


def _to_evict(answer: Mapping[str, Any], node: str, lease: Lease) -> str:
    """Return the uid of a pod that is to be evicted; empty if it is another pod, has ended, or is being deleted.

    Raises `DecodeError`.
    """
    try:
        pod = msgspec.convert(answer, _Pod)
    except msgspec.ValidationError as error:
        raise DecodeError(f"{error}") from None
    has_ended = pod.status is not None and pod.status.phase in ("Succeeded", "Failed")
    is_affected = (
        pod.spec is not None and pod.spec.node_name == node and pod.metadata.uid in lease.pods and not has_ended
    )
    return pod.metadata.uid if is_affected and not pod.metadata.deletion_timestamp else ""
