"""The client's end: requests of one message each go in, messages and the ends of calls come out."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from grpcunix.http2 import frames, hpack
from grpcunix.http2.connection import Connection, Phase
from grpcunix.http2.flow import Stream
from grpcunix.http2.frames import DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, ErrorCode, Fault, Setting
from grpcunix.http2.limits import Limits
from grpcunix.http2.messages import (
    PREFIX,
    decode_details,
    decode_status,
    encode_timeout,
    message_size,
    prefix,
    status_of_http,
    status_of_reset,
)
from grpcunix.http2.states import (
    CLOSED,
    IDLE,
    RECEIVE_END,
    RECEIVE_HEADERS,
    SEND_HEADERS,
    step,
)
from grpcunix.status import RpcError, Status


class Message(NamedTuple):
    """A message of an answer."""

    stream: int
    data: bytes


class Ended(NamedTuple):
    """A call has ended."""

    stream: int
    status: Status
    details: str
    is_unprocessed: bool = False  # the server has not processed it: it can be repeated without harm


ClientEvent: TypeAlias = Message | Ended

WINDOW: Final = 1 << 20  # bytes of an answer that can be in transit or unread
_COLON: Final = ord(":")


class ClientConnection(Connection[ClientEvent]):
    """A connection to one server. `slots` is the number of calls that can begin now."""

    def __init__(self, authority: str, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin; of `limits` only those for messages and headers matter."""
        own = {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_list,
        }
        super().__init__(limits, Phase.SETTINGS, frames.PREFACE + frames.settings(own), clock)
        self._max_streams = limits.streams  # until the server sends its own limit
        self._head = hpack.encode(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":authority", authority.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", b"grpcunix"),
            ]
        )

    @property
    def slots(self) -> int:
        """Return how many calls can begin."""
        return 0 if self.is_going_away or self.is_closed else self._max_streams - len(self._streams)

    def request(self, path: str, message: bytes, timeout: float | None) -> int:
        """Begin a call, which needs a free slot; return its stream."""
        assert self.slots > 0
        stream_id = self._last = self._last + 2 if self._last else 1
        self.is_going_away = stream_id == frames.MAX_STREAM_ID  # the next call needs another connection
        stream = Stream(stream_id, step(IDLE, SEND_HEADERS), self.outbox.initial, WINDOW)
        self._streams[stream_id] = stream
        fields = [(b":path", path.encode())]
        if timeout is not None:
            fields.append((b"grpc-timeout", encode_timeout(timeout)))
        # :path goes first: pseudo-header fields must precede all others
        block = hpack.NO_TABLE + hpack.encode(fields[:1]) + self._head + hpack.encode(fields[1:])
        self.outbox.add(frames.frame(HEADERS, END_HEADERS, stream_id, block))
        size = PREFIX + len(message)
        if self.outbox.fits(stream, size):
            self.outbox.count(stream, size)
            self.outbox.add(HEADER.pack(size << 8 | DATA, END_STREAM, stream_id) + prefix(message) + message)
            self._on_end_sent(stream)
        else:
            self.outbox.put(stream, prefix(message), message, trailers=frames.frame(DATA, END_STREAM, stream_id))
        return stream_id

    def cancel(self, stream_id: int) -> None:
        """End a call whose caller has gone."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._send_reset(stream, ErrorCode.CANCEL)

    def consumed(self, stream_id: int, message: bytes) -> None:
        """Allow the server to send more on a stream, because its reader has taken a message."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.unread -= PREFIX + len(message)
            self._open_window(stream)

    def abandon(self, status: Status, details: str) -> list[ClientEvent]:
        """End all calls, because the socket has closed."""
        self._socket_closed()
        self._events = []
        for stream in list(self._streams.values()):
            self._end(stream, status, details)
        return self._events

    def _end(self, stream: Stream, status: Status, details: str, *, is_unprocessed: bool = False) -> None:
        """Report the end of a call; reset it if the server does not know."""
        if stream.state is not CLOSED and not self.is_closed:
            self._send_reset(stream, ErrorCode.CANCEL)
        else:
            self._forget(stream)
        self._events.append(Ended(stream.id, status, details, is_unprocessed))

    # answers

    def _on_setting(self, name: int, value: int) -> None:
        super()._on_setting(name, value)
        if name == Setting.MAX_CONCURRENT_STREAMS:
            self._max_streams = value
        elif name == Setting.ENABLE_PUSH and value:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "a server must not enable push")

    def _on_fields(self, stream_id: int, fields: list[hpack.Field], ends: bool) -> None:
        if self._state(stream_id) is IDLE:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}, which was not begun")
        stream = self._received(stream_id, RECEIVE_HEADERS)
        if stream is None:
            if ends:
                self._received(stream_id, RECEIVE_END)
            return
        if ends:
            stream.state = step(stream.state, RECEIVE_END)
        values = dict(fields)
        if not stream.has_headers:
            http = values.get(b":status", b"")
            if http.startswith(b"1") and not ends:
                self._frame_budget.spend()
                return  # 100 Continue and similar statuses precede the answer
            stream.has_headers = True
            if http != b"200" and b"grpc-status" not in values:
                self._end(stream, status_of_http(http), f"HTTP status {http.decode(errors='replace')}")
                return
            if not values.get(b"content-type", b"").startswith(b"application/grpc"):
                self._end(stream, Status.UNKNOWN, "the answer is not gRPC: its content-type is another")
                return
            if values.get(b"grpc-encoding", b"identity") != b"identity":
                self._end(stream, Status.INTERNAL, "the answer is compressed, which was not offered")
                return
        elif not ends or any(name[0] == _COLON for name, _ in fields):
            raise Fault(ErrorCode.PROTOCOL_ERROR, "a second HEADERS must be trailers and end the stream")
        if ends:
            self._on_trailers(stream, values)

    def _on_trailers(self, stream: Stream, values: dict[bytes, bytes]) -> None:
        status = values.get(b"grpc-status")
        if status is None:
            self._end(stream, Status.UNKNOWN, "the answer ended without a status")
        elif stream.body:
            self._end(stream, Status.INTERNAL, "the answer ended within a message")
        else:
            self._end(stream, decode_status(status), decode_details(values.get(b"grpc-message", b"")))

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        stream, payload = self._take_data(flags, stream_id, payload)
        if stream is None:
            return
        if not stream.has_headers:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "DATA before HEADERS")
        try:
            self._read(stream, payload)
        except RpcError as error:
            self._end(stream, error.code, error.details)
            return
        if flags & END_STREAM:
            stream.state = step(stream.state, RECEIVE_END)
            self._end(stream, Status.UNKNOWN, "the answer ended without a status")
        else:
            self._open_window(stream)

    def _read(self, stream: Stream, payload: bytes) -> None:
        """Report the messages that `payload` completes. Raises `RpcError` for an invalid one."""
        body = stream.body = stream.body or bytearray()
        body += payload
        while (size := message_size(body, self.limits.message)) is not None and len(body) >= PREFIX + size:
            self._events.append(Message(stream.id, bytes(memoryview(body)[PREFIX : PREFIX + size])))
            stream.unread += PREFIX + size
            del body[: PREFIX + size]

    def _open_window(self, stream: Stream) -> None:
        """Offer the window's rest, apart from bytes in transit and complete unread messages."""
        increment = max(WINDOW - stream.unread, 0) - stream.receive_window
        if increment >= WINDOW // 2:
            stream.receive_window += increment
            self.outbox.add(frames.window_update(stream.id, increment))

    def _on_reset(self, stream: Stream, code: ErrorCode) -> None:
        text = f"the server reset the stream: {code.name}"
        self._end(stream, status_of_reset(code), text, is_unprocessed=code is ErrorCode.REFUSED_STREAM)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        super()._on_goaway(flags, stream_id, payload)
        self.is_going_away = True
        last, code = frames.WORD.unpack_from(payload)[0], frames.error_code(frames.WORD.unpack_from(payload, 4)[0])
        text = f"the server goes away: {code.name} {payload[8:264].decode(errors='replace')}".rstrip()
        for stream in list(self._streams.values()):
            if stream.id > last & frames.MAX_STREAM_ID:
                self._end(stream, Status.UNAVAILABLE, text, is_unprocessed=True)
