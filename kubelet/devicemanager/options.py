"""The options that a container runtime gets for a container's devices: the plugins' responses, merged.

If two responses set the same variable, path or annotation, the first wins; a conflict is logged and is no error.
Source: device manager specification, section 5.
"""

import logging
from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

T = TypeVar("T")

log = logging.getLogger(__name__)


class EnvVar(Struct, frozen=True):
    """An environment variable."""

    name: str
    value: str


class Mount(Struct, frozen=True):
    """A folder or file of the host that is mounted in the container."""

    name: str
    container_path: str
    host_path: str
    read_only: bool = False
    selinux_relabel: bool = False


class DeviceInfo(Struct, frozen=True):
    """A device node of the host in the container."""

    path_on_host: str
    path_in_container: str
    permissions: str


class Annotation(Struct, frozen=True):
    """An annotation of the container's runtime configuration."""

    name: str
    value: str


class CDIDevice(Struct, frozen=True):
    """A fully qualified CDI device name."""

    name: str


class DeviceRunContainerOptions(Struct, frozen=True):
    """The combined settings of a container's devices."""

    envs: tuple[EnvVar, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    cdi_devices: tuple[CDIDevice, ...] = ()


def merge(responses: Iterable[api.ContainerAllocateResponse]) -> DeviceRunContainerOptions:
    """Merge the responses; the first value of a key wins."""
    envs = _FirstWins[EnvVar]("environment variable")
    mounts = _FirstWins[Mount]("mount")
    devices = _FirstWins[DeviceInfo]("device")
    annotations = _FirstWins[Annotation]("annotation")
    cdi: dict[str, None] = {}
    for response in responses:
        for name, value in response.envs.items():
            envs.offer(name, value, EnvVar(name, value))
        for device in response.devices:
            info = DeviceInfo(device.host_path, device.container_path, device.permissions)
            devices.offer(device.container_path, device.host_path, info)
        for mount in response.mounts:
            path = mount.container_path
            mounts.offer(path, mount.host_path, Mount(path, path, mount.host_path, mount.read_only))
        for name, value in response.annotations.items():
            annotations.offer(name, value, Annotation(name, value))
        cdi.update((each.name, None) for each in response.cdi_devices)
    return DeviceRunContainerOptions(
        envs=envs.settings(),
        mounts=mounts.settings(),
        devices=devices.settings(),
        annotations=annotations.settings(),
        cdi_devices=tuple(CDIDevice(name) for name in cdi),
    )


class _FirstWins(Generic[T]):
    """Keeps the first setting of each key."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._offers: dict[str, tuple[str, T]] = {}

    def offer(self, key: str, value: str, setting: T) -> None:
        """Keep `setting` unless `key` is set already; log an error if the values differ."""
        taken, _ = self._offers.setdefault(key, (value, setting))
        if taken != value:
            log.error("%s %s: %r is set already, %r is left out", self._what, key, taken, value)

    def settings(self) -> tuple[T, ...]:
        """Return the settings that were kept, in order."""
        return tuple(setting for _, setting in self._offers.values())
