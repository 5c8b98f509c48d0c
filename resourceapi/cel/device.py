"""The variable `device` of device selectors: its declaration by version and gate, and its value for one device.

Source: allocator specification 3.1 and 3.4; k8s.io/dynamic-resource-allocation/cel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from resourceapi.cel.environment import COMPATIBILITY, CURRENT, Environment, Version, build_environment
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.estimate import Bounds
from resourceapi.cel.library import lists, quantities
from resourceapi.cel.macros import BINDINGS
from resourceapi.cel.semver import Semver, SemverError
from resourceapi.cel.types import ANY, BOOL, DEVICE, DURATION, DYN, QUANTITY, STRING, TIMESTAMP, Type, map_of
from resourceapi.cel.values import DefaultMap
from resourceapi.objects.quantity import Quantity
from resourceapi.objects.v1 import Device, DeviceAttribute, DeviceCapacity

MAX_DOMAIN = 63
MAX_ID = 32
MAX_DRIVER = 63
MAX_ATTRIBUTES = 32
MAX_VALUE = 64


@lru_cache(maxsize=32)
def device_environment(
    version: Version = COMPATIBILITY,
    stored: bool = True,
    consumable_capacity: bool = True,
    list_type_attributes: bool = True,
) -> Environment:
    """Return the environment of device selectors.

    `version` and the two feature gates apply only to new expressions (`stored=False`); stored ones can use everything.
    """
    if stored:
        consumable_capacity = list_type_attributes = True
    available = CURRENT if stored else version
    # Fields introduced after the version do not exist, even with their gate enabled.
    consumable_capacity = consumable_capacity and available >= (1, 34)
    list_type_attributes = list_type_attributes and available >= (1, 36)
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, DYN if list_type_attributes else ANY)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    libraries = []
    if available < (1, 33):
        libraries.append(quantities.versions(tolerant=False))
    if list_type_attributes:
        libraries.append(lists.includes())
    return build_environment(
        available,
        libraries=libraries,
        more_macros=BINDINGS,
        variables={"device": DEVICE},
        fields={DEVICE.name: fields},
        opaque_types={"duration": DURATION, "timestamp": TIMESTAMP, DEVICE.name: DEVICE},
    )


def attribute_type(environment: Environment) -> Type:
    """Return the type of an attribute's value: dyn, or any in versions without list attributes."""
    return environment.names.fields[DEVICE.name]["attributes"].params[1].params[1]


def device_bounds(environment: Environment) -> Bounds:
    """Return the largest sizes of the values below `device`, for cost estimates."""
    value = Bounds(MAX_VALUE, is_attribute=True)
    attributes = Bounds(
        MAX_ATTRIBUTES, key=Bounds(MAX_DOMAIN), element=Bounds(MAX_ATTRIBUTES, key=Bounds(MAX_ID), element=value)
    )
    capacity = Bounds(
        MAX_ATTRIBUTES, key=Bounds(MAX_DOMAIN), element=Bounds(MAX_ATTRIBUTES, key=Bounds(MAX_ID), element=Bounds(0))
    )
    fields = {"driver": Bounds(MAX_DRIVER), "attributes": attributes, "capacity": capacity}
    if "allowMultipleAllocations" in environment.names.fields[DEVICE.name]:
        fields["allowMultipleAllocations"] = Bounds(1)
    return Bounds(0, fields={"device": Bounds(0, fields=fields)})


class DeviceView:
    """The value of `device` for one device, prepared once for many evaluations.

    `attributes` and `capacity` are by domain and then by id. A name without a domain belongs to the driver's domain.
    If both forms of a name exist, the qualified one wins.
    """

    __slots__ = ("attributes", "capacity", "driver", "root")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute | Any],
        capacity: Mapping[str, DeviceCapacity | Quantity],
        allow_multiple_allocations: bool | None = None,
    ) -> None:
        """Attributes are API values or plain values (int, bool, str, Semver or lists of one of them).

        Raises CelEvalError for an attribute without a value or with a bad version.
        """
        self.driver = driver
        self.attributes = _by_domain(driver, {name: _attribute(name, each) for name, each in attributes.items()})
        self.capacity = _by_domain(
            driver, {name: each.value if isinstance(each, DeviceCapacity) else each for name, each in capacity.items()}
        )
        self.root = {
            "driver": driver,
            "allowMultipleAllocations": bool(allow_multiple_allocations),
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    @classmethod
    def of(cls, driver: str, device: Device) -> DeviceView:
        """Return the view of a driver's API device. Raises CelEvalError."""
        return cls(driver, device.attributes, device.capacity, device.allow_multiple_allocations)


def _by_domain(driver: str, values: Mapping[str, Any]) -> DefaultMap:
    domains = DefaultMap()
    # Qualified names come last, so that they win.
    for name in sorted(values, key=lambda name: "/" in name):
        domain, slash, id_ = name.partition("/")
        if not slash:
            domain, id_ = driver, name
        domains.setdefault(domain, {})[id_] = values[name]
    return domains


def _attribute(name: str, attribute: Any) -> Any:
    try:
        return _attribute_value(attribute)
    except SemverError as error:
        raise CelEvalError(f"attribute {name}: parse semantic version: {error}") from None
    except ValueError as error:
        raise CelEvalError(f"attribute {name}: {error}") from None


def _attribute_value(attribute: Any) -> Any:
    if not isinstance(attribute, DeviceAttribute):
        if isinstance(attribute, list | tuple):
            return list(attribute)
        if isinstance(attribute, bool | int | str | Semver):
            return attribute
        raise ValueError("unsupported attribute value")
    for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if values is not None:
            return list(values)
    if attribute.version_values is not None:
        return [Semver.parse(each) for each in attribute.version_values]
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return Semver.parse(attribute.version_value)
    raise ValueError("unsupported attribute value")
