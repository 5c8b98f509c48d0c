"""Flow control: what can be sent now, and what waits (RFC 9113, section 5.2).

A waiting message is not copied: a stream refers to the given bytes and counts how many were sent, so a list for fifty
slow readers exists once. DATA frames are cut from it only when they can be sent: the windows have room and `writable`
is true, which means that the socket accepts data. Streams take turns, one frame each.
"""

from typing import Final

from grpcunix.http2.frames import DATA, DEFAULT_WINDOW, HEADER, MAX_PAYLOAD, MAX_WINDOW, ErrorCode, Fault, window_update
from grpcunix.http2.states import State

QUANTUM: Final = MAX_PAYLOAD  # bytes of DATA per write, which bounds what is buffered for a full socket


class Stream:
    """The stream of one call, at either end."""

    sent = 0  # bytes of the first chunk
    trailers: bytes | None = None  # the frame that ends this side's half, after the chunks
    has_headers = False  # servers: sent; clients: received
    body: bytearray | None = None  # of an incomplete message
    unread = 0  # clients: bytes of messages that the reader has not taken
    declared: int | None = None  # servers: the rest of content-length
    path = b""  # servers: of the request
    timeout: float | None = None  # servers: of the request, seconds
    trace: tuple[tuple[bytes, bytes], ...] = ()  # servers: the request's fields for the caller's span

    def __init__(self, stream_id: int, state: State, window: int, receive_window: int) -> None:
        """Begin in `state`; the windows limit what can be sent and received."""
        self.id = stream_id
        self.state = state
        self.window = window
        self.receive_window = receive_window
        self.chunks: list[bytes] = []  # to be sent, the first one from `sent` on


class Outbox:
    """What one connection has to send."""

    def __init__(self) -> None:
        """Start empty, with the protocol's initial windows."""
        self.window = DEFAULT_WINDOW  # of the connection
        self.initial = DEFAULT_WINDOW  # for new streams
        self.writable = True  # whether the socket accepts more data; set by the endpoint
        self.drained: list[int] = []  # streams whose chunks were all sent since the last check
        self.ended: list[Stream] = []  # streams whose trailers were sent since then
        # DATA frames and ends of this side's halves that were sent since then; see `FrameBudget`
        self.credited_frames = 0
        self._frames: list[bytes] = []
        self._deferrable = 0  # how many of them can wait for others
        self._waiting: dict[int, Stream] = {}

    def add(self, frame: bytes) -> None:
        """Send a frame without flow control."""
        self._frames.append(frame)

    def add_deferrable(self, frame: bytes) -> None:
        """Send a frame that can wait briefly, to be written together with others."""
        self._frames.append(frame)
        self._deferrable += 1

    @property
    def is_deferrable(self) -> bool:
        """Return whether there are frames to send, all of which can wait briefly."""
        return not self._waiting and 0 < len(self._frames) == self._deferrable

    def fits(self, stream: Stream, size: int) -> bool:
        """Return whether a DATA frame of `size` bytes can be sent at once, for a stream without waiting chunks."""
        return size <= MAX_PAYLOAD and size <= stream.window and size <= self.window and self.writable

    def put(self, stream: Stream, *chunks: bytes, trailers: bytes | None = None) -> None:
        """Send chunks of DATA, and then the frame that ends this side's half, as soon as flow control allows it."""
        stream.chunks += filter(None, chunks)
        if trailers is not None:
            stream.trailers = trailers
        self._waiting[stream.id] = stream

    def count(self, stream: Stream, size: int) -> None:
        """Count a DATA frame that fits and is added by the caller."""
        stream.window -= size
        self.window -= size
        self.credited_frames += 1

    def drop(self, stream: Stream) -> None:
        """Discard the waiting chunks of a stream that has ended."""
        stream.chunks.clear()
        self._waiting.pop(stream.id, None)

    def take(self) -> bytes:
        """Return what is to be written now: the frames, and as much DATA as flow control allows, up to `QUANTUM`."""
        if self._waiting and self.writable:
            self._make_frames()
        if not self._frames:
            return b""
        frames, self._frames = self._frames, []
        self._deferrable = 0
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _make_frames(self) -> None:
        budget = QUANTUM
        waiting = list(self._waiting.values())
        while waiting and budget > 0:
            unfinished = []
            for stream in waiting:
                size = self._make_frame(stream, budget) if stream.chunks else 0
                budget -= size
                if not stream.chunks:
                    self._finish(stream)
                elif size:
                    unfinished.append(stream)
            waiting = unfinished

    def _make_frame(self, stream: Stream, limit: int) -> int:
        """Create one DATA frame for a stream; return its size, or 0 if nothing can be sent."""
        room = min(MAX_PAYLOAD, stream.window, self.window, limit)
        if room <= 0:
            return 0
        pieces: list[bytes | memoryview] = []
        size = 0
        while stream.chunks and size < room:
            piece = memoryview(stream.chunks[0])[stream.sent : stream.sent + room - size]
            pieces.append(piece)
            size += len(piece)
            stream.sent += len(piece)
            if stream.sent == len(stream.chunks[0]):
                stream.sent = 0
                del stream.chunks[0]
        self._frames.append(HEADER.pack(size << 8 | DATA, 0, stream.id) + b"".join(pieces))
        self.count(stream, size)
        self._waiting.pop(stream.id)  # to the end of the queue
        self._waiting[stream.id] = stream
        return size

    def _finish(self, stream: Stream) -> None:
        del self._waiting[stream.id]
        if stream.trailers is None:
            self.drained.append(stream.id)
        else:
            self._frames.append(stream.trailers)
            self.ended.append(stream)
            self.credited_frames += 1


class ConnectionWindow:
    """The receive window of a whole connection: all data is accepted at once, so the window is reopened repeatedly.

    It cannot be exceeded: half of it is always left, and a frame is smaller than that.
    """

    SIZE: Final = 1 << 20

    def __init__(self, outbox: Outbox) -> None:
        """Open the window at once."""
        self._outbox = outbox
        self._left = self.SIZE
        outbox.add(window_update(0, self.SIZE - DEFAULT_WINDOW))

    def take(self, size: int) -> None:
        """Count a DATA frame."""
        self._left -= size
        if self._left < self.SIZE // 2:
            self._outbox.add(window_update(0, self.SIZE - self._left))
            self._left = self.SIZE


def enlarged(window: int, increment: int) -> int:
    """Return a window after an increment. Raises `Fault` if it exceeds the maximum."""
    window += increment
    if window > MAX_WINDOW:
        raise Fault(ErrorCode.FLOW_CONTROL_ERROR, "a window is larger than 2^31 - 1")
    return window
