"""A pytest plugin: a stand-in kubelet for tests of device plugins and DRA drivers, in any language.

Installing the package is enough; nothing has to be imported. The fixtures are for ordinary, blocking tests: kubelet and
stub plugins live on an event loop of their own, in a thread. Tests that are coroutines themselves use `Node` directly.
"""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kubelet.clock import FakeClock
from kubelet.devicemanager import Device, DeviceRunContainerOptions
from kubelet.dramanager import MemoryCluster
from kubelet.errors import RegistrationError
from kubelet.node import Node
from kubelet.pods import Pod, PodStatus
from kubelet.stubs import Answer, Behaviour, DevicePluginStub, DRAPluginStub, Prepare, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.dra_health.v1alpha1.api_pb2 import DeviceHealth
from resourceapi.objects import v1

T = TypeVar("T")

SECONDS = 30.0  # the longest that a blocking call waits


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        """Start it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-in kubelet", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def call(self, do: Callable[[], T]) -> T:
        """Call a function there."""

        async def called() -> T:
            return do()

        return self.run(called())

    def close(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class Kubelet:
    """A running stand-in kubelet, for blocking tests."""

    def __init__(self, thread: LoopThread, node: Node, claims: MemoryCluster) -> None:
        """`node` lives on `thread`; it has no API server, and claims are put in by hand."""
        self._thread = thread
        self._node = node
        self._claims = claims
        self.device_plugins = node.device_plugins
        self.plugins_registry = node.plugins_registry
        self.socket = node.kubelet_socket
        self.pod_resources_socket = node.pod_resources_socket

    def put_claim(self, claim: v1.ResourceClaim) -> None:
        """Let the cluster have a claim, such as `allocated_claim` makes."""
        self._thread.call(lambda: self._claims.put(claim))

    def remove_claim(self, name: str) -> None:
        """Delete a claim from the cluster; what is prepared stays so."""
        self._thread.call(lambda: self._claims.remove(name))

    def drivers(self) -> list[str]:
        """The DRA drivers that are registered and connected."""
        plugins = self._node.dra_manager.plugins
        return self._thread.call(lambda: [driver for driver in plugins.drivers() if plugins.is_usable(driver)])

    def claimed_devices(self, pod: Pod | str, container: str) -> tuple[str, ...]:
        """The names of the CDI devices that a container gets through its claims."""
        return self._thread.call(lambda: self._node.claimed_devices(pod, container))

    def sync(self, pod: Pod | str) -> PodStatus:
        """Look after a pod now: what could not be prepared is tried again without the usual wait."""
        return self._thread.run(self._node.sync(pod))

    def admit(self, pod: Pod) -> PodStatus:
        """Admit a pod, start its containers, and return what became of it."""
        return self._thread.run(self._node.admit(pod))

    def remove(self, pod: Pod | str) -> None:
        """Delete a pod."""
        self._thread.run(self._node.remove(pod))

    def status(self, pod: Pod | str) -> PodStatus:
        """The status of a pod."""
        return self._thread.call(lambda: self._node.status(pod))

    def capacity(self) -> dict[str, int]:
        """The node's devices by resource."""
        return self._thread.call(self._node.capacity)

    def allocatable(self) -> dict[str, int]:
        """The node's healthy devices by resource."""
        return self._thread.call(self._node.allocatable)

    def devices(self) -> dict[str, dict[str, Device]]:
        """Resource -> id -> device."""
        return self._thread.call(self._node.devices)

    def allocations(self, pod: Pod | str, container: str) -> dict[str, list[str]]:
        """Resource -> ids that a container has."""
        return self._thread.call(lambda: self._node.allocations(pod, container))

    def run_container_options(self, pod: Pod | str, container: str) -> DeviceRunContainerOptions | None:
        """What the runtime is told when a container starts."""
        return self._thread.run(self._node.run_container_options(pod, container))

    def exit_container(self, pod: Pod | str, container: str, code: int = 0) -> PodStatus:
        """End a container; it is started again if the pod wants that."""
        return self._thread.run(self._node.exit_container(pod, container, code))

    def restart(self) -> None:
        """Restart the kubelet: its sockets and the plugins' vanish, pods keep running."""
        self._thread.run(self._node.restart())

    def stop(self) -> None:
        """Stop the kubelet."""
        self._thread.run(self._node.stop())

    def start(self) -> None:
        """Start it again."""
        self._thread.run(self._node.start())

    def cut_stream(self, resource: str) -> None:
        """Drop the connection to a plugin."""
        self._thread.run(self._node.cut_stream(resource))

    def refuse_registrations(self, text: str) -> None:
        """Answer every Register with this error, until `accept_registrations`."""

        async def refuse(_: api.RegisterRequest) -> None:
            raise RegistrationError(text)

        self._thread.call(lambda: self._node.before_registration(refuse))

    def accept_registrations(self) -> None:
        """Answer Register as usual again."""
        self._thread.call(lambda: self._node.before_registration(None))

    def until(self, predicate: Callable[[], T], seconds: float = SECONDS) -> T:
        """Wait until `predicate` is true; it is asked after each change of the node, and may ask this object anything.

        Raises TimeoutError.
        """
        changes = self._node.changes
        while not (value := predicate()):
            changes = self._thread.run(self._node.changed_since(changes, seconds))
        return value


class _Behaving:
    """What stubs have in common."""

    def __init__(self, thread: LoopThread, plugin: DevicePluginStub | DRAPluginStub) -> None:
        self._thread = thread
        self._behaving = plugin

    @property
    def calls(self) -> list[str]:
        """The methods that were called, in order."""
        return self._thread.call(lambda: [method for method, _ in self._behaving.calls])

    def fail(self, method: str, text: str) -> None:
        """Answer a method with an error from now on."""
        self._behave(method, failing(text))

    def answer(self, method: str, *answers: Answer) -> None:
        """Give these answers of a method one after the other, and the last from then on."""
        self._behave(method, answering(*answers))

    def delay(self, method: str, seconds: float, answer: Answer) -> None:
        """Answer a method only after some seconds."""

        async def late(_: Any) -> Answer:
            await asyncio.sleep(seconds)
            return answer

        self._behave(method, late)

    def behave(self, method: str) -> None:
        """Answer a method as at first again."""
        self._thread.call(lambda: self._behaving.behaviours.pop(method, None))

    def stop(self) -> None:
        """Die."""
        self._thread.run(self._behaving.stop())

    def _behave(self, method: str, behaviour: Behaviour) -> None:
        self._thread.call(lambda: self._behaving.behaviours.update({method: behaviour}))


class Stub(_Behaving):
    """A stub plugin, for blocking tests."""

    def __init__(self, thread: LoopThread, plugin: DevicePluginStub, kubelet: Path) -> None:
        """`plugin` lives on `thread` and registers at `kubelet`."""
        super().__init__(thread, plugin)
        self._plugin = plugin
        self._kubelet = kubelet

    def register(self) -> None:
        """Register again, serving anew if the socket is gone."""
        if not self._plugin.socket.exists():
            self._thread.run(self._plugin.start())
        self._thread.run(self._plugin.register(self._kubelet))

    def update(self, devices: Sequence[Device]) -> None:
        """Send a new list."""
        self._thread.call(lambda: self._plugin.update(devices))

    def cut_stream(self) -> None:
        """End the stream of lists; the plugin goes on serving."""
        self._thread.call(self._plugin.end_streams)


class DriverStub(_Behaving):
    """A stub DRA driver, for blocking tests."""

    def __init__(self, thread: LoopThread, plugin: DRAPluginStub) -> None:
        """`plugin` lives on `thread`."""
        super().__init__(thread, plugin)
        self._plugin = plugin

    def start(self) -> None:
        """Serve again after `stop`; the kubelet finds it."""
        self._thread.run(self._plugin.start())

    def claims(self, method: str) -> list[list[str]]:
        """The names of the claims in each call of `NodePrepareResources` or `NodeUnprepareResources`, in order."""
        return self._thread.call(lambda: self._plugin.claims(method))

    def report(self, *devices: DeviceHealth) -> None:
        """Report the health of devices, once the kubelet listens."""
        self._thread.run(self._plugin.until(lambda: self._plugin.streams > 0))
        self._thread.call(lambda: self._plugin.report(*devices))


StubFactory = Callable[..., Stub]
DriverStubFactory = Callable[..., DriverStub]


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves only when the test says so: `Node(..., clock=fake_clock)`, `await fake_clock.advance(301)`."""
    return FakeClock()


@pytest.fixture
def _kubelet_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def kubelet(_kubelet_thread: LoopThread) -> Iterator[Kubelet]:
    """A stand-in kubelet that runs on an empty folder."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        claims = MemoryCluster()

        async def make() -> Node:
            node = Node(Path(folder), reconcile_period=0.1, cluster=claims)
            await node.start()
            return node

        node = _kubelet_thread.run(make())
        yield Kubelet(_kubelet_thread, node, claims)
        _kubelet_thread.run(node.stop())


@pytest.fixture
def device_plugin_stub(kubelet: Kubelet, _kubelet_thread: LoopThread) -> Iterator[StubFactory]:
    """Makes stub plugins: `device_plugin_stub("example.com/x", [Device("a")])` serves and has registered."""
    made: list[Stub] = []

    def make(resource: str, devices: Sequence[Device] = (), **options: Any) -> Stub:
        async def create() -> DevicePluginStub:
            plugin = DevicePluginStub(kubelet.device_plugins / f"stub{len(made)}.sock", resource, devices, **options)
            await plugin.start()
            try:
                await plugin.register(kubelet.socket)
            except BaseException:
                await plugin.stop()
                raise
            return plugin

        stub = Stub(_kubelet_thread, _kubelet_thread.run(create()), kubelet.socket)
        made.append(stub)
        return stub

    yield make
    for stub in made:
        stub.stop()


@pytest.fixture
def dra_driver_stub(kubelet: Kubelet, _kubelet_thread: LoopThread) -> Iterator[DriverStubFactory]:
    """Makes stub DRA drivers: `dra_driver_stub("driver.example.com", prepare)` serves and is registered.

    `prepare` says what is in a claim, as for `DRAPluginStub`, whose other options are known, too.
    """
    made: list[DriverStub] = []

    def make(driver: str = "driver.example.com", *prepare: Prepare, **options: Any) -> DriverStub:
        async def create() -> DRAPluginStub:
            name = f"stub{len(made)}.sock"
            plugin = DRAPluginStub(kubelet.plugins_registry, driver, *prepare, **{"name": name, **options})
            await plugin.start()
            try:
                await plugin.until(lambda: bool(plugin.notified), SECONDS)
                is_registered, text = plugin.notified[0]
                if not is_registered:
                    raise RegistrationError(text)
            except BaseException:
                await plugin.stop()
                raise
            return plugin

        stub = DriverStub(_kubelet_thread, _kubelet_thread.run(create()))
        made.append(stub)
        return stub

    yield make
    for stub in made:
        stub.stop()
