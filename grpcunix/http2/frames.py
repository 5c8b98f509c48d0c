"""Frames: their kinds, flags and layout (RFC 9113, sections 4, 6 and 7).

A frame is 9 bytes (length, kind, flags, stream) and a payload. Payloads of at most 16,384 bytes are accepted and sent,
the smallest limit that the protocol allows.
"""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_PAYLOAD: Final = 16_384  # bytes
MAX_WINDOW: Final = (1 << 31) - 1
DEFAULT_WINDOW: Final = 65_535
MAX_STREAM_ID: Final = (1 << 31) - 1

HEADER: Final = struct.Struct(">IBI")  # length and kind in one word, flags, stream
WORD: Final = struct.Struct(">I")
SETTING: Final = struct.Struct(">HI")

# plain numbers: a frame's kind is the index of its handler
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Setting(IntEnum):
    """The parameters in SETTINGS."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class Fault(Exception):
    """The other end broke the protocol or a limit; the connection ends with this code and text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        """Store the code; `text` is sent in GOAWAY, for debugging the other end."""
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """Encode a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(name, value) for name, value in values.items()))


def window_update(stream_id: int, increment: int) -> bytes:
    """Encode a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream_id, WORD.pack(increment))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """Encode a RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, WORD.pack(code))


def goaway(last_stream: int, code: ErrorCode, text: str) -> bytes:
    """Encode a GOAWAY frame: streams above `last_stream` were not and will not be processed."""
    return frame(GOAWAY, 0, 0, WORD.pack(last_stream) + WORD.pack(code) + text.encode()[:256])


def error_code(number: int) -> ErrorCode:
    """Return the code of a frame; unknown ones mean INTERNAL_ERROR (RFC 9113, section 7)."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.INTERNAL_ERROR


def unpad(flags: int, payload: bytes) -> bytes:
    """Remove padding. Raises `Fault` if it is longer than the frame."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Fault(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
