"""Registering with the kubelet, staying registered, and deregistering."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from msgspec import structs

from dra_plugin.serving.claims import ClaimSource
from dra_plugin.serving.health import HealthPublisher
from dra_plugin.serving.kubelet_plugin import Folders, KubeletPlugin
from dra_plugin.serving.kubelet_presence import kubelet_gone
from dra_plugin.serving.registration import SERVICES, Registrar, Registration
from folderwatch import FolderWatcher
from grpcunix import Client, Context, RpcError, Status, UnixServer, handler
from kubelet.clock import SystemClock
from kubelet.errors import KubeletError
from kubelet.pluginwatcher import PluginWatcher
from kubelet.rpc import connect
from kubeletapi.dra.v1 import api_pb2 as dra_v1
from kubeletapi.dra.v1beta1 import api_pb2 as dra_v1beta1
from kubeletapi.dra_health.v1 import api_pb2 as health_v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health_v1alpha1
from kubeletapi.pluginregistration.v1 import api_pb2 as api
from tests.descriptors import no_more_descriptors
from tests.dra_plugin.conftest import StartPlugin, identity
from tests.dra_plugin.kubelet_end import DRIVER, TIMEOUT, NoClaims, ScriptedDriver, kubelet_end
from tests.dra_scenarios import scenario
from tests.running import until

SERVICE = api.DESCRIPTOR.services_by_name["Registration"]
UID, OTHER_UID = "68de2e67-8ba5-41b2-b4a6-0d9b3c9d2a3c", "4b8a9e8e-1f62-4a0c-9d0e-7d1f0f0a5b11"


@pytest.fixture
def claims() -> ClaimSource:
    return NoClaims()


class DraHandler:
    """A kubelet's handler of DRA plugins: records them, and refuses them on demand."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[str, str, str, list[str]]] = asyncio.Queue()
        self.refusal = ""
        self.watcher: PluginWatcher

    def validate_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        if self.refusal:
            self.events.put_nowait(("refused", name, endpoint, versions))
            raise KubeletError(self.refusal)

    async def register_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        self.events.put_nowait(("registered", name, endpoint, versions))

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        self.events.put_nowait(("gone", name, endpoint, []))

    async def next(self) -> tuple[str, str]:
        """Return the next event and its endpoint."""
        what, name, endpoint, _ = await asyncio.wait_for(self.events.get(), TIMEOUT)
        assert name == DRIVER
        return what, endpoint


@asynccontextmanager
async def watching(folders: Folders) -> AsyncIterator[DraHandler]:
    """A kubelet's plugin watcher on the registry folder."""
    dra = DraHandler()
    dra.watcher = PluginWatcher(folders.registry, {"DRAPlugin": dra}, SystemClock(), period=0.01)
    await dra.watcher.start()
    try:
        yield dra
    finally:
        await dra.watcher.stop()


async def get_info_at(path: Path) -> api.PluginInfo:
    async with connect(path) as channel, asyncio.timeout(TIMEOUT):
        await channel.grpc.channel_ready()
        info: api.PluginInfo = await Client(channel, SERVICE).call("GetInfo", api.InfoRequest())
        return info


async def wait_for_new_file(path: Path, before: tuple[int, int] | None) -> None:
    """Wait until a path has a new file."""
    await until(lambda: identity(path) not in (None, before))


def registration_of(folders: Folders) -> Path:
    return folders.registry / f"{DRIVER}-reg.sock"


@scenario(50)
def test_service_names_match_their_descriptors() -> None:
    descriptors = [dra_v1, dra_v1beta1, health_v1, health_v1alpha1]
    names = ("DRAPlugin", "DRAPlugin", "DRAResourceHealth", "DRAResourceHealth")
    full = [d.DESCRIPTOR.services_by_name[name].full_name for d, name in zip(descriptors, names, strict=True)]
    assert [".".join(name.rsplit(".", 2)[-2:]) for name in full] == list(SERVICES)
    assert full[2:] == list(SERVICES[2:])


async def test_get_info_can_be_called_repeatedly(start: StartPlugin, folders: Folders) -> None:
    plugin = await start()
    for _ in range(3):
        info = await get_info_at(registration_of(folders))
        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(plugin.endpoint))
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
    assert plugin.registration_status is None
    assert plugin.errors == ()


@scenario(11, 13)
async def test_sockets_exist_only_while_the_plugin_runs(start: StartPlugin, folders: Folders) -> None:
    plugin = await start(health=HealthPublisher())  # without any report
    assert plugin.endpoint == folders.data / "dra.sock"
    assert (os.listdir(folders.data), os.listdir(folders.registry)) == (["dra.sock"], [f"{DRIVER}-reg.sock"])
    await plugin.stop()
    assert (os.listdir(folders.data), os.listdir(folders.registry)) == ([], [])


def test_empty_driver_name_is_refused(driver: ScriptedDriver, folders: Folders) -> None:
    with pytest.raises(ValueError, match="driver name must be set"):
        KubeletPlugin("", driver, NoClaims(), HealthPublisher(), folders, FolderWatcher())


@scenario(159)
async def test_every_started_kubelet_registers_the_driver(start: StartPlugin, folders: Folders) -> None:
    plugin = await start()
    for count in (1, 2):
        async with watching(folders) as dra:
            assert await dra.next() == ("registered", str(plugin.endpoint))
            await dra.watcher.idle()  # the plugin is notified after the handler's call
            assert plugin.registrations == count
    assert plugin.registration_status == Registration(registered=True)


async def test_registration_ends_when_the_kubelet_stops(
    start: StartPlugin, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet_socket = folders.registry.parent / "device-plugins" / "kubelet.sock"
    kubelet_socket.parent.mkdir()
    words = f"waiting for the kubelet: nothing listens at {kubelet_socket}"
    plugin = await start(folders=structs.replace(folders, kubelet_socket=kubelet_socket))
    for count in (1, 2):
        kubelet = UnixServer(kubelet_socket, [])
        await kubelet.start()
        async with watching(folders) as dra:
            assert await dra.next() == ("registered", str(plugin.endpoint))
            await dra.watcher.idle()
        assert plugin.registration_status == Registration(registered=True)
        await kubelet.stop()
        await until(lambda: plugin.registration_status == Registration(False, words))
        assert caplog.messages.count(f"the DRA driver is not registered any more: {words}") == count


async def test_kubelet_is_gone_only_after_it_was_listening(socket_dir: Path) -> None:
    kubelet_socket = socket_dir / "kubelet.sock"
    with closing(FolderWatcher()) as watcher:
        gone = asyncio.create_task(kubelet_gone(kubelet_socket, watcher, period=0.001))
        with pytest.raises(TimeoutError):  # it does not end
            await asyncio.wait_for(asyncio.shield(gone), 0.05)
        kubelet = UnixServer(kubelet_socket, [])
        await kubelet.start()
        async with connect(kubelet_socket) as channel:
            await channel.grpc.channel_ready()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(gone), 0.05)
        await kubelet.stop()
        await asyncio.wait_for(gone, TIMEOUT)


async def test_descriptor_shortage_does_not_count_as_a_gone_kubelet(socket_dir: Path) -> None:
    """A pod that serves only claims might not have the folder; the registration stays."""
    with closing(FolderWatcher()) as watcher:
        with no_more_descriptors():
            gone = asyncio.create_task(kubelet_gone(socket_dir / "kubelet.sock", watcher, period=0.001))
            await asyncio.wait([gone], timeout=0.02)
        await asyncio.wait([gone], timeout=0.05)
        assert not gone.done()
        gone.cancel()
        await asyncio.wait([gone])


@scenario(160)
async def test_restarted_driver_is_registered_again(start: StartPlugin, folders: Folders) -> None:
    async with watching(folders) as dra:
        first = await start()
        assert await dra.next() == ("registered", str(first.endpoint))
        await first.stop()
        assert await dra.next() == ("gone", str(first.endpoint))
        await start()
        assert await dra.next() == ("registered", str(first.endpoint))


@scenario(161)
async def test_driver_is_registered_after_a_failed_get_info(folders: Folders) -> None:
    class FailingRegistrar(Registrar):
        failures = 1

        async def get_info(self, request: api.InfoRequest, context: Context) -> api.PluginInfo:
            if self.failures:
                self.failures -= 1
                raise RpcError(Status.INTERNAL, "not yet")
            return await super().get_info(request, context)

    registrar = FailingRegistrar(DRIVER, folders.data / "dra.sock")
    server = UnixServer(registration_of(folders), [handler(SERVICE, registrar)])
    await server.start()
    async with watching(folders) as dra:
        assert await dra.next() == ("registered", str(folders.data / "dra.sock"))
    await server.stop()
    assert registrar.failures == 0


async def test_registration_refusal_is_stored_logged_and_answered(
    start: StartPlugin, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = await start()
    async with connect(registration_of(folders)) as channel:
        status = api.RegistrationStatus(plugin_registered=False, error="versions [] are not supported")
        with pytest.raises(RpcError, match=r"versions \[\] are not supported"):
            await Client(channel, SERVICE).call("NotifyRegistrationStatus", status)
        assert plugin.registration_status == Registration(False, "versions [] are not supported")
        assert caplog.messages == ["the kubelet refused the DRA driver: versions [] are not supported"]
        await Client(channel, SERVICE).call("NotifyRegistrationStatus", api.RegistrationStatus(plugin_registered=True))
    assert plugin.registration_status == Registration(registered=True)


async def test_driver_is_registered_after_an_earlier_refusal(start: StartPlugin, folders: Folders) -> None:
    async with watching(folders) as dra:
        dra.refusal = "not today"
        plugin = await start()
        assert await dra.next() == ("refused", str(plugin.endpoint))
        dra.refusal = ""
        while await dra.next() != ("registered", str(plugin.endpoint)):
            pass


@pytest.mark.parametrize("verdict", [None, api.RegistrationStatus(error="not now")], ids=["lost", "refused"])
async def test_registration_socket_is_replaced_until_the_kubelet_accepts(
    start: StartPlugin, folders: Folders, monkeypatch: pytest.MonkeyPatch, verdict: api.RegistrationStatus | None
) -> None:
    """Up to 1.35 it does not ask again while the socket is the same."""
    monkeypatch.setattr("dra_plugin.serving.kubelet_plugin.STATUS_TIMEOUT", 0.0)
    await start()
    path = registration_of(folders)
    for _ in range(2):
        before = identity(path)
        async with connect(path) as channel:
            with suppress(RpcError):  # the socket can have been replaced
                await Client(channel, SERVICE).call("GetInfo", api.InfoRequest())
                if verdict is not None:
                    await Client(channel, SERVICE).call("NotifyRegistrationStatus", verdict)
        await wait_for_new_file(path, before)
    async with connect(path) as channel:
        kubelet, before = Client(channel, SERVICE), identity(path)
        await kubelet.call("NotifyRegistrationStatus", api.RegistrationStatus(plugin_registered=True))
        for _ in range(20):  # a kubelet that checks the plugin
            await kubelet.call("GetInfo", api.InfoRequest())
    assert identity(path) == before


async def test_registration_socket_returns_after_the_registry_is_wiped(start: StartPlugin, folders: Folders) -> None:
    plugin = await start()
    shutil.rmtree(folders.registry)
    folders.registry.mkdir()
    assert (await get_info_at(registration_of(folders))).endpoint == str(plugin.endpoint)


async def test_removed_plugin_socket_is_served_again(start: StartPlugin, folders: Folders) -> None:
    plugin = await start()
    shutil.rmtree(folders.data)
    async with kubelet_end(plugin.endpoint) as kubelet:
        assert await kubelet.unprepare() == {}


@scenario(175)
async def test_plugin_waits_for_a_missing_registry(start: StartPlugin, folders: Folders) -> None:
    folders.registry.rmdir()
    plugin = await start()
    (error,) = plugin.errors
    assert str(folders.registry) in error
    folders.registry.mkdir()
    assert (await get_info_at(registration_of(folders))).name == DRIVER
    assert plugin.errors == ()


@scenario(175)
async def test_plugin_is_not_registered_before_its_socket_is_served(start: StartPlugin, folders: Folders) -> None:
    folders.data.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(folders.data / "dra.sock"))
        squatter.listen()
        plugin = await start()
        (error,) = plugin.errors
        assert "another process listens here" in error
        assert os.listdir(folders.registry) == []
    assert (await get_info_at(registration_of(folders))).name == DRIVER


@scenario(174)
async def test_restarted_plugin_answers_the_reconnected_kubelet(start: StartPlugin) -> None:
    first = await start()
    async with kubelet_end(first.endpoint) as kubelet:
        assert await kubelet.unprepare() == {}
        await first.stop()
        await start()
        await kubelet.reconnected()
        assert await kubelet.unprepare() == {}


async def test_two_instances_of_a_rolling_update_serve_side_by_side(start: StartPlugin, folders: Folders) -> None:
    async with watching(folders) as dra:
        old, new = await start(pod_uid=UID), await start(pod_uid=OTHER_UID)
        assert {await dra.next(), await dra.next()} == {
            ("registered", str(folders.data / f"dra-{UID}.sock")),
            ("registered", str(folders.data / f"dra-{OTHER_UID}.sock")),
        }
        await old.stop()
        assert await dra.next() == ("gone", str(old.endpoint))
        assert os.listdir(folders.data) == [new.endpoint.name]


async def test_second_instance_without_a_pod_uid_waits_for_the_first(start: StartPlugin, folders: Folders) -> None:
    first = await start()
    second = await start()
    (error,) = second.errors
    assert "another process listens here" in error
    await first.stop()
    assert (await get_info_at(registration_of(folders))).endpoint == str(second.endpoint)


async def test_sockets_of_a_killed_instance_are_removed_at_start(start: StartPlugin, folders: Folders) -> None:
    folders.data.mkdir(parents=True)
    for path in (folders.data / f"dra-{UID}.sock", folders.registry / f"{DRIVER}-{UID}-reg.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    plugin = await start(pod_uid=OTHER_UID)
    assert os.listdir(folders.data) == [plugin.endpoint.name]
    assert os.listdir(folders.registry) == [f"{DRIVER}-{OTHER_UID}-reg.sock"]
