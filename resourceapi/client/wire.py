"""The byte stream of a connection: address lookup, connect, TLS, and limited buffering. No HTTP."""

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from asyncio import sslproto
from collections import deque
from typing import TypeAlias

_MAX_UNREAD = 256 * 1024  # bytes that are buffered before reading from the kernel pauses
_BUFFER = 16 * 1024  # bytes per read from the kernel
_KEEP_ALIVE = (  # a watch can be silent for minutes: a dead connection is detected within a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_Address: TypeAlias = tuple[str, int]


class Wire(asyncio.BufferedProtocol):
    """Receives bytes up to a limit, after which the peer must wait. Only one task can read at a time.

    The receive buffer is reused: asyncio's own buffer of 256 KiB would be mapped and unmapped for each answer.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = memoryview(bytearray(_BUFFER))
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._reader: asyncio.Future[None] | None = None  # the waiting `read`
        self._end: Exception | None = None  # why the connection ended; EOFError if the peer closed it

    @property
    def is_quiet(self) -> bool:
        """Whether there are no unread bytes and no end. Polls the socket, because a busy loop can lag behind it."""
        if self._pieces or self._end is not None or self._transport.is_closing():
            return False
        waiting = select.poll()
        waiting.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not waiting.poll(0)

    def write(self, data: bytes) -> None:
        """Send bytes; those that the kernel does not accept yet are buffered."""
        if data:
            self._transport.write(data)

    async def read(self) -> bytes:
        """Wait for bytes and return all that have arrived; empty at the end. Raises OSError."""
        if not self._pieces and self._end is None:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            if self._end is None:
                self._transport.resume_reading()
            return data
        if isinstance(self._end, OSError):
            raise self._end
        return b""

    async def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        """Start TLS with a server of this name. Raises OSError."""
        loop = asyncio.get_running_loop()
        sslproto.SSLProtocol.max_size = _BUFFER  # size of a buffer per connection; the default is 256 KiB
        server = name.encode() if name.isascii() else name  # bytes avoid the IDNA codec, as in _resolved
        transport = await loop.start_tls(self._transport, self, context, server_hostname=server)  # type: ignore[arg-type]
        if transport is None:
            raise ConnectionResetError("the connection was closed while TLS began")
        self._transport = transport

    def close(self) -> None:
        """Close at once, without sending buffered bytes, because a peer that does not read would delay it."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Store the received bytes; pause reading if the reader is slow, so that the peer waits."""
        self._pieces.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size > _MAX_UNREAD:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Record that the peer sends no more."""
        self._ended(EOFError())

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the connection and its error."""
        self._ended(exc or EOFError())

    def _ended(self, error: Exception) -> None:
        self._end = self._end or error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


async def dial(host: str, port: int) -> Wire:
    """Connect to the first address of a host that accepts. Raises OSError."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for address in await _addresses(host, port):
        try:
            transport, wire = await loop.create_connection(Wire, *address)
        except OSError as error:
            failure = error
            continue
        found = transport.get_extra_info("socket")
        for option in _KEEP_ALIVE:
            found.setsockopt(*option)
        return wire
    raise failure or OSError(f"{host} has no address")


async def _addresses(host: str, port: int) -> list[_Address]:
    """Return the addresses of a host. Raises OSError.

    Each name lookup has its own daemon thread: a thread of the loop's executor would prevent the process from ending
    while no name server answers.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(socket.gaierror):
        return _resolved(host, port, socket.AI_NUMERICHOST)
    found: asyncio.Future[list[_Address]] = loop.create_future()

    def finish(addresses: list[_Address], error: Exception | None) -> None:
        if not found.done():
            found.set_exception(error) if error else found.set_result(addresses)

    def resolve() -> None:
        addresses, problem = list[_Address](), None
        try:
            addresses = _resolved(host, port, 0)
        except (OSError, UnicodeError) as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(finish, addresses, problem)

    try:
        threading.Thread(target=resolve, name="getaddrinfo", daemon=True).start()
    except RuntimeError as error:  # the limit on threads of the process, its cgroup or the node is reached
        raise OSError(f"{host} cannot be looked up: {error}") from error
    return await found


def _resolved(host: str, port: int, flags: int) -> list[_Address]:
    name = host.encode() if host.isascii() else host  # a str would always go through the IDNA codec
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
    return [(str(address[0]), port) for *_, address in found]
