"""The server's end: requests of one message each come out, answers go in.

A call that gRPC cannot serve is answered here (no POST, no gRPC, a message that is too large); all others become a
`Request`. An answer to a call that has ended meanwhile is dropped, so the endpoint need not check.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from grpcunix.http2 import frames, hpack
from grpcunix.http2.connection import Connection, Phase
from grpcunix.http2.flow import Stream
from grpcunix.http2.frames import DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, ErrorCode, Fault, Setting
from grpcunix.http2.limits import DEFAULT_LIMITS, Limits, SharedUsage
from grpcunix.http2.messages import PREFIX, decode_timeout, encode_details, message_size, prefix
from grpcunix.http2.states import (
    CLOSED,
    IDLE,
    OPEN,
    RECEIVE_END,
    RECEIVE_HEADERS,
    step,
)
from grpcunix.status import RpcError, Status


class Request(NamedTuple):
    """A call has come, with its whole message."""

    stream: int
    path: bytes  # `/package.Service/Method`
    timeout: float | None  # the caller's timeout in seconds
    message: bytes
    trace: tuple[tuple[bytes, bytes], ...] = ()  # the caller's span: fields of W3C's Trace Context


class Cancelled(NamedTuple):
    """The caller does not wait any more."""

    stream: int


ServerEvent: TypeAlias = Request | Cancelled

_RESPONSE: Final = hpack.NO_TABLE + hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
_OK: Final = hpack.encode([(b"grpc-status", b"0")])
# frames of an answer up to the stream's number, the only part that differs
_RESPONSE_HEAD: Final = HEADER.pack(len(_RESPONSE) << 8 | HEADERS, END_HEADERS, 0)[:5]
_OK_HEAD: Final = HEADER.pack(len(_OK) << 8 | HEADERS, END_HEADERS | END_STREAM, 0)[:5]

_REQUEST_FIELDS: Final = {b":method", b":scheme", b":path", b":authority"}
_FORBIDDEN: Final = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_TRACE: Final = (b"traceparent", b"tracestate")
_MAX_TRACE: Final = 512  # bytes; longer ones need not be passed on, and would be stored as long as the stream
_COLON: Final = ord(":")
_WRONG_LENGTH: Final = "the length of the request differs from its content-length"
_NOT_ONE_MESSAGE: Final = "the request of a unary or server-streaming method is exactly one message"


class ServerConnection(Connection[ServerEvent]):
    """One client's connection."""

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        shared: SharedUsage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; `shared` is shared by all connections of a process."""
        own = {Setting.MAX_CONCURRENT_STREAMS: limits.streams, Setting.MAX_HEADER_LIST_SIZE: limits.header_list}
        super().__init__(limits, Phase.PREFACE, frames.settings(own), clock)
        self._shared = shared or SharedUsage()
        self._last_fields: list[hpack.Field] | None = None  # all fields of the last call except its deadline
        self._last_path = b""
        self._unfinished = 0  # bytes of incomplete requests

    # answers

    def respond(self, stream_id: int, message: bytes) -> None:
        """Answer a call with one message and OK."""
        stream = self._open_stream(stream_id)
        if stream is None:
            return
        size = PREFIX + len(message)
        outbox = self.outbox
        if not outbox.fits(stream, size):
            self.send_message(stream_id, message)
            self.finish(stream_id, Status.OK)
            return
        outbox.count(stream, size)
        number = frames.WORD.pack(stream_id)
        data = HEADER.pack(size << 8 | DATA, 0, stream_id) + prefix(message)
        outbox.add(b"".join((_RESPONSE_HEAD, number, _RESPONSE, data, message, _OK_HEAD, number, _OK)))
        self._on_end_sent(stream)

    def send_message(self, stream_id: int, message: bytes) -> None:
        """Send a message of a stream; `outbox.drained` has the stream when all of it was sent."""
        stream = self._open_stream(stream_id)
        if stream is not None:
            self._send_headers(stream)
            self.outbox.put(stream, prefix(message), message)

    def finish(self, stream_id: int, status: Status, details: str = "") -> None:
        """End a call; waiting messages are sent first."""
        stream = self._open_stream(stream_id)
        if stream is not None:
            fields = [(b"grpc-status", b"%d" % status)]
            if details:
                fields.append((b"grpc-message", encode_details(details)))
            self._finish(stream, fields)

    def abort_call(self, stream_id: int, status: Status, details: str) -> None:
        """End a call now: a waiting message is dropped, even if a part of it was sent."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.chunks:
            self._send_reset(stream, ErrorCode.CANCEL)
        else:
            self.finish(stream_id, status, details)

    def is_open(self, stream_id: int) -> bool:
        """Return whether a call waits for its answer."""
        return self._open_stream(stream_id) is not None

    def _open_stream(self, stream_id: int) -> Stream | None:
        stream = self._streams.get(stream_id)
        return None if stream is None or stream.trailers is not None else stream

    def go_away(self) -> None:
        """Accept no more calls; the connection closes after the existing ones."""
        if not self.is_going_away:
            self.is_going_away = True
            self.outbox.add(frames.goaway(self._last, ErrorCode.NO_ERROR, "the server stops"))
            self._close_if_done()

    def _send_headers(self, stream: Stream) -> None:
        if not stream.has_headers:
            stream.has_headers = True
            self.outbox.add(frames.frame(HEADERS, END_HEADERS, stream.id, _RESPONSE))

    def _finish(self, stream: Stream, fields: list[hpack.Field], body: bytes = b"") -> None:
        """Send trailers, or an answer of trailers only; with `body`, an HTTP answer."""
        if body:
            stream.has_headers = True
            block = hpack.NO_TABLE + hpack.encode(fields)
            self.outbox.add(frames.frame(HEADERS, END_HEADERS, stream.id, block))
            self.outbox.put(stream, body, trailers=frames.frame(DATA, END_STREAM, stream.id))
            return
        block = hpack.encode(fields) if stream.has_headers else _RESPONSE + hpack.encode(fields)
        self.outbox.put(stream, trailers=frames.frame(HEADERS, END_HEADERS | END_STREAM, stream.id, block))

    def _on_end_sent(self, stream: Stream) -> None:
        super()._on_end_sent(stream)
        if stream.state is CLOSED:
            self._forget(stream)
        else:  # the rest of the request is not needed
            self._send_reset(stream, ErrorCode.NO_ERROR)

    def _forget(self, stream: Stream) -> None:
        if self._streams.get(stream.id) is stream:
            self._shared.streams -= 1
            self._discard_body(stream)
            super()._forget(stream)
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_going_away and not self._streams:
            self.phase = Phase.CLOSED

    def abandon(self) -> None:
        """Release the connection's share of the totals, because the socket has closed."""
        self._socket_closed()
        for stream in list(self._streams.values()):
            self._forget(stream)

    # requests

    def _on_fields(self, stream_id: int, fields: list[hpack.Field], ends: bool) -> None:
        if self._state(stream_id) is not IDLE:
            self._on_trailers(stream_id, fields, ends)
            return
        self._last = stream_id
        stream = Stream(stream_id, OPEN, self.outbox.initial, frames.DEFAULT_WINDOW)
        self._streams[stream_id] = stream
        self._shared.streams += 1
        if self._exceeds_limits():
            self._frame_budget.spend()
            self._send_reset(stream, ErrorCode.REFUSED_STREAM)
            return
        try:
            refusal = self._read(stream, fields)
        except RpcError as error:
            self.finish(stream_id, error.code, error.details)
        else:
            if refusal is not None:
                self._finish(stream, [(b":status", refusal[0]), (b"content-type", b"text/plain")], refusal[1])
        if ends:
            self._on_request_end(stream, b"")

    def _read(self, stream: Stream, fields: list[hpack.Field]) -> tuple[bytes, bytes] | None:
        """Like `_read_request`, with a cache: a client's calls often differ only in their last field, the deadline."""
        if fields and fields[-1][0] == b"grpc-timeout":
            if fields[:-1] == self._last_fields:
                stream.path, stream.timeout = self._last_path, decode_timeout(fields[-1][1])
                return None
            refusal = _read_request(stream, fields)
            if refusal is None and stream.declared is None and not stream.trace:
                self._last_fields, self._last_path = fields[:-1], stream.path
            return refusal
        return _read_request(stream, fields)

    def _exceeds_limits(self) -> bool:
        limits, own_streams = self.limits, len(self._streams)
        return (
            self.is_going_away
            or own_streams > limits.streams
            or (own_streams > limits.streams_guaranteed and self._shared.streams > limits.streams_total)
        )

    def _on_trailers(self, stream_id: int, fields: list[hpack.Field], ends: bool) -> None:
        stream = self._received(stream_id, RECEIVE_HEADERS)
        if not ends or any(name[0] == _COLON for name, _ in fields):
            raise Fault(ErrorCode.PROTOCOL_ERROR, "a second HEADERS must be trailers and end the stream")
        if stream is None:
            self._received(stream_id, RECEIVE_END)
        else:
            self._on_request_end(stream, stream.body or b"")

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        stream, payload = self._take_data(flags, stream_id, payload)
        if stream is None:
            return
        ends = flags & END_STREAM
        if stream.declared is not None:
            stream.declared -= len(payload)
            if stream.declared < 0:
                raise Fault(ErrorCode.PROTOCOL_ERROR, _WRONG_LENGTH)
        if ends and stream.body is None:  # the usual case: all in one frame
            self._on_request_end(stream, payload)
            return
        if payload and stream.trailers is None:
            self._buffer_body(stream, payload)
        if ends:
            self._on_request_end(stream, stream.body or b"")
        elif stream.receive_window < frames.DEFAULT_WINDOW // 2:
            self.outbox.add(frames.window_update(stream_id, frames.DEFAULT_WINDOW - stream.receive_window))
            stream.receive_window = frames.DEFAULT_WINDOW

    def _buffer_body(self, stream: Stream, payload: bytes) -> None:
        """Store a part of a request, or refuse the call."""
        if stream.body is None:
            stream.body = bytearray()
        try:
            stream.body += payload
            self._unfinished += len(payload)
            self._shared.unfinished += len(payload)
            size = message_size(stream.body, self.limits.message)
            if size is not None and len(stream.body) > PREFIX + size:
                raise RpcError(Status.INTERNAL, _NOT_ONE_MESSAGE)
            limits = self.limits
            if self._unfinished > limits.unfinished_guaranteed and self._shared.unfinished > limits.unfinished_total:
                text = "too much of unfinished requests is kept here already; try again when they have ended"
                raise RpcError(Status.RESOURCE_EXHAUSTED, text)
        except RpcError as error:
            self._discard_body(stream)
            self.finish(stream.id, error.code, error.details)

    def _discard_body(self, stream: Stream) -> None:
        """Discard the received part of a request."""
        if stream.body is not None:
            self._unfinished -= len(stream.body)
            self._shared.unfinished -= len(stream.body)
            stream.body = None

    def _on_request_end(self, stream: Stream, body: bytes | bytearray) -> None:
        if stream.declared:
            raise Fault(ErrorCode.PROTOCOL_ERROR, _WRONG_LENGTH)
        stream.state = step(stream.state, RECEIVE_END)
        if stream.trailers is not None:  # answered already
            return
        self._discard_body(stream)
        try:
            if message_size(body, self.limits.message) != len(body) - PREFIX:
                raise RpcError(Status.INTERNAL, _NOT_ONE_MESSAGE)
        except RpcError as error:
            self.finish(stream.id, error.code, error.details)
            return
        message = bytes(memoryview(body)[PREFIX:])
        self._events.append(Request(stream.id, stream.path, stream.timeout, message, stream.trace))

    def _on_reset(self, stream: Stream, code: ErrorCode) -> None:
        del code
        self._events.append(Cancelled(stream.id))


def _read_request(stream: Stream, fields: list[hpack.Field]) -> tuple[bytes, bytes] | None:
    """Store the request's fields in `stream`; return HTTP status and text for a request that is not gRPC.

    Raises `Fault` for a request that is malformed (RFC 9113, sections 8.2 and 8.3) and `RpcError` for a call that
    cannot be served.
    """
    count = 0
    for name, _ in fields:
        if name[0] != _COLON:
            break
        count += 1
    pseudo, rest = dict(fields[:count]), dict(fields[count:])
    if len(pseudo) != count or not pseudo.keys() <= _REQUEST_FIELDS or len(pseudo) < 3:
        raise Fault(ErrorCode.PROTOCOL_ERROR, "a request has :method, :scheme, :path and perhaps :authority, each once")
    if not rest.keys().isdisjoint(_FORBIDDEN) or any(name[0] == _COLON for name in rest):
        raise Fault(ErrorCode.PROTOCOL_ERROR, "a request has a header that must not be there")
    stream.path = pseudo.get(b":path", b"")
    if not stream.path or b":method" not in pseudo or b":scheme" not in pseudo:
        raise Fault(ErrorCode.PROTOCOL_ERROR, "a request must have :method, :scheme and :path")
    if rest.get(b"te", b"trailers") != b"trailers":
        raise Fault(ErrorCode.PROTOCOL_ERROR, "te must be trailers")
    length = rest.get(b"content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 18:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "content-length must be a number")
        stream.declared = int(length)
    if pseudo[b":method"] != b"POST":
        return b"405", b"gRPC calls are POST requests\n"
    kind = rest.get(b"content-type", b"")
    if kind != b"application/grpc" and not kind.startswith((b"application/grpc+", b"application/grpc;")):
        return b"415", b"this socket serves gRPC: content-type must be application/grpc\n"
    if rest.get(b"grpc-encoding", b"identity") != b"identity":
        raise RpcError(Status.UNIMPLEMENTED, "messages must not be compressed: grpc-encoding must be identity")
    timeout = rest.get(b"grpc-timeout")
    if timeout is not None:
        stream.timeout = decode_timeout(timeout)
    if 0 < len(rest.get(b"traceparent", b"")) <= _MAX_TRACE:
        named = ((name, rest.get(name, b"")) for name in _TRACE)
        stream.trace = tuple(each for each in named if 0 < len(each[1]) <= _MAX_TRACE)
    return None
