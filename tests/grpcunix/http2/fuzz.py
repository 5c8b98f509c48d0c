"""Random frames, header blocks and answers, compared with the packages h2 and hpack.

The suite runs a few; `python -m tests.grpcunix.http2.fuzz 1000000` runs this number of each check, on all cores, and
prints its progress.
"""

import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Callable

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import FrameDataMissingError, ProtocolError

from grpcunix.http2 import ClientConnection, Ended, Limits, Request, ServerConnection, frames
from grpcunix.http2.frames import Fault
from grpcunix.http2.hpack import Decoder, encode
from grpcunix.http2.huffman import decode as huffman_decode
from grpcunix.status import Status

GRPC_REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/package.Service/Method"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
_PAYLOADS = [
    b"",
    b"\0" * 4,
    b"\0\0\0\1",
    b"\0\0\0\5",
    b"\x7f\xff\xff\xff",
    b"\0" * 8,
    b"\0\4\0\0\0\5",
    b"\0\4\xff\xff\xff\xff",
    b"\0\0\0\1\5",
]

# Known differences from h2, by its messages or by ours. All other results must be equal.
_ONLY_H2_REFUSES = (
    "does not have an :authority",  # gRPC does not require it
    "may not depend on itself",  # RFC 9113 removed priorities
    "the reserved bit",  # which receivers must ignore
    "InvalidBodyLength",  # on a stream that we have refused before, whose frames we ignore
    "ConnectionState.CLOSED",  # h2 ends with the client's GOAWAY; we finish its calls
)
_ONLY_WE_REFUSE = (
    "server push is not permitted",  # h2 checks the stream first, also in the next case
    "CONTINUATION without the HEADERS",
    " in state CLOSED",  # stream errors; see `states`
    " in state HALF_CLOSED_REMOTE",
    " in state IDLE",  # RST_STREAM on idle streams
    "HEADERS on stream",  # even numbers
    "a window is larger",  # a stream error
    "must be trailers",  # h2 accepts trailers without END_STREAM as informational headers
    "content-length",
    "characters that",  # h2 does not check headers of closed streams
)


def request_frames(source: random.Random) -> list[bytes]:
    """A client's frames, with more or fewer violations of the protocol."""
    encoder, made = hpack.Encoder(), [frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)]
    wildness = source.choice([0.0, 0.05, 0.3, 1.0])
    last, begun = -1, [1]
    for _ in range(source.randrange(1, 20)):
        if source.random() < wildness:
            made.append(_wild_frame(source, encoder))
        elif source.random() < 0.4:
            last += 2
            begun.append(last)
            flags = source.choice([frames.END_HEADERS] * 9 + [frames.END_HEADERS | frames.END_STREAM])
            made.append(frames.frame(frames.HEADERS, flags, last, encoder.encode(_fields(source, wildness))))
        else:
            made.append(_usual_frame(source, source.choice(begun)))
    return made


def _usual_frame(source: random.Random, stream: int) -> bytes:
    size = source.choice([0, 1, 20])
    message = b"\0" + size.to_bytes(4, "big") + b"x" * size
    return source.choice(
        [
            frames.frame(frames.DATA, frames.END_STREAM, stream, message),
            frames.frame(frames.DATA, frames.END_STREAM, stream, message),
            frames.frame(frames.DATA, 0, stream, message[: source.randrange(len(message) + 1)]),
            frames.frame(frames.DATA, frames.PADDED, stream, b"\2" + message + b"\0\0"),
            frames.window_update(source.choice([0, stream]), source.choice([1, 5, 1 << 30])),
            frames.frame(frames.PING, source.choice([0, 1]), 0, bytes(8)),
            frames.settings({source.choice(list(frames.Setting)[2:4]): source.choice([0, 1, 20_000])}),
            frames.rst_stream(stream, frames.ErrorCode.CANCEL),
            frames.frame(11, 0, stream, b"unknown"),
        ]
    )


def _wild_frame(source: random.Random, encoder: hpack.Encoder) -> bytes:
    kind = source.choice([0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 11])
    stream, flags = source.choice([0, 1, 1, 1, 3, 3, 5, 2, 7]), source.choice([0, 0, 1, 4, 5, 8, 0x20, 0x2D])
    payload = source.choice([*_PAYLOADS, source.randbytes(source.randrange(12))])
    if kind == frames.HEADERS and source.random() < 0.8:
        payload, stream, flags = encoder.encode(_fields(source, 1)), stream | 1, source.choice([4, 4, 4, 5, 5, 1, 0])
    return frames.frame(kind, flags, stream, payload)


def _fields(source: random.Random, wildness: float) -> list[tuple[bytes, bytes]]:
    fields = list(GRPC_REQUEST)
    if source.random() < 0.1:
        fields.append((b"content-length", source.choice([b"5", b"6", b"25"])))
    if source.random() < wildness / 4:
        fields = fields[: source.randrange(len(fields))]
    if source.random() < wildness / 8:
        source.shuffle(fields)
    if source.random() < 0.3:
        fields.append((b"grpc-timeout", b"1S"))
    return fields


def serve(seed: int) -> str:
    """Our server and h2's must refuse the same frames and receive the same requests."""
    ours, theirs = (
        ServerConnection(clock=lambda: 0.0),
        H2Connection(H2Configuration(client_side=False, header_encoding=None)),
    )
    theirs.initiate_connection()
    theirs.increment_flow_control_window((1 << 20) - frames.DEFAULT_WINDOW)
    got: list[tuple[int, bytes]] = []
    bodies: dict[int, bytes] = {}
    expected: list[tuple[int, bytes]] = []
    for frame in request_frames(random.Random(seed)):
        got += [(event.stream, event.message) for event in ours.receive(frame) if isinstance(event, Request)]
        ours.take()
        refusal = ""
        try:
            for event in theirs.receive_data(frame):
                if isinstance(event, RequestReceived) and dict(event.headers).items() >= dict(GRPC_REQUEST[4:]).items():
                    bodies[event.stream_id] = b""
                elif isinstance(event, DataReceived) and event.stream_id in bodies:
                    bodies[event.stream_id] += event.data
                elif isinstance(event, StreamEnded) and event.stream_id in bodies:
                    expected.append((event.stream_id, bodies[event.stream_id]))
        except FrameDataMissingError:
            refusal = "frame data"
        except ProtocolError as error:
            refusal = str(error) or type(error).__name__
            if "non-compliant" in refusal and frame[3] == frames.WINDOW_UPDATE:
                refusal = "the reserved bit"
        fault = str(ours.fault) if ours.fault else ""
        if fault and refusal:
            return "both refuse"
        if fault or refusal:
            known = _ONLY_WE_REFUSE if fault else _ONLY_H2_REFUSES
            assert any(words in fault + refusal for words in known), (seed, frame, fault, refusal)
            return "one refuses, as known"
    whole = [(s, b[5:]) for s, b in expected if b[:1] == b"\0" and len(b) - 5 == int.from_bytes(b[1:5], "big")]
    assert sorted(got) == sorted(whole), (seed, got, whole)
    return "the same requests"


def headers(seed: int) -> str:
    """Our decoder and hpack's must decode the same blocks of a connection to the same headers."""
    source = random.Random(seed)
    ours, theirs, encoder = Decoder(1 << 14), hpack.Decoder(max_header_list_size=1 << 14), hpack.Encoder()
    for _ in range(source.randrange(1, 6)):
        if source.random() < 0.2:
            block = source.randbytes(source.randrange(1, 24))
        else:
            if source.random() < 0.1:
                encoder.header_table_size = source.choice([0, 50, 100, 4096])
            names = [b"a", b"grpc-timeout", b":path", b"x" * source.randrange(1, 60)]
            fields = [(source.choice(names), source.randbytes(5).hex().encode()) for _ in range(source.randrange(8))]
            block = encoder.encode(fields, huffman=source.random() < 0.7)
            if source.random() < 0.1:
                block = block[: source.randrange(len(block) + 1)]
        try:
            expected = [tuple(field) for field in theirs.decode(block, raw=True)]
        except hpack.HPACKError:
            expected = None
        try:
            found = ours.decode(block)
        except Fault as fault:
            if expected is not None and "characters" not in str(fault) and "longer than any" not in str(fault):
                raise AssertionError(seed, block, expected) from fault
            return "refused"
        assert found == expected, (seed, block, found, expected)
    return "read"


def text(seed: int) -> str:
    """Valid and invalid Huffman strings."""
    source = random.Random(seed)
    plain = source.randbytes(source.randrange(20))
    block = hpack.Encoder().encode([(b"a", plain)], huffman=True)
    if plain:
        name = 2 + (block[1] & 0x7F)  # first byte of the literal, length of the name, the name, length of the value
        assert block[name] & 0x80
        assert huffman_decode(block[name + 1 :]) == plain, (seed, plain)
    wrong = source.randbytes(source.randrange(1, 8))
    try:
        ours = huffman_decode(wrong)
    except Fault:
        ours = None
    try:
        theirs = next(iter(hpack.Decoder().decode(b"\0\1a" + bytes([0x80 | len(wrong)]) + wrong, raw=True)))[1]
    except hpack.HPACKError:
        theirs = None
    assert ours == theirs, (seed, wrong, ours, theirs)
    return "read" if ours is not None else "refused"


def answers(seed: int) -> str:
    """For any bytes from a server, our client ends every call exactly once, and raises nothing."""
    source = random.Random(seed)
    client = ClientConnection("localhost", Limits(message=64), clock=lambda: 0.0)
    begun = [client.request("/package.Service/Method", b"x" * source.randrange(40), None) for _ in range(3)]
    client.take()
    ended = []
    good = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
    refused = good + encode([(b"grpc-status", b"7"), (b"grpc-message", b"no%")])
    blocks = [good, encode([(b"grpc-status", b"0")]), refused]
    pieces = [frames.frame(frames.SETTINGS, 0, 0)]
    wildness, stages = source.choice([0.0, 0.05, 0.3, 1.0]), dict.fromkeys(begun, 0)
    for _ in range(source.randrange(1, 20)):
        kind = source.choice([0, 0, 0, 1, 1, 1, 1, 3, 4, 6, 7, 8, 9, 11])
        stream, flags = source.choice([0, 1, 1, 1, 3, 3, 5, 7, 2]), source.choice([0, 0, 1, 4, 5, 8])
        payload = source.choice([*_PAYLOADS, source.randbytes(source.randrange(12))])
        if source.random() >= wildness:
            stream = source.choice(begun)
            stages[stream] += 1
            kind, flags, payload = [
                (frames.HEADERS, frames.END_HEADERS, good),
                (frames.DATA, 0, b"\0\0\0\0\3abc" * source.randrange(3)),
                (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, blocks[1]),
                (frames.RST_STREAM, 0, b"\0\0\0\0"),
            ][min(stages[stream], 4) - 1]
        pieces.append(frames.frame(kind, flags, stream, payload))
    data = b"".join(pieces)
    while data:
        cut = source.randrange(1, len(data) + 1)
        ended += [event.stream for event in client.receive(data[:cut]) if isinstance(event, Ended)]
        data = data[cut:]
        client.take()
    ended += [event.stream for event in client.abandon(Status.UNAVAILABLE, "gone") if isinstance(event, Ended)]
    assert sorted(ended) == begun, (seed, ended)
    return "a fault" if client.fault else "no fault"


CHECKS: list[Callable[[int], str]] = [serve, headers, text, answers]
_PART = 20_000  # runs of each check between progress reports


def run(check: Callable[[int], str], seeds: range) -> Counter[str]:
    """Run one check for each seed, and count its results."""
    return Counter(map(check, seeds))


def main(count: int) -> None:
    """Run each check `count` times, in turns."""
    totals: dict[str, Counter[str]] = {check.__name__: Counter() for check in CHECKS}
    with multiprocessing.Pool() as pool:
        for start in range(0, count, _PART):
            part = range(start, min(start + _PART, count))
            for check in CHECKS:
                pieces = [(check, part[begin : begin + 1_000]) for begin in range(0, len(part), 1_000)]
                for found in pool.starmap(run, pieces):
                    totals[check.__name__] += found
            print(part.stop, {name: dict(total) for name, total in totals.items()}, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
