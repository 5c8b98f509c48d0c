"""DeviceClasses: the names by which claims request the devices of a resource."""

from dra_plugin.publishing.attributes import RESOURCE
from resourceapi.objects import ObjectMeta, v1
from resources.resource import Resource


def class_name(resource: str) -> str:
    """Return the class's name for a resource: `gpu.example.com` for `example.com/gpu`."""
    domain, _, name = resource.partition("/")
    return f"{name.lower().replace('_', '-')}.{domain}"


def device_class(resource: Resource, driver: str) -> v1.DeviceClass:
    """Return the class that selects what `driver` offers of `resource`."""
    selector = f'device.driver == "{driver}" && device.attributes["{driver}"].{RESOURCE} == "{resource.name}"'
    return v1.DeviceClass(
        metadata=ObjectMeta(name=class_name(resource.name)),
        spec=v1.DeviceClassSpec(
            selectors=(v1.DeviceSelector(cel=v1.CELDeviceSelector(expression=selector)),),
            extended_resource_name=resource.name if resource.dra.extended_resource else None,
        ),
    )
