"""The plugins of drivers: versions, instances, connections."""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from kubelet import ClaimError, RegistrationError
from kubelet.dramanager.plugins import choose_service
from kubelet.stubs import DRAPluginStub
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, Kit, claim, user

PREPARE = "NodePrepareResources"
KNOWN = '["v1.DRAPlugin" "v1beta1.DRAPlugin"]'


@scenario(157)
@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["v1.DRAPlugin"], "v1.DRAPlugin"),
        (["v1.DRAPlugin", "v1beta1.DRAPlugin"], "v1.DRAPlugin"),
        (["v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1.DRAPlugin"),
        (["v9.DRAPlugin", "v1beta1.DRAPlugin"], "v1beta1.DRAPlugin"),
    ],
)
def test_first_known_api_version_is_chosen(versions: list[str], chosen: str) -> None:
    assert choose_service(versions) == chosen


@scenario(157)
@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["v1alpha3", "1.0.0"],
            f'none of services supported by the plugin (["v1alpha3" "1.0.0"]) are supported by the kubelet ({KNOWN})',
        ),
    ],
)
async def test_unknown_api_versions_are_refused(kit: Kit, versions: list[str], text: str) -> None:
    handler = kit.manager.get_watcher_handler()
    head = f"invalid supported gRPC versions of DRA driver plugin {DRIVER} at endpoint /e.sock: "
    with pytest.raises(RegistrationError) as error:
        handler.validate_plugin(DRIVER, "/e.sock", versions)
    assert str(error.value) == head + text
    with pytest.raises(RegistrationError):
        await handler.register_plugin(DRIVER, "/e.sock", versions)


async def test_driver_name_and_endpoint_are_not_validated(kit: Kit) -> None:
    handler = kit.manager.get_watcher_handler()
    for name in ("", "UPPER_bad name"):
        handler.validate_plugin(name, "nowhere", ["v1.DRAPlugin"])
        await handler.register_plugin(name, str(kit.folder / "nobody.sock"), ["v1.DRAPlugin"])


@scenario(151, 157)
async def test_newest_instance_of_driver_is_called(kit: Kit) -> None:
    old = await kit.driver(name="old.sock")
    kit.put(*(claim(f"c{number}") for number in range(4)))
    await kit.manager.prepare_resources(user("p", "c0"))
    new = await kit.driver(name="new.sock")
    with pytest.raises(RegistrationError) as error:
        await kit.register(new)
    assert str(error.value) == f"endpoint {new.socket} already registered for DRA driver plugin {DRIVER}"
    await kit.manager.prepare_resources(user("p", "c1"))
    handler = kit.manager.get_watcher_handler()
    await handler.deregister_plugin(DRIVER, str(new.socket))
    await kit.manager.prepare_resources(user("p", "c2"))
    await kit.register(new)
    await kit.manager.prepare_resources(user("p", "c3"))
    assert (old.claims(PREPARE), new.claims(PREPARE)) == ([["c0"], ["c2"]], [["c1"], ["c3"]])
    for stub in (old, new):
        await handler.deregister_plugin(DRIVER, str(stub.socket))
    await handler.deregister_plugin(DRIVER, str(new.socket))  # not registered any more, so nothing happens
    with pytest.raises(ClaimError, match=f"DRA driver {DRIVER} is not registered"):
        kit.manager.plugins.get(DRIVER)


async def test_newest_connected_instance_is_called(kit: Kit) -> None:
    old, new = await kit.driver(name="old.sock"), await kit.driver(name="new.sock")
    await new.stop()
    await kit.connected(new, False)
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    assert old.claims(PREPARE) == [["c1"]]
    await old.stop()
    await kit.connected(old, False)
    assert kit.manager.plugins.get(DRIVER).endpoint == str(new.socket), "of those that are not, the newest"


@scenario(153, 176, 189)
async def test_all_calls_to_driver_use_one_connection(kit: Kit) -> None:
    services = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    stub = await kit.serving(services=services)
    async with Relay(kit.folder / "relay.sock", stub.socket) as relay:
        await kit.manager.get_watcher_handler().register_plugin(DRIVER, str(relay.path), services)
        kit.put(*(claim(f"c{number}", pods=[f"p{number}"]) for number in range(5)))
        await asyncio.gather(*(kit.manager.prepare_resources(user(f"p{number}", f"c{number}")) for number in range(5)))
        await kit.manager.unprepare_resources(user("p0", "c0"))
        await stub.until(lambda: stub.streams_opened == 1)
        assert (len(stub.called(PREPARE)), len(stub.called("NodeUnprepareResources"))) == (5, 1)
        assert relay.connections == 1
        await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(relay.path))


@scenario(174)
async def test_restarted_driver_is_reconnected_at_its_socket(kit: Kit) -> None:
    stub = await kit.driver()
    await stub.stop()
    await kit.connected(stub, False)
    await stub.start()
    await kit.connected(stub)
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    assert stub.claims(PREPARE) == [["c1"]]


@scenario(172)
async def test_service_started_after_registration_is_connected(kit: Kit) -> None:
    stub = DRAPluginStub(kit.folder, DRIVER)
    endpoint = str(stub.socket)
    await kit.manager.get_watcher_handler().register_plugin(DRIVER, endpoint, ["v1.DRAPlugin"])
    async with stub:
        await kit.connected(stub)
        kit.put(claim("c1"))
        await kit.manager.prepare_resources(user("p", "c1"))
    assert stub.claims(PREPARE) == [["c1"]]


@scenario(154)
async def test_driver_lookup_returns_instance_or_error(kit: Kit) -> None:
    await kit.driver()
    assert kit.manager.plugins.get(DRIVER).driver == DRIVER
    with pytest.raises(ClaimError, match="DRA driver name is empty"):
        kit.manager.plugins.get("")
    with pytest.raises(ClaimError, match=r"DRA driver x\.example\.com is not registered"):
        kit.manager.plugins.get("x.example.com")


class Relay:
    """Forwards connections from `path` to a target, and counts them."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.connections = 0
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_unix_connection(self._target)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_pipe(source, sink))
            self._tasks.add(task)


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()
