"""A socket with `http2`: received bytes become events, and queued bytes are written when the socket accepts them.

All sockets share one read buffer. If more frames arrive than `http2` processes at once, the rest waits (see
`FairScheduler`), and nothing is read meanwhile: a client that floods the server does not delay others. Writing stops
when the socket is full; waiting data stays where it is (see `flow`).
"""

import asyncio
from collections import deque
from typing import Any, Final, Generic, TypeVar

from grpcunix.http2.connection import Connection

READ_SIZE: Final = 32_768  # bytes per read
MAX_UNREAD: Final = 32_768  # bytes without flow control that the other end can leave unread
FLUSH_DELAY: Final = 0.001  # seconds for which the answer to a ping waits for another frame
LINGER: Final = 5.0  # seconds for a closed connection to send its last bytes

_BUFFER: Final = memoryview(bytearray(READ_SIZE))

E = TypeVar("E")


class FairScheduler:
    """Connections with more frames than are processed at once: one of them continues in each iteration of the loop.

    So all flooding connections together cost as much as one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start empty."""
        self._loop = loop
        self._waiting: deque[Endpoint[Any]] = deque()

    def add(self, endpoint: "Endpoint[Any]") -> None:
        """Queue a connection."""
        self._waiting.append(endpoint)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        try:
            endpoint = self._waiting[0]
            if endpoint.catch_up():
                self._waiting.append(endpoint)
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)


class Endpoint(asyncio.BufferedProtocol, Generic[E]):
    """One end of a connection; subclasses process its events."""

    def __init__(self, connection: Connection[E], scheduler: FairScheduler, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare, without a socket."""
        self._connection = connection
        self._scheduler = scheduler
        self._loop = loop
        self.lost: asyncio.Future[None] = loop.create_future()  # done when the socket has closed
        self._transport: asyncio.Transport | None = None
        self._is_receiving = False  # frames to send are written after the events
        self._flush_handle: asyncio.Handle | None = None
        self._flush_timer: asyncio.TimerHandle | None = None

    def on_event(self, event: E) -> None:
        """Process an event."""
        raise NotImplementedError

    def on_drained(self, stream_id: int) -> None:
        """Process that all messages of a stream were sent."""

    def on_lost(self) -> None:
        """Process the end of the socket: nothing is received or sent any more."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Schedule a write, together with other frames of this iteration of the loop."""
        if not self._is_receiving and self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is to be sent."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        transport, connection = self._transport, self._connection
        if transport is None or transport.is_closing():
            return
        while data := connection.take():
            transport.write(data)
        drained = connection.outbox.drained
        while drained:
            self.on_drained(drained.pop())
        if connection.is_closed:
            self._close(transport)
        elif not connection.outbox.writable and transport.get_write_buffer_size() > MAX_UNREAD:
            transport.abort()  # the other end sends and never reads

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def _close(self, transport: asyncio.Transport) -> None:
        transport.close()
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER, transport.abort)

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` is called as soon as the socket is full
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the socket."""
        del exc
        self._transport = None
        self.lost.set_result(None)
        self.on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for reading."""
        del sizehint
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Process received data."""
        self._receive(bytes(_BUFFER[:nbytes]))
        if self._connection.has_backlog and self._transport is not None:
            self._transport.pause_reading()
            self._scheduler.add(self)

    def catch_up(self) -> bool:
        """Process some of the waiting frames; return whether there are more."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._receive(b"")
        if not self._connection.has_backlog:
            self._transport.resume_reading()
        return self._connection.has_backlog

    def _receive(self, data: bytes) -> None:
        if self._connection.is_closed:
            return
        self._is_receiving = True
        try:
            for event in self._connection.receive(data):
                self.on_event(event)
        finally:
            self._is_receiving = False
        if not self._connection.outbox.is_deferrable:
            self.flush()
        elif self._flush_timer is None:  # Go's client pings with each call: one write for both answers instead of two
            self._flush_timer = self._loop.call_later(FLUSH_DELAY, self.flush)

    def pause_writing(self) -> None:
        """Stop sending DATA: the socket is full."""
        self._connection.outbox.writable = False

    def resume_writing(self) -> None:
        """Continue sending."""
        self._connection.outbox.writable = True
        self.flush()
