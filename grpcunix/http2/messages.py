"""gRPC's content of HTTP/2: messages with their prefix, timeouts, statuses in trailers.

Source: gRPC's doc/PROTOCOL-HTTP2.md and doc/http-grpc-status-mapping.md.
"""

import re
from typing import Final

from grpcunix.http2.frames import ErrorCode
from grpcunix.status import RpcError, Status

PREFIX: Final = 5  # bytes before a message: the compression flag and the length
MAX_DETAILS: Final = 4_096  # bytes of an encoded text; other ends refuse trailers of more than 8 KiB

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_UNSAFE: Final = re.compile(rb"[^ -$&-~]|\A | \Z")  # a field's value must not begin or end with a space


def message_size(data: bytes | bytearray, limit: int) -> int | None:
    """Return the size of the message at the start of `data`; None if its prefix is incomplete.

    Raises `RpcError` for a message that is compressed, or larger than `limit` bytes.
    """
    if len(data) < PREFIX:
        return None
    if data[0]:
        raise RpcError(Status.INTERNAL, "a message says that it is compressed, and grpc-encoding says that none is")
    size = int.from_bytes(data[1:PREFIX], "big")
    if size > limit:
        raise RpcError(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the limit of {limit}")
    return size


def prefix(message: bytes) -> bytes:
    """Return the prefix of `message`. Raises ValueError if it is longer than 4 GiB."""
    if len(message) >> 32:
        raise ValueError("a message is longer than 4 GiB")
    return len(message).to_bytes(PREFIX, "big")


def encode_timeout(seconds: float) -> bytes:
    """Encode a timeout, in at most 8 digits, rounded down."""
    for unit, length in ((b"n", 1e-9), (b"u", 1e-6), (b"m", 1e-3), (b"S", 1.0)):
        number = int(max(seconds, 0.0) / length)
        if number < 100_000_000:
            return b"%d%b" % (number, unit)
    return b"99999999S"


def decode_timeout(text: bytes) -> float:
    """Return the seconds of a timeout. Raises `RpcError` for an invalid one."""
    found = _TIMEOUT(text)
    if not found:
        raise RpcError(Status.INTERNAL, "grpc-timeout must be at most 8 digits and one of H, M, S, m, u, n")
    return int(found[1]) * _UNITS[found[2]]


def encode_details(text: str) -> bytes:
    """Encode a status's text for `grpc-message`; one that is too long is cut and ends in dots."""
    encoded = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], text.encode(errors="replace"))
    if len(encoded) <= MAX_DETAILS:
        return encoded
    cut = encoded[: MAX_DETAILS - 3]
    return re.sub(rb"%.?\Z", b"", cut) + b"..."


def decode_details(text: bytes) -> str:
    """Decode `grpc-message`. Never fails: invalid encodings stay as they are."""
    return _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), text).decode(errors="replace")


def decode_status(text: bytes) -> Status:
    """Return the status of `grpc-status`; UNKNOWN for numbers that gRPC does not have."""
    try:
        return Status(int(text))
    except ValueError:
        return Status.UNKNOWN


_FROM_HTTP: Final = {
    b"400": Status.INTERNAL,
    b"401": Status.UNAUTHENTICATED,
    b"403": Status.PERMISSION_DENIED,
    b"404": Status.UNIMPLEMENTED,
    b"429": Status.UNAVAILABLE,
    b"502": Status.UNAVAILABLE,
    b"503": Status.UNAVAILABLE,
    b"504": Status.UNAVAILABLE,
}
_FROM_RESET: Final = {
    ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


def status_of_http(code: bytes) -> Status:
    """Return the gRPC status for an answer with an HTTP status only."""
    return _FROM_HTTP.get(code, Status.UNKNOWN)


def status_of_reset(code: ErrorCode) -> Status:
    """Return the gRPC status for an RST_STREAM."""
    return _FROM_RESET.get(code, Status.INTERNAL)
