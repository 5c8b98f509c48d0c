"""The devices of each pod, for monitoring agents: `v1.PodResourcesLister` on a socket.

Each device is a separate element, repeated for each of its NUMA nodes. The older v1alpha1 List is served too.
Source: device manager specification, section 9; observations, section 3.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from grpcunix import Context, Handler, Method, RpcError, Status, handler
from kubelet.clock import Clock
from kubelet.devicemanager import Device, Manager
from kubelet.rpc import KubeletServer
from kubeletapi.podresources.v1 import api_pb2 as api
from resourceapi.objects.core import Pod

_SERVICE = api.DESCRIPTOR.services_by_name["PodResourcesLister"]
QUERIES_PER_SECOND = 100.0
BURST = 10.0

DynamicResources = Callable[[Pod, str], Sequence[api.DynamicResource]]


def _no_dynamic_resources(_pod: Pod, _container: str) -> Sequence[api.DynamicResource]:
    """Return nothing: the default without a DRA manager."""
    return ()


class PodResourcesServer:
    """Serves at `socket` the devices that `manager` allocated to `active_pods`."""

    def __init__(
        self,
        socket: Path,
        manager: Manager,
        active_pods: Callable[[], Iterable[Pod]],
        clock: Clock,
        dynamic_resources: DynamicResources = _no_dynamic_resources,
        known_pods: Callable[[], Iterable[Pod]] | None = None,
    ) -> None:
        """`dynamic_resources` returns the claimed devices that a container of a pod uses.

        `known_pods` includes pods that have ended; by default it is `active_pods`.
        """
        self._manager = manager
        self._active_pods = active_pods
        self._clock = clock
        self._dynamic_resources = dynamic_resources
        self._known_pods = known_pods or active_pods
        self._tokens = BURST
        self._filled_at = clock.now()
        alpha = {
            "List": Method(api.ListPodResourcesRequest.FromString, self.list_v1alpha1, streams=False),
        }
        self._server = KubeletServer(socket, [handler(_SERVICE, self), Handler("v1alpha1.PodResourcesLister", alpha)])

    async def start(self) -> None:
        """Serve. Raises OSError and `GrpcUnixError`."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        await self._server.stop()

    async def list(self, _: api.ListPodResourcesRequest, _context: Context) -> api.ListPodResourcesResponse:
        """Return all active pods, including those without devices."""
        self._limit()
        self._manager.update_allocated_devices()
        return api.ListPodResourcesResponse(
            pod_resources=[self._resources(pod, _listed(pod)) for pod in self._active_pods()]
        )

    async def get(self, request: api.GetPodResourcesRequest, _context: Context) -> api.GetPodResourcesResponse:
        """Return one active pod."""
        self._limit()
        for pod in self._active_pods():
            if (pod.metadata.name, pod.metadata.namespace) == (request.pod_name, request.pod_namespace):
                return api.GetPodResourcesResponse(pod_resources=self._resources(pod, _listed(pod)))
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        raise RpcError(Status.UNKNOWN, text)

    async def get_allocatable_resources(
        self, _: api.AllocatableResourcesRequest, _context: Context
    ) -> api.AllocatableResourcesResponse:
        """Return all healthy devices, in use or not."""
        self._limit()
        devices = container_devices(self._manager.get_allocatable_devices() or {})
        return api.AllocatableResourcesResponse(devices=devices)

    async def list_v1alpha1(self, _: api.ListPodResourcesRequest, _context: Context) -> api.ListPodResourcesResponse:
        """The first version of `List`: the same field numbers, but only app containers and no topology.

        It also lists pods that have ended, whose devices are free.
        """
        self._limit()
        self._manager.update_allocated_devices()
        pods = [self._resources(pod, [each.name for each in pod.spec.containers]) for pod in self._known_pods()]
        for container in (each for pod in pods for each in pod.containers):
            container.ClearField("dynamic_resources")
            for device in container.devices:
                device.ClearField("topology")
        return api.ListPodResourcesResponse(pod_resources=pods)

    def _resources(self, pod: Pod, names: Sequence[str]) -> api.PodResources:
        containers = [
            api.ContainerResources(
                name=name,
                devices=container_devices(self._manager.get_devices(pod.uid, name) or {}),
                dynamic_resources=self._dynamic_resources(pod, name),
            )
            for name in names
        ]
        return api.PodResources(name=pod.metadata.name, namespace=pod.metadata.namespace, containers=containers)

    def _limit(self) -> None:
        now = self._clock.now()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * QUERIES_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            raise RpcError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._tokens -= 1


def _listed(pod: Pod) -> list[str]:
    """Return the names of the containers to list, sidecars before app containers."""
    sidecars = [container.name for container in pod.spec.init_containers if container.is_sidecar]
    return [*sidecars, *(container.name for container in pod.spec.containers)]


def container_devices(devices: Mapping[str, Mapping[str, Device]]) -> list[api.ContainerDevices]:
    """Return one element per device and NUMA node; a device whose topology is set but empty has none."""
    elements = []
    for resource, by_id in devices.items():
        for device in by_id.values():
            if device.topology is None:
                elements.append(api.ContainerDevices(resource_name=resource, device_ids=[device.id]))
                continue
            for node in device.topology:
                topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node)])
                elements.append(api.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology))
    return elements
