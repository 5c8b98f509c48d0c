"""Allocate without any effect: which units the kubelet would be advised to prefer, and the answer or refusal for them.

The units that a kubelet has available are assumed to be those that are listed as healthy and have no lease; it records
a pod's units as used some seconds after their allocation.
"""

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from checkpoint import Ledger
from deviceplugin.allocate import Allocator
from deviceplugin.errors import DeviceNotReady, InvalidRequest
from deviceplugin.preferred import prefer
from deviceplugin.units import API, Units
from hostdevices.printable import printable
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


class DryRun(Struct, frozen=True):
    """The units that a container would get, how many are free, and the answer to Allocate.

    `pre_start`: the kubelet would call PreStartContainer before the container starts.
    """

    units: Units
    free: int
    response: api.ContainerAllocateResponse
    pre_start: bool


def dry_run(
    allocator: Allocator,
    ledger: Ledger,
    healthy: Mapping[str, bool],
    count: int,
    wanted: Sequence[str],
    *,
    pre_start: bool,
) -> DryRun:
    """Return what one container would get that requests `count` units, including these units or devices.

    `healthy` has the health of each listed unit. Raises `AllocationRefused`.
    """
    name = allocator.resource.name
    leased = {lease.unit: lease for lease in ledger.of_resource(name, API)}
    free = [unit for unit, is_healthy in healthy.items() if is_healthy and unit not in leased]
    free_ids = frozenset(free)
    required = [_resolve_unit(allocator, free_ids, each) for each in wanted]
    if required:
        allocator.check(required)
    for unit in required:
        if unit in leased:
            raise DeviceNotReady(f"device {unit} is leased: {leased[unit]}")
    if count > len(free):
        raise DeviceNotReady(
            f"{name}: {count} requested, and {len(free)} of {len(healthy)} are healthy and free; `nodeplug explain"
            f" {name}` says why"
        )
    chosen = prefer(allocator.resource.preferred, allocator.units, free, required, count)
    units = {unit: allocator.units[unit] for unit in chosen}
    return DryRun(units, len(free), allocator.dry_run(chosen), pre_start)


def _resolve_unit(allocator: Allocator, free: Set[str], name: str) -> str:
    """Return the unit that a name means: the unit itself, or a free share of the device."""
    if name in allocator.units:
        return name
    of_device = [unit for unit, device in allocator.units.items() if device.id == name]
    if not of_device:
        raise InvalidRequest(f"{allocator.resource.name} has no device {printable(name)}")
    return next((unit for unit in of_device if unit in free), of_device[0])
