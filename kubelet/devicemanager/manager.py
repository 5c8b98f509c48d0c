"""The device manager's interface, and a stub of it that does nothing.

It has the members of the earliest public interface (start, allocate for a whole pod, stop, ...) and of today's.
Source: device manager specification, sections 0.1 and 0.2.
"""

# ruff: noqa: ARG002 - a stub that does nothing uses no argument
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from kubelet.devicemanager.device import Device
from kubelet.devicemanager.options import DeviceRunContainerOptions
from kubelet.topology import Hint
from resourceapi.objects.core import Container, Pod, PodStatus

ActivePodsFunc = Callable[[], Sequence[Pod]]
SourcesReady = Callable[[], bool]

ContainerMap = Mapping[tuple[str, str], str]  # (pod uid, container name) -> container id


class NodeInfo(Struct):
    """The part of a node that admission uses. `allocatable` is replaced, never changed in place."""

    allocatable: dict[str, int]


class PodAdmitAttributes(Struct, frozen=True):
    """The pod to admit."""

    pod: Pod


class PluginHandler(Protocol):
    """Handles the plugins of one type that the plugin watcher finds."""

    def validate_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Check a plugin; raise any error to refuse it."""
        ...

    async def register_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Register the plugin; `endpoint` is a full path. Raise any error to refuse it."""
        ...

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        """Deregister a plugin that is gone."""
        ...


class Manager(Protocol):
    """Manages all the device plugins running on a node."""

    async def start(
        self,
        active_pods: ActivePodsFunc,
        sources_ready: SourcesReady,
        initial_containers: ContainerMap = ...,
        initial_container_running_set: frozenset[str] = ...,
    ) -> None:
        """Start the registration service."""
        ...

    async def stop(self) -> None:
        """Stop. Can be called at any time, any number of times."""
        ...

    async def allocate(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Allocate the devices of all containers of a pod."""
        ...

    async def allocate_container(self, pod: Pod, container: Container) -> None:
        """Allocate the devices of one container."""
        ...

    def update_plugin_resources(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Raise the node's allocatable to cover the devices that are allocated already."""
        ...

    async def get_device_run_container_options(
        self, pod: Pod, container: Container
    ) -> DeviceRunContainerOptions | None:
        """Return the options for the runtime; empty for a container without devices. `ManagerStub` returns None."""
        ...

    def get_capacity(self) -> tuple[dict[str, int] | None, dict[str, int] | None, list[str]]:
        """Return capacity, allocatable, and the removed resources."""
        ...

    def get_watcher_handler(self) -> PluginHandler | None:
        """Return the handler of device plugins for the plugin watcher."""
        ...

    def check_health(self) -> None:
        """Raise if no device plugin can register."""
        ...

    def get_devices(self, pod_uid: str, container_name: str) -> dict[str, dict[str, Device]] | None:
        """Return the devices of a container: resource -> id -> device."""
        ...

    def get_allocatable_devices(self) -> dict[str, dict[str, Device]] | None:
        """Return the healthy devices, in use or not."""
        ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Return whether the node lost its state."""
        ...

    def get_topology_hints(self, pod: Pod, container: Container) -> dict[str, list[Hint] | None]:
        """Return the NUMA nodes that could serve a container's devices, by resource."""
        ...

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, list[Hint] | None]:
        """Return the NUMA nodes that could serve a pod's devices, by resource."""
        ...

    def update_allocated_devices(self) -> None:
        """Free the devices of pods that are no longer active."""
        ...

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return `status` with the health of each container's devices."""
        ...

    def updates(self) -> asyncio.Queue[list[str]] | None:
        """Return the queue of the uids of pods whose devices changed their health."""
        ...


class ManagerStub:
    """A device manager that does nothing."""

    async def start(
        self,
        active_pods: ActivePodsFunc,
        sources_ready: SourcesReady,
        initial_containers: ContainerMap | None = None,
        initial_container_running_set: frozenset[str] = frozenset(),
    ) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def allocate(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Do nothing."""

    async def allocate_container(self, pod: Pod, container: Container) -> None:
        """Do nothing."""

    def update_plugin_resources(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Do nothing."""

    async def get_device_run_container_options(
        self, pod: Pod, container: Container
    ) -> DeviceRunContainerOptions | None:
        """Return None."""
        return None

    def get_capacity(self) -> tuple[dict[str, int] | None, dict[str, int] | None, list[str]]:
        """Return no capacity and no removed resources."""
        return None, None, []

    def get_watcher_handler(self) -> PluginHandler | None:
        """Return no handler."""
        return None

    def check_health(self) -> None:
        """Do nothing; always healthy."""

    def get_devices(self, pod_uid: str, container_name: str) -> dict[str, dict[str, Device]] | None:
        """Return no devices."""
        return None

    def get_allocatable_devices(self) -> dict[str, dict[str, Device]] | None:
        """Return no devices."""
        return None

    def should_reset_extended_resource_capacity(self) -> bool:
        """Return False."""
        return False

    def get_topology_hints(self, pod: Pod, container: Container) -> dict[str, list[Hint] | None]:
        """Return no hints."""
        return {}

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, list[Hint] | None]:
        """Return no hints."""
        return {}

    def update_allocated_devices(self) -> None:
        """Do nothing."""

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return `status` unchanged."""
        return status

    def updates(self) -> asyncio.Queue[list[str]] | None:
        """Return no queue."""
        return None
