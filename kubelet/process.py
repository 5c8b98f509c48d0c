"""One run of a kubelet: its managers, its sockets and its background tasks.

Everything runs below one task, so that no part can fail alone or outlive the kubelet.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from kubelet.clock import Clock
from kubelet.devicemanager import ManagerImpl, PluginHandler
from kubelet.devicemanager.server import BeforeRegister
from kubelet.dramanager import Cluster, DRAManager
from kubelet.dramanager.drivers import PLUGIN_TYPE
from kubelet.errors import ClaimError, NodeError
from kubelet.events import Event
from kubelet.metrics import KubeletMetrics
from kubelet.node_status import NodeStatus
from kubelet.pluginwatcher import PluginWatcher
from kubelet.podresources import PodResourcesServer
from kubelet.pods.cgroups import PodCgroups
from kubelet.pods.worker import Managers
from kubelet.pods.workers import PodWorkers
from kubelet.release import Release
from kubelet.rpc import Timeouts
from kubelet.topology import Policy, Scope, TopologyManager

STATUS_PERIOD = 10.0  # seconds between updates of the node status, which remove resources that left the node


class Settings(Struct, frozen=True, kw_only=True):
    """The settings with which a node starts its kubelets; see `Node`."""

    directory: Path
    clock: Clock
    timeouts: Timeouts
    numa_nodes: tuple[int, ...]
    topology_policy: Policy
    topology_scope: Scope
    shuffle: random.Random | None
    reconcile_period: float
    plugin_handlers: Mapping[str, PluginHandler]
    cluster: Cluster
    node_name: str
    release: Release
    api_delay: float

    @property
    def device_plugins(self) -> Path:
        """The folder of device plugins."""
        return self.directory / "device-plugins"

    @property
    def plugins_registry(self) -> Path:
        """The folder of the plugin watcher."""
        return self.directory / "plugins_registry"

    @property
    def pod_resources(self) -> Path:
        """The folder of pod resources."""
        return self.directory / "pod-resources"


class KubeletProcess:
    """One run of a kubelet."""

    def __init__(
        self,
        settings: Settings,
        workers: PodWorkers,
        cgroups: PodCgroups,
        status: NodeStatus,
        notify: Callable[[Event], None],
        before_register: BeforeRegister | None,
    ) -> None:
        """Start the kubelet."""
        self._settings = settings
        self._workers = workers
        self._cgroups = cgroups
        self._status = status
        self._notify = notify
        self._is_killed = False
        self.metrics = KubeletMetrics(settings.clock)
        self.managers = self._new_managers()
        self.managers.devices.server.before_register = before_register
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="kubelet")
        self._task.add_done_callback(self._on_done)

    @property
    def is_running(self) -> bool:
        """Whether the kubelet has not ended."""
        return not self._task.done()

    async def wait_started(self) -> None:
        """Wait until the kubelet serves and has admitted the pods that its sources deliver at once.

        Raises `NodeError` or OSError if the kubelet ended before.
        """
        await asyncio.wait([self._task, self._started], return_when=asyncio.FIRST_COMPLETED)
        if self._started.done():
            wait_admitted = asyncio.create_task(self._workers.wait_admitted())
            try:
                await asyncio.wait([self._task, wait_admitted], return_when=asyncio.FIRST_COMPLETED)
            finally:
                wait_admitted.cancel()
        if self._task.done():
            if not self._task.cancelled():
                self._task.result()
            raise NodeError("the kubelet was stopped while it started")

    async def stop(self, *, kill: bool = False) -> None:
        """Stop the kubelet. With `kill` it writes no more state files. Raises the error that ended it earlier."""
        self._is_killed = kill
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        settings, workers = self._settings, self._workers
        workers.sources.begin(late=settings.api_delay > 0)
        async with AsyncExitStack() as stack:
            stack.callback(workers.stopped)  # runs last, because the sockets need the pods while they serve
            await self._start_services(stack)
            self._status.sync_at_start(self.managers.devices)
            self._notify(Event("started", str(settings.directory)))
            async with asyncio.TaskGroup() as group:
                group.create_task(workers.run(self.managers))
                group.create_task(self._follow_health(self.managers.devices.updates()))
                group.create_task(self._follow_health(self.managers.claims.updates()))
                group.create_task(self._follow_node_status())
                group.create_task(self._await_api_server())
                self._started.set_result(None)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._notify(Event("failed", str(self._settings.directory), str(error)))

    async def _start_services(self, stack: AsyncExitStack) -> None:
        settings, workers = self._settings, self._workers
        devices, claims = self.managers.devices, self.managers.claims
        self._cgroups.begin()
        containers, running = workers.containers()
        stack.push_async_callback(self._stop_managers)
        try:
            await claims.start(lambda: {run.pod.uid for run in workers.active()}, lambda: workers.sources.all_ready)
        except ClaimError as error:
            raise NodeError(f"failed to run Kubelet: {error}") from error
        await devices.start(
            lambda: [run.pod for run in workers.active()], lambda: workers.sources.all_ready, containers, running
        )
        pod_resources = PodResourcesServer(
            settings.pod_resources / "kubelet.sock",
            devices,
            lambda: [run.pod for run in workers.active()],
            settings.clock,
            claims.get_dynamic_resources,
            lambda: [run.pod for run in workers.known()],
        )
        await pod_resources.start()
        stack.push_async_callback(pod_resources.stop)
        handlers: dict[str, PluginHandler] = {
            "DevicePlugin": devices.get_watcher_handler(),
            PLUGIN_TYPE: claims.get_watcher_handler(),
            **settings.plugin_handlers,
        }
        watcher = PluginWatcher(
            settings.plugins_registry,
            handlers,
            settings.clock,
            settings.timeouts,
            settings.reconcile_period,
            settings.release,
            on_refusal=lambda path, why: self._notify(Event("refused", str(path), why)),
        )
        await watcher.start()
        stack.push_async_callback(watcher.stop)

    async def _stop_managers(self) -> None:
        await self.managers.claims.stop(discard=self._is_killed)
        await self.managers.devices.stop(discard=self._is_killed)

    async def _follow_health(self, updates: "asyncio.Queue[list[str]]") -> None:
        while True:
            self._workers.refresh_health_of(await updates.get())

    async def _follow_node_status(self) -> None:
        while True:
            await self._settings.clock.sleep(STATUS_PERIOD)
            self._status.sync(self.managers.devices)

    async def _await_api_server(self) -> None:
        if self._settings.api_delay > 0:
            await self._settings.clock.sleep(self._settings.api_delay)
        await self._workers.sources.api_server_available()

    def _new_managers(self) -> Managers:
        settings = self._settings
        topology = TopologyManager(settings.numa_nodes, settings.topology_policy, settings.topology_scope)
        devices = ManagerImpl(
            settings.device_plugins / "kubelet.sock",
            settings.numa_nodes,
            topology,
            clock=settings.clock,
            timeouts=settings.timeouts,
            shuffle=settings.shuffle,
            release=settings.release,
            metrics=self.metrics,
            on_change=self._devices_changed,
        )
        topology.add_hint_provider(devices)
        claims = DRAManager(
            settings.directory,
            settings.cluster,
            settings.node_name,
            clock=settings.clock,
            timeouts=settings.timeouts,
            release=settings.release,
            metrics=self.metrics,
            on_change=lambda kind, about, text: self._notify(Event(kind, about, text)),
        )
        return Managers(devices, claims, topology)

    def _devices_changed(self, kind: str, resource: str, text: str) -> None:
        self._notify(Event(kind, resource, text))
        if kind not in ("registered", "refused"):
            self._status.sync(self.managers.devices)
