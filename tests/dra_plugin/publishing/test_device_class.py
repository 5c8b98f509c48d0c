"""The generated DeviceClass: servers accept it, and it selects the resource's devices and no others."""

from dra_plugin.publishing.device_class import class_name, device_class
from resourceapi.cel import DeviceView, compile_selector, device_environment
from resourceapi.objects import v1
from resourceapi.objects.validate import validate_create
from resources.resource import DraOptions
from tests.dra_plugin.offering import DRIVER, device, offering, published, resource

# The features of a new class that servers of all versions accept.
ENVIRONMENT = device_environment(stored=False, consumable_capacity=False, list_type_attributes=False)


def selects(one: v1.DeviceClass, shown: v1.Device, driver: str = DRIVER) -> bool:
    (selector,) = one.spec.selectors
    assert selector.cel is not None
    compiled = compile_selector(selector.cel.expression, ENVIRONMENT)
    return compiled.matches(DeviceView(driver, shown.attributes, shown.capacity, shown.allow_multiple_allocations))


def test_class_name_is_derived_from_the_resource_name() -> None:
    assert class_name("example.com/gpu") == "gpu.example.com"
    assert class_name("example.com/SRIOV_net") == "sriov-net.example.com"


def test_class_selects_only_devices_of_its_resource() -> None:
    resources = [resource("example.com/gpu"), resource("example.com/fpga", shares=2)]
    assigned = {"example.com/gpu": [device("gpu-1")], "example.com/fpga": [device("fpga-1", kind="accel")]}
    shown = published(offering(resources, assigned))
    gpu, fpga = (device_class(x, DRIVER) for x in resources)
    assert not validate_create(gpu)
    assert not validate_create(fpga)
    assert [name for name, x in shown.items() if selects(gpu, x)] == ["gpu-1"]
    assert [name for name, x in shown.items() if selects(fpga, x)] == ["fpga-1"]


def test_class_does_not_select_devices_of_other_drivers() -> None:
    assigned = {"example.com/gpu": [device("gpu-1")]}
    shown = published(offering([resource()], assigned))["gpu-1"]
    assert not selects(device_class(resource(), DRIVER), shown, driver="other.example.com")
    assert not selects(device_class(resource(), DRIVER), v1.Device(name="bare"), driver="other.example.com")


def test_class_has_an_extended_resource_only_when_configured() -> None:
    assert device_class(resource(), DRIVER).spec.extended_resource_name is None
    asked = device_class(resource(dra=DraOptions(extended_resource=True)), DRIVER)
    assert asked.spec.extended_resource_name == "example.com/gpu"
    assert not validate_create(asked)
