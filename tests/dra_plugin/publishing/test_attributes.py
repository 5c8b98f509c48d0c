"""The attributes of a device in a slice, within the API's limits."""

import pytest
from msgspec.structs import replace

from dra_plugin.publishing.attributes import capacity, is_name
from hostdevices import AttributeValue, Version
from resourceapi.objects import Quantity, QuantityError, v1
from resources.resource import Capacity, DraOptions
from tests.dra_plugin.offering import HALVES, device, offering, published, resource
from tests.dra_scenarios import scenario

GPU = "example.com/gpu"
ROOT = "resource.kubernetes.io/pcieRoot"


def test_attribute_value_is_published_with_its_type() -> None:
    known = device(
        "gpu-1",
        attributes={
            "model": "A100",
            "index": 3,
            "render": True,
            "driverVersion": Version("535.129.3"),
            ROOT: "pci0000:3a",
        },
    )
    assert published(offering([resource()], {GPU: [known]}))["gpu-1"].attributes == {
        "resource": v1.DeviceAttribute(string_value=GPU),
        "kind": v1.DeviceAttribute(string_value="gpu"),
        "model": v1.DeviceAttribute(string_value="A100"),
        "index": v1.DeviceAttribute(int_value=3),
        "render": v1.DeviceAttribute(bool_value=True),
        "driverVersion": v1.DeviceAttribute(version_value="535.129.3"),
        ROOT: v1.DeviceAttribute(string_value="pci0000:3a"),
    }


CNI = DraOptions(
    attributes={
        "k8s.cni.cncf.io/deviceID": "{resource.kubernetes.io/pciBusID}",
        "k8s.cni.cncf.io/resourceName": GPU,
        "tier": 2,
        "fast": True,
    }
)


def test_configured_attributes_survive_the_attribute_limit() -> None:
    known = {f"a{i:02}": i for i in range(40)}
    many = device("gpu-1", attributes={**known, "resource.kubernetes.io/pciBusID": "0000:3b:00.2"})
    shown = published(offering([resource(dra=CNI)], {GPU: [many]}))["gpu-1"].attributes
    assert shown["k8s.cni.cncf.io/deviceID"] == v1.DeviceAttribute(string_value="0000:3b:00.2")
    assert shown["k8s.cni.cncf.io/resourceName"] == v1.DeviceAttribute(string_value=GPU)
    assert (shown["tier"].int_value, shown["fast"].bool_value) == (2, True)
    assert len(shown) == 32


def test_template_of_a_single_attribute_keeps_its_type() -> None:
    """For example, a selector compares `dra.net/numaNode` of dra-driver-cpu with a number."""
    options = DraOptions(
        attributes={
            "dra.net/numaNode": "{resource.kubernetes.io/numaNode}",
            "dra.net/virtual": "{virtual}",
            "gpu.nvidia.com/driverVersion": "{driverVersion}",
            "gpu.nvidia.com/productName": "{model}",
            "a.b/text": "{resource.kubernetes.io/numaNode}.",
            "a.b/ids": "{ids}",
        }
    )
    known: dict[str, AttributeValue] = {
        "resource.kubernetes.io/numaNode": 1,
        "virtual": False,
        "driverVersion": Version("535.129.3"),
        "model": "A100\x07",
    }
    shown = published(offering([resource(dra=options)], {GPU: [device("gpu-1", attributes=known)]}))["gpu-1"].attributes
    assert {name: value for name, value in shown.items() if name in options.attributes} == {
        "dra.net/numaNode": v1.DeviceAttribute(int_value=1),
        "dra.net/virtual": v1.DeviceAttribute(bool_value=False),
        "gpu.nvidia.com/driverVersion": v1.DeviceAttribute(version_value="535.129.3"),
        "gpu.nvidia.com/productName": v1.DeviceAttribute(string_value="A100"),
        "a.b/text": v1.DeviceAttribute(string_value="1."),
        "a.b/ids": v1.DeviceAttribute(string_value="gpu-1"),
    }


def test_template_with_a_missing_attribute_is_not_published() -> None:
    """The device is unavailable and has a taint; the remaining attributes must still be a valid slice."""
    shown = published(offering([resource(dra=CNI)], {GPU: [device("gpu-1")]}))["gpu-1"].attributes
    assert set(shown) == {"resource", "kind", "k8s.cni.cncf.io/resourceName", "tier", "fast"}


def test_partition_attribute_overrides_the_configured_one() -> None:
    options = replace(HALVES, attributes={"rack": "{name}", "profile": "whole"})
    shown = published(offering([resource(dra=options)], {GPU: [device("gpu-1", attributes={"name": "card0"})]}))
    halves = {x.attributes["profile"].string_value for x in shown.values()}
    assert halves == {"3g.40gb", "whole"}
    assert {x.attributes["rack"].string_value for x in shown.values()} == {"card0"}


def test_invalid_attribute_is_not_published() -> None:
    odd = device(
        "gpu-1",
        attributes={
            "long": "é" * 40,
            "old": Version("1.02"),
            "huge": 2**63,
            "no-identifier": "x",
            "a" * 33: "x",
            f"{'d' * 64}/x": "x",
            "resource": "somebody/else",
        },
    )
    shown = published(offering([resource()], {GPU: [odd]}))["gpu-1"].attributes
    assert shown == {
        "resource": v1.DeviceAttribute(string_value=GPU),
        "kind": v1.DeviceAttribute(string_value="gpu"),
    }


def test_standard_attributes_and_capacity_survive_the_attribute_limit() -> None:
    options = DraOptions(capacity={"bandwidth": Capacity("25G")})
    many = device("gpu-1", attributes={**{f"a{i:02}": i for i in range(40)}, ROOT: "pci0000:3a"})
    shown = published(offering([resource(dra=options)], {GPU: [many]}))["gpu-1"]
    assert len(shown.attributes) + len(shown.capacity) == 32
    assert shown.attributes.keys() >= {"resource", "kind", ROOT, "a00", "a27"}
    assert "a28" not in shown.attributes


def test_memory_is_a_capacity_of_whole_devices_only() -> None:
    known = device("gpu-1", attributes={"memory": 80 << 30})
    whole = published(offering([resource()], {GPU: [known]}))["gpu-1"]
    assert whole.capacity == {"memory": v1.DeviceCapacity(value=Quantity.of(80 << 30))}
    shared = published(offering([resource(shares=2)], {GPU: [known]}))["gpu-1"]
    assert list(shared.capacity) == ["shares"]
    offered = resource(dra=DraOptions(capacity={"memory": Capacity("79Gi")}))
    assert published(offering([offered], {GPU: [known]}))["gpu-1"].capacity["memory"].value == Quantity.parse("79Gi")
    parts = published(offering([resource(dra=HALVES)], {GPU: [known]}))
    assert not any(x.capacity for x in parts.values())


@scenario(274)
def test_shares_are_a_capacity_with_a_default_request_of_one() -> None:
    shared = published(offering([resource(shares=3)], {GPU: [device("gpu-1")]}))["gpu-1"]
    assert shared.allow_multiple_allocations is True
    policy = v1.CapacityRequestPolicy(
        default=Quantity.of(1),
        valid_range=v1.CapacityRequestPolicyRange(min=Quantity.of(1), step=Quantity.of(1)),
    )
    assert shared.capacity == {"shares": v1.DeviceCapacity(value=Quantity.of(3), request_policy=policy)}


@scenario(274)
def test_partition_has_the_attributes_of_its_device_and_layout() -> None:
    known = device("gpu-1", attributes={"model": "A100", "profile": "whole"})
    parts = published(offering([resource(dra=HALVES)], {GPU: [known]}))
    assert parts["gpu-1-half-1"].attributes == {
        "resource": v1.DeviceAttribute(string_value=GPU),
        "kind": v1.DeviceAttribute(string_value="gpu"),
        "partitionType": v1.DeviceAttribute(string_value="half"),
        "profile": v1.DeviceAttribute(string_value="3g.40gb"),
        "model": v1.DeviceAttribute(string_value="A100"),
    }


def test_capacity_has_the_configured_request_policy() -> None:
    assert capacity(Capacity("10")) == v1.DeviceCapacity(value=Quantity.of(10))
    assert capacity(Capacity("10", default="2", valid_values=("2", "4"))) == v1.DeviceCapacity(
        value=Quantity.of(10),
        request_policy=v1.CapacityRequestPolicy(default=Quantity.of(2), valid_values=(Quantity.of(2), Quantity.of(4))),
    )
    with pytest.raises(QuantityError):
        capacity(Capacity("much"))


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a", True),
        ("a.b/_c", True),
        ("a/", False),
        ("/a", False),
        ("A/b", True),
        ("1a", False),
        ("a/b/c", False),
        ("ab\n", False),
    ],
)
def test_attribute_name_is_valid_only_as_the_api_allows(name: str, fits: bool) -> None:
    assert is_name(name) is fits
