"""What a scenario can do and see, whether the kubelet is the stand-in or the real one."""

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
from resourceapi.objects.core import Pod

_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]

INJECTED = "CDI_"  # how the variables begin by which containers show their CDI devices, the value is the device's name


Meanwhile = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Do nothing meanwhile."""


class ContainerView(Struct, frozen=True):
    """A container as the pod's status shows it."""

    state: str
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None


def container_view(status: Mapping[str, Any]) -> ContainerView:
    """A container from its status as the API has it."""
    ((state, details),) = status["state"].items()
    details = details or {}
    restarts, code = status["restartCount"], details.get("exitCode")
    return ContainerView(state, details.get("reason", ""), details.get("message", ""), restarts, code)


class PodView(Struct, frozen=True):
    """A pod as its status shows it."""

    uid: str
    phase: str
    reason: str = ""
    message: str = ""
    containers: Mapping[str, ContainerView] = {}


def pod_view(uid: str, status: Mapping[str, Any]) -> PodView:
    """A pod from its status as the API has it."""
    containers = {
        each["name"]: container_view(each)
        for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    }
    return PodView(uid, status["phase"], status.get("reason", ""), status.get("message", ""), containers)


class ShownHealth(Struct, frozen=True, order=True):
    """The health of a claimed device as a pod's status shows it."""

    entry: str  # claim:<name>, claim:<name>/<request>
    id: str
    health: str
    message: str = ""


class World(Protocol):
    """A node with a kubelet."""

    kubelet_folder: Path
    cdi_folder: Path
    release: Release

    async def offers(self, resource: str, capacity: int, allocatable: int) -> None:
        """Return when the node's status says so."""
        ...

    async def resources(self) -> Mapping[str, tuple[int, int]]:
        """Resource -> (capacity, allocatable)."""
        ...

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        """Hand a pod to the kubelet, past the scheduler; return when it is `Running`, `Failed` or a waiting reason.

        Its claims are reserved for it before, unless that is impossible; what its status says of claims is as it will
        be.
        """
        ...

    async def bind(self, pod: Pod) -> None:
        """Hand a pod without claims to the kubelet, past the scheduler, and wait for nothing."""
        ...

    async def view(self, name: str) -> PodView:
        """The pod's status now."""
        ...

    async def until_phase(self, name: str, phase: str) -> PodView:
        """The pod's status as soon as its phase is this."""
        ...

    async def has_health(self, name: str, health: str) -> None:
        """Return when the status shows this health of the first device of the pod's first container."""
        ...

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        """Let a container end well; return when the pod's phase is `until`, or the container was `restarted`."""
        ...

    async def lose_sandbox(self, name: str) -> PodView:
        """End a pod's sandbox with all its containers; return when its first container runs again."""
        ...

    async def was_ended(self, name: str) -> None:
        """Return when the kubelet has ended the pod's first container, and will not start it again."""
        ...

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Delete a pod and wait until it is gone; with `force` without the kubelet's consent."""
        ...

    async def last_view(self, name: str) -> PodView:
        """Delete a pod, wait until it is gone, and return its status as of then."""
        ...

    async def until_ending(self, name: str) -> None:
        """Return when the kubelet knows that a pod is being removed."""
        ...

    async def restart_kubelet(self, meanwhile: Meanwhile = nothing, refused: str = "") -> None:
        """Restart the kubelet; pods keep running, but for one that is `refused` by name.

        What is done `meanwhile` is done before it has heard of its pods.
        """
        ...

    def without_api_server(self) -> AbstractAsyncContextManager[None]:
        """Restart the kubelet while its API server is away; at the end that is back, and the kubelet knows its pods."""
        ...

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Return when something that the kubelet does to its files is done."""
        ...

    async def until_cgroup(self, uid: str, is_there: bool) -> None:
        """Return when the cgroup of a pod is there, or is not."""
        ...

    async def until_state(self, pod: str, container: str, state: str) -> None:
        """Return when a container is `waiting`, `running` or `terminated`."""
        ...

    async def put_claim(self, claim: v1.ResourceClaim) -> v1.ResourceClaim:
        """Create a claim that is allocated already; return it as it was stored."""
        ...

    async def remove_claim(self, name: str) -> None:
        """Delete a claim, if it is there."""
        ...

    async def until_connected(self, endpoint: Path) -> None:
        """Return when the kubelet may call what has just been registered: until then it calls an older one."""
        ...

    async def prepare_failure(self, pod: str) -> str:
        """What the pod's first event says of claims that could not be prepared, once there is one."""
        ...

    async def metrics(self) -> str:
        """What the kubelet's /metrics says."""
        ...

    async def injected(self, pod: str, container: str) -> list[str]:
        """The CDI devices that the runtime gave to a container, in order."""
        ...

    async def until_health(self, pod: str, shown: Sequence[ShownHealth]) -> None:
        """Return when the status of the pod's first container shows exactly this."""
        ...


def claim_names(pod: Pod) -> list[str]:
    """The claims that a pod names, and those that were found for it."""
    extended = pod.status.extended_resource_claim_status
    named = [each.resource_claim_name for each in pod.spec.resource_claims]
    named += [each.resource_claim_name for each in pod.status.resource_claim_statuses]
    named += [extended.resource_claim_name] if extended is not None else []
    return [name for name in named if name]


def reserved(claim: v1.ResourceClaim, pod: str, uid: str) -> v1.ResourceClaim | None:
    """The claim as the scheduler leaves it for a pod; None if it has no room."""
    users = claim.status.reserved_for
    if len(users) == MAX_USERS:
        return None
    user = v1.ResourceClaimConsumerReference(resource="pods", name=pod, uid=uid)
    status = msgspec.structs.replace(claim.status, reserved_for=(*users, user))
    return msgspec.structs.replace(claim, status=status)


class Stage:
    """One scenario's resource, plugins and pods on a world. Pods of one scenario begin with its name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.release = world.release
        self.name = name
        self.resource = f"both.example/{name}"
        self.folder = world.kubelet_folder / "device-plugins"
        self.registry = world.kubelet_folder / "plugins_registry"
        self.socket = self.folder / "kubelet.sock"
        self.file = self.folder / "kubelet_internal_checkpoint"
        self.stack = AsyncExitStack()  # what ends with the scenario, after its pods
        self._plugins = 0
        self._markers = 0
        self._pods: list[str] = []

    async def close(self) -> None:
        """Leave nothing behind."""
        async with self.stack:
            await self.remove_pods()

    async def counted(self, metric: str, **labels: str) -> list[Sample]:
        """The samples of a metric of the kubelet's that have these labels."""
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
        """A plugin whose devices the node offers, and which are in the kubelet's file."""
        plugin = await self.plugin(devices, **options)
        healthy = [device.id for device in devices if device.is_healthy]
        await self.offers(len(devices), len(healthy))
        await self.until_written(healthy)
        return plugin

    async def offers(self, capacity: int, allocatable: int) -> None:
        """Return when the node has so many of the scenario's devices."""
        await self.world.offers(self.resource, capacity, allocatable)

    async def is_settled(self) -> None:
        """Return when the kubelet has gone through all that happened before."""
        self._markers += 1
        name = f"{self.resource}-marker{self._markers}"
        marker = DevicePluginStub(self.folder / f"{self.name}-marker{self._markers}.sock", name, [Device("x")])
        async with marker:
            await marker.register(self.socket)
            await self.world.offers(name, 1, 1)

    async def refusal(self, plugin: DevicePluginStub, **fields: Any) -> str:
        """The text with which the kubelet refuses a plugin."""
        with pytest.raises(RpcError) as error:
            await plugin.register(self.socket, **fields)
        assert error.value.code is Status.UNKNOWN
        return error.value.details

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        """Run a pod that is removed at the end."""
        self._pods.append(pod.metadata.name)
        return await self.world.run(pod, until)

    async def bind(self, pod: Pod) -> None:
        """Hand a pod to the kubelet, and wait for nothing; it is removed at the end."""
        self._pods.append(pod.metadata.name)
        await self.world.bind(pod)

    async def all_listed(self) -> list[str]:
        """The names of the pods that pod resources lists."""
        response = await self.ask("List", api.ListPodResourcesRequest())
        return [each.name for each in response.pod_resources]

    async def rejection(self, pod: Pod) -> str:
        """The text between the words that every rejected pod's message has."""
        view = await self.run(pod, "Failed")
        assert (view.phase, view.reason, view.containers) == ("Failed", "UnexpectedAdmissionError", {})
        head, tail = "Pod was rejected: Allocate failed due to ", ", which is unexpected"
        assert view.message.startswith(head)
        assert view.message.endswith(tail)
        return view.message[len(head) : -len(tail)]

    async def until_written(self, healthy: Sequence[str]) -> None:
        """Return when the kubelet's file has these devices: a list is on the node first, then in the file."""

        def is_written() -> bool:
            if not self.file.exists():
                return False
            registered = self.checkpoint().registered or {}
            return self.resource in registered and sorted(registered[self.resource] or ()) == sorted(healthy)

        await self.world.until(is_written)

    def checkpoint(self) -> DeviceCheckpoint:
        """What the kubelet wrote."""
        return load(self.file.read_bytes())

    def entries(self) -> list[PodDevices]:
        """The checkpoint's entries of the scenario's resource."""
        return [entry for entry in self.checkpoint().entries or () if entry.resource == self.resource]

    async def held(self, pod: str) -> dict[str, list[str]] | None:
        """Container -> ids of the scenario's resource, from pod resources; None if the pod is not listed."""
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
        """(id, NUMA node) of each element that pod resources has for a pod, or as allocatable."""
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
        """Ask pod resources."""
        async with connect(self.world.kubelet_folder / "pod-resources" / "kubelet.sock") as channel:
            return await Client(channel, _LISTER).call(method, request)
