"""A device manager with real sockets, with plugins that tests control, and without a kubelet above it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubelet.clock import FakeClock
from kubelet.devicemanager import Device, ManagerImpl
from kubelet.pods import container, pod
from kubelet.rpc import Timeouts
from kubelet.stubs import DevicePluginStub
from kubelet.topology import Hint
from resourceapi.objects import to_dict
from resourceapi.objects.core import Container, ContainerStatus, Pod

LONG_TIMEOUTS = Timeouts(dial=30.0, get_info=30.0)  # long enough for a busy machine
R1 = "domain1.com/resource1"
R2 = "domain2.com/resource2"
R3 = "domain2.com/resource3"


def state_details(status: ContainerStatus) -> tuple[str, str]:
    """The reason and message of a container's state."""
    details = to_dict(status.state).get(status.state.name) or {}
    return details.get("reason", ""), details.get("message", "")


class FixedAffinity:
    """An affinity that is the same for all containers."""

    def __init__(self, *nodes: int) -> None:
        self._hint = Hint(frozenset(nodes) if nodes else None, True)

    def get_affinity(self, pod_uid: str, container: str) -> Hint:
        return self._hint


class ManagerKit:
    """A running manager, its plugins, and the active pods."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.active: list[Pod] = []
        self.sources_ready = True
        self._options = {"clock": self.clock, "timeouts": LONG_TIMEOUTS, **options}
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()
        self._count = 0
        self._lists = 0
        self.manager = self._new_manager()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        await self.manager.stop()

    async def restart(self, running: Mapping[tuple[str, str], str] | None = None) -> None:
        """Start another manager with the same folder; `running` are the containers that still run."""
        await self.manager.stop()
        self.manager = self._new_manager()
        await self._start(running or {})

    async def plugin(
        self, resource: str = R1, devices: Sequence[Device] = (), socket: str = "", **options: Any
    ) -> DevicePluginStub:
        """A registered plugin whose first list has arrived."""
        self._count += 1
        path = self.folder / (socket or f"p{self._count}.sock")
        stub = await self._stack.enter_async_context(DevicePluginStub(path, resource, devices, **options))
        lists = self._lists
        await stub.register(self.folder / "kubelet.sock")
        await self.until(lambda: self._lists > lists)  # an earlier plugin can have left the same list
        await self.listed(resource, devices)
        return stub

    async def listed(self, resource: str, devices: Sequence[Device]) -> None:
        """Wait until the manager's list is `devices`."""
        wanted = {device.id: device for device in devices}
        await self.until(lambda: self.manager.state.all.get(resource) == wanted)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until `predicate` is true; it is evaluated after each change."""
        async with asyncio.timeout(30):
            while not predicate():
                await self._changed.wait()

    def pod(self, name: str, *containers: Container, init: Sequence[Container] = ()) -> Pod:
        """An active pod whose UID is its name."""
        made = pod(name, *containers, init=tuple(init), uid=name)
        self.active.append(made)
        return made

    async def admit(self, name: str, *containers: Container, init: Sequence[Container] = ()) -> Pod:
        """An active pod whose containers have their devices."""
        made = self.pod(name, *containers, init=init)
        for each in made.all_containers:
            await self.manager.allocate_container(made, each)
        return made

    async def pod_with_devices(
        self, name: str, ids: Sequence[str], resource: str = R1, container_name: str = "c"
    ) -> Pod:
        """An active pod that holds exactly `ids`, as after a restart from a checkpoint."""
        made = self.pod(name, container(container_name, {resource: len(ids)}))
        state = self.manager.state
        state.records.reserve(name, container_name, resource)
        by_node = state.group_by_node(resource, ids)
        response = (await state.endpoints[resource].allocate(ids)).container_responses[0]
        state.records.commit(name, container_name, resource, by_node, response)
        return made

    def held(self, owner: Pod, name: str, resource: str = R1) -> set[str]:
        """The IDs that a container has."""
        return set((self.manager.get_devices(owner.uid, name) or {}).get(resource, {}))

    def in_use(self, resource: str = R1) -> int:
        """The number of allocated devices."""
        return len(self.manager.state.allocated.get(resource, ()))

    def _new_manager(self) -> ManagerImpl:
        return ManagerImpl(self.folder / "kubelet.sock", on_change=self._notify, **self._options)

    async def _start(self, running: Mapping[tuple[str, str], str] | None = None) -> None:
        known = dict(running or {})
        await self.manager.start(lambda: self.active, lambda: self.sources_ready, known, frozenset(known.values()))

    def _notify(self, what: str, *_: str) -> None:
        self._lists += what == "devices"
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def healthy(*ids: str, node: int | None = None) -> list[Device]:
    """Healthy devices, on one NUMA node if `node` is not None."""
    return [Device(id_, topology=None if node is None else (node,)) for id_ in ids]


def unhealthy(*ids: str) -> list[Device]:
    """Unhealthy devices."""
    return [Device(id_, "Unhealthy") for id_ in ids]
