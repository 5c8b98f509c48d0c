"""The prototype's problem as a problem of the structured allocator.

| here | there |
|---|---|
| a pool, with or without a node | slices of a pool that is named by its number, for a node or for all nodes |
| a pool's resources, and what a device takes of them in whole blocks | shared counters and their consumption |
| a device's resources | consumable capacity of a device that can be allocated several times |
| a device that is held or requested as a whole | all of a capacity `#shares`, of which each portion takes one |
| admin access | a copy of the device without capacity and counters, which can be shared without limit |
| candidates of a detail, found before (see `candidates`) | a mark: an attribute that a selector requires |
| matchAttributes | constraints on attributes whose values contain their type |
| portions of a split demand | a request for each, on distinct devices |
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from controlplane.k8srm.amounts import DeviceShape, Slot, block_of, in_blocks, quantity_of
from controlplane.k8srm.candidates import Requirement
from controlplane.k8srm.constraints import effective_attributes
from controlplane.k8srm.holdings import DeviceName, Holdings, missing_resources
from controlplane.k8srm.types import Attribute, Device, DeviceAllocation, DeviceClaim, DevicePool, ResourceAllocation
from controlplane.structured import AllocatedState, DeviceClasses, DeviceID, SharedDeviceID
from controlplane.structured.capacity import billionths
from resourceapi.objects import ObjectMeta, Quantity, v1

_CLASS = "any"
_DRIVER = "k8srm"  # the driver of all pools; the marks respect the driver that a claim needs
_ADMIN = "-admin"
_SHARES = "#shares"  # cannot be the name of a resource
_ALL_SHARES = Quantity.of(1_000_000)
_HELD_SHARE = "held"

CLASSES = DeviceClasses([v1.DeviceClass(metadata=ObjectMeta(name=_CLASS))])
"""The only class, which all requests name. The marks respect the requests' own classes."""


class Attempt(Struct, frozen=True):
    """One alternative of an instance with one split, from some pools (None: from all)."""

    requirement: Requirement
    slots: tuple[Slot, ...]
    pools: frozenset[str] | None = None


class Assignment(Struct, frozen=True):
    """A device that an attempt got."""

    requirement: Requirement
    pool: str
    device: str
    portions: tuple[tuple[str, int], ...] = ()


class ShapeIds:
    """Numbers for the device shapes of each requirement, which are a part of their marks."""

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        self._numbers: dict[str, dict[DeviceShape, int]] = {}
        for requirement in requirements:
            numbers = self._numbers.setdefault(requirement.id.mark, {})
            for devices in requirement.candidates.values():
                for candidate in devices.values():
                    if candidate.shape is not None:
                        numbers.setdefault(candidate.shape, len(numbers))

    def mark(self, requirement: Requirement, shape: DeviceShape | None) -> str:
        """Return the mark of a requirement's candidates, or of those of one shape."""
        return (
            requirement.id.mark
            if shape is None
            else f"{requirement.id.mark}k{self._numbers[requirement.id.mark][shape]}"
        )


def slices_of(
    pools: Sequence[DevicePool], requirements: Sequence[Requirement], shape_ids: ShapeIds
) -> tuple[v1.ResourceSlice, ...]:
    """Return all pools as slices. Devices are marked with the requirements that can have them."""
    slices: list[v1.ResourceSlice] = []
    for number, pool in enumerate(pools):
        ordinary = [requirement for requirement in requirements if not requirement.is_admin]
        # One device that draws on a missing counter would make the whole pool invalid for the allocator.
        valid = [device for device in pool.spec.devices if not missing_resources(pool, device)]
        parts = [v1.ResourceSliceSpec(devices=tuple(_device(pool, device, ordinary, shape_ids) for device in valid))]
        if pool.spec.resources:
            counters = {x.name: v1.Counter(value=x.capacity) for x in pool.spec.resources}
            parts.append(v1.ResourceSliceSpec(shared_counters=(v1.CounterSet(name="pool", counters=counters),)))
        slices += _slices(pool, _pool_name(number), parts)
        admin = [requirement for requirement in requirements if requirement.is_admin]
        if admin:
            copies = tuple(_admin_copy(_device(pool, device, admin, shape_ids)) for device in pool.spec.devices)
            slices += _slices(pool, _pool_name(number) + _ADMIN, [v1.ResourceSliceSpec(devices=copies)])
    return tuple(slices)


def state_of(pools: Sequence[DevicePool], holdings: Holdings) -> AllocatedState:
    """Return what is held already."""
    devices: set[DeviceID] = set()
    shares: set[SharedDeviceID] = set()
    consumed: dict[DeviceID, dict[str, Quantity]] = {}
    for number, pool in enumerate(pools):
        for device in pool.spec.devices:
            name = DeviceID(_DRIVER, _pool_name(number), device.name)
            held = DeviceName(pool.metadata.name, device.name)
            portions = holdings.portions.get(held)
            is_whole = held in holdings.whole
            if not device.resources:
                if is_whole or portions is not None:
                    devices.add(name)
            elif is_whole or portions is not None:
                shares.add(SharedDeviceID(name, _HELD_SHARE))
                consumed[name] = {**(portions or {}), _SHARES: _ALL_SHARES if is_whole else Quantity.of(1)}
    return AllocatedState(
        allocated_devices=frozenset(devices),
        allocated_shared_device_ids=frozenset(shares),
        aggregated_capacity=consumed,
    )


def claims_of(
    claims: Sequence[DeviceClaim], attempts: Sequence[Attempt], shape_ids: ShapeIds, *, with_matches: bool = True
) -> list[v1.ResourceClaim]:
    """Return the attempts as claims for the allocator, in order: one for each claim that has any."""
    by_claim: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        by_claim.setdefault(attempt.requirement.id.claim, []).append(attempt)
    return [_claim(claims[number], parts, shape_ids, with_matches=with_matches) for number, parts in by_claim.items()]


def assignments_of(
    attempts: Sequence[Attempt], allocations: Sequence[v1.AllocationResult], pools: Sequence[DevicePool]
) -> list[Assignment]:
    """Return the devices of these pools that an allocation assigns to the attempts, in order."""
    by_request = {
        _request_name(attempt, number): (attempt.requirement, slot)
        for attempt in attempts
        for number, slot in enumerate(attempt.slots)
    }
    return [
        Assignment(
            requirement, pools[int(result.pool.removesuffix(_ADMIN))].metadata.name, result.device, slot.portions
        )
        for allocation in allocations
        for result in allocation.devices.results
        for requirement, slot in [by_request[result.request]]
    ]


def allocation_of(assignment: Assignment) -> DeviceAllocation:
    """Return a device in the form of a claim's status."""
    return DeviceAllocation(
        device_pool_name=assignment.pool,
        device_name=assignment.device,
        admin_access=True if assignment.requirement.is_admin else None,
        allocations=tuple(
            ResourceAllocation(name=name, allocation=quantity_of(amount)) for name, amount in assignment.portions
        ),
    )


def _claim(
    claim: DeviceClaim, attempts: Sequence[Attempt], shape_ids: ShapeIds, *, with_matches: bool
) -> v1.ResourceClaim:
    requests: list[v1.DeviceRequest] = []
    constraints: list[v1.DeviceConstraint] = []
    for attempt in attempts:
        names = tuple(_request_name(attempt, number) for number in range(len(attempt.slots)))
        requests += [_request(name, attempt, slot, shape_ids) for name, slot in zip(names, attempt.slots, strict=True)]
        if with_matches and names:
            constraints += [
                v1.DeviceConstraint(requests=names, match_attribute=_value_name(attribute))
                for attribute in attempt.requirement.detail.match_attributes
            ]
        if len(names) > 1:
            constraints.append(v1.DeviceConstraint(requests=names, distinct_attribute="own/device"))
    if with_matches:
        constraints += [
            v1.DeviceConstraint(match_attribute=_value_name(attribute)) for attribute in claim.spec.match_attributes
        ]
    devices = v1.DeviceClaim(requests=tuple(requests), constraints=tuple(constraints))
    metadata = ObjectMeta(name=claim.metadata.name, namespace=claim.metadata.namespace)
    return v1.ResourceClaim(metadata=metadata, spec=v1.ResourceClaimSpec(devices=devices))


def _request(name: str, attempt: Attempt, slot: Slot, shape_ids: ShapeIds) -> v1.DeviceRequest:
    expressions = [f'"{shape_ids.mark(attempt.requirement, slot.shape)}" in device.attributes["mark"]']
    if attempt.pools is not None:
        names = ", ".join(json.dumps(pool) for pool in sorted(attempt.pools))
        expressions.append(f'device.attributes["own"].pool in [{names}]')
    capacity = None
    if slot.portions and not attempt.requirement.is_admin:
        amounts = {name: quantity_of(amount) for name, amount in slot.portions}
        capacity = v1.CapacityRequirements(requests={**amounts, _SHARES: Quantity.of(1)})
    exactly = v1.ExactDeviceRequest(
        device_class_name=_CLASS,
        selectors=tuple(v1.DeviceSelector(cel=v1.CELDeviceSelector(expression=text)) for text in expressions),
        allocation_mode=v1.EXACT_COUNT,
        count=slot.count,
        capacity=capacity,
    )
    return v1.DeviceRequest(name=name, exactly=exactly)


def _request_name(attempt: Attempt, slot: int) -> str:
    return f"{attempt.requirement.id.mark}s{slot}"


def _slices(pool: DevicePool, name: str, parts: Sequence[v1.ResourceSliceSpec]) -> list[v1.ResourceSlice]:
    return [
        v1.ResourceSlice(
            metadata=ObjectMeta(name=f"{name}-{number}"),
            spec=v1.ResourceSliceSpec(
                driver=_DRIVER,
                pool=v1.ResourcePool(name=name, generation=1, resource_slice_count=len(parts)),
                node_name=pool.spec.node_name or None,
                all_nodes=None if pool.spec.node_name else True,
                devices=part.devices,
                shared_counters=part.shared_counters,
            ),
        )
        for number, part in enumerate(parts)
    ]


def _pool_name(number: int) -> str:
    """The number, padded: the allocator orders pools by name, but the prototype keeps their input order."""
    return f"{number:09}"


def _device(pool: DevicePool, device: Device, requirements: Sequence[Requirement], shape_ids: ShapeIds) -> v1.Device:
    attributes = {
        "own/pool": v1.DeviceAttribute(string_value=pool.metadata.name),
        "own/device": v1.DeviceAttribute(string_value=f"{pool.metadata.name}/{device.name}"),
    }
    for attribute in effective_attributes(pool, device).values():
        value = _value(attribute)
        if value is not None:
            attributes[_value_name(attribute.name)] = v1.DeviceAttribute(string_value=value)
    for requirement in requirements:
        candidate = requirement.candidates.get(pool.metadata.name, {}).get(device.name)
        if candidate is not None:
            for mark in {shape_ids.mark(requirement, None), shape_ids.mark(requirement, candidate.shape)}:
                attributes[f"mark/{mark}"] = v1.DeviceAttribute(bool_value=True)
    blocks = {resource.name: block_of(resource.block_size) for resource in pool.spec.resources}
    draws = {
        name: v1.Counter(value=quantity_of(in_blocks(billionths(amount), blocks[name])))
        for name, amount in device.requests.items()
        if name in blocks
    }
    return v1.Device(
        name=device.name,
        attributes=attributes,
        capacity=_capacity(device),
        consumes_counters=(v1.DeviceCounterConsumption(counter_set="pool", counters=draws),) if draws else (),
        allow_multiple_allocations=True if device.resources else None,
    )


def _capacity(device: Device) -> Mapping[str, v1.DeviceCapacity]:
    """The device's resources as capacity. A request takes only what it names, and one of `#shares`."""
    if not device.resources:
        return {}
    nothing = v1.CapacityRequestPolicy(default=Quantity.of(0))
    capacity = {x.name: v1.DeviceCapacity(value=x.capacity, request_policy=nothing) for x in device.resources}
    return {**capacity, _SHARES: v1.DeviceCapacity(value=_ALL_SHARES)}


def _admin_copy(device: v1.Device) -> v1.Device:
    return v1.Device(name=device.name, attributes=device.attributes, allow_multiple_allocations=True)


def _value_name(attribute: str) -> str:
    return f"value/{attribute}"


def _value(attribute: Attribute) -> str | None:
    """A text that is equal only for equal values of the same type."""
    typed = attribute.typed_value
    if typed is None:
        return None
    kind, value = typed
    return f"{kind}:{billionths(value) if isinstance(value, Quantity) else value}"
