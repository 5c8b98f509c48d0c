"""Random HTTP/1.1 answers, valid and damaged, parsed by our client and by h11, an independent implementation.

Rule: h11 accepts every answer that we accept, and reads the same heads and bodies. We refuse more than h11 does, but
accept all valid answers that an API server sends, such as those of `valid_answer`.
"""

from collections.abc import Sequence
from random import Random

import h11
from msgspec import Struct

from resourceapi.client.http1 import Answers, ProtocolError
from tests.fuzz.mutation import mutated

FRAGMENTS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"content-length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"connection: close\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b" ",
    b"\t",
    b":",
    b",",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0x3",
    b"-1",
    b"+3",
    b"ffffffffffff",
)

_ONLY_H11_REFUSES = (  # also in trailers and in 1xx answers, whose content we ignore
    "Only Transfer-Encoding: chunked is supported",
    "multiple Transfer-Encoding headers",
    "bad Content-Length",
    "conflicting Content-Length headers",
)


class ParsedAnswers(Struct):
    """The result of a connection: status, headers and body of each answer, and whether the last one was complete."""

    answers: list[tuple[int, dict[str, str], bytes, bool]]
    refused: str = ""


def valid_answer(source: Random) -> bytes:
    """Return an answer as servers send it. Another answer can follow."""
    status = source.choice((200, 201, 204, 304, 401, 404, 429, 503))
    lines = [b"HTTP/1.1 %d %s" % (status, source.choice((b"OK", b"", b"Not Found", b"\xe4")))]
    lines += source.sample(
        (b"Date: Thu, 26 Nov 2026 21:00:00 GMT", b"audit-id:1", b"x-a: \t b ", b"x-a:", b"vary: a,b"), 3
    )
    body = source.randbytes(source.choice((0, 1, 30, 3000)))
    if status in (204, 304):
        body = b""
    elif source.random() < 0.5:
        lines.append(source.choice((b"content-length: %d", b"Content-Length:%d ")) % len(body))
    else:
        lines.append(source.choice((b"transfer-encoding: chunked", b"Transfer-Encoding: Chunked")))
        body = _chunks(source, body)
    before = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * source.choice((0, 0, 0, 1, 3))
    return before + b"\r\n".join((*lines, b"", body))


def _chunks(source: Random, body: bytes) -> bytes:
    made = b""
    while body:
        piece, body = body[: (size := source.randrange(1, 1200))], body[size:]
        made += b"%x%s\r\n%s\r\n" % (len(piece), source.choice((b"", b" ", b";a=b", b';a="b" ')), piece)
    return made + b"000"[: source.randrange(1, 4)] + b"\r\n" + source.choice((b"", b"x: y\r\n")) + b"\r\n"


def split(source: Random, data: bytes) -> list[bytes]:
    """Return the bytes in pieces, as a socket could deliver them."""
    pieces = []
    while data:
        size = source.choice((1, 2, 7, 100, 5000))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def read_with_client(pieces: Sequence[bytes]) -> ParsedAnswers:
    """Read answers to GET until an error or the end of the connection."""
    found, answers, waiting = ParsedAnswers([]), Answers(), [*pieces, b""]
    try:
        while any(waiting) or answers.has_unparsed_data:
            answers.expect("GET")
            while (head := answers.head()) is None:
                answers.feed(waiting.pop(0))
            body = b""
            found.answers.append((head.status, dict(head.headers), body, False))
            while (piece := answers.piece()) != b"":
                if piece is None:
                    answers.feed(waiting.pop(0))
                else:
                    body += piece
                    found.answers[-1] = (head.status, dict(head.headers), body, False)
            found.answers[-1] = (head.status, dict(head.headers), body, True)
            if not answers.is_complete:
                break  # no further answer can follow
    except ProtocolError as error:
        found.refused = str(error)
    return found


def read_with_h11(pieces: Sequence[bytes]) -> ParsedAnswers:
    """Do the same with h11."""
    found, connection, waiting = (
        ParsedAnswers([]),
        h11.Connection(h11.CLIENT, max_incomplete_event_size=32 * 1024),
        [*pieces, b""],
    )
    request = h11.Request(method="GET", target="/", headers=[("host", "x")])
    try:
        while any(waiting) or connection.trailing_data[0]:
            connection.send(request)
            connection.send(h11.EndOfMessage())
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(waiting.pop(0))
                elif isinstance(event, h11.Response):
                    headers: dict[str, str] = {}
                    for name, value in ((x.decode("latin-1"), y.decode("latin-1")) for x, y in event.headers):
                        headers[name] = f"{headers[name]}, {value}" if name in headers else value
                    found.answers.append((event.status_code, headers, b"", False))
                elif isinstance(event, h11.Data):
                    status, headers, body, _ = found.answers[-1]
                    found.answers[-1] = (status, headers, body + bytes(event.data), False)
                elif not isinstance(event, h11.InformationalResponse):
                    raise h11.RemoteProtocolError(f"{event!r}")
            found.answers[-1] = (*found.answers[-1][:3], True)
            if (connection.our_state, connection.their_state) != (h11.DONE, h11.DONE):
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        found.refused = str(error)
    return found


def compare_parsers(seed: int) -> str:
    """Check a seed's bytes: both accept them, or only h11 does, and the result does not depend on the pieces."""
    source = Random(seed)
    valid = [valid_answer(source) for _ in range(source.randrange(1, 4))]
    data = b"".join(valid)
    is_damaged = source.random() < 0.8
    if is_damaged:
        data = mutated(source, [data], FRAGMENTS)
    found, whole, other = read_with_client(split(source, data)), read_with_client([data]), read_with_h11([data])
    assert found == whole, "the result depends on the pieces"
    if not is_damaged:
        assert not found.refused or not data, found.refused
        assert len(found.answers) == len(valid)
    for _, headers, _, _ in (*found.answers, *other.answers):
        if "transfer-encoding" in headers:
            headers["transfer-encoding"] = headers["transfer-encoding"].lower()  # as h11 does
    ours, theirs = ([answer for answer in each.answers if answer[3]] for each in (found, other))
    if other.refused in _ONLY_H11_REFUSES:
        assert all(map(_has_one_length, ours)), "the client accepted an ambiguous length"
        ours = ours[: len(theirs)]
    assert ours == theirs[: len(ours)], "the client and h11 read different answers"
    if found.refused:
        return "cut off" if other.refused else "refused by us alone"
    assert not other.refused or other.refused in _ONLY_H11_REFUSES, other.refused
    return "damaged, and read" if is_damaged else "read"


def _has_one_length(answer: tuple[int, dict[str, str], bytes, bool]) -> bool:
    coding, length = answer[1].get("transfer-encoding"), answer[1].get("content-length")
    return coding in (None, "chunked") and (length is None or (coding is None and length.isdecimal()))
