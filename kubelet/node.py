"""A node without Kubernetes: the kubelet's sockets and folders below any directory, and containers that only pretend.

What a plugin sees is a kubelet: registration, lists, admission of pods one after the other, container starts, restarts
with what the checkpoint remembers. Pods and their containers outlive a restart of the kubelet, as they do on a node.
"""

import math
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from grpcunix import MAX_PATH, is_live
from kubelet.clock import Clock, SystemClock
from kubelet.devicemanager import Device, DeviceRunContainerOptions, ManagerImpl, PluginHandler
from kubelet.devicemanager.endpoint import Endpoint
from kubelet.devicemanager.server import BeforeRegister
from kubelet.dramanager import Cluster, DRAManager, MemoryCluster
from kubelet.errors import NodeError
from kubelet.events import Event, Events
from kubelet.node_status import NodeStatus
from kubelet.pods.cgroups import CgroupDriver, PodCgroups
from kubelet.pods.sources import PodSources, static_pod
from kubelet.pods.worker import Managers
from kubelet.pods.workers import PodWorkers
from kubelet.process import KubeletProcess, Settings
from kubelet.release import DEFAULT_VERSION, RELEASES, Release, Version
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from kubelet.topology import Policy, Scope
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects.core import Container, Pod, PodStatus
from telemetry.exposition import Metric

T = TypeVar("T")


def check_folder(directory: Path) -> None:
    """Raise `NodeError` where no kubelet can start: another one serves there, or a socket's path would be too long."""
    path = directory.absolute() / "device-plugins/kubelet.sock"
    if len(os.fsencode(path)) > MAX_PATH:
        raise NodeError(f"{path}: a socket's path has at most {MAX_PATH} bytes; use a folder with a shorter one")
    if is_live(path):
        raise NodeError(f"{path}: a kubelet serves here; stop it or use another folder")


class Node:
    """A node whose kubelet can be stopped, started and asked. Use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        *,
        kubernetes: Version = DEFAULT_VERSION,
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
        static_pods: Sequence[Pod] = (),
        api_delay: float = 0.0,
        cgroups: Path | None = None,
        cgroup_driver: CgroupDriver = "systemd",
    ) -> None:
        """A node below `directory`, which must be short: a socket's path has 107 bytes at the most.

        Args:
            directory: gets `device-plugins`, `plugins_registry`, `pod-resources`, the DRA manager's state files, and
                `plugins`, where drivers have folders of their own.
            kubernetes: whose kubelet it is.
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
            static_pods: the manifests on the node; see `run_static_pod`.
            api_delay: seconds until the API server has told a kubelet that starts of its pods; a real one takes 1.
            cgroups: where the pods' cgroups are made; nowhere by default.
            cgroup_driver: the kubelet's `cgroupDriver`.
        """
        self.directory = directory.absolute()
        self.clock: Clock = clock or SystemClock()
        self.cluster: Cluster = cluster or MemoryCluster()
        self.node_name = node_name
        self._settings = Settings(
            directory=self.directory,
            clock=self.clock,
            timeouts=timeouts,
            numa_nodes=tuple(numa_nodes),
            topology_policy=topology_policy,
            topology_scope=topology_scope,
            shuffle=shuffle,
            reconcile_period=reconcile_period,
            plugin_handlers=dict(plugin_handlers or {}),
            cluster=self.cluster,
            node_name=node_name,
            release=RELEASES[kubernetes],
            api_delay=api_delay,
        )
        self.device_plugins = self._settings.device_plugins
        self.plugins_registry = self._settings.plugins_registry
        self.pod_resources = self._settings.pod_resources
        self._before_register: BeforeRegister | None = None
        self._events = Events()
        self._status = NodeStatus(self._events.notify)
        self._cgroups = PodCgroups(cgroups, cgroup_driver)
        self._workers = PodWorkers(self.clock, self._events.notify, self.allocatable, self._cgroups)
        self._process: KubeletProcess | None = None
        for each in static_pods:
            self._workers.bind(static_pod(each, node_name), "file")

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
    def release(self) -> Release:
        """What the kubelet does as its Kubernetes does."""
        return self._settings.release

    @property
    def sources(self) -> PodSources:
        """Where the kubelet hears of its pods; tests hold the API server back here."""
        return self._workers.sources

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
        return self._process is not None and self._process.is_running

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
        """Start the kubelet; it admits again what its sources deliver at once. Raises `NodeError` and OSError."""
        if self.is_running:
            return
        await self.stop()  # raises what the last one ended of
        check_folder(self.directory)
        self.device_plugins.mkdir(mode=0o755, parents=True, exist_ok=True)
        for folder in (self.directory / "plugins", self.plugins_registry, self.pod_resources):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        process = self._process = KubeletProcess(
            self._settings, self._workers, self._cgroups, self._status, self._events.notify, self._before_register
        )
        try:
            await process.started()
        except BaseException:
            if self._process is process and not process.is_running:
                self._process = None
            raise

    async def stop(self, *, kill: bool = False) -> None:
        """Stop the kubelet, at any moment; pods and their containers stay. Idempotent.

        Its sockets stay as files at which nobody listens. With `kill` it is not even left to write its state files.
        """
        process, self._process = self._process, None
        if process is not None:
            try:
                await process.stop(kill=kill)
            finally:
                self._events.notify(Event("killed" if kill else "stopped", str(self.directory)))

    async def restart(self, *, kill: bool = False) -> None:
        """Stop the kubelet and start it again."""
        await self.stop(kill=kill)
        await self.start()

    async def reboot(self) -> None:
        """Switch the machine off and on: kubelet, sandboxes, containers and cgroups are gone, then a kubelet starts."""
        await self.stop(kill=True)
        self._workers.lose_sandboxes()
        self._cgroups.clear()
        await self.start()

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers; return what became of it. Raises `NodeError`.

        Only one pod is admitted at a time. A pod that is on the node already is not admitted again. The first attempt
        to prepare the pod's claims is waited for; when it fails, the pod stays Pending and is tried again later. A
        kubelet that stops meanwhile leaves it Pending, and the next one admits it again.
        """
        return await self._workers.admit(pod)

    def bind(self, pod: Pod) -> None:
        """Let the API server have a pod for this node; the kubelet admits it once it hears of it. Raises NodeError."""
        self._workers.bind(pod)

    async def run_static_pod(self, manifest: Pod) -> PodStatus:
        """Put a manifest on the node, and return what became of its pod, `<name>-<node name>`. Raises `NodeError`."""
        return await self._workers.admit(static_pod(manifest, self.node_name), "file")

    async def remove_static_pod(self, name: str) -> None:
        """Take a manifest off the node. Its pod ends once all sources are ready. Raises `NodeError`."""
        await self._workers.remove(self._workers.find(f"default/{name}-{self.node_name.lower()}"), force=True)

    def status(self, pod: Pod | str) -> PodStatus:
        """The status of a pod, named by itself, its uid, its name or `namespace/name`. Raises `NodeError`."""
        return self._workers.find(pod).status

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """All pods on the node, in the order in which they came."""
        return [(run.pod, run.status) for run in self._workers.all()]

    def active_pods(self) -> list[Pod]:
        """The pods that the kubelet knows and that have not ended; pod resources lists these."""
        return [run.pod for run in self._workers.active()]

    async def exit_container(self, pod: Pod | str, container: str, code: int = 0) -> PodStatus:
        """End a container with an exit code; the kubelet starts it again if the pod wants that, once it knows it.

        Raises `NodeError`.
        """
        run = self._workers.find(pod)
        run.end_container(container, code)
        return await self._workers.sync(run)

    def finish(self, pod: Pod | str) -> PodStatus:
        """Let all containers of a pod end well. It is Succeeded soon, once its claims are unprepared."""
        run = self._workers.find(pod)
        run.finish()
        return run.status

    async def lose_sandbox(self, pod: Pod | str) -> PodStatus:
        """Lose a pod's sandbox with all its containers, as after a reboot; the kubelet makes another, once it runs."""
        run = self._workers.find(pod)
        run.lose_sandbox()
        return await self._workers.sync(run)

    async def remove(self, pod: Pod | str, *, force: bool = False, until_gone: bool = False) -> PodStatus:
        """Delete a pod from the node, also while the kubelet is stopped, which ends it when it hears of it.

        A pod with claims goes when they are unprepared; the first attempt is waited for, or `until_gone` as many as it
        takes. With `force` it goes at once, and the claims are unprepared later. Returns its status as of then, the
        last one of a pod that is gone. Raises `NodeError`.
        """
        run = self._workers.find(pod)
        await self._workers.remove(run, force=force)
        if until_gone:
            await self.until(lambda: not run.is_named, math.inf)
        return run.status

    async def sync(self, pod: Pod | str) -> PodStatus:
        """Look after a pod now: prepare and start what waits, and read the health of its devices."""
        return await self._workers.sync(self._workers.find(pod))

    def cgroup(self, pod: Pod | str) -> Path | None:
        """A pod's cgroup, whether it is there or not; None on a node without any."""
        return self._cgroups.path(self._workers.find(pod).pod)

    async def cut_stream(self, resource: str) -> None:
        """Drop the connection to the plugin that is asked for a resource, as some kubelets do when another goes."""
        endpoint = self.endpoints().get(resource)
        await self.manager.deregister_plugin(resource, str(endpoint.socket) if endpoint is not None else "")

    def before_registration(self, call: BeforeRegister | None) -> None:
        """Let `call` see each Register request first: it may wait, and refuse by raising `KubeletError`."""
        self._before_register = call
        if self.is_running:
            self.manager.server.before_register = call

    async def run_container_options(self, pod: Pod | str, container: Container | str) -> DeviceRunContainerOptions:
        """What the runtime is told when the container starts. Raises `KubeletError`."""
        run = self._workers.find(pod)
        name = container if isinstance(container, str) else container.name
        return await self._running.run_container_options(run, run.container(name))

    def capacity(self) -> dict[str, int]:
        """The node's capacity of devices, as of now; resources that left the node stay as zero."""
        return self._numbers()[0]

    def allocatable(self) -> dict[str, int]:
        """The node's allocatable devices, as of now. Allocations do not lower it."""
        return self._numbers()[1]

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

    def endpoints(self) -> dict[str, Endpoint]:
        """Resource -> the plugin that is asked for it, connected or remembered."""
        return dict(self.manager.state.endpoints)

    def plugin_responses(self, pod: Pod | str, container: str) -> dict[str, api.ContainerAllocateResponse]:
        """Resource -> what its plugin answered to Allocate for a container."""
        return self.manager.get_responses(self._workers.find(pod).pod.uid, container)

    def claimed_devices(self, pod: Pod | str, container: str) -> tuple[str, ...]:
        """The CDI ids that a container gets through its claims. Raises `ClaimError` while they are not prepared."""
        run = self._workers.find(pod)
        return self.dra_manager.get_resources(run.pod, run.container(container))

    def metrics(self) -> list[Metric]:
        """What the kubelet that runs now has counted, of a kubelet's /metrics. None while it is stopped."""
        process = self._process
        if process is None or not process.is_running:
            return []
        return list(process.metrics.collect(self.dra_manager.claims_in_use()))

    async def until(self, predicate: Callable[[], T], seconds: float = 30.0) -> T:
        """Return what `predicate` says as soon as that is true, looking after each change. Raises TimeoutError."""
        return await self._events.until(predicate, seconds)

    async def changed_since(self, changes: int, seconds: float = 30.0) -> int:
        """Return `self.changes` as soon as it is more than `changes`. Raises TimeoutError."""
        return await self.until(lambda: self.changes > changes and self.changes, seconds)

    def events(self) -> AsyncIterator[Event]:
        """What happens from now on, without end."""
        return self._events.stream()

    @property
    def _running(self) -> Managers:
        if self._process is None or not self._process.is_running:
            raise NodeError("the kubelet is stopped; start it first")
        return self._process.managers

    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        if self.is_running:
            return self._status.now(self.manager)
        return dict(self._status.capacity), dict(self._status.allocatable)
