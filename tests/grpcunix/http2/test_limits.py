"""Limits: the state that a client can cause in the server is bounded, and other clients keep their share."""

import itertools
from collections.abc import Callable, Iterator

import hpack
import pytest

from grpcunix.http2 import Cancelled, Limits, Request, ServerConnection, SharedUsage, frames
from grpcunix.http2.frames import ErrorCode, frame
from grpcunix.status import Status
from tests.grpcunix.http2.fuzz import GRPC_REQUEST

OPENING = frames.PREFACE + frame(frames.SETTINGS, 0, 0)
BLOCK = hpack.Encoder().encode(GRPC_REQUEST)
OK = b"\0\0\0\0\0"


def server(limits: Limits = Limits(), shared: SharedUsage | None = None) -> ServerConnection:  # noqa: B008 - frozen
    connection = ServerConnection(limits, shared, clock=lambda: 0.0)
    connection.receive(OPENING)
    connection.take()
    return connection


def headers(stream: int, flags: int = frames.END_HEADERS) -> bytes:
    return frame(frames.HEADERS, flags, stream, BLOCK)


def data(stream: int, payload: bytes = OK, flags: int = frames.END_STREAM) -> bytes:
    return frame(frames.DATA, flags, stream, payload)


def kinds(sent: bytes) -> list[tuple[int, int, bytes]]:
    """Type, stream and payload of each frame."""
    found, position = [], 0
    while position < len(sent):
        word, _, stream = frames.HEADER.unpack_from(sent, position)
        found.append((word & 0xFF, stream, sent[position + 9 : position + 9 + (word >> 8)]))
        position += 9 + (word >> 8)
    return found


def take_all(connection: ServerConnection) -> bytes:
    return b"".join(iter(connection.take, b""))


def bomb(number: int) -> bytes:
    """A header of 3,900 bytes that enters the table once and is then referenced repeatedly."""
    first = b"\x40\1a\x7f" + bytes([(3_900 - 127) & 127 | 128, (3_900 - 127) >> 7]) + b"x" * 3_900
    block = hpack.Encoder().encode(GRPC_REQUEST) + (first if number == 0 else b"") + b"\xbe" * 10_000
    return frame(frames.HEADERS, 5, 2 * number + 1, block)


def open_and_reset(number: int) -> bytes:
    stream = 2 * number + 1
    return headers(stream) + data(stream) + frames.rst_stream(stream, ErrorCode.CANCEL)


def after_first(first: bytes, then: bytes) -> Callable[[int], bytes]:
    return lambda number: then if number else first + then


FLOODS: dict[str, Callable[[int], bytes]] = {
    "ping": lambda _: frame(frames.PING, 0, 0, bytes(8)),
    "settings": lambda _: frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 9}),
    "window updates": lambda _: frames.window_update(0, 1),
    "priority": lambda _: frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown frames": lambda _: frame(99, 0, 0),
    "empty data": after_first(headers(1), data(1, b"", 0)),
    "padding": after_first(headers(1), data(1, b"\3\0\0\0", frames.PADDED)),
    "rapid reset": open_and_reset,
    "streams": lambda number: headers(2 * number + 1),
    "continuation": after_first(headers(1, 0), frame(frames.CONTINUATION, 0, 1, b"\0\1a\1b" * 100)),
    "empty continuation": after_first(headers(1, 0), frame(frames.CONTINUATION, 0, 1)),
    "header bomb": bomb,
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_ends_its_connection(name: str) -> None:
    connection = server(Limits(streams=50))
    sent = 0
    for number in range(2_000):
        connection.receive(FLOODS[name](number))
        sent += len(connection.take())
        if connection.is_closed:
            break
    assert connection.fault is not None
    assert connection.fault.code is ErrorCode.ENHANCE_YOUR_CALM
    assert sent < 20_000


@pytest.mark.parametrize("status", [Status.OK, Status.INVALID_ARGUMENT])
def test_one_ping_per_call_does_not_use_up_the_frame_budget(status: Status) -> None:
    connection = server()
    for number in range(2_000):
        stream = 2 * number + 1
        ping = frame(frames.PING, 0, 0, bytes(8))
        for event in connection.receive(headers(stream) + data(stream) + ping + frames.window_update(0, 5)):
            if status is Status.OK:
                connection.respond(event.stream, b"")
            else:
                connection.finish(event.stream, status, "no")
        connection.take()
    assert connection.fault is None


def test_frame_budget_is_refilled_over_time() -> None:
    seconds = itertools.count()
    connection = ServerConnection(clock=lambda: float(next(seconds)))
    connection.receive(OPENING)
    for _ in range(300):
        connection.receive(frame(frames.PING, 0, 0, bytes(8)))
    assert connection.fault is None


def test_stream_over_the_limit_is_refused_until_another_ends() -> None:
    connection = server(Limits(streams=2))
    connection.receive(headers(1) + headers(3) + headers(5))
    assert (frames.RST_STREAM, 5, b"\0\0\0\7") in kinds(connection.take())
    connection.respond(connection.receive(data(1))[0].stream, b"")
    connection.take()
    assert [type(event) for event in connection.receive(data(5) + headers(7) + data(7))] == [Request]


def test_client_with_many_streams_leaves_others_their_guaranteed_share() -> None:
    shared, limits = SharedUsage(), Limits(streams=10, streams_guaranteed=2, streams_total=8)
    greedy, modest = server(limits, shared), server(limits, shared)
    greedy.receive(b"".join(headers(stream) for stream in range(1, 41, 2)))
    assert (greedy.streams, shared.streams) == (8, 8)
    assert len(modest.receive(headers(1) + data(1) + headers(3) + data(3))) == 2
    assert modest.receive(headers(5) + data(5)) == []  # its share is used
    greedy.abandon()
    assert shared.streams == 2


def test_unfinished_requests_over_the_shared_limit_are_refused() -> None:
    shared, limits = SharedUsage(), Limits(unfinished_guaranteed=20_000, unfinished_total=40_000)
    greedy, modest = server(limits, shared), server(limits, shared)
    part = b"\0\0\x10\0\0" + bytes(9_995)
    for stream in range(1, 21, 2):
        greedy.receive(headers(stream) + data(stream, part, 0))
    assert shared.unfinished <= 50_000
    assert len([1 for kind, _, payload in kinds(greedy.take()) if kind == frames.HEADERS and b"8" in payload]) > 0
    assert modest.receive(headers(1) + data(1, b"\0\0\0\x27\x10" + bytes(9_000), 0)) == []
    assert len(modest.receive(data(1, bytes(1_000)))) == 1
    greedy.abandon()
    modest.abandon()
    assert (shared.streams, shared.unfinished) == (0, 0)


@pytest.mark.parametrize(
    ("payload", "status"),
    [(b"\0\0\0\0\x0b" + bytes(11), b"8"), (b"\1\0\0\0\1x", b"13"), (b"", b"13"), (OK + OK, b"13"), (b"\0\0", b"13")],
)
def test_unacceptable_message_is_refused_with_its_status(payload: bytes, status: bytes) -> None:
    connection = server(Limits(message=10))
    assert connection.receive(headers(1) + data(1, payload)) == []
    ((_, _, answer),) = [found for found in kinds(connection.take()) if found[0] == frames.HEADERS]
    assert list(hpack.Decoder().decode(answer, raw=True))[2] == (b"grpc-status", status)
    assert connection.fault is None


def test_call_answered_before_its_end_is_reset_and_ignores_late_data() -> None:
    connection = server(Limits(message=10))
    connection.receive(headers(1) + data(1, b"\0\0\0\1\0", 0))
    assert kinds(take_all(connection))[-1] == (frames.RST_STREAM, 1, b"\0\0\0\0")
    connection.receive(data(1, bytes(100), 0) + data(1, bytes(100)))  # sent before the client saw the answer
    assert connection.fault is None
    connection.receive(data(1))
    assert connection.fault is not None
    assert connection.fault.code is ErrorCode.STREAM_CLOSED


def test_reset_call_is_cancelled() -> None:
    connection = server()
    events = connection.receive(headers(1) + data(1) + frames.rst_stream(1, ErrorCode.CANCEL))
    assert events[1] == Cancelled(1)
    assert not connection.is_open(1)


def single_bytes(stream: bytes) -> Iterator[bytes]:
    yield from (stream[position : position + 1] for position in range(len(stream)))


def test_frames_are_read_from_single_bytes() -> None:
    connection, events = ServerConnection(), []
    for piece in single_bytes(OPENING + headers(1) + data(1, b"\0\0\0\0\2ab")):
        events += connection.receive(piece)
    assert events == [Request(1, b"/package.Service/Method", None, b"ab")]


def test_waiting_messages_are_not_copied_and_are_sent_in_turns() -> None:
    connection, big = server(), bytes(100_000)
    for stream in (1, 3):
        connection.receive(headers(stream) + data(stream))
        connection.send_message(stream, big)
    assert len(connection.take()) < 17_000
    take_all(connection)
    waiting = [stream.chunks for stream in connection._streams.values()]
    assert [chunks[-1] is big for chunks in waiting] == [True, True]
    connection.outbox.writable = False
    connection.receive(frames.window_update(0, 1 << 20) + frames.window_update(1, 1 << 20))
    assert connection.take() == b""  # the socket is full
    connection.outbox.writable = True
    sent = [stream for kind, stream, _ in kinds(take_all(connection)) if kind == frames.DATA]
    assert sent[:4] in ([1, 3, 1, 3], [3, 1, 3, 1])
    assert connection.outbox.drained == [1]
