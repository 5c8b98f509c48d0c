"""generic-device-plugin: named devices, each with groups of paths or of USB ids.

A group's nodes are allocated together; a group that matches several nodes makes several devices. `count` is the number
of containers that can have one. Source: squat/generic-device-plugin, its flags and configuration file, path.go and
usb.go.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, field

from hostdevices import Host
from hostdevices.globs import is_glob
from nodeplug.convert.conversion import LeftOut, Offered, Values, is_folder, select_paths

_EACH = "each is allocated separately; before, all that matched one group were one device."
_BY_TEXT = (
    "nodes whose wildcards match the same text belong together; before, they were combined in the order of their paths."
)


class Path(Struct, frozen=True, rename="camel"):
    """A node, or a file that is mounted, and its path in the container."""

    path: str
    mount_path: str = ""
    permissions: str = ""
    read_only: bool = False
    type: Literal["Device", "Mount"] = "Device"
    limit: int = 1
    optional: bool = False

    @property
    def inside(self) -> str:
        """The path in the container, if it differs; for a folder (`/dev/serial/`) the node's own name in it."""
        name = self.path.rpartition("/")[2] if self.mount_path.endswith("/") and not is_glob(self.path) else ""
        return "" if f"{self.mount_path}{name}" == self.path else f"{self.mount_path}{name}"


class Usb(Struct, frozen=True):
    """A USB device by its ids, four hexadecimal digits each."""

    vendor: str
    product: str
    serial: str = ""


class Group(Struct, frozen=True):
    """Nodes that are allocated together, and to how many containers at once."""

    paths: tuple[Path, ...] = ()
    usb: tuple[Usb, ...] = ()
    count: int = 1

    @property
    def shares(self) -> int:
        """How many containers can have one at once; 0 means one."""
        return self.count or 1


class Device(Struct, frozen=True):
    """A resource."""

    name: str
    groups: tuple[Group, ...]


class File(Struct, frozen=True, rename="kebab"):
    """The file, or the command line; and the labels of nodes, of a DaemonSet."""

    devices: tuple[Device, ...]
    domain: str = ""
    plugin_directory: str = ""
    log_level: str = ""
    listen: str = ""
    node_selector: dict[str, str] = field(default_factory=dict, name="nodeSelector")


class _NotConvertible(Exception):
    """Groups that one resource cannot express."""


def resources(file: File, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each device."""
    for device in file.devices:
        name = f"{file.domain or domain}/{device.name}"
        try:
            yield _resource(name, device.groups, host)
        except _NotConvertible as reason:
            yield LeftOut(name, str(reason))


def _resource(name: str, groups: Sequence[Group], host: Host) -> Offered:
    if not groups:
        raise _NotConvertible("it has no groups, and therefore no devices")
    values: Values = {"name": name}
    mounts = _mounts(groups)
    nodes = [[path for path in group.paths if path.type == "Device"] for group in groups]
    remarks: tuple[str, ...] = ()
    if any(path.inside.endswith("/") for group in groups for path in group.paths):
        raise _NotConvertible(
            "files that match a glob are in a folder of the container under their own names (`mountPath` with a /)"
        )
    if any(group and all(path.optional for path in group) and len(group) > 1 for group in nodes):
        raise _NotConvertible("all nodes of a group are optional, and nodeplug needs at least one that is not")
    if any(path.limit > 1 for group in nodes for path in group):
        raise _NotConvertible("a node that several of its devices have at the same time (`limit`)")
    if all(group.usb and not group.paths for group in groups):
        usb, remarks = _usb(groups)
        values |= usb
    elif any(group.usb for group in groups) or not all(nodes):
        raise _NotConvertible("it has groups without a device node, or both USB ids and paths")
    elif all(len(group) == 1 for group in nodes):
        values |= _single_nodes([path for (path,) in nodes], host)
    else:
        values["group"] = {"paths": _grouped_paths(nodes)}
        remarks = (_BY_TEXT,) if any(is_glob(path.path) for group in nodes for path in group) else ()
    permissions = {path.permissions for group in nodes for path in group} - {""}
    if len(permissions) > 1:
        raise _NotConvertible("its nodes have different permissions, and a resource has the same permissions for all")
    if permissions:
        (allowed,) = permissions
        values["permissions"] = "".join(x for x in "rwm" if x in allowed)
    values |= _shares(groups, nodes)
    if mounts:
        values["mounts"] = mounts
    return Offered(values, remarks, tuple(mount["hostPath"] for mount in mounts))


def _shares(groups: Sequence[Group], nodes: Sequence[Sequence[Path]]) -> Values:
    """Return how many containers can have a device at once; groups of one node can each have another number."""
    counts = [group.shares for group in groups]
    most = max(counts, key=counts.count)
    shares: Values = {"shares": most} if most != 1 else {}
    if len(set(counts)) == 1:
        return shares
    if not all(len(group) == 1 for group in nodes):
        raise _NotConvertible("its groups have different counts, and devices with several nodes have the same count")
    others = [
        {"select": {"path": group[0].path}, "count": count}
        for group, count in zip(nodes, counts, strict=True)
        if count != most
    ]
    return {**shares, "sharesOf": others}


def _usb(groups: Sequence[Group]) -> tuple[Values, tuple[str, ...]]:
    ids = [
        {"vendor": x.vendor.lower(), "product": x.product.lower(), **({"serial": x.serial} if x.serial else {})}
        for group in groups
        for x in group.usb
    ]
    if len(ids) == 1:
        return {"select": {"kind": "usb", "attributes": ids[0]}}, (_EACH,)
    values: Values = {"select": {"kind": "usb", "any": [{"attributes": attributes} for attributes in ids]}}
    if all(len(group.usb) == 1 for group in groups):
        return values, (_EACH,)
    if len(groups) > 1:
        raise _NotConvertible(
            "it has several groups of USB ids, some with more than one id, and a resource has one rule for all"
        )
    return {**values, "group": {"attribute": "bus"}}, ()  # an attribute that all of them have in common


def _single_nodes(paths: Sequence[Path], host: Host) -> Values:
    """Return the selector of devices with one node each, or of one folder."""
    folders = [path for path in paths if not is_glob(path.path) and is_folder(host, path.path.rstrip("/"))]
    inside = {path.inside for path in paths}
    if len(inside) > 1:
        raise _NotConvertible("its nodes are at different paths in the container, and a resource has one rule for all")
    values: Values = {}
    if folders and len(paths) > 1:
        raise _NotConvertible("it has a folder and other paths")
    if folders:
        values["group"] = {"folder": paths[0].path.rstrip("/")}
    else:
        values |= select_paths([path.path for path in paths])
    if at := inside.pop():
        values["containerPath"] = at
    return values


def _grouped_paths(groups: Sequence[Sequence[Path]]) -> list[Values]:
    """Return one rule for groups of nodes: if several differ in one text, that text becomes a wildcard."""
    if len({len(group) for group in groups}) != 1:
        raise _NotConvertible("its groups have different numbers of nodes")
    paths, texts = [], []
    for column in zip(*groups, strict=True):
        if len({path.inside or path.path for path in column}) != 1 and len(column) > 1:
            raise _NotConvertible("its groups are at different paths in the container")
        glob, text = _common_glob([path.path for path in column])
        texts.append(text)
        inside = column[0].inside or (column[0].path if len(column) > 1 else "")
        values: Values = {"path": glob}
        if inside and inside != glob:
            values["containerPath"] = inside
        if any(path.optional for path in column):
            values["optional"] = True
        paths.append(values)
    if len(set(texts)) != 1:
        raise _NotConvertible("its groups differ in more than one text")
    return paths


def _common_glob(paths: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a glob that matches paths which differ in one place, and the text of each in that place."""
    if len(paths) == 1:
        return paths[0], ()
    places = [i for i, characters in enumerate(zip(*paths, strict=False)) if len(set(characters)) > 1]
    if len({len(path) for path in paths}) != 1 or len(places) != 1:
        raise _NotConvertible("its groups differ in more than one character")
    (place,) = places
    texts = tuple(path[place] for path in paths)
    if not all(text.isalnum() for text in texts):
        raise _NotConvertible("its groups differ in more than letters and digits")
    return f"{paths[0][:place]}[{''.join(texts)}]{paths[0][place + 1 :]}", texts


def _mounts(groups: Sequence[Group]) -> list[Values]:
    found = [tuple(path for path in group.paths if path.type == "Mount") for group in groups]
    if len(set(found)) > 1:
        raise _NotConvertible("its groups mount different files, and a resource has the same mounts for all")
    if any(is_glob(path.path) for path in found[0]):
        raise _NotConvertible("it mounts all files that match a glob")
    return [
        {
            "hostPath": path.path,
            **({"containerPath": path.inside} if path.inside else {}),
            **({} if path.read_only else {"readOnly": False}),
        }
        for path in found[0]
    ]
