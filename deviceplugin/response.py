"""What a container gets: environment, mounts, device nodes, annotations and CDI names for the allocated units.

With `cdi: auto` nodes are sent both as plain device nodes and by CDI names: a runtime without CDI ignores the names
silently, and one with CDI replaces the plain node by its own, with owner and mode. With `cdi: true` there are only
names: a container that starts again then finds its device wherever it is. CDI names of other vendors (`cdiDevices`) are
added in either case.
"""

import re
from functools import lru_cache

import cdi
from deviceplugin import allocated_devices
from deviceplugin.units import Units, devices_of
from hostdevices import Device
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.foreign_cdi import foreign_names
from resources.resource import VHOST_NET, NodeAccess, Resource
from resources.template import render


def container_response(resource: Resource, units: Units, *, with_cdi_names: bool) -> api.ContainerAllocateResponse:
    """Build the answer for one container; `with_cdi_names` states whether CDI names can be used.

    Raises `FieldMissing` or `ValueTooLong`.
    """
    devices = list(devices_of(units).values())
    ids = list(units)
    response = api.ContainerAllocateResponse()
    response.envs[env_name(resource.name)] = ",".join(ids)
    for key, value in resource.env.items():
        response.envs[key] = render(value, ids, devices, of=f"variable {key}")
    for key, value in resource.annotations.items():
        response.annotations[key] = render(value, ids, devices, of=f"annotation {key}")
    allocated_devices.annotate(response, resource, devices)
    for mount in resource.mounts:
        response.mounts.add(host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only)
    if with_cdi_names:
        kind = cdi.kind_of(resource.name)
        for device in devices:
            if device.devnodes:
                response.cdi_devices.add(name=cdi.qualified_name(kind, device.id))
    foreign = (name for device in devices for name in foreign_names(resource.cdi_devices, device))
    for name in dict.fromkeys(foreign):
        response.cdi_devices.add(name=name)
    if resource.cdi is not True:
        nodes = {node.container_path or node.path: node for device in devices for node in device.devnodes}
        for inside, node in nodes.items():
            response.devices.add(container_path=inside, host_path=node.path, permissions=resource.permissions)
    for path in VHOST_NET if resource.vhost_net else ():
        if all(node.host_path != path for node in response.devices):
            response.devices.add(container_path=path, host_path=path, permissions="rw")
    return response


def has_own_names(resource_name: str, response: api.ContainerAllocateResponse) -> bool:
    """Return whether an answer has CDI names from nodeplug, and not only from other vendors."""
    kind = cdi.kind_of(resource_name)
    return any(device.name.startswith(f"{kind}=") for device in response.cdi_devices)


@lru_cache(256)
def env_name(resource_name: str) -> str:
    """Return the name of the variable with a container's units: `NODEPLUG_EXAMPLE_COM_GPU`."""
    return "NODEPLUG_" + re.sub(r"[^A-Z0-9]", "_", resource_name.upper())


def cdi_device(device: Device, permissions: str, access: NodeAccess | None, *, with_driver: bool = False) -> cdi.Device:
    """Describe one device, as it is now; `with_driver` adds its driver's files."""
    owner = access or NodeAccess()
    nodes = tuple(
        cdi.DeviceNode.of(
            node.path,
            container_path=node.container_path,
            target=node.target,
            permissions=permissions,
            uid=owner.uid,
            gid=owner.gid,
            file_mode=owner.mode,
        )
        for node in device.devnodes
    )
    files = device.driver_files.mounts if with_driver and device.driver_files is not None else ()
    mounts = tuple(cdi.Mount.read_only(x.host_path, x.container_path) for x in files)
    return cdi.Device.of(device.id, cdi.ContainerEdits(device_nodes=nodes, mounts=mounts))
