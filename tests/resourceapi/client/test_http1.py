"""The client's HTTP/1.1 parser and writer, byte by byte; `python -m tests.fuzz http1-answers` tests many more."""

from collections import deque

import h11
import pytest

from resourceapi.client.http1 import MAX_HEAD, Answers, Head, ProtocolError, request
from tests.resourceapi.client.answers import compare_parsers

OK = b"HTTP/1.1 200 OK\r\n"


def read(data: bytes, *, method: str = "GET", size: int = 0) -> tuple[Head, bytes, bool]:
    """Return head and body of the last answer on a connection, and whether another answer could follow."""
    answers = Answers()
    answers.expect(method)
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    waiting = deque([*pieces, b""])
    while (head := answers.head()) is None:
        answers.feed(waiting.popleft())
    body = b""
    while (piece := answers.piece()) != b"":
        if piece is None:
            answers.feed(waiting.popleft())
        else:
            body += piece
    return head, body, answers.is_complete and not answers.has_unparsed_data and list(waiting) in ([], [b""])


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("rest", "body", "is_kept"),
    [
        (b"content-length: 3\r\n\r\nabc", b"abc", True),
        (b"Content-Length:3 \t\r\nConnection: keep-alive\r\n\r\nabc", b"abc", True),
        (b"content-length: 0\r\n\r\n", b"", True),
        (b"content-length: 3\r\nconnection: x, Close\r\n\r\nabc", b"abc", False),
        (b"content-length: 3\r\n\r\nabcd", b"abc", False),
        (b"\r\nto the end", b"to the end", False),
        (b"transfer-encoding: chunked\r\n\r\n1;x=y\r\na\r\n02 \r\nbc\r\n0\r\n\r\n", b"abc", True),
        (b"Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n000;x\r\na: b\r\nc:\r\n\r\n", b"0123456789", True),
    ],
)
def test_body_end_is_found_for_every_framing_and_chunk_size(rest: bytes, body: bytes, is_kept: bool, size: int) -> None:
    assert read(OK + rest, size=size) == (read(OK + rest)[0], body, is_kept)


def test_head_has_status_and_merged_headers() -> None:
    head, _, _ = read(b"HTTP/1.1 503 \xe4 no\r\nA: 1\r\na:\t2 \r\nB:\r\nc: x:\xe4\ty\r\ncontent-length: 0\r\n\r\n")
    assert head == (503, {"a": "1, 2", "b": "", "c": "x:\xe4\ty", "content-length": "0"})
    assert read(b"HTTP/1.1 200\r\n\r\n")[0] == (200, {})


def test_http_1_0_answer_closes_connection() -> None:
    assert read(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc")[1:] == (b"abc", False)


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_answer_204_or_304_has_no_body(status: bytes) -> None:
    assert read(b"HTTP/1.1 %s X\r\n\r\n" % status)[1:] == (b"", True)
    assert read(b"HTTP/1.1 %s X\r\ncontent-length: 5\r\n\r\n" % status)[1:] == (b"", True)


def test_informational_answers_are_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\ncontent-length: 9\r\n\r\n" * 20
    assert read(early + OK + b"content-length: 1\r\n\r\na", size=5)[1:] == (b"a", True)


def test_accepted_connect_request_has_no_body() -> None:
    assert read(OK + b"content-length: 5\r\n\r\n", method="CONNECT")[1:] == (b"", True)
    assert read(b"HTTP/1.1 407 No\r\ncontent-length: 2\r\n\r\nno", method="CONNECT")[1] == b"no"


def test_pipelined_answers_are_read_in_order() -> None:
    answers = Answers()
    answers.feed(b"HTTP/1.1 204 A\r\n\r\nHTTP/1.1 404 B\r\ncontent-length: 1\r\n\r\nb")
    for status, body in ((204, b""), (404, b"b")):
        answers.expect("GET")
        assert not answers.is_complete
        head = answers.head()
        assert head is not None
        assert (head.status, answers.piece()) == (status, body)
        assert answers.is_complete
    assert not answers.has_unparsed_data


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nx: y", "closed the connection"),
        (b"HTTP/1.1 200 OK\n\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nx: y\nz: a\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nx: y\r\n folded\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nx : y\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\n: y\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not begin"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "does not begin"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "does not begin"),
        (b"\r\n\r\n" + OK + b"\r\n", "does not begin"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n", "switched protocols"),
        (OK + b"content-length: 3\r\n\r\nab", "ended before the answer did"),
        (OK + b"content-length: 3, 3\r\n\r\nabc", "no number"),
        (OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc", "no number"),
        (OK + b"content-length: +3\r\n\r\nabc", "no number"),
        (OK + b"content-length: \xb3\r\n\r\nabc", "no number"),
        (OK + b"content-length:\r\n\r\nabc", "no number"),
        (OK + b"content-length: 9999999999999999\r\n\r\nabc", "no number"),
        (b"HTTP/1.1 204 X\r\ncontent-length: x\r\n\r\n", "no number"),
        (OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        (OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        (OK + b"transfer-encoding: identity\r\n\r\nabc", "two lengths"),
        (b"HTTP/1.1 204 X\r\ntransfer-encoding: gzip\r\n\r\n", "two lengths"),
        (b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        (OK + b"transfer-encoding: chunked\r\n\r\n", "ended before"),
        (OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc", "ended before"),
        (OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "ended before"),
        (OK + b"transfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", "longer than it says"),
        (OK + b"transfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", "no size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", "no size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n\r\n", "no size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n1000000000000\r\nabc", "no size"),
        (OK + b"transfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "CRLF"),
        (OK + b"transfer-encoding: chunked\r\n\r\n3;" + b"x" * 5000 + b"\r\nabc\r\n0\r\n\r\n", "too long"),
        (OK + b"transfer-encoding: chunked\r\n\r\n0\r\nno header\r\n\r\n", "no header"),
        (OK + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: %b\r\n" % (b"y" * 4000) * 9 + b"\r\n", "too much"),
        (OK + b"x: %b\r\n" % (b"y" * MAX_HEAD) + b"\r\n", "more than"),
        (OK + b"x: y\r\n" * MAX_HEAD, "more than"),
    ],
)
def test_malformed_answer_is_refused(data: bytes, reason: str, size: int) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read(data, size=size)


def test_random_answers_are_read_like_h11() -> None:
    outcomes = {compare_parsers(seed) for seed in range(500)}
    assert outcomes == {"read", "damaged, and read", "cut off", "refused by us alone"}


def test_request_is_written_in_http_1_1() -> None:
    headers = {"Host": "a:1", "Authorization": "Bearer x y", "Empty": ""}
    sent = b"GET /b?c=d HTTP/1.1\r\nHost: a:1\r\nAuthorization: Bearer x y\r\nEmpty: \r\n"
    assert request("GET", "/b?c=d", headers, None) == sent + b"\r\n"
    assert request("PATCH", "/", {}, b"{}") == b"PATCH / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    assert request("PUT", "/", {}, b"") == b"PUT / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


def test_h11_reads_written_request() -> None:
    headers = {"Host": "[::1]:1", "User-Agent": "a (b; c)", "X": "a\tb", "Empty": ""}
    server = h11.Connection(h11.SERVER)
    server.receive_data(request("PATCH", "/b%20c?d=e&f=%0A", headers, b"{}\r\n"))
    received, body, end = (server.next_event() for _ in range(3))
    assert isinstance(received, h11.Request)
    assert (received.method, received.target) == (b"PATCH", b"/b%20c?d=e&f=%0A")
    found = {name.decode(): value.decode() for name, value in received.headers}
    assert found == {name.lower(): value for name, value in headers.items()} | {"content-length": "4"}
    assert isinstance(body, h11.Data)
    assert bytes(body.data) == b"{}\r\n"
    assert isinstance(end, h11.EndOfMessage)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\n", " secret", "secret ", "\xe4", "\ud800", "a\0b", "\x7f"])
def test_invalid_header_value_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(ProtocolError, match=r"^Authorization has characters") as raised:
        request("GET", "/", {"Host": "a", "Authorization": value}, None)
    assert value not in str(raised.value)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nx: y", "/\xe4", ""])
def test_invalid_request_target_is_refused(target: str) -> None:
    with pytest.raises(ProtocolError, match="must not have"):
        request("GET", target, {"Host": "a"}, None)
