"""What an answer to Allocate says of its devices: the kubelet keeps it, and our record may be lost."""

from google.protobuf.message import DecodeError

from cdi import split_qualified_name
from deviceplugin.response import env_name
from deviceplugin.units import name_in
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def decode(response: bytes | None) -> api.ContainerAllocateResponse:
    """Return the answer; an empty one where the kubelet kept none, or what nobody can read."""
    try:
        return api.ContainerAllocateResponse.FromString(response or b"")
    except DecodeError:  # what the kubelet keeps is its own; without it the lease is one all the same
        return api.ContainerAllocateResponse()


def device_of(answered: api.ContainerAllocateResponse, resource_name: str, unit_id: str) -> str:
    """Return the id of the device that a unit was then; empty where the answer does not say it.

    CDI names have our own ids, one for each device, in the order of the units in our variable. What is called like the
    unit today may be another device.
    """
    names = dict.fromkeys(map(name_in, answered.envs.get(env_name(resource_name), "").split(",")))
    ids = [split_qualified_name(x.name)[1] for x in answered.cdi_devices]
    return dict(zip(names, ids, strict=True)).get(name_in(unit_id), "") if len(names) == len(ids) else ""


def owners(answered: api.ContainerAllocateResponse) -> dict[str, str]:
    """Return the ids of the devices that had the nodes then, by path; nothing where the answer does not say it.

    Nodes and CDI names are in the order of the devices: where there are as many, each device has one.
    """
    ids = [split_qualified_name(x.name)[1] for x in answered.cdi_devices]
    paths = [node.host_path for node in answered.devices]
    return dict(zip(paths, ids, strict=True)) if len(paths) == len(ids) else {}
