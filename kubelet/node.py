"""A node without Kubernetes: the kubelet's sockets and folders below any directory, with simulated containers.

To plugins it behaves like a kubelet: registration, lists, admission of one pod after the other, container starts, and
restarts that restore the checkpoint. Pods and their containers outlive a restart of the kubelet, as on a real node.
"""

import math
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
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
from kubelet.node_object import NodeObject
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
    """Raise `NodeError` if no kubelet can start here: another one is serving, or a socket's path would be too long."""
    path = directory.absolute() / "device-plugins/kubelet.sock"
    if len(os.fsencode(path)) > MAX_PATH:
        raise NodeError(f"{path}: a socket's path has at most {MAX_PATH} bytes; use a folder with a shorter one")
    if is_live(path):
        raise NodeError(f"{path}: a kubelet serves here; stop it or use another folder")


class Node:
    """A node whose kubelet can be stopped, started and inspected. Use it as a context manager."""

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
        capacity: Mapping[str, str | int] = MappingProxyType({}),
        labels: Mapping[str, str] = MappingProxyType({}),
        static_pods: Sequence[Pod] = (),
        api_delay: float = 0.0,
        cgroups: Path | None = None,
        cgroup_driver: CgroupDriver = "systemd",
    ) -> None:
        """A node below `directory`, which must be short: a socket's path has at most 107 bytes.

        Args:
            directory: gets `device-plugins`, `plugins_registry`, `pod-resources`, the DRA manager's state files, and
                `plugins` for the folders of drivers.
            kubernetes: the kubelet's Kubernetes release.
            clock: the clock for grace periods and retries; by default the machine's.
            timeouts: the kubelet's timeouts of calls to plugins.
            numa_nodes: the machine's NUMA nodes.
            topology_policy: the kubelet's `topologyManagerPolicy`.
            topology_scope: the kubelet's `topologyManagerScope`.
            shuffle: chooses devices at random, like the kubelet; by default in the order of the plugin's list.
            reconcile_period: seconds between scans of `plugins_registry`.
            plugin_handlers: additional handlers by plugin type, for types other than `DevicePlugin` and `DRAPlugin`.
            cluster: reads claims and deletes ResourceSlices; by default a `MemoryCluster`.
            node_name: the node's name, for its ResourceSlices.
            capacity: resources apart from devices, all allocatable: `{"cpu": 4, "memory": "16Gi", "pods": 20}`. By
                default `kubelet.node_object.DEFAULT_CAPACITY`, which is large. Pods that do not fit are rejected.
            labels: the node's labels, for the node selectors of pods, in addition to those that a kubelet sets.
            static_pods: the static pod manifests on the node; see `run_static_pod`.
            api_delay: seconds until a starting kubelet gets its pods from the API server; a real one takes 1.
            cgroups: the folder of the pods' cgroups; none by default.
            cgroup_driver: the kubelet's `cgroupDriver`.

        Raises `NodeError` if an amount of `capacity` or a label is invalid.
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
        self.object = NodeObject(node_name, capacity, self.allocatable, labels)
        self._workers = PodWorkers(self.clock, self._events.notify, self.object, self._cgroups, self.release)
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
        """The kubelet's Kubernetes release."""
        return self._settings.release

    @property
    def sources(self) -> PodSources:
        """The sources of the kubelet's pods; tests make the API server unavailable here."""
        return self._workers.sources

    @property
    def kubelet_socket(self) -> Path:
        """The socket at which device plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of pod resources, for monitoring agents."""
        return self.pod_resources / "kubelet.sock"

    @property
    def is_running(self) -> bool:
        """Whether the kubelet runs."""
        return self._process is not None and self._process.is_running

    @property
    def manager(self) -> ManagerImpl:
        """The device manager of the running kubelet. Raises `NodeError`."""
        return self._running.devices

    @property
    def dra_manager(self) -> DRAManager:
        """The DRA manager of the running kubelet. Raises `NodeError`."""
        return self._running.claims

    @property
    def changes(self) -> int:
        """The number of events so far."""
        return self._events.changes

    async def start(self) -> None:
        """Start the kubelet; it admits the pods that its sources deliver at once. Raises `NodeError` and OSError."""
        if self.is_running:
            return
        await self.stop()  # raises the error that ended the previous kubelet
        check_folder(self.directory)
        self.device_plugins.mkdir(mode=0o755, parents=True, exist_ok=True)
        for folder in (self.directory / "plugins", self.plugins_registry, self.pod_resources):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        process = self._process = KubeletProcess(
            self._settings, self._workers, self._cgroups, self._status, self._events.notify, self._before_register
        )
        try:
            await process.wait_started()
        except BaseException:
            if self._process is process and not process.is_running:
                self._process = None
            raise

    async def stop(self, *, kill: bool = False) -> None:
        """Stop the kubelet, at any time; pods and their containers stay. Idempotent.

        Its socket files stay without a listener. With `kill` it does not write its state files.
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
        """Simulate a reboot: kubelet, sandboxes, containers and cgroups are gone, then a kubelet starts."""
        await self.stop(kill=True)
        self._workers.lose_sandboxes()
        self._cgroups.clear()
        await self.start()

    async def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod and start its containers; return its status. Raises `NodeError`.

        Only one pod is admitted at a time. A pod that is on the node already is not admitted again. This waits for the
        first attempt to prepare the pod's claims; if it fails, the pod stays Pending and the kubelet retries later. If
        the kubelet stops meanwhile, the pod stays Pending, and the next kubelet admits it again.
        """
        return await self._workers.admit(pod)

    def bind(self, pod: Pod) -> None:
        """Add a pod for this node to the API server, from which the kubelet admits it later. Raises `NodeError`."""
        self._workers.bind(pod)

    async def run_static_pod(self, manifest: Pod) -> PodStatus:
        """Add a static pod manifest; return the status of its pod, `<name>-<node name>`. Raises `NodeError`."""
        return await self._workers.admit(static_pod(manifest, self.node_name), "file")

    async def remove_static_pod(self, name: str) -> None:
        """Remove a static pod manifest. Its pod ends when all sources are ready. Raises `NodeError`."""
        await self._workers.remove(self._workers.find(f"default/{name}-{self.node_name.lower()}"), force=True)

    def status(self, pod: Pod | str) -> PodStatus:
        """Return the status of a pod, identified by the object, uid, name or `namespace/name`. Raises `NodeError`."""
        return self._workers.find(pod).status

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """Return all pods on the node, in the order in which they were added."""
        return [(run.pod, run.status) for run in self._workers.all()]

    def active_pods(self) -> list[Pod]:
        """Return the pods that the kubelet knows and that have not ended; pod resources lists these."""
        return [run.pod for run in self._workers.active()]

    async def exit_container(self, pod: Pod | str, container: str, code: int = 0) -> PodStatus:
        """End a container with an exit code; the kubelet restarts it if the pod's restart policy requires that.

        Raises `NodeError`.
        """
        run = self._workers.find(pod)
        run.end_container(container, code)
        return await self._workers.sync(run)

    def finish(self, pod: Pod | str) -> PodStatus:
        """End all containers of a pod with exit code 0. The pod is Succeeded after its claims are unprepared."""
        run = self._workers.find(pod)
        run.finish()
        return run.status

    async def lose_sandbox(self, pod: Pod | str) -> PodStatus:
        """Lose a pod's sandbox and its containers, as in a reboot; the kubelet creates another one when it runs."""
        run = self._workers.find(pod)
        run.lose_sandbox()
        return await self._workers.sync(run)

    async def remove(self, pod: Pod | str, *, force: bool = False, until_gone: bool = False) -> PodStatus:
        """Delete a pod from the node. If the kubelet is stopped, the next kubelet ends the pod.

        A pod with claims ends after they are unprepared. This waits for the first attempt, or with `until_gone` until
        the pod is gone. With `force` the pod is gone at once, and its claims are unprepared later. Returns the pod's
        last status. Raises `NodeError`.
        """
        run = self._workers.find(pod)
        await self._workers.remove(run, force=force)
        if until_gone:
            await self.until(lambda: not run.is_in_source, math.inf)
        return run.status

    async def sync(self, pod: Pod | str) -> PodStatus:
        """Sync a pod now: prepare its claims, start waiting containers, and update the health of its devices."""
        return await self._workers.sync(self._workers.find(pod))

    def cgroup(self, pod: Pod | str) -> Path | None:
        """Return the path of a pod's cgroup, whether it exists or not; None on a node without cgroups."""
        return self._cgroups.path(self._workers.find(pod).pod)

    async def cut_stream(self, resource: str) -> None:
        """Drop the connection to the current plugin of a resource, as some kubelets do when another plugin ends."""
        endpoint = self.endpoints().get(resource)
        await self.manager.deregister_plugin(resource, str(endpoint.socket) if endpoint is not None else "")

    def before_registration(self, call: BeforeRegister | None) -> None:
        """Call `call` before each Register request; it can wait, and refuse by raising `KubeletError`."""
        self._before_register = call
        if self.is_running:
            self.manager.server.before_register = call

    async def run_container_options(self, pod: Pod | str, container: Container | str) -> DeviceRunContainerOptions:
        """Return the options that the runtime gets when the container starts. Raises `KubeletError`."""
        run = self._workers.find(pod)
        name = container if isinstance(container, str) else container.name
        return await self._running.run_container_options(run, run.container(name))

    @property
    def has_checkpoint(self) -> bool:
        """Whether the device manager has a checkpoint on disk."""
        return self.manager.checkpoint.path.exists()

    def capacity(self) -> dict[str, int]:
        """Return the node's current capacity of devices; resources that left the node stay as zero."""
        return self._capacity_and_allocatable()[0]

    def allocatable(self) -> dict[str, int]:
        """Return the node's current allocatable devices. Allocations do not lower it."""
        return self._capacity_and_allocatable()[1]

    def devices(self) -> dict[str, dict[str, Device]]:
        """Return resource -> id -> device; a device that cannot be allocated now is not `Healthy`."""
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
        """Return resource -> ids of a container."""
        uid = self._workers.find(pod).pod.uid
        return {resource: list(ids) for resource, ids in (self.manager.get_devices(uid, container) or {}).items()}

    def endpoints(self) -> dict[str, Endpoint]:
        """Return resource -> its current plugin, which is connected or was connected last."""
        return dict(self.manager.state.endpoints)

    def plugin_responses(self, pod: Pod | str, container: str) -> dict[str, api.ContainerAllocateResponse]:
        """Return resource -> its plugin's response to Allocate for a container."""
        return self.manager.get_responses(self._workers.find(pod).pod.uid, container)

    def claimed_devices(self, pod: Pod | str, container: str) -> tuple[str, ...]:
        """Return the CDI ids that a container gets through its claims. Raises `ClaimError` if they are not prepared."""
        run = self._workers.find(pod)
        return self.dra_manager.get_resources(run.pod, run.container(container))

    def metrics(self) -> list[Metric]:
        """Return the metrics of the running kubelet, as in its /metrics; empty while it is stopped."""
        process = self._process
        if process is None or not process.is_running:
            return []
        return list(process.metrics.collect(self.dra_manager.claims_in_use()))

    async def until(self, predicate: Callable[[], T], seconds: float = 30.0) -> T:
        """Wait until `predicate` returns a true value, and return it; checks after each change. Raises TimeoutError."""
        return await self._events.until(predicate, seconds)

    async def changed_since(self, changes: int, seconds: float = 30.0) -> int:
        """Wait until `self.changes` is more than `changes`, and return it. Raises TimeoutError."""
        return await self.until(lambda: self.changes > changes and self.changes, seconds)

    def events(self) -> AsyncIterator[Event]:
        """Return an endless stream of the events from now on."""
        return self._events.stream()

    @property
    def _running(self) -> Managers:
        if self._process is None or not self._process.is_running:
            raise NodeError("the kubelet is stopped; start it first")
        return self._process.managers

    def _capacity_and_allocatable(self) -> tuple[dict[str, int], dict[str, int]]:
        if self.is_running:
            return self._status.current(self.manager)
        return dict(self._status.capacity), dict(self._status.allocatable)
