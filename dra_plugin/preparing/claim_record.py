"""The record in the leases of a claim: the answer, and everything that is needed to repeat it.

Every lease of a claim has the same bytes, which the ledger stores once. The record does not contain how the devices are
described to the runtime, which follows from where they are now (edits.py).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from checkpoint import Lease
from dra_plugin.driver import ClaimRef, PreparedDevice
from dra_plugin.preparing.binding_record import Binding
from dra_plugin.preparing.device_config import Settings
from dra_plugin.preparing.interface_record import Interface
from dra_plugin.preparing.metadata_files import RequestMetadata
from hostdevices.presence import Seen
from resourceapi.objects import format_time, v1


class AllocatedDevice(Struct, frozen=True):
    """A device that a claim got, under the `name` that slices give it, as it was then, and what holds for it.

    `partition` names the part of it that this is; empty for the whole. `consumed` are amounts of the device's
    capacities, `facts` what its variables name of it, as text. An administrator's access is beside whoever has
    the device, and never changes it. `interface` is what of it moves into the pod; with
    `vhost_net` containers get these nodes, too. `binding` is which driver it has for the claim.
    """

    request: str
    name: str
    resource: str
    seen: Seen
    permissions: str
    settings: Settings
    partition: str = ""
    share_id: str | None = None
    is_admin: bool = False
    consumed: Mapping[str, str] = {}
    facts: Mapping[str, str] = {}
    interface: Interface | None = None
    vhost_net: bool = False
    binding: Binding | None = None


class Holding(Struct, frozen=True):
    """What a claim has of a device: it `takes` quantities of what the device `has`; `maximum` holders, 0 for any."""

    has: Mapping[str, str]
    takes: Mapping[str, str]
    maximum: int = 0


class Record(Struct, frozen=True, kw_only=True, tag_field="version", tag="2"):
    """A prepared claim.

    `pod_claim` is the name that its pod has for it, if it comes from a template. `results` are the allocation's results
    that it answers: request, device, share id and whether the access is an administrator's. `allocated_at` tells apart
    two allocations of one claim. `shared` is what the claim has of devices that others can have a part of, by their
    ids. `status` are the entries of the claim's status.devices.
    """

    claim: ClaimRef
    pod_claim: str = ""
    results: tuple[tuple[str, str, str, bool], ...]
    allocated_at: str
    devices: tuple[PreparedDevice, ...]
    allocated: tuple[AllocatedDevice, ...] = ()
    shared: Mapping[str, Holding] = {}
    metadata: tuple[RequestMetadata, ...] = ()
    status: tuple[Mapping[str, Any], ...] = ()

    def answers(self, claim: v1.ResourceClaim, results: Sequence[v1.DeviceRequestAllocationResult]) -> bool:
        """Tell whether this is about the claim's present allocation; a claim can be allocated again without a word."""
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
    return _decode(lease.record)


def encode(record: Record) -> bytes:
    """Return the bytes that the leases keep; the same for the same record."""
    return msgspec.json.encode(record)


@lru_cache(maxsize=256)
def _decode(record: bytes) -> Record | None:
    try:
        return msgspec.json.decode(record, type=Record)
    except (msgspec.MsgspecError, UnicodeError):
        return None
