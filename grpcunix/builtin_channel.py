"""The client of our own transport: one connection at a time, dialled with the first call and again when it is lost.

A call that the server has not processed (it is closing, or has too many calls) is repeated once.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from grpcunix.endpoint import Endpoint, FairScheduler
from grpcunix.http2 import DEFAULT_LIMITS, ClientConnection, Ended, Limits, Message
from grpcunix.http2.client import ClientEvent
from grpcunix.status import RpcError, Status


class Call:
    """A call under way: its messages that were not taken yet, and how it ended."""

    def __init__(self, endpoint: "ClientEndpoint", stream_id: int) -> None:
        self.messages: deque[bytes] = deque()
        self.ended: Ended | None = None
        self._endpoint = endpoint
        self._stream_id = stream_id
        self._changed = asyncio.Event()

    def on_event(self, event: ClientEvent) -> None:
        """Process an event of the call."""
        if isinstance(event, Message):
            self.messages.append(event.data)
        elif self.ended is None:
            self.ended = event
        self._changed.set()

    async def wait(self) -> None:
        """Wait for the next event."""
        self._changed.clear()
        await self._changed.wait()

    def take(self) -> bytes:
        """Take a message; the server can send more afterwards."""
        message = self.messages.popleft()
        self._endpoint.consumed(self._stream_id, message)
        return message

    def end(self) -> None:
        """End the call if it has not ended, because its caller has gone. Idempotent."""
        self._endpoint.end(self._stream_id)
        self.on_event(Ended(self._stream_id, Status.CANCELLED, "the call was cancelled here"))

    @property
    def error(self) -> RpcError | None:
        """Return why it failed; None if it succeeded or has not ended."""
        if self.ended is None or self.ended.status is Status.OK:
            return None
        return RpcError(self.ended.status, self.ended.details)


class ClientEndpoint(Endpoint[ClientEvent]):
    """One connection of a channel."""

    _connection: ClientConnection

    def __init__(self, path: Path, authority: str, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare, without a socket."""
        super().__init__(ClientConnection(authority, limits, loop.time), FairScheduler(loop), loop)
        self._path = path
        self._calls: dict[int, Call] = {}
        self._changed = asyncio.Event()  # a call can begin now, or never will on this connection
        self._is_closed_here = False

    @property
    def is_usable(self) -> bool:
        """Return whether new calls can be made here, now or when others have ended."""
        return not (self.lost.done() or self._connection.is_going_away or self._connection.is_closed)

    async def begin(self, path: str, request: bytes, seconds: float | None) -> Call | None:
        """Begin a call as soon as the server accepts one more; None if the connection ends before that."""
        while self.is_usable:
            if self._connection.slots > 0:
                stream_id = self._connection.request(path, request, seconds)
                call = self._calls[stream_id] = Call(self, stream_id)
                self.flush_soon()
                return call
            self._changed.clear()
            await self._changed.wait()
        return None

    def consumed(self, stream_id: int, message: bytes) -> None:
        """Allow the server to send more."""
        self._connection.consumed(stream_id, message)
        self.flush_soon()

    def end(self, stream_id: int) -> None:
        """Forget a call; if it has not ended, cancel it at the server."""
        if self._calls.pop(stream_id, None) is not None:
            self._connection.cancel(stream_id)
            self.flush_soon()

    async def close(self) -> None:
        """End all calls and the connection."""
        self._is_closed_here = True
        if not self._connection.is_closed:
            self._connection.close()
        self.flush()
        await asyncio.wait([self.lost])

    def flush(self) -> None:
        """Write, and wake callers that wait to begin a call."""
        if self._connection.is_going_away and self._connection.streams == 0 and not self._connection.is_closed:
            self._connection.close()
        super().flush()
        self._changed.set()

    def on_event(self, event: ClientEvent) -> None:
        """Pass an event to its call."""
        call = self._calls.get(event.stream)
        if call is not None:
            call.on_event(event)

    def on_lost(self) -> None:
        """End all calls."""
        if self._is_closed_here:
            status, reason = Status.CANCELLED, "the channel was closed"
        elif self._connection.fault is not None:
            status, reason = Status.INTERNAL, f"the server broke the protocol: {self._connection.fault}"
        else:
            status, reason = Status.UNAVAILABLE, "the server closed the connection"
        for event in self._connection.abandon(status, f"{self._path}: {reason}"):
            self.on_event(event)
        self._changed.set()


class BuiltinChannel:
    """A channel to the socket at a path; see `connect`."""

    def __init__(self, path: Path, authority: str, max_message: int) -> None:
        """Prepare; nothing is dialled yet. `max_message` limits a message of an answer, in bytes."""
        self._path = path
        self._authority = authority
        self._limits = DEFAULT_LIMITS._replace(message=max_message)
        self._endpoints: list[ClientEndpoint] = []  # the last one is for new calls; the others finish their calls
        self._dialling = asyncio.Lock()
        self._is_closed = False

    async def unary(self, path: str, request: bytes, seconds: float | None) -> bytes:
        """Call a unary method by its path; `seconds` is the time limit. Raises `RpcError`."""
        try:
            async with asyncio.timeout(seconds):
                call = await self._call_once(path, request, seconds)
                if call.ended is not None and call.ended.is_unprocessed:
                    call = await self._call_once(path, request, seconds)
        except TimeoutError:
            raise RpcError(Status.DEADLINE_EXCEEDED, f"{self._path}: no answer within {seconds:g} s") from None
        if (error := call.error) is not None:
            raise error
        if len(call.messages) != 1:
            raise RpcError(Status.INTERNAL, f"{path} is unary, and its answer is not exactly one message")
        return call.messages[0]

    async def _call_once(self, path: str, request: bytes, seconds: float | None) -> Call:
        call = await self.begin(path, request, seconds)
        try:
            while call.ended is None and len(call.messages) < 2:
                await call.wait()
        finally:
            call.end()
        return call

    def stream(self, path: str, request: bytes) -> "BuiltinStream":
        """Call a streaming method by its path."""
        return BuiltinStream(self, path, request)

    async def close(self) -> None:
        """End all calls. Idempotent."""
        self._is_closed = True
        async with self._dialling:
            await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints))

    async def __aenter__(self) -> "BuiltinChannel":
        """Return the channel."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def begin(self, path: str, request: bytes, seconds: float | None) -> Call:
        """Begin a call, on a new connection if the current one ends. Raises `RpcError`."""
        for _ in range(2):
            endpoint = await self._dial()
            call = await endpoint.begin(path, request, seconds)
            if call is not None:
                return call
        raise RpcError(Status.UNAVAILABLE, f"{self._path}: the server closes connections before a call")

    async def _dial(self) -> ClientEndpoint:
        async with self._dialling:
            if self._is_closed:
                raise RpcError(Status.CANCELLED, f"{self._path}: the channel was closed")
            if not (self._endpoints and self._endpoints[-1].is_usable):
                loop = asyncio.get_running_loop()
                _, endpoint = await loop.create_unix_connection(
                    lambda: ClientEndpoint(self._path, self._authority, self._limits, loop), sock=self._connected()
                )
                self._endpoints = [*(x for x in self._endpoints if not x.lost.done()), endpoint]
            return self._endpoints[-1]

    def _connected(self) -> socket.socket:
        """Return a connection. A server with a full backlog refuses at once, which asyncio would take for success."""
        try:
            connected = socket.socket(socket.AF_UNIX)
            try:
                connected.setblocking(False)
                connected.connect(os.fspath(self._path))
            except OSError:
                connected.close()
                raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RpcError(Status.UNAVAILABLE, f"{self._path}: cannot connect: {reason}") from error
        return connected


class BuiltinStream:
    """The messages of a streaming call, encoded; the call begins with the iteration."""

    def __init__(self, channel: BuiltinChannel, path: str, request: bytes) -> None:
        """Prepare; nothing is sent yet."""
        self._channel = channel
        self._path = path
        self._request = request
        self._call: Call | None = None
        self._is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate once. Raises `RpcError` if the call fails."""
        if self._is_cancelled:
            raise RpcError(Status.CANCELLED, "the call was cancelled here")
        call = await self._begin()
        try:
            if await self._is_unprocessed(call):
                call = await self._begin()
            while True:
                while call.messages:
                    yield call.take()
                if call.ended is not None:
                    break
                await call.wait()
        finally:
            call.end()
        if (error := call.error) is not None:
            raise error

    def cancel(self) -> None:
        """End the call. Idempotent; the iteration raises CANCELLED."""
        self._is_cancelled = True
        if self._call is not None:
            self._call.end()

    async def _begin(self) -> Call:
        call = self._call = await self._channel.begin(self._path, self._request, None)
        if self._is_cancelled:  # cancelled during the dial
            call.end()
        return call

    @staticmethod
    async def _is_unprocessed(call: Call) -> bool:
        while call.ended is None and not call.messages:
            await call.wait()
        return call.ended is not None and call.ended.is_unprocessed
