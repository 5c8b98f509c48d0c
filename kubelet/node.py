"""A node without Kubernetes: the kubelet's sockets and folders below any directory, and containers that only pretend.

What a plugin sees is a kubelet: registration, lists, admission of pods one after the other, container starts, restarts
with what the checkpoint remembers. Pods and their containers outlive a restart of the kubelet, as they do on a node.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from grpcunix import is_live
from kubelet.clock import Clock, SystemClock
from kubelet.devicemanager import (
    Device,
    DeviceRunContainerOptions,
    ManagerImpl,
    NodeInfo,
    PluginHandler,
    PodAdmitAttributes,
)
from kubelet.devicemanager.server import BeforeRegister
from kubelet.dramanager import Cluster, MemoryCluster
from kubelet.errors import AllocationError, KubeletError, PluginCallError
from kubelet.pluginwatcher import PluginWatcher
from kubelet.pod_run import PodRun, full_name
from kubelet.podresources import PodResourcesServer
from kubelet.pods import Container, Pod, PodStatus
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from kubelet.topology import Policy, Scope, TopologyAffinityError, TopologyManager

T = TypeVar("T")

STATUS_PERIOD = 10.0  # seconds between two looks at what left the node
RETRY_PERIOD = 13.0  # seconds until a container whose start failed is tried again


class NodeError(KubeletError):
    """The node cannot do what was asked."""


class Event(Struct, frozen=True):
    """Something happened: `kind` says what, `about` to which resource or pod, `text` how."""

    kind: str
    about: str
    text: str = ""


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
    ) -> None:
        """A node below `directory`, which must be short: a socket's path has 107 bytes at the most.

        Args:
            directory: gets `device-plugins`, `plugins_registry` and `pod-resources`.
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
        self._before_register: BeforeRegister | None = None
        self._pods: dict[str, PodRun] = {}
        self._capacity: dict[str, int] = {}
        self._allocatable: dict[str, int] = {}
        self._manager: ManagerImpl | None = None
        self._pod_resources_server: PodResourcesServer | None = None
        self._watcher: PluginWatcher | None = None
        self._topology = TopologyManager(self._numa_nodes)
        self._admission = asyncio.Lock()  # one pod after the other
        self._sources_ready = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.changes = 0  # counts up with everything that happens
        self._changed = asyncio.Event()
        self._listeners: set[asyncio.Queue[Event]] = set()

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
        return self._manager is not None

    @property
    def manager(self) -> ManagerImpl:
        """The device manager of the kubelet that runs now. Raises `NodeError`."""
        if self._manager is None:
            raise NodeError("the kubelet is stopped; start it first")
        return self._manager

    async def start(self) -> None:
        """Start the kubelet, and admit again what was on the node. Raises `NodeError` and OSError."""
        if self._manager is not None:
            return
        if is_live(self.kubelet_socket):
            raise NodeError(f"{self.kubelet_socket}: a kubelet serves here; stop it or use another folder")
        for folder, mode in ((self.device_plugins, 0o755), (self.plugins_registry, 0o750), (self.pod_resources, 0o750)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self._sources_ready = False
        self._topology = TopologyManager(self._numa_nodes, self._policy, self._scope)
        manager = self._manager = ManagerImpl(
            self.kubelet_socket,
            self._numa_nodes,
            self._topology,
            clock=self.clock,
            timeouts=self._timeouts,
            shuffle=self._shuffle,
            on_change=self._manager_changed,
        )
        self._topology.add_hint_provider(manager)
        manager.server.before_register = self._before_register
        try:
            await self._start_services(manager)
        except BaseException:
            await self.stop()
            raise
        if manager.should_reset_extended_resource_capacity():
            self._capacity = dict.fromkeys(self._capacity, 0)
        self._notify(Event("started", str(self.directory)))
        for run in self._active():
            await self._admit(run)
        self._sources_ready = True
        for run in self._active():
            run.restart_ended()
            await self._start_containers(run)

    async def stop(self) -> None:
        """Stop the kubelet; pods and their containers stay. Idempotent."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in self._pods.values():
            run.retry = None
        if self._watcher is not None:
            await self._watcher.stop()
        if self._pod_resources_server is not None:
            await self._pod_resources_server.stop()
        await manager.stop()
        self._notify(Event("stopped", str(self.directory)))

    async def restart(self) -> None:
        """Stop the kubelet and start it again."""
        await self.stop()
        await self.start()

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers; return what became of it. Raises `NodeError`.

        Only one pod is admitted at a time. A pod that is on the node already is not admitted again.
        """
        _ = self.manager  # a kubelet that is stopped admits nothing
        known = self._pods.get(pod.uid) if pod.uid else None
        if known is not None:
            return known.status
        for run in self._active():
            if run.name == full_name(pod):
                raise NodeError(f"pod {run.name} is on the node already; remove it first")
        if not pod.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=str(uuid.uuid4())))
        run = self._pods[pod.uid] = PodRun(pod, self._pod_changed)
        await self._admit(run)
        if not run.status.is_terminal:
            await self._start_containers(run)
        return run.status

    def status(self, pod: Pod | str) -> PodStatus:
        """The status of a pod, named by itself, its uid, its name or `namespace/name`. Raises `NodeError`."""
        return self._find(pod).status

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """All pods on the node, in the order of their admission."""
        return [(run.pod, run.status) for run in self._pods.values()]

    def active_pods(self) -> list[Pod]:
        """The pods that run or will run."""
        return [run.pod for run in self._active()]

    async def exit_container(self, pod: Pod | str, container: str, code: int = 0) -> PodStatus:
        """End a container with an exit code; the kubelet starts it again if the pod wants that, once it runs."""
        run = self._find(pod)
        run.end_container(container, code)
        if self._manager is not None:
            run.restart_ended()
            await self._start_containers(run)
        return run.status

    def finish(self, pod: Pod | str) -> PodStatus:
        """Let all containers of a pod end well: it is Succeeded, and its devices are free."""
        run = self._find(pod)
        run.finish()
        return run.status

    async def remove(self, pod: Pod | str) -> None:
        """Delete a pod from the node, also while the kubelet is stopped."""
        run = self._find(pod)
        if run.retry is not None:
            run.retry.cancel()
        del self._pods[run.pod.uid]
        self._topology.forget(run.pod.uid)
        self._notify(Event("removed", run.name))

    async def sync(self, pod: Pod | str) -> PodStatus:
        """Look after a pod now: start what waits, and read the health of its devices."""
        run = self._find(pod)
        await self._start_containers(run)
        self._refresh_health(run)
        return run.status

    async def cut_stream(self, resource: str) -> None:
        """Drop the connection to the plugin of a resource, as a kubelet does when another plugin of it goes."""
        await self.manager.deregister_plugin(resource)

    def before_registration(self, call: BeforeRegister | None) -> None:
        """Let `call` see each Register request first: it may wait, and refuse by raising `KubeletError`."""
        self._before_register = call
        if self._manager is not None:
            self._manager.server.before_register = call

    async def run_container_options(
        self, pod: Pod | str, container: Container | str
    ) -> DeviceRunContainerOptions | None:
        """What the runtime is told when the container starts. Raises `AllocationError`."""
        run = self._find(pod)
        name = container if isinstance(container, str) else container.name
        return await self.manager.get_device_run_container_options(run.pod, run.pod.container(name))

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
        run = self._find(pod)
        return {
            resource: list(ids) for resource, ids in (self.manager.get_devices(run.pod.uid, container) or {}).items()
        }

    async def until(self, predicate: Callable[[], T], seconds: float = 10.0) -> T:
        """Return what `predicate` says as soon as that is true, looking after each change. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not (value := predicate()):
                await self._changed.wait()
        return value

    async def changed_since(self, changes: int, seconds: float = 10.0) -> int:
        """Return `self.changes` as soon as it is more than `changes`. Raises TimeoutError."""
        return await self.until(lambda: self.changes > changes and self.changes, seconds)

    async def events(self) -> AsyncIterator[Event]:
        """What happens from now on, without end."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    async def _start_services(self, manager: ManagerImpl) -> None:
        containers, running = self._containers()
        await manager.start(self.active_pods, lambda: self._sources_ready, containers, running)
        self.pod_resources_socket.unlink(missing_ok=True)  # a kubelet that was killed leaves it
        self._pod_resources_server = PodResourcesServer(
            self.pod_resources_socket, manager, self.active_pods, self.clock
        )
        await self._pod_resources_server.start()
        handlers = {"DevicePlugin": manager.get_watcher_handler(), **self._plugin_handlers}
        self._watcher = PluginWatcher(
            self.plugins_registry, handlers, self.clock, self._timeouts, self._reconcile_period
        )
        await self._watcher.start()
        self._spawn(self._follow_health(manager))
        self._spawn(self._follow_node_status())

    async def _admit(self, run: PodRun) -> None:
        manager = self.manager
        async with self._admission:
            try:
                await self._topology.admit(run.pod, manager.allocate_container)
            except TopologyAffinityError as error:
                self._reject(run, "TopologyAffinityError", str(error))
                return
            except (AllocationError, PluginCallError) as error:
                self._reject(run, "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
                return
            manager.update_plugin_resources(NodeInfo(self.allocatable()), PodAdmitAttributes(run.pod))
        self._notify(Event("admitted", run.name))

    def _reject(self, run: PodRun, reason: str, text: str) -> None:
        run.reject(reason, text)
        self._notify(Event(reason, run.name, text))

    async def _start_containers(self, run: PodRun) -> None:
        """Start, in order, every container that waits; init containers end at once."""
        async with run.starting:
            failed = False
            for container in run.pod.all_containers:
                if run.container(container.name).state != "waiting":
                    continue
                is_started = await self._start_container(run, container)
                failed = failed or not is_started
                if not is_started and run.pod.is_init_container(container):
                    break
            if run.status.is_terminal:
                return
            self._refresh_health(run)
            run.settle()
        if failed and run.retry is None:
            run.retry = self._spawn(self._retry(run))

    async def _start_container(self, run: PodRun, container: Container) -> bool:
        try:
            await self.manager.get_device_run_container_options(run.pod, container)
        except (AllocationError, PluginCallError) as error:
            run.set_container(container.name, reason="CreateContainerConfigError", message=str(error))
            self._notify(Event("Failed", run.name, f"Error: {error}"))
            return False
        run.set_container(container.name, state="running", reason="", message="")
        if run.pod.is_init_container(container) and not container.is_sidecar:
            run.end_container(container.name, 0)
        self._notify(Event("container", run.name, f"{container.name} {run.container(container.name).state}"))
        return True

    async def _retry(self, run: PodRun) -> None:
        await self.clock.sleep(RETRY_PERIOD)
        run.retry = None
        await self._start_containers(run)

    def _containers(self) -> tuple[dict[tuple[str, str], str], frozenset[str]]:
        """What a runtime would report: the containers that exist, and those that run."""
        known: dict[tuple[str, str], str] = {}
        running = set()
        for run in self._pods.values():
            for status in run.containers():
                id_ = known[run.pod.uid, status.name] = f"{run.pod.uid}/{status.name}"
                if status.state == "running":
                    running.add(id_)
        return known, frozenset(running)

    def _pod_changed(self, run: PodRun, before: PodStatus) -> None:
        kind = f"phase {run.status.phase}" if run.status.phase != before.phase else "status"
        self._notify(Event(kind, run.name, run.status.message))

    def _refresh_health(self, run: PodRun) -> None:
        updated = self.manager.update_allocated_resources_status(run.pod, run.status)
        run.set(container_statuses=updated.container_statuses)

    async def _follow_health(self, manager: ManagerImpl) -> None:
        while True:
            for uid in await manager.updates().get():
                if uid in self._pods:
                    self._refresh_health(self._pods[uid])

    async def _follow_node_status(self) -> None:
        while True:
            await self.clock.sleep(STATUS_PERIOD)
            self._sync_node_status()

    def _sync_node_status(self) -> None:
        if self._manager is None:
            return
        before = (dict(self._capacity), self._allocatable)
        capacity, allocatable, removed = self._manager.get_capacity()
        self._capacity.update(capacity)
        self._capacity.update(dict.fromkeys(removed, 0))
        self._allocatable = self._capacity | allocatable
        if before != (self._capacity, self._allocatable):
            changed = self._capacity.keys() | before[0].keys()
            for resource in sorted(changed):
                now = (self._capacity.get(resource), self._allocatable.get(resource))
                if now != (before[0].get(resource), before[1].get(resource)):
                    self._notify(Event("capacity", resource, f"{now[0]} allocatable {now[1]}"))

    def _manager_changed(self, kind: str, resource: str) -> None:
        self._notify(Event(kind, resource))
        if kind != "registered":
            self._sync_node_status()

    def _notify(self, event: Event) -> None:
        for queue in self._listeners:
            queue.put_nowait(event)
        self.changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _active(self) -> list[PodRun]:
        return [run for run in self._pods.values() if not run.status.is_terminal]

    def _find(self, pod: Pod | str) -> PodRun:
        """The pod on the node, the latest where a name was used again."""
        wanted = {pod.uid or full_name(pod)} if isinstance(pod, Pod) else {pod, f"default/{pod}"}
        for uid, run in reversed(self._pods.items()):
            if uid in wanted or run.name in wanted:
                return run
        raise NodeError(f"pod {full_name(pod) if isinstance(pod, Pod) else pod} is not on the node")
