"""The interface between scenarios and a kubelet, either the stand-in or the real one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from checkpoint.kubelet_devices import DeviceCheckpoint, PodDevices, load
from grpcunix import Client, RpcError, Status, connect
from kubelet import Release
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub
from kubeletapi.podresources.v1 import api_pb2 as api
from resourceapi.objects import v1
from resourceapi.objects.claim_status_rules import MAX_USERS
from resourceapi.objects.core import Pod, Taint

_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]

INJECTED = "CDI_"  # prefix of the environment variables that contain the names of a container's CDI devices


ConcurrentAction = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """The default for `meanwhile`: do nothing."""


class ContainerView(Struct, frozen=True):
    """A container in the pod's status."""

    state: str
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None


def container_view(status: Mapping[str, Any]) -> ContainerView:
    """A container view from the API's container status."""
    ((state, details),) = status["state"].items()
    details = details or {}
    restarts, code = status["restartCount"], details.get("exitCode")
    return ContainerView(state, details.get("reason", ""), details.get("message", ""), restarts, code)


class PodView(Struct, frozen=True):
    """A pod's status."""

    uid: str
    phase: str
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerView] = {}


def pod_view(uid: str, status: Mapping[str, Any]) -> PodView:
    """A pod view from the API's pod status."""
    containers = {
        each["name"]: container_view(each)
        for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    }
    return PodView(uid, status["phase"], status.get("reason", ""), status.get("message", ""), containers)


class ShownHealth(Struct, frozen=True, order=True):
    """The health of a claimed device in a pod's status."""

    entry: str  # claim:<name>, claim:<name>/<request>
    id: str
    health: str
    message: str = ""


class World(Protocol):
    """A node with a kubelet."""

    kubelet_folder: Path
    cdi_folder: Path
    release: Release
    node_name: str

    async def allocatable(self) -> Mapping[str, int]:
        """What the node has for pods: resource -> thousandths of a cpu, whole units of anything else."""
        ...

    async def set_node(self, labels: Mapping[str, str], taints: Sequence[Taint] = ()) -> None:
        """Set the node's taints, and its labels of `both.example`; the kubelet knows them when this returns."""
        ...

    async def run_static(self, pod: Pod) -> None:
        """Add a static pod manifest."""
        ...

    async def remove_static(self, name: str) -> None:
        """Remove a static pod manifest, and wait until the pod is gone."""
        ...

    async def warned(self, pod: str) -> tuple[str, str]:
        """Wait for the kubelet's warning about a pod; return its reason and its message."""
        ...

    async def until_offered(self, resource: str, capacity: int, allocatable: int) -> None:
        """Wait until the node's status contains these numbers."""
        ...

    async def resources(self) -> Mapping[str, tuple[int, int]]:
        """Resource -> (capacity, allocatable)."""
        ...

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        """Give a pod to the kubelet without the scheduler; return when it is `Running`, `Failed` or a waiting reason.

        Its claims are reserved for it first, if possible. The claim statuses in the pod's status must already be final.
        """
        ...

    async def bind(self, pod: Pod) -> None:
        """Give a pod without claims to the kubelet without the scheduler, and do not wait."""
        ...

    async def view(self, name: str) -> PodView:
        """The pod's current status."""
        ...

    async def until_phase(self, name: str, phase: str) -> PodView:
        """Wait until the pod has this phase, and return its status."""
        ...

    async def until_device_health(self, name: str, health: str) -> None:
        """Wait until the status contains this health of the first device of the pod's first container."""
        ...

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        """Let a container exit with 0; return when the pod's phase is `until`, or the container was `restarted`."""
        ...

    async def lose_sandbox(self, name: str) -> PodView:
        """End a pod's sandbox and all its containers; return when its first container runs again."""
        ...

    async def until_ended(self, name: str) -> None:
        """Wait until the kubelet has ended the pod's first container for good."""
        ...

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Delete a pod and wait until it no longer exists; `force` does not wait for the kubelet."""
        ...

    async def last_view(self, name: str) -> PodView:
        """Delete a pod, wait until it no longer exists, and return its last status."""
        ...

    async def until_ending(self, name: str) -> None:
        """Wait until the kubelet knows that a pod is being deleted."""
        ...

    async def restart_kubelet(self, meanwhile: ConcurrentAction = nothing, refused: str = "") -> None:
        """Restart the kubelet. All pods keep running except the one named `refused`.

        `meanwhile` runs before the new kubelet knows its pods.
        """
        ...

    def without_api_server(self) -> AbstractAsyncContextManager[None]:
        """Restart the kubelet without its API server. At the end both run, and the kubelet knows its pods."""
        ...

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until the kubelet has made a change to its files."""
        ...

    async def until_cgroup(self, uid: str, is_there: bool) -> None:
        """Wait until the cgroup of a pod exists, or does not exist."""
        ...

    async def until_state(self, pod: str, container: str, state: str) -> None:
        """Wait until a container is `waiting`, `running` or `terminated`."""
        ...

    async def put_claim(self, claim: v1.ResourceClaim) -> v1.ResourceClaim:
        """Create a claim that is already allocated, and return the stored claim."""
        ...

    async def remove_claim(self, name: str) -> None:
        """Delete a claim if it exists."""
        ...

    async def until_connected(self, endpoint: Path) -> None:
        """Wait until the kubelet can call the driver that was just registered. Until then it calls an older one."""
        ...

    async def prepare_failure(self, pod: str) -> str:
        """Wait for the pod's first event about a failed preparation of claims, and return its message."""
        ...

    async def metrics(self) -> str:
        """The text of the kubelet's /metrics."""
        ...

    async def injected(self, pod: str, container: str) -> list[str]:
        """The CDI devices of a container, in the runtime's order."""
        ...

    async def until_health(self, pod: str, shown: Sequence[ShownHealth]) -> None:
        """Wait until the status of the pod's first container contains exactly this."""
        ...


def claim_names(pod: Pod) -> list[str]:
    """The claims in a pod's spec, and those in its status."""
    extended = pod.status.extended_resource_claim_status
    named = [each.resource_claim_name for each in pod.spec.resource_claims]
    named += [each.resource_claim_name for each in pod.status.resource_claim_statuses]
    named += [extended.resource_claim_name] if extended is not None else []
    return [name for name in named if name]


def reserved(claim: v1.ResourceClaim, pod: str, uid: str) -> v1.ResourceClaim | None:
    """The claim with the pod in reservedFor, as the scheduler writes it; None if reservedFor is full."""
    users = claim.status.reserved_for
    if len(users) == MAX_USERS:
        return None
    user = v1.ResourceClaimConsumerReference(resource="pods", name=pod, uid=uid)
    status = msgspec.structs.replace(claim.status, reserved_for=(*users, user))
    return msgspec.structs.replace(claim, status=status)


class ScenarioFixture:
    """The resource, plugins and pods of one scenario in a world. The pods' names start with the scenario's name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.release = world.release
        self.name = name
        self.resource = f"both.example/{name}"
        self.folder = world.kubelet_folder / "device-plugins"
        self.registry = world.kubelet_folder / "plugins_registry"
        self.socket = self.folder / "kubelet.sock"
        self.file = self.folder / "kubelet_internal_checkpoint"
        self.stack = AsyncExitStack()  # closed at the end of the scenario, after the removal of its pods
        self._plugins = 0
        self._markers = 0
        self._pods: list[str] = []
        self._static_pods: list[str] = []

    async def close(self) -> None:
        """Remove everything that the scenario created."""
        async with self.stack:
            await self.remove_pods()

    async def counted(self, metric: str, **labels: str) -> list[Sample]:
        """The samples of one of the kubelet's metrics that have these labels."""
        families = text_string_to_metric_families(await self.world.metrics())
        return [
            sample
            for family in families
            for sample in family.samples
            if metric in (sample.name, family.name) and labels.items() <= sample.labels.items()
        ]

    async def remove_pods(self) -> None:
        """Remove all pods."""
        async with asyncio.TaskGroup() as removing:
            for pod in self._pods:
                removing.create_task(self.world.remove(pod))
            for pod in self._static_pods:
                removing.create_task(self.world.remove_static(pod))

    async def plugin(
        self, devices: Sequence[Device], *, folder: Path | None = None, register: bool = True, **options: Any
    ) -> DevicePluginStub:
        """A plugin of the scenario's resource."""
        self._plugins += 1
        path = (folder or self.folder) / f"{self.name}{self._plugins}.sock"
        plugin = DevicePluginStub(path, self.resource, devices, **options)
        await self.stack.enter_async_context(plugin)
        if register:
            await plugin.register(self.socket)
        return plugin

    async def offering(self, devices: Sequence[Device], **options: Any) -> DevicePluginStub:
        """A plugin whose devices are in the node's status and in the kubelet's file."""
        plugin = await self.plugin(devices, **options)
        healthy = [device.id for device in devices if device.is_healthy]
        await self.until_offered(len(devices), len(healthy))
        await self.until_written(healthy)
        return plugin

    async def until_offered(self, capacity: int, allocatable: int) -> None:
        """Wait until the node has this number of the scenario's devices."""
        await self.world.until_offered(self.resource, capacity, allocatable)

    async def until_events_processed(self) -> None:
        """Wait until the kubelet has processed all earlier events."""
        self._markers += 1
        name = f"{self.resource}-marker{self._markers}"
        marker = DevicePluginStub(self.folder / f"{self.name}-marker{self._markers}.sock", name, [Device("x")])
        async with marker:
            await marker.register(self.socket)
            await self.world.until_offered(name, 1, 1)

    async def refusal(self, plugin: DevicePluginStub, **fields: Any) -> str:
        """The error with which the kubelet refuses a plugin."""
        with pytest.raises(RpcError) as error:
            await plugin.register(self.socket, **fields)
        assert error.value.code is Status.UNKNOWN
        return error.value.details

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        """Run a pod, which is removed at the end."""
        self._pods.append(pod.metadata.name)
        return await self.world.run(pod, until)

    async def bind(self, pod: Pod) -> None:
        """Give a pod to the kubelet without waiting. It is removed at the end."""
        self._pods.append(pod.metadata.name)
        await self.world.bind(pod)

    async def set_node(self, labels: Mapping[str, str], taints: Sequence[Taint] = ()) -> None:
        """Set labels and taints of the node, which are removed at the end."""
        self.stack.push_async_callback(self.world.set_node, {})
        await self.world.set_node(labels, taints)

    async def run_static(self, pod: Pod) -> None:
        """Add a static pod, which is removed at the end."""
        self._static_pods.append(pod.metadata.name)
        await self.world.run_static(pod)

    def static_name(self, name: str) -> str:
        """The name of the pod of a static pod manifest."""
        return f"{name}-{self.world.node_name}"

    async def all_listed(self) -> list[str]:
        """The names of the pods in the pod resources API."""
        response = await self.ask("List", api.ListPodResourcesRequest())
        return [each.name for each in response.pod_resources]

    async def rejection(self, pod: Pod) -> str:
        """The part of the message that differs between rejected pods."""
        view = await self.run(pod, "Failed")
        assert (view.phase, view.reason, view.containers) == ("Failed", "UnexpectedAdmissionError", {})
        head, tail = "Pod was rejected: Allocate failed due to ", ", which is unexpected"
        assert view.message.startswith(head)
        assert view.message.endswith(tail)
        return view.message[len(head) : -len(tail)]

    async def until_written(self, healthy: Sequence[str]) -> None:
        """Wait until the kubelet's file contains these devices. The kubelet updates the node's status first."""

        def is_written() -> bool:
            if not self.file.exists():
                return False
            registered = self.checkpoint().registered or {}
            return self.resource in registered and sorted(registered[self.resource] or ()) == sorted(healthy)

        await self.world.until(is_written)

    def checkpoint(self) -> DeviceCheckpoint:
        """The content of the kubelet's file."""
        return load(self.file.read_bytes())

    def entries(self) -> list[PodDevices]:
        """The checkpoint's entries of the scenario's resource."""
        return [entry for entry in self.checkpoint().entries or () if entry.resource == self.resource]

    async def held(self, pod: str) -> dict[str, list[str]] | None:
        """Container -> IDs of the scenario's resource, from the pod resources API; None if it does not list the pod."""
        response = await self.ask("List", api.ListPodResourcesRequest())
        for each in response.pod_resources:
            if each.name == pod:
                return {
                    container.name: sorted(
                        {id_ for d in container.devices if d.resource_name == self.resource for id_ in d.device_ids}
                    )
                    for container in each.containers
                }
        return None

    async def placed(self, pod: str | None = None) -> list[tuple[str, int | None]]:
        """(ID, NUMA node) of each element that the pod resources API lists for a pod, or as allocatable."""
        if pod is None:
            elements = (await self.ask("GetAllocatableResources", api.AllocatableResourcesRequest())).devices
        else:
            request = api.GetPodResourcesRequest(pod_name=pod, pod_namespace="default")
            found = (await self.ask("Get", request)).pod_resources.containers
            elements = [element for container in found for element in container.devices]
        return sorted(
            (
                (each.device_ids[0], each.topology.nodes[0].ID if each.HasField("topology") else None)
                for each in elements
                if each.resource_name == self.resource
            ),
            key=str,
        )

    async def ask(self, method: str, request: Any) -> Any:
        """Call the pod resources API."""
        async with connect(self.world.kubelet_folder / "pod-resources" / "kubelet.sock") as channel:
            return await Client(channel, _LISTER).call(method, request)
