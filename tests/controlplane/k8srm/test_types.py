"""The kinds as data types (allocator.md 6.2)."""

import pytest

from controlplane.k8srm.types import (
    KINDS,
    Attribute,
    DeviceClaim,
    DeviceClass,
    DeviceDriver,
    DevicePool,
    check_spec,
    read_as,
    write,
)
from resourceapi.objects import DecodeError, Quantity
from tests.controlplane.k8srm.build import Plain, claim, device, pool, resource


def test_attribute_values_are_equal_only_within_a_type() -> None:
    text, other, number = (
        Attribute(name="a", string_value="1"),
        Attribute(name="b", string_value="1"),
        Attribute(name="a", int_value=1),
    )
    assert text.equal_value(other)
    assert not text.equal(other)
    assert text.equal(Attribute(name="a", string_value="1"))
    assert not text.equal_value(number)
    assert not Attribute(name="a", sem_ver_value="1").equal_value(text)
    assert Attribute(quantity_value=Quantity.parse("1Ki")).equal_value(Attribute(quantity_value=Quantity.parse("1024")))
    assert not Attribute(name="a").equal_value(Attribute(name="a"))


def test_object_is_written_as_it_was_read() -> None:
    values = [
        pool("p", "n", [device("a", {"x": 1}, requests={"s": "2"}, resources=[resource("m", "1Gi", "4Ki")])]),
        claim("c", {"oneOf": [{"deviceType": "gpu"}]}, matchAttributes=["numa"]),
        {
            "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
            "kind": "DeviceDriver",
            "metadata": {"name": "d"},
            "deviceTypes": ["gpu"],
        },
    ]
    for value in values:
        assert write(read_as(KINDS[value["kind"]], value)) == value


def test_unknown_members_are_kept() -> None:
    value = {"metadata": {"name": "c"}, "spec": {"driver": "d", "maxDeviceCount": 3}, "more": True}
    written = write(read_as(DeviceClass, value))
    assert (written["spec"]["maxDeviceCount"], written["more"]) == (3, True)


def test_class_is_read_with_capitalized_field_names() -> None:
    read = read_as(DeviceClass, {"metadata": {"name": "c"}, "spec": {"Driver": "d", "DeviceType": "gpu"}})
    assert (read.spec.driver, read.spec.device_type) == ("d", "gpu")
    assert write(read)["spec"] == {"driver": "d", "deviceType": "gpu"}


def test_null_field_is_absent() -> None:
    read = read_as(DeviceClaim, claim("c", {"deviceType": None, "deviceClass": "x"}))
    assert read.spec.claims[0].device_type is None


def test_driver_has_device_types_at_top_level() -> None:
    assert read_as(DeviceDriver, {"metadata": {"name": "d"}, "deviceTypes": ["a", "b"]}).device_types == ("a", "b")


def test_decode_error_has_field_path() -> None:
    with pytest.raises(DecodeError, match=r"spec\.devices\[0\]\.resources\[0\]\.capacity"):
        read_as(DevicePool, pool("p", "n", [device("a", resources=[resource("m", "much")])]))


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ([], r"spec\.claims: requests no devices"),
        ([{}], r"spec\.claims\[0\]: needs deviceClass or deviceType"),
        ([{"deviceClass": "c", "oneOf": [{"deviceClass": "c"}]}], "no other field can be set beside oneOf"),
        ([{"oneOf": [{"deviceClass": "c"}, {}]}], r"oneOf\[1\]: needs deviceClass or deviceType"),
        ([{"deviceClass": "c", "requests": {"count": "-1"}}], "count: -1 is negative"),
    ],
)
def test_invalid_claim_spec_is_refused(details: list[Plain], text: str) -> None:
    read = read_as(DeviceClaim, claim("c", *details))
    with pytest.raises(DecodeError, match=text):
        check_spec(read.spec, "spec")
