"""The device manager's interface, and a stub of it that does nothing.

Members of the earliest public interface (start, allocate for a whole pod, stop, ...) and today's stand side by side.
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
    """A node as admission sees it. `allocatable` is replaced, never changed in place."""

    allocatable: dict[str, int]


class PodAdmitAttributes(Struct, frozen=True):
    """The pod that asks to be admitted."""

    pod: Pod


class PluginHandler(Protocol):
    """Who takes the plugins of one type that the plugin watcher finds."""

    def validate_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Raise to refuse."""
        ...

    async def register_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Take the plugin; `endpoint` is a full path. Raise to refuse."""
        ...

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        """The plugin is gone."""
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
        """Give all containers of a pod their devices."""
        ...

    async def allocate_container(self, pod: Pod, container: Container) -> None:
        """Give one container its devices."""
        ...

    def update_plugin_resources(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Let the node's allocatable cover what is allocated already."""
        ...

    async def get_device_run_container_options(
        self, pod: Pod, container: Container
    ) -> DeviceRunContainerOptions | None:
        """What the runtime is told; empty if the container has no devices. Only `ManagerStub` says None."""
        ...

    def get_capacity(self) -> tuple[dict[str, int] | None, dict[str, int] | None, list[str]]:
        """Capacity, allocatable, and resources that are no longer there."""
        ...

    def get_watcher_handler(self) -> PluginHandler | None:
        """For the plugin watcher."""
        ...

    def check_health(self) -> None:
        """Raise if no device plugin can register."""
        ...

    def get_devices(self, pod_uid: str, container_name: str) -> dict[str, dict[str, Device]] | None:
        """What a container has: resource -> id -> device."""
        ...

    def get_allocatable_devices(self) -> dict[str, dict[str, Device]] | None:
        """What is healthy, in use or not."""
        ...

    def should_reset_extended_resource_capacity(self) -> bool:
        """Tell whether the node lost its state."""
        ...

    def get_topology_hints(self, pod: Pod, container: Container) -> dict[str, list[Hint] | None]:
        """Where a container's devices could come from."""
        ...

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, list[Hint] | None]:
        """Where a pod's devices could come from."""
        ...

    def update_allocated_devices(self) -> None:
        """Forget pods that are no longer active."""
        ...

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """`status` with the health of each container's devices."""
        ...

    def updates(self) -> asyncio.Queue[list[str]] | None:
        """Pods whose devices changed their health."""
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
        """No options."""
        return None

    def get_capacity(self) -> tuple[dict[str, int] | None, dict[str, int] | None, list[str]]:
        """No capacity, nothing removed."""
        return None, None, []

    def get_watcher_handler(self) -> PluginHandler | None:
        """No handler."""
        return None

    def check_health(self) -> None:
        """Always well."""

    def get_devices(self, pod_uid: str, container_name: str) -> dict[str, dict[str, Device]] | None:
        """No devices."""
        return None

    def get_allocatable_devices(self) -> dict[str, dict[str, Device]] | None:
        """No devices."""
        return None

    def should_reset_extended_resource_capacity(self) -> bool:
        """Never."""
        return False

    def get_topology_hints(self, pod: Pod, container: Container) -> dict[str, list[Hint] | None]:
        """No hints."""
        return {}

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, list[Hint] | None]:
        """No hints."""
        return {}

    def update_allocated_devices(self) -> None:
        """Do nothing."""

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """`status` as it is."""
        return status

    def updates(self) -> asyncio.Queue[list[str]] | None:
        """No updates."""
        return None
