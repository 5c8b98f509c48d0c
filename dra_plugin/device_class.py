"""DeviceClasses: the name by which claims ask for the devices of a resource."""

from hostdevices.resource import Resource
from resourceapi.objects import v1


def class_name(resource: str) -> str:
    """Return the class's name for a resource: `gpu.example.com` for `example.com/gpu`."""
    domain, _, name = resource.partition("/")
    return f"{name.lower().replace('_', '-')}.{domain}"


def device_class(resource: Resource, driver: str) -> v1.DeviceClass:
    """Return the class that selects what `driver` offers of `resource`."""
    raise NotImplementedError
