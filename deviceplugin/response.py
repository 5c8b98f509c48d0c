"""What a container gets: environment, mounts, device nodes, annotations and CDI names for the units handed out.

With CDI the nodes travel by name, in specs that `cdi_spec` describes; without, as plain device nodes. Never both: a
runtime would create each node twice.
"""

import re
from collections.abc import Iterable, Sequence

import cdi
from deviceplugin.units import Unit
from hostdevices import Device
from hostdevices.resource import Resource
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

_FIELD = re.compile(r"\{([^{}]*)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def container_response(resource: Resource, units: Sequence[Unit]) -> api.ContainerAllocateResponse:
    """Build the answer for one container."""
    devices = list({unit.device.id: unit.device for unit in units}.values())
    response = api.ContainerAllocateResponse(
        envs={env_name(resource.name): ",".join(unit.id for unit in units)},
        annotations={key: render(value, units) for key, value in resource.annotations.items()},
        mounts=[
            api.Mount(host_path=m.host_path, container_path=m.container_path, read_only=m.read_only)
            for m in resource.mounts
        ],
    )
    response.envs.update({key: render(value, units) for key, value in resource.env.items()})
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


def render(template: str, units: Sequence[Unit]) -> str:
    """Fill `{ids}`, `{devnodes}` and `{attribute}` with the facts of the units, joined by commas; `{{` is a brace.

    Control characters are dropped: names and serial numbers come from the hardware, and the container's environment is
    no place for what somebody's stick calls itself.
    """

    def value(field: str) -> str:
        if field == "ids":
            return ",".join(unit.id for unit in units)
        devices = list({unit.device.id: unit.device for unit in units}.values())
        if field == "devnodes":
            return ",".join(node.container_path or node.path for device in devices for node in device.devnodes)
        return ",".join(_text(device.attributes.get(field, "")) for device in devices)

    parts = re.split(r"(\{\{|\}\})", template)
    filled = ("{" if p == "{{" else "}" if p == "}}" else _FIELD.sub(lambda m: value(m[1]), p) for p in parts)
    return _CONTROL.sub("", "".join(filled))


def cdi_spec(resource: Resource, devices: Iterable[Device]) -> cdi.Spec:
    """Describe a resource's devices to the container runtime; those without a node need no description."""
    return cdi.Spec.of(cdi.kind_of(resource.name), (_cdi_device(resource, d) for d in devices if d.devnodes))


def _cdi_device(resource: Resource, device: Device) -> cdi.Device:
    # Paths without numbers: the runtime looks the numbers up, and a reboot that renumbers a device does not rename it,
    # for the kubelet replays the names of old answers.
    access = resource.access
    nodes = tuple(
        cdi.DeviceNode(
            path=node.container_path or node.path,
            host_path=node.target or (node.path if node.container_path not in ("", node.path) else ""),
            permissions=resource.permissions,
            uid=access.uid if access else None,
            gid=access.gid if access else None,
            file_mode=access.mode if access else None,
        )
        for node in device.devnodes
    )
    return cdi.Device.of(device.id, cdi.ContainerEdits(device_nodes=nodes))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
