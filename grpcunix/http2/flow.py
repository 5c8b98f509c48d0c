"""Flow control: what may be sent now, and what waits (RFC 9113, section 5.2).

A message that waits is not copied: a stream holds the bytes that it was given, and how many of them are sent. A list
that fifty slow readers wait for is there once. DATA is cut from it only when it can leave: the windows have room and
`writable` says that the socket takes it. Streams take turns, a frame each.
"""

from typing import Final

from grpcunix.http2.frames import DATA, DEFAULT_WINDOW, HEADER, MAX_PAYLOAD, MAX_WINDOW, ErrorCode, Fault, window_update
from grpcunix.http2.states import State

QUANTUM: Final = MAX_PAYLOAD  # bytes of DATA to be written at once: what is kept for a socket that takes no more


class Stream:
    """One call's stream, whichever end we are."""

    sent = 0  # bytes of the first chunk
    trailers: bytes | None = None  # the frame that ends our half, after the chunks
    has_headers = False  # servers: ours are sent; clients: theirs have come
    body: bytearray | None = None  # of a message whose end has not come
    unread = 0  # clients: bytes of messages that their reader has not taken
    declared: int | None = None  # servers: content-length that is still to come
    path = b""  # servers: of the request
    timeout: float | None = None  # servers: of the request, seconds
    trace: tuple[tuple[bytes, bytes], ...] = ()  # servers: the fields of the request that name its caller's span

    def __init__(self, stream_id: int, state: State, window: int, receive_window: int) -> None:
        """Begin in `state`; the windows are what we may send and what we may get."""
        self.id = stream_id
        self.state = state
        self.window = window
        self.receive_window = receive_window
        self.chunks: list[bytes] = []  # to be sent, the first one from `sent` on


class Outbox:
    """What one connection has to send."""

    def __init__(self) -> None:
        """Begin with nothing, and the windows that the protocol starts with."""
        self.window = DEFAULT_WINDOW  # of the connection
        self.initial = DEFAULT_WINDOW  # of a stream that begins now
        self.writable = True  # the shell sets it: the socket takes more
        self.drained: list[int] = []  # streams whose chunks have all left since the last look
        self.ended: list[Stream] = []  # streams whose trailers have left since
        self.paying = 0  # frames of DATA, and ends of our half, that have left since; see `Courtesy`
        self._frames: list[bytes] = []
        self._patient = 0  # how many of them may wait for others
        self._waiting: dict[int, Stream] = {}

    def add(self, frame: bytes) -> None:
        """Send a frame that no window holds back."""
        self._frames.append(frame)

    def add_patient(self, frame: bytes) -> None:
        """Send a frame that may wait a moment for others, to leave together with them."""
        self._frames.append(frame)
        self._patient += 1

    @property
    def is_patient(self) -> bool:
        """Tell whether something is to be sent, and all of it may wait a moment."""
        return not self._waiting and 0 < len(self._frames) == self._patient

    def fits(self, stream: Stream, size: int) -> bool:
        """Tell whether one DATA frame of `size` bytes may leave at once, of a stream for which nothing waits."""
        return size <= MAX_PAYLOAD and size <= stream.window and size <= self.window and self.writable

    def put(self, stream: Stream, *chunks: bytes, trailers: bytes | None = None) -> None:
        """Send chunks of DATA, and after them the frame that ends our half, as soon as they may leave."""
        stream.chunks += filter(None, chunks)
        if trailers is not None:
            stream.trailers = trailers
        self._waiting[stream.id] = stream

    def count(self, stream: Stream, size: int) -> None:
        """Count a DATA frame that fits and is added by the caller."""
        stream.window -= size
        self.window -= size
        self.paying += 1

    def drop(self, stream: Stream) -> None:
        """Forget what waits of a stream that has ended."""
        stream.chunks.clear()
        self._waiting.pop(stream.id, None)

    def take(self) -> bytes:
        """Return what is to be written now: the frames, and as much DATA as may leave, up to `QUANTUM`."""
        if self._waiting and self.writable:
            self._cut()
        if not self._frames:
            return b""
        frames, self._frames = self._frames, []
        self._patient = 0
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _cut(self) -> None:
        budget = QUANTUM
        waiting = list(self._waiting.values())
        while waiting and budget > 0:
            unfinished = []
            for stream in waiting:
                size = self._cut_frame(stream, budget) if stream.chunks else 0
                budget -= size
                if not stream.chunks:
                    self._finish(stream)
                elif size:
                    unfinished.append(stream)
            waiting = unfinished

    def _cut_frame(self, stream: Stream, most: int) -> int:
        """Make one DATA frame of what a stream has; return its size, 0 where nothing may leave."""
        room = min(MAX_PAYLOAD, stream.window, self.window, most)
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
        self._waiting.pop(stream.id)  # to the end of the line
        self._waiting[stream.id] = stream
        return size

    def _finish(self, stream: Stream) -> None:
        del self._waiting[stream.id]
        if stream.trailers is None:
            self.drained.append(stream.id)
        else:
            self._frames.append(stream.trailers)
            self.ended.append(stream)
            self.paying += 1


class Intake:
    """The window of what a whole connection may send us: all that comes is taken, so it is opened again and again.

    It cannot be overrun: half of it is always left, and a frame is smaller than that.
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


def widened(window: int, increment: int) -> int:
    """Return a window after an increment. Raises `Fault` where it gets larger than a window can be."""
    window += increment
    if window > MAX_WINDOW:
        raise Fault(ErrorCode.FLOW_CONTROL_ERROR, "a window is larger than 2^31 - 1")
    return window
