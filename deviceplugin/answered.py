"""What an answer to Allocate says of its devices: the kubelet keeps it, and our record may be lost."""

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from deviceplugin import given
from deviceplugin.given import Given
from deviceplugin.response import env_name
from deviceplugin.units import name_in
from hostdevices import Device, Devnode
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def decode(response: bytes | None) -> api.ContainerAllocateResponse:
    """Return the answer; an empty one where the kubelet kept none, or what nobody can read."""
    try:
        return api.ContainerAllocateResponse.FromString(response or b"")
    except DecodeError:  # what the kubelet keeps is its own; without it the lease is one all the same
        return api.ContainerAllocateResponse()


def device_of(answered: api.ContainerAllocateResponse, resource_name: str, unit_id: str) -> Given | None:
    """Return the device that a unit was then; None where the answer does not say it.

    The devices are in the order of the units in our variable. What is called like the unit today may be another device.
    """
    names = dict.fromkeys(map(name_in, answered.envs.get(env_name(resource_name), "").split(",")))
    devices = _devices(answered, resource_name)
    return dict(zip(names, devices, strict=True)).get(name_in(unit_id)) if len(names) == len(devices) else None


def owners(answered: api.ContainerAllocateResponse, resource_name: str) -> dict[str, str]:
    """Return the ids of the devices that had the nodes then, by path; nothing where the answer does not say it.

    Nodes are in the order of the devices: where there are as many, each device has one.
    """
    ids = [device.id for device in _devices(answered, resource_name)]
    paths = [node.host_path for node in answered.devices]
    return dict(zip(paths, ids, strict=True)) if len(paths) == len(ids) else {}


def _devices(answered: api.ContainerAllocateResponse, resource_name: str) -> list[Given]:
    """Return the devices in their order: as our annotation says, or as our CDI names do, which are our own ids."""
    return given.read(answered, resource_name) or [Given(x.name.partition("=")[2]) for x in answered.cdi_devices]


def with_answered_paths(answered: api.ContainerAllocateResponse, resource_name: str, device: Device) -> Device:
    """Return a device with its nodes where the container has them, which CDI names alone do not say."""
    inside = {node.host_path: node.container_path for node in answered.devices}
    before = [path for path, owner in owners(answered, resource_name).items() if owner == device.id]
    if len(device.devnodes) == len(before) == 1:  # it may be somewhere else by now
        inside = {device.devnodes[0].path: "" if inside[before[0]] == before[0] else inside[before[0]]}

    def at(node: Devnode) -> Devnode:
        path = inside.get(node.path, node.container_path)
        return replace(node, container_path="" if path == node.path else path)

    return replace(device, devnodes=tuple(map(at, device.devnodes)))
