"""A pytest plugin: a stand-in kubelet for tests of device plugins and DRA drivers, in any language.

Installing the package is enough; nothing has to be imported. The fixtures are for ordinary, blocking tests: the kubelet
and the stub plugins run on an event loop in a thread. Tests that are coroutines use `Node` directly.
"""

import asyncio
import functools
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from kubelet.clock import FakeClock
from kubelet.devicemanager import Device
from kubelet.dramanager import MemoryCluster
from kubelet.errors import RegistrationError
from kubelet.node import Node
from kubelet.stubs import Behaviour, DevicePluginStub, DRAPluginStub, Prepare, StubReply, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.dra_health.v1alpha1.api_pb2 import DeviceHealth
from resourceapi.objects import v1
from telemetry.exposition import render

T = TypeVar("T")
P = ParamSpec("P")

CALL_TIMEOUT = 30.0  # the longest that a blocking call waits


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-in kubelet", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]], seconds: float = CALL_TIMEOUT) -> T:
        """Await `work()` on the loop and return its result. On TimeoutError the work is cancelled."""

        async def awaited() -> T:
            return await work()

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise

    def call(self, do: Callable[[], T]) -> T:
        """Call a function on the loop."""

        async def called() -> T:
            return do()

        return self.run(called)

    def close(self) -> None:
        """Stop the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT)
        self._loop.close()


def _blocking(method: Callable[Concatenate[Node, P], Awaitable[T]]) -> "Callable[Concatenate[Kubelet, P], T]":
    """Return a blocking version of a node's coroutine method."""

    def wait(self: "Kubelet", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(lambda: method(self.node, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


def _on_loop(method: Callable[Concatenate[Node, P], T]) -> "Callable[Concatenate[Kubelet, P], T]":
    """Return a version of a node's method that can be called outside of the node's event loop."""

    def call(self: "Kubelet", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.call(lambda: method(self.node, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class Kubelet:
    """A running stand-in kubelet, for blocking tests: the methods of `Node`, and additional ones for tests."""

    def __init__(self, thread: LoopThread, node: Node, claims: MemoryCluster) -> None:
        """`node` runs on `thread`; tests add claims to `claims`."""
        self.thread = thread
        self.node = node
        self._claims = claims
        self.device_plugins = node.device_plugins
        self.plugins_registry = node.plugins_registry
        self.socket = node.kubelet_socket
        self.pod_resources_socket = node.pod_resources_socket

    admit = _blocking(Node.admit)
    remove = _blocking(Node.remove)
    sync = _blocking(Node.sync)
    exit_container = _blocking(Node.exit_container)
    lose_sandbox = _blocking(Node.lose_sandbox)
    run_container_options = _blocking(Node.run_container_options)
    run_static_pod = _blocking(Node.run_static_pod)
    remove_static_pod = _blocking(Node.remove_static_pod)
    start = _blocking(Node.start)
    stop = _blocking(Node.stop)
    restart = _blocking(Node.restart)
    reboot = _blocking(Node.reboot)
    cut_stream = _blocking(Node.cut_stream)
    status = _on_loop(Node.status)
    active_pods = _on_loop(Node.active_pods)
    capacity = _on_loop(Node.capacity)
    allocatable = _on_loop(Node.allocatable)
    devices = _on_loop(Node.devices)
    allocations = _on_loop(Node.allocations)
    claimed_devices = _on_loop(Node.claimed_devices)
    cgroup = _on_loop(Node.cgroup)

    def metrics(self) -> str:
        """Return the kubelet's metrics in the text format of its /metrics."""
        return render(self.thread.call(self.node.metrics))

    def hold_sources(self) -> None:
        """Make the API server unavailable: a kubelet that starts then gets only static pods."""
        self.thread.call(self.node.sources.hold)

    def release_sources(self) -> None:
        """Make the API server available again; wait until the kubelet, if it runs, has its pods."""
        self.thread.call(self.node.sources.release)
        self.until(lambda: self.node.sources.all_ready or not self.node.is_running)

    def put_claim(self, claim: v1.ResourceClaim) -> None:
        """Add a claim to the cluster, for example one of `allocated_claim`."""
        self.thread.call(lambda: self._claims.put(claim))

    def remove_claim(self, name: str) -> None:
        """Delete a claim from the cluster; prepared devices stay prepared."""
        self.thread.call(lambda: self._claims.remove(name))

    def drivers(self) -> list[str]:
        """Return the DRA drivers that are registered and connected."""
        plugins = self.node.dra_manager.plugins
        return self.thread.call(lambda: [driver for driver in plugins.drivers() if plugins.is_usable(driver)])

    def refuse_registrations(self, text: str) -> None:
        """Answer every Register with this error, until `accept_registrations`."""

        async def refuse(_: api.RegisterRequest) -> None:
            raise RegistrationError(text)

        self.thread.call(lambda: self.node.before_registration(refuse))

    def accept_registrations(self) -> None:
        """Answer Register as usual again."""
        self.thread.call(lambda: self.node.before_registration(None))

    def until(self, predicate: Callable[[], T], seconds: float = CALL_TIMEOUT) -> T:
        """Wait until `predicate` is true. It is called after each change of the node, and can use this object.

        Raises TimeoutError with the last value of the predicate.
        """
        deadline = time.monotonic() + seconds
        changes = self.node.changes
        while not (value := predicate()):
            left = max(0.0, deadline - time.monotonic())
            try:
                changes = self.thread.run(
                    functools.partial(self.node.changed_since, changes, left), left + CALL_TIMEOUT
                )
            except TimeoutError:
                raise TimeoutError(f"not within {seconds:g} s; what was waited for is {value!r}") from None
        return value


class _StubHandle:
    """The methods that stubs have in common."""

    def __init__(self, thread: LoopThread, plugin: DevicePluginStub | DRAPluginStub) -> None:
        self._thread = thread
        self._stub = plugin

    @property
    def calls(self) -> list[str]:
        """The methods that were called, in order."""
        return self._thread.call(lambda: [method for method, _ in self._stub.calls])

    def fail(self, method: str, text: str) -> None:
        """Answer a method with an error from now on."""
        self._set_behaviour(method, failing(text))

    def answer(self, method: str, *answers: StubReply) -> None:
        """Answer a method with these answers one after the other, and with the last one from then on."""
        self._set_behaviour(method, answering(*answers))

    def delay(self, method: str, seconds: float, answer: StubReply) -> None:
        """Answer a method only after some seconds."""

        async def late(_: Any) -> StubReply:
            await asyncio.sleep(seconds)
            return answer

        self._set_behaviour(method, late)

    def behave(self, method: str) -> None:
        """Restore the default behaviour of a method."""
        self._thread.call(lambda: self._stub.behaviours.pop(method, None))

    def stop(self) -> None:
        """Stop serving, like a plugin that dies."""
        self._thread.run(self._stub.stop)

    def _set_behaviour(self, method: str, behaviour: Behaviour) -> None:
        self._thread.call(lambda: self._stub.behaviours.update({method: behaviour}))


class PluginStub(_StubHandle):
    """A stub plugin, for blocking tests."""

    def __init__(self, thread: LoopThread, plugin: DevicePluginStub, kubelet: Path) -> None:
        """`plugin` runs on `thread` and registers at `kubelet`."""
        super().__init__(thread, plugin)
        self._plugin = plugin
        self._kubelet = kubelet

    def register(self) -> None:
        """Register again; start serving again if the socket is gone."""
        if not self._plugin.socket.exists():
            self._thread.run(self._plugin.start)
        self._thread.run(lambda: self._plugin.register(self._kubelet))

    def update(self, devices: Sequence[Device]) -> None:
        """Send a new list."""
        self._thread.call(lambda: self._plugin.update(devices))

    def cut_stream(self) -> None:
        """End the ListAndWatch stream after the kubelet has opened it; the plugin continues to serve."""
        self._thread.run(lambda: self._plugin.until(lambda: self._plugin.streams > 0))
        self._thread.call(self._plugin.end_streams)


class DriverStub(_StubHandle):
    """A stub DRA driver, for blocking tests."""

    def __init__(self, thread: LoopThread, plugin: DRAPluginStub) -> None:
        """`plugin` runs on `thread`."""
        super().__init__(thread, plugin)
        self._plugin = plugin

    def start(self) -> None:
        """Serve again after `stop`; the kubelet finds the socket."""
        self._thread.run(self._plugin.start)

    def claims(self, method: str) -> list[list[str]]:
        """Return the claim names of each call of `NodePrepareResources` or `NodeUnprepareResources`, in order."""
        return self._thread.call(lambda: self._plugin.claims(method))

    def report(self, *devices: DeviceHealth) -> None:
        """Report the health of devices after the kubelet has opened the stream."""
        self._thread.run(lambda: self._plugin.until(lambda: self._plugin.streams > 0))
        self._thread.call(lambda: self._plugin.report(*devices))


StubFactory = Callable[..., PluginStub]
DriverStubFactory = Callable[..., DriverStub]


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that only the test moves: `Node(..., clock=fake_clock)`, `await fake_clock.advance(301)`."""
    return FakeClock()


@pytest.fixture
def _kubelet_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def kubelet_options() -> dict[str, Any]:
    """Options of `Node` for `kubelet`; override it: `return {"kubernetes": "1.36", "cgroups": folder}`."""
    return {}


@pytest.fixture
def kubelet(_kubelet_thread: LoopThread, kubelet_options: dict[str, Any]) -> Iterator[Kubelet]:
    """A stand-in kubelet that runs on an empty folder."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        claims = MemoryCluster()

        async def make() -> Node:
            node = Node(Path(folder), **{"reconcile_period": 0.1, "cluster": claims, **kubelet_options})
            await node.start()
            return node

        node = _kubelet_thread.run(make)
        yield Kubelet(_kubelet_thread, node, claims)
        _kubelet_thread.run(node.stop)


@pytest.fixture
def device_plugin_stub(kubelet: Kubelet, _kubelet_thread: LoopThread) -> Iterator[StubFactory]:
    """A factory of registered stub plugins with known devices: `device_plugin_stub("example.com/x", [Device("a")])`."""
    made: list[PluginStub] = []

    def make(resource: str, devices: Sequence[Device] = (), **options: Any) -> PluginStub:
        async def create() -> DevicePluginStub:
            plugin = DevicePluginStub(kubelet.device_plugins / f"stub{len(made)}.sock", resource, devices, **options)
            await plugin.start()
            try:
                await plugin.register(kubelet.socket)
                # without a scheduler, a pod that arrives before the list would be admitted without devices
                await kubelet.node.until(lambda: resource in kubelet.node.devices(), CALL_TIMEOUT)
            except BaseException:
                await plugin.stop()
                raise
            return plugin

        stub = PluginStub(_kubelet_thread, _kubelet_thread.run(create), kubelet.socket)
        made.append(stub)
        return stub

    yield make
    for stub in made:
        stub.stop()


@pytest.fixture
def dra_driver_stub(kubelet: Kubelet, _kubelet_thread: LoopThread) -> Iterator[DriverStubFactory]:
    """A factory of registered stub DRA drivers: `dra_driver_stub("driver.example.com", prepare)`.

    `prepare` returns the devices of a claim, as for `DRAPluginStub`, whose other options are accepted too.
    """
    made: list[DriverStub] = []

    def make(driver: str = "driver.example.com", *prepare: Prepare, **options: Any) -> DriverStub:
        async def create() -> DRAPluginStub:
            name = f"stub{len(made)}.sock"
            plugin = DRAPluginStub(kubelet.plugins_registry, driver, *prepare, **{"name": name, **options})
            await plugin.start()
            try:
                await plugin.until(lambda: bool(plugin.notified), CALL_TIMEOUT)
                is_registered, text = plugin.notified[0]
                if not is_registered:
                    raise RegistrationError(text)
            except BaseException:
                await plugin.stop()
                raise
            return plugin

        stub = DriverStub(_kubelet_thread, _kubelet_thread.run(create))
        made.append(stub)
        return stub

    yield make
    for stub in made:
        stub.stop()
