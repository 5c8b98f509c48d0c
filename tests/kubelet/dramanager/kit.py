"""A DRA manager with real sockets, with drivers that tests control, and without an API server."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from checkpoint.kubelet_claims import ClaimState, load
from kubelet import FakeClock, MemoryCluster, Node
from kubelet.dramanager import DRAManager
from kubelet.pods import container, pod
from kubelet.stubs import DRAPluginStub, Prepare, claimed
from kubeletapi.dra.v1 import api_pb2 as api
from resourceapi.objects import ObjectMeta, OwnerReference, v1
from resourceapi.objects.core import Pod
from tests.kubelet.kit import LONG_TIMEOUTS, state_details

DRIVER = "driver.example.com"
POOL = "realnode"

PREPARE = "NodePrepareResources"
PREPARE_RETRY = 80  # seconds

Wanted = tuple[str, str, str]  # request, driver, device


def claim(
    name: str,
    *wanted: Wanted,
    pods: Iterable[str] = ("p",),
    uid: str = "",
    owner: str = "",
    allocated: bool = True,
) -> v1.ResourceClaim:
    """An allocated claim; its UID is `uid-<name>`. `pods` are the UIDs of its users, `owner` is the owning pod."""
    results = tuple(
        v1.DeviceRequestAllocationResult(request=request, driver=driver, pool=POOL, device=device)
        for request, driver, device in wanted or [("r1", DRIVER, "g0")]
    )
    allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=results))
    users = tuple(v1.ResourceClaimConsumerReference(resource="pods", name=each, uid=each) for each in pods)
    owners = (OwnerReference(api_version="v1", kind="Pod", name=owner, uid=owner, controller=True),) if owner else ()
    return v1.ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}", owner_references=owners),
        status=v1.ResourceClaimStatus(allocation=allocation if allocated else None, reserved_for=users),
    )


def user(name: str, *claims: str, uid: str = "") -> Pod:
    """A pod whose only container uses claims under their own names; its UID is its name."""
    return pod(name, container("c", claims=claims), uid=uid or name, claims={each: each for each in claims})


def preparing(*devices: str, requests: Sequence[str] = ("r1",), kind: str = "vendor.test/up") -> Prepare:
    """A driver that prepares these devices for every claim, with names in the form of the recorded drivers."""

    def prepare(asked: api.Claim) -> list[api.Device]:
        return [claimed(requests, POOL, device, f"{kind}={asked.uid}-{device}") for device in devices or ("g0",)]

    return prepare


def by_claim(devices: Mapping[str, Sequence[api.Device]]) -> Prepare:
    """A driver that prepares these devices for claims of these names."""
    return lambda asked: devices[asked.name]


async def advance_until(clock: FakeClock, seconds: float, predicate: Callable[[], object]) -> None:
    """Advance a clock until `predicate` is true. Other tasks run after each step."""
    async with asyncio.timeout(30):
        while not predicate():
            await clock.advance(seconds)


class Kit:
    """A running manager with its drivers."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.cluster = MemoryCluster()
        self.active: set[str] = set()
        self.events: list[tuple[str, str, str]] = []
        self._options = {"clock": self.clock, **options}
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()
        self.manager = self._new_manager()

    async def __aenter__(self) -> Self:
        await self.manager.start(lambda: self.active)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.manager.stop()
        await self._stack.aclose()

    async def restart(self, **options: Any) -> None:
        """Start another manager with the same folder and no registered drivers."""
        await self.manager.stop()
        self._options |= options
        self.manager = self._new_manager()
        await self.manager.start(lambda: self.active)

    async def driver(self, driver: str = DRIVER, prepare: Prepare | None = None, **options: Any) -> DRAPluginStub:
        """A driver whose plugin is registered and connected."""
        stub = await self.serving(driver, prepare, **options)
        await self.register(stub)
        return stub

    async def serving(self, driver: str = DRIVER, prepare: Prepare | None = None, **options: Any) -> DRAPluginStub:
        """A driver whose plugin serves, but is not registered."""
        stub = DRAPluginStub(self.folder, driver, prepare or preparing(), **options)
        return await self._stack.enter_async_context(stub)

    async def register(self, stub: DRAPluginStub) -> None:
        """Register a driver's plugin, and wait for the connection."""
        handler = self.manager.get_watcher_handler()
        endpoint, versions = str(stub.socket), list(stub.info.supported_versions)
        handler.validate_plugin(stub.info.name, endpoint, versions)
        await handler.register_plugin(stub.info.name, endpoint, versions)
        await self.connected(stub)

    async def connected(self, stub: DRAPluginStub, is_connected: bool = True) -> None:
        """Wait until the plugin is connected, or disconnected."""
        found = self.manager.plugins.instances(stub.info.name)
        (plugin,) = [each for each in found if each.endpoint == str(stub.socket)]
        await self.until(lambda: plugin.is_connected == is_connected)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until `predicate` is true; it is evaluated after each change."""
        async with asyncio.timeout(30):
            while not predicate():
                await self._changed.wait()

    async def advance_until(self, seconds: float, predicate: Callable[[], object]) -> None:
        """Advance the clock in steps of `seconds` until `predicate` is true."""
        await advance_until(self.clock, seconds, predicate)

    def put(self, *claims: v1.ResourceClaim) -> None:
        """Add claims to the cluster."""
        for each in claims:
            self.cluster.put(each)

    def stored(self) -> dict[str, ClaimState]:
        """The claims in the file, by name."""
        found = load((self.folder / "dra_manager_state").read_bytes())
        return {each.claim_name: each for each in found.claims or ()}

    def _new_manager(self) -> DRAManager:
        return DRAManager(self.folder, self.cluster, "realnode", on_change=self._notify, **self._options)

    def _notify(self, kind: str, about: str, text: str) -> None:
        self.events.append((kind, about, text))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Lab:
    """A whole node with a clock that tests control, and its drivers."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster()
        options = {"timeouts": LONG_TIMEOUTS, **options}
        self.node = Node(folder, clock=self.clock, cluster=self.cluster, node_name="realnode", **options)
        self._failures: list[str] = []
        self._unprepare_failures = 0
        self._registrations: Counter[DRAPluginStub] = Counter()
        self._event_received = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)  # start listening before the first event
        await self._stack.enter_async_context(self.node)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def driver(self, driver: str = DRIVER, prepare: Prepare | None = None, **options: Any) -> DRAPluginStub:
        """A driver that the plugin watcher has registered."""
        stub = DRAPluginStub(self.node.plugins_registry, driver, prepare or preparing(), **options)
        await self._stack.enter_async_context(stub)
        await self.until_registered(stub)
        return stub

    async def until_registered(self, stub: DRAPluginStub) -> None:
        """Wait until the plugin watcher has registered a plugin once more, and it is connected."""
        self._registrations[stub] += 1
        count = self._registrations[stub]
        await self._tick_until(lambda: stub.until(lambda: stub.notified.count((True, "")) >= count, 0.5))
        await self.node.until(
            lambda: any(
                plugin.is_connected and plugin.endpoint == str(stub.socket)
                for plugin in self.node.dra_manager.plugins.instances(stub.info.name)
            )
        )

    async def until_deregistered(self, driver: str) -> None:
        """Wait until the plugin watcher has seen that the sockets of a driver are gone.

        The clock moves by few seconds, so that a driver that returns can still be in time.
        """
        plugins = self.node.dra_manager.plugins
        await self._tick_until(lambda: self.node.until(lambda: driver not in plugins.drivers(), 0.5))

    async def until_disconnected(self, driver: str) -> None:
        """Wait until no plugin of a driver is connected."""
        await self.clock.advance(1)
        await self.node.until(lambda: not self.node.dra_manager.plugins.is_usable(driver))

    async def advance_until(self, seconds: float, predicate: Callable[[], object]) -> None:
        """Advance the clock in steps of `seconds` until `predicate` is true."""
        await advance_until(self.clock, seconds, predicate)

    async def phase(self, name: str, phase: str) -> None:
        """Wait until a pod has a phase."""
        await self.node.until(lambda: self.node.status(name).phase == phase)

    async def gone(self, name: str) -> None:
        """Wait until a pod is no longer on the node."""
        await self.node.until(lambda: name not in {each.metadata.name for each, _ in self.node.pods()})

    def put(self, *claims: v1.ResourceClaim) -> None:
        """Add claims to the cluster."""
        for each in claims:
            self.cluster.put(each)

    async def unprepare_failed(self, count: int) -> None:
        """Wait for the given number of failed unprepare calls."""
        async with asyncio.timeout(30):
            while self._unprepare_failures < count:
                await self._event_received.wait()

    async def failures(self, count: int) -> list[str]:
        """Wait for the given number of FailedPrepareDynamicResources events, and return their messages."""
        async with asyncio.timeout(30):
            while len(self._failures) < count:
                await self._event_received.wait()
        return self._failures

    async def _tick_until(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Advance the clock by a second until `wait` returns before its timeout."""
        async with asyncio.timeout(30):
            while True:
                # one tick of the watcher is enough, unless it has not seen the change yet
                await self.clock.advance(1)
                with contextlib.suppress(TimeoutError):
                    await wait()
                    return

    async def _watch(self) -> None:
        async for event in self.node.events():
            if event.kind == "FailedPrepareDynamicResources":
                self._failures.append(event.text)
            self._unprepare_failures += event.kind == "unprepare failed"
            event_received, self._event_received = self._event_received, asyncio.Event()
            event_received.set()


def state(lab: Lab, name: str) -> tuple[str, str, str]:
    """The pod's phase, and the state and reason of its first container."""
    status = lab.node.status(name)
    first = status.container_statuses[0]
    return status.phase, first.state.name, state_details(first)[0]


async def prepared(lab: Lab, stub: DRAPluginStub, asking: Pod) -> None:
    """Advance to the retry of a pod that could not be prepared, and wait until it runs."""
    calls = len(stub.called(PREPARE))
    await lab.clock.advance(PREPARE_RETRY)
    await stub.until(lambda: len(stub.called(PREPARE)) > calls)
    name = asking.metadata.name
    await lab.node.until(lambda: lab.node.status(name).container_statuses[0].state.running is not None)
