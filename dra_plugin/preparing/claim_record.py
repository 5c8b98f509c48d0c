"""What the leases of a claim store besides the devices: the answer, and all that is needed to repeat it.

Every lease of a claim has the same bytes; the ledger stores equal records once. The description of the devices for the
runtime is not stored: it is derived from where they are now (edits.py).
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
    """A device that a claim got, under the `name` that slices give it, as it was then, with its settings.

    `partition` names the part of the device; empty for a whole device. `consumed` are amounts of the device's
    capacities, `facts` the attributes that its variables name, as text. An administrator's access is independent of the
    device's holder, and never changes the device. `interface` is the interface that moves into the pod; with
    `vhost_net` containers also get these nodes. `binding` is the driver that the device has for the claim.
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
    """What a claim has of a device: it `takes` quantities of what the device `has`; `maximum` holders, 0: no limit."""

    has: Mapping[str, str]
    takes: Mapping[str, str]
    maximum: int = 0


class Record(Struct, frozen=True, kw_only=True, tag_field="version", tag="2"):
    """A prepared claim.

    `pod_claim` is the pod's name for a claim from a template. `results` are the allocation results that it answers:
    request, device, share id and whether it is an administrator's access. `allocated_at` distinguishes two allocations
    of one claim. `shared` is what the claim has of devices that others can have a part of, by device id. `status` are
    the entries of the claim's status.devices.
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

    def is_for(self, claim: v1.ResourceClaim, results: Sequence[v1.DeviceRequestAllocationResult]) -> bool:
        """Return whether this answers the claim's current allocation: a claim can be allocated again unnoticed."""
        at = allocated_at(claim)
        return self.results == identity(results) and (not at or not self.allocated_at or at == self.allocated_at)


def identity(results: Sequence[v1.DeviceRequestAllocationResult]) -> tuple[tuple[str, str, str, bool], ...]:
    """Return what identifies the results of one allocation."""
    return tuple((x.request, x.device, x.share_id or "", bool(x.admin_access)) for x in results)


def allocated_at(claim: v1.ResourceClaim) -> str:
    """Return when the claim was allocated; empty if the server does not report it."""
    allocation = claim.status.allocation
    moment = allocation.allocation_timestamp if allocation else None
    return format_time(moment) if moment else ""


def record_of(lease: Lease) -> Record | None:
    """Return the record in a lease; None if this version of nodeplug cannot read it."""
    return _decode(lease.record)


def encode(record: Record) -> bytes:
    """Return the bytes that the leases store; equal records have equal bytes."""
    return msgspec.json.encode(record)


@lru_cache(maxsize=256)
def _decode(record: bytes) -> Record | None:
    try:
        return msgspec.json.decode(record, type=Record)
    except (msgspec.MsgspecError, UnicodeError):
        return None
