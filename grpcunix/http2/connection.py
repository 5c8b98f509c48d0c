"""A connection, for both ends: bytes become frames, frames change states, and frames to send are collected.

`ServerConnection` and `ClientConnection` define what HEADERS and DATA mean. The phase defines which frames can come:
first the preface, then SETTINGS, then any; within a header block only its CONTINUATION frames.
"""

import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Generic, TypeVar

from grpcunix.http2 import frames
from grpcunix.http2.flow import ConnectionWindow, Outbox, Stream, enlarged
from grpcunix.http2.frames import ErrorCode, Fault, Setting
from grpcunix.http2.hpack import Decoder, Field
from grpcunix.http2.limits import FrameBudget, Limits
from grpcunix.http2.states import (
    CLOSED,
    IDLE,
    RECEIVE_DATA,
    RECEIVE_END,
    RECEIVE_RESET,
    RECEIVE_WINDOW_UPDATE,
    RESET,
    SEND_END,
    SEND_RESET,
    Event,
    State,
    step,
)

FRAMES_AT_ONCE: Final = 32  # so that a flooding client delays others only by the time for so many frames
E = TypeVar("E")


class Phase(IntEnum):
    """Which frames can come."""

    CLOSED = 0  # none is processed
    PREFACE = 1  # none: the 24 bytes before the frames
    SETTINGS = 2
    ANY = 3
    HEADER_BLOCK = 4


# module-level names, as in `states`
_CLOSED, _PREFACE, _SETTINGS, _ANY, _HEADER_BLOCK = Phase
_EXPECTED: Final = {_SETTINGS: frames.SETTINGS, _HEADER_BLOCK: frames.CONTINUATION}


class Connection(Generic[E]):
    """One end. Pass received data to `receive`, process the events, and then write what `take` returns."""

    def __init__(
        self, limits: Limits, first: Phase, opening: bytes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin in a phase; `opening` is sent first, `clock` returns seconds."""
        self.limits = limits
        self.outbox = Outbox()
        self.outbox.add(opening)
        self._connection_window = ConnectionWindow(self.outbox)
        self.phase = first
        self.fault: Fault | None = None  # why this end closed the connection
        self.has_backlog = False
        self.is_going_away = False  # no new calls: the server has sent GOAWAY, or the stream numbers are used up
        self._streams: dict[int, Stream] = {}
        self._last = 0  # the highest stream number used
        self._events: list[E] = []
        self._buffer = b""
        self._reset: deque[int] = deque(maxlen=FrameBudget.INITIAL)  # streams in state RESET
        self._decoder = Decoder(limits.header_list)
        self._block: list[bytes] = []  # an incomplete header block, and the flags of its first frame
        self._block_stream = self._block_flags = 0
        self._frame_budget = FrameBudget(clock)
        self._handlers: tuple[Callable[[int, int, bytes], None], ...] = (
            self._on_data,
            self._on_headers,
            self._on_priority,
            self._on_rst_stream,
            self._on_settings,
            self._on_push_promise,
            self._on_ping,
            self._on_goaway,
            self._on_window_update,
            self._on_continuation,
        )

    @property
    def is_closed(self) -> bool:
        """Return whether the connection has ended: write what `take` returns, then close the socket."""
        return self.phase is _CLOSED

    @property
    def is_established(self) -> bool:
        """Return whether the other end speaks HTTP/2: its preface and settings have come."""
        return self.phase > _SETTINGS

    @property
    def streams(self) -> int:
        """Return the number of calls."""
        return len(self._streams)

    def is_sending(self, stream_id: int) -> bool:
        """Return whether a message of a stream was not sent completely yet."""
        stream = self._streams.get(stream_id)
        return stream is not None and bool(stream.chunks)

    def receive(self, data: bytes) -> list[E]:
        """Process received data; return the events. A fault of the other end closes the connection, see `is_closed`.

        If very many frames came, only some are processed: while `has_backlog`, call this again without data.
        """
        self._events = []
        if self._buffer:
            data = self._buffer + data
        position, end = 0, len(data)
        unpack, handlers = frames.HEADER.unpack_from, self._handlers
        self.has_backlog = False
        try:
            if self.phase is _PREFACE:
                position = self._take_preface(data)
            for _ in range(FRAMES_AT_ONCE):
                if end - position < 9 or self.phase <= _PREFACE:
                    break
                word, flags, stream_id = unpack(data, position)
                size, kind = word >> 8, word & 0xFF
                if size > frames.MAX_PAYLOAD:
                    raise Fault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                if self.phase is not _ANY:
                    self._check(kind, size)
                start = position + 9
                if end - start < size:
                    break
                position = start + size
                if kind < 10:
                    handlers[kind](flags, stream_id & frames.MAX_STREAM_ID, data[start:position])
                else:
                    self._frame_budget.spend()  # unknown kinds are ignored
            else:
                self.has_backlog = True
        except Fault as fault:
            self.fault = fault
            self.close(fault.code, str(fault))
        self._buffer = data[position:] if position < end and self.phase is not _CLOSED else b""
        return self._events

    def take(self) -> bytes:
        """Return what is to be written now. Call it again after writing, until it returns nothing."""
        outbox = self.outbox
        data = outbox.take()
        if outbox.credited_frames:
            self._frame_budget.earn(outbox.credited_frames)
            outbox.credited_frames = 0
        if outbox.ended:
            for stream in outbox.ended:
                self._on_end_sent(stream)
            outbox.ended.clear()
        return data

    def ping(self) -> None:
        """Send a ping."""
        self.outbox.add(frames.frame(frames.PING, 0, 0, b"nodeplug"))

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, text: str = "") -> None:
        """End the connection now."""
        self.outbox.add(frames.goaway(self._last, code, text))
        self.phase = _CLOSED

    def _socket_closed(self) -> None:
        """Process nothing any more. This also breaks the reference cycle through the bound methods."""
        self.phase = _CLOSED
        self._handlers = ()

    # differs between the ends

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_fields(self, stream_id: int, fields: list[Field], ends: bool) -> None:
        """Process a header block; for a stream that has ended already, `fields` can be ignored."""
        raise NotImplementedError

    def _on_reset(self, stream: Stream, code: ErrorCode) -> None:
        """Process a stream that the other end has reset."""
        raise NotImplementedError

    def _on_end_sent(self, stream: Stream) -> None:
        """Process that the end of this side's half was sent."""
        stream.state = step(stream.state, SEND_END)

    # streams

    def _state(self, stream_id: int) -> State:
        stream = self._streams.get(stream_id)
        if stream is not None:
            return stream.state
        if stream_id > self._last or not stream_id & 1:
            return IDLE
        return RESET if stream_id in self._reset else CLOSED

    def _received(self, stream_id: int, event: Event) -> Stream | None:
        """Step the stream of an event, and return it; None if it has ended before. Raises `Fault`."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.state = step(stream.state, event)
            return stream
        before = self._state(stream_id)
        if step(before, event) is not before and before is RESET:
            self._reset.remove(stream_id)
        return None

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> tuple[Stream | None, bytes]:
        """Count a DATA frame; return its stream (None if it has ended) and its content without padding."""
        size = len(payload)
        self._connection_window.take(size)
        if flags & frames.PADDED:
            payload = frames.unpad(flags, payload)
        if not payload and not flags & frames.END_STREAM:
            self._frame_budget.spend()
        stream = self._received(stream_id, RECEIVE_DATA)
        if stream is not None:
            stream.receive_window -= size
            if stream.receive_window < 0:
                raise Fault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window")
        elif flags & frames.END_STREAM:
            self._received(stream_id, RECEIVE_END)
        return stream, payload

    def _forget(self, stream: Stream) -> None:
        """Remove a stream that is closed."""
        self._streams.pop(stream.id, None)
        self.outbox.drop(stream)

    def _send_reset(self, stream: Stream, code: ErrorCode) -> None:
        self.outbox.add(frames.rst_stream(stream.id, code))
        stream.state = step(stream.state, SEND_RESET)
        if stream.state is RESET:
            self._reset.append(stream.id)
        self._forget(stream)

    # frames

    def _take_preface(self, data: bytes) -> int:
        size = len(frames.PREFACE)
        if not frames.PREFACE.startswith(data[:size]):
            raise Fault(ErrorCode.PROTOCOL_ERROR, "this is a socket of gRPC: HTTP/2 must begin at once")
        if len(data) < size:
            return 0
        self.phase = _SETTINGS
        return size

    def _check(self, kind: int, size: int) -> None:
        """Refuse a frame that is not allowed now, before any of it is stored."""
        if kind != _EXPECTED[self.phase]:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"a frame of kind {kind} where {self.phase.name} must come")
        if self.phase is _HEADER_BLOCK and (
            len(self._block) == self.limits.header_frames or sum(map(len, self._block)) + size > self.limits.header_list
        ):
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long, or in too many frames")

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = frames.unpad(flags, payload)
        if flags & frames.WITH_PRIORITY:
            if len(block) < 5:
                raise Fault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS ends within its priority")
            block = block[5:]
        if not stream_id & 1:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        if flags & frames.END_HEADERS:
            self._on_fields(stream_id, self._decoder.decode(block), bool(flags & frames.END_STREAM))
        else:
            self._block, self._block_stream, self._block_flags = [block], stream_id, flags
            self.phase = _HEADER_BLOCK

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self.phase is not _HEADER_BLOCK or stream_id != self._block_stream:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without the HEADERS that it continues")
        self._block.append(payload)
        if flags & frames.END_HEADERS:
            block, self._block = b"".join(self._block), []
            self.phase = _ANY
            self._on_fields(stream_id, self._decoder.decode(block), bool(self._block_flags & frames.END_STREAM))

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        del flags
        if stream_id == 0:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY must have 5 bytes")
        self._frame_budget.spend()

    def _on_rst_stream(self, flags: int, stream_id: int, payload: bytes) -> None:
        del flags
        if len(payload) != 4:
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM must have 4 bytes")
        self._frame_budget.spend()
        stream = self._received(stream_id, RECEIVE_RESET)
        if stream is not None:
            self._forget(stream)
            self._on_reset(stream, frames.error_code(frames.WORD.unpack(payload)[0]))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"SETTINGS on stream {stream_id}")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        if self.phase is _SETTINGS:
            if flags & frames.ACK:
                raise Fault(ErrorCode.PROTOCOL_ERROR, "SETTINGS are acknowledged before any were sent")
            self.phase = _ANY
        self._frame_budget.spend()
        if not flags & frames.ACK:
            for name, value in dict(frames.SETTING.iter_unpack(payload)).items():  # the last value of each setting
                self._on_setting(name, value)
            self.outbox.add(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _on_setting(self, name: int, value: int) -> None:
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise Fault(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value}")
            change, self.outbox.initial = value - self.outbox.initial, value
            if change:
                for stream in self._streams.values():
                    stream.window = enlarged(stream.window, change)
        elif name == Setting.ENABLE_PUSH and value > 1:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH {value}")
        elif name == Setting.MAX_FRAME_SIZE and not frames.MAX_PAYLOAD <= value < 1 << 24:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value}")

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        del flags, stream_id, payload
        raise Fault(ErrorCode.PROTOCOL_ERROR, "server push is not permitted")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"PING on stream {stream_id}")
        if len(payload) != 8:
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, "PING must have 8 bytes")
        self._frame_budget.spend()
        if not flags & frames.ACK:
            self.outbox.add_deferrable(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        del flags
        if stream_id != 0:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"GOAWAY on stream {stream_id}")
        if len(payload) < 8:
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY must have 8 bytes or more")
        self._frame_budget.spend()

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        del flags
        if len(payload) != 4:
            raise Fault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE must have 4 bytes")
        increment = frames.WORD.unpack(payload)[0] & frames.MAX_WINDOW
        if increment == 0:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        self._frame_budget.spend()
        if stream_id == 0:
            self.outbox.window = enlarged(self.outbox.window, increment)
            return
        stream = self._received(stream_id, RECEIVE_WINDOW_UPDATE)
        if stream is not None:
            stream.window = enlarged(stream.window, increment)
