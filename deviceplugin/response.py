"""What a container gets: environment, mounts, device nodes, annotations and CDI names for the units handed out.

With CDI the nodes travel by name, in specs that `cdi_spec` describes; without, as plain device nodes. Never both: a
runtime would create each node twice.
"""

import re
from collections.abc import Iterable, Sequence

import cdi
from deviceplugin.units import Unit
from hostdevices import Device
from hostdevices.resource import NodeAccess, Resource
from hostdevices.template import render
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def container_response(resource: Resource, units: Sequence[Unit]) -> api.ContainerAllocateResponse:
    """Build the answer for one container."""
    devices = list({unit.device.id: unit.device for unit in units}.values())
    ids = [unit.id for unit in units]
    response = api.ContainerAllocateResponse(
        envs={env_name(resource.name): ",".join(ids)},
        annotations={key: render(value, ids, devices) for key, value in resource.annotations.items()},
        mounts=[
            api.Mount(host_path=m.host_path, container_path=m.container_path, read_only=m.read_only)
            for m in resource.mounts
        ],
    )
    response.envs.update({key: render(value, ids, devices) for key, value in resource.env.items()})
    if resource.cdi:
        kind = cdi.kind_of(resource.name)
        names = (cdi.qualified_name(kind, _cdi_device(resource, d).name) for d in devices if d.devnodes)
        response.cdi_devices.extend(api.CDIDevice(name=name) for name in names)
        return response
    nodes = {node.container_path or node.path: node for device in devices for node in device.devnodes}
    response.devices.extend(
        api.DeviceSpec(container_path=inside, host_path=node.path, permissions=resource.permissions)
        for inside, node in nodes.items()
    )
    return response


def env_name(resource_name: str) -> str:
    """Return the variable that tells a container which units it has: `NODEPLUG_EXAMPLE_COM_GPU`."""
    return "NODEPLUG_" + re.sub(r"[^A-Z0-9]", "_", resource_name.upper())


def cdi_spec(resource: Resource, devices: Iterable[Device]) -> cdi.Spec:
    """Describe a resource's devices to the container runtime; those without a node need no description."""
    return cdi.Spec.of(cdi.kind_of(resource.name), (_cdi_device(resource, d) for d in devices if d.devnodes))


def _cdi_device(resource: Resource, device: Device) -> cdi.Device:
    access = resource.access or NodeAccess()
    nodes = tuple(
        cdi.DeviceNode.of(
            node.path,
            container_path=node.container_path,
            target=node.target,
            permissions=resource.permissions,
            uid=access.uid,
            gid=access.gid,
            file_mode=access.mode,
        )
        for node in device.devnodes
    )
    return cdi.Device.of(device.id, cdi.ContainerEdits(device_nodes=nodes))
