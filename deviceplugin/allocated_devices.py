"""The devices of an answer to Allocate, as an annotation of the container, which the kubelet stores.

If the lease is lost while a device is away, nothing else records the device of a unit with another name, the members of
a group, or the devices that a device is a part of. If the unit's name is sufficient there is no annotation.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hostdevices import Device
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.resource import Resource


class AllocatedDevice(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An allocated device, by device ids: itself, the members of a group, the devices that it is a part of."""

    id: str
    members: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()


def annotation(resource_name: str) -> str:
    """Return the annotation's name; domains have no underscore, so it is unique for each resource."""
    return f"devices.nodeplug.dev/{resource_name.replace('/', '_')}"


def annotate(response: api.ContainerAllocateResponse, resource: Resource, devices: Sequence[Device]) -> None:
    """Add the devices to an answer, in the order of its units, if their names alone are not sufficient."""
    if resource.ids != "identity" or any(device.children or device.parents for device in devices):
        allocated = [AllocatedDevice(x.id, tuple(sorted(x.children)), tuple(sorted(x.parents))) for x in devices]
        response.annotations[annotation(resource.name)] = msgspec.json.encode(allocated).decode()


def read(response: api.ContainerAllocateResponse, resource_name: str) -> list[AllocatedDevice]:
    """Return the devices in an answer's annotation; empty without one, or if it is unreadable."""
    try:
        return msgspec.json.decode(
            response.annotations.get(annotation(resource_name), "[]"), type=list[AllocatedDevice]
        )
    except msgspec.MsgspecError:
        return []
