"""The device manager: connects registration, lists, allocation and the checkpoint.

All state belongs to one event loop. Code that the kubelet guards with its mutex runs here without awaiting. Calls to
plugins and disk writes are awaited; the state can have changed when they return.
Source: device manager specification, sections 2-8; observations of 1.36 win, for 1.37 changes-1.37, section 1.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

import msgspec

from checkpoint.fnv import Run
from checkpoint.kubelet_json import KubeletFileError
from grpcunix import Context
from kubelet.clock import Clock, SystemClock
from kubelet.devicemanager import hints, options
from kubelet.devicemanager.allocate import AffinityStore, Allocator
from kubelet.devicemanager.checkpoint_file import CheckpointFile
from kubelet.devicemanager.device import HEALTHY, UNHEALTHY, Device
from kubelet.devicemanager.endpoint import Endpoint
from kubelet.devicemanager.manager import (
    ActivePodsFunc,
    ContainerMap,
    NodeInfo,
    PluginHandler,
    PodAdmitAttributes,
    SourcesReady,
)
from kubelet.devicemanager.options import DeviceRunContainerOptions
from kubelet.devicemanager.server import SUPPORTED_VERSION, PluginClient, RegistrationServer
from kubelet.devicemanager.state import DeviceState, Ids
from kubelet.errors import AllocationError, PluginCallError
from kubelet.metrics import KubeletMetrics
from kubelet.release import EXTENDED_RESOURCE, LATEST, RESOURCE_HEALTH_STATUS, Release
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from kubelet.topology import Hint
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects.core import Container, ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus
from resourceapi.objects.pod_requests import container_limits, peak

DEVICE_PLUGIN_PATH = Path("/var/lib/kubelet/device-plugins")
KUBELET_SOCKET = DEVICE_PLUGIN_PATH / "kubelet.sock"
UPDATE_QUEUE_LENGTH = 100
CHECKSUM_DELAY = 1.0  # seconds

log = logging.getLogger(__name__)


def _ignore_change(kind: str, about: str, text: str) -> None:
    """Ignore the change: the default of `on_change`."""


def _repeated_id(devices: Iterable[Device]) -> str:
    """Return a text about the most repeated id of a list; the kubelet keeps only the last device with an id."""
    id_, count = Counter(device.id for device in devices).most_common(1)[0]
    return f"{id_} is listed {count} times"


class ManagerImpl:
    """Manages all the device plugins of a node."""

    def __init__(
        self,
        socket_path: Path = KUBELET_SOCKET,
        numa_nodes: Sequence[int] = (0,),
        affinity: AffinityStore | None = None,
        *,
        clock: Clock | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        shuffle: random.Random | None = None,
        release: Release = LATEST,
        metrics: KubeletMetrics | None = None,
        on_change: Callable[[str, str, str], None] = _ignore_change,
    ) -> None:
        """Manage the plugins of the folder of `socket_path`. Raises `RegistrationError` unless that is absolute.

        `on_change` is called after each change with: what happened, the resource or pod, and details.
        """
        self.state = DeviceState(release, shuffle.choice if shuffle is not None else itemgetter(0))
        self.checkpoint = CheckpointFile(socket_path.parent)
        self._numa_nodes = tuple(numa_nodes)
        self._clock = clock or SystemClock()
        metrics = metrics or KubeletMetrics(self._clock)
        self.server = RegistrationServer(socket_path, self, timeouts, release, metrics)
        self._timeouts = timeouts
        self._release = release
        self._on_change = on_change
        self._allocator = Allocator(self.state, affinity, self._is_restored, metrics, shuffle)
        self._pending_runs: set[Run] = set()
        self._checksum_timer: asyncio.TimerHandle | None = None
        self._updates: asyncio.Queue[list[str]] = asyncio.Queue(UPDATE_QUEUE_LENGTH)
        self._active_pods: ActivePodsFunc = tuple
        self._sources_ready: SourcesReady = lambda: True
        self._containers: ContainerMap = {}
        self._running: frozenset[str] = frozenset()

    async def start(
        self,
        active_pods: ActivePodsFunc,
        sources_ready: SourcesReady,
        initial_containers: ContainerMap | None = None,
        initial_container_running_set: frozenset[str] = frozenset(),
    ) -> None:
        """Read the checkpoint, remove the sockets in the folder, serve. Raises OSError.

        The last two arguments are the containers that exist and that run at the start of the kubelet. An unusable
        checkpoint is logged.
        """
        self._active_pods, self._sources_ready = active_pods, sources_ready
        self._containers, self._running = initial_containers or {}, initial_container_running_set
        self.checkpoint.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            found = self.checkpoint.read()
        except (KubeletFileError, OSError) as error:
            log.error(
                "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date: %s",
                error,
            )
        else:
            if found is not None:
                for line in self.state.restore(found, self._stopped_endpoint):
                    log.error("%s", line)
        await self.server.start(self.checkpoint.path)

    async def stop(self, *, discard: bool = False) -> None:
        """Disconnect all plugins and stop serving. Idempotent, safe before `start` and when called concurrently.

        With `discard`, checkpoint writes that have not begun are dropped.
        """
        await self.server.stop()
        await self.checkpoint.close(discard=discard)
        if self._checksum_timer is not None:
            self._checksum_timer.cancel()

    def get_watcher_handler(self) -> PluginHandler:
        """Return the handler for plugins in `plugins_registry`."""
        return self.server

    def check_health(self) -> None:
        """Perform the kubelet's health check `device-plugin`. Raises `RegistrationError`."""
        self.server.check_health()

    async def register(self, request: api.RegisterRequest, context: Context) -> api.Empty:
        """The gRPC method `Registration.Register`."""
        return await self.server.register(request, context)

    async def register_plugin(self, name: str, endpoint: str, versions: list[str] | None = None) -> None:
        """Register a plugin that serves at the full path `endpoint`. Raises `KubeletError`."""
        await self.server.register_plugin(name, endpoint, [SUPPORTED_VERSION] if versions is None else versions)

    def validate_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Check version and name. Raises `RegistrationError`."""
        self.server.validate_plugin(name, endpoint, versions)

    async def deregister_plugin(self, name: str, endpoint: str = "") -> None:
        """Disconnect the plugin of a resource."""
        await self.server.deregister_plugin(name, endpoint)

    async def plugin_connected(self, client: PluginClient) -> None:
        """Get the options of a new plugin and make it the current one. Raises `RegistrationError`."""
        asked = await client.get_options()
        self.state.connect(client.resource, Endpoint(client.socket, client.api, asked, self._clock, self._timeouts))
        self._on_change("registered", client.resource, "")

    def plugin_refused(self, resource: str, why: str) -> None:
        """Report a plugin whose registration was refused."""
        self._on_change("refused", resource, why)

    def plugin_disconnected(self, resource: str, socket: Path, why: str) -> None:
        """Handle the loss of a plugin: its devices stay on the node, unhealthy unless another plugin takes over."""
        if self.state.disconnect(resource, socket):
            self._on_change("disconnected", resource, why)

    async def plugin_list_received(self, resource: str, devices: Sequence[Device]) -> None:
        """Replace the list of a resource at once; report the change after the checkpoint is on disk."""
        pods = self.state.update(resource, devices)
        repeated_id = _repeated_id(devices) if len(self.state.all[resource]) < len(devices) else ""
        if pods and self._release.has(RESOURCE_HEALTH_STATUS):
            try:
                self._updates.put_nowait(pods)
            except asyncio.QueueFull:
                log.warning("device update channel is full, discarding pod updates: %s", pods)
        try:
            await self.checkpoint.write(self.state.checkpoint())
        except AllocationError as error:
            log.error("%s", error)
        self._schedule_checksums(CHECKSUM_DELAY)
        self._on_change("devices", resource, repeated_id)

    async def allocate(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Allocate the devices of all containers of a pod, then update the node. Raises `KubeletError`."""
        for container in attrs.pod.all_containers:
            await self.allocate_container(attrs.pod, container)
        self.update_plugin_resources(node, attrs)

    async def allocate_container(self, pod: Pod, container: Container) -> None:
        """Allocate the devices of one container. Raises `KubeletError`, whose text the pod's status shows.

        Later containers of the pod can reuse the devices of an init container that ends.
        """
        state = self.state
        reusable = state.reusable.get(pod.uid, {})
        state.reusable = {pod.uid: reusable}  # pods are admitted one after the other, so the others are finished
        is_init = pod.is_init_container(container)
        await self._allocate_resources(pod, container, reusable)
        for resource in container_limits(container):
            held = state.records.container_devices(pod.uid, container.name, resource) or {}
            if is_init and not container.is_sidecar:
                reusable[resource] = reusable.get(resource, {}) | held
            else:
                reusable[resource] = {id_: None for id_ in reusable.get(resource, {}) if id_ not in held}

    def update_plugin_resources(self, node: NodeInfo, attrs: PodAdmitAttributes) -> None:
        """Raise the node's allocatable to the allocated amounts, so that pods with devices still fit."""
        if not self.state.records.has_pod(attrs.pod.uid):
            return
        short = {
            resource: len(ids)
            for resource, ids in self.state.allocated.items()
            if node.allocatable.get(resource, -1) < len(ids)
        }
        if short:
            node.allocatable = node.allocatable | short

    async def get_device_run_container_options(self, pod: Pod, container: Container) -> DeviceRunContainerOptions:
        """Return the runtime options for the container's devices; empty if it has none. Raises `KubeletError`.

        Plugins that require PreStartContainer are called first, for every start.
        """
        is_active = any(active.uid == pod.uid for active in self._active_pods())
        is_missing = False
        for resource, amount in container_limits(container).items():
            if amount == 0 or not self.state.is_device_plugin_resource(resource):
                continue
            # also for resources that a claim provides, of which the plugin allocated nothing: kubernetes#141426
            await self._pre_start(pod, container, resource)
            held = self.state.records.container_devices(pod.uid, container.name, resource)
            is_missing = is_missing or (is_active and held is None)
        if is_missing:
            await self.allocate_container(pod, container)
        responses = self.state.records.responses(pod.uid, container.name)
        return options.merge(responses.values())

    def get_capacity(self) -> tuple[dict[str, int], dict[str, int], list[str]]:
        """Return capacity, allocatable, and the removed resources; each removal is reported once."""
        capacity, allocatable, removed = self.state.count()
        if removed:
            self.state.remove(removed)
            self.checkpoint.write_later(self.state.checkpoint())
        return capacity, allocatable, removed

    def get_devices(self, pod_uid: str, container_name: str) -> dict[str, dict[str, Device]] | None:
        """Return the devices of a container: resource -> id -> device; None if it has none."""
        return self.state.records.devices(pod_uid, container_name)

    def get_responses(self, pod_uid: str, container_name: str) -> dict[str, api.ContainerAllocateResponse]:
        """Return the plugins' responses to Allocate for a container, by resource."""
        return self.state.records.responses(pod_uid, container_name)

    def get_allocatable_devices(self) -> dict[str, dict[str, Device]]:
        """Return the healthy devices, in use or not: resource -> id -> device."""
        state = self.state
        return {
            resource: {id_: state.all[resource][id_] for id_ in healthy}
            for resource, healthy in state.healthy.items()
            if resource in state.all
        }

    def should_reset_extended_resource_capacity(self) -> bool:
        """Return whether the folder has no files except hidden ones, which means that the node lost its state."""
        try:
            return not any(not path.name.startswith(".") for path in self.checkpoint.path.parent.iterdir())
        except OSError:
            return False

    def get_topology_hints(self, pod: Pod, container: Container) -> dict[str, list[Hint] | None]:
        """Return the NUMA nodes that could serve the container's devices, by resource."""
        self.update_allocated_devices()
        reusable = self.state.reusable.get(pod.uid, {})
        found: dict[str, list[Hint] | None] = {}
        for resource, amount in container_limits(container).items():
            if self.state.is_device_plugin_resource(resource):
                held = self.state.records.container_devices(pod.uid, container.name, resource)
                found[resource] = self._hints(resource, amount, held or {}, reusable.get(resource, {}))
        return found

    def get_pod_topology_hints(self, pod: Pod) -> dict[str, list[Hint] | None]:
        """Return the NUMA nodes that could serve the devices of the pod as a whole, by resource."""
        self.update_allocated_devices()
        found: dict[str, list[Hint] | None] = {}
        for resource, amount in peak(pod, container_limits).items():
            if self.state.is_device_plugin_resource(resource):
                held = self.state.records.pod_devices(pod.uid, resource)
                found[resource] = self._hints(resource, amount, held, {})
        return found

    def update_allocated_devices(self) -> None:
        """Free the devices of pods that are no longer active. The checkpoint is not rewritten."""
        active = {pod.uid for pod in self._active_pods()}
        if not self._sources_ready():
            return
        gone = self.state.records.pods() - active
        if gone:
            self.state.records.delete(gone)

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return `status` with the health of each app container's devices; a device that is not listed is healthy."""
        if not self._release.has(RESOURCE_HEALTH_STATUS):
            return status
        statuses = tuple(self._with_health(pod, each) for each in status.container_statuses)
        return msgspec.structs.replace(status, container_statuses=statuses)

    def updates(self) -> asyncio.Queue[list[str]]:
        """Return the queue of the uids of pods whose devices changed their health; a full queue drops updates."""
        return self._updates

    async def _allocate_resources(self, pod: Pod, container: Container, reusable: dict[str, Ids]) -> None:
        is_changed = is_collected = False
        for resource, amount in container_limits(container).items():
            if not self.state.is_device_plugin_resource(resource) or self._is_claimed(pod, container, resource):
                continue
            if not is_collected:
                self.update_allocated_devices()
                is_collected = True
            got = await self._allocator.allocate(pod, container, resource, amount, reusable.get(resource, {}))
            is_changed = is_changed or got
        if is_changed:
            await self.checkpoint.write(self.state.checkpoint())
            self._prepare_checksums()
            self._on_change("allocated", f"{pod.metadata.namespace}/{pod.metadata.name}", "")

    def _schedule_checksums(self, seconds: float) -> None:
        """Prepare checksums when no list has arrived for `seconds`; a list that keeps changing is not worth it."""
        if self._checksum_timer is not None:
            self._checksum_timer.cancel()
        self._checksum_timer = asyncio.get_running_loop().call_later(seconds, self._prepare_checksums)

    def _prepare_checksums(self) -> None:
        """Precompute the checksums of long parts in threads, so that the next checkpoint is fast."""
        for run in self.state.long_runs():
            if run not in self._pending_runs:
                self._pending_runs.add(run)
                asyncio.get_running_loop().run_in_executor(None, run.complete).add_done_callback(
                    partial(self._checksum_done, run)
                )

    def _checksum_done(self, run: Run, _: "asyncio.Future[None]") -> None:
        self._pending_runs.discard(run)

    async def _pre_start(self, pod: Pod, container: Container, resource: str) -> None:
        endpoint = self.state.endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource}")
        if endpoint.options is None or not endpoint.options.pre_start_required:
            return
        held = self.state.records.container_devices(pod.uid, container.name, resource)
        if held is None:
            raise AllocationError(
                f"no devices found allocated in local cache for pod {pod.uid}, container {container.name},"
                f" resource {resource}"
            )
        try:
            await endpoint.pre_start_container(held)
        except PluginCallError as error:
            raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _hints(self, resource: str, amount: int, held: Ids, reusable: Ids) -> list[Hint] | None:
        state = self.state
        if not state.has_alignment(resource):
            return None
        known = state.all[resource]
        nodes: Sequence[int] = self._numa_nodes
        if self._release.hints_only_device_nodes:
            nodes = sorted({node for device in known.values() for node in device.nodes}.intersection(nodes)) or nodes
        if held:
            return [] if len(held) != amount else hints.generate(nodes, known, held, (), amount)
        allocated = state.allocated.get(resource, frozenset())
        available = [id_ for id_ in state.healthy.get(resource, ()) if id_ not in allocated]
        if len(available) + len(reusable) < amount:
            return []
        return hints.generate(nodes, known, available, reusable, amount)

    def _with_health(self, pod: Pod, status: ContainerStatus) -> ContainerStatus:
        held = self.get_devices(pod.uid, status.name)
        if not held:
            return status
        updated = {each.name: each for each in status.allocated_resources_status}
        for resource, devices in held.items():
            known = self.state.all.get(resource, {})
            health = (
                ResourceHealth(
                    resource_id=id_, health=HEALTHY if id_ not in known or known[id_].is_healthy else UNHEALTHY
                )
                for id_ in devices
            )
            updated[resource] = ResourceStatus(name=resource, resources=tuple(health))
        return msgspec.structs.replace(status, allocated_resources_status=tuple(updated.values()))

    def _is_restored(self, pod: Pod, container: Container) -> bool:
        """Return whether the kubelet is starting and the container kept running, so that it has its devices."""
        return not self._sources_ready() and self._containers.get((pod.uid, container.name)) in self._running

    def _is_claimed(self, pod: Pod, container: Container, resource: str) -> bool:
        """Return whether a ResourceClaim provides this resource to the container."""
        claim = pod.status.extended_resource_claim_status
        return (
            self._release.has(EXTENDED_RESOURCE)
            and claim is not None
            and any(m.container_name == container.name and m.resource_name == resource for m in claim.request_mappings)
        )

    def _stopped_endpoint(self) -> Endpoint:
        return Endpoint(Path(), None, None, self._clock, self._timeouts)
