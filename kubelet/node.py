"""A node without Kubernetes: the kubelet's sockets and folders below any directory, and containers that only pretend.

What a plugin sees is a kubelet: registration, lists, admission of pods one after the other, container starts, restarts
with what the checkpoint remembers. Pods and their containers outlive a restart of the kubelet, as they do on a node.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from grpcunix import is_live
from kubelet.clock import Clock, SystemClock
from kubelet.devicemanager import Device, DeviceRunContainerOptions, ManagerImpl, PluginHandler
from kubelet.devicemanager.server import BeforeRegister
from kubelet.dramanager import Cluster, DRAManager, MemoryCluster, Release
from kubelet.dramanager.drivers import PLUGIN_TYPE
from kubelet.errors import ClaimError, NodeError
from kubelet.events import Event, Events
from kubelet.pluginwatcher import PluginWatcher
from kubelet.pod_workers import Managers, PodWorkers
from kubelet.podresources import PodResourcesServer
from kubelet.pods import Container, Pod, PodStatus
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from kubelet.topology import Policy, Scope, TopologyManager

T = TypeVar("T")

STATUS_PERIOD = 10.0  # seconds between two looks at what left the node


class Node:
    """A node whose kubelet can be stopped, started and asked. Use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        numa_nodes: Sequence[int] = (0,),
        topology_policy: Policy = "none",
        topology_scope: Scope = "container",
        shuffle: random.Random | None = None,
        reconcile_period: float = 1.0,
        plugin_handlers: Mapping[str, PluginHandler] | None = None,
        cluster: Cluster | None = None,
        node_name: str = "node",
        release: Release = "1.36",
    ) -> None:
        """A node below `directory`, which must be short: a socket's path has 107 bytes at the most.

        Args:
            directory: gets `device-plugins`, `plugins_registry`, `pod-resources` and the DRA manager's state files.
            clock: moves grace periods and retries; the machine's by default.
            timeouts: how long the kubelet waits for plugins.
            numa_nodes: the machine's NUMA nodes.
            topology_policy: the kubelet's `topologyManagerPolicy`.
            topology_scope: the kubelet's `topologyManagerScope`.
            shuffle: chooses devices at random, as the kubelet does; without it in the order of the plugin's list.
            reconcile_period: seconds between two looks at `plugins_registry`.
            plugin_handlers: for plugins of other types than `DevicePlugin`, by type.
            cluster: where claims are read and ResourceSlices deleted; a `MemoryCluster` by default.
            node_name: whose ResourceSlices they are.
            release: whose behaviour towards the health services of DRA plugins is shown.
        """
        self.directory = directory.absolute()
        self.device_plugins = self.directory / "device-plugins"
        self.plugins_registry = self.directory / "plugins_registry"
        self.pod_resources = self.directory / "pod-resources"
        self.clock: Clock = clock or SystemClock()
        self.cluster: Cluster = cluster or MemoryCluster()
        self.node_name = node_name
        self._timeouts = timeouts
        self._numa_nodes = tuple(numa_nodes)
        self._policy: Policy = topology_policy
        self._scope: Scope = topology_scope
        self._shuffle = shuffle
        self._reconcile_period = reconcile_period
        self._plugin_handlers = dict(plugin_handlers or {})
        self._release: Release = release
        self._before_register: BeforeRegister | None = None
        self._capacity: dict[str, int] = {}
        self._allocatable: dict[str, int] = {}
        self._events = Events()
        self._workers = PodWorkers(self.clock, self._events.notify, self.allocatable)
        self._managers: Managers | None = None
        self._pod_resources_server: PodResourcesServer | None = None
        self._watcher: PluginWatcher | None = None
        self._sources_ready = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Start the kubelet."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the kubelet."""
        await self.stop()

    @property
    def kubelet_socket(self) -> Path:
        """Where device plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where monitoring agents ask."""
        return self.pod_resources / "kubelet.sock"

    @property
    def is_running(self) -> bool:
        """True while the kubelet runs."""
        return self._managers is not None

    @property
    def manager(self) -> ManagerImpl:
        """The device manager of the kubelet that runs now. Raises `NodeError`."""
        return self._running.devices

    @property
    def dra_manager(self) -> DRAManager:
        """The DRA manager of the kubelet that runs now. Raises `NodeError`."""
        return self._running.claims

    @property
    def changes(self) -> int:
        """Counts up with everything that happens."""
        return self._events.changes

    async def start(self) -> None:
        """Start the kubelet, and admit again what was on the node. Raises `NodeError` and OSError."""
        if self._managers is not None:
            return
        if is_live(self.kubelet_socket):
            raise NodeError(f"{self.kubelet_socket}: a kubelet serves here; stop it or use another folder")
        for folder, mode in ((self.device_plugins, 0o755), (self.plugins_registry, 0o750), (self.pod_resources, 0o750)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self._sources_ready = False
        managers = self._managers = self._new_managers()
        try:
            await self._start_services(managers)
        except BaseException:
            await self.stop()
            raise
        if managers.devices.should_reset_extended_resource_capacity():
            self._capacity = dict.fromkeys(self._capacity, 0)
        self._events.notify(Event("started", str(self.directory)))
        self._workers.begin(managers)
        await self._workers.admit_all()
        self._sources_ready = True
        await self._workers.start_all()

    async def stop(self) -> None:
        """Stop the kubelet; pods and their containers stay. Idempotent."""
        managers, self._managers = self._managers, None
        if managers is None:
            return
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._workers.end()
        if self._watcher is not None:
            await self._watcher.stop()
        if self._pod_resources_server is not None:
            await self._pod_resources_server.stop()
        await managers.claims.stop()
        await managers.devices.stop()
        self._events.notify(Event("stopped", str(self.directory)))

    async def restart(self) -> None:
        """Stop the kubelet and start it again."""
        await self.stop()
        await self.start()

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers; return what became of it. Raises `NodeError`.

        Only one pod is admitted at a time. A pod that is on the node already is not admitted again. The first attempt
        to prepare the pod's claims is waited for; when it fails, the pod stays Pending and is tried again later.
        """
        return await self._workers.admit(pod)

    def status(self, pod: Pod | str) -> PodStatus:
        """The status of a pod, named by itself, its uid, its name or `namespace/name`. Raises `NodeError`."""
        return self._workers.find(pod).status

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """All pods on the node, in the order of their admission."""
        return [(run.pod, run.status) for run in self._workers.all()]

    def active_pods(self) -> list[Pod]:
        """The pods that run or will run."""
        return [run.pod for run in self._workers.active()]

    async def exit_container(self, pod: Pod | str, container: str, code: int = 0) -> PodStatus:
        """End a container with an exit code; the kubelet starts it again if the pod wants that, once it runs."""
        return await self._workers.exit_container(self._workers.find(pod), container, code)

    def finish(self, pod: Pod | str) -> PodStatus:
        """Let all containers of a pod end well: it is Succeeded, and its devices are free.

        A pod with claims is Succeeded when they are unprepared.
        """
        return self._workers.finish(self._workers.find(pod))

    async def lose_sandbox(self, pod: Pod | str) -> PodStatus:
        """Lose a pod's sandbox with all its containers, as after a reboot; the kubelet makes another, once it runs."""
        return await self._workers.lose_sandbox(self._workers.find(pod))

    async def remove(self, pod: Pod | str, *, force: bool = False) -> None:
        """Delete a pod from the node, also while the kubelet is stopped.

        A pod with claims goes when they are unprepared; the first attempt is waited for. With `force` it goes at once,
        and the claims are unprepared later.
        """
        await self._workers.remove(self._workers.find(pod), force=force)

    async def sync(self, pod: Pod | str) -> PodStatus:
        """Look after a pod now: prepare and start what waits, and read the health of its devices."""
        return await self._workers.sync(self._workers.find(pod))

    async def cut_stream(self, resource: str) -> None:
        """Drop the connection to the plugin of a resource, as a kubelet does when another plugin of it goes."""
        await self.manager.deregister_plugin(resource)

    def before_registration(self, call: BeforeRegister | None) -> None:
        """Let `call` see each Register request first: it may wait, and refuse by raising `KubeletError`."""
        self._before_register = call
        if self._managers is not None:
            self._managers.devices.server.before_register = call

    async def run_container_options(
        self, pod: Pod | str, container: Container | str
    ) -> DeviceRunContainerOptions | None:
        """What the runtime is told when the container starts. Raises `AllocationError` and `ClaimError`."""
        run = self._workers.find(pod)
        name = container if isinstance(container, str) else container.name
        return await self._workers.run_container_options(run, run.pod.container(name))

    def capacity(self) -> dict[str, int]:
        """The node's capacity of devices, as of now; resources that left the node stay as zero."""
        self._sync_node_status()
        return dict(self._capacity)

    def allocatable(self) -> dict[str, int]:
        """The node's allocatable devices, as of now. Allocations do not lower it."""
        self._sync_node_status()
        return dict(self._allocatable)

    def devices(self) -> dict[str, dict[str, Device]]:
        """Resource -> id -> device; one that cannot be given out now is not `Healthy`, whatever its plugin said."""
        state = self.manager.state
        return {
            resource: {
                id_: device
                if id_ in state.healthy.get(resource, {}) or not device.is_healthy
                else msgspec.structs.replace(device, health="Unhealthy")
                for id_, device in devices.items()
            }
            for resource, devices in state.all.items()
            if resource in state.healthy or resource in state.unhealthy
        }

    def allocations(self, pod: Pod | str, container: str) -> dict[str, list[str]]:
        """Resource -> ids that a container has."""
        uid = self._workers.find(pod).pod.uid
        return {resource: list(ids) for resource, ids in (self.manager.get_devices(uid, container) or {}).items()}

    def claimed_devices(self, pod: Pod | str, container: str) -> tuple[str, ...]:
        """The CDI ids that a container gets through its claims. Raises `ClaimError` while they are not prepared."""
        found = self._workers.find(pod).pod
        return self.dra_manager.get_resources(found, found.container(container))

    async def until(self, predicate: Callable[[], T], seconds: float = 10.0) -> T:
        """Return what `predicate` says as soon as that is true, looking after each change. Raises TimeoutError."""
        return await self._events.until(predicate, seconds)

    async def changed_since(self, changes: int, seconds: float = 10.0) -> int:
        """Return `self.changes` as soon as it is more than `changes`. Raises TimeoutError."""
        return await self.until(lambda: self.changes > changes and self.changes, seconds)

    def events(self) -> AsyncIterator[Event]:
        """What happens from now on, without end."""
        return self._events.stream()

    @property
    def _running(self) -> Managers:
        if self._managers is None:
            raise NodeError("the kubelet is stopped; start it first")
        return self._managers

    def _new_managers(self) -> Managers:
        topology = TopologyManager(self._numa_nodes, self._policy, self._scope)
        devices = ManagerImpl(
            self.kubelet_socket,
            self._numa_nodes,
            topology,
            clock=self.clock,
            timeouts=self._timeouts,
            shuffle=self._shuffle,
            on_change=self._devices_changed,
        )
        topology.add_hint_provider(devices)
        devices.server.before_register = self._before_register
        claims = DRAManager(
            self.directory,
            self.cluster,
            self.node_name,
            clock=self.clock,
            timeouts=self._timeouts,
            release=self._release,
            on_change=lambda kind, about, text: self._events.notify(Event(kind, about, text)),
        )
        return Managers(devices, claims, topology)

    async def _start_services(self, managers: Managers) -> None:
        containers, running = self._workers.containers()
        devices, claims = managers.devices, managers.claims
        try:
            await claims.start(lambda: {pod.uid for pod in self.active_pods()}, lambda: self._sources_ready)
        except ClaimError as error:
            raise NodeError(f"failed to run Kubelet: {error}") from error
        await devices.start(self.active_pods, lambda: self._sources_ready, containers, running)
        self.pod_resources_socket.unlink(missing_ok=True)  # a kubelet that was killed leaves it
        self._pod_resources_server = PodResourcesServer(
            self.pod_resources_socket, devices, self.active_pods, self.clock, claims.get_dynamic_resources
        )
        await self._pod_resources_server.start()
        handlers: dict[str, PluginHandler] = {
            "DevicePlugin": devices.get_watcher_handler(),
            PLUGIN_TYPE: claims.get_watcher_handler(),
            **self._plugin_handlers,
        }
        self._watcher = PluginWatcher(
            self.plugins_registry, handlers, self.clock, self._timeouts, self._reconcile_period
        )
        await self._watcher.start()
        self._spawn(self._follow_health(devices.updates()))
        self._spawn(self._follow_health(claims.updates()))
        self._spawn(self._follow_node_status())

    async def _follow_health(self, updates: "asyncio.Queue[list[str]]") -> None:
        while True:
            self._workers.refresh_health_of(await updates.get())

    async def _follow_node_status(self) -> None:
        while True:
            await self.clock.sleep(STATUS_PERIOD)
            self._sync_node_status()

    def _sync_node_status(self) -> None:
        if self._managers is None:
            return
        before = (dict(self._capacity), self._allocatable)
        capacity, allocatable, removed = self._managers.devices.get_capacity()
        self._capacity.update(capacity)
        self._capacity.update(dict.fromkeys(removed, 0))
        self._allocatable = self._capacity | allocatable
        if before != (self._capacity, self._allocatable):
            changed = self._capacity.keys() | before[0].keys()
            for resource in sorted(changed):
                now = (self._capacity.get(resource), self._allocatable.get(resource))
                if now != (before[0].get(resource), before[1].get(resource)):
                    self._events.notify(Event("capacity", resource, f"{now[0]} allocatable {now[1]}"))

    def _devices_changed(self, kind: str, resource: str) -> None:
        self._events.notify(Event(kind, resource))
        if kind != "registered":
            self._sync_node_status()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
