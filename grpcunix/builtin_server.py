"""The server of our own transport: calls become tasks, and what ends a call ends its task.

| what happens | the handler | the caller gets |
|---|---|---|
| it returns, or its generator ends | | its message or messages, and OK |
| it raises `RpcError` | | that status |
| it raises anything else | logged with its traceback | UNKNOWN |
| the caller resets the call, or its connection ends | cancelled | |
| the caller's deadline passes | cancelled | DEADLINE_EXCEEDED |
| the server stops | cancelled after the grace | UNAVAILABLE |
| the caller hangs (`keepalive`) | cancelled | |

Messages of a stream are produced one by one: the next when the socket has accepted the previous one.

Idle connections cannot block other clients: if there are too many, one without calls is closed. It is one of the
process with the most connections, first one that never called, then the one that has been idle for longest. A gRPC
client connects again when it needs to.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from grpcunix.accepting import ASYNCIO_BACKLOG
from grpcunix.eager import start
from grpcunix.endpoint import LINGER, Endpoint, FairScheduler
from grpcunix.http2 import DEFAULT_LIMITS, Limits, Request, ServerConnection, SharedUsage
from grpcunix.http2.server import ServerEvent
from grpcunix.peer import peer_of
from grpcunix.service import Handler, Method, encode
from grpcunix.status import RpcError, Status

BACKLOG: Final = 4_096  # connections in the queue, or the kernel's limit: a refused client waits a second
HANDSHAKE: Final = 10.0  # seconds within which a client must begin HTTP/2
log = logging.getLogger("nodeplug.grpcunix")
_SHARED: Final = SharedUsage()


class BuiltinServer:
    """Serves `handlers` on a socket that is bound and not yet listening."""

    def __init__(
        self,
        handlers: Sequence[Handler],
        keepalive: float | None,
        limits: Limits = DEFAULT_LIMITS,
        shared: SharedUsage = _SHARED,
    ) -> None:
        """Prepare; see `UnixServer` for `keepalive`. All servers of a process share `shared`."""
        self.methods = {
            f"/{handler.service}/{name}".encode(): method
            for handler in handlers
            for name, method in handler.methods.items()
        }
        self.keepalive = keepalive
        self.limits = limits
        self.shared = shared
        self.endpoints: set[ServerEndpoint] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, bound: socket.socket) -> None:
        """Listen; the server owns the socket from now on."""
        loop = asyncio.get_running_loop()
        scheduler = FairScheduler(loop)
        self._listening = await loop.create_unix_server(
            lambda: ServerEndpoint(self, scheduler, loop), sock=bound, backlog=ASYNCIO_BACKLOG
        )
        bound.listen(BACKLOG)

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, let running ones end within `grace` seconds or until cancelled, and end the others."""
        try:
            await self._stop_listening()
            for endpoint in list(self.endpoints):
                endpoint.go_away()
            if grace and self._tasks():
                await asyncio.wait(self._tasks(), timeout=grace)
        finally:
            tasks = self._tasks()
            for endpoint in list(self.endpoints):
                endpoint.end_calls()
        ends = [*tasks, *(endpoint.lost for endpoint in self.endpoints)]
        if ends:
            await asyncio.wait(ends, timeout=LINGER)
        for task in tasks:
            if not task.done():
                log.warning("a call does not end although it is cancelled: %r", task)

    async def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None  # breaks a reference cycle: it refers to this server
        if listening is None:
            return
        for bound in listening.sockets:
            asyncio.get_running_loop().remove_reader(bound)
        try:
            await asyncio.sleep(0)  # accepted connections get their endpoint in this iteration of the loop
        finally:
            # closing within that iteration would leave an accepted connection open without an endpoint
            listening.close()

    def evict_idle(self, new_endpoint: "ServerEndpoint") -> bool:
        """Return whether there is room for a connection; an idle one might be closed for it."""
        limits = self.limits
        if len(self.endpoints) <= limits.connections_guaranteed or self.shared.connections <= limits.connections_total:
            return True
        idle = [endpoint for endpoint in self.endpoints if endpoint is not new_endpoint and endpoint.is_idle]
        if not idle:
            return False
        connections = Counter(endpoint.pid for endpoint in self.endpoints)
        min(idle, key=lambda endpoint: (-connections[endpoint.pid], endpoint.has_called, endpoint.last_received)).end()
        return True

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [call.task for endpoint in self.endpoints for call in endpoint.calls.values()]


class Call:
    """A call under way; it is the context for servicers."""

    __slots__ = ("_trace", "deadline", "drained", "loop", "task")

    task: asyncio.Task[None]

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timeout: float | None, trace: tuple[tuple[bytes, bytes], ...]
    ) -> None:
        """Begin. `timeout` is the caller's, in seconds; `trace` are the fields that identify the caller's span."""
        self._trace = trace
        self.loop = loop
        self.deadline = None if timeout is None else loop.time() + timeout
        self.drained: asyncio.Future[None] | None = None  # pending while a message is being sent

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller's deadline; None without a deadline."""
        return None if self.deadline is None else max(self.deadline - self.loop.time(), 0.0)

    def trace_context(self) -> Mapping[str, str]:
        """Return the span of the caller, see `Context`."""
        return {name.decode(): value.decode("latin-1") for name, value in self._trace}


class ServerEndpoint(Endpoint[ServerEvent]):
    """One client's connection."""

    _connection: ServerConnection

    def __init__(self, server: BuiltinServer, scheduler: FairScheduler, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare, without a socket."""
        super().__init__(ServerConnection(server.limits, server.shared, loop.time), scheduler, loop)
        self._server = server
        server.endpoints.add(self)
        server.shared.connections += 1
        self._handshake: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None  # for `keepalive`
        self._expiry: asyncio.TimerHandle | None = None  # for the earliest deadline of the calls, or earlier
        self.pid = 0  # the client's
        self.has_called = False
        self.last_received = loop.time()  # time of the last received data
        self.calls: dict[int, Call] = {}
        self._active_unary = 0  # unary calls under way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve, if there is room for one more connection."""
        super().connection_made(transport)
        self.pid = peer_of(transport.get_extra_info("socket")).pid
        if not self._server.evict_idle(self):
            self.end()
            return
        self._handshake = self._loop.call_later(HANDSHAKE, self.abort)
        if self._server.keepalive is not None:
            self._timer = self._loop.call_later(self._server.keepalive, self._check_keepalive, self._server.keepalive)

    def buffer_updated(self, nbytes: int) -> None:
        """Process received data."""
        self.last_received = self._loop.time()
        super().buffer_updated(nbytes)
        if self._handshake is not None and self._connection.is_established:
            self._handshake.cancel()
            self._handshake = None

    def on_event(self, event: ServerEvent) -> None:
        """Begin a call, or cancel one whose caller has gone."""
        if isinstance(event, Request):
            self._begin(event)
        else:
            call = self.calls.get(event.stream)
            if call is not None:
                call.task.cancel()

    def on_drained(self, stream_id: int) -> None:
        """Let a stream's handler continue."""
        call = self.calls.get(stream_id)
        if call is not None and call.drained is not None and not call.drained.done():
            call.drained.set_result(None)

    def on_lost(self) -> None:
        """Cancel the calls, because their caller has gone."""
        for timer in (self._handshake, self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        self._server.endpoints.discard(self)
        self._server.shared.connections -= 1
        self._connection.abandon()
        for call in self.calls.values():
            call.task.cancel()

    @property
    def is_idle(self) -> bool:
        """Return whether no call is running and the connection is not ending already."""
        return not self.calls and not self._connection.is_going_away

    def end(self) -> None:
        """Close the connection now; GOAWAY lets a gRPC client know that it can connect again."""
        self.go_away()
        self.abort()

    def go_away(self) -> None:
        """Accept no more calls."""
        self._connection.go_away()
        self.flush()

    def end_calls(self) -> None:
        """End the calls that still run, and then the connection."""
        self._connection.go_away()  # also for a connection without a socket yet
        for stream_id, call in self.calls.items():
            self._connection.abort_call(stream_id, Status.UNAVAILABLE, "the server stops")
            call.task.cancel()
        self.flush()
        if not self._connection.is_closed:  # answers wait for a client that does not read
            self.abort()

    # calls

    def _begin(self, request: Request) -> None:
        connection, stream_id = self._connection, request.stream
        if not connection.is_open(stream_id):
            return  # it was reset together with its request
        method = self._server.methods.get(request.path)
        if method is None:
            path = request.path.decode(errors="replace")
            connection.finish(stream_id, Status.UNIMPLEMENTED, f"unknown method {path}")
            return
        self.has_called = True
        call = Call(self._loop, request.timeout, request.trace)
        call.task = start(self._loop, self._run(request, method, call))
        if not call.task.done():
            self.calls[stream_id] = call
            if call.deadline is not None:
                self._expire_at(call.deadline)

    async def _run(self, request: Request, method: Method, call: Call) -> None:
        """Answer a call, whatever its handler does."""
        connection, stream_id = self._connection, request.stream
        self._active_unary += not method.streams
        try:
            message = method.read(request.message)
            if method.streams:
                await self._stream(stream_id, method, message, call)
            else:
                connection.respond(stream_id, encode(await method.behaviour(message, call)))
        except RpcError as error:
            connection.finish(stream_id, error.code, error.details)
        except asyncio.CancelledError:
            connection.finish(stream_id, Status.CANCELLED, "the call was cancelled here")
        except Exception as error:
            log.exception("a call failed")
            connection.finish(stream_id, Status.UNKNOWN, f"Unexpected {type(error)}: {error}")
        self.calls.pop(stream_id, None)
        self._active_unary -= not method.streams
        if self._active_unary or self._is_receiving:
            self.flush_soon()
        else:  # no other answer will follow in this iteration of the loop
            self.flush()

    async def _stream(self, stream_id: int, method: Method, message: Any, call: Call) -> None:
        async with aclosing(method.behaviour(message, call)) as answers:
            async for answer in answers:
                self._connection.send_message(stream_id, encode(answer))
                self.flush()
                if self._connection.is_sending(stream_id):
                    call.drained = self._loop.create_future()
                    await call.drained
        self._connection.finish(stream_id, Status.OK)

    def _expire_at(self, deadline: float) -> None:
        """Check the calls at this time or earlier: one timer for many calls, few of which reach their deadline."""
        if self._expiry is not None:
            if self._expiry.when() <= deadline:
                return
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """End the calls whose deadlines have passed."""
        self._expiry = None
        now = self._loop.time()
        deadlines = {stream_id: call.deadline for stream_id, call in self.calls.items() if call.deadline is not None}
        for stream_id in [each for each, deadline in deadlines.items() if deadline <= now]:
            self._connection.abort_call(stream_id, Status.DEADLINE_EXCEEDED, "context deadline exceeded")  # Go's text
            self.calls[stream_id].task.cancel()
            del deadlines[stream_id]
        if deadlines:
            self._expire_at(min(deadlines.values()))
        self.flush_soon()

    # clients without traffic

    def _check_keepalive(self, period: float) -> None:
        """Ping a client that was silent for a period."""
        idle_seconds = self._loop.time() - self.last_received
        if idle_seconds >= period:
            self._connection.ping()
            self.flush()
            self._timer = self._loop.call_later(period, self._expect_ping_ack, period, self.last_received)
        else:
            self._timer = self._loop.call_later(period - idle_seconds, self._check_keepalive, period)

    def _expect_ping_ack(self, period: float, last_received: float) -> None:
        if self.last_received == last_received:
            log.warning("a client answers no ping for %g s: its calls end", period)
            self.abort()
        else:
            self._check_keepalive(period)
