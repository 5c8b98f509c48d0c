"""CEL over the attributes of a device (allocator.md 6.4)."""

from typing import Any

import pytest

from controlplane.k8srm.constraints import ConstraintError, effective_attributes, holds, values_of
from controlplane.k8srm.types import Attribute, Device, DevicePool, DevicePoolSpec
from resourceapi.objects import Quantity

ATTRIBUTES = {
    each.name: each
    for each in (
        Attribute(name="vendor", string_value="example.com"),
        Attribute(name="model", string_value="foozer-1000"),
        Attribute(name="numa", int_value=0),
        Attribute(name="memory", quantity_value=Quantity.parse("10Gi")),
        Attribute(name="driverVersion", sem_ver_value="4.2.1-gen3"),
        Attribute(name="odd", sem_ver_value="not.a.version"),
        Attribute(name="driver", string_value="foozer"),
        Attribute(name="empty"),
    )
}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (None, True),
        ("", True),
        ("  ", True),
        ("device.vendor == 'example.com'", True),
        ("device.vendor == 'example.org'", False),
        ("device.vendor == 'example.com' && device.model == 'foozer-1000'", True),
        ("device.vendor == 'example.com' && device.model == 'foozer-4000'", False),
        ("device.driver == 'foozer'", True),
        ("device.numa == 0", True),
        ("device['numa'] < 1", True),
        ("device.memory.compareTo(quantity('10240Mi')) == 0", True),
        ("device.memory.isGreaterThan(quantity('10Gi'))", False),
        ("device.memory == quantity('10240Mi')", True),
        ("device.driverVersion.isLessThan(semver('4.2.1'))", True),
        ("device.driverVersion.major() == 4", True),
        ("device.odd == 'not.a.version'", True),
        ("has(device.speed) && device.speed > 1", False),
        ("has(device.empty)", False),
    ],
)
def test_constraint_is_evaluated_over_attributes(constraint: str | None, expected: bool) -> None:
    assert holds(constraint, values_of(ATTRIBUTES)) is expected


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        ("device.speed > 1", "no such key: speed"),
        ("device.attributes['example.com'].speed > 1", "no such key: attributes"),
        ("device.capacity['example.com'].memory == 1", "no such key: capacity"),
        ("device.memory > 1", "no such overload"),
        ("device.bandwidth = '1G'", "Syntax error"),
        ("device.model", "must evaluate to bool"),
        ("'yes'", "must evaluate to bool, not string"),
        ("unknown == 1", "undeclared reference to 'unknown'"),
    ],
)
def test_invalid_constraint_raises_error(constraint: str, text: str) -> None:
    with pytest.raises(ConstraintError, match=text):
        holds(constraint, values_of(ATTRIBUTES))


def test_device_attribute_overrides_pool_attribute() -> None:
    def attribute(name: str, value: Any) -> Attribute:
        return Attribute(name=name, string_value=value)

    pool = DevicePool(spec=DevicePoolSpec(attributes=(attribute("a", "pool"), attribute("b", "pool"))))
    device = Device(attributes=(attribute("b", "device"), Attribute(name="c", int_value=1)))
    assert values_of(effective_attributes(pool, device)) == {"a": "pool", "b": "device", "c": 1}
