"""A device in a ResourceSlice: attributes, capacities and options, within the API's limits.

Every device has `resource` (the resource's name) and `kind`, so that a DeviceClass can select by them. A part of a
device also has `partitionType`. Both have the configured attributes (`dra.attributes`). A value that the API would
refuse is left out. If a device has more attributes than the API allows, those that are neither configured nor standard
are left out, starting from the end of the alphabet.
"""

import re
from functools import lru_cache

from hostdevices import AttributeValue, Device, Version
from hostdevices.attributes import STANDARD
from hostdevices.readers.sysfs import TEXT_LIMIT
from resourceapi.objects import ErrorList, Quantity, v1
from resourceapi.objects.field_rules import qualified_name
from resources.resource import Capacity, Partition, Resource
from resources.shares import shares_of
from resources.template import missing, render, sole_attribute

MAX_TOTAL = 32
"""The most attributes and capacities of one device together."""

RESOURCE, KIND, PARTITION_TYPE, SHARES = "resource", "kind", "partitionType", "shares"
OWN_ATTRIBUTES = frozenset({RESOURCE, KIND, PARTITION_TYPE})
"""Attributes that a configuration cannot set on a partition."""

MEMORY = "memory"  # a reader's attribute, in bytes; DRA publishes it as a capacity

_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")  # the form that readers write
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_STANDARD = frozenset(STANDARD.values())


def describe(name: str, resource: Resource, device: Device, partition: Partition | None = None) -> v1.Device:
    """Return a device of `resource`, or its part `partition`, as a slice describes it under `name`.

    Taints and counters depend on other devices and holders: pool.py adds them.
    """
    amounts = partition.capacity if partition is not None else capacities(resource, device)
    return v1.Device(
        name=name,
        attributes=_attributes(name, resource, device, partition, MAX_TOTAL - len(amounts)),
        capacity={key: capacity(entry) for key, entry in amounts.items()},
        binding_conditions=resource.dra.binding_conditions,
        binding_failure_conditions=resource.dra.binding_failure_conditions,
        allow_multiple_allocations=True if resource.is_shared else None,
    )


def _attributes(
    name: str, resource: Resource, device: Device, partition: Partition | None, most: int
) -> dict[str, v1.DeviceAttribute]:
    wanted: dict[str, AttributeValue] = {RESOURCE: resource.name, KIND: device.kind}
    wanted.update(_configured(name, resource, device))
    if partition is not None:
        wanted = {**wanted, PARTITION_TYPE: partition.name, **partition.attributes}
    for key in sorted(device.attributes, key=lambda key: (key not in _STANDARD, key)):
        wanted.setdefault(key, device.attributes[key])
    found = ((key, _attribute(value)) for key, value in wanted.items() if is_name(key))
    return dict([(key, value) for key, value in found if value is not None][:most])


def _configured(name: str, resource: Resource, device: Device) -> dict[str, AttributeValue]:
    """Return the configured attributes, without those whose template names a fact that the device lacks."""
    fixed = resource.dra.attributes
    return {
        key: _filled(value, name, device) if isinstance(value, str) else value
        for key, value in fixed.items()
        if not (isinstance(value, str) and missing(value, device))
    }


def _filled(template: str, name: str, device: Device) -> AttributeValue:
    """Fill a template. One that is a single attribute keeps that attribute's type, which CEL and constraints see."""
    known = device.attributes.get(sole_attribute(template), "")
    return render(template, [name], [device]) if isinstance(known, str) else known


def capacities(resource: Resource, device: Device) -> dict[str, Capacity]:
    """Return the capacities of a whole device of `resource`, and how much of each a claim can request."""
    found = dict(resource.dra.capacity)
    memory = device.attributes.get(MEMORY)
    if resource.is_shared:
        shares = shares_of(resource, device)
        if shares.memory_each and isinstance(memory, int):
            found[MEMORY] = Capacity(str(memory), default=str(min(memory, shares.memory_each)))
        if shares.count == 1:  # a range is not possible: API servers refuse a step that leads beyond the maximum
            return {**found, SHARES: Capacity("1", default="1", valid_values=("1",))}
        return {**found, SHARES: Capacity(str(shares.count), default="1", minimum="1", step="1")}
    # not with shares: without a request policy the first claim would take all of it
    if isinstance(memory, int) and memory > 0:
        found.setdefault(MEMORY, Capacity(str(memory)))
    return found


@lru_cache(maxsize=1024)
def capacity(entry: Capacity) -> v1.DeviceCapacity:
    """Return a capacity as a slice has it. Raises `QuantityError`."""
    policy = None
    if entry.default:
        valid_range = None
        if entry.minimum:
            bounds = (Quantity.parse(x) if x else None for x in (entry.minimum, entry.maximum, entry.step))
            valid_range = v1.CapacityRequestPolicyRange(*bounds)
        policy = v1.CapacityRequestPolicy(
            default=Quantity.parse(entry.default),
            valid_values=tuple(map(Quantity.parse, entry.valid_values)),
            valid_range=valid_range,
        )
    return v1.DeviceCapacity(value=Quantity.parse(entry.value), request_policy=policy)


@lru_cache(maxsize=1024)
def is_name(name: str) -> bool:
    """Return whether attributes and capacities can have this name: an identifier, optionally with a domain in front."""
    errors = ErrorList()
    qualified_name(errors, "", name)
    # the API allows more slashes, but no selector could name such an attribute
    return not errors and name.count("/") <= 1


def _attribute(value: AttributeValue) -> v1.DeviceAttribute | None:
    match value:
        case bool():
            return v1.DeviceAttribute(bool_value=value)
        case int():
            return v1.DeviceAttribute(int_value=value) if _MIN_INT64 <= value <= _MAX_INT64 else None
        case Version(text):
            return v1.DeviceAttribute(version_value=text) if _VERSION.fullmatch(text) and fits(text) else None
        case str():
            return v1.DeviceAttribute(string_value=value) if fits(value) else None


def fits(text: str) -> bool:
    """Return whether an attribute can hold a text; texts from readers are cut already."""
    return len(text.encode()) <= TEXT_LIMIT
