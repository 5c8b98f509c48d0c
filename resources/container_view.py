"""What a container sees of a device: its nodes at the paths that the resource sets.

If a device lacks something that its resource uses (a serial number in a variable, one node for one path), it stays with
the resource, and no new pod gets it: `Device.unavailable` has the reason. Pods that have it keep it.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from hostdevices.device import Device, Devnode
from hostdevices.readers.sysfs import TEXT_LIMIT
from resources import template
from resources.attribute_settings import providing_setting
from resources.foreign_cdi import cdi_name_problem
from resources.groups import Folder
from resources.mounts import is_plain
from resources.resource import VHOST_NET, Resource
from resources.shares import sharing_problem

_NOT_IN_PATHS = re.compile(r"[^A-Za-z0-9_.:@+-]")


class ContainerView:
    """How containers see the devices of one resource."""

    def __init__(self, resource: Resource) -> None:
        """Compute once what thousands of devices need."""
        self._resource = resource
        self._naming = [(place, text) for place, text in _templates(resource) if template.names_facts(text)]

    def of(self, device: Device) -> Device:
        """Return a device of the resource as a container sees it, or as unavailable, with the reason."""
        resource = self._resource
        if reason := self._unavailable_reason(device):
            return structs.replace(device, unavailable=reason)
        if not resource.container_path:
            return device
        inside = _filled(resource.container_path, device)
        if not is_plain(inside):
            return structs.replace(device, unavailable=f"containerPath of {resource.name} would be {inside} for it")
        if isinstance(resource.group, Folder):
            folder = resource.group.path
            return _with_paths(device, [f"{inside}{node.path.removeprefix(folder)}" for node in device.devnodes])
        if len(device.devnodes) > 1:
            reason = (
                f"it has {len(device.devnodes)} nodes, and containerPath of {resource.name} is for one; choose it with"
                " `nodes`, or set the path of each with `group.paths`"
            )
            return structs.replace(device, unavailable=reason)
        return _with_paths(device, [inside] * len(device.devnodes))

    def _unavailable_reason(self, device: Device) -> str:
        resource = self._resource
        for place, text in self._naming:
            if field := template.missing(text, device):
                in_common = " in which all its members agree" if device.kind == "group" else ""
                setting = providing_setting(field, device)
                return f"it has no {field}{in_common}, which {place} of {resource.name} uses{setting}"
        if resource.userspace is not None:
            if device.driver_files is None:
                return f"`userspace: {resource.userspace}` of {resource.name} is for GPUs that use this driver"
            if device.driver_files.problem:
                return device.driver_files.problem
        if resource.mps and resource.mps in device.absent_services:
            return (
                f"no MPS control daemon is at {resource.mps}, which `mps` of {resource.name} needs: start it"
                " (nvidia-cuda-mps-control), or, in a cluster, mount that folder in its pod (overlay driver-files)"
            )
        if resource.vhost_net and (path := next((x for x in VHOST_NET if x in device.absent_services), "")):
            return f"`vhostNet` of {resource.name} needs {path}, which does not exist; load its kernel module"
        if why := cdi_name_problem(resource.cdi_devices, device) or sharing_problem(resource, device):
            return why
        for name, value in resource.dra.attributes.items():
            size = len(template.render(value, [device.id], [device]).encode()) if isinstance(value, str) else 0
            if size > TEXT_LIMIT:
                return (
                    f"dra.attributes.{name} of {resource.name} has {size} bytes for it, and the limit is {TEXT_LIMIT}"
                )
        return ""


def duplicate_path(devices: Sequence[Device]) -> str:
    """Return a path at which a container with all of these would have two different nodes; empty if there is none."""
    found: dict[str, tuple[str, int, int]] = {}
    for device in devices:
        for node in device.devnodes:
            inside, number = node.container_path or node.path, (node.kind, node.major, node.minor)
            if found.setdefault(inside, number) != number:
                return inside
    return ""


def _templates(resource: Resource) -> Iterator[tuple[str, str]]:
    """Yield the templates of a resource, each with its place in the configuration."""
    yield "containerPath", resource.container_path
    yield from ((f"env.{name}", text) for name, text in resource.env.items())
    yield from ((f"annotations.{name}", text) for name, text in resource.annotations.items())
    yield from (("cdiDevices", text) for text in resource.cdi_devices)
    attributes = resource.dra.attributes.items()
    yield from ((f"dra.attributes.{name}", text) for name, text in attributes if isinstance(text, str))


def _filled(path: str, device: Device) -> str:
    """Fill the fields of a path; each value becomes a single name, whatever text a device reports."""
    plain = {
        name: _NOT_IN_PATHS.sub("_", value) if isinstance(value, str) else value
        for name, value in device.attributes.items()
    }
    return template.render(path, [device.id], [structs.replace(device, attributes=plain)], of="containerPath")


def _with_paths(device: Device, paths: Sequence[str]) -> Device:
    def at(node: Devnode, path: str) -> Devnode:
        return structs.replace(node, container_path="" if path == node.path else path)

    return structs.replace(device, devnodes=tuple(map(at, device.devnodes, paths)))
