"""What the leases of a claim keep beside the devices: the answer, and all that is needed to give it again.

Every lease of a claim has the same bytes. They are written once, for the ledger stores equal answers once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

import cdi
from checkpoint import Lease
from dra_plugin.driver import ClaimRef, PreparedDevice
from dra_plugin.metadata_files import RequestMetadata
from dra_plugin.sharing import Holding
from hostdevices import Device
from hostdevices.verify import Fingerprint
from resourceapi.objects import format_time, v1


class Seen(Struct, frozen=True):
    """A device as it was when it was prepared: what it is and where its nodes are, without attributes and health."""

    device: Device
    fingerprint: Fingerprint


class Record(Struct, frozen=True, kw_only=True, tag_field="version", tag="1"):
    """A prepared claim.

    `results` are the allocation's results that it answers: request, device, share id and whether the access is an
    administrator's. `allocated_at` tells apart two allocations of one claim. `shared` is what the claim has of
    devices that others can have a part of, by their ids. `status` are the entries of the claim's status.devices.
    """

    claim: ClaimRef
    results: tuple[tuple[str, str, str, bool], ...]
    allocated_at: str
    devices: tuple[PreparedDevice, ...]
    seen: tuple[Seen, ...] = ()
    shared: Mapping[str, Holding] = {}
    spec: cdi.Spec | None = None
    metadata: tuple[RequestMetadata, ...] = ()
    status: tuple[Mapping[str, Any], ...] = ()

    def answers(self, claim: v1.ResourceClaim, results: Sequence[v1.DeviceRequestAllocationResult]) -> bool:
        """Tell whether this is about the claim's present allocation; a claim can be allocated anew without a word."""
        at = allocated_at(claim)
        return self.results == identity(results) and (not at or not self.allocated_at or at == self.allocated_at)


def identity(results: Sequence[v1.DeviceRequestAllocationResult]) -> tuple[tuple[str, str, str, bool], ...]:
    """Return what makes results those of one allocation."""
    return tuple((x.request, x.device, x.share_id or "", bool(x.admin_access)) for x in results)


def allocated_at(claim: v1.ResourceClaim) -> str:
    """Return when the claim was allocated; empty where the server does not say."""
    allocation = claim.status.allocation
    moment = allocation.allocation_timestamp if allocation else None
    return format_time(moment) if moment else ""


def record_of(lease: Lease) -> Record | None:
    """Return what a lease keeps; None where this version of ours cannot read it."""
    try:
        return msgspec.json.decode(lease.answer, type=Record)
    except msgspec.MsgspecError:
        return None


def encode(record: Record) -> bytes:
    """Return the bytes that the leases keep; the same for the same record."""
    return msgspec.json.encode(record)
