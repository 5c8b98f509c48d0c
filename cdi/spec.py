"""A CDI spec as data, with CDI's own JSON names, and the lowest version that covers its content.

A runtime refuses a file with an unknown version, so a spec never declares more than it needs. Source: Container Device
Interface specification 1.1.0.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from cdi.errors import InvalidSpec

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_FIRST = "0.3.0"  # the first version that nodeplug writes
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # YAML 1.2, 5.1 and 5.4; and the line breaks of 1.1

Uint32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Object(
    Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", kw_only=True, gc=False
):
    """An object of the file: absent members have defaults, unknown ones are errors, as in the runtimes."""


class DeviceNode(_Object, frozen=True, kw_only=True):
    """A device file that the container gets. The runtime takes fields that are not set from the host's file.

    `path` is the container's, `host_path` the host's if it differs. `permissions` are the device cgroup's: `r`, `w`,
    `m`, or `none`. `uid`, `gid` and `file_mode` let a user other than root open it.
    """

    path: str
    host_path: str = ""
    type: str = ""  # b, c, u or p
    major: Int64 | None = None
    minor: Int64 | None = None
    file_mode: Uint32 | None = None
    permissions: str = ""
    uid: Uint32 | None = None
    gid: Uint32 | None = None

    @classmethod
    def of(
        cls,
        path: str,
        *,
        container_path: str = "",
        target: str = "",
        permissions: str = "",
        uid: int | None = None,
        gid: int | None = None,
        file_mode: int | None = None,
    ) -> "DeviceNode":
        """Describe the host's node at `path`; if that is a link, `target` is the node: CDI does not follow links.

        The numbers are left out: the runtime reads them, so that a reboot that renumbers a device does not change its
        name (see `Device.of`), and the kubelet reuses the names of old answers.
        """
        return cls(
            path=container_path or path,
            host_path=target or (path if container_path not in ("", path) else ""),
            permissions=permissions,
            uid=uid,
            gid=gid,
            file_mode=file_mode,
        )


class Mount(_Object, frozen=True, kw_only=True):
    """A host path that the container sees. A bind mount needs `bind` or `rbind` among its options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""

    @classmethod
    def read_only(cls, host_path: str, container_path: str) -> "Mount":
        """Mount a folder or file of programs and data: read-only, without devices and setuid."""
        return cls(
            host_path=host_path, container_path=container_path, options=("ro", "nosuid", "nodev", "rbind", "rprivate")
        )


class Hook(_Object, frozen=True, kw_only=True):
    """A program that the runtime runs as root on the host. Read from other programs' files, never written."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: Int64 | None = None


class NetDevice(_Object, frozen=True, kw_only=True):
    """A network interface of the host that moves into the container under `name`."""

    host_interface_name: str
    name: str


class IntelRdt(_Object, frozen=True, kw_only=True):
    """Intel resource director settings: cache and memory bandwidth."""

    clos_id: str = field(default="", name="closID")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


class ContainerEdits(_Object, frozen=True, kw_only=True):
    """What changes in a container. Entries of `env` are NAME=VALUE."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[Uint32, ...] = ()


NO_EDITS = ContainerEdits()


class Device(_Object, frozen=True, kw_only=True):
    """A device by name, and what a container that requests it gets."""

    name: str
    annotations: Mapping[str, str] = {}
    container_edits: ContainerEdits

    @classmethod
    def of(cls, unit: str, edits: ContainerEdits) -> "Device":
        """Create a device named after what it is, never after where its nodes are.

        The kubelet reuses old answers when a container starts again, even after a reboot: the name must still exist
        then, and lead to where the device is now. The spec is written again when a node moves.
        """
        return cls(name=unit, container_edits=edits)


class Spec(_Object, frozen=True, kw_only=True):
    """One file: devices of one kind. Its own `container_edits` apply once if any of them is injected."""

    cdi_version: str
    kind: str
    annotations: Mapping[str, str] = {}
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = NO_EDITS

    @classmethod
    def of(
        cls,
        kind: str,
        devices: Iterable[Device],
        edits: ContainerEdits = NO_EDITS,
        annotations: Mapping[str, str] = {},
    ) -> "Spec":
        """Create a spec with the lowest version that covers it."""
        spec = cls(
            cdi_version="",
            kind=kind,
            annotations=annotations,
            devices=tuple(devices),
            container_edits=edits,
        )
        return msgspec.structs.replace(spec, cdi_version=required_version(spec))


def required_version(spec: Spec) -> str:
    """Return the lowest version of CDI that has everything that `spec` uses."""
    has_names = spec.annotations or "." in spec.kind.partition("/")[2]
    own = "0.6.0" if has_names else _FIRST  # all versions have one form and can be compared as text
    return max(own, _version_of_edits(spec.container_edits), *map(_version_of_device, spec.devices))


def _version_of_device(device: Device) -> str:
    own = "0.6.0" if device.annotations else "0.5.0" if device.name[:1].isdigit() else _FIRST
    return max(own, _version_of_edits(device.container_edits))


def _version_of_edits(edits: ContainerEdits) -> str:
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt is not None and (rdt.schemata or rdt.enable_monitoring)):
        return "1.1.0"
    if rdt is not None or edits.additional_gids:
        return "0.7.0"
    for node in edits.device_nodes:
        if node.host_path:
            return "0.5.0"
    for mount in edits.mounts:
        if mount.type:
            return "0.4.0"
    return _FIRST


def encode(spec: Spec) -> bytes:
    """Return the file's bytes: indented JSON; equal specs have equal bytes.

    Runtimes read it as YAML, in which some characters are errors and others are white space: these are escaped.
    """
    data = msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"
    if data.isascii() and b"\x7f" not in data:
        return data
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


def decode(data: bytes) -> Spec:
    """Read a JSON file. Raises `InvalidSpec` for anything but a spec; `validate` checks a spec's rules."""
    try:
        return msgspec.json.decode(data, type=Spec)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidSpec("not a CDI spec", [str(error)]) from error
