"""The stand-in as a `World`."""

import asyncio
import contextlib
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from kubelet import RELEASES, ClusterError, MemoryCluster, Node, NodeError, SystemClock, Timeouts, Version
from kubelet.clock import Timer
from resourceapi.objects import ObjectMeta, core, to_dict, v1
from resourceapi.objects.core import Pod, Taint
from resourceapi.objects.pod_requests import units
from telemetry.exposition import render
from tests.kubelet.both.world import (
    ConcurrentAction,
    PodView,
    ShownHealth,
    claim_names,
    nothing,
    pod_view,
    reserved,
)

_SPEED_UP = 5


class _FastClock(SystemClock):
    """A clock with shorter periods. The wall clock is unchanged, because the leases of health reports depend on it."""

    def now(self) -> float:
        return super().now() * _SPEED_UP

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        return super().call_later(seconds / _SPEED_UP, call)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / _SPEED_UP)


class StandIn:
    """A node without Kubernetes, as a context manager."""

    def __init__(self, folder: Path, kubernetes: Version) -> None:
        self.release = RELEASES[kubernetes]
        self.kubelet_folder = folder
        self.cdi_folder = folder / "cdi"
        self._cluster = MemoryCluster()
        self._node = Node(
            folder,
            clock=_FastClock(),
            timeouts=Timeouts(dial=2.0, get_info=30.0),  # some scenarios wait for a dial that never succeeds
            reconcile_period=0.05 * _SPEED_UP,
            cluster=self._cluster,
            kubernetes=kubernetes,
            cgroups=folder / "cgroup",
            cgroup_driver="cgroupfs",
            capacity={"cpu": 2, "memory": "16Gi", "ephemeral-storage": 0},
        )
        self.node_name = self._node.node_name
        self._object = core.Node(metadata=ObjectMeta(name=self.node_name))  # as an API server would have it
        self._node.object.api_server = self._read_node
        # pod -> the first warning about it
        self._warnings: defaultdict[str, asyncio.Future[tuple[str, str]]] = defaultdict(asyncio.Future)
        # pod -> the first event about its claims
        self._failures: defaultdict[str, asyncio.Future[str]] = defaultdict(asyncio.Future)
        self._connected: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)  # by endpoint
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.cdi_folder.mkdir()
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)  # start listening before the first event
        await self._stack.enter_async_context(self._node)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def until_offered(self, resource: str, capacity: int, allocatable: int) -> None:
        wanted = (capacity, allocatable)
        await self._node.until(
            lambda: (self._node.capacity().get(resource), self._node.allocatable().get(resource)) == wanted
        )

    async def resources(self) -> Mapping[str, tuple[int, int]]:
        allocatable = self._node.allocatable()
        return {name: (count, allocatable[name]) for name, count in self._node.capacity().items()}

    async def allocatable(self) -> Mapping[str, int]:
        return units((await self._node.object.read()).status.allocatable)

    async def set_node(self, labels: Mapping[str, str], taints: Sequence[Taint] = ()) -> None:
        metadata = ObjectMeta(name=self.node_name, labels=labels)
        self._object = core.Node(metadata=metadata, spec=core.NodeSpec(taints=tuple(taints)))

    async def _read_node(self, _: bool) -> core.Node:
        return self._object

    async def run_static(self, pod: Pod) -> None:
        await self._node.run_static_pod(pod)

    async def remove_static(self, name: str) -> None:
        await self._node.remove_static_pod(name)

    async def warned(self, pod: str) -> tuple[str, str]:
        async with asyncio.timeout(30):
            return await self._warnings[f"default/{pod}"]

    async def run(self, pod: Pod, until: str = "Running") -> PodView:
        name, uid = pod.metadata.name, str(uuid.uuid4())
        for each in claim_names(pod):
            with contextlib.suppress(ClusterError):  # the claim does not exist
                claim = await self._cluster.get_claim("default", each)
                self._cluster.put(reserved(claim, name, uid) or claim)
        await self._node.admit(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid)))

        def is_there() -> bool:
            view = self._view(name)
            return until in (view.phase, *(each.reason for each in view.containers.values()))

        await self._node.until(is_there)  # a first attempt may meet a plugin that has just stopped
        return self._view(name)

    async def bind(self, pod: Pod) -> None:
        self._node.bind(pod)

    async def until_phase(self, name: str, phase: str) -> PodView:
        await self._node.until(lambda: self._node.status(name).phase == phase)
        return await self.view(name)

    async def view(self, name: str) -> PodView:
        return self._view(name)

    def _view(self, name: str) -> PodView:
        (uid,) = [pod.uid for pod, _ in self._node.pods() if pod.metadata.name == name]
        return pod_view(uid, to_dict(self._node.status(name)))

    async def until_device_health(self, name: str, health: str) -> None:
        def shown() -> str:
            (resource,) = self._node.status(name).container_statuses[0].allocated_resources_status
            return resource.resources[0].health

        await self._node.until(lambda: shown() == health)

    async def end_container(self, name: str, container: str, until: str) -> PodView:
        before = (await self.view(name)).containers[container].restarts
        await self._node.exit_container(name, container)
        view = await self.view(name)
        if until == "restarted":
            assert view.containers[container].restarts == before + 1
        else:
            assert view.phase == until
        return view

    async def lose_sandbox(self, name: str) -> PodView:
        await self._node.lose_sandbox(name)
        return await self.view(name)

    async def until_ended(self, name: str) -> None:
        await self._node.until(lambda: self._node.status(name).is_terminal)
        assert self._node.status(name).container_statuses[0].state.terminated is not None

    async def remove(self, name: str, *, force: bool = False) -> None:
        with contextlib.suppress(NodeError):  # deleted already
            await self._node.remove(name, force=force)
        await self._node.until(lambda: name not in {pod.metadata.name for pod, _ in self._node.pods()})

    async def last_view(self, name: str) -> PodView:
        (uid,) = [pod.uid for pod, _ in self._node.pods() if pod.metadata.name == name]
        return pod_view(uid, to_dict(await self._node.remove(name, until_gone=True)))

    async def until_ending(self, name: str) -> None:
        await asyncio.sleep(0)  # one step of the event loop starts the removal

    async def restart_kubelet(self, meanwhile: ConcurrentAction = nothing, refused: str = "") -> None:
        self._node.sources.hold()
        await self._node.restart()
        await meanwhile()
        await self._release()

    @contextlib.asynccontextmanager
    async def without_api_server(self) -> AsyncIterator[None]:
        self._node.sources.hold()
        await self._node.restart()
        yield
        await self._release()

    async def _release(self) -> None:
        self._node.sources.release()
        await self._node.until(lambda: self._node.sources.all_ready)

    async def until(self, predicate: Callable[[], bool]) -> None:
        await self._node.until(predicate)

    async def until_cgroup(self, uid: str, is_there: bool) -> None:
        cgroups = self.kubelet_folder / "cgroup" / "kubepods"
        await self._node.until(lambda: bool(list(cgroups.rglob(f"pod{uid}"))) == is_there)

    async def until_state(self, pod: str, container: str, state: str) -> None:
        def shown() -> list[str]:
            status = self._node.status(pod)
            return [each.state.name for each in status.all_containers if each.name == container]

        await self._node.until(lambda: shown() == [state])

    async def put_claim(self, claim: v1.ResourceClaim) -> v1.ResourceClaim:
        metadata = msgspec.structs.replace(claim.metadata, uid=str(uuid.uuid4()))
        stored = msgspec.structs.replace(claim, metadata=metadata)
        self._cluster.put(stored)
        return stored

    async def remove_claim(self, name: str) -> None:
        self._cluster.remove(name)

    async def until_connected(self, endpoint: Path) -> None:
        async with asyncio.timeout(30):
            await self._connected[str(endpoint)].wait()

    async def prepare_failure(self, pod: str) -> str:
        async with asyncio.timeout(30):
            return await self._failures[f"default/{pod}"]

    async def metrics(self) -> str:
        return render(self._node.metrics())

    async def injected(self, pod: str, container: str) -> list[str]:
        return list(dict.fromkeys(self._node.claimed_devices(pod, container)))

    async def until_health(self, pod: str, shown: Sequence[ShownHealth]) -> None:
        def now() -> list[ShownHealth]:
            entries = self._node.status(pod).container_statuses[0].allocated_resources_status
            return sorted(
                ShownHealth(entry.name, each.resource_id, each.health, each.message or "")
                for entry in entries
                for each in entry.resources
            )

        await self._node.until(lambda: now() == sorted(shown))

    async def _watch(self) -> None:
        async for event in self._node.events():
            if event.kind == "driver connected":
                self._connected[event.text].set()
            elif event.kind in ("driver disconnected", "driver deregistered"):
                self._connected[event.text].clear()
            if event.kind[0].isupper() and not self._warnings[event.about].done():
                self._warnings[event.about].set_result((event.kind, event.text))
            if event.kind == "FailedPrepareDynamicResources" and not self._failures[event.about].done():
                self._failures[event.about].set_result(event.text)
