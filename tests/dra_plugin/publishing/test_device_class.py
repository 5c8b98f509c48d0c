"""The generated DeviceClass: servers accept it, and it selects the resource's devices and no others."""

from dra_plugin.publishing.device_class import class_name, device_class
from resourceapi.cel import DeviceView, compile_selector, device_environment
from resourceapi.objects import v1
from resourceapi.objects.validate import validate_create
from resources.resource import DraOptions
from tests.dra_plugin.offering import DRIVER, device, offering, published, resource

# The features of a new class that servers of all versions accept.
ENVIRONMENT = device_environment(stored=False, consumable_capacity=False, list_type_attributes=False)


def means(one: v1.DeviceClass, shown: v1.Device, driver: str = DRIVER) -> bool:
    (selector,) = one.spec.selectors
    assert selector.cel is not None
    compiled = compile_selector(selector.cel.expression, ENVIRONMENT)
    return compiled.matches(DeviceView(driver, shown.attributes, shown.capacity, shown.allow_multiple_allocations))


def test_a_class_is_named_as_kubernetes_names_things() -> None:
    assert class_name("example.com/gpu") == "gpu.example.com"
    assert class_name("example.com/SRIOV_net") == "sriov-net.example.com"


def test_a_class_means_the_devices_of_its_resource() -> None:
    resources = [resource("example.com/gpu"), resource("example.com/fpga", shares=2)]
    assigned = {"example.com/gpu": [device("gpu-1")], "example.com/fpga": [device("fpga-1", kind="accel")]}
    shown = published(offering(resources, assigned))
    gpu, fpga = (device_class(x, DRIVER) for x in resources)
    assert not validate_create(gpu)
    assert not validate_create(fpga)
    assert [name for name, x in shown.items() if means(gpu, x)] == ["gpu-1"]
    assert [name for name, x in shown.items() if means(fpga, x)] == ["fpga-1"]


def test_another_drivers_devices_are_not_meant_whatever_they_say() -> None:
    assigned = {"example.com/gpu": [device("gpu-1")]}
    shown = published(offering([resource()], assigned))["gpu-1"]
    assert not means(device_class(resource(), DRIVER), shown, driver="other.example.com")
    assert not means(device_class(resource(), DRIVER), v1.Device(name="bare"), driver="other.example.com")


def test_only_who_wants_it_is_an_extended_resource() -> None:
    assert device_class(resource(), DRIVER).spec.extended_resource_name is None
    asked = device_class(resource(dra=DraOptions(extended_resource=True)), DRIVER)
    assert asked.spec.extended_resource_name == "example.com/gpu"
    assert not validate_create(asked)
