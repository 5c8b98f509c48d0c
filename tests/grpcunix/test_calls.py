"""Calls between each combination of transports, which behave the same."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from grpcunix import Channel, Client, Context, RpcError, Status, Transport, connect, handler
from grpcunix.builtin_channel import BuiltinChannel
from grpcunix.http2.frames import MAX_STREAM_ID
from grpcunix.socket import UnixServer
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.descriptors import no_more_descriptors

SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]
EMPTY = api.Empty()


class Plugin:
    """Follows the command in the first device ID of a request."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.waiting = asyncio.Event()
        self.sent = 0
        self.context: Context | None = None

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        self.context = context
        return api.DevicePluginOptions(pre_start_required=True)

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[bytes]:
        try:
            for number in range(3):
                self.sent += 1
                yield api.ListAndWatchResponse(devices=[api.Device(ID=str(number))]).SerializeToString()
            await self._wait()
        finally:
            self.cancelled.set()

    async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        self.context = context
        (command, *rest) = request.container_requests[0].devices_ids
        if command == "refuse":
            raise RpcError(Status.FAILED_PRECONDITION, rest[0])
        if command == "fail":
            raise ValueError(rest[0])
        if command == "wait":
            try:
                await self._wait()
            finally:
                self.cancelled.set()
        if command == "sleep":  # a handler can use timers and tasks
            async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
        size = int(rest[0]) if rest else 0
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs={"x": "x" * size})])

    async def _wait(self) -> None:
        self.waiting.set()
        await asyncio.Event().wait()


def allocate_request(*words: str) -> api.AllocateRequest:
    return api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=words)])


@contextlib.asynccontextmanager
async def served_plugin(
    folder: Path, serving: Transport, calling: Transport, max_message: int = 4 << 20
) -> AsyncIterator[tuple[Plugin, Client, UnixServer, Channel]]:
    plugin = Plugin()
    server = UnixServer(folder / "p.sock", [handler(SERVICE, plugin)], transport=serving)
    await server.start()
    try:
        async with asyncio.timeout(30), connect(server.path, max_message=max_message, transport=calling) as channel:
            yield plugin, Client(channel, SERVICE), server, channel
    finally:  # a failed test must not affect later ones
        await server.stop()


async def refusal(client: Client, *words: str) -> tuple[Status, str]:
    with pytest.raises(RpcError) as error:
        await client.call("Allocate", allocate_request(*words), timeout=30)
    return error.value.code, error.value.details


async def test_calls_and_streams_reach_the_servicer(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, _, _):
        assert (await client.call("GetDevicePluginOptions", EMPTY)).pre_start_required
        assert plugin.context is not None
        assert plugin.context.time_remaining() is None
        listed = []
        async for message in client.stream("ListAndWatch", EMPTY):
            listed.append(message.devices[0].ID)
            if len(listed) == 3:
                break
        assert listed == ["0", "1", "2"]
        await plugin.cancelled.wait()
        await client.call("Allocate", allocate_request("sleep"), timeout=30)


async def test_servicer_gets_the_trace_context_of_each_call(socket_dir: Path, serving: Transport) -> None:
    own, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
    async with served_plugin(socket_dir, serving, "builtin") as (plugin, client, server, _):
        async with grpc.aio.insecure_channel(f"unix:{server.path}") as channel:
            ask = channel.unary_unary(f"/{SERVICE.full_name}/GetDevicePluginOptions")
            for metadata, expected in (
                ((("traceparent", own), ("tracestate", "a=b"), ("baggage", "x=y")), [own, "a=b"]),
                ((("traceparent", other),), [other]),
                ((("traceparent", other),), [other]),
                ((("traceparent", own), ("tracestate", "a" * 513)), [own]),
                ((("tracestate", "a=b"),), []),
                ((), []),
            ):
                await ask(b"", timeout=30, metadata=metadata)
                assert plugin.context is not None
                found = plugin.context.trace_context()
                assert [found[x] for x in ("traceparent", "tracestate") if x in found] == expected
                assert len(found) == len(expected)
        await client.call("GetDevicePluginOptions", EMPTY, timeout=30)
        assert plugin.context is not None
        assert plugin.context.trace_context() == {}


@pytest.mark.parametrize("text", ["no such device", "ä/%\n\0\U0001f600", "100%41", "", " it has room around "])
async def test_refusal_has_its_status_and_text(
    socket_dir: Path, serving: Transport, calling: Transport, text: str
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        assert await refusal(client, "refuse", text) == (Status.FAILED_PRECONDITION, text)
        await client.call("Allocate", allocate_request("go on"))


async def test_long_refusal_text_is_truncated(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        code, text = await refusal(client, "refuse", "ä" * 50_000)
        assert code is Status.FAILED_PRECONDITION
        assert text.startswith("ä" * 600)
        assert text.endswith("...")


async def test_unknown_method_or_service_is_unimplemented(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, channel):
        with pytest.raises(RpcError) as error:
            await client.call("PreStartContainer", api.PreStartContainerRequest())
        assert error.value.code is Status.UNIMPLEMENTED
        with pytest.raises(RpcError) as error:
            await channel.unary("/no.Service/Method", b"", None)
        assert error.value.code is Status.UNIMPLEMENTED


async def test_failed_handler_is_logged_and_its_status_is_unknown(
    socket_dir: Path, serving: Transport, calling: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        assert await refusal(client, "fail", "oh no") == (Status.UNKNOWN, "Unexpected <class 'ValueError'>: oh no")
    assert any(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)


async def test_malformed_request_is_refused(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, _, _, channel):
        with pytest.raises(RpcError) as error:
            await channel.unary("/v1beta1.DevicePlugin/Allocate", b"\xff\xff\xff", None)
        assert error.value.code is Status.INTERNAL


async def test_malformed_response_is_an_error(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    class Garbled:
        async def allocate(self, request: api.AllocateRequest, context: Context) -> bytes:
            return b"\xff\xff\xff"

    server = UnixServer(socket_dir / "p.sock", [handler(SERVICE, Garbled())], transport=serving)
    await server.start()
    async with connect(server.path, transport=calling) as channel:
        assert (await refusal(Client(channel, SERVICE), "x"))[0] is Status.INTERNAL
    await server.stop()


async def test_deadline_ends_the_call_at_both_ends(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, _, _):
        for seconds in (0.2, 2, 20):  # on a busy machine the first deadline can pass before the call arrives
            with pytest.raises(RpcError) as error:
                await client.call("Allocate", allocate_request("wait"), timeout=seconds)
            assert error.value.code is Status.DEADLINE_EXCEEDED
            if plugin.waiting.is_set():
                break
        await plugin.cancelled.wait()
        assert plugin.context is not None
        assert plugin.context.time_remaining() is not None
        await client.call("Allocate", allocate_request("go on"), timeout=30)
        remaining = plugin.context.time_remaining()
        assert remaining is not None
        assert 0 < remaining < 31  # grpcio rounds up


async def test_each_call_of_a_connection_has_a_separate_deadline(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ended(seconds: float) -> float:
            with pytest.raises(RpcError) as error:
                await client.call("Allocate", allocate_request("wait"), timeout=seconds)
            assert error.value.code is Status.DEADLINE_EXCEEDED
            return loop.time() - began

        wanted = (0.3, 0.1, 0.2)
        for seconds, took in zip(wanted, await asyncio.gather(*map(ended, wanted)), strict=True):
            assert took > seconds * 0.99
        await client.call("Allocate", allocate_request("go on"), timeout=30)


async def test_call_cancelled_by_the_client_is_cancelled_in_the_server(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, _, _):
        call = asyncio.ensure_future(client.call("Allocate", allocate_request("wait")))
        await plugin.waiting.wait()
        call.cancel()
        await plugin.cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await call
        await client.call("Allocate", allocate_request("go on"))


async def test_cancelled_stream_ends_with_status_cancelled(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, _, _):
        stream = client.stream("ListAndWatch", EMPTY)

        async def read() -> None:
            async for message in stream:
                if message.devices[0].ID == "2":
                    stream.cancel()

        with pytest.raises(RpcError) as error:
            await read()
        assert error.value.code is Status.CANCELLED
        stream.cancel()
        await plugin.cancelled.wait()


async def test_closed_channel_cancels_its_calls(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, _, channel):
        call = asyncio.ensure_future(client.call("Allocate", allocate_request("wait")))
        await plugin.waiting.wait()
        await channel.close()
        await plugin.cancelled.wait()
        with pytest.raises(RpcError) as error:
            await call
        assert error.value.code is Status.CANCELLED
        with pytest.raises(RpcError) as error:
            await client.call("Allocate", allocate_request("go on"))
        assert error.value.code is Status.CANCELLED


async def test_messages_over_the_size_limit_are_refused(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        answer = await client.call("Allocate", allocate_request("x" * (3 << 20), str(3 << 20)), timeout=30)
        assert len(answer.container_responses[0].envs["x"]) == 3 << 20
        assert (await refusal(client, "x" * (5 << 20)))[0] is Status.RESOURCE_EXHAUSTED
        assert (await refusal(client, "x", str(5 << 20)))[0] is Status.RESOURCE_EXHAUSTED
        await client.call("Allocate", allocate_request("go on"))
    async with served_plugin(socket_dir, serving, calling, 16 << 20) as (_, client, _, _):
        await client.call("Allocate", allocate_request("x", str(12 << 20)), timeout=30)


async def test_concurrent_calls_are_all_answered(socket_dir: Path, calling: Transport) -> None:
    async with served_plugin(socket_dir, "builtin", calling) as (_, client, _, _):
        calls = (client.call("Allocate", allocate_request("sleep", str(number)), timeout=30) for number in range(500))
        answers = await asyncio.gather(*calls)
        assert [len(answer.container_responses[0].envs["x"]) for answer in answers] == list(range(500))


async def test_stopping_server_ends_calls_after_the_grace_period(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, server, _):
        call = asyncio.ensure_future(client.call("Allocate", allocate_request("wait")))
        await plugin.waiting.wait()
        await server.stop(grace=0.05)
        with pytest.raises(RpcError) as error:
            await call
        assert error.value.code in (Status.UNAVAILABLE, Status.CANCELLED)
        await plugin.cancelled.wait()


async def test_call_can_finish_within_the_grace_period(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    may_answer = asyncio.Event()

    class Slow(Plugin):
        async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
            self.waiting.set()
            await may_answer.wait()
            return api.AllocateResponse()

    slow = Slow()
    server = UnixServer(socket_dir / "p.sock", [handler(SERVICE, slow)], transport=serving)
    await server.start()
    async with connect(server.path, transport=calling) as channel:
        call = asyncio.ensure_future(Client(channel, SERVICE).call("Allocate", allocate_request("x"), timeout=30))
        await slow.waiting.wait()
        stopping = asyncio.ensure_future(server.stop(grace=20))
        await asyncio.sleep(0)
        assert not server.path.exists()
        may_answer.set()
        await call
        await stopping


async def test_channel_reconnects_to_a_restarted_server(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, server, _):
        await client.call("Allocate", allocate_request("x"))
        await server.stop()
        with pytest.raises(RpcError) as error:
            await client.call("Allocate", allocate_request("x"))
        assert error.value.code is Status.UNAVAILABLE
        again = UnixServer(server.path, [handler(SERVICE, Plugin())], transport=serving)
        await again.start()
        async with asyncio.timeout(30):
            while True:  # grpcio waits before it reconnects
                with contextlib.suppress(RpcError):
                    await client.call("Allocate", allocate_request("x"))
                    break
        await again.stop()


async def test_channel_reconnects_when_stream_ids_are_used_up(socket_dir: Path) -> None:
    async with served_plugin(socket_dir, "builtin", "builtin") as (_, client, _, channel):
        await client.call("Allocate", allocate_request("x"))
        assert isinstance(channel, BuiltinChannel)
        channel._endpoints[-1]._connection._last = MAX_STREAM_ID - 2
        for _ in range(3):
            await client.call("Allocate", allocate_request("x"), timeout=20)


async def test_closed_channel_also_ends_calls_to_a_stopping_server(socket_dir: Path, calling: Transport) -> None:
    """The server's calls have a grace period, and a later call uses another connection."""
    async with served_plugin(socket_dir, "builtin", calling) as (plugin, client, server, channel):
        call = asyncio.ensure_future(client.call("Allocate", allocate_request("wait")))
        await plugin.waiting.wait()
        stopping = asyncio.ensure_future(server.stop(grace=600))
        again = UnixServer(server.path, [handler(SERVICE, Plugin())])
        await asyncio.sleep(0)  # after this, the path is free
        await again.start()
        await client.call("GetDevicePluginOptions", EMPTY)
        await channel.close()
        with pytest.raises(RpcError):
            await call
        await stopping
        await again.stop()


async def test_stream_cancelled_before_it_is_connected_yields_nothing(
    socket_dir: Path, serving: Transport, calling: Transport
) -> None:
    async with served_plugin(socket_dir, serving, calling) as (_, client, _, _):
        stream = client.stream("ListAndWatch", EMPTY)

        async def read() -> list[api.ListAndWatchResponse]:
            return [each async for each in stream]

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        stream.cancel()
        with pytest.raises(RpcError) as error:
            await reading
        assert error.value.code is Status.CANCELLED


async def test_cancelled_stop_ends_calls_at_once(socket_dir: Path, serving: Transport, calling: Transport) -> None:
    async with served_plugin(socket_dir, serving, calling) as (plugin, client, server, _):
        call = asyncio.ensure_future(client.call("Allocate", allocate_request("wait")))
        await plugin.waiting.wait()
        stopping = asyncio.ensure_future(server.stop(grace=600))
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(RpcError):
            await call
        await plugin.cancelled.wait()


@pytest.mark.parametrize("turns", range(4))
async def test_connection_accepted_during_a_cancelled_stop_is_closed(socket_dir: Path, turns: int) -> None:
    server = UnixServer(socket_dir / "p.sock", [handler(SERVICE, Plugin())])
    await server.start()
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    with client:
        client.connect(str(server.path))  # connected in the kernel, but not yet accepted by the server
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.get_running_loop().sock_recv(client, 4096):
                    pass


async def test_missing_socket_is_unavailable_and_named(socket_dir: Path, calling: Transport) -> None:
    async with connect(socket_dir / "missing.sock", transport=calling) as channel:
        code, text = await refusal(Client(channel, SERVICE), "x")
        assert code is Status.UNAVAILABLE
        assert "missing.sock" in text


async def test_call_without_free_descriptors_is_unavailable_and_works_later(socket_dir: Path) -> None:
    """Such an error ended the daemon if it had no free descriptor when the kubelet returned."""
    async with served_plugin(socket_dir, "builtin", "builtin") as (_, client, _, _):
        with no_more_descriptors(), pytest.raises(RpcError, match="cannot connect: Too many open files") as error:
            await client.call("GetDevicePluginOptions", EMPTY)
        assert error.value.code == Status.UNAVAILABLE
        assert (await client.call("GetDevicePluginOptions", EMPTY)).pre_start_required


async def test_slow_reader_pauses_the_generator(socket_dir: Path, calling: Transport) -> None:
    sent = 0

    class Endless:
        async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[bytes]:
            nonlocal sent
            message = api.ListAndWatchResponse(devices=[api.Device(ID="x" * 100_000)]).SerializeToString()
            while True:
                sent += 1
                yield message

    server = UnixServer(socket_dir / "p.sock", [handler(SERVICE, Endless())])
    await server.start()
    async with connect(server.path, transport=calling) as channel, connect(server.path, transport=calling) as other:
        read = 0
        async for _ in Client(channel, SERVICE).stream("ListAndWatch", EMPTY):
            read += 1
            if read == 5:
                for _ in range(50):  # event loop iterations, in which the generator could run
                    assert (await refusal(Client(other, SERVICE), "x"))[0] is Status.UNIMPLEMENTED
                assert sent < 200  # grpcio's window grows up to 16 MiB
            if read == 300:
                break
    await server.stop()
