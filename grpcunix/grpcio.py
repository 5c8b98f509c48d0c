"""The transport of the package grpcio: the other implementation of the same interface.

The stand-in kubelet, `verify` and the stubs use it, so that their communication with the daemon is tested with two
implementations. This module is imported only if it is used; it costs 15 MiB and three threads.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from grpcunix.http2.messages import decode_details, encode_details
from grpcunix.service import MAX_TRACE_FIELD, TRACE_FIELDS, Handler, Method, encode
from grpcunix.status import RpcError, Status

_CODES = {status: next(code for code in grpc.StatusCode if code.value[0] == status) for status in Status}
_CHANNEL_OPTIONS = [
    # otherwise channels to one path share a subchannel, and its back-off after an earlier refusal
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 5000),  # also the time limit for making a connection
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class GrpcioServer:
    """Serves `handlers` at a path."""

    def __init__(self, handlers: Sequence[Handler], keepalive: float | None) -> None:
        """Prepare; see `UnixServer` for `keepalive`."""
        options: list[tuple[str, int]] = [("grpc.so_reuseport", 0)]
        if keepalive is not None:
            milliseconds = int(keepalive * 1000)
            options += [
                ("grpc.keepalive_time_ms", milliseconds),
                ("grpc.keepalive_timeout_ms", milliseconds),
                ("grpc.http2.ping_timeout_ms", milliseconds),
                ("grpc.http2.max_pings_without_data", 0),
            ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(tuple(map(_generic, handlers)))

    async def start(self, path: Path) -> None:
        """Bind and listen. Raises RuntimeError on failure; gRPC does not report the cause."""
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Stop; running calls can end within `grace` seconds, unless this is cancelled."""
        try:
            await asyncio.shield(self._server.stop(grace))
        except asyncio.CancelledError:
            await asyncio.shield(self._server.stop(None))
            raise


def _generic(handler: Handler) -> Any:
    methods = {}
    for name, method in handler.methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
        behaviour = _streaming(method) if method.streams else _unary(method)
        methods[name] = make(behaviour, response_serializer=encode)
    return grpc.method_handlers_generic_handler(handler.service, methods)


def _unary(method: Method) -> Callable[[bytes, Any], Awaitable[Any]]:
    async def behaviour(request: bytes, context: Any) -> Any:
        try:
            return await method.behaviour(method.read(request), _CallContext(context))
        except RpcError as error:
            await context.abort(_CODES[error.code], _short(error.details))

    return behaviour


def _streaming(method: Method) -> Callable[[bytes, Any], AsyncIterator[Any]]:
    async def behaviour(request: bytes, context: Any) -> AsyncIterator[Any]:
        try:
            async with aclosing(method.behaviour(method.read(request), _CallContext(context))) as answers:
                async for answer in answers:
                    yield answer
        except RpcError as error:
            await context.abort(_CODES[error.code], _short(error.details))

    return behaviour


class _CallContext:
    """The context of a call for servicers (`grpcunix.Context`)."""

    def __init__(self, context: Any) -> None:
        self._context = context
        # copied at once: after the end of the call grpcio reads freed memory
        fields = ((name, value) for name, value in context.invocation_metadata() or () if name in TRACE_FIELDS)
        self._trace = {name: value for name, value in fields if 0 < len(value) <= MAX_TRACE_FIELD}

    def time_remaining(self) -> float | None:
        remaining: float | None = self._context.time_remaining()
        return remaining

    def trace_context(self) -> Mapping[str, str]:
        return self._trace if "traceparent" in self._trace else {}


def _short(details: str) -> str:
    """Return the text as nodeplug's own transport sends it: other ends refuse long trailers."""
    return decode_details(encode_details(details))


class GrpcioChannel:
    """A channel to the socket at a path; see `connect`.

    `grpc` is grpcio's channel, whose connectivity can be watched.
    """

    def __init__(self, path: Path, authority: str, max_message: int) -> None:
        """Prepare; nothing is dialled yet. `max_message` limits a message of an answer, in bytes."""
        options = [
            *_CHANNEL_OPTIONS,
            ("grpc.default_authority", authority),
            ("grpc.max_receive_message_length", max_message),
        ]
        self.grpc = grpc.aio.insecure_channel(f"unix:{path}", options=options)

    async def unary(self, path: str, request: bytes, seconds: float | None) -> bytes:
        """Call a unary method by its path; `seconds` is the time limit. Raises `RpcError`."""
        with _translating("the channel was closed"):
            answer: bytes = await self.grpc.unary_unary(path)(request, timeout=seconds)
        return answer

    def stream(self, path: str, request: bytes) -> "GrpcioStream":
        """Call a streaming method by its path."""
        return GrpcioStream(self.grpc.unary_stream(path), request)

    async def close(self) -> None:
        """End all calls. Idempotent."""
        await self.grpc.close()

    async def __aenter__(self) -> "GrpcioChannel":
        """Return the channel."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()


class GrpcioStream:
    """The messages of a streaming call, encoded; the call begins with the iteration."""

    def __init__(self, make: Callable[[bytes], Any], request: bytes) -> None:
        """Prepare; nothing is sent yet."""
        self._make = make
        self._request = request
        self._call: Any = None
        self._is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate once. Raises `RpcError` if the call fails."""
        if self._is_cancelled:
            raise RpcError(Status.CANCELLED, "the call was cancelled here")
        with _translating("the call was cancelled here"):
            self._call = self._make(self._request)
            async for message in self._call:
                yield message

    def cancel(self) -> None:
        """End the call. Idempotent; the iteration raises CANCELLED."""
        self._is_cancelled = True
        if self._call is not None:
            self._call.cancel()


def _translated(error: grpc.aio.AioRpcError) -> RpcError:
    return RpcError(Status(error.code().value[0]), error.details() or "")


@contextmanager
def _translating(ended: str) -> Iterator[None]:
    """Turn grpcio's errors into `RpcError`; `ended` is the reason for a call that grpcio has cancelled."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise _translated(error) from error
    except grpc.aio.UsageError as error:
        raise RpcError(Status.CANCELLED, str(error)) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            raise  # the caller's task is cancelled; otherwise grpcio ended the call in this way
        raise RpcError(Status.CANCELLED, ended) from None
