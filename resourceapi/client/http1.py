"""HTTP/1.1 as a client speaks it on one connection: requests to bytes, bytes to answers. No sockets.

Only what clients of an API server need, and strictly: what two readers could understand in two ways is no answer. So
lines end in CRLF, no header goes on in the next line, and a body has one length at most: chunks, a number, or the
connection's end. No upgrade, no trailer that anybody would read, no answer to HEAD, which is never asked.
All that is kept while an answer is not complete has a limit; who reads too slowly or for ever is the caller's concern.
Source: RFC 9112 and, for the parts of headers, RFC 9110.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

MOST_HEAD = 32 * 1024
"""Bytes of an answer's first line and headers, and of what follows a chunked body."""
_LONGEST_CHUNK_LINE = 4096  # bytes: a number, and extensions that nobody reads
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
    """What came is no answer in HTTP/1.1, or what is to be sent no request; says why."""


class Head(NamedTuple):
    """The head of an answer. Headers are by names in lower case; several of one name are one, with commas."""

    status: int
    headers: Mapping[str, str]


def request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return a request as it is sent. Raises ProtocolError for what would be another one there, or none."""
    wrong = [name for name, value in headers.items() if not _SENT_VALUE.fullmatch(value)]  # which may be secret
    if wrong or not _TARGET.fullmatch(target):
        raise ProtocolError(f"{', '.join(wrong) or repr(target)} has characters that it must not have")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join((*lines, "", "")).encode()
    return head + body if body else head


class Answers:
    """The answers of one connection, one after the other."""

    def __init__(self) -> None:
        """Nothing is asked yet (`expect`)."""
        self._data = bytearray()
        self._searched = 0  # bytes in which the end of a head is not
        self._is_ended = False
        self._method = ""
        self._is_last = False
        self._body: _Body = _Sized(0)  # how long it is, which each of these says in its way

    @property
    def is_complete(self) -> bool:
        """Whether the answer was read to its end, and another may follow it."""
        return self._body.is_complete and not self._is_last

    @property
    def has_rest(self) -> bool:
        """Whether something came that nobody has read."""
        return bool(self._data)

    def expect(self, method: str) -> None:
        """Read the answer to a request of this method next; the one before is complete."""
        self._method, self._is_last = method, True

    def feed(self, data: bytes) -> None:
        """Take what came; nothing: that the server sends no more."""
        if data:
            self._data += data
        else:
            self._is_ended = True

    def head(self) -> Head | None:
        """Return the head of the answer, None where more of it is to come. Raises ProtocolError.

        What a server says before its answer (1xx) is skipped.
        """
        while (found := self._next_head()) is not None:
            minor, head = found
            if head.status == 101:
                raise ProtocolError("the server speaks another protocol, which nobody asked for")
            if head.status >= 200:
                self._body = _body(self._method, minor, head)
                options = head.headers.get("connection", "").lower().split(",")
                self._is_last = minor == b"0" or "close" in map(str.strip, options)
                return head
        return None

    def piece(self) -> bytes | None:
        """Return what comes next of the body, nothing at its end, None where more is to come. Raises ProtocolError."""
        piece = self._body.piece(self._data)
        if piece is None and self._is_ended:
            if self._body.ends_with_connection:
                return b""
            raise ProtocolError("the connection ended before the answer did")
        return piece

    def _next_head(self) -> tuple[bytes, Head] | None:
        end = _END_OF_HEAD.search(self._data, self._searched)
        if (end.end() if end else len(self._data)) > MOST_HEAD:
            raise ProtocolError(f"the head of the answer has more than {MOST_HEAD} bytes")
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
    """A body of so many bytes."""

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
    """A body in chunks, each with its size in front."""

    ends_with_connection = False

    def __init__(self) -> None:
        self._left = 0  # bytes of the chunk
        self._read_line = self._read_size  # what the next line is
        self._trailer = 0  # bytes
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
        if line and (self._trailer > MOST_HEAD or not _TRAILER.fullmatch(line)):
            raise ProtocolError("what follows the answer's last chunk is too much, or no header")
        self.is_complete = not line


class _UntilClosed:
    """A body that ends with the connection: nobody can say that it is complete."""

    ends_with_connection = True
    is_complete = False

    def piece(self, data: bytearray) -> bytes | None:
        return _taken(data, len(data)) if data else None


_Body: TypeAlias = _Sized | _Chunked | _UntilClosed


def _body(method: str, minor: bytes, head: Head) -> _Body:
    """Return how long the body is that follows a head. Raises ProtocolError where it says two things, or nonsense."""
    coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise ProtocolError("the length of the answer is no number")
    if coding is not None and (coding.lower() != "chunked" or length is not None or minor == b"0"):
        raise ProtocolError("the answer says in two ways how long it is, or in one that nobody asked for")
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
    """Take a line, None where its end is still to come. Raises ProtocolError."""
    end = data.find(b"\n", 0, _LONGEST_CHUNK_LINE)
    if end < 0:
        if len(data) >= _LONGEST_CHUNK_LINE:
            raise ProtocolError("a line between chunks of the answer is too long")
        return None
    line = _taken(data, end + 1)
    if not line.endswith(b"\r\n"):
        raise ProtocolError("a line between chunks of the answer does not end in CRLF")
    return line[:-2]
