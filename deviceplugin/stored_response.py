"""Reads an answer to Allocate for its devices: the kubelet stores it, and the lease's record can be lost."""

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from deviceplugin import allocated_devices
from deviceplugin.allocated_devices import AllocatedDevice
from deviceplugin.response import env_name
from deviceplugin.units import device_name_of
from hostdevices import Device, Devnode
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def decode(response: bytes | None) -> api.ContainerAllocateResponse:
    """Return the answer; an empty one if the kubelet stored none, or if it is unreadable."""
    try:
        return api.ContainerAllocateResponse.FromString(response or b"")
    except DecodeError:  # in the kubelet's file; the lease is restored without the answer
        return api.ContainerAllocateResponse()


def owners(response: api.ContainerAllocateResponse, resource_name: str) -> dict[str, str]:
    """Return the ids of the devices that had the nodes then, by path; empty if the answer does not show it.

    Nodes are in the order of the devices: if there are as many nodes as devices, each device has one.
    """
    ids = [device.id for device in _devices(response, resource_name)]
    paths = [node.host_path for node in response.devices]
    return dict(zip(paths, ids, strict=True)) if len(paths) == len(ids) else {}


def _devices(response: api.ContainerAllocateResponse, resource_name: str) -> list[AllocatedDevice]:
    """Return the devices in order: from nodeplug's annotation, or from its CDI names, which contain the device ids."""
    return allocated_devices.read(response, resource_name) or [
        AllocatedDevice(x.name.partition("=")[2]) for x in response.cdi_devices
    ]


class StoredResponse:
    """The devices of one answer, indexed because there can be thousands."""

    def __init__(self, response: bytes | None, resource_name: str) -> None:
        """Read the answer that the kubelet stores (see `decode`)."""
        self.response = answer = decode(response)
        names = dict.fromkeys(map(device_name_of, answer.envs.get(env_name(resource_name), "").split(",")))
        devices = _devices(answer, resource_name)
        self._by_unit = dict(zip(names, devices, strict=True)) if len(names) == len(devices) else {}
        self._container_paths = {node.host_path: node.container_path for node in answer.devices}
        self._paths: dict[str, list[str]] = {}  # that each device had
        for path, owner in owners(answer, resource_name).items():
            self._paths.setdefault(owner, []).append(path)

    def device_of(self, unit_id: str) -> AllocatedDevice | None:
        """Return the device of a unit at the time of the answer; None if the answer does not show it.

        The devices are in the order of the units in nodeplug's variable. The unit's name can belong to another device
        today.
        """
        return self._by_unit.get(device_name_of(unit_id))

    def with_container_paths(self, device: Device) -> Device:
        """Return a device with its nodes at the container's paths, which CDI names alone do not show."""
        container_paths, former_paths = self._container_paths, self._paths.get(device.id, ())
        if len(device.devnodes) == len(former_paths) == 1:  # it can be at another path by now
            container_paths = {
                device.devnodes[0].path: ""
                if container_paths[former_paths[0]] == former_paths[0]
                else container_paths[former_paths[0]]
            }

        def at(node: Devnode) -> Devnode:
            path = container_paths.get(node.path, node.container_path)
            return replace(node, container_path="" if path == node.path else path)

        return replace(device, devnodes=tuple(map(at, device.devnodes)))
