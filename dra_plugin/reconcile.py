"""Which prepared claims are over, although nobody said so: what a lost or forced deletion leaves is never unprepared.

A claim is over when the API server says that it is gone, replaced or not allocated any more, and the kubelet names its
devices for no pod: a pod that was deleted by force may still run. While one of them does not answer, nothing is over.
Source: DRA specification 1.7, 1.8.
"""

import asyncio
from collections.abc import Sequence, Set
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeAlias

import grpc.aio
from msgspec import Struct

from dra_plugin.driver import ClaimRef
from dra_plugin.errors import DraPluginError
from dra_plugin.record import Record
from grpcunix import Client, connect
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.client import AnyVersion, ClientError, Refused
from resourceapi.objects import DecodeError, v1

TIMEOUT = 5.0  # seconds for the kubelet's answer
Named: TypeAlias = tuple[str, str, str, str, str]  # namespace and name of a claim, pool, device, share id
_SERVICE = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]


class NotKnown(DraPluginError):
    """Nobody can say now which claims are over; the words say who does not answer."""


class Found(Struct, frozen=True):
    """What a look at prepared claims found: those that are over, and those whose status.devices has nothing of ours."""

    over: tuple[ClaimRef, ...] = ()
    untold: tuple[Record, ...] = ()


async def look(
    driver: str, prepared: Sequence[Record], claims: AnyVersion[v1.ResourceClaim], threads: Executor, socket: Path
) -> Found:
    """Look at the `prepared` claims. `claims` are asked in `threads`, `socket` is pod-resources'. Raises `NotKnown`."""
    unwanted: list[Record] = []
    untold: list[Record] = []
    for record in prepared:  # one by one: who gives us up need not wait for many
        claim = await asyncio.get_running_loop().run_in_executor(threads, _wanted, record.claim, claims)
        if claim is None:
            unwanted.append(record)
        elif record.status and all(status.driver != driver for status in claim.status.devices):
            untold.append(record)
    named = await _named(driver, socket) if unwanted else frozenset()
    return Found(tuple(x.claim for x in unwanted if named.isdisjoint(_names(x))), tuple(untold))


def named_devices(listed: podresources.ListPodResourcesResponse, driver: str) -> Set[Named]:
    """Return the devices of `driver` that pods have, by the claims that they have them from."""
    return {
        (claim.claim_namespace, claim.claim_name, device.pool_name, device.device_name, device.share_id)
        for pod in listed.pod_resources
        for container in pod.containers
        for claim in container.dynamic_resources
        for device in claim.claim_resources
        if device.driver_name == driver
    }


async def named_claims(driver: str, socket: Path) -> Set[tuple[str, str]]:
    """Return namespace and name of the claims from which pods have devices of `driver`. Raises `NotKnown`.

    Where no kubelet has ever served pod-resources, there are none.
    """
    if not socket.exists():
        return frozenset()
    return {(namespace, name) for namespace, name, *_ in await _named(driver, socket)}


def _names(record: Record) -> Set[Named]:
    claim = record.claim
    return {(claim.namespace, claim.name, x.pool, x.device, x.share_id or "") for x in record.devices}


def _wanted(ref: ClaimRef, claims: AnyVersion[v1.ResourceClaim]) -> v1.ResourceClaim | None:
    """Return a claim if the API server still wants it prepared. Blocks. Raises `NotKnown`."""
    try:
        claim = claims.get(ref.name, ref.namespace)
    except Refused as error:
        if error.is_missing:
            return None
        raise NotKnown(f"API server: {error}") from error
    except (ClientError, DecodeError) as error:
        raise NotKnown(f"API server: {error}") from error
    return claim if claim.metadata.uid == ref.uid and claim.status.allocation is not None else None


async def _named(driver: str, socket: Path) -> Set[Named]:
    if not socket.exists():
        raise NotKnown(f"no pod-resources socket at {socket}")
    try:
        async with connect(socket) as channel:
            request = podresources.ListPodResourcesRequest()
            listed: podresources.ListPodResourcesResponse = await Client(channel, _SERVICE).call(
                "List", request, timeout=TIMEOUT
            )
    except grpc.aio.AioRpcError as error:
        raise NotKnown(f"pod-resources: {error.details()}") from error
    return named_devices(listed, driver)
