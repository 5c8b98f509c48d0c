"""What a ResourceSlice says of a device itself: attributes, capacities and options, within the API's limits.

Every device has `resource` (the resource's name) and `kind`, so that a DeviceClass can select by them; a part of a
device has `partitionType`, too. A value that the API would refuse is left out. Where a device has more than the API
takes, those that nobody configured are left out from the end of the alphabet; the standard ones stay.
"""

import re
from functools import lru_cache

from hostdevices import AttributeValue, Device, Version
from hostdevices.attributes import STANDARD
from hostdevices.resource import Capacity, Partition, Resource
from resourceapi.objects import Quantity, v1

MOST_TOGETHER = 32
"""Attributes and capacities of one device."""

LONGEST_TEXT = 64  # bytes of a value
RESOURCE, KIND, PARTITION_TYPE, SHARES = "resource", "kind", "partitionType", "shares"
OWN_ATTRIBUTES = frozenset({RESOURCE, KIND, PARTITION_TYPE})
"""What a configuration cannot say of a partition."""

MEMORY = "memory"  # an attribute of readers in bytes, which is what DRA calls a capacity

_NAME = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(?P<identifier>[A-Za-z_][A-Za-z0-9_]*)"
)
_LONGEST_DOMAIN, _LONGEST_IDENTIFIER = 63, 32
_VERSION = re.compile(
    r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_LEAST, _MOST = -(2**63), 2**63 - 1
_STANDARD = frozenset(STANDARD.values())


def describe(name: str, resource: Resource, device: Device, partition: Partition | None = None) -> v1.Device:
    """Return a device of `resource`, or the part of it that `partition` is, as a slice has it under `name`.

    Taints and counters are not of the device alone: pool.py adds them.
    """
    capacities = partition.capacity if partition is not None else _capacities(resource, device)
    return v1.Device(
        name=name,
        attributes=_attributes(resource, device, partition, MOST_TOGETHER - len(capacities)),
        capacity={key: capacity(said) for key, said in capacities.items()},
        binding_conditions=resource.dra.binding_conditions,
        binding_failure_conditions=resource.dra.binding_failure_conditions,
        allow_multiple_allocations=True if resource.shares > 1 else None,
    )


def _attributes(
    resource: Resource, device: Device, partition: Partition | None, most: int
) -> dict[str, v1.DeviceAttribute]:
    wanted: dict[str, AttributeValue] = {RESOURCE: resource.name, KIND: device.kind}
    if partition is not None:
        wanted = {**wanted, PARTITION_TYPE: partition.name, **partition.attributes}
    names = sorted(device.attributes, key=lambda name: (name not in _STANDARD, name))
    for name in names:
        wanted.setdefault(name, device.attributes[name])
    found = ((name, _attribute(value)) for name, value in wanted.items() if is_name(name))
    return dict([(name, value) for name, value in found if value is not None][:most])


def _capacities(resource: Resource, device: Device) -> dict[str, Capacity]:
    found = dict(resource.dra.capacity)
    if resource.shares > 1:
        return {**found, SHARES: Capacity(str(resource.shares), default="1", minimum="1", step="1")}
    memory = device.attributes.get(MEMORY)
    if isinstance(memory, int) and memory > 0:  # of a device with shares the first claim would take all of it
        found.setdefault(MEMORY, Capacity(str(memory)))
    return found


@lru_cache(maxsize=1024)
def capacity(said: Capacity) -> v1.DeviceCapacity:
    """Return a capacity as a slice has it. Raises `QuantityError`."""
    policy = None
    if said.default or said.valid_values or said.minimum or said.maximum or said.step:
        valid_range = None
        if said.minimum or said.maximum or said.step:
            bounds = (Quantity.parse(x) if x else None for x in (said.minimum, said.maximum, said.step))
            valid_range = v1.CapacityRequestPolicyRange(*bounds)
        policy = v1.CapacityRequestPolicy(
            default=Quantity.parse(said.default) if said.default else None,
            valid_values=tuple(map(Quantity.parse, said.valid_values)),
            valid_range=valid_range,
        )
    return v1.DeviceCapacity(value=Quantity.parse(said.value), request_policy=policy)


def is_name(name: str) -> bool:
    """Tell whether attributes and capacities can have this name: an identifier, also with a domain in front."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    return len(found["identifier"]) <= _LONGEST_IDENTIFIER and len(name.rpartition("/")[0]) <= _LONGEST_DOMAIN


def _attribute(value: AttributeValue) -> v1.DeviceAttribute | None:
    match value:
        case bool():
            return v1.DeviceAttribute(bool_value=value)
        case int():
            return v1.DeviceAttribute(int_value=value) if _LEAST <= value <= _MOST else None
        case Version(text):
            fits = len(text) <= LONGEST_TEXT and _VERSION.fullmatch(text)
            return v1.DeviceAttribute(version_value=text) if fits else None
        case str():
            return v1.DeviceAttribute(string_value=cut(value))


def cut(text: str) -> str:
    """Return as much of a text as an attribute can hold, with an ellipsis where it was cut."""
    data = text.encode()
    if len(data) <= LONGEST_TEXT:
        return text
    return data[: LONGEST_TEXT - len("…".encode())].decode(errors="ignore") + "…"
