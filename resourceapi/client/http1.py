"""The client side of HTTP/1.1 on one connection: encodes requests and parses answers. No sockets.

It implements only what clients of an API server need, strictly: an answer that two parsers could read differently is
refused. Lines must end in CRLF, a header cannot continue on the next line, and at most one rule sets a body's length:
chunks, Content-Length, or the connection's end. Upgrades and HEAD are not supported, and trailers are discarded.
All data that is kept for an incomplete answer is limited in size. Limits on time are the caller's task.
Source: RFC 9112 and, for the syntax of headers, RFC 9110.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

MAX_HEAD = 32 * 1024
"""The most bytes of an answer's first line and headers together, and of the trailer of a chunked body."""
_MAX_CHUNK_LINE = 4096  # bytes: the size, and extensions, which are ignored
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"

_ANSWER = re.compile(
    rb"HTTP/1\.(?P<minor>[01]) (?P<status>[1-9][0-9]{2})(?: %b)?\r\n(?P<headers>(?:%b:%b\r\n)*+)\r\n"
    % (_TEXT, _TOKEN, _TEXT)
)
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})(?:;%b)?[\t ]*" % _TEXT)
_TRAILER = re.compile(rb"%b:%b" % (_TOKEN, _TEXT))
_TARGET = re.compile(r"[\x21-\x7e]+")
_SENT_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")


class ProtocolError(Exception):
    """An answer is not valid HTTP/1.1, or a request would not be; the message says why."""


class Head(NamedTuple):
    """The head of an answer. Header names are in lower case; repeated headers are joined with commas."""

    status: int
    headers: Mapping[str, str]


def request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Encode a request. Raises ProtocolError if the server could not parse it, or would parse another request."""
    wrong = [name for name, value in headers.items() if not _SENT_VALUE.fullmatch(value)]  # values can be secret
    if wrong or not _TARGET.fullmatch(target):
        raise ProtocolError(f"{', '.join(wrong) or repr(target)} has characters that it must not have")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join((*lines, "", "")).encode()
    return head + body if body else head


class Answers:
    """The parser of one connection's answers, one after the other."""

    def __init__(self) -> None:
        """Start without an expected answer; see `expect`."""
        self._data = bytearray()
        self._searched = 0  # bytes that do not contain the end of a head
        self._is_ended = False
        self._method = ""
        self._is_last = False
        self._body: _Body = _Sized(0)  # each class implements one way of finding the body's end

    @property
    def is_complete(self) -> bool:
        """Whether the answer was read to its end, and another can follow on the connection."""
        return self._body.is_complete and not self._is_last

    @property
    def has_unparsed_data(self) -> bool:
        """Whether there are received bytes that have not been parsed."""
        return bool(self._data)

    def expect(self, method: str) -> None:
        """Expect the answer to a request of this method next; the previous answer must be complete."""
        self._method, self._is_last = method, True

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty data means that the server sends no more."""
        if data:
            self._data += data
        else:
            self._is_ended = True

    def head(self) -> Head | None:
        """Return the head of the answer; None if it is not complete yet. Raises ProtocolError.

        Interim answers (1xx) are skipped.
        """
        while (found := self._next_head()) is not None:
            minor, head = found
            if head.status == 101:
                raise ProtocolError("the server switched protocols (101), which was not requested")
            if head.status >= 200:
                self._body = _body(self._method, minor, head)
                options = head.headers.get("connection", "").lower().split(",")
                self._is_last = minor == b"0" or "close" in map(str.strip, options)
                return head
        return None

    def piece(self) -> bytes | None:
        """Return the next piece of the body: empty at its end, None if nothing has arrived. Raises ProtocolError."""
        piece = self._body.piece(self._data)
        if piece is None and self._is_ended:
            if self._body.ends_with_connection:
                return b""
            raise ProtocolError("the connection ended before the answer did")
        return piece

    def _next_head(self) -> tuple[bytes, Head] | None:
        end = _END_OF_HEAD.search(self._data, self._searched)
        if (end.end() if end else len(self._data)) > MAX_HEAD:
            raise ProtocolError(f"the head of the answer has more than {MAX_HEAD} bytes")
        if end is None:
            if self._is_ended:
                raise ProtocolError("the server closed the connection")
            self._searched = max(len(self._data) - 2, 0)
            return None
        found = _ANSWER.fullmatch(self._data, 0, end.end())
        if found is None:
            raise ProtocolError("the answer does not begin as one of HTTP/1.1")
        minor, status, lines = found.group("minor", "status", "headers")
        headers: dict[str, str] = {}
        for line in lines.decode("latin-1").split("\r\n")[:-1]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip("\t ")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        del self._data[: end.end()]
        self._searched = 0
        return minor, Head(int(status), headers)


class _Sized:
    """A body of `size` bytes."""

    ends_with_connection = False

    def __init__(self, size: int) -> None:
        self._left = size

    @property
    def is_complete(self) -> bool:
        return not self._left

    def piece(self, data: bytearray) -> bytes | None:
        if not self._left:
            return b""
        if not data:
            return None
        piece = _taken(data, self._left)
        self._left -= len(piece)
        return piece


class _Chunked:
    """A body in chunks, each preceded by its size."""

    ends_with_connection = False

    def __init__(self) -> None:
        self._left = 0  # bytes that are left of the chunk
        self._read_line = self._read_size  # parses the next line
        self._trailer = 0  # bytes read of the trailer
        self.is_complete = False

    def piece(self, data: bytearray) -> bytes | None:
        while not self._left:
            if self.is_complete:
                return b""
            line = _line(data)
            if line is None:
                return None
            self._read_line(line)
        if not data:
            return None
        piece = _taken(data, self._left)
        self._left -= len(piece)
        return piece

    def _read_size(self, line: bytes) -> None:
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise ProtocolError("a chunk of the answer has no size")
        self._left = int(found[1], 16)
        self._read_line = self._read_end if self._left else self._read_trailer

    def _read_end(self, line: bytes) -> None:
        if line:
            raise ProtocolError("a chunk of the answer is longer than it says")
        self._read_line = self._read_size

    def _read_trailer(self, line: bytes) -> None:
        self._trailer += len(line)
        if line and (self._trailer > MAX_HEAD or not _TRAILER.fullmatch(line)):
            raise ProtocolError("what follows the answer's last chunk is too much, or no header")
        self.is_complete = not line


class _UntilClosed:
    """A body that ends with the connection, so that its completeness cannot be checked."""

    ends_with_connection = True
    is_complete = False

    def piece(self, data: bytearray) -> bytes | None:
        return _taken(data, len(data)) if data else None


_Body: TypeAlias = _Sized | _Chunked | _UntilClosed


def _body(method: str, minor: bytes, head: Head) -> _Body:
    """Return the parser of the body that follows a head. Raises ProtocolError if its length is ambiguous or invalid."""
    coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise ProtocolError("the length of the answer is no number")
    if coding is not None and (coding.lower() != "chunked" or length is not None or minor == b"0"):
        raise ProtocolError("the answer has two lengths, or a transfer encoding that was not requested")
    if head.status in (204, 304) or (method == "CONNECT" and 200 <= head.status < 300):
        return _Sized(0)
    if coding is not None:
        return _Chunked()
    return _UntilClosed() if length is None else _Sized(int(length))


def _taken(data: bytearray, most: int) -> bytes:
    piece = bytes(data[:most])
    del data[:most]
    return piece


def _line(data: bytearray) -> bytes | None:
    """Remove and return a line; None if its end has not arrived. Raises ProtocolError."""
    end = data.find(b"\n", 0, _MAX_CHUNK_LINE)
    if end < 0:
        if len(data) >= _MAX_CHUNK_LINE:
            raise ProtocolError("a line between chunks of the answer is too long")
        return None
    line = _taken(data, end + 1)
    if not line.endswith(b"\r\n"):
        raise ProtocolError("a line between chunks of the answer does not end in CRLF")
    return line[:-2]
