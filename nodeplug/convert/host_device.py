"""k8s-host-device-plugin: nodes of the host, all of them for every container that requests them, up to a number.

Source: everpeace/k8s-host-device-plugin, README and its examples.
"""

from collections.abc import Iterator

from msgspec import Struct

from hostdevices import Host
from hostdevices.globs import is_glob
from nodeplug.convert.conversion import LeftOut, Offered, Values, select_paths


class HostDevice(Struct, frozen=True, rename="camel"):
    """A node, and its path in the container. With a `*` in both, all matching nodes."""

    host_path: str
    container_path: str = ""
    permission: str = "rw"


class File(Struct, frozen=True, rename="camel"):
    """The file: one resource."""

    resource_name: str
    host_devices: tuple[HostDevice, ...]
    num_devices: int = 1
    socket_name: str = ""


def resources(file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield the resource."""
    name = file.resource_name if "/" in file.resource_name else f"{domain}/{file.resource_name}"
    found = _nodes(file)
    if isinstance(found, str):
        yield LeftOut(name, found)
        return
    values: Values = {"name": name, **found}
    if file.num_devices > 1:
        values["shares"] = file.num_devices
    yield Offered(values)


def _nodes(file: File) -> Values | str:
    """Return the selector of the nodes, or why there is no common one."""
    if file.num_devices < 1:
        return "no pod could have it (numDevices)"
    if not file.host_devices:
        return "it has no nodes (hostDevices)"
    permissions = {"".join(x for x in "rwm" if x in each.permission) for each in file.host_devices}
    if len(permissions) > 1:
        return "its nodes have different permissions, and a resource has the same permissions for all"
    (allowed,) = permissions
    values: Values = {} if allowed == "rw" else {"permissions": allowed}
    globs = [each for each in file.host_devices if is_glob(each.host_path)]
    if globs:
        folder, _, name = globs[0].host_path.rpartition("/")
        if len(file.host_devices) > 1 or name != "*" or is_glob(folder):
            return "each container gets all that matches a glob, which is possible only with a whole folder (hostPath)"
        return {"group": {"folder": folder}, **_inside(globs[0].container_path.removesuffix("/*"), folder), **values}
    members = [{"path": x.host_path, **_inside(x.container_path, x.host_path)} for x in file.host_devices]
    if len(members) > 1:
        return {"group": {"paths": members}, **values}
    (one,) = file.host_devices
    return {**select_paths([one.host_path]), **_inside(one.container_path, one.host_path), **values}


def _inside(container_path: str, host_path: str) -> Values:
    """Return the path in the container, if it differs."""
    return {} if container_path in ("", host_path) else {"containerPath": container_path}
